"""Window table functions in FROM: TUMBLE, HOP, CUMULATE and SESSION.

::

    TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), size [, offset]))      Flink, Feldera
    TUMBLE(t, ts, size [, offset])                               RisingWave
    HOP(t, ts, slide, size [, offset])
    CUMULATE(t, ts, step, size [, offset])                       Flink
    SESSION(t [PARTITION BY keys], ts, gap)                      Flink
    SESSION(t, ts, DESCRIPTOR(keys), gap)                        Calcite

with arguments by place or by name (DATA, TIMECOL, SIZE, SLIDE, STEP, GAP, OFFSET). The result has
the columns of the table, then window_start and window_end; and window_time, the last millisecond of
the window, if the query names it. The form with DESCRIPTOR always has window_time in dialect spark,
as in Flink. A row without a time is in no window.

The end of a session is an aggregate over the session. A query that groups by the keys, window_start
and window_end computes it per group. In other queries that read it, it is a column, and a row that
extends a session changes all rows of the session.
"""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from circuits.plan.expressions import Expression
from circuits.plan.nodes import Map, PlanNode, columns
from circuits.sql.binding.environment import NO_BOUNDS, DerivedTable, Environment
from circuits.sql.binding.scope import Scope, scope_columns_of
from circuits.sql.binding.select_builder import SelectBuilder
from circuits.sql.expressions.time_amounts import interval_of, read_ticks, read_time
from circuits.sql.queries.window_columns import (
    WindowColumns,
    cumulating,
    hopping,
    last_moment,
    session,
    tumbling,
)
from circuits.sql.syntax.window_parsing import IS_DESCRIPTOR, WINDOW_TABLES

__all__ = ["is_window_table", "read_window_table", "replace_session_end"]

_ARGUMENTS: Final = {
    "TUMBLE": ("DATA", "TIMECOL", "SIZE", "OFFSET"),
    "HOP": ("DATA", "TIMECOL", "SLIDE", "SIZE", "OFFSET"),
    "CUMULATE": ("DATA", "TIMECOL", "STEP", "SIZE", "OFFSET"),
    "SESSION": ("DATA", "TIMECOL", "GAP"),
}


def is_window_table(node: exp.Expr) -> bool:
    """Return whether a table of FROM is a window table function."""
    call = node.this if isinstance(node, exp.Table) else None
    return isinstance(call, exp.Anonymous) and call.name.upper() in WINDOW_TABLES


def read_window_table(
    environment: Environment, node: exp.Table, parent: Scope | None
) -> tuple[PlanNode, str]:
    """Return the table of a window table function, and its name."""
    source = environment.source
    source.allow_arguments(node, "this", "alias", "joins")
    call = node.this
    source.allow_arguments(call, "this", "expressions")
    kind = call.name.upper()
    arguments = _arguments(environment, call)
    data, key_nodes = arguments["DATA"], arguments.pop("KEYS", None)
    plan, name = _read_data(environment, data, parent)
    builder = SelectBuilder(
        environment,
        plan,
        scope_columns_of(plan, name),
        None,
    )
    clause = builder.clause(f"{kind}()")
    time = read_time(clause, arguments["TIMECOL"])

    def ticks(argument: str, *, may_be_negative: bool = False) -> int:
        node = arguments[argument]
        return read_ticks(clause, node, time.type, may_be_negative=may_be_negative)

    offset = ticks("OFFSET", may_be_negative=True) if "OFFSET" in arguments else 0
    keys = [clause.read(key) for key in _unpack(key_nodes)]  # they matter to sessions only
    select = node.find_ancestor(exp.Select)
    if kind == "TUMBLE":
        window = tumbling(builder.plan, time, ticks("SIZE"), offset)
    elif kind == "HOP":
        window = hopping(builder.plan, time, ticks("SIZE"), ticks("SLIDE"), offset)
    elif kind == "CUMULATE":
        step, size = ticks("STEP"), ticks("SIZE")
        if size % step:
            raise source.error(call, "CUMULATE() with a size that is no multiple of its step")
        window = cumulating(builder.plan, time, step, size, offset)
    else:
        with_end = _reads(select, "window_end", "window_time", star=True)
        window = session(builder.plan, time, keys, ticks("GAP"), with_end=with_end)
    is_flink = source.is_spark and arguments["TIMECOL"].meta.get(IS_DESCRIPTOR, False)
    has_time = _reads(select, "window_time", star=is_flink)
    return _with_bounds(plan, window, has_time=has_time), node.alias or name


