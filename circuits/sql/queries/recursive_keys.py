"""USING KEY: a recursion that keeps the least or greatest value per key, as shortest paths do.

::

    WITH RECURSIVE path(node, cost) USING KEY (node, min(cost)) AS (
        SELECT 1, 0 UNION SELECT e.dst, p.cost + e.w FROM path p JOIN e ON e.src = p.node)

Each column is a key, except for one, which is in ``min`` or ``max``. In DuckDB, an iteration reads
the rows that the last one has added or improved. This package maintains the least fixpoint
(`circuits.plan.fixpoint.DistinctMode`). Both are equal if a better value only leads to better
values, where *better* is smaller for a minimum and larger for a maximum. So a value that is read
from the column of the minimum may

- be passed to this column, unchanged or in a monotone function: ``cost + w``, ``2 * cost``, and
  ``least(cost, w)`` for a minimum (``greatest`` is not monotone: it ignores NULL);
- be compared with a bound that every better value satisfies, too: ``cost < 10`` for a minimum.

Any other use raises an error. NULL is the worst value: a key without other values keeps it.

Reference: Ross, Sagiv. Monotonic aggregation in deductive databases. PODS 1992.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Final, Literal

from sqlglot import exp

from circuits.plan.expressions import Call, Column, Expression, columns_of, conjuncts
from circuits.plan.expressions import Literal as LiteralValue
from circuits.plan.fixpoint import DistinctMode
from circuits.plan.nodes import (
    CrossJoin,
    Distinct,
    Filter,
    Map,
    OuterJoin,
    PlanNode,
    RecursiveReference,
    Semijoin,
    Union,
)
from circuits.plan.unnest import Unnest
from circuits.sql.syntax.source import SqlSource
from circuits.types.arrow_types import NUMBERS, family_of
from circuits.types.codecs.codec import Codecs

__all__ = ["check_monotone", "read_mode"]

#: How a value changes as the values that it depends on get better: -1 falls, 1 rises, 0 is
#: constant; None is unknown.
Direction = int | None
BETTER_DIRECTION: Final = {"min": -1, "max": 1}
LIMITING_FUNCTIONS: Final = {-1: "least", 1: "greatest"}
#: Comparisons that stay true if the left side gets smaller; those that do if the right side does.
SMALLER_LEFT: Final = frozenset({"lt", "le"})
SMALLER_RIGHT: Final = frozenset({"gt", "ge"})
ADVICE: Final = "write USING KEY (k, min(v)) or (k, max(v)), with all columns but one as keys"


def read_mode(source: SqlSource, node: exp.CTE, names: Sequence[str]) -> DistinctMode | None:
    """Return which rows a recursion with USING KEY keeps; None without USING KEY.

    Args:
        source: The text.
        node: The WITH query.
        names: The names of its columns.

    Raises:
        SqlError: A key is not a column, or not every column is a key or has a minimum or maximum.
    """
    keys = node.args.get("key_expressions")
    if not keys:
        return None
    positions = {name.casefold(): index for index, name in enumerate(names)}
    unnamed = set(positions.values())  # the columns that USING KEY does not name
    mode: DistinctMode | None = None
    for key in keys:
        column = key.this if isinstance(key, exp.Min | exp.Max) else key
        if not isinstance(column, exp.Column) or column.table:
            raise source.unsupported(key, f"{source.describe(key)} in USING KEY", ADVICE)
        source.allow_arguments(column, "this")
        position = positions.get(column.name.casefold())
        if position is None:
            raise source.error(
                column, f"unknown column {column.name!r} in USING KEY; columns: {', '.join(names)}"
            )
        unnamed.discard(position)
        if column is key:
            continue
        source.allow_arguments(key, "this")
        if mode is not None:
            raise source.unsupported(key, "a second min or max in USING KEY", ADVICE)
        kind: Literal["min", "max"] = "min" if isinstance(key, exp.Min) else "max"
        mode = DistinctMode(kind, position, keeps_null=True)
    if mode is None or unnamed:
        missing = ", ".join(names[position] for position in sorted(unnamed))
        construct = f"USING KEY without {missing}" if unnamed else "USING KEY without min or max"
        raise source.unsupported(keys[0], construct, ADVICE)
    return mode


def check_monotone(
    source: SqlSource, node: exp.CTE, body: PlanNode, name: str, mode: DistinctMode
) -> None:
    """Refuse a recursion whose values have no order, or in which a better one may lead to a worse.

    Args:
        source: The text.
        node: The WITH query.
        body: The union of the base query and the steps.
        name: The name of the recursion.
        mode: The rows that it keeps.
    """
    assert mode.column is not None
    column = body.fields[mode.column].name
    if not Codecs().codec(body.fields[mode.column].type).ordered:
        raise source.unsupported(
            node.args["key_expressions"][-1],
            f"{mode.kind} of {column!r}, which has the type {body.fields[mode.column].type}, in "
            "USING KEY",
            "use a number, a date or a time",
        )
    better = BETTER_DIRECTION[mode.kind]
    reader = _DirectionReader(name, mode.column, better)
    directions = reader.read(body)
    allowed = [(0, better) if index == mode.column else (0,) for index in range(len(directions))]
    places = ["a condition"] if reader.has_other_condition else []
    places += [
        f"column {body.fields[index].name!r}"
        for index, direction in enumerate(directions)
        if direction not in allowed[index]
    ]
    if places:
        word = "smaller" if mode.kind == "min" else "larger"
        raise source.unsupported(
            node.args["key_expressions"][-1],
            f"{places[0]} of the recursion {name!r} that is not monotone in {column!r}",
            f"a {word} value would delete derived rows; pass {column!r} on by +, "
            f"{LIMITING_FUNCTIONS[better]} or times a constant, compare it with a bound that "
            f"every {word} value satisfies, or use it outside of the recursion",
        )


class _DirectionReader:
    """Computes how the columns of plans change as the values of a recursion get better.

    ``has_other_condition`` is set if rows may disappear when values get better.
    """

    def __init__(self, name: str, column: int, better: int) -> None:
        self.has_other_condition = False
        self._name = name
        self._column = column
        self._better = better
        self._directions: dict[int, tuple[Direction, ...]] = {}  # by the id of the plan node

    def read(self, plan: PlanNode) -> tuple[Direction, ...]:
        """Return the direction of each column; visits each node once."""
        if id(plan) not in self._directions:
            self._directions[id(plan)] = self._read(plan)
        return self._directions[id(plan)]

    def _read(self, plan: PlanNode) -> tuple[Direction, ...]:
        match plan:
            case RecursiveReference(name) if name == self._name:
                return tuple(
                    self._better if index == self._column else 0
                    for index in range(len(plan.fields))
                )
            case Map(child, expressions):
                below = self.read(child)
                return tuple(_direction(expression, below) for expression in expressions)
            case Filter(child, predicate):
                below = self.read(child)
                self._check(_stays_true(predicate, below))
                return below
            case Distinct(child):
                return self.read(child)
            case CrossJoin(inputs):
                return tuple(direction for child in inputs for direction in self.read(child))
            case Union(inputs):
                columns = zip(*(self.read(child) for child in inputs), strict=True)
                return tuple(_combine(column) for column in columns)
            case Semijoin(left, right, predicate) | OuterJoin(left, right, predicate):
                both = (*self.read(left), *self.read(right))
                self._check(_is_constant(predicate, both))
                return both[: len(plan.fields)]
            case Unnest(child):
                *others, unnested_list = self.read(child)
                self._check(unnested_list == 0)
                return (*others, *(0,) * (len(plan.fields) - len(others)))
        self._check(all(direction == 0 for child in plan.inputs for direction in self.read(child)))
        return (0,) * len(plan.fields)

    def _check(self, is_monotone: bool) -> None:
        self.has_other_condition = self.has_other_condition or not is_monotone


def _is_constant(expression: Expression, directions: Sequence[Direction]) -> bool:
    return all(directions[column] == 0 for column in columns_of(expression))


def _stays_true(predicate: Expression, directions: Sequence[Direction]) -> bool:
    """Return whether a condition that holds still holds after values got better."""
    for condition in conjuncts([predicate]):
        if _is_constant(condition, directions):
            continue
        match condition:
            case Call(function, (left, right)) if function in SMALLER_LEFT | SMALLER_RIGHT:
                smaller, larger = (left, right) if function in SMALLER_LEFT else (right, left)
                falls = _direction(smaller, directions) in (0, -1)
                if falls and _direction(larger, directions) in (0, 1):
                    continue
        return False
    return True


def _direction(expression: Expression, directions: Sequence[Direction]) -> Direction:
    if _is_constant(expression, directions):
        return 0
    match expression:
        case Column(index):
            return directions[index]
        case Call("cast", (argument,), target) if {
            family_of(argument.type),
            family_of(target),
        } <= NUMBERS:
            return _direction(argument, directions)
        case Call("negate", (argument,)):
            return _reverse(_direction(argument, directions))
        case Call("subtract", (left, right)):
            return _combine([_direction(left, directions), _reverse(_direction(right, directions))])
        case Call("add" | "least" | "greatest" as function, arguments):
            direction = _combine([_direction(argument, directions) for argument in arguments])
            # A sum follows its terms in either direction, least() only down, greatest() only up.
            is_monotone = function in ("add", LIMITING_FUNCTIONS.get(direction or 0))
            return direction if is_monotone else None
        case Call("multiply" | "divide", (argument, LiteralValue(value))):
            return _scale(_direction(argument, directions), value)
        case Call("multiply", (LiteralValue(value), argument)):
            return _scale(_direction(argument, directions), value)
    return None


def _reverse(direction: Direction) -> Direction:
    return None if direction is None else -direction


def _scale(direction: Direction, factor: object) -> Direction:
    """Return the direction of a value times, or divided by, a positive constant."""
    if isinstance(factor, bool) or not isinstance(factor, int | float | Decimal):
        return None
    return direction if factor > 0 else None


def _combine(directions: Sequence[Direction]) -> Direction:
    """Return the direction of a sum, or a union, of values with these directions."""
    changes = {direction for direction in directions if direction != 0}
    if not changes:
        return 0
    return changes.pop() if len(changes) == 1 else None
