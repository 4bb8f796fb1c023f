"""FROM: tables, queries and VALUES, and their joins.

An inner join is a CrossJoin and one Filter per condition, in the order of the text; the rewrite
rules of `circuits.plan.rewrite` choose the join order. A comma binds less tightly than JOIN: ``a, b
JOIN c`` is the cross join of ``a`` and ``(b JOIN c)``.

A correlated query is planned once, for the *domain* of its outer values: their distinct values
(`circuits.sql.queries.decorrelation`). This is done at two places here.

- A correlated item of FROM (LATERAL) names columns of the items to its left. Its plan begins with
  the columns of the domain. It is *linked* to the items to its left: the join has the conditions,
  called links, that these columns have the same values as the outer values.
- The SELECT that is read may itself be a correlated subquery. Then its FROM begins with the plan of
  the domain, as if it were the first item.

To support another kind of FROM item, write its reader and add it to ``FROM_ITEM_READERS``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from operator import or_
from typing import Any, Final, NamedTuple

from sqlglot import exp

from circuits.plan.expressions import Column, Expression, Literal, columns_of, shift_columns
from circuits.plan.nodes import (
    CrossJoin,
    Filter,
    Map,
    OuterJoin,
    PlanNode,
    Semijoin,
    Union,
    columns,
)
from circuits.sql.aggregation.grouping import ONE_ROW
from circuits.sql.binding.clause import Clause
from circuits.sql.binding.environment import (
    NO_BOUNDS,
    DerivedTable,
    Environment,
    RowNumberBounds,
    check_bounded_names,
    rename_columns,
)
from circuits.sql.binding.scope import (
    Scope,
    ScopeColumn,
    exchange_sides,
    is_correlated,
    scope_columns_of,
)
from circuits.sql.binding.select_builder import SelectBuilder
from circuits.sql.expressions.current_time import reads_now
from circuits.sql.queries.asof_joins import (
    AsofJoin,
    join_asof,
    read_match,
    read_system_time,
    with_all_versions,
)
from circuits.sql.queries.conditions import has_query, restrict
from circuits.sql.queries.decorrelation import filter_all, links_between, plan_correlated_query
from circuits.sql.queries.pivots import apply_pivots, pivoted_name
from circuits.sql.queries.unnest_conditions import keep_matching_elements
from circuits.sql.queries.unnesting import is_table_function, read_table_function
from circuits.sql.queries.window_tables import is_window_table, read_window_table
from circuits.sql.syntax.parsing import IS_COMMA, NAME_IN_TEXT
from circuits.sql.syntax.source import CorrelatedSqlError
from circuits.types import functions

__all__ = ["read_from_clause"]

_ASOF_ADVICE: Final = (
    "write ASOF [LEFT | RIGHT | FULL] JOIN, or ASOF SEMI or ANTI JOIN with ON instead of USING"
)
_POSITIONAL_ADVICE: Final = (
    "number the rows of both sides with row_number() OVER (ORDER BY ...), and join on the numbers"
)
_JOIN_ARGUMENTS: Final = ("on", "side", "kind", "using", "method", "match_condition")
# The kind of a join by the side and kind in the text.
_JOIN_KINDS: Final = {
    ("", ""): "inner",
    ("", "INNER"): "inner",
    ("", "CROSS"): "cross",
    ("LEFT", ""): "left",
    ("LEFT", "OUTER"): "left",
    ("RIGHT", ""): "right",
    ("RIGHT", "OUTER"): "right",
    ("FULL", ""): "full",
    ("FULL", "OUTER"): "full",
    ("", "SEMI"): "semi",
    ("", "ANTI"): "anti",
    ("LEFT", "SEMI"): "semi",
    ("LEFT", "ANTI"): "anti",
}


class _NamedTable(NamedTuple):
    """A table, query or VALUES in FROM, and the name that qualifies its columns.

    For a correlated query, ``outer_values`` are expressions over the items to its left: the values
    that it names. The columns of the domain, which are the first of its plan, are linked to them.
    """

    derived: DerivedTable
    name: str
    outer_values: tuple[Expression, ...] = ()


def _is_asof(join: exp.Join) -> bool:
    """Return whether a join is an ASOF join; in dialect clickhouse that is a kind, not a method.

    An ASOF SEMI or ANTI join with ON is a plain one: only the existence of a match counts.
    """
    words = [(join.args.get(name) or "").upper() for name in ("method", "kind")]
    return "ASOF" in words and not _is_asof_test(join)


def _is_asof_test(join: exp.Join) -> bool:
    """Return whether a join is ASOF SEMI or ANTI, with ON; USING would compare with ``>=``."""
    kind = (join.args.get("kind") or "").upper()
    return kind in ("SEMI", "ANTI") and join.args.get("on") is not None


class _UsingColumn(NamedTuple):
    """The two columns that ``USING (k)`` equates, as positions among the columns of the join."""

    node: exp.Expr
    left: int
    right: int


def read_from_clause(
    environment: Environment,
    node: exp.Select,
    parent: Scope | None,
    bounds_by_table: Mapping[int, RowNumberBounds],
) -> SelectBuilder:
    """Read FROM.

    Args:
        environment: The names that it can use.
        node: The SELECT.
        parent: The scope of the enclosing query, if the SELECT is a subquery.
        bounds_by_table: The row_number() columns of the queries in FROM that WHERE bounds, by the
            ``id`` of the query's node.
    """
    source = environment.source
    clause = node.args.get("from_")
    joins = node.args.get("joins") or []
    if clause is None:
        if joins:
            raise source.error(joins[0], "a join without FROM")
        return _FromReader(environment, parent, bounds_by_table).start()
    source.allow_arguments(clause, "this")
    builder = _FromReader(environment, parent, bounds_by_table).read(clause.this, joins)
    for view in node.args.get("laterals") or ():
        if not is_table_function(view):
            raise source.unsupported(view, "LATERAL VIEW of this function", "use explode(list)")
        read_table_function(builder, view)
    return builder


class _FromReader:
    """Reads one FROM clause."""

    def __init__(
        self,
        environment: Environment,
        parent: Scope | None,
        bounds_by_table: Mapping[int, RowNumberBounds],
    ) -> None:
        # Queries in FROM are first planned without the domain, as if they were not correlated.
        self.environment = replace(environment, domain=None)
        self.source = environment.source
        self.domain = environment.domain
        self.parent = parent
        self.bounds_by_table = bounds_by_table

    def start(self) -> SelectBuilder:
        """Return the rows that FROM begins with: one, or the domain of a correlated SELECT."""
        if self.domain is None:
            return SelectBuilder(self.environment, ONE_ROW, (), self.parent)
        builder = SelectBuilder(self.environment, self.domain.plan, (), self.parent)
        builder.domain = self.domain
        builder.domain_columns = columns(self.domain.plan)
        return builder

    def read(self, first: exp.Expr, joins: list[exp.Join]) -> SelectBuilder:
        """Return the cross join of the items that commas separate; an item may contain joins.

        The items are joined at the end. But a correlated item and a table function read all items
        before them, so from the first of them on each item is joined to those before it at once. In
        a correlated SELECT every item is joined at once.
        """
        items = [self._read_joined_item(first, [])]
        joins_at_once = self.domain is not None
        # For each join: True if it is a comma, or comes after one.
        follow_comma = accumulate((bool(join.meta.get(IS_COMMA)) for join in joins), or_)
        for join, follows_comma in zip(joins, follow_comma, strict=True):
            if is_table_function(join.this):
                joins_at_once = joins_at_once or follows_comma
                items = [self._unnest(self._cross_all(items, first), join)]
                continue
            is_comma = self._is_comma(join)
            keeps_right_rows = not is_comma and join.side in ("RIGHT", "FULL")
            if keeps_right_rows and joins_at_once and follows_comma:
                raise self.source.unsupported(
                    join.this,
                    f"a {join.side} JOIN after a comma in a FROM with a correlated query",
                    "put the join in parentheses, or in a query in FROM",
                )
            right = self._read_joined_item(join.this, items)
            joins_at_once = joins_at_once or right.is_linked
            if joins_at_once:
                items = [self._cross_all(items, join.this)]
            if not is_comma:
                items[-1] = self._join(items[-1], join, right)
            elif joins_at_once:
                items[-1] = self._cross(items[-1], right, join.this)
            else:
                items.append(right)
        return self._cross_all(items, first)

    def _unnest(self, builder: SelectBuilder, join: exp.Join) -> SelectBuilder:
        """Apply UNNEST or a function that makes rows to the items before it."""
        self.source.allow_arguments(join, "this", *_JOIN_ARGUMENTS)
        side, kind = ((join.args.get(name) or "").upper() for name in ("side", "kind"))
        join_kind, on = _JOIN_KINDS.get((side, kind)), join.args.get("on")
        if join_kind not in ("inner", "cross", "left") or join.args.get("using"):
            raise self.source.unsupported(
                join.this, "this kind of join with UNNEST", "write CROSS JOIN or LEFT JOIN ON TRUE"
            )
        is_true = isinstance(on, exp.Boolean) and on.this
        read_table_function(builder, join.this, outer=join_kind == "left")
        if on is not None and is_true:
            self.source.allow_arguments(on, "this")
        elif on is not None and join_kind == "left":
            keep_matching_elements(builder, join.this, on)
        elif on is not None:
            restrict(builder, on, "JOIN ... ON")
        return builder

    def _cross_all(self, items: list[SelectBuilder], node: exp.Expr) -> SelectBuilder:
        """Return the cross join of the items."""
        builder = items[0]
        for right in items[1:]:
            builder = self._cross(builder, right, node)
        return builder

    def _cross(self, left: SelectBuilder, right: SelectBuilder, node: exp.Expr) -> SelectBuilder:
        """Return the cross join of two items, with the links of a correlated right item."""
        self._check_distinct_names(left, right, node)
        builder = left.copy()
        builder.append_columns_of(right)
        outer_values, domain_columns = right.link_sides
        links = links_between(outer_values, domain_columns, left.width)
        builder.plan = filter_all(CrossJoin((left.plan, right.plan)), links)
        return builder

    def _is_comma(self, join: exp.Join) -> bool:
        """Return whether a join is a comma; sqlglot has one node for it and for a bare JOIN."""
        self.source.allow_arguments(join, "this", *_JOIN_ARGUMENTS)
        if any(join.args.get(name) for name in _JOIN_ARGUMENTS) or _is_apply(join):
            return False
        if not join.meta.get(IS_COMMA):
            raise self.source.error(
                join.this, "JOIN without ON or USING; write CROSS JOIN for all combinations"
            )
        return True

    def _read_joined_item(self, node: exp.Expr, left: list[SelectBuilder]) -> SelectBuilder:
        """Read an item and the joins to it within the same parentheses.

        Args:
            node: The item.
            left: The items to its left, whose columns it may name.
        """
        builder = self._read_item(node, left)
        for join in node.args.get("joins") or []:
            if is_table_function(join.this) and not join.meta.get(IS_COMMA):
                builder = self._unnest(builder, join)
                continue
            if self._is_comma(join):
                raise self.source.unsupported(
                    join.this, "a comma in a bracketed join", "write CROSS JOIN"
                )
            builder = self._join(builder, join, self._read_joined_item(join.this, [builder]))
        return builder

    def _read_item(self, node: exp.Expr, left: list[SelectBuilder]) -> SelectBuilder:
        if is_table_function(node):
            builder = self.start()
            read_table_function(builder, node)
            return builder
        builder = self._read_table_or_query(node, left)
        if left or self.domain is None:
            return builder
        # The first item of a correlated SELECT is joined with the domain.
        return self._cross(self.start(), builder, node)

    def _read_table_or_query(self, node: exp.Expr, left: list[SelectBuilder]) -> SelectBuilder:
        if isinstance(node, exp.Subquery) and not _is_query(node):
            return self._read_join_in_parentheses(node)
        source = self.source
        alias = node.args.get("alias")
        names: list[exp.Identifier] = []
        if alias is not None:
            source.allow_arguments(alias, "this", "columns")
            names = alias.args.get("columns") or []
        reader = FROM_ITEM_READERS.get(type(node))
        if reader is None:
            raise source.unsupported(
                node,
                f"{source.describe(node)} in FROM",
                "write a table, a query or VALUES",
                word=str(node.meta.get(NAME_IN_TEXT, node.key)),
            )
        table = reader(self, node, left)
        derived = table.derived
        if isinstance(node, exp.Values) and node.args.get("pivots"):
            # The names after VALUES are those of its columns, which PIVOT refers to.
            derived, names = rename_columns(source, derived, names), []
        derived = apply_pivots(self.environment, node, derived)
        derived = rename_columns(source, derived, names)
        width = derived.domain_width
        scope_columns = scope_columns_of(derived.plan, pivoted_name(node) or table.name)
        builder = SelectBuilder(self.environment, derived.plan, scope_columns[width:], self.parent)
        builder.link_sides = table.outer_values, columns(derived.plan)[:width]
        return builder

    def read_table(self, node: exp.Table, left: list[SelectBuilder]) -> _NamedTable:
        if is_window_table(node):
            plan, name = read_window_table(self.environment, node, self.parent)
            return _NamedTable(DerivedTable(plan), name)
        arguments = ["this", "alias", "joins", "pivots"]
        if node.db:
            arguments.append("db")
        if isinstance(node.parent, exp.Join):
            arguments.append("version")  # FOR SYSTEM_TIME AS OF, which `_join` reads
        version = node.args.get("version") or node.args.get("when")
        if version is not None and "version" not in arguments:
            raise self.source.unsupported(
                version,
                "an earlier version of a table",
                "a view reads the current rows; JOIN t FOR SYSTEM_TIME AS OF a time of the other "
                "table reads the row at that time",
            )
        self.source.allow_arguments(node, *arguments)
        if node.db and not self.source.is_default_schema(node.db):
            raise self.source.unsupported(
                node, f"the schema in table name {node.sql()!r}", "name the table alone"
            )
        derived = self.environment.plan_table(node, self._row_number_bounds(node))
        outer_values: tuple[Expression, ...] = ()
        if derived.domain is not None:  # a correlated WITH query
            outer_values = self._left_side(left).scope.columns_of_domain(derived.domain, node)
        return _NamedTable(derived, node.alias or node.name, outer_values)

    def read_query(self, node: exp.Subquery, left: list[SelectBuilder]) -> _NamedTable:
        self.source.allow_arguments(node, "this", "alias", "joins", "pivots")
        return self._read_query(node, node.this, left)

    def read_lateral(self, node: exp.Lateral, left: list[SelectBuilder]) -> _NamedTable:
        self.source.allow_arguments(
            node, "this", "alias", "joins", "cross_apply", "view", "outer", "ordinality"
        )
        if not isinstance(node.this, exp.Subquery):
            raise self.source.unsupported(
                node, "LATERAL before a function", "write LATERAL (SELECT ...)", "lateral"
            )
        self.source.allow_arguments(node.this, "this")
        return self._read_query(node, node.this.this, left)

    def read_values(self, node: exp.Values, left: list[SelectBuilder]) -> _NamedTable:
        self.source.allow_arguments(node, "expressions", "alias", "joins", "pivots")
        return self._read_query(node, node, left)

    def _read_query(
        self, node: exp.Expr, query: exp.Expr, left: list[SelectBuilder]
    ) -> _NamedTable:
        """Read a query in FROM, which may name the columns of the items to its left."""
        row_number_bounds = self._row_number_bounds(node)
        left_side = self._left_side(left)
        has_outer_columns = bool(left) or self.parent is not None
        outer_scope = left_side.scope if has_outer_columns else None
        # First read it as a query that is not correlated: an outer column raises an error.
        environment = self.environment.with_unreachable_scope(outer_scope)
        try:
            derived = environment.queries.plan_query(environment, query, row_number_bounds)
            check_bounded_names(self.source, node, derived.plan, row_number_bounds)
            return _NamedTable(derived, node.alias)
        except CorrelatedSqlError:
            if not left and self.domain is None:
                raise
        correlated = plan_correlated_query(left_side, query, row_number_bounds)
        return _NamedTable(correlated.derived, node.alias, correlated.outer_values)

    def _left_side(self, left: list[SelectBuilder]) -> SelectBuilder:
        return self._cross_all(left, exp.Null()) if left else self.start()

    def _row_number_bounds(self, node: exp.Expr) -> RowNumberBounds:
        return self.bounds_by_table.get(id(node), NO_BOUNDS)

    def _read_join_in_parentheses(self, node: exp.Subquery) -> SelectBuilder:
        """Read ``(a JOIN b ON ...)``; the tables keep their names unless there is an alias."""
        self.source.allow_arguments(node, "this", "alias", "joins")
        builder = self._read_joined_item(node.this, [])
        if self.domain is not None:
            # The joins in the parentheses have their own copy of the domain: link it to the one
            # outside.
            builder.link_sides = self.start().domain_columns, builder.domain_columns
        alias = node.args.get("alias")
        if alias is None:
            return builder
        self.source.allow_arguments(alias, "this")
        scope = Scope(self.source, builder.scope_columns)
        builder.scope_columns = tuple(
            ScopeColumn(node.alias, name, value) for name, value in scope.expand_star(exp.Star())
        )
        return builder

    def _check_distinct_names(
        self, left: SelectBuilder, right: SelectBuilder, node: exp.Expr
    ) -> None:
        left_tables = {column.table.casefold() for column in left.scope_columns}
        for column in right.scope_columns:
            if column.table and column.table.casefold() in left_tables:
                raise self.source.error(
                    node, f"two tables in FROM are called {column.table!r}; give one an alias"
                )

    def _join(self, left: SelectBuilder, join: exp.Join, right: SelectBuilder) -> SelectBuilder:
        source = self.source
        kind = self._read_join_kind(join)
        system_time = read_system_time(source, join.this)
        if kind in ("right", "full"):
            if right.is_linked and self.domain is None:
                raise source.error(
                    join.this, f"a {kind.upper()} JOIN with a query that names its left side"
                )
            if self.domain is not None and not right.is_linked:
                # Unmatched right rows are kept for each row of the domain.
                right = self._cross(self.start(), right, join.this)
                right.link_sides = left.domain_columns, right.domain_columns
        self._check_distinct_names(left, right, join.this)
        joined = left.copy()
        joined.append_columns_of(right)
        outer_values, domain_columns = right.link_sides
        links = links_between(outer_values, domain_columns, left.width)
        if kind in ("right", "full") and self.domain is not None:
            joined.domain_columns = self._domain_columns_of_join(kind, left, right)
        using = self._read_using(join, left.scope_columns, right.scope_columns)
        clause = self.environment.clause("USING", joined.read_column)
        equalities, merged_columns = _merge_using(clause, using, kind, joined.scope_columns)
        if system_time is not None or _is_asof(join):
            joined.plan = self._plan_asof_join(left, right, joined, join, system_time, equalities)
            joined.scope_columns = merged_columns
            return joined
        on = join.args.get("on")
        if kind == "cross" and (on or equalities):
            raise source.error(join.this, "CROSS JOIN with a condition; write JOIN")
        is_natural = (join.args.get("method") or "").upper() == "NATURAL"
        has_condition = on or equalities or is_natural or _is_apply(join)
        if kind != "cross" and not has_condition:
            raise source.error(join.this, f"{kind.upper()} JOIN without ON or USING; add one")
        equalities = [*links, *equalities]
        if kind in ("inner", "cross"):
            joined.plan = CrossJoin((left.plan, right.plan))
            for equality in equalities:
                joined.plan = Filter(joined.plan, equality)
            if on is not None:
                restrict(joined, on, "JOIN ... ON")
            joined.scope_columns = merged_columns
            return joined
        if joined.correlated_conditions and (
            kind in ("right", "full") or right.correlated_conditions
        ):
            raise source.correlated(
                join.this, f"a correlated condition inside of a {kind} join", "use it in WHERE"
            )
        clause_name = f"{kind.upper()} JOIN ... ON"
        if on is not None and (has_query(on) or reads_now(on)):
            joined.plan = self._join_by_matches(
                kind, left, right, joined, equalities, on, clause_name
            )
        else:
            clause = self.environment.clause(clause_name, joined.read_column)
            parts = [*equalities, *([clause.read_condition(on)] if on is not None else [])]
            predicate = functions.conjunction(parts)
            if is_correlated(predicate):
                raise source.correlated(
                    on or join.this,
                    f"a column of the enclosing query in a {kind} join's condition",
                    "use it in WHERE",
                )
            joined.plan = _join_plans(kind, left.plan, right.plan, predicate)
        if kind in ("semi", "anti"):
            merged_columns = merged_columns[: len(left.scope_columns)]
        joined.scope_columns = merged_columns
        return joined

    def _domain_columns_of_join(
        self, kind: str, left: SelectBuilder, right: SelectBuilder
    ) -> tuple[Expression, ...]:
        """Return the columns of the domain in a right or full join; both sides have them.

        In an unmatched right row only those of the right side are not NULL.
        """
        right_columns = [shift_columns(column, left.width) for column in right.domain_columns]
        if kind == "right":
            return tuple(right_columns)
        return tuple(
            functions.call("coalesce", *pair)
            for pair in zip(left.domain_columns, right_columns, strict=True)
        )

    def _join_by_matches(
        self,
        kind: str,
        left: SelectBuilder,
        right: SelectBuilder,
        joined: SelectBuilder,
        equalities: list[Expression],
        on: exp.Expr,
        clause_name: str,
    ) -> PlanNode:
        """Return an outer, semi or anti join whose condition has subqueries or reads the time.

        The inner join has the matching rows. A row of a side is unmatched if no matching row has
        the same values in its columns.
        """
        inner = joined.copy()
        inner.plan = CrossJoin((left.plan, right.plan))
        if self.domain is not None:
            inner.domain_columns = left.domain_columns
        # The columns of both sides. The subqueries of the condition add columns after them, which
        # ``matches`` leaves out.
        fields = inner.plan.fields
        inner.plan = filter_all(inner.plan, equalities)
        restrict(inner, on, clause_name)
        if inner.correlated_conditions:
            raise self.source.correlated(
                on, f"a column of the enclosing query in a {kind} join's condition"
            )
        names = tuple(field.name for field in fields)
        width = left.width
        matches = Map(inner.plan, columns(inner.plan)[: len(fields)], names)
        left_columns, right_columns = columns(matches)[:width], columns(matches)[width:]
        if kind in ("semi", "anti"):
            links = _have_same_values(columns(left.plan), left_columns)
            return Semijoin(left.plan, matches, links, anti=kind == "anti")
        plans: list[PlanNode] = [matches]
        nulls = [Literal(None, field.type) for field in fields]
        if kind in ("left", "full"):
            unmatched = Semijoin(
                left.plan, matches, _have_same_values(columns(left.plan), left_columns), anti=True
            )
            plans.append(Map(unmatched, (*columns(left.plan), *nulls[width:]), names))
        if kind in ("right", "full"):
            links = _have_same_values(columns(right.plan), right_columns)
            unmatched = Semijoin(right.plan, matches, links, anti=True)
            plans.append(Map(unmatched, (*nulls[:width], *columns(right.plan)), names))
        return Union(tuple(plans))

    def _plan_asof_join(
        self,
        left: SelectBuilder,
        right: SelectBuilder,
        joined: SelectBuilder,
        join: exp.Join,
        system_time: exp.Expr | None,
        equalities: list[Expression],
    ) -> PlanNode:
        """Join each left row to the latest right row of its key at or before its time."""
        clause = self.environment.clause("ASOF JOIN ... ON", joined.read_column)
        outer_columns = {index for column in left.domain_columns for index in columns_of(column)}
        match = read_match(
            clause,
            join,
            left.width,
            equalities,
            system_time,
            right.scope_columns,
            outer_columns,
        )
        if any(map(is_correlated, match.others)):
            raise self.source.correlated(
                join.this,
                "a column of the enclosing query in the condition of a temporal join",
                "use it in WHERE",
            )
        if joined.correlated_conditions or right.is_linked:
            raise self.source.unsupported(join.this, "an ASOF join in a correlated subquery")
        kind = self._read_join_kind(join)
        if kind in ("semi", "anti"):
            raise self.source.unsupported(
                join.this,
                f"FOR SYSTEM_TIME in a {kind.upper()} JOIN",
                f"write ASOF {kind.upper()} JOIN ... ON a.k = t.k AND a.ts >= t.ts",
            )
        asof_join = AsofJoin(left.plan, right.plan, match, kind)
        if system_time is not None:
            asof_join = with_all_versions(asof_join, self.environment.views, self.source, join.this)
        return join_asof(asof_join)

    def _read_join_kind(self, join: exp.Join) -> str:
        if _is_apply(join):
            return "cross" if join.this.args["cross_apply"] else "left"
        side, kind, method = (
            (join.args.get(name) or "").upper() for name in ("side", "kind", "method")
        )
        if method == "ASOF" and _is_asof_test(join):
            method = ""
        if _is_asof(join):
            method, kind = "ASOF", "" if kind == "ASOF" else kind
            if self.source.dialect == "snowflake":  # its ASOF JOIN keeps left rows without a match
                side = side or "LEFT"
        join_kind = _JOIN_KINDS.get((side, kind))
        if method == "ASOF" and join_kind in ("cross", "semi", "anti"):
            join_kind = None
        if join_kind is None or method not in ("", "NATURAL", "ASOF"):
            words = " ".join(filter(None, (method, side, kind, "JOIN")))
            advice = {"POSITIONAL": _POSITIONAL_ADVICE, "ASOF": _ASOF_ADVICE}.get(method, "")
            raise self.source.unsupported(join.this, words, advice, word=method or kind or side)
        return join_kind

    def _read_using(
        self, join: exp.Join, left: tuple[ScopeColumn, ...], right: tuple[ScopeColumn, ...]
    ) -> list[_UsingColumn]:
        """Return the columns of USING or NATURAL."""
        names = join.args.get("using") or []
        if (join.args.get("method") or "").upper() == "NATURAL":
            if names or join.args.get("on"):
                raise self.source.error(join.this, "NATURAL JOIN with a condition; write JOIN")
            names = self._common_names(join, left, right)
        elif names and join.args.get("on"):
            raise self.source.error(join.this, "JOIN with both ON and USING; write one of them")
        using: list[_UsingColumn] = []
        used_names: set[str] = set()
        for name in names:
            if name.name.casefold() in used_names:
                raise self.source.error(name, f"column {name.name!r} is twice in USING")
            used_names.add(name.name.casefold())
            left_index = self._find_using_column(join, name, left, "left")
            right_index = self._find_using_column(join, name, right, "right")
            # A name of NATURAL is not in the text, so it has no offset for errors.
            node = name if name.meta else join.this
            using.append(_UsingColumn(node, left_index, len(left) + right_index))
        return using

    def _common_names(
        self, join: exp.Join, left: tuple[ScopeColumn, ...], right: tuple[ScopeColumn, ...]
    ) -> list[exp.Identifier]:
        """Return the column names that NATURAL JOIN equates."""
        right_names = {column.name.casefold() for column in right if not column.is_shadowed}
        names = [
            column.name
            for column in left
            if not column.is_shadowed and column.name.casefold() in right_names
        ]
        # In PostgreSQL, that is a cross join.
        if not names and (join.side or not self.source.is_postgres):
            raise self.source.error(
                join.this, "NATURAL JOIN of tables without a common column; write CROSS JOIN"
            )
        return [exp.to_identifier(name) for name in dict.fromkeys(names)]

    def _find_using_column(
        self, join: exp.Join, name: exp.Identifier, side: tuple[ScopeColumn, ...], side_name: str
    ) -> int:
        """Return the position of the column among those of one side of the join."""
        matches = [
            index
            for index, column in enumerate(side)
            if column.has_name(name.name) and not column.is_shadowed
        ]
        if len(matches) != 1:
            problem = "is ambiguous" if matches else "is unknown"
            raise self.source.error(
                name if name.meta else join.this,
                f"column {name.name!r} of USING {problem} on the {side_name} side",
            )
        return matches[0]


# The readers of the items of FROM. Joins in parentheses are read before.
FROM_ITEM_READERS: Final[
    dict[type[exp.Expr], Callable[[_FromReader, Any, list[SelectBuilder]], _NamedTable]]
] = {
    exp.Lateral: _FromReader.read_lateral,
    exp.Table: _FromReader.read_table,
    exp.Subquery: _FromReader.read_query,
    exp.Values: _FromReader.read_values,
}


def _merge_using(
    clause: Clause, using: list[_UsingColumn], kind: str, joined: tuple[ScopeColumn, ...]
) -> tuple[list[Expression], tuple[ScopeColumn, ...]]:
    """Return the equalities of USING, and the columns of the join with the merged ones."""
    equalities = []
    merged = list(joined)
    first_rank = 0
    if clause.source.is_spark or clause.source.is_postgres:
        first_rank = max((column.star_rank for column in joined), default=0) + len(using)
    for position, (node, left_index, right_index) in enumerate(using):
        left, right = joined[left_index], joined[right_index]
        left_value, right_value = left.unqualified_value, right.unqualified_value
        equalities.append(clause.call(node, "eq", left_value, right_value))
        merged_value = left_value
        if kind == "right":
            merged_value = right_value
        elif kind == "full":
            merged_value = clause.call(node, "coalesce", left_value, right_value)
        rank = max(first_rank - position, 0)
        merged[left_index] = replace(left, merged_value=merged_value, star_rank=rank)
        merged[right_index] = replace(right, merged_value=None, is_shadowed=True, star_rank=rank)
    return equalities, tuple(merged)


def _have_same_values(left: Sequence[Column], right: Sequence[Column]) -> Expression:
    """Return the predicate of a semijoin: all left columns have the values of the right ones."""
    return functions.conjunction(links_between(left, right, offset=len(left)))


def _is_apply(join: exp.Join) -> bool:
    """Return whether a join is CROSS APPLY or OUTER APPLY."""
    return isinstance(join.this, exp.Lateral) and join.this.args.get("cross_apply") is not None


def _join_plans(kind: str, left: PlanNode, right: PlanNode, predicate: Expression) -> PlanNode:
    """Return a join of a kind other than inner; the predicate is over both sides' columns."""
    if kind in ("semi", "anti"):
        return Semijoin(left, right, predicate, anti=kind == "anti")
    if kind == "left":
        return OuterJoin(left, right, predicate)
    if kind == "full":
        return OuterJoin(left, right, predicate, "full")
    # A right join is the left join of the exchanged sides, with the columns in the old order.
    left_width, right_width = len(left.fields), len(right.fields)
    plan = OuterJoin(right, left, exchange_sides(predicate, left_width, right_width))
    order = [*range(right_width, right_width + left_width), *range(right_width)]
    expressions = tuple(columns(plan)[index] for index in order)
    return Map(plan, expressions, tuple(plan.fields[index].name for index in order))


def _is_query(node: exp.Expr) -> bool:
    """Return whether parentheses in FROM contain a query; else they contain a table or a join."""
    node = node.this
    while isinstance(node, exp.Subquery):
        if node.args.get("alias") or node.args.get("joins"):
            return False
        node = node.this
    return not isinstance(node, exp.Table)