def _with_bounds(plan: PlanNode, window: WindowColumns, *, has_time: bool) -> PlanNode:
    width = len(plan.fields)
    values: list[Expression] = [*columns(window.plan)[:width], window.start]
    names = [*(field.name for field in plan.fields), "window_start"]
    if window.end != window.start:  # else the end of a session is not computed
        values.append(window.end)
        names.append("window_end")
        if has_time:
            values.append(last_moment(window.end))
            names.append("window_time")
    return Map(window.plan, tuple(values), tuple(names))


def _arguments(environment: Environment, call: exp.Anonymous) -> dict[str, exp.Expr]:
    """Return the arguments of a window table function by name; KEYS are those of PARTITION BY."""
    source, kind = environment.source, call.name.upper()
    names = _ARGUMENTS[kind]
    by_name: dict[str, exp.Expr] = {}
    expressions = list(call.expressions)
    if kind == "SESSION" and len(expressions) == 4 and not isinstance(expressions[2], exp.Kwarg):
        by_name["KEYS"] = expressions.pop(2)  # the keys as a DESCRIPTOR before the gap
    for place, node in enumerate(expressions):
        name, value = (names[place] if place < len(names) else ""), node
        if isinstance(node, exp.Kwarg):
            source.allow_arguments(node, "this", "expression")
            source.mark_read(node.this)
            name, value = _name_of(kind, node), node.expression
            if name == "KEYS" and name not in by_name:
                by_name[name] = value
                continue
        if name not in names or name in by_name:
            raise source.error(node, f"{kind}() takes the arguments {', '.join(names)}, each once")
        by_name[name] = value
    missing = [name for name in names if name not in by_name and name != "OFFSET"]
    if missing:
        raise source.error(call, f"{kind}() without {missing[0]}; it takes {', '.join(names)}")
    if isinstance(by_name["DATA"], exp.Tuple):  # t PARTITION BY keys
        source.allow_arguments(by_name["DATA"], "expressions")
        by_name["DATA"], *keys = by_name["DATA"].expressions
        by_name["KEYS"] = exp.Tuple(expressions=keys)
    return by_name


def _unpack(node: exp.Expr | None) -> list[exp.Expr]:
    if node is None:
        return []
    return list(node.expressions) if isinstance(node, exp.Tuple) else [node]


def _uncorrelated_plan(environment: Environment, node: exp.Expr, derived: DerivedTable) -> PlanNode:
    """Return the plan of a table; raise an error if it is a correlated WITH query."""
    if derived.domain is not None:
        raise environment.source.unsupported(node, "windows of a correlated WITH query")
    return derived.plan


def _read_data(
    environment: Environment, node: exp.Expr, parent: Scope | None
) -> tuple[PlanNode, str]:
    source = environment.source
    if isinstance(node, exp.Column) and not node.table:
        source.allow_arguments(node, "this")
        node = exp.Table(this=node.this.copy())
    if isinstance(node, exp.Table):
        source.allow_arguments(node, "this", *(["db"] if node.db else []))
        if node.db:
            raise source.unsupported(
                node, f"the schema in table name {node.sql()!r}", "name the table alone"
            )
        return _uncorrelated_plan(
            environment, node, environment.plan_table(node, NO_BOUNDS)
        ), node.name
    if isinstance(node, exp.Subquery):
        source.allow_arguments(node, "this")
        inner = environment.with_unreachable_scope(parent)
        derived = inner.queries.plan_query(inner, node.this, NO_BOUNDS)
        return _uncorrelated_plan(environment, node, derived), ""
    raise source.error(node, "the first argument of a window is a table, as TABLE t, or a query")


def _reads(select: exp.Select | None, *names: str, star: bool = False) -> bool:
    """Return whether a SELECT may name one of the columns, or with ``star`` all columns.

    Without a SELECT around the table, its columns are read as by ``*``.
    """
    if select is None:
        return star
    for node in select.walk():
        if isinstance(node, exp.Column) and node.name.lower() in names:
            return True
        if star and isinstance(node, exp.Columns):  # its pattern may match any name
            return True
        if star and isinstance(node, exp.Star) and not isinstance(node.parent, exp.Count):
            return True
    return False


