from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import circuits
from circuits import (
    BrokenCircuitError,
    Circuit,
    RuleError,
    Schema,
    SchemaError,
    StaleStepError,
    UnknownInputError,
)
from circuits import errors as circuit_errors
from dbsp_wcoj import (
    DbspWcojError,
    Formula,
    FormulaError,
    Query,
    QuerySyntaxError,
    WeightOverflowError,
)
from tests import naive

EDGE = pa.schema([("src", pa.int64()), ("dst", pa.int64())])
MARK = pa.schema([("node", pa.int64())])
RULES = (
    "e(a, b) :- link(a, b), a != b",
    "e(b, a) :- link(a, b), a > 2",
    "seen(b) :- mark(b)",
    "corner(a) :- e(a, b), e(b, c), e(a, c), seen(a)",
    "corner(c) :- e(a, b), e(b, c), e(a, c), seen(c)",
    "count() :- e(a, b), e(b, c), e(c, a)",
    "raw(a) :- link(a, b), mark(b)",
)
DISTINCT = ("e", "seen")
INPUTS = {"link": EDGE, "mark": MARK}


def link(*rows, weights=None):
    columns = {"src": [row[0] for row in rows], "dst": [row[1] for row in rows]}
    if weights is not None:
        columns["weight"] = weights
    return pa.table({name: pa.array(values, pa.int64()) for name, values in columns.items()})


def rows(table):
    *columns, weight = (column.to_pylist() for column in table.columns)
    return dict(
        zip(zip(*columns, strict=True) if columns else [()] * len(weight), weight, strict=True)
    )


def evaluate(relations):
    """The rules from scratch: the naive join, sums of rules, sets where distinct."""
    known = dict(relations)
    for name in ("e", "seen", "corner", "count", "raw"):
        total = {}
        for rule in RULES:
            query = Query.parse(rule)
            if query.name == name:
                for row, weight in naive.evaluate(query, known).items():
                    total[row] = total.get(row, 0) + weight
        if name in DISTINCT:
            total = {row: 1 for row, weight in total.items() if weight > 0}
        known[name] = {row: weight for row, weight in total.items() if weight}
    return known


NODE = st.integers(0, 4)
CHANGES = st.lists(st.tuples(NODE, NODE, st.integers(-2, 3)), max_size=6)
MARKS = st.lists(st.tuples(NODE, st.integers(-2, 3)), max_size=3)


@settings(max_examples=40)
@given(st.sampled_from(list(Formula)), st.lists(st.tuples(CHANGES, MARKS), max_size=5))
def test_summed_output_deltas_equal_all_rules_on_the_summed_inputs(formula, stream):
    circuit = Circuit(RULES, INPUTS, distinct=DISTINCT, formula=formula)
    state = {"link": {}, "mark": {}}
    views = {name: {} for name in circuit.outputs}
    for links, marks in stream:
        for a, b, weight in links:
            state["link"][a, b] = state["link"].get((a, b), 0) + weight
        for a, weight in marks:
            state["mark"][a,] = state["mark"].get((a,), 0) + weight
        tables = {"link": link(*links, weights=[w for _, _, w in links])}
        if marks:  # a relation may be absent
            tables["mark"] = pa.table(
                {"node": [a for a, _ in marks], "weight": [w for _, w in marks]}
            )
        for name, table in circuit.step(tables).items():
            for row, weight in rows(table).items():
                views[name][row] = views[name].get(row, 0) + weight
        expected = evaluate({k: {r: w for r, w in v.items() if w} for k, v in state.items()})
        for name, view in views.items():
            assert {row: w for row, w in view.items() if w} == expected[name], name


def test_columns_are_matched_by_name_in_any_order_and_of_any_integer_type():
    circuit = Circuit(["swap(b, a) :- link(a, b)"], {"link": EDGE})
    table = pa.table(
        {
            "dst": pa.array([2], pa.int8()),
            "weight": pa.array([3], pa.uint16()),
            "src": pa.array([1], pa.int32()),
        }
    )
    out = circuit.step({"link": table})["swap"]
    assert out.column_names == ["b", "a", "weight"]
    assert rows(out) == {(2, 1): 3}
    assert out.schema.types == [pa.int64()] * 3


def test_only_the_named_outputs_are_returned_and_all_heads_by_default():
    chosen = Circuit(RULES, INPUTS, distinct=DISTINCT, outputs=["count"])
    assert list(chosen.step({})) == ["count"]
    assert set(Circuit(RULES, INPUTS).outputs) == {"e", "seen", "corner", "count", "raw"}


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (pa.table({"src": [1]}), "no column 'dst'"),
        (pa.table({"src": [1], "dst": [2], "dest": [3]}), "surplus"),
        (pa.table({"src": [1], "dst": [None]}), "type null"),
        (pa.table({"src": [1, 2], "dst": [2, None]}), "1 NULL of 2"),
        (pa.table({"src": [1.5], "dst": [2.0]}), "type double"),
        (pa.table({"src": ["a"], "dst": ["b"]}), "integer codes"),
        (pa.table({"src": pa.array([2**63], pa.uint64()), "dst": [1]}), "does not fit int64"),
        (pa.table({"src": [1], "dst": [2], "weight": [1.0]}), "'weight' is of type double"),
        (pa.table([[1], [2], [3]], names=["src", "src", "dst"]), "repeated"),
    ],
)
def test_a_table_that_does_not_fit_its_schema_is_an_error_and_changes_nothing(table, words):
    circuit = Circuit(RULES, INPUTS, distinct=DISTINCT)
    triangle = link((1, 2), (2, 0), (0, 1))
    with pytest.raises(SchemaError, match=words):
        circuit.step({"mark": pa.table({"node": [1]}), "link": table})
    assert rows(circuit.step({"link": triangle})["count"]) == {(): 3}
    assert rows(circuit.step({"mark": pa.table({"node": [1]})})["seen"]) == {(1,): 1}


