"""Top-k: summed deltas equal the first rows of the summed input; weights, ties, numbers, limits."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circuits.compile import compile_sql
from circuits.plan.nodes import Field, Order, Scan, TopK
from circuits.plan.physical_nodes import NumberedTopK
from circuits.runtime.operators.operator import StepContext
from circuits.runtime.operators.top_k import NumberedTopKOperator, TopKOperator
from circuits.types.codecs.codec import Codecs
from dbsp_wcoj import LimitError, Relations, StepLimits, WeightOverflowError, ZSet
from dbsp_wcoj.limits import Budget
from tests.generators.group_streams import DOMAINS, encode, run_sliding_window, run_stream, streams

TYPES = st.sampled_from(list(DOMAINS))
INT = pa.int64()


def plan_of(types, keys, order, limit, offset=0):
    fields = tuple(Field(f"c{i}", t) for i, t in enumerate(types))
    return TopK(Scan("r", fields), tuple(keys), tuple(order), limit, offset)


def numbered(plan):
    return NumberedTopK(plan.input, plan.keys, plan.order, plan.limit, plan.offset)


def operator_of(*arguments):
    codecs = Codecs()
    return TopKOperator(plan_of(*arguments), codecs), codecs


def step(operator, delta):
    change, prepared = operator.prepare([delta], StepContext(False, Relations().stage({})))
    if prepared is not None:
        prepared.commit()
    return change.to_dict()


@st.composite
def plans(draw):
    types = draw(st.lists(TYPES, max_size=3))
    columns = range(len(types))
    keys = draw(st.permutations(columns))[: draw(st.integers(0, 2))]
    order = []
    if types:
        part = st.builds(Order, st.sampled_from(columns), st.booleans(), st.booleans())
        order = draw(st.lists(part, max_size=3))
    limit = draw(st.none() | st.integers(0, 5))
    return plan_of(types, keys, order, limit, draw(st.sampled_from([0, 0, 1, 3])))


@given(plans(), st.data())
@settings(max_examples=200)
def test_summed_output_deltas_are_the_first_rows_of_the_summed_input_deltas(plan, data):
    stream = data.draw(streams([field.type for field in plan.input.fields]))
    run_stream(TopKOperator, plan, stream)


@given(streams([pa.string(), INT], steps=10, size=4), st.booleans(), st.booleans())
@settings(max_examples=60)
def test_texts_that_share_their_first_bytes_are_ordered_by_value(stream, descending, nulls_first):
    plan = plan_of([pa.string(), INT], (), [Order(0, descending, nulls_first)], 3, 1)
    run_stream(TopKOperator, plan, stream)


@given(streams([INT, INT]))
@settings(max_examples=50)
def test_one_big_step_equals_its_singletons(stream):
    at_once, codecs = operator_of([INT, INT], (0,), [Order(1)], 2)
    changes = [change for changes in stream for change in changes]
    one_delta = step(at_once, encode(changes, [INT, INT], codecs))
    singly, codecs = operator_of([INT, INT], (0,), [Order(1)], 2)
    total = ZSet.empty(2)
    for change in changes:
        part = step(singly, encode([change], [INT, INT], codecs))
        total = total + ZSet.from_rows(list(part), list(part.values()), arity=2)
    assert total.to_dict() == one_delta


def test_the_example_stream_of_the_docstring():
    operator, _ = operator_of([INT], (), [Order(0)], 2)
    assert step(operator, ZSet.from_rows([(3,), (5,)], [1, 2])) == {(3,): 1, (5,): 1}
    assert step(operator, ZSet.from_rows([(1,)])) == {(1,): 1, (5,): -1}
    assert step(operator, ZSet.from_rows([(3,)], [-1])) == {(3,): -1, (5,): 1}


def test_a_row_at_the_boundary_is_output_with_part_of_its_weight():
    operator, _ = operator_of([INT], (), [Order(0)], 3, 1)
    assert step(operator, ZSet.from_rows([(1,), (2,), (3,)], [2, 5, 1])) == {(1,): 1, (2,): 2}


def test_positions_beyond_int64_are_counted_right():
    heavy = 2**62
    operator, _ = operator_of([INT], (), [Order(0)], None, heavy + 1)
    rows = ZSet.from_rows([(1,), (2,), (3,)], [heavy, heavy, heavy])
    assert step(operator, rows) == {(2,): heavy - 1, (3,): heavy}
    operator, _ = operator_of([INT], (), [Order(0)], 2**63 - 1, 2**63 - 1)
    assert step(operator, rows) == {(2,): 1, (3,): heavy}
    assert operator.evaluate([rows]).to_dict() == {(2,): 1, (3,): heavy}


def test_an_overflowing_weight_is_an_error_and_changes_nothing():
    operator, _ = operator_of([INT], (), [Order(0)], 1)
    step(operator, ZSet.from_rows([(1,)], [2**62]))
    with pytest.raises(WeightOverflowError):
        step(operator, ZSet.from_rows([(0,), (1,)], [1, 2**62]))
    assert step(operator, ZSet.from_rows([(1,)], [-(2**62)])) == {(1,): -1}


def test_deleted_leading_rows_make_way_for_the_next_ones():
    operator, _ = operator_of([INT, INT], (0,), [Order(1)], 1)
    step(operator, ZSet.from_rows([(g, x) for g in range(5) for x in range(50)]))
    for x in range(49):
        deleted = step(operator, ZSet.from_rows([(g, x) for g in range(5)], [-1] * 5))
        assert deleted == {(g, x + d): 2 * d - 1 for g in range(5) for d in (0, 1)}


@pytest.mark.parametrize("order", [Order(1), Order(1, True), Order(2)], ids=str)
@pytest.mark.parametrize("keys", [(0,), ()])
def test_steps_of_thousands_of_rows_agree_with_evaluate_while_runs_are_merged(keys, order):
    run_sliding_window(TopKOperator, plan_of([INT, INT, INT], keys, [order], 3, 1))


@given(plans(), st.data())
@settings(max_examples=200)
def test_summed_output_deltas_are_the_numbered_first_rows_of_the_summed_input_deltas(plan, data):
    stream = data.draw(streams([field.type for field in plan.input.fields]))
    run_stream(NumberedTopKOperator, numbered(plan), stream)


@given(streams([pa.string(), INT], steps=10, size=4), st.booleans(), st.booleans())
@settings(max_examples=60)
def test_numbers_of_texts_that_share_their_first_bytes_are_by_value(
    stream, descending, nulls_first
):
    plan = plan_of([pa.string(), INT], (), [Order(0, descending, nulls_first)], 3, 1)
    run_stream(NumberedTopKOperator, numbered(plan), stream)


@pytest.mark.parametrize("order", [Order(1), Order(1, True), Order(2)], ids=str)
def test_numbers_agree_with_evaluate_while_runs_are_merged(order):
    plan = numbered(plan_of([INT, INT, INT], (0,), [order], 3, 1))
    run_sliding_window(NumberedTopKOperator, plan)


def test_only_rows_whose_numbers_change_are_output():
    operator = NumberedTopKOperator(numbered(plan_of([INT], (), [Order(0)], 100)), Codecs())
    step(operator, ZSet.from_rows([(x,) for x in range(200)]))
    assert step(operator, ZSet.from_rows([(500,)])) == {}
    assert step(operator, ZSet.from_rows([(97,)])) == {
        (97, 99): 1,
        (98, 99): -1,
        (98, 100): 1,
        (99, 100): -1,
    }


def test_more_numbered_rows_than_a_step_may_produce_are_a_limit_error():
    operator = NumberedTopKOperator(numbered(plan_of([INT], (), [Order(0)], 2**62)), Codecs())
    rows = ZSet.from_rows([(1,), (2,)], [2**40, 1])
    budget = Budget(StepLimits(max_step_rows=1000))
    with pytest.raises(LimitError, match="max_step_rows=1000"):
        operator.prepare([rows], StepContext(False, Relations().stage({}), budget))
    with pytest.raises(LimitError, match="max_step_rows=1000"):
        operator.evaluate([rows], Budget(StepLimits(max_step_rows=1000)))


def test_a_numbered_row_number_is_one_operator_that_stores_each_row_once():
    """With a Window over the TopK, both would store rows and read each changed group."""
    circuit = compile_sql(
        """CREATE TABLE bid (auction BIGINT, price BIGINT, url VARCHAR);
        CREATE VIEW best AS SELECT * FROM (
            SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC) AS place
            FROM bid) AS numbered
        WHERE place <= 3;"""
    )
    rows = [{"auction": i % 7, "price": i, "url": f"page {i}"} for i in range(70)]
    schema = pa.schema([("auction", INT), ("price", INT), ("url", pa.string())])
    delta = circuit.step({"bid": pa.Table.from_pylist(rows, schema)})["best"]
    assert sorted((row["price"], row["place"]) for row in delta.to_pylist()) == sorted(
        (63 + group - 7 * place, place + 1) for group in range(7) for place in range(3)
    )
    text = str(circuit.explain())
    assert "numbered top 3" in text and "window" not in text
    assert text.count("70 rows") == 1


def test_a_second_number_of_numbered_rows_is_a_column_of_its_own():
    text = """
        SELECT *, row_number() OVER () AS m
        FROM (SELECT *, row_number() OVER () AS n FROM (SELECT * FROM t LIMIT 1))
    """
    circuit = compile_sql(text, {"t": "a INT"})
    circuit.step({"t": [{"a": 2}, {"a": 3}]})
    view = circuit.step({"t": [{"a": 1}]})["view"].to_pylist()
    assert sorted(tuple(row.values()) for row in view) == [(1, 1, 1, 1), (2, 1, 1, -1)]
