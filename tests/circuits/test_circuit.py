"""Steps of a circuit: columns, outputs, all or nothing, prepared and committed, threads."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from circuits import (
    BrokenCircuitError,
    Circuit,
    CircuitError,
    EvaluationError,
    SchemaError,
    StaleStepError,
    UnknownInputError,
    UnknownViewError,
    compile_datalog,
    compile_sql,
)
from circuits.circuit_spec import CircuitSpec
from circuits.options import CircuitOptions
from dbsp_wcoj import Formula, FormulaError, WeightOverflowError
from tests.support.tables import (
    EDGE,
    MARK,
    Totals,
    bag_of,
    edges,
    marks,
    not_null_integers,
    table_of,
)

INPUTS = {"link": EDGE, "mark": MARK}
VIEWS = """
CREATE VIEW e AS SELECT DISTINCT src, dst FROM link WHERE src <> dst;
CREATE VIEW triangles AS
    SELECT count(*) AS n
    FROM e ab JOIN e bc ON bc.src = ab.dst JOIN e ca ON ca.src = bc.dst AND ca.dst = ab.src;
CREATE VIEW degrees AS SELECT src, count(*) AS n, max(dst) AS furthest FROM link GROUP BY src;
CREATE VIEW marked AS SELECT l.src, l.dst FROM link l JOIN mark m ON m.node = l.dst;
CREATE VIEW open AS SELECT src FROM e WHERE NOT EXISTS (SELECT 1 FROM mark WHERE node = e.dst);
"""
CYCLE = [(1, 2), (2, 3), (3, 1)]
SWAP = "SELECT dst, src FROM link"


def expected(links, nodes):
    """Compute the rows of each view, with their weights, from all links and marks."""
    e = {(a, b) for (a, b), w in links.items() if w > 0 and None not in (a, b) and a != b}
    targets = {a: Counter({b: w for (x, b), w in links.items() if x == a}) for a, _ in links}
    marked = Counter(
        {(a, b): w * nodes[b] for (a, b), w in links.items() if b is not None and nodes[b]}
    )
    open_edges = Counter(a for a, b in e if not nodes[b])
    return {
        "e": Counter(dict.fromkeys(e, 1)),
        "triangles": Counter({(sum((c, a) in e for a, b in e for b2, c in e if b == b2),): 1}),
        "degrees": Counter(
            {
                (a, counts.total(), max((b for b in counts if b is not None), default=None)): 1
                for a, counts in targets.items()
            }
        ),
        "marked": marked,
        "open": Counter({(a,): n for a, n in open_edges.items()}),
    }


def random_steps(count, rng):
    """Yield changes of links and marks, and the links and marks after them."""
    links, nodes = Counter(), Counter()
    values = [None, 0, 1, 2, 3, 4]
    for _ in range(count):
        tables = {}
        for name, bag in (("link", links), ("mark", nodes)):
            changes = []
            for _ in range(rng.integers(0, 7)):
                present = list(bag.elements())
                if present and rng.random() < 0.4:
                    row, weight = present[rng.integers(len(present))], -1
                else:
                    row = tuple(values[i] for i in rng.integers(6, size=2 - (name == "mark")))
                    row, weight = (row if name == "link" else row[0]), int(rng.integers(1, 3))
                bag[row] += weight
                bag += Counter()
                changes.append((row, weight))
            if changes:
                rows, weights = zip(*changes, strict=True)
                make = edges if name == "link" else marks
                tables[name] = make(*rows, weights=weights)
        yield tables, +links, +nodes


@pytest.mark.parametrize("formula", list(Formula))
def test_summed_output_deltas_are_the_views_of_the_summed_inputs_in_every_formula(formula):
    totals = Totals(compile_sql(VIEWS, INPUTS, formula=formula, materialize=True))
    for tables, links, nodes in random_steps(12, np.random.default_rng(len(formula))):
        totals.step(tables)
        assert totals.bags == expected(links, nodes)
        views = totals.circuit.views
        assert {name: bag_of(views[name]) for name in totals.bags} == totals.bags
        assert bag_of(views["link"]) == links


def test_columns_are_matched_by_name_in_any_order_and_of_any_integer_type():
    circuit = compile_sql(SWAP, {"link": EDGE}, name="swap")
    table = pa.table(
        {
            "dst": pa.array([2], pa.int8()),
            "weight": pa.array([3], pa.uint16()),
            "src": pa.array([1], pa.int32()),
        }
    )
    out = circuit.step({"link": table})["swap"]
    assert out.column_names == ["dst", "src", "weight"]
    assert out.schema.types == [pa.int64()] * 3
    assert bag_of(out) == {(2, 1): 3}


def test_only_the_named_outputs_are_returned_and_all_views_by_default():
    assert list(compile_sql(VIEWS, INPUTS, outputs=["triangles"]).step({})) == ["triangles"]
    assert list(compile_sql(VIEWS, INPUTS).step({})) == list(expected(Counter(), Counter()))


@pytest.mark.parametrize("role", ["outputs", "materialize"])
def test_a_name_that_is_no_view_is_refused_and_the_views_are_listed(role):
    with pytest.raises(
        CircuitError, match=f"{role}: unknown relation 'triangle'; relations: .*open"
    ):
        compile_sql(VIEWS, INPUTS, **{role: ["triangle"]})
    with pytest.raises(CircuitError, match=rf"{role}='open' must be a collection.*\['open'\]"):
        compile_sql(VIEWS, INPUTS, **{role: "open"})


def test_a_formula_that_does_not_exist_is_refused():
    with pytest.raises(FormulaError):
        compile_sql(SWAP, {"link": EDGE}, formula="cheapest")


def test_an_unsupported_type_is_refused_with_its_relation_and_column():
    schema = pa.schema([("tags", pa.dense_union([pa.field("x", pa.string())]))])
    with pytest.raises(SchemaError, match=r"'r'.*'tags'"):
        compile_sql("SELECT 1 AS x FROM r", {"r": schema})


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (pa.table({"src": [1]}), "no column 'dst'"),
        (pa.table({"src": [1], "dst": [2], "dest": [3]}), "surplus"),
        (pa.table({"src": [1.5], "dst": [2.0]}), "double"),
        (pa.table({"src": ["a"], "dst": ["b"]}), "string"),
        (pa.table({"src": pa.array([2**63], pa.uint64()), "dst": [1]}), "'src'"),
        (pa.table({"src": [-(2**63)], "dst": [1]}), "'src'"),
        (pa.table({"src": [1], "dst": [2], "weight": [1.0]}), "'weight' is of type double"),
        (pa.table({"src": [1], "dst": [2], "weight": pa.array([None], pa.int8())}), "1 NULL of 1"),
        (pa.table([[1], [2], [3]], names=["src", "src", "dst"]), "repeated"),
    ],
)
def test_a_table_that_does_not_fit_its_schema_is_an_error_and_changes_nothing(table, words):
    circuit = compile_sql(VIEWS, INPUTS, materialize=True)
    circuit.step({"link": edges((1, 2))})
    before = state_of(circuit)
    with pytest.raises(SchemaError, match=words):
        circuit.step({"mark": marks(2), "link": table})
    assert state_of(circuit) == before
    assert_continues_from_one_link(circuit)


def test_null_in_a_column_that_is_not_null_is_refused():
    circuit = compile_sql("SELECT a FROM r", {"r": not_null_integers("a")})
    with pytest.raises(SchemaError, match="declared not null"):
        circuit.step({"r": pa.table({"a": [1, None]})})


def test_an_unknown_input_is_an_error_that_lists_the_inputs():
    circuit = compile_sql(VIEWS, INPUTS)
    with pytest.raises(UnknownInputError, match="'edges' is not an input; inputs are link, mark"):
        circuit.step({"edges": edges((1, 2))})


def state_of(circuit):
    return {name: bag_of(table) for name, table in circuit.views.items()}


def assert_continues_from_one_link(circuit):
    """Add the other links of the cycle, and a mark, to a circuit that has link (1, 2) alone."""
    out = circuit.step({"link": edges(*CYCLE[1:]), "mark": marks(2)})
    assert bag_of(out["triangles"]) == {(0,): -1, (3,): 1}
    assert bag_of(out["marked"]) == {(1, 2): 1}
    assert bag_of(out["open"]) == {(1,): -1, (2,): 1, (3,): 1}
    assert bag_of(out["degrees"]) == {(2, 1, 3): 1, (3, 1, 1): 1}


def test_an_overflow_in_one_view_leaves_all_views_as_they_were():
    circuit = compile_sql(VIEWS, INPUTS, materialize=True)
    circuit.step({"link": edges((1, 2))})
    before = state_of(circuit)
    huge = 2**62
    for tables in (
        {"link": edges((1, 2), (5, 6), weights=[2**63 - 1, 1])},  # the weight of a row
        {"link": edges((1, 2), (1, 3), weights=[huge, huge])},  # the count of a group
        {"link": edges((1, 2), weights=[huge]), "mark": marks(2, weights=[2])},  # a product
    ):
        with pytest.raises(WeightOverflowError):
            circuit.step(tables)
        assert state_of(circuit) == before
    assert_continues_from_one_link(circuit)


def test_an_expression_without_a_value_for_a_row_leaves_all_views_as_they_were():
    views = """
        CREATE VIEW kinds AS SELECT kind, count(*) AS n, max(amount) AS most FROM r GROUP BY kind;
        CREATE VIEW firsts AS SELECT kind, amount FROM r ORDER BY amount, kind LIMIT 1;
        CREATE VIEW numbers AS SELECT CAST(amount AS BIGINT) AS number FROM r;
    """
    schema = pa.schema([("kind", pa.string()), ("amount", pa.string())])
    circuit = compile_sql(views, {"r": schema}, materialize=True)
    circuit.step({"r": table_of(schema, [("a", "7")])})
    before = state_of(circuit)
    with pytest.raises(EvaluationError, match="'x'"):
        circuit.step({"r": table_of(schema, [("b", "5"), ("a", "x")])})
    assert state_of(circuit) == before
    out = circuit.step({"r": table_of(schema, [("b", "6")])})
    assert bag_of(out["kinds"]) == {("b", 1, "6"): 1}
    assert bag_of(out["firsts"]) == {("a", "7"): -1, ("b", "6"): 1}
    assert bag_of(out["numbers"]) == {(6,): 1}


def test_a_prepared_step_has_its_outputs_and_commits_once_unless_it_is_stale():
    circuit = compile_sql(SWAP, {"link": EDGE}, name="swap", materialize=True)
    first = circuit.prepare({"link": edges((1, 2))})
    stale = circuit.prepare({"link": edges((3, 4))})
    assert bag_of(first.outputs["swap"]) == {(2, 1): 1}
    assert bag_of(circuit.views["swap"]) == {}
    first.commit()
    for step in (first, stale):
        with pytest.raises(StaleStepError, match="prepare it again"):
            step.commit()
    circuit.prepare({"link": edges((5, 6))})  # never committed
    assert bag_of(circuit.step({})["swap"]) == {}
    assert bag_of(circuit.views["swap"]) == {(2, 1): 1}


class Failing:
    changes = ()

    def commit(self):
        raise MemoryError


def half_committed(circuit, tables):
    """Commit a step that fails after its first operators."""
    step = circuit.prepare(tables)
    failing = replace(step.graph_step, staged=[*step.graph_step.staged[:1], Failing()])
    with pytest.raises(MemoryError):
        replace(step, graph_step=failing).commit()
    return step


def test_a_commit_that_fails_half_way_closes_the_circuit():
    circuit = compile_sql(VIEWS, INPUTS, materialize=True)
    step = half_committed(circuit, {"link": edges((1, 2))})
    for use in (
        lambda: circuit.step({}),
        step.commit,
        circuit.snapshot,
        lambda: circuit.query("SELECT count(*) FROM link"),
        lambda: circuit.views,
    ):
        with pytest.raises(BrokenCircuitError, match="restore a snapshot, or build a new circuit"):
            use()


def test_a_count_of_all_rows_is_output_in_the_first_step_even_an_empty_one():
    circuit = compile_sql("SELECT count(*) AS n, sum(src) AS s FROM link", {"link": EDGE})
    assert bag_of(circuit.step({})["view"]) == {(0, None): 1}
    assert bag_of(circuit.step({})["view"]) == {}
    assert bag_of(circuit.step({"link": edges((4, 1))})["view"]) == {(0, None): -1, (1, 4): 1}


def test_a_first_step_that_is_not_committed_leaves_the_constants_to_the_next():
    circuit = compile_sql("SELECT 7 AS x UNION ALL SELECT count(*) FROM link", {"link": EDGE})
    circuit.prepare({})
    assert bag_of(circuit.step({"link": edges((1, 1))})["view"]) == {(7,): 1, (1,): 1}
    assert bag_of(circuit.step({})["view"]) == {}


def test_a_relation_without_columns_is_its_weight():
    rules = "on(a, b) :- link(a, b), switch(). off() :- not switch()."
    schemas = {"link": EDGE, "switch": pa.schema([])}
    circuit = compile_datalog(rules, schemas, materialize=True)
    assert bag_of(circuit.step({"link": edges((1, 2))})["off"]) == {(): 1}
    out = circuit.step({"switch": pa.table({"weight": [2, -1]})})
    assert (bag_of(out["on"]), bag_of(out["off"])) == ({(1, 2): 1}, {(): -1})
    assert bag_of(circuit.views["switch"]) == {(): 1}
    out = circuit.step({"switch": pa.table({"weight": [-1]})})
    assert (bag_of(out["on"]), bag_of(out["off"])) == ({(1, 2): -1}, {(): 1})


def test_a_view_that_is_not_kept_is_an_error_that_says_how_to_keep_it():
    circuit = compile_sql(VIEWS, INPUTS, materialize=["open", "link"])
    assert set(circuit.views) == {"open", "link"}
    assert "open" in circuit.views and "e" not in circuit.views
    with pytest.raises(UnknownViewError, match=r"'e' is not materialized.*materialize=\['e'\]"):
        circuit.views["e"]
    with pytest.raises(UnknownViewError, match="unknown view 'x'; inputs and views: link, mark, e"):
        circuit.views["x"]


def test_an_input_may_have_the_name_of_an_operator():
    circuit = compile_sql(
        'SELECT a.x FROM "#2" a JOIN (SELECT DISTINCT x FROM r) b ON b.x = a.x',
        {"r": not_null_integers("x"), "#2": not_null_integers("x")},
    )
    tables = {"#2": pa.table({"x": [1, 1]}), "r": pa.table({"x": [1, 2]})}
    assert bag_of(circuit.step(tables)["view"]) == {(1,): 2}


@pytest.mark.parametrize(
    "view",
    [
        "SELECT * FROM a LEFT JOIN b ON x = y",
        "SELECT * FROM b RIGHT JOIN a ON x = y",
        "SELECT * FROM a FULL JOIN b ON x = y",
        "SELECT * FROM b FULL JOIN a ON x = y",
        "SELECT * FROM b UNION ALL SELECT * FROM c",
        "SELECT * FROM b UNION SELECT * FROM c",
        "SELECT y, count(*) AS n FROM a LEFT JOIN b ON x = y GROUP BY y",
        "SELECT max(y) AS y FROM b",
        "SELECT x + NULL AS y FROM a",
    ],
)
def test_null_in_a_view_of_columns_without_null_joins_nothing(view):
    text = f"""
        CREATE VIEW v AS {view};
        CREATE VIEW w AS SELECT count(*) AS n FROM v p JOIN v q ON q.y = p.y;
    """
    schemas = {
        "a": not_null_integers("x"),
        "b": not_null_integers("y"),
        "c": pa.schema([("z", pa.int64())]),
    }
    circuit = compile_sql(text, schemas)
    null = pa.table({"z": pa.array([None], pa.int64())})
    out = circuit.step({"a": pa.table({"x": [1]}), "c": null})
    assert None in out["v"]["y"].to_pylist()
    assert out["v"].schema.field("y").nullable
    assert bag_of(out["w"]) == {(0,): 1}


def test_a_circuit_of_plans_without_views_steps():
    assert Circuit(CircuitSpec({}, {"link": EDGE})).step({"link": edges((1, 2))}) == {}


def test_a_step_that_is_refused_leaves_no_codes_behind():
    schema = pa.schema([("a", pa.int64()), ("s", pa.string())])
    circuit = compile_sql("SELECT a + 9223372036854775807 AS x, s FROM t", {"t": schema})
    circuit.step({"t": pa.table({"a": [0], "s": ["kept"]})})
    with pytest.raises(EvaluationError):
        circuit.step({"t": pa.table({"a": [1], "s": ["refused"]})})
    assert circuit.snapshot().dictionaries["text"][1].tobytes() == b"kept"
    delta = circuit.step({"t": pa.table({"a": [-1], "s": ["next"]})})["view"]
    assert delta["s"].to_pylist() == ["next"]


def test_a_circuit_shows_its_views_inputs_steps_and_kept_rows():
    circuit = compile_sql("SELECT src FROM link", {"link": EDGE}, name="v<1>", materialize=["link"])
    assert repr(circuit) == "<Circuit of v<1> from link: 0 steps, keeps link>"
    circuit.step({"link": edges((1, 2), (3, 4))})
    assert repr(circuit) == "<Circuit of v<1> from link: 1 step, keeps link>"
    page = circuit._repr_html_()
    assert "<td>input</td><td>link</td><td>src int64, dst int64</td><td>2</td>" in page
    assert "<td>view</td><td>v&lt;1&gt;</td><td>src int64</td><td>not kept</td>" in page


def test_options_are_checked_when_the_spec_is_made():
    plans = compile_sql("SELECT src FROM link", {"link": EDGE}).plans
    spec = CircuitSpec(plans, {"link": EDGE}, CircuitOptions(materialize=True))
    assert spec.materialized == ("link", "view") and spec.outputs == ("view",)
    with pytest.raises(CircuitError, match="outputs: unknown relation 'nothing'"):
        CircuitSpec(plans, {"link": EDGE}, CircuitOptions(outputs=["nothing"]))
