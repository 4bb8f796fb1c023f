"""The reader of a call of an aggregate function: its arguments, its order, its FILTER.

Each definition (`circuits.sql.aggregation.aggregate_calls`) gets an `AggregateReader`, which
registers primitive aggregates (`PrimitiveAggregate`): of the groups of a query, or of the frames of
a window. ``FILTER (WHERE c)`` is ``CASE WHEN c THEN argument END``, since aggregates leave NULL
out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from difflib import get_close_matches
from typing import Any, Final

import pyarrow as pa
from sqlglot import exp

from circuits.plan.expressions import Call, Expression, Literal
from circuits.sql.binding.aggregate_names import AGGREGATE_CLASSES, AGGREGATE_NAMES, AGGREGATE_WORDS
from circuits.sql.binding.clause import AGGREGATES_FLOATS, Clause
from circuits.sql.binding.interval_keys import normalize_interval
from circuits.sql.binding.ordering import SortKey, read_argument_order
from circuits.sql.expressions.literals import NULL, integer_literal
from circuits.types import functions

__all__ = [
    "CALL_WRAPPERS",
    "FLOAT",
    "AggregateDefinition",
    "AggregateReader",
    "PrimitiveAggregate",
    "Read",
    "Register",
]


FLOAT: Final = pa.float64()

# The names under which sqlglot keeps the arguments of a call, in their order.
_ARGUMENT_NAMES: Final = ("this", "expression", "quantile", "separator", "expressions")

#: The nodes that sqlglot puts around a call for the words after it.
CALL_WRAPPERS: Final = exp.Filter | exp.WithinGroup | exp.IgnoreNulls | exp.RespectNulls

_WINDOW_FUNCTIONS: Final = (
    *(exp.RowNumber, exp.Rank, exp.DenseRank, exp.PercentRank, exp.CumeDist, exp.Ntile),
    *(exp.Lag, exp.Lead, exp.NthValue),
)


@dataclass(frozen=True)
class PrimitiveAggregate:
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

    def map(self, change: Callable[[Expression], Expression]) -> PrimitiveAggregate:
        """Return the aggregate over other expressions."""
        return replace(
            self,
            arguments=tuple(map(change, self.arguments)),
            order=tuple(key.map(change) for key in self.order),
        )


Register = Callable[[PrimitiveAggregate], Expression]


class AggregateReader:
    """The parts of one call.

    Attributes:
        clause: The clause of its arguments, its order and its FILTER.
        node: The call, with the words after it.
        function: The call without the words after it.
        name: The name of the function as it is in the text.
        definition: The definition of the function.
        distinct: True with DISTINCT.
        order: The ORDER BY in the call, or the one of WITHIN GROUP.
        within_group: True with WITHIN GROUP.
        nulls: "ignore" or "respect", with IGNORE NULLS or RESPECT NULLS; else empty.
        window_order: The ORDER BY of the window, if the call has an OVER.
    """

    def __init__(
        self,
        clause: Clause,
        node: exp.Expr,
        register: Register,
        definitions: Mapping[str, AggregateDefinition],
        window_order: tuple[SortKey, ...] = (),
    ) -> None:
        self.clause = clause
        self.source = clause.source
        self.node = node
        self._register = register
        self._definitions = definitions
        self.distinct = False
        self.order: tuple[SortKey, ...] = ()
        self.within_group = False
        self.nulls: str = ""
        self.window_order = window_order
        self._condition: Expression | None = None
        self.function = self._unwrap(node)
        self.name = self.source.name_in_text(self.function)
        self.definition = self._find_definition()
        self._nodes = self._read_argument_nodes()
        self._check()

    def _unwrap(self, node: exp.Expr) -> exp.Expr:
        """Read the words after a call; return the call."""
        source = self.source
        while isinstance(node, CALL_WRAPPERS):
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

    def _find_definition(self) -> AggregateDefinition:
        node = self.function
        if isinstance(node, exp.Anonymous):
            name = AGGREGATE_NAMES.get(node.name.lower(), "")
        else:
            name = AGGREGATE_CLASSES.get(type(node), "")
        definition = self._definitions.get(name)
        is_window_function = isinstance(node, _WINDOW_FUNCTIONS) or (
            isinstance(node, exp.FirstValue | exp.LastValue)
            and not self.source.is_spark
            # RisingWave's last_value(a ORDER BY b) is an aggregate.
            and not isinstance(node.this, exp.Order)
        )
        if is_window_function and not isinstance(self.node.parent, exp.Window):
            raise self.source.error(
                node, f"{self.name}() needs a window; write {self.name}(...) OVER (...)"
            )
        if definition is None:
            similar = get_close_matches(self.name.lower(), sorted(AGGREGATE_WORDS), n=3)
            known = ", ".join(sorted(self._definitions))
            advice = f"did you mean {' or '.join(similar)}?" if similar else f"there are: {known}"
            raise self.source.unsupported(node, f"aggregate {self.name}()", advice, self.name)
        return definition

    def _read_argument_nodes(self) -> list[exp.Expr]:
        """Return the arguments of the call, without DISTINCT and ORDER BY."""
        node, source = self.function, self.source
        names: tuple[str, ...] = _ARGUMENT_NAMES
        if isinstance(node, exp.ArgMax | exp.ArgMin | exp.Max | exp.Min):
            names = (*names, "count")
        # These have no effect on an exact result.
        options = ("big_int", "nulls_excluded", "accuracy", "error_tolerance")
        source.allow_arguments(node, *names, *options)
        pending: list[exp.Expr] = []
        for name in ("expressions",) if isinstance(node, exp.Anonymous) else names:
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
        self.order = read_argument_order(self.source, node, self.clause.read)

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
        if self.within_group and not (definition.ordered_set or definition.takes_within_group):
            raise source.unsupported(
                self.function, f"WITHIN GROUP of {self.name}()", "write its column in the brackets"
            )
        if self.nulls and not definition.nulls:
            words = f"{self.nulls.upper()} NULLS"
            raise source.unsupported(self.node, words, "they are left out anyway")

    @property
    def is_spark(self) -> bool:
        return self.source.is_spark

    @property
    def argument_count(self) -> int:
        """The number of arguments in the brackets."""
        return len(self._nodes)

    def argument_node(self, index: int) -> exp.Expr:
        """Return the syntax tree of an argument."""
        return self._nodes[index]

    def argument(self, index: int) -> Expression:
        """Return the value of an argument, without FILTER."""
        value = self.clause.read(self._nodes[index])
        if pa.types.is_floating(value.type):
            self.function.meta[AGGREGATES_FLOATS] = True
        return value

    def is_star(self, index: int) -> bool:
        """Return whether an argument is ``*``; if it is, record that it has been read."""
        if isinstance(self._nodes[index], exp.Star):
            self.source.refuse_arguments(self._nodes[index])
            return True
        return False

    def constant(self, index: int, description: str) -> Any:
        """Return the value of an argument that must be a constant."""
        value = self.argument(index)
        if not isinstance(value, Literal):
            raise self.source.unsupported(
                self._nodes[index],
                f"a {description} of {self.name}() that is not a constant",
                "write it out",
            )
        return value.value

    def fractions(self, index: int) -> list[float] | float:
        """Return an argument that is a constant from 0 to 1, or a list of such constants."""
        node = self._nodes[index]
        if not isinstance(node, exp.Array):
            self.constant(index, "fraction")  # raises an error if it is not a constant
            return self._check_fraction(node, self.argument(index))
        self.source.allow_arguments(node, "expressions", "bracket_notation", "value_constructor")
        return [self._check_fraction(part, self.clause.read(part)) for part in node.expressions]

    def _check_fraction(self, node: exp.Expr, expression: Expression) -> float:
        """Return the value of a constant from 0 to 1."""
        value = expression.value if isinstance(expression, Literal) else None
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

    def as_float(self, value: Expression) -> Expression:
        """Return a number as a float."""
        type_ = value.type
        value_type = type_.value_type if pa.types.is_dictionary(type_) else type_
        is_number = pa.types.is_integer(value_type) or pa.types.is_floating(value_type)
        if self.is_spark and pa.types.is_string(value_type):
            return self.cast(value, FLOAT)
        if not (is_number or pa.types.is_decimal(value_type) or pa.types.is_null(value_type)):
            raise self.source.error(
                self.function, f"{self.name}({type_}) does not exist; cast its argument to a number"
            )
        return value if type_ == FLOAT else self.cast(value, FLOAT)

    def apply_filter(self, value: Expression, *required: Expression) -> Expression:
        """Return a value where FILTER holds and no required value is NULL, else NULL."""
        conditions = [self.call("not", self.call("is_null", part)) for part in required]
        if self._condition is not None:
            conditions.insert(0, self._condition)
        if not conditions:
            return value
        return self.call("case", functions.conjunction(conditions), value, NULL)

    def filter_arguments(self, value: Expression, *required: Expression) -> tuple[Expression, ...]:
        """Return the arguments of a primitive aggregate of the rows that FILTER selects.

        A primitive aggregate leaves out the rows in which an argument after the first one is NULL.
        So it reads only rows in which none of ``required`` is NULL. `apply_filter` is simpler, but
        it leaves out the rows in which the value is NULL.
        """
        values = tuple(map(self._guard, (value, *required)))
        if self._condition is None:
            return values
        return (*values, self.apply_filter(integer_literal(1)))

    def _guard(self, value: Expression) -> Expression:
        """Return a value that is computed only where FILTER holds, since it may be an error."""
        return self.apply_filter(value) if isinstance(value, Call) else value

    def aggregate(
        self,
        function: str,
        *arguments: Expression,
        distinct: bool = False,
        order: tuple[SortKey, ...] = (),
        options: tuple[Any, ...] = (),
    ) -> Expression:
        """Return the value of a primitive aggregate.

        Args:
            function: Its name.
            arguments: Its arguments, with FILTER.
            distinct: True to read each combination of the arguments once.
            order: The order of the rows, without FILTER.
            options: Constants.
        """
        order = tuple(key if key.expression in arguments else key.map(self._guard) for key in order)
        if distinct or function == "mode":
            arguments = tuple(map(normalize_interval, arguments))
            order = tuple(key.map(normalize_interval) for key in order)
        if function.startswith("quantile"):
            for value in arguments:
                self.source.refuse_order(self.function, value.type, f"{self.name}()")
        with self.source.errors_at(self.function):
            type_ = functions.aggregate_type(function, *(value.type for value in arguments))
        return self._register(
            PrimitiveAggregate(function, arguments, type_, distinct, order, options)
        )

    def order_or(self, default: SortKey) -> tuple[SortKey, ...]:
        """Return the ORDER BY of the call; without one, that of its window and then a default."""
        if self.order:
            return self.order
        return (default,) if self.distinct else (*self.window_order, default)

    def check_distinct_order(self, *arguments: Expression) -> None:
        """Refuse DISTINCT with an order by other values than the arguments."""
        others = [key for key in self.order if key.expression not in arguments]
        if self.distinct and any(key.enum is not None for key in others):
            raise self.source.unsupported(
                self.function,
                f"DISTINCT in {self.name}() with ORDER BY of an ENUM",
                "aggregate the rows of a SELECT DISTINCT in FROM",
            )
        if self.distinct and others:
            raise self.source.error(
                self.function,
                f"{self.name}(DISTINCT ...) can only be ordered by its arguments",
            )


Read = Callable[[AggregateReader], Expression]


@dataclass(frozen=True)
class AggregateDefinition:
    """One function.

    Attributes:
        read: Returns its value.
        arguments: The least and the greatest number of arguments.
        distinct: True if it takes DISTINCT.
        takes_within_group: True if the order of its rows may be in ``WITHIN GROUP``.
        ordered_set: True if the values that it aggregates may be in ``WITHIN GROUP (ORDER BY x)``.
        nulls: True if it takes IGNORE NULLS and RESPECT NULLS.
    """

    read: Read
    arguments: tuple[int, int | None] = (1, 1)
    distinct: bool = True
    takes_within_group: bool = False
    ordered_set: bool = False
    nulls: bool = False
