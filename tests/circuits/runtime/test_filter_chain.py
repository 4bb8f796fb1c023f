"""A filter chain has the result of its filters and its projection, one after another."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from circuits import compile_sql
from circuits.plan.expressions import Column, Literal
from circuits.plan.nodes import Field, Filter, Map, PlanNode, Scan
from circuits.runtime import filter_chain
from circuits.runtime.filter_chain import FilterChain, find_chains
from circuits.runtime.graph_node import Node
from circuits.runtime.operators.linear import FilterOperator, MapOperator
from circuits.runtime.predicates import compares_codes
from circuits.types.codecs.codec import Codecs
from circuits.types.functions import call
from dbsp_wcoj import WeightOverflowError, ZSet
from dbsp_wcoj.kernels.storage.sort import MAX_INSERTION_ROWS
from tests.circuits.runtime.test_predicates import LAW, TYPES, batches, conditions

FIELDS = tuple(Field(f"c{number}", type_, True) for number, type_ in enumerate(TYPES))
TEXT = pa.string()


def chain_of(plans: list[PlanNode], codecs: Codecs) -> tuple[FilterChain, list]:
    """Return the chain of filters and an optional map over a scan, and their operators."""
    nodes, operators = [Node("t", "t", "t", Scan("t", FIELDS), (), None)], []
    for number, plan in enumerate(plans):
        operator = (
            FilterOperator(plan.predicate, FIELDS, codecs)
            if isinstance(plan, Filter)
            else MapOperator(plan.expressions, FIELDS, codecs)
        )
        operators.append(operator)
        name = f"n{number}"
        nodes.append(Node(name, name, name, plan, (number,), operator))
    chains = find_chains(nodes, {len(plans)}, codecs)
    assert list(chains) == [1]
    assert list(chains[1].positions) == list(range(1, len(plans) + 1))
    return chains[1], operators


def evaluate_in_turn(operators: list, zset: ZSet) -> tuple[ZSet, list[int]]:
    counts = []
    for operator in operators:
        zset = operator.evaluate([zset])
        counts.append(len(zset))
    return zset, counts


@LAW
@given(
    st.lists(conditions(), min_size=1, max_size=3),
    st.lists(st.integers(0, len(TYPES) - 1), max_size=3),
    batches(),
    st.booleans(),
    st.data(),
)
def test_a_chain_equals_its_operators(predicates, columns, sample, searches_range, data):
    batch, _ = sample
    predicates = [p for p in predicates if compares_codes(p, batch.codecs)]
    if not predicates or not batch.rows:
        return
    weights = st.lists(
        st.sampled_from([-2, -1, 1, 3]), min_size=batch.rows, max_size=batch.rows
    ).map(lambda values: np.array(values, np.int64))
    zset = ZSet(batch.zset.row_array, data.draw(weights))
    plan: PlanNode = Scan("t", FIELDS)
    plans = []
    for predicate in predicates:
        plan = Filter(plan, predicate)
        plans.append(plan)
    if columns:
        names = tuple(f"x{position}" for position in range(len(columns)))
        plans.append(Map(plan, tuple(Column(c, TYPES[c]) for c in columns), names))
    chain, operators = chain_of(plans, batch.codecs)
    expected, counts = evaluate_in_turn(operators, zset)
    for _ in range(2):  # the second run uses the codes of the first one
        with pytest.MonkeyPatch.context() as patch:
            if searches_range:
                patch.setattr(filter_chain, "MIN_SEARCHED_ROWS", 1)
                patch.setattr(filter_chain, "MIN_SEARCHED_SHARE", 1)
            result, row_counts = chain.run(zset)
        assert row_counts == counts[: len(predicates)]
        assert (ZSet.empty(expected.arity) if result is None else result) == expected


@pytest.mark.parametrize(
    ("name", "least", "found"),
    [("lt", 100, 100), ("eq", 7, 1), ("lt", -1, 0), ("ge", 4_000, None)],
)
def test_few_rows_in_a_range_of_the_first_column_are_searched_for(name, least, found):
    codecs = Codecs()
    fields = (Field("x", pa.int64(), True), Field("y", pa.int64(), True))
    predicate = call(name, Column(0, pa.int64()), Literal(least, pa.int64()))
    scan = Scan("t", fields)
    operator = FilterOperator(predicate, fields, codecs)
    nodes = [
        Node("t", "t", "t", scan, (), None),
        Node("n", "n", "n", Filter(scan, predicate), (0,), operator),
    ]
    chain = find_chains(nodes, {1}, codecs)[1]
    zset = ZSet.from_columns([np.arange(8_000), np.arange(8_000) % 3])
    rows = chain._rows_in_range(zset)
    assert (rows if rows is None else len(rows)) == found
    result, counts = chain.run(zset)
    expected = operator.evaluate([zset])
    assert (ZSet.empty(2) if result is None else result) == expected
    assert counts == [len(expected)]


@pytest.mark.parametrize("rows", [5, MAX_INSERTION_ROWS, MAX_INSERTION_ROWS + 1, 3_000])
def test_a_projection_of_many_rows_is_sorted_and_added_up(rows):
    codecs = Codecs()
    number = TYPES.index(pa.int64())
    columns = [np.zeros(rows, np.int64) for _ in TYPES]
    columns[number] = np.arange(rows) % 7
    columns[number + 1] = np.arange(rows)
    zset = ZSet.from_columns(columns)
    scan = Scan("t", FIELDS)
    for least in (2, 0):
        predicate = call("ge", Column(number, pa.int64()), Literal(least, pa.int64()))
        kept = Filter(scan, predicate)
        plans = [kept, Map(kept, (Column(number, pa.int64()),), ("x",))]
        chain, operators = chain_of(plans, codecs)
        result, _ = chain.run(zset)
        assert result == evaluate_in_turn(operators, zset)[0]


def test_an_overflow_of_a_weight_is_an_error():
    codecs = Codecs()
    number = TYPES.index(pa.int64())
    columns = [np.zeros(2, np.int64) for _ in TYPES]
    columns[number + 1] = np.arange(2)
    zset = ZSet.from_columns(columns, np.array([2**62, 2**62]))
    kept = Filter(Scan("t", FIELDS), call("ge", Column(number, pa.int64()), Literal(0, pa.int64())))
    plans = [kept, Map(kept, (Column(number, pa.int64()),), ("x",))]
    chain, _ = chain_of(plans, codecs)
    with pytest.raises(WeightOverflowError, match="add up to more than int64"):
        chain.run(zset)


def test_a_string_of_a_filter_may_appear_later_and_be_removed_and_appear_again():
    codec = Codecs().codec(TEXT)
    code_of_bob = codec.lookup("bob")
    names = codec.coding.dictionary
    assert code_of_bob() is None
    codec.encode(pa.array(["ann"]))
    assert code_of_bob() is None
    codec.encode(pa.array(["bob"]))
    assert code_of_bob() == 1
    names.truncate(1)
    assert code_of_bob() is None
    codec.encode(pa.array(["eve", "bob"]))
    assert code_of_bob() == 2


PROGRAM = """
    CREATE VIEW v AS SELECT a FROM t WHERE a > 1 AND b < 5 AND c = 'x';
    CREATE VIEW w AS SELECT a, sum(b) AS s FROM t WHERE a > 1 AND b < 7 GROUP BY a;
"""


def test_a_step_has_the_same_deltas_and_counts_with_an_observer_which_sees_each_operator():
    """An observer sees each operator, so then the filters run one by one."""
    schema = {"t": pa.schema([("a", pa.int64()), ("b", pa.int64()), ("c", pa.string())])}
    random = np.random.default_rng(0)
    plain, observed = (compile_sql(PROGRAM, schema) for _ in range(2))
    observed.observe(lambda name, kind, views: None)
    for size in (30, 1, 0, 3, 200, 2):
        table = pa.table(
            {
                "a": random.integers(0, 4, size),
                "b": random.integers(0, 9, size),
                "c": pa.array(["x", "y"]).take(pa.array(random.integers(0, 2, size))),
                "weight": random.integers(0, 2, size) * 2 - 1,
            }
        )
        deltas = plain.step({"t": table}), observed.step({"t": table})
        assert deltas[0] == deltas[1]
    assert list(plain.graph.rows) == list(observed.graph.rows)
    assert any(chain is not None for chain in plain.graph.schedule.chains)
