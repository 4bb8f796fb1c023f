"""Window functions in GROUP BY or in the list, and the bounds of their windows in other clauses.

::

    GROUP BY TUMBLE(ts, size [, offset])          TUMBLE_START(...), TUMBLE_END(...), TUMBLE_ROWTIME
    GROUP BY HOP(ts, slide, size [, offset])      HOP_START(...), ...
    GROUP BY SESSION(ts, gap)                     SESSION_START(...), ...
    GROUP BY window(ts, size [, slide [, offset]])    window.start, window.end
    GROUP BY session_window(ts, gap)              session_window.start, session_window.end
    GROUP BY session_window(ts, CASE ... END)     each row has a gap of its own
    SELECT window(ts, size [, slide [, offset]])  in a SELECT without groups
    SELECT session_window(ts, gap)                the same: each row has a window of its own

The rows of WHERE get the columns of the window (`circuits.sql.queries.window_columns`). The start
is a key of the groups. All other keys of the groups are also keys of the sessions. The end of a
session is the greatest time of the group, plus the gap. In the syntax tree, these columns replace
the calls. In dialect spark a date or a text is read as a timestamp.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyarrow import types as arrow
from sqlglot import exp

from circuits.plan.expressions import Expression, Literal
from circuits.sql.aggregation.grouping import is_grouped
from circuits.sql.binding.clause import Clause
from circuits.sql.binding.scope import ScopeColumn, is_correlated
from circuits.sql.binding.select_builder import SelectBuilder
from circuits.sql.expressions.time_amounts import check_time, read_ticks, read_time
from circuits.sql.queries.window_columns import (
    dynamic_session,
    hopping,
    last_moment,
    session,
    starting_at,
    tumbling,
)
from circuits.sql.queries.window_tables import is_constant_length, row_end, session_end

__all__ = ["add_group_window"]

_WINDOWS: Final = {
    "tumble": ("size", "offset"),
    "hop": ("slide", "size", "offset"),
    "session": ("gap",),
    "window": ("size", "slide", "offset"),
    "session_window": ("gap",),
}
_BOUNDS: Final = {
    f"{kind}_{bound}": (kind, bound)
    for kind in ("tumble", "hop", "session")
    for bound in ("start", "end", "rowtime")
}
# A key of ``meta``. The value for a SELECT is the call of the window; for a column that replaces a
# call, it is True. A SELECT may be planned several times, but its calls are replaced only once.
_CALL: Final = "group_window"


def add_group_window(builder: SelectBuilder, select: exp.Select) -> None:
    """Add the columns of the window of a SELECT to its rows, if it has one.

    The window is in GROUP BY, or in the list of a SELECT without groups.
    """
    group = select.args.get("group")
    call = select.meta.get(_CALL)
    if call is None:
        calls = _find_windows(builder, select, group) if group else _find_in_list(select)
        if any(other != calls[0] for other in calls[1:]):
            raise builder.source.unsupported(
                calls[1], "a second window in one SELECT", "select twice, with a query in FROM"
            )
        call = calls[0] if calls else None
    if call is None:
        return
    if group is None:
        _check_without_groups(builder, select, call)
    kind = call.name.lower()
    clause = builder.clause("GROUP BY")
    arguments = _arguments(clause, call)
    if group is None and "gap" in arguments:
        arguments["size"] = arguments.pop("gap")
    if _CALL not in select.meta:
        select.meta[_CALL] = call.copy()
        _replace_calls(builder, select, call, arguments)
    time = read_time(clause, arguments["time"])

    def ticks(argument: str, *, may_be_negative: bool = False) -> int:
        node = arguments[argument]
        return read_ticks(clause, node, time.type, may_be_negative=may_be_negative)

    offset = ticks("offset", may_be_negative=True) if "offset" in arguments else 0
    if "gap" in arguments:
        assert group is not None
        nodes = [
            _resolve_alias(builder, _resolve_number(select, node)) for node in group.expressions
        ]
        keys = [clause.read(node) for node in nodes if _CALL not in node.meta]
        if any(map(is_correlated, keys)):
            raise builder.source.unsupported(group, "a correlated GROUP BY")
        if builder.correlated_conditions:  # they decide which rows are in a session
            raise builder.source.correlated(call, "a session of the rows of a correlated condition")
        keys = [key for key in keys if not isinstance(key, Literal)]
        keys = list(dict.fromkeys([*builder.domain_columns, *keys]))
        if is_constant_length(arguments["gap"]):
            window = session(builder.plan, time, keys, ticks("gap"), with_end=False)
        else:
            end = _read_row_end(clause, time, arguments)
            window = dynamic_session(builder.plan, time, end, keys)
    elif "slide" in arguments and ticks("slide") != ticks("size"):
        window = hopping(builder.plan, time, ticks("size"), ticks("slide"), offset)
    elif kind == "session_window":
        window = starting_at(builder.plan, time, ticks("size"))
    else:
        window = tumbling(builder.plan, time, ticks("size"), offset)
    builder.plan = window.plan
    values = {"start": window.start}
    if "gap" not in arguments:
        values |= {"end": window.end, "rowtime": last_moment(window.end)}
    builder.scope_columns += tuple(
        ScopeColumn(kind, name, value, is_shadowed=True) for name, value in values.items()
    )


def _find_windows(
    builder: SelectBuilder, select: exp.Select, group: exp.Group
) -> list[exp.Anonymous]:
    """Return the calls of window functions in GROUP BY."""
    calls: list[exp.Anonymous] = []
    for node in group.expressions:
        value = _resolve_alias(builder, _resolve_number(select, node))
        if isinstance(value, exp.Anonymous) and value.name.lower() in _WINDOWS:
            calls.append(value)
    return calls


def _find_in_list(select: exp.Select) -> list[exp.Anonymous]:
    """Return the calls of ``window`` and ``session_window`` in the list of a SELECT."""
    return [
        node
        for item in select.expressions
        for node in item.walk(prune=lambda part: isinstance(part, exp.Query))
        if isinstance(node, exp.Anonymous) and node.name.lower() in ("window", "session_window")
    ]


def _check_without_groups(builder: SelectBuilder, select: exp.Select, call: exp.Anonymous) -> None:
    """Refuse a window in the list of a SELECT whose rows are groups."""
    if is_grouped(select):
        raise builder.source.unsupported(
            call, f"{call.name}() beside an aggregate without GROUP BY", "write it in GROUP BY"
        )


def _resolve_number(select: exp.Select, node: exp.Expr) -> exp.Expr:
    """Return the item of the SELECT list that a number refers to; other nodes unchanged."""
    if isinstance(node, exp.Literal) and not node.is_string and node.this.isdigit():
        position = int(node.this) - 1
        if 0 <= position < len(select.expressions):
            item: exp.Expr = select.expressions[position].unalias()
            return item
    return node


def _resolve_alias(builder: SelectBuilder, node: exp.Expr) -> exp.Expr:
    """Return the item of the SELECT list that a name refers to; other nodes unchanged."""
    if not isinstance(node, exp.Column) or node.table or builder.find_own_value(node) is not None:
        return node
    return builder.aliases.get(node.name.casefold()) or node


def _arguments(clause: Clause, call: exp.Anonymous) -> dict[str, exp.Expr]:
    source = clause.source
    names = ("time", *_WINDOWS[call.name.lower()])
    least = 3 if call.name.lower() == "hop" else 2
    if not least <= len(call.expressions) <= len(names):
        raise source.error(call, f"{call.name}() takes the arguments {', '.join(names)}")
    arguments = dict(zip(names, call.expressions, strict=False))
    type_ = clause.read(call.expressions[0]).type
    if arrow.is_struct(type_):  # a window of windows: by the last moment of each
        arguments["time"] = exp.Anonymous(
            this="window_time", expressions=[call.expressions[0].copy()]
        )
    elif source.is_spark and (arrow.is_date(type_) or type_ == pa.string()):
        timestamp = exp.DataType.build("timestamp", dialect="spark")
        arguments["time"] = exp.Cast(this=call.expressions[0].copy(), to=timestamp)
    return arguments


def _read_row_end(clause: Clause, time: Expression, arguments: dict[str, exp.Expr]) -> Expression:
    """Return the time of a row plus its own gap."""
    gap = arguments["gap"]
    end_node = row_end(arguments["time"], gap)
    gap_type = clause.read(end_node.this.expression).type
    if arrow.is_integer(time.type) != arrow.is_integer(gap_type):
        raise clause.source.error(
            gap,
            f"a gap of type {gap_type} for a time of type {time.type}; the gap of a timestamp is "
            "an interval, as n * INTERVAL '1' SECOND",
        )
    end = clause.read(end_node)
    check_time(clause, gap, end.type)
    return end if end.type == time.type else clause.call(gap, "cast", end, type=time.type)


def _replace_calls(
    builder: SelectBuilder, select: exp.Select, call: exp.Anonymous, arguments: dict[str, exp.Expr]
) -> None:
    """Replace the window and the functions of its bounds by columns."""
    source, kind = builder.source, call.name.lower()
    group = select.args.get("group")
    for key in list(group.expressions) if group is not None else []:
        # A number or a name of the list stands for the call, which is replaced there.
        if key != call and _resolve_alias(builder, _resolve_number(select, key)) == call:
            source.mark_read(key)
            key.replace(call.copy())
    clauses = [*select.expressions, *map(select.args.get, ("group", "having", "order", "qualify"))]
    nodes = [
        node
        for clause in clauses
        if clause is not None
        for node in clause.walk(prune=lambda part: isinstance(part, exp.Query))
    ]
    for node in nodes:
        if isinstance(node, exp.Anonymous) and node == call:
            bound = "start"
            replaced_node: exp.Expr = node  # the call, or the whole of ``window(...).end``
            parent = node.parent
            if isinstance(parent, exp.Dot) and parent.expression.name.lower() in ("start", "end"):
                bound, replaced_node = parent.expression.name.lower(), parent
            elif node.find_ancestor(exp.Group, exp.Select) is select:
                _replace_by_struct(node, kind, arguments)
                continue
            _replace(replaced_node, kind, bound, arguments)
        elif isinstance(node, exp.Anonymous) and node.name.lower() in _BOUNDS:
            bound_kind, bound = _BOUNDS[node.name.lower()]
            if bound_kind != kind or node.expressions != call.expressions:
                raise source.error(
                    node, f"{node.name}() has other arguments than the window in GROUP BY"
                )
            _replace(node, kind, bound, arguments)
        elif isinstance(node, exp.Column) and node.table.lower() == kind and "gap" in arguments:
            if node.name.lower() == "end":  # session_window.end is an aggregate, not a column
                _replace(node, kind, "end", arguments)
        elif (
            isinstance(node, exp.Column)
            and not node.table
            and node.name.lower() == kind
            and kind in ("window", "session_window")
            and builder.find_own_value(node) is None
        ):
            _replace_by_struct(node, kind, arguments)


def _replace_by_struct(node: exp.Expr, kind: str, arguments: dict[str, exp.Expr]) -> None:
    """Replace the window as a value by the struct of its start and its end."""
    struct = exp.Struct()
    for bound in ("start", "end"):
        part = exp.PropertyEQ(this=exp.to_identifier(bound), expression=exp.null())
        struct.append("expressions", part)
    value: exp.Expr = struct
    if isinstance(node.parent, exp.Select) and node.arg_key == "expressions":
        value = exp.Alias(this=struct, alias=exp.to_identifier(kind))
    _copy_position(node, struct)
    node.replace(value)
    for part, bound in zip(struct.expressions, ("start", "end"), strict=True):
        _replace(part.expression, kind, bound, arguments)


def _replace(node: exp.Expr, kind: str, bound: str, arguments: dict[str, exp.Expr]) -> None:
    """Replace a node by a bound of the window: a column; the end of a session is an aggregate."""
    if "gap" in arguments and bound != "start":
        value = session_end(arguments["time"], arguments["gap"], bound == "rowtime")
        if isinstance(node.parent, exp.Select) and node.arg_key == "expressions":
            value = exp.Alias(this=value, alias=exp.to_identifier(bound, quoted=True))
        node.replace(value)
        return
    column = exp.column(exp.to_identifier(bound), table=exp.to_identifier(kind))
    column.meta[_CALL] = True
    _copy_position(node, column.this)
    node.replace(column)


def _copy_position(node: exp.Expr, replacement: exp.Expr) -> None:
    """Copy the position in the text, which sqlglot stores in the ``meta`` of some nodes."""
    for part in node.walk():
        if "start" in part.meta:
            replacement.meta.update(part.meta)
            break