def replace_session_end(select: exp.Select) -> None:
    """Replace window_end of a session by the aggregate that it is, if each group is a session.

    The groups of the keys and window_start are the sessions, so window_end need not be a key. They
    are only parts of sessions if there is a further key, or a clause that drops rows before.
    """
    clause, group = select.args.get("from_"), select.args.get("group")
    table = clause.this if clause is not None else None
    if group is None or table is None or not is_window_table(table):
        return
    if any(select.args.get(name) for name in ("where", "joins", "laterals")):
        return
    call = table.this
    if call.name.upper() != "SESSION":
        return
    try:
        keys, time, gap = _plain_arguments(call)
    except (KeyError, IndexError):
        return  # the reader of the table reports it
    group_names = {
        node.name.lower() if isinstance(node, exp.Column) else "" for node in group.expressions
    }
    needed = {"window_start", *(key.name.lower() for key in keys)}
    required = needed | {"window_end"}
    if not required <= group_names <= required | {"window_time"}:
        return
    references = [
        node
        for part in (*select.expressions, *map(select.args.get, ("having", "order", "qualify")))
        if part is not None
        for node in part.walk(prune=lambda node: isinstance(node, exp.Query))
        if isinstance(node, exp.Column) and node.name.lower() in ("window_end", "window_time")
    ]
    if any(node.find_ancestor(exp.AggFunc, exp.Select) is not select for node in references):
        return  # an aggregate has no aggregates in it
    remaining_keys = [
        node
        for node in group.expressions
        if not (isinstance(node, exp.Column) and node.name.lower() in ("window_end", "window_time"))
    ]
    group.set("expressions", remaining_keys)
    for node in references:
        replace_column(node, session_end(time, gap, node.name.lower() == "window_time"))


def session_end(time: exp.Expr, gap: exp.Expr, is_last_moment: bool = False) -> exp.Expr:
    """Return the syntax tree of the end of a session over its rows."""
    length = _interval(gap)
    if is_constant_length(gap):
        end: exp.Expr = exp.Paren(this=exp.Add(this=exp.Max(this=time.copy()), expression=length))
    else:
        end = exp.Max(this=row_end(time, gap))
    if not is_last_moment:
        return end
    one: exp.Expr = exp.Literal.number(1)
    if length.find(exp.Interval):
        one = exp.Interval(this=exp.Literal.string("1"), unit=exp.Var(this="MILLISECOND"))
    return exp.Paren(this=exp.Sub(this=end, expression=one))


def is_constant_length(gap: exp.Expr) -> bool:
    """Return whether the gap of a session does not depend on the row."""
    return gap.find(exp.Column, exp.Case, exp.If, exp.Func) is None


def row_end(time: exp.Expr, gap: exp.Expr) -> exp.Expr:
    """Return the syntax tree of the time of a row plus a gap that may depend on the row."""
    return exp.Paren(this=exp.Add(this=time.copy(), expression=exp.Paren(this=_interval(gap))))


def _interval(gap: exp.Expr) -> exp.Expr:
    """Return a copy of a gap in which its text, or each text that CASE selects, is an interval."""
    if isinstance(gap, exp.Literal) and gap.is_string:
        return interval_of(gap) or gap
    copy = gap.copy()
    if isinstance(copy, exp.Paren):
        copy.set("this", _interval(copy.this))
    elif isinstance(copy, exp.Case | exp.If):
        for branch in [copy, *(copy.args.get("ifs") or ())]:
            for key in ("default", "true", "false"):
                if branch.args.get(key) is not None:
                    branch.set(key, _interval(branch.args[key]))
    return copy


def _name_of(kind: str, argument: exp.Kwarg) -> str:
    """Return the name of an argument; a SESSION of Calcite and Feldera has a KEY and a SIZE."""
    name: str = argument.this.name.upper()
    return {"KEY": "KEYS", "SIZE": "GAP"}.get(name, name) if kind == "SESSION" else name


def replace_column(node: exp.Expr, value: exp.Expr) -> None:
    """Replace a node by an expression; an item of a SELECT list keeps the name of the column."""
    if isinstance(node.parent, exp.Select) and node.arg_key == "expressions":
        value = exp.Alias(this=value, alias=exp.to_identifier(node.name, quoted=True))
    node.replace(value)


def _plain_arguments(call: exp.Anonymous) -> tuple[list[exp.Expr], exp.Expr, exp.Expr]:
    """Return the keys, the time and the gap of a SESSION, without checks."""
    expressions = list(call.expressions)
    keys: list[exp.Expr] = []
    named = {_name_of("SESSION", n): n.expression for n in expressions if isinstance(n, exp.Kwarg)}
    plain = [n for n in expressions if not isinstance(n, exp.Kwarg)]
    if len(plain) == 4:
        keys = _unpack(plain.pop(2))
    values = {**dict(zip(_ARGUMENTS["SESSION"], plain, strict=False)), **named}
    if isinstance(values["DATA"], exp.Tuple):
        keys = values["DATA"].expressions[1:]
    if "KEYS" in named:
        keys = _unpack(named["KEYS"])
    return keys, values["TIMECOL"], values["GAP"]
