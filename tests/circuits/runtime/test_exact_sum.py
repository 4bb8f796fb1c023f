"""Exact sums, kept as digits in a Z-set: every result is rounded once, whatever was deleted."""

from __future__ import annotations

import math
import random
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from circuits.runtime.operators.aggregates.exact_sum import Digits, ExactSum, split_powers
from circuits.types.codecs.codec import Codecs
from dbsp_wcoj import ZSet

FLOATS = st.floats(allow_nan=False, allow_infinity=False)
WEIGHTS = st.integers(-(2**63) + 1, 2**63 - 1) | st.integers(-3, 3)


def state_of(exact, codec, values, weights):
    """Return the Z-set of the digits of one sum."""
    codes = codec.encode(pa.array(values, codec.type))
    digits = exact.split(codes, np.array(weights, np.int64))
    return ZSet.from_columns([digits.positions], digits.amounts)


def digits_of(zset):
    """Return the digits that a Z-set contains, all of sum 0, in arrays that can be written to.

    The kernels are compiled for such arrays; for others they would be compiled again.
    """
    return Digits(np.zeros(len(zset), np.int64), zset.columns[0].copy(), zset.weights.copy())


def unsigned_of(words):
    """Return the number whose 64-bit words these are, the lowest first."""
    return sum((int(word) & (2**64 - 1)) << (64 * i) for i, word in enumerate(words))


