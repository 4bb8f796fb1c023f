"""The current time: ``now()`` and its relatives, in comparisons and in the list of SELECT.

Each step has one time (`Circuit.prepare`). ``WHERE ts > now() - INTERVAL '1 hour'`` becomes a
`TemporalFilter`, which inserts and deletes rows as the time advances. The normal form is a
comparison whose one side is a non-decreasing function of ``now()`` and of nothing else, and whose
other side does not contain it (`circuits.plan.time_isolation` moves the rest there). BETWEEN and
``=`` are two comparisons. A condition in which OR, NOT or CASE contains comparisons is divided by
the truth value of its first comparison c::

    rows where f(c)  =  rows where c and f(TRUE)  +  rows where not c and f(FALSE)
                        + rows where c is NULL and f(NULL)

In an aggregate and its FILTER, each comparison is divided in the same way, and its truth value is a
column (`add_truth_columns`). So a group changes when the time passes the value of a row.

In the list of SELECT, ``now()`` is a value like others: the rows are joined with the time of the
step (`join_current_time`), so all of them change in every step. Conditions are in WHERE, ON, HAVING
and QUALIFY; in other clauses, and in the window functions of QUALIFY, ``now()`` is refused.
The time of day (``current_time``) decreases at midnight, so it is refused in comparisons.

While a condition is read, the time is the column ``NOW_COLUMN``, so that functions apply to it as
to any other value. Times are in UTC. Compared with a timestamp without a time zone, ``now()`` is
the time in UTC without a time zone. Compared with a number, Materialize's ``mz_now()`` is the
number of milliseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final, TypeGuard

import pyarrow as pa
from sqlglot import exp

from circuits.errors import SqlError, UnsupportedSqlError
from circuits.plan.expressions import (
    Call,
    Column,
    Expression,
    Literal,
    columns_of,
    conjuncts,
    substitute,
)
from circuits.plan.monotone_functions import adds_months_to_times, monotone_argument
from circuits.plan.nodes import Filter, Map, PlanNode, TemporalFilter, Union, columns
from circuits.plan.temporal_filter import TemporalComparison
from circuits.plan.time_isolation import FLIPPED_COMPARISONS, isolate_time
from circuits.sql.binding.clause import NOW_ADVICE, Clause, Reader, now_error
from circuits.sql.binding.scope import NOW_COLUMN, is_correlated
from circuits.sql.binding.select_builder import SelectBuilder
from circuits.sql.syntax.source import SqlSource
from circuits.types import functions
from circuits.types.arrow_types import Family, family_of

__all__ = [
    "READERS",
    "READERS_BY_NAME",
    "add_temporal_filter",
    "add_truth_columns",
    "filter_by_time",
    "is_local_timestamp",
    "join_current_time",
    "read_timed_condition",
    "reads_now",
]

_UTC_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
_NAIVE_TIMESTAMP: Final = pa.timestamp("us")
_TRUE: Final = Literal(True, pa.bool_())
#: Comparisons that are two others, and how these are connected.
_PAIRS: Final = {"eq": ("and", ("le", "ge")), "ne": ("or", ("lt", "gt"))}
_NEGATED: Final = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt"}
_COMPARISONS: Final[dict[str, TemporalComparison]] = {
    "lt": "lt",
    "le": "le",
    "gt": "gt",
    "ge": "ge",
}
_NOW_NAMES: Final = ("now", "transaction_timestamp", "get_current_timestamp", "mz_now")
_FAMILIES: Final = (Family.TIMESTAMP, Family.DATE, Family.INTEGER, Family.FLOAT)
#: A condition is divided once for each of its comparisons with the current time.
MAX_COMPARISONS: Final = 6
_ADVICE: Final = (
    "compare it with an expression that does not contain it, as in "
    "WHERE ts > now() - INTERVAL '1 hour'"
)


def is_local_timestamp(node: exp.Expr) -> bool:
    """Return whether a node is LOCALTIMESTAMP, unless there is a column of that name."""
    if not isinstance(node, exp.Column) or node.table or node.this.args.get("quoted"):
        return False
    return node.name.casefold() == "localtimestamp"


def reads_now(condition: exp.Expr) -> bool:
    """Return whether a condition contains the current time, outside of subqueries."""
    return _find_now(condition) is not None


def _find_now(condition: exp.Expr) -> exp.Expr | None:
    """Return the first node that is the current time, outside of subqueries."""
    for part in condition.walk(prune=lambda part: isinstance(part, exp.Query)):
        if (
            isinstance(part, tuple(READERS))
            or is_local_timestamp(part)
            or (isinstance(part, exp.Anonymous) and part.name.lower() in READERS_BY_NAME)
            or _is_unix_time(part)
        ):
            return part
    return None


def _is_unix_time(node: exp.Expr) -> bool:
    """Return whether a node is ``unix_timestamp()`` of the current time, as in Spark."""
    return (
        isinstance(node, exp.Anonymous)
        and node.name.lower() == "unix_timestamp"
        and not node.expressions
    )


def add_temporal_filter(builder: SelectBuilder, node: exp.Expr, name: str) -> None:
    """Keep the rows for which a condition with ``now()`` is true, at the time of each step.

    Args:
        builder: The plan to restrict.
        node: The condition.
        name: The name of the clause, for errors.

    Raises:
        UnsupportedSqlError: The condition has no comparison as described above.
    """
    condition = read_timed_condition(
        lambda read_now: builder.clause(name, read_now=read_now).read_condition(node)
    )
    for part in conjuncts([condition]):
        if _reads_time(part):
            builder.plan = filter_by_time(builder.source, node, builder.plan, part)
        else:
            builder.add_filter(node, part)


def read_timed_condition(read: Callable[[Reader], Expression]) -> Expression:
    """Return a condition in which the current time is a column.

    Args:
        read: Reads the condition with the reader of the current time that it gets.
    """
    # The other side may be a timestamp without a time zone, or next to mz_now() a number.
    readers = _time_reader(_UTC_TIMESTAMP), _time_reader(_NAIVE_TIMESTAMP), _read_milliseconds
    errors = []
    for reader in readers:
        try:
            return read(reader)
        except UnsupportedSqlError:
            raise
        except SqlError as error:
            errors.append(error)
    raise errors[0]


def join_current_time(clause: Clause, node: exp.Expr) -> Expression:
    """Return the current time as a value, with which the rows are joined like a scalar subquery."""
    instant = clause.read_scalar(clause, exp.CurrentTimestamp())
    if isinstance(node, exp.CurrentDate | exp.CurrentTime | exp.Localtime | exp.Localtimestamp):
        instant = clause.call(node, "cast", instant, type=_NAIVE_TIMESTAMP)
    if isinstance(node, exp.CurrentDate):
        return clause.call(node, "cast", instant, type=pa.date32())
    if isinstance(node, exp.CurrentTime | exp.Localtime):
        return clause.call(node, "cast", instant, type=pa.time64("us"))
    return instant


def filter_by_time(
    source: SqlSource, node: exp.Expr, plan: PlanNode, condition: Expression
) -> PlanNode:
    """Return the rows of a plan for which a condition of `read_timed_condition` is true.

    Args:
        source: The text, for errors.
        node: The condition or its clause, for errors.
        plan: The rows.
        condition: A condition in which the time is a column.

    Raises:
        UnsupportedSqlError: The condition is not divided into comparisons as described above, or
            has more than `MAX_COMPARISONS`.
    """
    if is_correlated(condition):
        raise source.unsupported(
            node,
            "a comparison of now() with a column of the enclosing query",
            "put it in the WHERE of the enclosing query",
        )
    count = sum(2 if part.function in _PAIRS else 1 for part in _comparisons(condition))
    if count > MAX_COMPARISONS:
        raise source.unsupported(
            node,
            f"a condition with {count} comparisons with now(), more than {MAX_COMPARISONS},",
            "divide a OR b: select the rows where a, and those where (a) IS NOT TRUE AND b, with "
            "UNION ALL between them; = and BETWEEN are two comparisons",
        )
    return _keep_true(source, node, plan, condition)


def add_truth_columns(builder: SelectBuilder, node: exp.Expr, expression: Expression) -> Expression:
    """Replace the comparisons of an expression with the time by columns with their truth values.

    ::

        rows with TRUE where c  +  rows with FALSE where not c  +  rows with NULL where c is NULL

    Args:
        builder: The plan of the rows; a column is added to it for each comparison c.
        node: The aggregate, for errors.
        expression: An expression in which the time is a column (`read_timed_condition`).

    Raises:
        UnsupportedSqlError: The time is also read outside of comparisons, or by one that
            `filter_by_time` refuses.
    """
    source = builder.source
    while (comparison := next(_comparisons(expression), None)) is not None:
        if comparison.function in _PAIRS:
            expression = _replace(expression, comparison, _pair_of_comparisons(comparison))
            continue
        truth = builder.truths_by_comparison.get(comparison)
        if truth is not None:
            expression = _replace(expression, comparison, truth)
            continue
        value, function, bound = _isolate(source, node, comparison)
        if is_correlated(value):
            raise source.correlated(
                node, "a comparison of now() with a column of the enclosing query in an aggregate"
            )
        rows = [
            (True, _compare(source, node, builder.plan, value, function, bound)),
            (False, _compare(source, node, builder.plan, value, _NEGATED[function], bound)),
            (None, Filter(builder.plan, functions.call("is_null", value))),
        ]
        names = (*(field.name for field in builder.plan.fields), "truth")
        truth = Column(builder.width, pa.bool_())
        builder.plan = Union(
            tuple(
                Map(plan, (*columns(plan), Literal(value_of_truth, pa.bool_())), names)
                for value_of_truth, plan in rows
            )
        )
        builder.truths_by_comparison[comparison] = truth
        expression = _replace(expression, comparison, truth)
    if _reads_time(expression):
        place = "an aggregate, outside of a comparison,"
        raise now_error(source, _find_now(node) or node, place)
    return expression


def _pair_of_comparisons(comparison: Call) -> Expression:
    """Return ``=`` or ``<>`` as two comparisons."""
    connective, names = _PAIRS[comparison.function]
    return functions.call(
        connective, *(functions.call(name, *comparison.arguments) for name in names)
    )


def _keep_true(
    source: SqlSource, node: exp.Expr, plan: PlanNode, condition: Expression
) -> PlanNode:
    """Filter the rows by each conjunct of a condition, first by those without the time."""
    parts = list(conjuncts([condition]))
    for part in sorted(parts, key=_reads_time):
        if not _reads_time(part):
            plan = plan if part == _TRUE else Filter(plan, part)
        elif _is_comparison(part) and part in _comparisons(part):
            plan = _compare(source, node, plan, *_isolate(source, node, part))
        else:
            plan = _divide(source, node, plan, part)
    return plan


def _divide(source: SqlSource, node: exp.Expr, plan: PlanNode, condition: Expression) -> PlanNode:
    """Return the rows for which a condition is true, divided by its first comparison."""
    comparison = next(_comparisons(condition), None)
    if comparison is None:
        raise source.unsupported(node, "now() in such a condition", _ADVICE)
    if comparison.function in _PAIRS:
        pair = _pair_of_comparisons(comparison)
        return _keep_true(source, node, plan, _replace(condition, comparison, pair))
    value, function, bound = _isolate(source, node, comparison)
    alternatives: list[PlanNode] = []
    for truth, selection in ((True, function), (False, _NEGATED[function]), (None, None)):
        remaining = _replace(condition, comparison, Literal(truth, pa.bool_()))
        if any(isinstance(p, Literal) and not p.value for p in conjuncts([remaining])):
            continue
        if selection is None:
            rows: PlanNode = Filter(plan, functions.call("is_null", value))
        else:
            rows = _compare(source, node, plan, value, selection, bound)
        alternatives.append(_keep_true(source, node, rows, remaining))
    if not alternatives:
        return Filter(plan, Literal(False, pa.bool_()))
    return alternatives[0] if len(alternatives) == 1 else Union(tuple(alternatives))


def _compare(
    source: SqlSource,
    node: exp.Expr,
    plan: PlanNode,
    value: Expression,
    function: str,
    bound: Expression,
) -> PlanNode:
    """Return the rows for which a comparison with the current time is true."""
    if adds_months_to_times(bound):
        raise source.unsupported(
            node,
            "now() plus or minus months",
            "the sum can decrease at the end of a month: truncate first, as in "
            "date_trunc('day', now()) - INTERVAL '1 month', or use days",
        )
    if monotone_argument(bound) is None:
        raise source.unsupported(
            node, "a function of now() that can decrease, or that reads other values,", _ADVICE
        )
    if family_of(value.type) not in _FAMILIES:
        raise source.unsupported(
            node, f"a comparison of now() with a value of type {value.type}", _ADVICE
        )
    if value.type != bound.type:
        value = functions.call("cast", value, type=bound.type)
    # In a TemporalFilter, the time is column 0 of the bound.
    bound = substitute(bound, lambda column: Column(0, column.type))
    return TemporalFilter(plan, value, _COMPARISONS[function], bound)


def _isolate(
    source: SqlSource, node: exp.Expr, comparison: Call
) -> tuple[Expression, str, Expression]:
    """Return the value, the comparison and the side with the current time, which is the right."""
    function, (value, bound) = comparison.function, comparison.arguments
    if _reads_time(value):  # move it to the right
        function, value, bound = FLIPPED_COMPARISONS[function], bound, value
    if _reads_time(value):
        raise source.unsupported(node, "now() on both sides of a comparison", _ADVICE)
    return isolate_time(value, function, bound, _reads_time)


def _reads_time(expression: Expression) -> bool:
    return NOW_COLUMN in columns_of(expression)


def _is_comparison(expression: Expression) -> TypeGuard[Call]:
    return isinstance(expression, Call) and expression.function in _COMPARISONS


def _comparisons(expression: Expression) -> Iterator[Call]:
    """Yield the comparisons with the current time that contain no other one.

    In ``(ts > now()) = (x = 1)`` this is ``ts > now()``.
    """
    if not isinstance(expression, Call) or not _reads_time(expression):
        return
    inner = [part for argument in expression.arguments for part in _comparisons(argument)]
    if not inner and (_is_comparison(expression) or expression.function in _PAIRS):
        yield expression
    yield from inner


def _replace(condition: Expression, part: Expression, value: Expression) -> Expression:
    """Return a condition with a value instead of one of its parts; AND, OR and NOT are folded."""
    if condition == part:
        return value
    if not isinstance(condition, Call):
        return condition
    arguments = [_replace(argument, part, value) for argument in condition.arguments]
    if condition.function in ("and", "or"):
        decisive = Literal(condition.function == "or", pa.bool_())
        if decisive in arguments:
            return decisive
        neutral = Literal(condition.function == "and", pa.bool_())
        arguments = [argument for argument in arguments if argument != neutral] or [neutral]
        if len(arguments) == 1:
            return arguments[0]
    if condition.function == "not" and isinstance(arguments[0], Literal):
        truth = arguments[0].value
        return Literal(None if truth is None else not truth, pa.bool_())
    return replace(condition, arguments=tuple(arguments))


def _time_reader(type: pa.DataType) -> Reader:
    """Return the reader of the current time, as a timestamp of a type."""

    def read(clause: Clause, node: exp.Expr) -> Expression:
        if isinstance(node, exp.CurrentDate):
            local = Column(NOW_COLUMN, _NAIVE_TIMESTAMP)
            return clause.call(node, "cast", local, type=pa.date32())
        if isinstance(node, exp.Localtimestamp):
            return Column(NOW_COLUMN, _NAIVE_TIMESTAMP)
        return Column(NOW_COLUMN, type)

    return read


def _read_milliseconds(clause: Clause, node: exp.Expr) -> Expression:
    """Read ``mz_now()`` as the number of milliseconds that it is in Materialize."""
    now = Column(NOW_COLUMN, _UTC_TIMESTAMP)
    if isinstance(node, exp.Anonymous) and node.name.lower() == "mz_now":
        return clause.call(node, "epoch_millisecond", now)
    return now


def _read_time_of_day(clause: Clause, node: exp.Expr) -> Expression:
    """Read ``current_time`` or ``localtime``, in the list of SELECT without digits."""
    if clause.read_now is join_current_time and node.this is None:
        clause.source.mark_read(node)
        return clause.read_now(clause, node)
    raise clause.source.unsupported(node, clause.source.name_in_text(node), NOW_ADVICE)


def _read_now(clause: Clause, node: exp.Expr) -> Expression:
    clause.source.allow_arguments(node, *(("this",) if isinstance(node, exp.Anonymous) else ()))
    return clause.read_now(clause, node)


READERS: Final[dict[type[exp.Expr], Callable[[Clause, exp.Expr], Expression]]] = {
    exp.CurrentDate: _read_now,
    exp.CurrentTime: _read_time_of_day,
    exp.CurrentTimestamp: _read_now,
    exp.Localtime: _read_time_of_day,
    exp.Localtimestamp: _read_now,
}
READERS_BY_NAME: Final[dict[str, Reader]] = dict.fromkeys(_NOW_NAMES, _read_now)
