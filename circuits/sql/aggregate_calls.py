"""Calls of aggregate functions, as expressions over a few primitive aggregates.

::

    var_samp(x)      comoment(x, x) / (count(x) - 1), NULL for less than two values
    count_if(c)      count(case when c then 1 end)
    max_by(x, y)     first(x order by y desc), of the rows where neither is NULL

The primitive aggregates are those of `circuits.types.functions.aggregate_type`. Each definition
gets an `AggregateReader`, which reads the parts of the call and registers primitive aggregates: of
the groups of a query (`circuits.sql.grouping`), or of the frames of a window.
``FILTER (WHERE c)`` is ``CASE WHEN c THEN argument END``, since aggregates leave NULL out.

Where systems differ, the dialect decides: the middle rows of a percentile, the quotients of
statistics over no variance, and the default separator of a list of texts. Functions that name no
order but depend on one (``first``, ``string_agg``) take the order of the values, so that a result
depends on the rows only. Approximate functions are computed exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa
from sqlglot import exp

from circuits.errors import SchemaError
from circuits.plan.expressions import Expression, Literal
from circuits.sql.aggregate_names import AGGREGATE_CLASSES, AGGREGATE_NAMES
from circuits.sql.casts import spark_text
from circuits.sql.clause import Clause
from circuits.sql.literals import NULL, integer_literal
from circuits.sql.ordering import SortKey, read_order
from circuits.types import functions
from circuits.types.codecs.codec import Codecs

__all__ = ["AggregateTerm", "read_aggregate"]

_FLOAT: Final = pa.float64()
_NAN: Final = Literal(float("nan"), _FLOAT)
# The names under which sqlglot keeps the arguments of a call, in their order.
_PARTS: Final = ("this", "expression", "quantile", "separator", "expressions")
_WRAPPERS: Final = exp.Filter | exp.WithinGroup | exp.IgnoreNulls | exp.RespectNulls
_WINDOW_FUNCTIONS: Final = (
    *(exp.RowNumber, exp.Rank, exp.DenseRank, exp.PercentRank, exp.CumeDist, exp.Ntile),
    *(exp.Lag, exp.Lead, exp.NthValue),
)


@dataclass(frozen=True)
class AggregateTerm:
    """One primitive aggregate of a call, over expressions of the rows.

    Attributes:
        function: The name of the primitive aggregate.
        arguments: Its arguments; empty for ``count(*)``.
        type: The type of the result.
        distinct: True to read each combination of the arguments once.
        order: The order of the rows, for functions that depend on it.
        options: Constants.
    """

    function: str
    arguments: tuple[Expression, ...]
    type: pa.DataType
    distinct: bool = False
    order: tuple[SortKey, ...] = ()
    options: tuple[Any, ...] = ()

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """All expressions of the rows that it reads."""
        return (*self.arguments, *(key.expression for key in self.order))


Register = Callable[[AggregateTerm], Expression]


def read_aggregate(clause: Clause, node: exp.Expr, register: Register) -> Expression:
    """Return the value of a call of an aggregate function.

    Args:
        clause: The clause of its arguments, its order and its FILTER.
        node: The call, with the words after it: FILTER, WITHIN GROUP, IGNORE NULLS.
        register: Returns the value of a primitive aggregate.

    Raises:
        SqlError: The function does not take these arguments.
        UnsupportedSqlError: The function is not supported.
    """
    reader = AggregateReader(clause, node, register)
    return reader.definition.read(reader)


class AggregateReader:
    """The parts of one call.

    Attributes:
        name: The name of the function as it is in the text.
        node: The call.
        function: The call without the words after it.
    """

    def __init__(self, clause: Clause, node: exp.Expr, register: Register) -> None:
        self.clause = clause
        self.source = clause.source
        self.node = node
        self._register = register
        self.distinct = False
        self.order: tuple[SortKey, ...] = ()
        self.within_group = False
        self.nulls: str = ""
        self._condition: Expression | None = None
        self.function = self._unwrap(node)
        self.name = self.source.name_in_text(self.function)
        self.definition = self._definition()
        self._nodes = self._argument_nodes()
        self._check()

    def _unwrap(self, node: exp.Expr) -> exp.Expr:
        """Read the words after a call; return the call."""
        source = self.source
        while isinstance(node, _WRAPPERS):
            if isinstance(node, exp.Filter):
                source.allow_arguments(node, "this", "expression")
                source.allow_arguments(node.expression, "this")
                self._condition = self.clause.read_condition(node.expression.this)
            elif isinstance(node, exp.WithinGroup):
                source.allow_arguments(node, "this", "expression")
                self.within_group = True
                self._read_order(node.expression)
            else:
                source.allow_arguments(node, "this")
                self.nulls = "ignore" if isinstance(node, exp.IgnoreNulls) else "respect"
            node = node.this
        return node

    def _definition(self) -> _Definition:
        node = self.function
        if isinstance(node, exp.Anonymous):
            name = AGGREGATE_NAMES.get(node.name.lower(), "")
        else:
            name = AGGREGATE_CLASSES.get(type(node), "")
        definition = DEFINITIONS.get(name)
        is_bare_window_function = isinstance(node, _WINDOW_FUNCTIONS) or (
            isinstance(node, exp.FirstValue | exp.LastValue) and not self.source.is_spark
        )
        if is_bare_window_function and not isinstance(self.node.parent, exp.Window):
            raise self.source.error(
                node, f"{self.name}() needs a window; write {self.name}(...) OVER (...)"
            )
        if definition is None:
            known = ", ".join(sorted(DEFINITIONS))
            raise self.source.unsupported(
                node, f"aggregate {self.name}()", f"there are: {known}", self.name
            )
        return definition

    def _argument_nodes(self) -> list[exp.Expr]:
        """Return the arguments of the call, without DISTINCT and ORDER BY."""
        node, source = self.function, self.source
        flags = ("big_int", "nulls_excluded", "accuracy", "error_tolerance")
        parts = (*_PARTS, "count") if isinstance(node, exp.ArgMax | exp.ArgMin) else _PARTS
        source.allow_arguments(node, *parts, *flags)
        pending: list[exp.Expr] = []
        for name in ("expressions",) if isinstance(node, exp.Anonymous) else parts:
            value = node.args.get(name)
            if value is not None and not isinstance(value, str):
                pending += value if isinstance(value, list) else [value]
        arguments: list[exp.Expr] = []
        while pending:
            part = pending.pop(0)
            if isinstance(part, exp.Distinct):
                source.allow_arguments(part, "expressions")
                self.distinct = True
                pending = [*part.expressions, *pending]
            elif isinstance(part, exp.Order) and part.this is not None:
                source.allow_arguments(part, "this", "expressions")
                self._read_order(part)
                pending.insert(0, part.this)
            elif isinstance(node, exp.Any) and isinstance(part, exp.Paren):
                source.allow_arguments(part, "this")
                pending.insert(0, part.this)
            else:
                arguments.append(part)
        return arguments

    def _read_order(self, node: exp.Expr) -> None:
        assert isinstance(node, exp.Order)
        # In sqlglot, an ORDER BY in a call contains the argument before it. Read a copy without it,
        # and restore the parents of the keys, which the copy has changed.
        bare = exp.Order(expressions=node.expressions)
        for key in node.expressions:
            key.parent = node
        self.source.allow_arguments(node, "this", "expressions")
        self.order = read_order(self.source, bare, self.clause.read)

    def _check(self) -> None:
        definition, source = self.definition, self.source
        is_ordered_set = self.within_group and definition.ordered_set
        count = len(self._nodes) + (len(self.order) if is_ordered_set else 0)
        least, most = definition.arguments
        is_star = any(isinstance(node, exp.Star) for node in self._nodes)
        if (is_star or count < least) and not (isinstance(self.function, exp.Count) and count <= 1):
            needs = "a column; only count() can do without" if least == 1 else "two arguments"
            raise source.error(self.function, f"{self.name}() needs {needs}")
        if most is not None and count > most:
            takes = "one argument" if most == 1 else f"{most} arguments"
            raise source.error(self.function, f"{self.name}() takes {takes}")
        if self.distinct and not definition.distinct:
            raise source.unsupported(
                self.function,
                f"DISTINCT in {self.name}()",
                "aggregate the rows of a SELECT DISTINCT in FROM",
            )
        if self.within_group and not (definition.ordered_set or definition.ordered):
            raise source.unsupported(
                self.function, f"WITHIN GROUP of {self.name}()", "write its column in the brackets"
            )
        if self.nulls and not definition.nulls and not isinstance(self.function, exp.AnyValue):
            words = f"{self.nulls.upper()} NULLS"
            raise source.unsupported(self.node, words, "they are left out anyway")

    @property
    def is_spark(self) -> bool:
        return self.source.is_spark

    @property
    def count(self) -> int:
        """The number of arguments in the brackets."""
        return len(self._nodes)

    def value(self, index: int) -> Expression:
        """Return an argument, as it is in the text."""
        return self.clause.read(self._nodes[index])

    def is_star(self, index: int) -> bool:
        """Return whether an argument is ``*``; it is then read."""
        if isinstance(self._nodes[index], exp.Star):
            self.source.allow_arguments(self._nodes[index])
            return True
        return False

    def constant(self, index: int, what: str) -> Any:
        """Return the value of an argument that must be a constant."""
        value = self.value(index)
        if not isinstance(value, Literal):
            raise self.source.unsupported(
                self._nodes[index],
                f"a {what} of {self.name}() that is not a constant",
                "write it out",
            )
        return value.value

    def fractions(self, index: int) -> list[float] | float:
        """Return an argument that is a constant from 0 to 1, or a list of such constants."""
        node = self._nodes[index]
        if not isinstance(node, exp.Array):
            return self.fraction(index)
        self.source.allow_arguments(node, "expressions", "bracket_notation", "value_constructor")
        return [self._fraction(part, self.clause.read(part)) for part in node.expressions]

    def fraction(self, index: int) -> float:
        """Return an argument that is a constant from 0 to 1."""
        node = self._nodes[index]
        self.constant(index, "fraction")
        return self._fraction(node, self.value(index))

    def _fraction(self, node: exp.Expr, read: Expression) -> float:
        value = read.value if isinstance(read, Literal) else None
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
            raise self.source.error(node, f"the fraction of {self.name}() is a number from 0 to 1")
        if not 0 <= value <= 1:
            raise self.source.error(
                node, f"the fraction {value} of {self.name}() is not from 0 to 1"
            )
        return float(value)

    def call(self, function: str, *arguments: Expression) -> Expression:
        """Return a call of a scalar function."""
        return self.clause.call(self.function, function, *arguments)

    def cast(self, value: Expression, type_: pa.DataType) -> Expression:
        """Return a value in another type."""
        return self.clause.call(self.function, "cast", value, type=type_)

    def number(self, value: Expression) -> Expression:
        """Return a number as a float."""
        type_ = value.type
        plain = type_.value_type if pa.types.is_dictionary(type_) else type_
        is_number = pa.types.is_integer(plain) or pa.types.is_floating(plain)
        if self.is_spark and pa.types.is_string(plain):
            return self.clause.call(self.function, "cast", value, type=_FLOAT)
        if not (is_number or pa.types.is_decimal(plain) or pa.types.is_null(plain)):
            raise self.source.error(
                self.function, f"{self.name}({type_}) does not exist; cast its argument to a number"
            )
        if type_ == _FLOAT:
            return value
        return self.clause.call(self.function, "cast", value, type=_FLOAT)

    def where(self, value: Expression, *others: Expression) -> Expression:
        """Return a value where FILTER holds and no other value is NULL, else NULL."""
        conditions = [self.call("not", self.call("is_null", other)) for other in others]
        if self._condition is not None:
            conditions.insert(0, self._condition)
        if not conditions:
            return value
        condition = conditions[0] if len(conditions) == 1 else self.call("and", *conditions)
        return self.call("case", condition, value, NULL)

    def required(self, *values: Expression) -> tuple[Expression, ...]:
        """Return arguments that restrict an aggregate to the rows where none of them is NULL.

        These are the rows that FILTER selects and in which no value is NULL.
        """
        if self._condition is None:
            return values
        return (*values, self.where(integer_literal(1)))

    def term(
        self,
        function: str,
        *arguments: Expression,
        distinct: bool = False,
        order: tuple[SortKey, ...] = (),
        options: tuple[Any, ...] = (),
    ) -> Expression:
        """Return the value of a primitive aggregate."""
        if function in ("min", "max"):
            self.source.refuse_spark_order(self.function, arguments[0].type, f"{function}()")
        with self.source.errors_at(self.function):
            type_ = functions.aggregate_type(function, *(value.type for value in arguments))
        return self._register(AggregateTerm(function, arguments, type_, distinct, order, options))

    def check_distinct_order(self, *arguments: Expression) -> None:
        """Refuse DISTINCT with an order by other values than the arguments."""
        if self.distinct and any(key.expression not in arguments for key in self.order):
            raise self.source.error(
                self.function,
                f"{self.name}(DISTINCT ...) can only be ordered by its arguments",
            )


Read = Callable[[AggregateReader], Expression]


@dataclass(frozen=True)
class _Definition:
    """One function.

    Attributes:
        read: Returns its value.
        arguments: The least and the greatest number of arguments.
        distinct: True if it takes DISTINCT.
        ordered: True if its result depends on an ORDER BY.
        ordered_set: True if ``WITHIN GROUP (ORDER BY x)`` names its argument.
        nulls: True if it takes IGNORE NULLS and RESPECT NULLS.
    """

    read: Read
    arguments: tuple[int, int | None] = (1, 1)
    distinct: bool = True
    ordered: bool = False
    ordered_set: bool = False
    nulls: bool = False


def _simple(function: str) -> Read:
    def read(reader: AggregateReader) -> Expression:
        value = reader.where(reader.value(0))
        distinct = reader.distinct and function not in ("min", "max", "bit_and", "bit_or")
        return reader.term(function, value, distinct=distinct)

    return read


def _sum(reader: AggregateReader) -> Expression:
    """Return the sum; in Spark, the sum of decimals has ten digits more than they have."""
    value = reader.where(_as_number(reader, reader.value(0)))
    total = reader.term("sum", value, distinct=reader.distinct)
    if not reader.is_spark or not pa.types.is_decimal(value.type):
        return total
    digits = min(38, value.type.precision + 10)
    return reader.cast(total, pa.decimal128(digits, value.type.scale))


def _try_sum(reader: AggregateReader) -> Expression:
    """Return the sum, or NULL if its type cannot hold it."""
    value = reader.where(_as_number(reader, reader.value(0)))
    if pa.types.is_floating(value.type):
        return reader.term("sum", value, distinct=reader.distinct)
    target = pa.int64()
    if pa.types.is_decimal(value.type):
        target = pa.decimal128(min(38, value.type.precision + 10), value.type.scale)
    wide = pa.decimal256(76, target.scale) if pa.types.is_decimal(target) else pa.decimal128(38, 0)
    total = reader.term("sum", reader.cast(value, wide), distinct=reader.distinct)
    return reader.call("try", reader.cast(total, target))


def _average(reader: AggregateReader) -> Expression:
    """Return the mean; in Spark, the mean of decimals is a decimal with four digits more."""
    value = reader.where(_as_number(reader, reader.value(0)))
    if not reader.is_spark or not pa.types.is_decimal(value.type):
        return reader.term("avg", value, distinct=reader.distinct)
    total = reader.term("sum", value, distinct=reader.distinct)
    count = reader.term("count", value, distinct=reader.distinct)
    divisor = reader.call("case", reader.call("gt", count, integer_literal(0)), count, NULL)
    precision, scale = value.type.precision, value.type.scale
    target = pa.decimal128(min(38, precision + 4), min(38, scale + 4))
    return reader.cast(reader.call("divide_ansi", total, divisor), target)


def _as_number(reader: AggregateReader, value: Expression) -> Expression:
    """Return a text as a double in Spark, another value as it is."""
    if reader.is_spark and pa.types.is_string(value.type):
        return reader.cast(value, _FLOAT)
    return value


def _read_count(reader: AggregateReader) -> Expression:
    if reader.count == 0 or reader.is_star(0):
        if reader.distinct:
            raise reader.source.unsupported(
                reader.function,
                "DISTINCT of several columns",
                "count the rows of a SELECT DISTINCT in FROM",
            )
        counted = reader.where(integer_literal(1))
        return reader.term("count", *(() if counted == integer_literal(1) else (counted,)))
    values = [reader.value(index) for index in range(reader.count)]
    if reader.distinct:
        return reader.term("count", *map(reader.where, values), distinct=True)
    if len(values) == 1:
        return reader.term("count", reader.where(values[0]))
    return reader.term("count", reader.where(integer_literal(1), *values))


def _read_count_if(reader: AggregateReader) -> Expression:
    condition = _condition(reader)
    counted = reader.call("case", condition, integer_literal(1), NULL)
    count = reader.term("count", reader.where(counted), distinct=reader.distinct)
    if reader.is_spark:
        return count
    # In DuckDB the count is NULL if the condition is NULL in all rows, as a sum would be.
    known = reader.term("count", reader.where(condition))
    return reader.call("case", reader.call("gt", known, integer_literal(0)), count, NULL)


def _condition(reader: AggregateReader) -> Expression:
    value = reader.value(0)
    if pa.types.is_null(value.type):
        return reader.clause.call(reader.function, "cast", value, type=pa.bool_())
    if not pa.types.is_boolean(value.type):
        if pa.types.is_integer(value.type) and not reader.is_spark:
            return reader.call("ne", value, integer_literal(0))
        raise reader.source.error(
            reader.function, f"{reader.name}() needs a condition, not a value of type {value.type}"
        )
    return value


def _read_bool(is_and: bool) -> Read:
    def read(reader: AggregateReader) -> Expression:
        condition = _condition(reader)
        decisive = reader.call("not", condition) if is_and else condition
        counted = reader.term("count", reader.where(condition))
        decisive_count = reader.term(
            "count", reader.where(reader.call("case", decisive, integer_literal(1), NULL))
        )
        result = reader.call("eq" if is_and else "gt", decisive_count, integer_literal(0))
        return reader.call("case", reader.call("gt", counted, integer_literal(0)), result, NULL)

    return read


def _read_approx_distinct(reader: AggregateReader) -> Expression:
    return reader.term("count", reader.where(reader.value(0)), distinct=True)


def _float_sum(reader: AggregateReader) -> Expression:
    value = reader.where(reader.number(reader.value(0)))
    return reader.term("sum", value, distinct=reader.distinct)


def _over(
    reader: AggregateReader,
    least: int,
    count: Expression,
    value: Callable[[Expression], Expression],
) -> Expression:
    """Return ``value(count)``, with the count as a float; NULL for a count below ``least``."""
    n = reader.number(count)
    enough = reader.call("ge", count, integer_literal(least))
    return reader.call("case", enough, value(n), NULL)


def _variance(reader: AggregateReader, sample: int) -> Expression:
    """Return the variance; divided by the count less ``sample``."""
    x = reader.where(reader.number(reader.value(0)))
    moment = reader.term("comoment", x, x, distinct=reader.distinct)
    count = reader.term("count", x, distinct=reader.distinct)
    return _over(
        reader,
        1 + sample,
        count,
        lambda n: reader.call("divide", moment, _minus(reader, n, sample)),
    )


def _minus(reader: AggregateReader, n: Expression, number: int) -> Expression:
    return reader.call("subtract", n, _float(number)) if number else n


def _float(number: float) -> Literal:
    return Literal(float(number), _FLOAT)


def _standard_error(reader: AggregateReader) -> Expression:
    x = reader.where(reader.number(reader.value(0)))
    count = reader.term("count", x, distinct=reader.distinct)
    deviation = reader.call("sqrt", _variance(reader, 0))
    return _over(
        reader, 1, count, lambda n: reader.call("divide", deviation, reader.call("sqrt", n))
    )


class _Pairs:
    """The statistics of the pairs of a function of two arguments: y, x, without NULL."""

    def __init__(self, reader: AggregateReader) -> None:
        self.reader = reader
        first, second = (reader.number(reader.value(index)) for index in range(2))
        self.y = reader.where(first, second)
        self.x = reader.where(second, first)
        self.count = reader.term("count", self.x)

    @property
    def sxx(self) -> Expression:
        return self.reader.term("comoment", self.x, self.x)

    @property
    def syy(self) -> Expression:
        return self.reader.term("comoment", self.y, self.y)

    @property
    def sxy(self) -> Expression:
        return self.reader.term("comoment", self.x, self.y)

    def mean(self, value: Expression) -> Expression:
        return self.reader.term("avg", value)

    def unless_zero(
        self, divisor: Expression, value: Expression, otherwise: Expression
    ) -> Expression:
        """Return a value unless the divisor is 0, and NULL for no pairs."""
        call = self.reader.call
        result = call("case", call("eq", divisor, _float(0)), otherwise, value)
        return call("case", call("gt", self.count, integer_literal(0)), result, NULL)

    def slope(self) -> Expression:
        return self.reader.call("divide", self.sxy, self.sxx)


def _covariance(reader: AggregateReader, sample: int) -> Expression:
    pairs = _Pairs(reader)
    return _over(
        reader,
        1 + sample,
        pairs.count,
        lambda n: reader.call("divide", pairs.sxy, _minus(reader, n, sample)),
    )


def _correlation(reader: AggregateReader) -> Expression:
    pairs, call = _Pairs(reader), reader.call
    scale = call("multiply", call("sqrt", pairs.sxx), call("sqrt", pairs.syy))
    ratio = call("divide", pairs.sxy, scale)
    # Rounding may leave the range by a bit; NaN is greater than all numbers.
    is_number = call("ne", ratio, _NAN)
    above = call("and", is_number, call("gt", ratio, _float(1)))
    below = call("lt", ratio, _float(-1))
    bounded = call("case", above, _float(1), below, _float(-1), ratio)
    return pairs.unless_zero(scale, bounded, NULL if reader.is_spark else _NAN)


def _slope(reader: AggregateReader) -> Expression:
    pairs = _Pairs(reader)
    return pairs.unless_zero(pairs.sxx, pairs.slope(), NULL if reader.is_spark else _NAN)


def _intercept(reader: AggregateReader) -> Expression:
    pairs, call = _Pairs(reader), reader.call
    change = call("multiply", pairs.slope(), pairs.mean(pairs.x))
    return pairs.unless_zero(pairs.sxx, call("subtract", pairs.mean(pairs.y), change), NULL)


def _determination(reader: AggregateReader) -> Expression:
    pairs, call = _Pairs(reader), reader.call
    ratio = call(
        "multiply",
        call("divide", pairs.sxy, pairs.sxx),
        call("divide", pairs.sxy, pairs.syy),
    )
    value = call("case", call("eq", pairs.syy, _float(0)), _float(1), ratio)
    return pairs.unless_zero(pairs.sxx, value, NULL)


def _of_pairs(value: Callable[[_Pairs], Expression]) -> Read:
    return lambda reader: value(_Pairs(reader))


def _powers(reader: AggregateReader, most: int) -> tuple[Expression, list[Expression], Expression]:
    """Return the count, the means of the powers from 1 to ``most``, and the population variance."""
    x = reader.where(reader.number(reader.value(0)))
    power, means = x, [reader.term("avg", x)]
    for _ in range(most - 1):
        power = reader.call("multiply", power, x)
        means.append(reader.term("avg", power))
    return reader.term("count", x), means, _variance(reader, 0)


def _combine(reader: AggregateReader, parts: list[tuple[float, list[Expression]]]) -> Expression:
    """Return a sum of products."""
    total: Expression | None = None
    for factor, values in parts:
        product: Expression = _float(factor)
        for value in values:
            product = reader.call("multiply", product, value)
        total = product if total is None else reader.call("add", total, product)
    assert total is not None
    return total


def _skewness(reader: AggregateReader) -> Expression:
    count, (m1, m2, m3), variance = _powers(reader, 3)
    call = reader.call
    third = _combine(reader, [(1, [m3]), (-3, [m2, m1]), (2, [m1, m1, m1])])
    ratio = call("divide", third, call("multiply", variance, call("sqrt", variance)))

    def value(n: Expression) -> Expression:
        if reader.is_spark:
            return ratio
        pairs = call("multiply", n, _minus(reader, n, 1))
        return call("multiply", ratio, call("divide", call("sqrt", pairs), _minus(reader, n, 2)))

    return _over(reader, 1 if reader.is_spark else 3, count, value)


def _kurtosis(population: bool) -> Read:
    def read(reader: AggregateReader) -> Expression:
        count, (m1, m2, m3, m4), variance = _powers(reader, 4)
        call = reader.call
        fourth = _combine(
            reader, [(1, [m4]), (-4, [m3, m1]), (6, [m2, m1, m1]), (-3, [m1, m1, m1, m1])]
        )
        ratio = call("divide", fourth, call("multiply", variance, variance))

        def value(n: Expression) -> Expression:
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

        least = 1 if reader.is_spark else 2 if population else 4
        return _over(reader, least, count, value)

    return read


def _geometric_mean(reader: AggregateReader) -> Expression:
    logarithm = reader.call("ln", reader.number(reader.value(0)))
    mean = reader.term("avg", reader.where(logarithm), distinct=reader.distinct)
    return reader.call("exp", mean)


def _product(reader: AggregateReader) -> Expression:
    value = reader.where(reader.number(reader.value(0)))
    return reader.term("product", value, distinct=reader.distinct)


def _reversed(order: tuple[SortKey, ...]) -> tuple[SortKey, ...]:
    return tuple(
        replace(key, descending=not key.descending, nulls_first=not key.nulls_first)
        for key in order
    )


def _first(is_last: bool, ignores_nulls: bool) -> Read:
    def read(reader: AggregateReader) -> Expression:
        value = reader.value(0)
        ignored = (ignores_nulls and reader.nulls != "respect") or reader.nulls == "ignore"
        if reader.count == 2:
            ignored = bool(reader.constant(1, "flag"))
        if reader.is_spark and isinstance(reader.function, exp.AnyValue):
            ignored = reader.nulls == "ignore" or (reader.count == 2 and ignored)
        order = reader.order or (SortKey(value, False, False),)
        order = _reversed(order) if is_last else order
        # Without an order, a value is preferred to NULL.
        if not reader.order:
            order = tuple(replace(key, nulls_first=False) for key in order)
        required = reader.required(*((value,) if ignored else ()))
        return reader.term("first", value, *required, order=order)

    return read


def _best(is_max: bool) -> Read:
    def read(reader: AggregateReader) -> Expression:
        value, by = reader.value(0), reader.value(1)
        required = reader.required(by) if reader.is_spark else reader.required(by, value)
        if reader.count == 3:
            count = reader.constant(2, "count")
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise reader.source.error(
                    reader.function, f"the count of {reader.name}() is a whole number from 1 on"
                )
            _check_lists(reader, value)
            order = (SortKey(by, is_max, False),)
            values = reader.term("list", value, *required, distinct=reader.distinct, order=order)
            return reader.call("list_slice", values, integer_literal(1), integer_literal(count))
        return reader.term("first", value, *required, order=(SortKey(by, is_max, False),))

    return read


def _mode(reader: AggregateReader) -> Expression:
    value = reader.order[0].expression if reader.within_group else reader.value(0)
    if reader.within_group and reader.order[0].descending:
        raise reader.source.unsupported(
            reader.function,
            "mode() WITHIN GROUP (ORDER BY ... DESC)",
            "leave DESC out; of values that are equally frequent, the least is returned",
        )
    return reader.term("mode", reader.where(value))


def _quantile(kind: str) -> Read:
    def read(reader: AggregateReader) -> Expression:
        descending = False
        fraction: list[float] | float
        if reader.within_group:
            if len(reader.order) != 1 or reader.count != 1:
                raise reader.source.error(
                    reader.function, f"{reader.name}(fraction) WITHIN GROUP (ORDER BY one value)"
                )
            value, descending = reader.order[0].expression, reader.order[0].descending
            fraction = reader.fractions(0)
        else:
            value = reader.value(0)
            if reader.count == 1:
                if kind != "median":
                    raise reader.source.error(
                        reader.function, f"{reader.name}() needs a fraction from 0 to 1"
                    )
                fraction = 0.5
            else:
                fraction = reader.fractions(1)
            if reader.count == 3:
                reader.constant(2, "accuracy")
        continuous = kind in ("cont", "median") or (kind == "default" and reader.is_spark)
        function = "quantile_disc"
        if continuous:
            function, value = _interpolated(reader, value)
        elif reader.is_spark and kind == "disc" and reader.within_group:
            value = reader.number(value)
        masked = reader.where(value)
        order = (SortKey(masked, descending, False),)

        def term(option: float) -> Expression:
            return reader.term(
                function, masked, distinct=reader.distinct, order=order, options=(option,)
            )

        if not isinstance(fraction, list):
            return term(fraction)
        values = [term(option) for option in fraction]
        if not values:
            raise reader.source.error(reader.function, f"{reader.name}() needs a fraction")
        missing = reader.call("is_null", values[0])
        return reader.call("case", missing, NULL, reader.call("make_list", *values))

    return read


def _interpolated(reader: AggregateReader, value: Expression) -> tuple[str, Expression]:
    """Return the function that interpolates between values of this type, and the value for it."""
    type_ = value.type.value_type if pa.types.is_dictionary(value.type) else value.type
    if pa.types.is_date(type_) and not reader.is_spark:
        return "quantile_cont", reader.clause.call(
            reader.function, "cast", value, type=pa.timestamp("us")
        )
    if pa.types.is_temporal(type_) or (pa.types.is_float32(type_) and not reader.is_spark):
        return "quantile_cont", value
    if pa.types.is_decimal(type_) and type_.precision <= 18 and not reader.is_spark:
        return "quantile_cont", value
    if (pa.types.is_string(type_) or pa.types.is_large_string(type_)) and not reader.is_spark:
        return "quantile_disc", value
    return "quantile_cont", reader.number(value)


def _string_agg(reader: AggregateReader) -> Expression:
    value = reader.value(0)
    separator = "" if reader.is_spark else ","
    if reader.count > 1:
        separator = reader.constant(1, "separator")
        if separator is None:
            if not reader.is_spark:
                return Literal(None, pa.string())
            separator = ""
        if not isinstance(separator, str):
            raise reader.source.error(
                reader.function, f"the separator of {reader.name}() is a text"
            )
    reader.check_distinct_order(value)
    text = _as_text(reader, value)
    masked = reader.where(text)
    order = tuple(
        replace(key, expression=masked) if key.expression == text else key
        for key in reader.order or (SortKey(masked, False, False),)
    )
    return reader.term(
        "string_agg", masked, distinct=reader.distinct, order=order, options=(separator,)
    )


def _as_text(reader: AggregateReader, value: Expression) -> Expression:
    if pa.types.is_string(value.type):
        return value
    value = spark_text(reader.clause, reader.function, value)
    if pa.types.is_string(value.type):
        return value
    return reader.clause.call(reader.function, "cast", value, type=pa.string())


def _list(reader: AggregateReader) -> Expression:
    value = reader.value(0)
    leaves_nulls_out = bool(reader.function.args.get("nulls_excluded")) and reader.is_spark
    reader.check_distinct_order(value)
    _check_lists(reader, value)
    required = reader.required(*((value,) if leaves_nulls_out else ()))
    order = reader.order or (SortKey(value, False, False),)
    return _never_null_in_spark(
        reader, reader.term("list", value, *required, distinct=reader.distinct, order=order)
    )


def _never_null_in_spark(reader: AggregateReader, value: Expression) -> Expression:
    """Return a list of no values as Spark does: empty; in DuckDB it is NULL."""
    if not reader.is_spark:
        return value
    empty = reader.clause.call(reader.function, "make_list")
    empty = reader.clause.call(reader.function, "cast", empty, type=value.type)
    return reader.clause.call(reader.function, "coalesce", value, empty)


def _check_lists(reader: AggregateReader, value: Expression) -> None:
    """Refuse a list, if no column can have its type."""
    try:
        Codecs().codec(pa.list_(value.type))
    except SchemaError:
        raise reader.source.unsupported(
            reader.function, f"{reader.name}(), a list", "use string_agg()", reader.name
        ) from None


def _histogram(reader: AggregateReader) -> Expression:
    """Return a map from each value to the number of its rows."""
    value = reader.value(0)
    _check_lists(reader, value)
    order = (SortKey(value, False, False),)
    values = reader.term(
        "list", value, *reader.required(value), distinct=reader.distinct, order=order
    )
    return reader.call("sorted_list_histogram", values)


def _set(reader: AggregateReader) -> Expression:
    value = reader.value(0)
    _check_lists(reader, value)
    values = reader.term(
        "list",
        value,
        *reader.required(value),
        distinct=True,
        order=(SortKey(value, False, False),),
    )
    return _never_null_in_spark(reader, values)


def _bitmap(function: str) -> Read:
    """Read an aggregate of Spark's bitmaps, as a function of the list of distinct values."""

    def read(reader: AggregateReader) -> Expression:
        return reader.call(function, _set(reader))

    return read


