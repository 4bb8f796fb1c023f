"""Drawings of a circuit: each operator once, with rows, time and the plans of joins."""

from __future__ import annotations

import re
from itertools import count

import pytest

from circuits import Circuit, CircuitError, compile_datalog, compile_sql
from circuits.circuit_spec import CircuitSpec
from circuits.schema import Schema
from circuits.sql import plan_sql
from tests.support.tables import EDGE, MARK, edges, marks, not_null_integers

INPUTS = {"link": EDGE, "mark": MARK}
VIEWS = """
CREATE VIEW e AS SELECT DISTINCT src, dst FROM link WHERE src <> dst;
CREATE VIEW triangles AS
    SELECT count(*) AS n
    FROM e ab JOIN e bc ON bc.src = ab.dst JOIN e ca ON ca.src = bc.dst AND ca.dst = ab.src;
CREATE VIEW sinks AS SELECT src FROM e WHERE EXISTS (SELECT 1 FROM mark WHERE node = e.dst);
CREATE VIEW top AS SELECT src, count(*) AS n FROM link GROUP BY src ORDER BY n DESC LIMIT 2;
"""
BOX = re.compile(r'^    n(\d+)\["(.*)"\]$', re.MULTILINE)


def drawn_lines(circuit):
    """Return the lines of the trees, without the plans of the joins."""
    return circuit.explain().split("\n\n")[0].splitlines()


def operators(circuit):
    """Return the lines without the characters that draw the tree."""
    return [re.sub(r"^[ │├└─]+", "", line) for line in drawn_lines(circuit)]


def drawn_names(lines):
    """Return the names, such as #3f0c2a, of the lines that draw an operator."""
    return [
        line.split()[0] for line in lines if line.startswith("#") and "(drawn above)" not in line
    ]


def test_each_operator_of_the_graph_is_drawn_once_in_both_formats():
    circuit = compile_sql(VIEWS, INPUTS, materialize=True)
    numbers = drawn_names(operators(circuit))
    boxes = BOX.findall(circuit.explain("mermaid"))
    assert len(numbers) == len(set(numbers))
    assert len(boxes) == len({number for number, _ in boxes}) == len(numbers) + len(INPUTS)


def test_each_view_heads_its_tree_and_shared_operators_are_drawn_once():
    circuit = compile_sql(VIEWS, INPUTS)
    lines = operators(circuit)
    assert [line for line in lines if line in circuit.outputs] == list(circuit.outputs)
    distinct = [line for line in lines if re.match(r"#\w+ distinct", line)]
    assert ["(drawn above)" in line for line in distinct].count(False) == 2  # e, and marks as a set
    for position, line in enumerate(lines):
        if "(drawn above)" in line:
            assert line.split()[0] in drawn_names(lines[:position])


def test_rows_and_time_are_those_of_all_committed_steps():
    ticks = count()
    schemas = {name: Schema.of(name, schema).fields for name, schema in INPUTS.items()}
    text = "SELECT src FROM link WHERE src > 1"
    circuit = Circuit(
        CircuitSpec(plan_sql(text, schemas, name="big"), INPUTS), clock=lambda: next(ticks) / 1000
    )
    assert "[rows 0, 0.00 ms]" in operators(circuit)[1]
    circuit.step({"link": edges((1, 2), (2, 3), (3, 4))})
    circuit.step({"link": edges((2, 3), weights=[-1])})
    circuit.prepare({"link": edges((7, 8))})  # not committed, so not counted
    view, *lines = operators(circuit)
    assert view == "big"
    assert lines[-1] == "input link(src, dst)  [rows 4, 2.00 ms]"
    # The filter and the projection after it are one call, whose time is that of the projection.
    figures = {re.search(r"\[.*\]", line)[0] for line in lines[:-1]}
    assert figures == {"[rows 3, 2.00 ms]", "[rows 3, 0.00 ms]"}


def test_the_tree_shows_the_operators_in_the_order_of_the_query():
    counts = "SELECT src, count(*) AS n FROM link WHERE dst > 3 GROUP BY src"
    text = f"SELECT * FROM ({counts}) ORDER BY src DESC LIMIT 2"
    circuit = compile_sql(text, {"link": not_null_integers("src", "dst")})
    lines = [line.split("  [")[0] for line in operators(circuit)]
    labels = [line.split(" ", 1)[1] for line in lines[1:-1]]
    assert labels[0] == "top 2 in order src desc"
    assert labels[1] == "aggregate count(*) by src"
    assert labels[-1].startswith("filter dst > 3")
    assert lines[-1] == "input link(src, dst)"


def test_a_join_is_drawn_as_a_rule_and_followed_by_its_delta_terms():
    circuit = compile_sql(
        VIEWS,
        {"link": not_null_integers("src", "dst"), "mark": not_null_integers("node")},
        outputs=[],
    )
    text = circuit.explain()
    (join,) = [line for line in operators(circuit) if line.count("#") == 4]
    number = join.split()[0]
    assert re.search(r"join\(\) :- #\w+\(src, dst\), #\w+\(dst, \w+\), #\w+\(\w+, src\)", join)
    assert f"\n\n{number}: join() :-" in text
    assert "formula collapsed, 3 terms" in text


def test_the_formula_in_use_is_named():
    text = compile_sql(VIEWS, INPUTS, formula="recursive_flipped").explain()
    assert "formula recursive_flipped" in text and "collapsed" not in text


def test_a_mermaid_drawing_is_a_flowchart_of_boxes_and_arrows_to_every_view():
    circuit = compile_sql(VIEWS, INPUTS)
    circuit.step({"link": edges((1, 2)), "mark": marks(2)})
    first, *lines = circuit.explain("mermaid").splitlines()
    assert first == "flowchart TD"
    boxes = {number for number, _ in BOX.findall(circuit.explain("mermaid"))}
    arrows = [re.fullmatch(r"    n(\d+) --> ([nv])(\d+)", line) for line in lines]
    arrows = [arrow.groups() for arrow in arrows if arrow]
    assert {source for source, _, _ in arrows} <= boxes
    assert {target for _, kind, target in arrows if kind == "n"} <= boxes
    assert len(set(arrows)) == len(arrows)
    views = [line for line in lines if re.fullmatch(r'    v\d+\(\["\w+"\]\)', line)]
    assert len(views) == len([a for a in arrows if a[1] == "v"]) == len(circuit.outputs)
    assert len(lines) == len(boxes) + len(arrows) + len(views)


def test_quotes_in_a_text_do_not_end_a_box():
    schemas = {"link": EDGE}
    circuit = compile_sql('SELECT \'say "no"\' AS "a ""b""" FROM link', schemas, name='q"q')
    drawing = circuit.explain("mermaid")
    assert drawing.count('"') == 2 * (len(BOX.findall(drawing)) + 1)
    assert "#quot;no#quot;" in drawing and 'v0(["q#quot;q"])' in drawing


def test_two_equivalent_views_are_one_operator_with_two_names():
    circuit = compile_datalog("p(a) :- link(a, b). q(x) :- link(x, y).", {"link": EDGE})
    lines = operators(circuit)
    assert sum("(drawn above)" in line for line in lines) == 1
    drawing = circuit.explain("mermaid")
    assert drawing.count("--> v") == 2


def test_an_unknown_format_is_refused_and_the_formats_listed():
    with pytest.raises(CircuitError, match="no format 'svg'; formats are text, mermaid"):
        compile_sql(VIEWS, INPUTS).explain("svg")
