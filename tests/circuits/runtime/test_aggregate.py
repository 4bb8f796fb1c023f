"""Aggregates: summed deltas equal the aggregates of the summed input; exactness and limits."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circuits import compile_sql
from circuits.errors import EvaluationError
from circuits.plan.nodes import Aggregate, AggregateCall, Field, Scan
from circuits.runtime.operators.aggregates import sum_encoder
from circuits.runtime.operators.aggregates.aggregate import AggregateOperator
from circuits.runtime.operators.operator import StepContext
from circuits.runtime.operators.ordered_rows import OrderedRows
from circuits.types.codecs.codec import Codecs
from circuits.types.functions import aggregate_type
from dbsp_wcoj import Relations, WeightOverflowError, ZSet
from dbsp_wcoj.storage.trace import build_run
from tests.generators.group_streams import (
    DOMAINS,
    NUMBERS,
    encode,
    run_sliding_window,
    run_stream,
    streams,
)

TYPES = st.sampled_from(list(DOMAINS))
INT = pa.int64()


def plan_of(types, keys, calls):
    fields = tuple(Field(f"c{i}", t) for i, t in enumerate(types))
    aggregate_calls = []
    for function, argument, distinct in calls:
        data_type = None if argument is None else types[argument]
        type_ = aggregate_type(function, data_type)
        name = f"a{len(aggregate_calls)}"
        aggregate_calls.append(AggregateCall(function, argument, type_, name, distinct))
    return Aggregate(Scan("r", fields), tuple(keys), tuple(aggregate_calls))


def operator_of(types, keys, calls):
    codecs = Codecs()
    return AggregateOperator(plan_of(types, keys, calls), codecs), codecs


def step(operator, delta, *, first=False):
    change, prepared = operator.prepare([delta], StepContext(first, Relations().stage({})))
    if prepared is not None:
        prepared.commit()
    return change.to_dict()


@st.composite
def plans(draw):
    types = draw(st.lists(TYPES, max_size=3))
    columns = range(len(types))
    keys = draw(st.permutations(columns))[: draw(st.integers(0, 2))]
    possible = [("count", None, False)]
    for column in columns:
        functions = ["count", "min", "max"]
        if types[column] in NUMBERS or types[column] == pa.null():
            functions += ["sum", "avg"]
        possible += [(f, column, d) for f in functions for d in (False, True)]
    calls = draw(st.lists(st.sampled_from(possible), max_size=4))
    return plan_of(types, keys, calls)


@given(plans(), st.data())
@settings(max_examples=400)
def test_summed_output_deltas_are_the_aggregates_of_the_summed_input_deltas(plan, data):
    stream = data.draw(streams([field.type for field in plan.input.fields]))
    run_stream(AggregateOperator, plan, stream)


@given(st.data())
@settings(max_examples=100)
def test_every_aggregate_of_one_small_group_follows_insertions_and_deletions(data):
    type_ = data.draw(st.sampled_from(NUMBERS))
    calls = [(f, 0, d) for f in ("count", "sum", "avg", "min", "max") for d in (False, True)]
    plan = plan_of([type_], (), [("count", None, False), *calls])
    run_stream(AggregateOperator, plan, data.draw(streams([type_], steps=10, size=4)))


@given(streams([INT, pa.float64()]))
@settings(max_examples=50)
def test_one_big_step_equals_its_singletons(stream):
    calls = [("sum", 1, False), ("max", 1, False), ("count", 1, True)]
    at_once, codecs = operator_of([INT, pa.float64()], (0,), calls)
    changes = [change for changes in stream for change in changes]
    one_delta = step(at_once, encode(changes, [INT, pa.float64()], codecs))
    singly, codecs = operator_of([INT, pa.float64()], (0,), calls)
    total = ZSet.empty(4)
    for change in changes:
        part = step(singly, encode([change], [INT, pa.float64()], codecs))
        total = total + ZSet.from_rows(list(part), list(part.values()), arity=4)
    assert total.to_dict() == one_delta


def test_a_row_that_is_deleted_in_other_portions_leaves_no_state():
    operator, _ = operator_of([INT, INT], (0,), [("sum", 1, False)])
    step(operator, ZSet.from_rows([(1, 2**31)], [2]), first=True)
    assert step(operator, ZSet.from_rows([(1, 2**31)], [-1])) == {(1, 2**32): -1, (1, 2**31): 1}
    assert step(operator, ZSet.from_rows([(1, 2**31)], [-1])) == {(1, 2**31): -1}
    assert not operator.traces[0].to_zset().to_dict()


def test_a_sum_that_is_not_zero_is_kept_without_rows():
    operator, _ = operator_of([INT, INT], (0,), [("sum", 1, False)])
    step(operator, ZSet.from_rows([(1, 2**33), (1, 5)], [1, -1]), first=True)
    assert step(operator, ZSet.from_rows([(1, 5)], [2])) == {(1, 2**33 + 5): 1}


LARGE_NUMBERS = {
    INT: [-(2**31), 2**31, 2**62, -1, None],
    pa.float64(): [0.1, -1e300, 5e-324, 2.0**40, float("inf"), float("nan"), None],
    pa.decimal128(38, 2): [Decimal("-0.01"), Decimal(2**31), Decimal(10**35), None],
}


@given(st.data())
@settings(max_examples=150)
def test_after_all_rows_are_deleted_in_any_portions_the_state_is_empty(data):
    type_ = data.draw(st.sampled_from(list(LARGE_NUMBERS)))
    keys = data.draw(st.sampled_from([(), (0,)]))
    calls = [("count", 1, False), ("avg", 1, False)]
    operator, codecs = operator_of([INT, type_], keys, calls[data.draw(st.integers(0, 1)) :])
    types = [INT, type_]
    row = st.tuples(st.sampled_from([1, 2]), st.sampled_from(LARGE_NUMBERS[type_]))
    weights = st.sampled_from([-(2**33), -3, -1, 1, 2, 3, 100, 2**33])
    changes = data.draw(st.lists(st.tuples(row, weights), max_size=6))
    deleted = []
    for row, weight in changes:
        portion = data.draw(st.sampled_from([weight, 1, -1, 7]))
        deleted += [(row, -portion), (row, portion - weight)]
    changes += data.draw(st.permutations(deleted))
    for number, change in enumerate(changes):
        step(operator, encode([change], types, codecs), first=not number)
    assert not operator.traces[0].to_zset().to_dict()


def test_without_keys_the_first_step_returns_the_row_even_for_empty_input():
    operator, _ = operator_of([INT], (), [("count", None, False), ("sum", 0, False)])
    null = -(2**63)
    assert step(operator, ZSet.empty(1), first=True) == {(0, null): 1}
    assert step(operator, ZSet.empty(1)) == {}
    assert step(operator, ZSet.from_rows([(4,)])) == {(0, null): -1, (1, 4): 1}


@given(
    st.lists(
        st.tuples(
            st.integers(0, 1),
            st.sampled_from([-(2**62), -1, 3, 2**62]),
            st.none() | st.integers(-2, 2),
            st.integers(-2, 2),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_sums_of_several_columns_are_those_of_each_column(rows):
    circuit = compile_sql(
        "SELECT k, sum(a::DECIMAL(38, 0)) AS a, sum(b) AS b, sum(c) AS c, avg(b) AS mean, "
        "count(*) AS n FROM t GROUP BY k",
        {"t": "k bigint, a bigint, b bigint, c int"},
    )
    half = len(rows) // 2
    total: Counter[tuple[object, ...]] = Counter()
    for part in (rows[:half], rows[half:]):
        table = [dict(zip("kabc", row, strict=True)) for row in part]
        for row in circuit.step({"t": table})["view"].to_pylist():
            weight = row.pop("weight")
            total[tuple(row.values())] += weight
    expected = set()
    for k in {row[0] for row in rows}:
        group = [row[1:] for row in rows if row[0] == k]
        a, b, c = zip(*group, strict=True)
        present = [value for value in b if value is not None]
        sum_b = sum(present) if present else None
        mean = sum(present) / len(present) if present else None
        expected.add((k, sum(a), sum_b, sum(c), mean, len(group)))
    assert {row for row, weight in total.items() if weight} == expected


def test_a_deletion_before_its_insertion_ends_well():
    calls = [("count", None, False), ("sum", 1, False), ("min", 1, False)]
    operator, _ = operator_of([INT, INT], (0,), calls)
    assert step(operator, ZSet.from_rows([(1, 5)], [-1])) == {}
    assert step(operator, ZSet.from_rows([(1, 5), (1, 7)])) == {(1, 1, 7, 7): 1}


def test_a_change_that_leaves_the_results_as_they_were_gives_no_delta():
    operator, _ = operator_of([INT, INT], (0,), [("count", None, False), ("min", 1, False)])
    step(operator, ZSet.from_rows([(1, 5), (1, 7)]))
    assert step(operator, ZSet.from_rows([(1, 7), (1, 8)], [-1, 1])) == {}


def test_an_integer_sum_is_an_error_only_where_it_leaves_int64_and_changes_nothing():
    operator, _ = operator_of([INT, INT], (0,), [("sum", 1, False)])
    big = 2**63 - 1
    assert step(operator, ZSet.from_rows([(1, big), (1, -big), (1, big)])) == {(1, big): 1}
    with pytest.raises(EvaluationError, match=r"a0 is 9223372036854775808.*cast"):
        step(operator, ZSet.from_rows([(1, 1)]))
    assert step(operator, ZSet.from_rows([(1, big)], [-1])) == {(1, big): -1, (1, 0): 1}
    step(operator, ZSet.from_rows([(1, big)], [-1]))
    with pytest.raises(EvaluationError):  # the code of NULL
        step(operator, ZSet.from_rows([(1, -1)]))


def test_a_decimal_sum_is_an_error_beyond_38_digits():
    type_ = pa.decimal128(38, 2)
    operator, codecs = operator_of([type_], (), [("sum", 0, False)])
    most = Decimal((0, (9,) * 38, -2))
    step(operator, encode([((most,), 1)], [type_], codecs), first=True)
    with pytest.raises(EvaluationError, match=r"beyond decimal128\(38, 2\)"):
        step(operator, encode([((Decimal("0.01"),), 1)], [type_], codecs))
    delta = step(operator, encode([((most,), -1), ((most.copy_negate(),), 1)], [type_], codecs))
    values = codecs.codec(type_).decode(ZSet.from_rows(list(delta)).columns[0]).to_pylist()
    assert sorted(values) == [most.copy_negate(), most]


def test_a_count_beyond_int64_is_an_error_that_names_the_aggregate_and_changes_nothing():
    operator, _ = operator_of([INT], (), [("count", None, False)])
    step(operator, ZSet.from_rows([(1,)], [2**62]), first=True)
    with pytest.raises(WeightOverflowError, match=r"count\(\*\).*: use smaller weights or values"):
        step(operator, ZSet.from_rows([(2,)], [2**62]))
    with pytest.raises(WeightOverflowError, match=r"count\(\*\).*: use smaller weights or values"):
        step(operator, ZSet.from_rows([(3,), (4,)], [2**62, 2**62]))
    assert step(operator, ZSet.from_rows([(1,)], [-(2**62)])) == {(2**62,): -1, (0,): 1}


def test_sums_of_many_heavy_rows_are_exact():
    operator, _ = operator_of([INT, INT], (0,), [("sum", 1, False), ("avg", 1, False)])
    delta = step(operator, ZSet.from_rows([(1, 2**61), (1, -(2**61) + 1)], [2**40, 2**40]))
    ((_, total, _),) = delta
    assert total == 2**40


def test_the_least_value_is_found_where_the_first_values_are_deleted_again_and_again():
    operator, _ = operator_of([INT, INT], (0,), [("min", 1, False)])
    front = operator.traces[-1]
    numbers = range(2000)
    step(operator, ZSet.from_rows([(g, x) for g in (1, 2) for x in numbers]))
    assert front.is_empty  # no deletion yet
    for x in range(0, 300):
        assert step(operator, ZSet.from_rows([(1, x)], [-1])) == {(1, x): -1, (1, x + 1): 1}
    assert front.to_zset().to_dict() == {(1, 300): 1}
    assert step(operator, ZSet.from_rows([(2, 0), (1, 5)], [-1, 1])) == {
        (1, 300): -1,
        (1, 5): 1,
        (2, 0): -1,
        (2, 1): 1,
    }
    assert front.to_zset().to_dict() == {(1, 5): 1, (2, 1): 1}
    deleted = ZSet.from_rows([(1, x) for x in (5, *numbers[300:])], [-1] * 1701)
    assert step(operator, deleted) == {(1, 5): -1}
    assert front.to_zset().to_dict() == {(2, 1): 1}


def test_the_state_follows_from_the_rows_and_not_from_how_they_are_divided_into_runs():
    operator, _ = operator_of([INT, INT], (0,), [("min", 1, False)])
    front = operator.traces[-1]
    row = ZSet.from_rows([(1, 7)])
    # The runs of a restored state: they cancel out, and have not been merged.
    order = tuple(range(front.arity))
    front.load({order: [build_run(row, order), build_run(-row, order)]})
    assert not front.is_empty
    step(operator, row)
    assert not len(front.to_zset())  # no deletion yet


def test_rows_that_tie_with_the_front_are_read_wherever_their_codes_order_them():
    least = OrderedRows(1, 3, limit=1, tie_columns=1)
    # A migrated state: the front was stored when code 1 was less than code 0.
    least.rows.update(ZSet.from_rows([(7, 5, 0), (7, 5, 1), (7, 6, 2)]))
    least.front.update(ZSet.from_rows([(7, 5, 1)]))
    first_rows, _ = least.prepare(ZSet.from_rows([(7, 9, 3)]), np.array([[7]]))
    assert first_rows.rows.T.tolist() == [[5, 0], [5, 1]]


@pytest.mark.parametrize("keys", [(0,), (), (2, 0)])
def test_steps_of_thousands_of_rows_agree_with_evaluate_while_runs_are_merged(keys):
    calls = [("count", None, False), ("sum", 1, False), ("avg", 2, False), ("sum", 2, True)]
    calls += [("min", 1, False), ("max", 2, False), ("min", 2, False), ("max", 1, False)]
    run_sliding_window(AggregateOperator, plan_of([INT, INT, INT], keys, calls))


def test_distinct_values_with_comparable_codes_are_in_one_trace():
    circuit = compile_sql(
        "SELECT count(DISTINCT x), count(DISTINCT y), sum(DISTINCT x) FILTER (WHERE y > 1), "
        "count(DISTINCT name), count(DISTINCT other) FROM t",
        {"t": "x bigint, y int, name string, other string"},
    )
    (operator,) = [n.operator for n in circuit.graph.nodes if isinstance(n.plan, Aggregate)]
    _, *values = operator.traces
    assert [trace.arity for trace in values] == [2, 2]  # integers, texts


def test_sums_of_decimals_that_fit_a_word_make_no_arrow_array(monkeypatch):
    """The sum of a column of decimals has 38 digits, but seldom needs them."""
    circuit = compile_sql("SELECT sum(x) AS total FROM e", {"e": "x decimal(15, 2)"})
    circuit.step({"e": [{"x": Decimal("1.25")}]})
    with monkeypatch.context() as patched:
        patched.setattr(sum_encoder, "array_of", lambda *_: pytest.fail("an Arrow array"))

        output = circuit.step({"e": [{"x": Decimal("-3.50")}]})["view"].to_pylist()

    assert {row["total"]: row["weight"] for row in output} == {
        Decimal("1.25"): -1,
        Decimal("-2.25"): 1,
    }


def test_a_sum_of_decimals_changes_between_one_word_and_more():
    circuit = compile_sql("SELECT sum(x) AS total FROM e", {"e": "x decimal(18, 0)"})
    largest = Decimal("9" * 18)
    total = Decimal(0)
    for weight in (1, 1, 1, -1, -1):  # 2**61 is between twice and three times the largest
        row = pa.table({"x": pa.array([largest], pa.decimal128(18, 0)), "weight": [weight]})
        total += weight * largest
        output = circuit.step({"e": row})["view"].to_pylist()
        assert [row["total"] for row in output if row["weight"] > 0] == [total]