#: The functions by name; `circuits.sql.aggregate_names` has their synonyms.
DEFINITIONS: Final[Mapping[str, _Definition]] = MappingProxyType(
    {
        "any_value": _Definition(_first(False, True), (1, 2), ordered=True, nulls=True),
        "approx_count_distinct": _Definition(_read_approx_distinct, (1, 2)),
        "approx_quantile": _Definition(_quantile("disc"), (2, 3)),
        "array_agg": _Definition(_list, ordered=True),
        "avg": _Definition(_average),
        "bit_and": _Definition(_simple("bit_and")),
        "bit_or": _Definition(_simple("bit_or")),
        "bit_xor": _Definition(_simple("bit_xor")),
        "bitmap_and_agg": _Definition(_bitmap("bitmap_and"), distinct=False),
        "bitmap_construct_agg": _Definition(_bitmap("bitmap_of_positions"), distinct=False),
        "bitmap_or_agg": _Definition(_bitmap("bitmap_or"), distinct=False),
        "bool_and": _Definition(_read_bool(True)),
        "bool_or": _Definition(_read_bool(False)),
        "collect_set": _Definition(_set),
        "corr": _Definition(_correlation, (2, 2), distinct=False),
        "count": _Definition(_read_count, (0, None)),
        "count_if": _Definition(_read_count_if),
        "covar_pop": _Definition(lambda reader: _covariance(reader, 0), (2, 2), distinct=False),
        "covar_samp": _Definition(lambda reader: _covariance(reader, 1), (2, 2), distinct=False),
        "first": _Definition(_first(False, False), (1, 2), ordered=True, nulls=True),
        "fsum": _Definition(_float_sum),
        "geometric_mean": _Definition(_geometric_mean),
        "histogram": _Definition(_histogram),
        "kurtosis": _Definition(_kurtosis(False), distinct=False),
        "kurtosis_pop": _Definition(_kurtosis(True), distinct=False),
        "last": _Definition(_first(True, False), (1, 2), ordered=True, nulls=True),
        "max": _Definition(_simple("max")),
        "max_by": _Definition(_best(True), (2, 3)),
        "median": _Definition(_quantile("median")),
        "min": _Definition(_simple("min")),
        "min_by": _Definition(_best(False), (2, 3)),
        "mode": _Definition(_mode, distinct=False, ordered_set=True),
        "product": _Definition(_product),
        "quantile": _Definition(_quantile("default"), (1, 2), ordered_set=True),
        "quantile_cont": _Definition(_quantile("cont"), (1, 2), ordered_set=True),
        "quantile_disc": _Definition(_quantile("disc"), (1, 2), ordered_set=True),
        "regr_avgx": _Definition(_of_pairs(lambda p: p.mean(p.x)), (2, 2), distinct=False),
        "regr_avgy": _Definition(_of_pairs(lambda p: p.mean(p.y)), (2, 2), distinct=False),
        "regr_count": _Definition(_of_pairs(lambda p: p.count), (2, 2), distinct=False),
        "regr_intercept": _Definition(_intercept, (2, 2), distinct=False),
        "regr_r2": _Definition(_determination, (2, 2), distinct=False),
        "regr_slope": _Definition(_slope, (2, 2), distinct=False),
        "regr_sxx": _Definition(_of_pairs(lambda p: p.sxx), (2, 2), distinct=False),
        "regr_sxy": _Definition(_of_pairs(lambda p: p.sxy), (2, 2), distinct=False),
        "regr_syy": _Definition(_of_pairs(lambda p: p.syy), (2, 2), distinct=False),
        "sem": _Definition(_standard_error),
        "skewness": _Definition(_skewness, distinct=False),
        "stddev_pop": _Definition(lambda r: r.call("sqrt", _variance(r, 0))),
        "stddev_samp": _Definition(lambda r: r.call("sqrt", _variance(r, 1))),
        "string_agg": _Definition(_string_agg, (1, 2), ordered=True),
        "sum": _Definition(_sum),
        "try_sum": _Definition(_try_sum),
        "var_pop": _Definition(lambda reader: _variance(reader, 0)),
        "var_samp": _Definition(lambda reader: _variance(reader, 1)),
    }
)
