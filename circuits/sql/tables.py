"""FROM: tables, queries and VALUES, and their joins.

An inner join is a CrossJoin and one Filter per condition, in the order of the text; the rewrite
rules of `circuits.plan.rewrite` choose the join order. A comma binds less tightly than JOIN: ``a, b
JOIN c`` is the cross join of ``a`` and ``(b JOIN c)``.

To support another kind of FROM item, write its reader and add it to ``FROM_ITEM_READERS``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from sqlglot import exp

from circuits.plan.expressions import Column, Expression, substitute
from circuits.plan.nodes import CrossJoin, Filter, Map, OuterJoin, PlanNode, Semijoin, columns
from circuits.sql.clause import call_function
from circuits.sql.conditions import restrict
from circuits.sql.environment import (
    NO_RANKS,
    DerivedTable,
    Environment,
    RankRanges,
    check_rank_names,
    rename_columns,
)
from circuits.sql.grouping import ONE_ROW
from circuits.sql.parsing import IS_COMMA, NAME_IN_TEXT
from circuits.sql.scope import Scope, ScopeColumn, is_correlated, scope_columns_of
from circuits.sql.select_builder import SelectBuilder
from circuits.sql.values import read_values
from circuits.types import functions

__all__ = ["read_from_clause"]

JOIN_ARGUMENTS: Final = ("on", "side", "kind", "using", "method")
# The kind of a join by the side and kind in the text.
JOIN_KINDS: Final = {
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
    """A table, query or VALUES in FROM, and the name that qualifies its columns."""

    derived: DerivedTable
    name: str


class _UsingColumn(NamedTuple):
    """The two columns that ``USING (k)`` equates, as positions among the columns of the join."""

    node: exp.Expr
    left: int
    right: int


def read_from_clause(
    environment: Environment,
    node: exp.Select,
    parent: Scope | None,
    ranks_by_table: Mapping[int, RankRanges],
) -> SelectBuilder:
    """Read FROM.

    Args:
        environment: The names that it can use.
        node: The SELECT.
        parent: The scope of the enclosing query, if the SELECT is a subquery.
        ranks_by_table: The ranks to keep of a query in FROM, by the ``id`` of its node.
    """
    source = environment.source
    clause = node.args.get("from_")
    joins = node.args.get("joins") or []
    if clause is None:
        if joins:
            raise source.error(joins[0], "a join without FROM")
        return SelectBuilder(environment, ONE_ROW, (), parent)
    source.allow_arguments(clause, "this")
    return _FromReader(environment, parent, ranks_by_table).read(clause.this, joins)


class _FromReader:
    """Reads one FROM clause."""

    def __init__(
        self,
        environment: Environment,
        parent: Scope | None,
        ranks_by_table: Mapping[int, RankRanges],
    ) -> None:
        self.environment = environment
        self.source = environment.source
        self.parent = parent
        self.ranks_by_table = ranks_by_table

    def read(self, first: exp.Expr, joins: list[exp.Join]) -> SelectBuilder:
        """Return the cross join of the items that commas separate; an item may contain joins."""
        items = [self._read_joined_item(first)]
        for join in joins:
            if self._is_comma(join):
                items.append(self._read_joined_item(join.this))
            else:
                items[-1] = self._join(items[-1], join)
        builder = items[0]
        for right in items[1:]:
            self._check_distinct_names(builder, right, first)
            plan = CrossJoin((builder.plan, right.plan))
            builder.append_columns_of(right)
            builder.plan = plan
        return builder

    def _is_comma(self, join: exp.Join) -> bool:
        """Return whether a join is a comma; sqlglot has one node for it and for a bare JOIN."""
        self.source.allow_arguments(join, "this", *JOIN_ARGUMENTS)
        if any(join.args.get(name) for name in JOIN_ARGUMENTS):
            return False
        if not join.meta.get(IS_COMMA):
            raise self.source.error(
                join.this, "JOIN without ON or USING; write CROSS JOIN for all combinations"
            )
        return True

    def _read_joined_item(self, node: exp.Expr) -> SelectBuilder:
        """Read an item and the joins to it within the same parentheses."""
        builder = self._read_item(node)
        for join in node.args.get("joins") or []:
            if self._is_comma(join):
                raise self.source.unsupported(
                    join.this, "a comma in a bracketed join", "write CROSS JOIN"
                )
            builder = self._join(builder, join)
        return builder

    def _read_item(self, node: exp.Expr) -> SelectBuilder:
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
        table = reader(self, node)
        derived = rename_columns(source, table.derived, names)
        scope_columns = scope_columns_of(derived.plan, table.name, derived.unreadable_columns)
        return SelectBuilder(self.environment, derived.plan, scope_columns, self.parent)

    def read_table(self, node: exp.Table) -> _NamedTable:
        self.source.allow_arguments(node, "this", "alias", "joins", *(["db"] if node.db else []))
        if node.db:
            raise self.source.unsupported(
                node, f"the schema in table name {node.sql()!r}", "name the table alone"
            )
        derived = self.environment.plan_table(node, self._ranks(node))
        return _NamedTable(derived, node.alias or node.name)

    def read_query(self, node: exp.Subquery) -> _NamedTable:
        self.source.allow_arguments(node, "this", "alias", "joins")
        environment = self.environment.without_outer_scope(self.parent)
        ranks = self._ranks(node)
        derived = environment.queries.plan_query(environment, node.this, ranks)
        check_rank_names(self.source, node, derived, ranks)
        return _NamedTable(derived, node.alias)

    def read_values(self, node: exp.Values) -> _NamedTable:
        self.source.allow_arguments(node, "expressions", "alias", "joins")
        return _NamedTable(DerivedTable(read_values(self.environment, node)), node.alias)

    def _ranks(self, node: exp.Expr) -> RankRanges:
        return self.ranks_by_table.get(id(node), NO_RANKS)

    def _read_join_in_parentheses(self, node: exp.Subquery) -> SelectBuilder:
        """Read ``(a JOIN b ON ...)``; the tables keep their names unless there is an alias."""
        self.source.allow_arguments(node, "this", "alias", "joins")
        builder = self._read_joined_item(node.this)
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

    def _join(self, left: SelectBuilder, join: exp.Join) -> SelectBuilder:
        source = self.source
        kind = self._read_join_kind(join)
        right = self._read_joined_item(join.this)
        self._check_distinct_names(left, right, join.this)
        joined = SelectBuilder(self.environment, left.plan, left.scope_columns, self.parent)
        joined.correlated_conditions = list(left.correlated_conditions)
        joined.append_columns_of(right)
        using = self._read_using(join, left.scope_columns, right.scope_columns)
        equalities, merged_columns = self._merge_using(using, kind, joined.scope_columns)
        on = join.args.get("on")
        if kind == "cross" and (on or equalities):
            raise source.error(join.this, "CROSS JOIN with a condition; write JOIN")
        if kind != "cross" and not on and not equalities:
            raise source.error(join.this, f"{kind.upper()} JOIN without ON or USING; add one")
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
            raise source.unsupported(
                join.this, f"a correlated condition inside of a {kind} join", "use it in WHERE"
            )
        clause = self.environment.clause(f"{kind.upper()} JOIN ... ON", joined.read_column)
        parts = [*equalities, *([clause.read_condition(on)] if on is not None else [])]
        predicate = parts[0] if len(parts) == 1 else functions.call("and", *parts)
        if is_correlated(predicate):
            raise source.unsupported(
                on or join.this,
                f"a column of the enclosing query in a {kind} join's condition",
                "use it in WHERE",
            )
        joined.plan = _join_plans(kind, left.plan, right.plan, predicate)
        joined.scope_columns = left.scope_columns if kind in ("semi", "anti") else merged_columns
        return joined

    def _read_join_kind(self, join: exp.Join) -> str:
        side, kind, method = (
            (join.args.get(name) or "").upper() for name in ("side", "kind", "method")
        )
        join_kind = JOIN_KINDS.get((side, kind))
        if join_kind is None or method not in ("", "NATURAL"):
            words = " ".join(filter(None, (method, side, kind, "JOIN")))
            raise self.source.unsupported(join.this, words, word=method or kind or side)
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
        if not names:
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
        reason = side[matches[0]].unreadable_reason
        if reason is not None:
            raise self.source.unsupported(join.this, *reason)
        return matches[0]

    def _merge_using(
        self, using: list[_UsingColumn], kind: str, joined: tuple[ScopeColumn, ...]
    ) -> tuple[list[Expression], tuple[ScopeColumn, ...]]:
        """Return the equalities of USING, and the columns of the join with the merged ones."""
        equalities = []
        merged = list(joined)
        for node, left_index, right_index in using:
            left, right = joined[left_index], joined[right_index]
            left_value, right_value = left.unqualified_value, right.unqualified_value
            equalities.append(call_function(self.source, node, "eq", left_value, right_value))
            merged_value = left_value
            if kind == "right":
                merged_value = right_value
            elif kind == "full":
                merged_value = call_function(self.source, node, "coalesce", left_value, right_value)
            merged[left_index] = replace(left, merged_value=merged_value)
            merged[right_index] = replace(right, merged_value=None, is_shadowed=True)
        return equalities, tuple(merged)


# The readers of the items of FROM. Joins in parentheses are read before.
FROM_ITEM_READERS: Final[dict[type[exp.Expr], Callable[[_FromReader, Any], _NamedTable]]] = {
    exp.Table: _FromReader.read_table,
    exp.Subquery: _FromReader.read_query,
    exp.Values: _FromReader.read_values,
}


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

    def exchange_sides(column: Column) -> Column:
        if column.index < left_width:
            return Column(column.index + right_width, column.type)
        return Column(column.index - left_width, column.type)

    plan = OuterJoin(right, left, substitute(predicate, exchange_sides))
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
