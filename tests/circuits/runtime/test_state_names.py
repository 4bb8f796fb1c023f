"""Names of operators and of state, and the views that an arrangement takes memory for."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest

from circuits import InputOptions, compile_sql
from circuits.runtime.state_names import StateNames, arrangement_sizes
from tests.support.tables import EDGE, not_null_integers

BEST = "CREATE VIEW best AS SELECT src, max(dst) AS m FROM e GROUP BY src;"
PATHS = "CREATE VIEW paths AS SELECT x.src, y.dst FROM e x JOIN e y ON x.dst = y.src;"
MARKED = "CREATE VIEW marked AS SELECT e.src FROM e JOIN mark ON mark.node = e.src;"
LARGE = "CREATE VIEW large AS SELECT src FROM e WHERE dst > 10;"
VIEWS = (BEST, PATHS, MARKED, LARGE)
INPUTS = {"e": not_null_integers("src", "dst"), "mark": not_null_integers("node")}


def operator_names(circuit):
    """Return the name and the work of each operator in `explain`."""
    return set(re.findall(r"─ (#\w+) (.*?)  \[rows", circuit.explain()))


@pytest.mark.parametrize(
    "views", [VIEWS[::-1], VIEWS[2:], VIEWS[1:3], (LARGE, BEST)], ids=["all", "2:", "1:3", "2"]
)
def test_the_name_of_an_operator_does_not_depend_on_the_other_views(views):
    names = operator_names(compile_sql("".join(views), INPUTS))
    assert names
    assert names <= operator_names(compile_sql("".join(VIEWS), INPUTS))


def test_different_operators_have_different_names():
    circuit = compile_sql("".join(VIEWS), INPUTS, materialize=True)
    names = [node.name for node in circuit.graph.nodes]
    assert len(names) == len(set(names))


def test_every_part_of_the_state_has_a_name_of_its_own():
    circuit = compile_sql("".join(VIEWS), INPUTS, materialize=True)
    circuit.step({"e": pa.table({"src": [1, 2], "dst": [2, 30]}), "mark": pa.table({"node": [1]})})
    sizes = arrangement_sizes(circuit.committed)
    assert len({size.name for size in sizes}) == len(sizes)
    assert {"e[0,1]", "e[1,0]", "best.rows[0,1]", "e.rows[0,1]"} <= {size.name for size in sizes}
    state = next(size for size in sizes if ".state[" in size.name)
    assert (state.part.description, state.views) == ("aggregate max(dst) by src", ("best",))
    assert sum(size.bytes for size in sizes if size.name == "e[0,1]") > 0


def test_an_arrangement_is_kept_for_the_views_whose_joins_read_its_column_order():
    circuit = compile_sql("".join(VIEWS), INPUTS)
    circuit.step({"e": pa.table({"src": [1, 2], "dst": [2, 30]}), "mark": pa.table({"node": [1]})})
    views = {size.name: size.views for size in arrangement_sizes(circuit.committed)}
    assert set(views["mark[0]"]) == {"marked"}
    # `large` reads e without a join, so it needs no arrangement.
    assert not any("large" in names for names in views.values())
    assert views["e[1,0]"] == ("paths",)
    assert "paths" in views["e[0,1]"]


def test_the_arrangement_for_the_keys_of_an_input_is_kept_for_all_its_views():
    options = {"e": InputOptions(keys=["src"])}
    circuit = compile_sql(LARGE + BEST, {"e": EDGE}, input_options=options)
    names = StateNames(circuit.graph)
    (order,) = circuit.graph.checked_inputs["e"].orders
    assert names.views_of("relation e", order) == ("large", "best")


def test_the_plan_lists_arrangements_once_with_their_views():
    circuit = compile_sql(PATHS + MARKED, INPUTS)
    text = circuit.explain()
    assert text.count("\narrangements\n") == 1
    lines = text.split("\narrangements\n")[1].splitlines()
    assert any(re.fullmatch(r"  e\[1,0\] for paths  no runs; 0 bytes", line) for line in lines)


def test_an_unknown_name_is_its_own_name():
    names = StateNames(compile_sql(BEST, {"e": EDGE}).graph)
    assert names.name("text") == "text" and names.part("text") is None
    assert names.name("stage 1 relation r0", (0,)) == "stage 1 relation r0[0]"
    assert names.views_of("relation x", (0,)) == ()
