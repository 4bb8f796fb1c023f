"""Statistics: variances, covariances, regressions and moments, from exact sums.

A quotient by a variance of 0 is NULL or NaN, depending on the dialect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from circuits.plan.expressions import Expression, Literal
from circuits.sql.aggregation.aggregate_reader import (
    FLOAT,
    AggregateDefinition,
    AggregateReader,
    Read,
)
from circuits.sql.expressions.literals import NULL, integer_literal

__all__ = ["DEFINITIONS"]

_NAN: Final = Literal(float("nan"), FLOAT)


def _if_enough(
    reader: AggregateReader,
    least_count: int,
    count: Expression,
    formula: Callable[[Expression], Expression],
) -> Expression:
    """Return ``formula(n)`` for the count n as a float; NULL for a count below ``least_count``."""
    n = reader.as_float(count)
    is_enough = reader.call("ge", count, integer_literal(least_count))
    return reader.call("case", is_enough, formula(n), NULL)


def _read_variance(reader: AggregateReader, sample: int) -> Expression:
    """Return the variance: the sum of squared deviations, divided by the count minus ``sample``.

    ``sample`` is 1 for the variance of a sample, and 0 for that of a population.
    """
    x = reader.apply_filter(reader.as_float(reader.argument(0)))
    moment = reader.aggregate("comoment", x, x, distinct=reader.distinct)
    count = reader.aggregate("count", x, distinct=reader.distinct)
    return _if_enough(
        reader,
        1 + sample,
        count,
        lambda n: reader.call("divide", moment, _minus(reader, n, sample)),
    )


def _minus(reader: AggregateReader, n: Expression, number: int) -> Expression:
    return reader.call("subtract", n, _float(number)) if number else n


def _float(number: float) -> Literal:
    return Literal(float(number), FLOAT)


def _read_standard_error(reader: AggregateReader) -> Expression:
    x = reader.apply_filter(reader.as_float(reader.argument(0)))
    count = reader.aggregate("count", x, distinct=reader.distinct)
    deviation = reader.call("sqrt", _read_variance(reader, 0))
    return _if_enough(
        reader, 1, count, lambda n: reader.call("divide", deviation, reader.call("sqrt", n))
    )


class _Pairs:
    """The statistics of the pairs of a function of two arguments: y, x, without NULL.

    ``sxx``, ``syy`` and ``sxy`` are the sums of the products of two deviations from the mean.
    """

    def __init__(self, reader: AggregateReader) -> None:
        self.reader = reader
        first, second = (reader.as_float(reader.argument(index)) for index in range(2))
        self.y = reader.apply_filter(first, second)
        self.x = reader.apply_filter(second, first)
        self.count = reader.aggregate("count", self.x)

    @property
    def sxx(self) -> Expression:
        return self.reader.aggregate("comoment", self.x, self.x)

    @property
    def syy(self) -> Expression:
        return self.reader.aggregate("comoment", self.y, self.y)

    @property
    def sxy(self) -> Expression:
        return self.reader.aggregate("comoment", self.x, self.y)

    def mean(self, value: Expression) -> Expression:
        return self.reader.aggregate("avg", value)

    def unless_zero(
        self, divisor: Expression, value: Expression, otherwise: Expression
    ) -> Expression:
        """Return ``value``, or ``otherwise`` if the divisor is 0; NULL without pairs."""
        call = self.reader.call
        result = call("case", call("eq", divisor, _float(0)), otherwise, value)
        return call("case", call("gt", self.count, integer_literal(0)), result, NULL)

    def slope(self) -> Expression:
        return self.reader.call("divide", self.sxy, self.sxx)


def _read_covariance(reader: AggregateReader, sample: int) -> Expression:
    pairs = _Pairs(reader)
    return _if_enough(
        reader,
        1 + sample,
        pairs.count,
        lambda n: reader.call("divide", pairs.sxy, _minus(reader, n, sample)),
    )


def _undefined(reader: AggregateReader) -> Expression:
    """Return the correlation or the slope of values that are all equal."""
    return NULL if reader.is_spark or reader.source.is_postgres else _NAN


def _read_correlation(reader: AggregateReader) -> Expression:
    pairs, call = _Pairs(reader), reader.call
    scale = call("multiply", call("sqrt", pairs.sxx), call("sqrt", pairs.syy))
    ratio = call("divide", pairs.sxy, scale)
    # Rounding may leave the range from -1 to 1 by a bit. NaN must stay, although NaN > 1 is true.
    is_number = call("ne", ratio, _NAN)
    above = call("and", is_number, call("gt", ratio, _float(1)))
    below = call("lt", ratio, _float(-1))
    bounded = call("case", above, _float(1), below, _float(-1), ratio)
    return pairs.unless_zero(scale, bounded, _undefined(reader))


def _read_slope(reader: AggregateReader) -> Expression:
    pairs = _Pairs(reader)
    return pairs.unless_zero(pairs.sxx, pairs.slope(), _undefined(reader))


def _read_intercept(reader: AggregateReader) -> Expression:
    pairs, call = _Pairs(reader), reader.call
    rise = call("multiply", pairs.slope(), pairs.mean(pairs.x))  # from x = 0 to the mean of x
    return pairs.unless_zero(pairs.sxx, call("subtract", pairs.mean(pairs.y), rise), NULL)


def _read_determination(reader: AggregateReader) -> Expression:
    pairs, call = _Pairs(reader), reader.call
    ratio = call(
        "multiply",
        call("divide", pairs.sxy, pairs.sxx),
        call("divide", pairs.sxy, pairs.syy),
    )
    # If all y are equal, the line fits them exactly.
    share = call("case", call("eq", pairs.syy, _float(0)), _float(1), ratio)
    return pairs.unless_zero(pairs.sxx, share, NULL)


def _pairs_reader(value: Callable[[_Pairs], Expression]) -> Read:
    return lambda reader: value(_Pairs(reader))


def _read_moments(reader: AggregateReader, power: int) -> tuple[Expression, Expression, Expression]:
    """Return the count n, the second moment, and the third or fourth one.

    A moment is the sum of the powers of the deviations from the mean.
    """
    x = reader.apply_filter(reader.as_float(reader.argument(0)))
    second = reader.aggregate("comoment", x, x)
    return reader.aggregate("count", x), second, reader.aggregate("moment", x, options=(power,))


def _read_skewness(reader: AggregateReader) -> Expression:
    """Return sqrt(n) times the third moment, over the second moment to the power of 1.5.

    DuckDB corrects it for a sample: times sqrt(n (n - 1)) / (n - 2).
    """
    count, second, third = _read_moments(reader, 3)
    call = reader.call
    scale = call("multiply", second, call("sqrt", second))

    def formula(n: Expression) -> Expression:
        ratio = call("divide", call("multiply", call("sqrt", n), third), scale)
        if reader.is_spark:
            return ratio
        root = call("sqrt", call("multiply", n, _minus(reader, n, 1)))
        return call("multiply", ratio, call("divide", root, _minus(reader, n, 2)))

    return _if_enough(reader, 1 if reader.is_spark else 3, count, formula)


def _kurtosis_reader(*, population: bool) -> Read:
    """Return the reader of the excess kurtosis: n times the fourth moment over the second², - 3.

    Of a sample in DuckDB, it is (n - 1) ((n + 1) ratio - 3 (n - 1)) / ((n - 2) (n - 3)).
    """

    def read(reader: AggregateReader) -> Expression:
        count, second, fourth = _read_moments(reader, 4)
        call = reader.call

        def formula(n: Expression) -> Expression:
            ratio = call("divide", call("multiply", n, fourth), call("multiply", second, second))
            if population or reader.is_spark:
                return call("subtract", ratio, _float(3))
            less_one = _minus(reader, n, 1)
            scaled = call(
                "subtract",
                call("multiply", call("add", n, _float(1)), ratio),
                call("multiply", _float(3), less_one),
            )
            divisor = call("multiply", _minus(reader, n, 2), _minus(reader, n, 3))
            return call("divide", call("multiply", less_one, scaled), divisor)

        least_count = 1 if reader.is_spark else 2 if population else 4
        return _if_enough(reader, least_count, count, formula)

    return read


def _read_geometric_mean(reader: AggregateReader) -> Expression:
    logarithm = reader.call("ln", reader.as_float(reader.argument(0)))
    mean = reader.aggregate("avg", reader.apply_filter(logarithm), distinct=reader.distinct)
    return reader.call("exp", mean)


DEFINITIONS: Final[Mapping[str, AggregateDefinition]] = {
    "corr": AggregateDefinition(_read_correlation, (2, 2), distinct=False),
    "covar_pop": AggregateDefinition(
        lambda reader: _read_covariance(reader, 0), (2, 2), distinct=False
    ),
    "covar_samp": AggregateDefinition(
        lambda reader: _read_covariance(reader, 1), (2, 2), distinct=False
    ),
    "geometric_mean": AggregateDefinition(_read_geometric_mean),
    "kurtosis": AggregateDefinition(_kurtosis_reader(population=False), distinct=False),
    "kurtosis_pop": AggregateDefinition(_kurtosis_reader(population=True), distinct=False),
    "regr_avgx": AggregateDefinition(_pairs_reader(lambda p: p.mean(p.x)), (2, 2), distinct=False),
    "regr_avgy": AggregateDefinition(_pairs_reader(lambda p: p.mean(p.y)), (2, 2), distinct=False),
    "regr_count": AggregateDefinition(_pairs_reader(lambda p: p.count), (2, 2), distinct=False),
    "regr_intercept": AggregateDefinition(_read_intercept, (2, 2), distinct=False),
    "regr_r2": AggregateDefinition(_read_determination, (2, 2), distinct=False),
    "regr_slope": AggregateDefinition(_read_slope, (2, 2), distinct=False),
    "regr_sxx": AggregateDefinition(_pairs_reader(lambda p: p.sxx), (2, 2), distinct=False),
    "regr_sxy": AggregateDefinition(_pairs_reader(lambda p: p.sxy), (2, 2), distinct=False),
    "regr_syy": AggregateDefinition(_pairs_reader(lambda p: p.syy), (2, 2), distinct=False),
    "sem": AggregateDefinition(_read_standard_error),
    "skewness": AggregateDefinition(_read_skewness, distinct=False),
    "stddev_pop": AggregateDefinition(lambda r: r.call("sqrt", _read_variance(r, 0))),
    "stddev_samp": AggregateDefinition(lambda r: r.call("sqrt", _read_variance(r, 1))),
    "var_pop": AggregateDefinition(lambda reader: _read_variance(reader, 0)),
    "var_samp": AggregateDefinition(lambda reader: _read_variance(reader, 1)),
}
