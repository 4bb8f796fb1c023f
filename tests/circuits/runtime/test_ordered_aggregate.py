"""Aggregates of ordered rows and of bits: the law of operators, against a naive oracle."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circuits import compile_sql
from circuits.plan.nodes import Aggregate, AggregateCall, Field, Order, Scan
from circuits.runtime.operators import ordered_rows
from circuits.runtime.operators.aggregates import comoment, ranked_rows
from circuits.runtime.operators.aggregates.aggregate import AggregateOperator
from circuits.runtime.operators.operator import StepContext
from circuits.types.codecs.codec import Codecs
from circuits.types.functions import aggregate_type
from dbsp_wcoj import Relations, ZSet
from dbsp_wcoj.storage.rank_search import RankSearch
from tests.generators.group_streams import DOMAINS, decode, encode, run_stream, streams

TYPES = st.sampled_from(list(DOMAINS))


@st.composite
def plans(draw):
    types = draw(st.lists(TYPES, min_size=1, max_size=3))
    columns = range(len(types))
    keys = draw(st.permutations(columns))[: draw(st.integers(0, 1))]
    calls = []
    for number in range(draw(st.integers(1, 3))):
        argument = draw(st.sampled_from(columns))
        argument_type = types[argument]
        functions = ["first", "mode", "quantile_disc"]
        if pa.types.is_signed_integer(argument_type):
            functions += ["bit_and", "bit_or", "bit_xor"]
        if pa.types.is_string(argument_type):
            functions.append("string_agg")
        if argument_type == pa.float64():
            functions.append("quantile_cont")
        function = draw(st.sampled_from(functions))
        order = tuple(
            Order(column, draw(st.booleans()), draw(st.booleans()))
            for column in draw(st.lists(st.sampled_from(columns), max_size=2, unique=True))
        )
        others = ()
        if function == "first":
            others = tuple(draw(st.lists(st.sampled_from(columns), max_size=1)))
        elif function in ("mode", "quantile_cont", "quantile_disc"):
            order = tuple(part for part in order if part.column == argument)
        fraction = draw(st.sampled_from([0.0, 0.25, 0.5, 1.0]))
        options = {"quantile_cont": (fraction,), "quantile_disc": (fraction,)}
        options["string_agg"] = (draw(st.sampled_from(["", ", "])),)
        distinct = draw(st.booleans()) and all(part.column == argument for part in order)
        distinct = distinct and function != "mode"
        calls.append(
            AggregateCall(
                function,
                argument,
                aggregate_type(function, argument_type),
                f"a{number}",
                distinct,
                others,
                () if function.startswith("bit_") else order,
                options.get(function, ()),
            )
        )
    fields = tuple(Field(f"c{i}", t) for i, t in enumerate(types))
    return Aggregate(Scan("r", fields), tuple(keys), tuple(calls))


@given(plans(), st.data())
@settings(max_examples=300)
def test_ordered_aggregates_follow_insertions_and_deletions(plan, data):
    stream = data.draw(streams([field.type for field in plan.input.fields]))
    run_stream(AggregateOperator, plan, stream)


QUANTILE_TYPES = [t for t in DOMAINS if not pa.types.is_null(t)]


@pytest.mark.parametrize("type_", QUANTILE_TYPES, ids=str)
@given(data=st.data())
@settings(max_examples=40)
def test_several_percentiles_of_one_column_follow_insertions_and_deletions(type_, data):
    functions = ["quantile_disc"] + ["quantile_cont"] * (type_ == pa.float64())
    calls = tuple(
        AggregateCall(
            data.draw(st.sampled_from(functions)),
            1,
            type_,
            f"q{number}",
            data.draw(st.booleans()),
            order=(Order(1, data.draw(st.booleans()), data.draw(st.booleans())),),
            options=(data.draw(st.floats(0, 1, width=16)),),
        )
        for number in range(3)
    )
    fields = (Field("k", pa.int8()), Field("x", type_))
    plan = Aggregate(Scan("r", fields), data.draw(st.sampled_from([(), (0,)])), calls)
    run_stream(AggregateOperator, plan, data.draw(streams([pa.int8(), type_])))


def count_searches(monkeypatch, size, distinct):
    """Return the searches of 40 steps, each of which changes one row of a group of this size."""
    searches = []

    class CountedSearch(RankSearch):
        def __init__(self, traces, steps=()):
            super().__init__(traces, steps)
            searches.append(self)

    monkeypatch.setattr(ranked_rows, "RankSearch", CountedSearch)
    # Nothing else may read the group.
    monkeypatch.setattr(ordered_rows, "prefix_lookup", None)
    order = (Order(1, False, False),)
    calls = tuple(
        AggregateCall(function, 1, pa.float64(), name, distinct, order=order, options=(fraction,))
        for function, name, fraction in (
            ("quantile_cont", "median", 0.5),
            ("quantile_disc", "most", 0.9),
        )
    )
    fields = (Field("k", pa.int64()), Field("x", pa.float64()))
    codecs = Codecs()
    operator = AggregateOperator(Aggregate(Scan("r", fields), (0,), calls), codecs)
    total, output = ZSet.empty(2), ZSet.empty(3)
    codec = codecs.codec(pa.float64())
    rng = np.random.default_rng(5)
    for number in range(48):
        # At first the rows; then each step inserts a row, or deletes one or inserts it again.
        numbers = rng.permutation(size)[:: 1 if number == 0 else size].astype(np.float64)
        weights = rng.integers(1, 3, len(numbers))
        values = codec.encode(pa.array(numbers + (0.5 if number % 2 else 0)))
        sign = -1 if number % 4 == 2 else 1
        delta = ZSet.from_columns([np.zeros(len(values), np.int64), values], sign * weights)
        if number == 8:
            searches.clear()
        change, step = operator.prepare([delta], StepContext(number == 0, Relations().stage({})))
        step.commit()
        total, output = total + delta, output + change
        if number % 12 == 11:
            assert output == operator.evaluate([total])
    return sum(search.searches for search in searches)


@pytest.mark.parametrize("distinct", [False, True])
def test_the_work_of_a_percentile_does_not_grow_with_its_group(monkeypatch, distinct):
    small = count_searches(monkeypatch, 1 << 9, distinct)
    large = count_searches(monkeypatch, 1 << 17, distinct)
    # Logarithmic: 256 times the rows are at most 4 times the searches.
    assert large <= 4 * small
    assert large <= 40 * 500


FLOATS = st.sampled_from([None, -1.5, 0.1, 0.2, 0.3, 1e9, 1e9 + 1, 1e-9, 1e150, 2.0**-40, 7.0])


def exact_comoment(rows):
    """Return Σ (x - mean x) (y - mean y) over pairs with weights, as a fraction."""
    pairs = [
        (Fraction(x), Fraction(y), weight) for (x, y), weight in rows.items() if None not in (x, y)
    ]
    n = sum(weight for *_, weight in pairs)
    if n == 0:
        return None
    sum_x = sum(x * w for x, _, w in pairs)
    sum_y = sum(y * w for _, y, w in pairs)
    return sum(x * y * w for x, y, w in pairs) - sum_x * sum_y / n


def test_groups_of_one_row_are_not_computed_one_by_one(monkeypatch):
    calls = []
    for name in ("_exact_value", "_exact_moment"):
        monkeypatch.setattr(comoment, name, lambda *arguments: calls.append(arguments) or 0.0)
    table = pa.table({"k": range(50), "x": [0.1 * k for k in range(50)]})
    text = "SELECT k, var_pop(x) AS v, kurtosis(x) AS w FROM t GROUP BY k"
    circuit = compile_sql(text, {"t": table.schema}, dialect="spark")
    assert set(circuit.step({"t": table})["view"]["v"].to_pylist()) == {0.0}
    assert not calls
    circuit.step({"t": table})  # two equal rows
    assert len(calls) > 40


@given(
    st.lists(
        st.lists(st.tuples(st.tuples(FLOATS, FLOATS), st.integers(0, 3)), max_size=6), max_size=5
    ),
    st.booleans(),
)
@settings(max_examples=200)
def test_a_comoment_is_exact_up_to_one_rounding(stream, of_one_column):
    types = [pa.float64(), pa.float64()]
    fields = tuple(Field(name, t) for name, t in zip("xy", types, strict=True))
    other = 0 if of_one_column else 1
    call = AggregateCall("comoment", 0, pa.float64(), "m", others=(other,))
    codecs = Codecs()
    operator = AggregateOperator(Aggregate(Scan("r", fields), (), (call,)), codecs)
    total, output = ZSet.empty(2), ZSet.empty(1)
    for number, changes in enumerate(stream):
        # Each step inserts rows, and deletes half of those of the step before.
        pairs = [((None, None) if None in row else row, weight) for row, weight in changes]
        delta = encode(pairs, types, codecs)
        is_deleted = total.columns[0] % 2 == 0
        delta = delta + ZSet.from_columns(
            [c[is_deleted] for c in total.columns], -total.weights[is_deleted]
        )
        change, step = operator.prepare([delta], StepContext(number == 0, Relations().stage({})))
        if step is not None:
            step.commit()
        total, output = total + delta, output + change
        assert output == operator.evaluate([total])
        rows = decode(total, types, codecs)
        if of_one_column:
            rows_x = {}
            for (x, _), weight in rows.items():
                rows_x[x, x] = rows_x.get((x, x), 0) + weight
            rows = rows_x
        ((value,),) = decode(output, [pa.float64()], codecs)
        expected = exact_comoment(rows)
        if expected is None:
            assert value is None
        elif expected == 0:
            assert value == 0
        else:
            assert math.isclose(value, float(expected), rel_tol=2.0**-50)


def exact_moment(rows, power):
    """Return Σ (x - mean x)**power over values with weights, as a fraction."""
    values = [(Fraction(x), weight) for (x,), weight in rows.items() if x is not None]
    n = sum(weight for _, weight in values)
    if n == 0:
        return None
    mean = sum(x * weight for x, weight in values) / n
    return sum((x - mean) ** power * weight for x, weight in values)


@given(
    # The fourth power of 1e150 has no digits.
    st.lists(
        st.lists(
            st.tuples(
                st.tuples(FLOATS.map(lambda x: 1e140 if x == 1e150 else x)), st.integers(0, 3)
            ),
            max_size=6,
        ),
        max_size=5,
    ),
    st.sampled_from([3, 4]),
)
@settings(max_examples=200)
def test_a_moment_is_exact_up_to_one_rounding(stream, power):
    types = [pa.float64()]
    fields = (Field("x", pa.float64()),)
    call = AggregateCall("moment", 0, pa.float64(), "m", options=(power,))
    codecs = Codecs()
    operator = AggregateOperator(Aggregate(Scan("r", fields), (), (call,)), codecs)
    total, output = ZSet.empty(1), ZSet.empty(1)
    for number, changes in enumerate(stream):
        # Each step inserts rows, and deletes half of those of the step before.
        delta = encode(changes, types, codecs)
        is_deleted = total.columns[0] % 2 == 0
        delta = delta + ZSet.from_columns(
            [c[is_deleted] for c in total.columns], -total.weights[is_deleted]
        )
        change, step = operator.prepare([delta], StepContext(number == 0, Relations().stage({})))
        if step is not None:
            step.commit()
        total, output = total + delta, output + change
        assert output == operator.evaluate([total])
        ((value,),) = decode(output, types, codecs)
        expected = exact_moment(decode(total, types, codecs), power)
        if expected is None:
            assert value is None
        elif expected == 0:
            assert value == 0
        elif abs(expected) > 1e308:
            assert abs(value) > 1e308
        else:
            assert math.isclose(value, float(expected), rel_tol=2.0**-50)


@pytest.mark.parametrize("size", [1, 2, 3, 10])
def test_the_variance_of_equal_values_is_exactly_zero(size):
    codecs = Codecs()
    call = AggregateCall("comoment", 0, pa.float64(), "m", others=(0,))
    plan = Aggregate(Scan("r", (Field("x", pa.float64()),)), (), (call,))
    values = codecs.codec(pa.float64()).encode(pa.array([0.1]))
    rows = ZSet.from_columns([values], np.array([size]))
    result = AggregateOperator(plan, codecs).evaluate([rows])
    assert codecs.codec(pa.float64()).decode(result.columns[0]).to_pylist() == [0.0]
