"""A predicate evaluated on codes has the truth of the same predicate evaluated in Arrow."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from circuits.plan.expressions import Column, Expression, Literal
from circuits.runtime import predicates
from circuits.runtime.evaluation import evaluate
from circuits.runtime.predicates import true_rows, truth
from circuits.runtime.row_batch import RowBatch, keeps_codes
from circuits.types.codecs.codec import Codecs
from circuits.types.functions import call
from dbsp_wcoj import ZSet

LAW = settings(
    max_examples=400,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
UTC = datetime.UTC
FLOAT, TEXT, INT = pa.float64(), pa.string(), pa.int64()
# Values of the columns. Literals may have other values as well, which occur in no row.
DOMAINS: dict[pa.DataType, list] = {
    pa.int64(): [-(2**62), -1, 0, 1, 127, 128, 2**53 + 1],
    pa.int8(): [-128, 0, 1, 127],
    pa.uint64(): [0, 1, 127, 2**63 + 5],
    pa.float64(): [-math.inf, -1.0, -0.0, 0.0, 1.0, 0.5, 1e300, math.inf, math.nan],
    pa.float32(): [-0.0, 0.5, math.nan],
    pa.bool_(): [False, True],
    pa.string(): ["", "a", "ab", "b", "é", "prefix of many 1", "prefix of many 2"],
    pa.large_string(): ["a", "é"],
    pa.binary(): [b"", b"a", b"\xff"],
    pa.date32(): [datetime.date(1969, 12, 31), datetime.date(2024, 2, 29)],
    pa.timestamp("us"): [datetime.datetime(1969, 1, 1), datetime.datetime(2024, 2, 29, 1)],
    pa.timestamp("us", "UTC"): [datetime.datetime(2024, 2, 29, 1, tzinfo=UTC)],
    pa.decimal128(9, 2): [Decimal("-1.50"), Decimal("0.00"), Decimal("1.00")],
    pa.decimal128(38, 2): [Decimal("-1.50"), Decimal("1.00"), Decimal(10) ** 30],
    pa.null(): [],
}
ABSENT_VALUES = {pa.string(): ["never there", "A"], pa.binary(): [b"never"], pa.int64(): [2**62]}
TYPES = list(DOMAINS)
FAMILIES = [
    [t for t in TYPES if pa.types.is_integer(t) or pa.types.is_floating(t)]
    + [pa.decimal128(9, 2), pa.decimal128(38, 2)],
    [pa.string(), pa.large_string()],
    [pa.binary()],
    [pa.bool_()],
    [pa.date32(), pa.timestamp("us")],
    [pa.timestamp("us", "UTC")],
]
COMPARISONS = ["eq", "ne", "lt", "le", "gt", "ge", "same"]


def values(type_: pa.DataType, *, is_literal: bool = False) -> st.SearchStrategy:
    absent = ABSENT_VALUES.get(type_, []) if is_literal else []
    return st.sampled_from([None, *DOMAINS[type_], *absent])


@st.composite
def operands(draw: st.DrawFn, family: list[pa.DataType]) -> Expression:
    type_ = draw(st.sampled_from([*family, pa.null()]))
    if draw(st.integers(0, 2)):
        return Column(TYPES.index(type_), type_)
    return Literal(draw(values(type_, is_literal=True)), type_)


@st.composite
def conditions(draw: st.DrawFn, depth: int = 3) -> Expression:
    kind = draw(st.integers(-1, 9 if depth else 5))
    if kind == -1:
        type_ = draw(st.sampled_from([pa.int64(), pa.float64(), TEXT, pa.decimal128(9, 2)]))
        items = draw(st.lists(values(type_, is_literal=True), min_size=1, max_size=3))
        column = Column(TYPES.index(type_), type_)
        return call("in", column, *(Literal(item, type_) for item in items))
    if kind <= 3:
        family = draw(st.sampled_from(FAMILIES))
        return call(
            draw(st.sampled_from(COMPARISONS)), draw(operands(family)), draw(operands(family))
        )
    if kind == 4:
        return call("is_null", draw(operands(draw(st.sampled_from(FAMILIES)))))
    if kind == 5:
        return draw(operands([pa.bool_()]))
    if kind <= 7:
        name = "and" if kind == 6 else "or"
        parts = draw(st.lists(conditions(depth - 1), min_size=1, max_size=3))
        return call(name, *parts)
    return call("not" if kind == 8 else "is_true", draw(conditions(depth - 1)))


@st.composite
def batches(draw: st.DrawFn) -> tuple[RowBatch, list[pa.Array]]:
    """Draw rows with a column of each type; return them as codes, and as decoded columns."""
    rows = draw(st.lists(st.tuples(*map(values, TYPES)), max_size=6))
    codecs = Codecs()
    columns = [codecs.codec(type_) for type_ in TYPES]
    arrays = [pa.array([row[i] for row in rows], t) for i, t in enumerate(TYPES)]
    codes = [codec.encode(array) for codec, array in zip(columns, arrays, strict=True)]
    zset = ZSet.from_columns(codes) if rows else ZSet.empty(len(TYPES))
    decoded = [codec.decode(c) for codec, c in zip(columns, zset.columns, strict=True)]
    names = [f"c{number}" for number in range(len(TYPES))]
    return RowBatch(zset, columns, codecs, names), decoded


def truth_values(masks, rows):
    """Convert the masks of the true and the false rows to True, False or None for each row."""
    assert masks.true.shape == masks.false.shape == (rows,)
    assert masks.true.dtype == masks.false.dtype == np.bool_
    return [None if not (t or f) else bool(t) for t, f in zip(*masks, strict=True)]


@LAW
@given(conditions(), batches())
def test_truth_on_codes_equals_evaluation_in_arrow(predicate, sample):
    batch, arrays = sample
    masks = truth(predicate, batch)
    assert not (masks.true & masks.false).any()
    assert truth_values(masks, batch.rows) == evaluate(predicate, arrays, batch.rows).to_pylist()


@LAW
@given(conditions(), batches())
def test_the_true_rows_are_those_of_the_truth_without_its_false_rows(predicate, sample):
    batch, arrays = sample
    mask = true_rows(predicate, batch)
    assert mask.shape == (batch.rows,) and mask.dtype == np.bool_
    expected = evaluate(predicate, arrays, batch.rows).to_pylist()
    assert mask.tolist() == [value is True for value in expected]


class CountedArray(np.ndarray):
    """An array that counts the passes of numpy over it and over the results."""

    passes = 0

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **options):
        CountedArray.passes += 1
        plain = [i.view(np.ndarray) if isinstance(i, CountedArray) else i for i in inputs]
        if out is not None:
            options["out"] = tuple(o.view(np.ndarray) for o in out)
        result = getattr(ufunc, method)(*plain, **options)
        return result.view(CountedArray) if isinstance(result, np.ndarray) else result


@pytest.mark.parametrize(
    ("text", "most_passes"),
    [
        ("x = 3", 1),
        ("x > 3", 1),
        ("x < 3", 3),  # NULL has the least code
        ("x > 3 AND x <= 7", 5),
        ("x IN (3, 5, 7)", 5),
    ],
)
def test_a_filter_takes_one_pass_for_most_comparisons(text, most_passes):
    sides = {"=": "eq", ">": "gt", "<": "lt", "<=": "le"}
    if " IN " in text:
        predicate = call("in", Column(0, INT), *(Literal(v, INT) for v in (3, 5, 7)))
    else:
        parts = [part.split() for part in text.split(" AND ")]
        tests = [call(sides[s], Column(0, INT), Literal(int(v), INT)) for _, s, v in parts]
        predicate = tests[0] if len(tests) == 1 else call("and", *tests)
    codecs = Codecs()
    zset = ZSet.from_columns([np.arange(10)])
    counted = ZSet(zset.row_array.view(CountedArray), zset.weight_array)
    CountedArray.passes = 0
    mask = true_rows(predicate, RowBatch(counted, [codecs.codec(INT)], codecs, ["x"]))
    assert 1 <= CountedArray.passes <= most_passes
    chosen = {"x = 3": [3], "x < 3": [0, 1, 2], "x > 3 AND x <= 7": [4, 5, 6, 7]}
    expected = chosen.get(text, [3, 5, 7] if " IN " in text else list(range(4, 10)))
    assert np.flatnonzero(np.asarray(mask)).tolist() == expected


def batch_of(**columns):
    codecs = Codecs()
    column_codecs = [codecs.codec(array.type) for array in columns.values()]
    rows = range(len(next(iter(columns.values()))))
    codes = [codec.encode(a) for codec, a in zip(column_codecs, columns.values(), strict=True)]
    # The last column keeps the rows in their order.
    zset = ZSet.from_columns([np.array(rows), *codes])
    names = ["number", *columns]
    return RowBatch(zset, [codecs.codec(pa.int64()), *column_codecs], codecs, names)


def refuse(*_):
    raise AssertionError("evaluated in Arrow")


@pytest.mark.parametrize(
    ("name", "literal", "expected"),
    [
        ("eq", math.nan, [False, False, True, None]),
        ("gt", 1.0, [False, False, True, None]),
        ("eq", -0.0, [True, True, False, None]),
        ("lt", 0.0, [False, False, False, None]),
        ("le", math.nan, [True, True, True, None]),
        ("ne", None, [None, None, None, None]),
        ("same", None, [False, False, False, True]),
    ],
)
def test_floats_are_compared_by_their_codes(monkeypatch, name, literal, expected):
    monkeypatch.setattr(predicates, "evaluate", refuse)
    batch = batch_of(x=pa.array([0.0, -0.0, math.nan, None], FLOAT))
    masks = truth(call(name, Column(1, FLOAT), Literal(literal, FLOAT)), batch)
    assert truth_values(masks, 4) == expected


def test_texts_are_compared_by_code_for_equality_even_those_that_no_row_has(monkeypatch):
    monkeypatch.setattr(predicates, "evaluate", refuse)
    batch = batch_of(x=pa.array(["a", "b", None]), y=pa.array(["b", "b", None]))
    x, y = Column(1, TEXT), Column(2, TEXT)
    answers = {
        ("eq", "b"): [False, True, None],
        ("ne", "b"): [True, False, None],
        ("eq", "never there"): [False, False, None],
        ("ne", "never there"): [True, True, None],
        ("same", "never there"): [False, False, False],
    }
    for (name, text), expected in answers.items():
        assert truth_values(truth(call(name, x, Literal(text, TEXT)), batch), 3) == expected
    assert truth_values(truth(call("eq", x, y), batch), 3) == [False, True, None]
    assert truth_values(truth(call("same", x, y), batch), 3) == [False, True, True]


def test_the_order_of_texts_is_not_that_of_their_codes():
    batch = batch_of(x=pa.array(["b", "a", None]))
    masks = truth(call("lt", Column(1, TEXT), Literal("b", TEXT)), batch)
    assert truth_values(masks, 3) == [False, True, None]


def test_columns_of_two_widths_are_compared_by_code(monkeypatch):
    monkeypatch.setattr(predicates, "evaluate", refuse)
    batch = batch_of(x=pa.array([1, 2, None], pa.int8()), y=pa.array([1, 300, 1], INT))
    masks = truth(call("lt", Column(1, pa.int8()), Column(2, INT)), batch)
    assert truth_values(masks, 3) == [False, True, None]


CAST_TYPES = [
    *TYPES,
    pa.int16(),
    pa.uint8(),
    pa.decimal128(18, 2),
    pa.string_view(),
    pa.large_binary(),
]


@given(st.sampled_from(CAST_TYPES), st.sampled_from(CAST_TYPES), st.data())
def test_a_cast_that_keeps_codes_never_fails_and_keeps_the_value(source, target, data):
    codecs = Codecs()
    if not keeps_codes(source, target, codecs):
        return
    domain = DOMAINS.get(source) or DOMAINS.get(target) or [None]
    try:
        array = pa.array(data.draw(st.lists(st.sampled_from([None, *domain]))), source)
    except (pa.ArrowInvalid, OverflowError, TypeError):
        return
    cast = evaluate(call("cast", Column(0, source), type=target), [array], len(array))
    assert codecs.codec(source).encode(array).tolist() == codecs.codec(target).encode(cast).tolist()


@pytest.mark.parametrize(
    ("source", "target", "keeps"),
    [
        (pa.int32(), pa.int64(), True),
        (pa.uint32(), pa.int64(), True),
        (pa.int64(), pa.int32(), False),
        (pa.int8(), pa.uint16(), False),
        (pa.uint64(), pa.int64(), False),
        (pa.decimal128(9, 2), pa.decimal128(18, 2), True),
        (pa.decimal128(9, 2), pa.decimal128(9, 3), False),
        (pa.decimal128(9, 2), pa.decimal128(38, 2), False),
        (pa.string(), pa.large_string(), True),
        (pa.string(), pa.binary(), False),
        (pa.float32(), pa.float64(), False),
        (pa.bool_(), pa.int64(), False),
        (pa.timestamp("us"), pa.timestamp("us", "UTC"), False),
    ],
)
def test_only_casts_that_cannot_fail_and_leave_the_code_are_left_out(source, target, keeps):
    assert keeps_codes(source, target, Codecs()) == keeps


def test_wide_decimals_are_compared_by_code_unless_one_is_in_the_dictionary(monkeypatch):
    wide = pa.decimal128(38, 2)
    greater = call("gt", Column(1, wide), Literal(Decimal("3.00"), wide))
    batch = batch_of(x=pa.array([Decimal("2.99"), Decimal("3.01"), None], wide))
    with_large = batch_of(x=pa.array([Decimal(10) ** 30, -(Decimal(10) ** 30), None], wide))
    assert truth_values(truth(greater, with_large), 3) == [True, False, None]
    greater_than_large = call("gt", Column(1, wide), Literal(Decimal(10) ** 29, wide))
    assert truth_values(truth(greater_than_large, batch), 3) == [False, False, None]
    assert truth_values(truth(greater_than_large, with_large), 3) == [True, False, None]

    monkeypatch.setattr(predicates, "evaluate", refuse)

    assert truth_values(truth(greater, batch), 3) == [False, True, None]


def test_a_list_of_literals_and_the_nulls_of_arithmetic_are_found_by_code(monkeypatch):
    monkeypatch.setattr(predicates, "evaluate", refuse)
    batch = batch_of(x=pa.array(["a", "b", None]), y=pa.array([1.5, None, 2.0]))
    x, y = Column(1, TEXT), Column(2, FLOAT)
    listed = call("in", x, Literal("b", TEXT), Literal("never there", TEXT))
    listed_with_null = call("in", x, Literal("b", TEXT), Literal(None, TEXT))
    is_null = call("is_null", call("multiply", Literal(0.2, FLOAT), y))
    assert truth_values(truth(listed, batch), 3) == [False, True, None]
    assert truth_values(truth(listed_with_null, batch), 3) == [None, True, None]
    assert truth_values(truth(is_null, batch), 3) == [False, True, False]