def test_an_unknown_input_is_an_error_that_lists_the_inputs():
    circuit = Circuit(RULES, INPUTS)
    with pytest.raises(UnknownInputError, match="'edges' is not an input; inputs are link, mark"):
        circuit.step({"edges": link((1, 2))})


def test_an_overflow_in_one_view_leaves_all_views_as_they_were():
    rules = ["plain(a, b) :- link(a, b)", "kept(a, b) :- link(a, b), link(b, a)"]
    circuit = Circuit(rules, {"link": EDGE})
    circuit.step({"link": link((1, 2), (2, 1), weights=[2**40, 1])})
    with pytest.raises(WeightOverflowError):
        circuit.step({"link": link((2, 1), weights=[2**40])})
    out = circuit.step({"link": link((2, 1), weights=[1])})
    assert rows(out["plain"]) == {(2, 1): 1}
    assert rows(out["kept"]) == {(1, 2): 2**40, (2, 1): 2**40}


def test_a_prepared_step_shows_its_outputs_and_commits_once_and_in_time():
    circuit = Circuit(["swap(b, a) :- link(a, b)"], {"link": EDGE})
    first = circuit.prepare({"link": link((1, 2))})
    late = circuit.prepare({"link": link((3, 4))})
    assert rows(first.outputs["swap"]) == {(2, 1): 1}
    first.commit()
    for step in (first, late):
        with pytest.raises(StaleStepError, match="prepare it again"):
            step.commit()
    circuit.prepare({"link": link((5, 6))})  # never committed
    assert rows(circuit.step({})["swap"]) == {}


def test_a_commit_that_fails_half_way_closes_the_circuit():
    class Failing:
        def commit(self):
            raise MemoryError

    circuit = Circuit(["swap(b, a) :- link(a, b)"], {"link": EDGE})
    step = circuit.prepare({"link": link((1, 2))})
    broken = circuits.CircuitStep(step.outputs, (*step.operators, Failing()), circuit, step.version)
    with pytest.raises(MemoryError):
        broken.commit()
    with pytest.raises(BrokenCircuitError):
        circuit.step({})
    with pytest.raises(BrokenCircuitError):
        step.commit()


@pytest.mark.parametrize(
    ("rules", "options", "words"),
    [
        (["p(a) :- q(a)", "q(a) :- p(a)"], {}, "in a circle"),
        (["p(a) :- p(a)"], {}, "in a circle"),
        (["p(a) :- missing(a)"], {}, "neither an input nor a head"),
        (["p(a) :- link(a)"], {}, "it has 2 columns"),
        (["p(a) :- link(a, b)", "p(a, b) :- link(a, b)"], {}, "heads of 1 and of 2"),
        (["link(a, b) :- link(a, b)"], {}, "is an input and the head"),
        (["p(weight) :- link(weight, b)"], {}, "rename"),
        (["p(a, a) :- link(a, b)"], {}, "differ from each other"),
        (["p(a) :- link(a, b)"], {"distinct": ["q"]}, "distinct: 'q' is not the head"),
        (["p(a) :- link(a, b)"], {"outputs": ["link"]}, "outputs: 'link' is not the head"),
    ],
)
def test_rules_that_make_no_circuit_are_refused_with_a_way_out(rules, options, words):
    with pytest.raises(RuleError, match=words):
        Circuit(rules, {"link": EDGE}, **options)


def test_errors_of_a_rule_come_through_from_the_core():
    with pytest.raises(QuerySyntaxError):
        Circuit(["p(a) : link(a, b)"], {"link": EDGE})
    with pytest.raises(FormulaError):
        Circuit(["p(a) :- link(a, b)"], {"link": EDGE}, formula="cheapest")


def test_a_schema_refuses_other_types_reserved_and_repeated_names():
    with pytest.raises(SchemaError, match="integer codes"):
        Schema.of("r", pa.schema([("name", pa.string())]))
    with pytest.raises(SchemaError, match="kept for the weight"):
        Schema("r", ("weight",))
    with pytest.raises(SchemaError, match="occurs twice"):
        Schema("r", ("a", "a"))


def test_a_relation_without_columns_is_its_weight():
    circuit = Circuit(["on(a, b) :- link(a, b), switch()"], {"link": EDGE, "switch": pa.schema([])})
    circuit.step({"link": link((1, 2))})
    table = pa.table({"weight": [2, -1]})
    assert rows(circuit.step({"switch": table})["on"]) == {(1, 2): 1}


def test_explain_names_every_head_in_the_order_in_which_it_runs():
    text = Circuit(RULES, INPUTS, distinct=DISTINCT).explain()
    assert text.index("e(a, b): distinct") < text.index("count()")


def test_the_exported_names_are_sorted_and_every_error_is_among_them():
    assert list(circuits.__all__) == sorted(circuits.__all__)
    for name in circuit_errors.__all__:
        assert name in circuits.__all__
        assert issubclass(getattr(circuits, name), DbspWcojError)