def nearest(total):
    """Return the float nearest to a fraction."""
    try:
        return float(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


@given(st.lists(st.tuples(FLOATS, WEIGHTS), min_size=1, max_size=8), WEIGHTS.filter(bool))
@settings(max_examples=300)
@example([(5e-324, 1), (5e-324, 2)], 2)
@example([(5e-324, 1)], 2)
@example([(5e-324, 3)], 2)
@example([(1.7976931348623157e308, 2**62)], 2**62)
@example([(1.0, 1), (2.0**-53, 1)], 1)
@example([(1.0, 1), (2.0**-53, 1), (5e-324, 1)], 1)
def test_a_float_sum_and_a_mean_are_the_floats_nearest_to_the_true_ones(terms, divisor):
    codec = Codecs().codec(pa.float64())
    exact = ExactSum(codec)
    total = sum(Fraction(value) * weight for value, weight in terms)
    sums = digits_of(state_of(exact, codec, *zip(*terms, strict=True)))
    assert exact.floats(sums, np.array([1])).tolist() == [nearest(total)]
    assert exact.floats(sums, np.array([divisor])).tolist() == [nearest(total / divisor)]


@given(st.lists(FLOATS, max_size=30), st.randoms())
def test_a_float_sum_agrees_with_fsum_and_is_independent_of_order_and_of_deleted_rows(values, rng):
    codec = Codecs().codec(pa.float64())
    exact = ExactSum(codec)
    try:
        expected = math.fsum(values)
    except OverflowError:
        expected = nearest(sum(map(Fraction, values)))
    others = [rng.uniform(-1e300, 1e300) for _ in range(5)]
    changes = [(v, 1) for v in values + others] + [(v, -1) for v in others]
    rng.shuffle(changes)
    total = ZSet.empty(1)
    for value, weight in changes:
        total = total + state_of(exact, codec, [value], [weight])
    assert exact.floats(digits_of(total), np.array([1])).tolist() == [expected]


@given(st.lists(st.tuples(st.integers(-(2**63) + 1, 2**63 - 1), WEIGHTS), max_size=8), WEIGHTS)
@settings(max_examples=200)
def test_integer_sums_are_exact_in_as_many_words_as_they_need(terms, divisor):
    codec = Codecs().codec(pa.int64())
    exact = ExactSum(codec)
    total = sum(value * weight for value, weight in terms)
    sums = digits_of(state_of(exact, codec, [v for v, _ in terms], [w for _, w in terms]))
    for words in (1, 2, 4):
        sum_words, fits = exact.integers(sums, 1, words)
        assert fits[0] == (abs(total) < 2 ** (64 * words - 1))
        if fits[0]:
            unsigned = unsigned_of(sum_words[:, 0])
            assert unsigned == total % 2 ** (64 * words)
    divisor = divisor or 1
    assert exact.floats(sums, np.array([divisor])).tolist() == [float(Fraction(total, divisor))]


@pytest.mark.parametrize(
    "type_",
    [
        pa.uint64(),
        pa.int8(),
        pa.bool_(),
        pa.decimal64(9, 2),
        pa.decimal128(18, 7),
        pa.decimal128(38, 12),
        pa.decimal256(76, 30),
        pa.float32(),
        pa.float16(),
        pa.dictionary(pa.int8(), pa.float64()),
        pa.dictionary(pa.int32(), pa.decimal128(30, 3)),
    ],
    ids=str,
)
def test_every_type_of_numbers_is_summed_exactly(type_):
    rng = random.Random(str(type_))
    plain = type_.value_type if pa.types.is_dictionary(type_) else type_
    if pa.types.is_decimal(plain):
        most = 10**plain.precision - 1
        unscaled = [rng.randint(-most, most) for _ in range(20)] + [most, -most, 0, 1, -1]
        fractions = [Fraction(n, 10**plain.scale) for n in unscaled]
        array = pa.array([_exact_decimal(n, plain.scale) for n in unscaled], plain)
    elif pa.types.is_floating(plain):
        array = pa.array([rng.uniform(-1, 1) * 2.0 ** rng.randint(-9, 9) for _ in range(20)]).cast(
            plain, safe=False
        )
        fractions = [Fraction(float(v)) for v in array.to_pylist()]
    elif plain == pa.bool_():
        array = pa.array([True, False, True])
        fractions = [Fraction(1), Fraction(0), Fraction(1)]
    else:
        high = 2**64 - 2 if plain == pa.uint64() else 127
        numbers = [rng.randint(0, high) for _ in range(20)] + [high, 0]
        array = pa.array(numbers, plain)
        fractions = [Fraction(n) for n in numbers]
    if plain is not type_:
        array = array.dictionary_encode().cast(type_)
    weights = [rng.choice([-5, -1, 1, 2**40, 3]) for _ in fractions]
    codec = Codecs().codec(type_)
    exact = ExactSum(codec)
    digits = exact.split(codec.encode(array), np.array(weights))
    zset = ZSet.from_columns([digits.positions], digits.amounts)
    total = sum(f * w for f, w in zip(fractions, weights, strict=True))
    assert exact.floats(digits_of(zset), np.array([7])).tolist() == [float(total / 7)]
    if not exact.is_floating:
        sum_words, fits = exact.integers(digits_of(zset), 1, 6)
        assert fits.all()
        unsigned = unsigned_of(sum_words[:, 0])
        assert unsigned == int(total * 10**exact.scale) % 2**384


def _exact_decimal(unscaled, scale):
    sign, digits = int(unscaled < 0), tuple(map(int, str(abs(unscaled))))
    return Decimal((sign, digits, -scale))


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        ([(math.inf, 1), (1e308, 5)], math.inf),
        ([(-math.inf, 2)], -math.inf),
        ([(math.inf, 1), (-math.inf, 1)], math.nan),
        ([(math.nan, 1), (3.0, 1)], math.nan),
        ([(math.inf, 1), (math.nan, 1), (math.inf, -1), (math.nan, -1), (3.0, 1)], 3.0),
        ([(-0.0, 3)], 0.0),
    ],
)
def test_infinities_and_nan_are_counted_so_that_they_can_be_deleted(terms, expected):
    codec = Codecs().codec(pa.float64())
    exact = ExactSum(codec)
    sums = digits_of(state_of(exact, codec, *zip(*terms, strict=True)))
    (total,) = exact.floats(sums, np.array([1])).tolist()
    assert total == expected or (math.isnan(total) and math.isnan(expected))


def test_a_sum_has_few_rows_when_its_numbers_are_small():
    codec = Codecs().codec(pa.int64())
    state = state_of(ExactSum(codec), codec, list(range(1000)), [1] * 1000)
    assert state.to_dict() == {(0,): 499500}


@pytest.mark.parametrize("power", [3, 4])
@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan, 1e300, -1e300])
def test_a_power_that_is_not_finite_has_one_digit(power, number):
    digits = split_powers(np.array([2.0, number]), power, np.array([1, 5]))
    codec = Codecs().codec(pa.float64())
    result = math.copysign(math.inf, number) if power == 3 else math.inf
    special = codec.encode(pa.array([math.nan if math.isnan(number) else result]))
    expected = ExactSum(codec).split(special, np.array([5]))
    is_special = digits.sum_indices == 1
    found = {
        (position, amount)
        for position, amount in zip(
            digits.positions[is_special].tolist(), digits.amounts[is_special].tolist(), strict=True
        )
        if amount
    }
    assert found == {(expected.positions[0], expected.amounts[0])}
