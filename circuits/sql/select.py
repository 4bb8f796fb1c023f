"""SELECT: from the rows of FROM and WHERE to the columns of the list, and what follows it.

::

    FROM, WHERE -> [GROUP BY, HAVING] -> list -> [QUALIFY] -> [DISTINCT] -> [ORDER BY ... LIMIT]

A name refers to a column of FROM first and to an alias of the list second; in ORDER BY it is the
reverse. If both exist and differ below an expression of HAVING, QUALIFY or ORDER BY, dialects
disagree, and it is an error. The list is one Map. Sort keys of QUALIFY and LIMIT that the list does
not have are hidden columns after it, until a last Map removes them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
from sqlglot import exp

from circuits.plan.expressions import Expression, Literal, conjuncts
from circuits.plan.nodes import Distinct, Field, Filter, Map, PlanNode, TopK, Values, columns
from circuits.sql import row_number
from circuits.sql.conditions import restrict
from circuits.sql.environment import (
    NO_RANK_RANGES,
    DerivedTable,
    Environment,
    RankRange,
    RankRanges,
)
from circuits.sql.expressions import Clause, integer, is_aggregate
from circuits.sql.grouping import ONE_ROW, Grouping, has_aggregate, is_grouped
from circuits.sql.grouping_sets import read_grouping_sets
from circuits.sql.ordering import Limit, SortKey, order_columns, read_limit, read_order
from circuits.sql.rows import Rows, add_alias, conjuncts_of, factor_out_common
from circuits.sql.scope import Scope, is_correlated
from circuits.sql.selection import Rank, Selection
from circuits.sql.subqueries import add_condition_keys, is_membership
from circuits.sql.tables import read_from_clause

__all__ = ["finish_selection", "read_rows", "read_selection"]

SELECT_ARGUMENTS: Final = (
    *("expressions", "distinct", "from_", "joins", "where", "group", "having", "qualify"),
    *("order", "limit", "offset", "with_"),
)
USE_WHERE: Final = "name the columns of the enclosing query in WHERE only"


@dataclass(frozen=True)
class _Item:
    """A column of the list; ``value`` is an expression over the rows, not yet over groups."""

    name: str
    node: exp.Expr
    value: Expression
    unreadable_reason: str = ""


def read_rows(environment: Environment, node: exp.Select, parent: Scope | None = None) -> Rows:
    """Read FROM and WHERE."""
    rank_ranges, done = row_number.find_bounded_ranks(environment, node)
    rows = read_from_clause(environment, node, parent, rank_ranges)
    aliases: dict[str, exp.Expr | None] = {}
    rows.aliases = aliases
    for item in node.expressions:
        if isinstance(item, exp.Alias):
            add_alias(aliases, item)
    where = node.args.get("where")
    for column in done.values():
        # The condition has been applied already, but its name must not be ambiguous.
        rows.scope.matches(column)
    if where is not None:
        environment.source.accept(where, "this")
        restrict(rows, where.this, "WHERE", frozenset(done))
    return rows


def read_selection(
    environment: Environment,
    node: exp.Select,
    parent: Scope | None = None,
    rank_ranges: RankRanges = NO_RANK_RANGES,
) -> Selection:
    """Read a SELECT up to its list; ``rank_ranges`` has its row_number() columns by alias."""
    environment.source.accept(node, *SELECT_ARGUMENTS)
    environment = environment.with_common_tables(node, parent)
    return _SelectReader(node, read_rows(environment, node, parent), rank_ranges).selection()


class _SelectReader:
    """Reads the clauses after WHERE.

    All of them are read before the groups are made, because each may call aggregates.
    """

    def __init__(self, node: exp.Select, rows: Rows, rank_ranges: RankRanges) -> None:
        self.node = node
        self.rows = rows
        self.source = rows.source
        self.aliases = dict(rows.aliases)
        self.grouping = Grouping(rows) if is_grouped(node) else None
        self.rank, self.bounds = self._read_qualify(rank_ranges)
        self.items = self._read_items()

    def selection(self) -> Selection:
        self.rows.aliases = self.aliases
        self._read_keys()
        having = self._read_having()
        rank = None
        if self.rank is not None:
            rank = row_number.read_rank(self._expression_clause("QUALIFY"), self.rank, self.bounds)
        order = self.node.args.get("order")
        sorted_ = read_order(self.source, order, self._read_order_key) if order else ()
        conditions = self._read_conditions()
        plan = self.grouping.plan() if self.grouping else self.rows.plan
        for part, condition in having:
            placed = self._over_groups(part, condition)
            if is_correlated(placed):
                raise self.source.unsupported(part, "a correlated HAVING", USE_WHERE)
            for each in conjuncts([factor_out_common(placed)]):
                plan = Filter(plan, each)
        return Selection(
            self.node,
            self.source,
            plan,
            tuple(item.name for item in self.items),
            tuple(self._over_groups(item.node, item.value) for item in self.items),
            tuple(self._over_groups(self.node, condition) for condition in conditions),
            rank and self._rank_over_groups(rank),
            tuple(self._sort_key_over_groups(key) for key in sorted_),
            {
                index: item.unreadable_reason
                for index, item in enumerate(self.items)
                if item.unreadable_reason
            },
        )

    def _expression_clause(self, name: str) -> Clause:
        clause = self.grouping.clause(name) if self.grouping else self.rows.clause(name)
        return replace(clause, window=_refuse_window)

    def _read_qualify(self, rank_ranges: RankRanges) -> tuple[exp.Expr | None, RankRange]:
        """Return the row_number() that QUALIFY or the enclosing query bounds, and its ranks."""
        found = [
            (value, bounds)
            for name, bounds in rank_ranges.items()
            if (value := self.aliases.get(name)) is not None
        ]
        qualify = self.node.args.get("qualify")
        if qualify is not None:
            self.source.accept(qualify, "this")
            for part in conjuncts_of(qualify.this):
                value, bounds = row_number.read_bound(part) or (part, None)
                if isinstance(value, exp.Column) and not value.table:
                    self.source.accept(value, "this")
                    value = self.aliases.get(value.name.casefold(), value) or value
                if bounds is None or not row_number.is_rank(value):
                    raise self.source.unsupported(
                        part,
                        "this condition of QUALIFY",
                        f"{row_number.HOW_TO_BOUND}",
                        word="qualify",
                    )
                self.source.accept(part, "this", "expression", "low", "high")
                found.append((value, bounds))
        if len(found) > 1:
            raise self.source.unsupported(found[1][0], "a second bound of a row_number()")
        return found[0] if found else (None, RankRange(1, 1))

    def _read_items(self) -> list[_Item]:
        items: list[_Item] = []
        visible: dict[str, exp.Expr | None] = {}
        self.rows.aliases = visible
        clause = self._expression_clause("SELECT")
        for node in self.node.expressions:
            if isinstance(node, exp.Star):
                stars = self.rows.scope.expand_star(node)
                items += [_Item(name, node, value) for name, value in stars]
            elif isinstance(node, exp.Column) and isinstance(node.this, exp.Star):
                self.source.accept(node, "this", "table")
                stars = self.rows.scope.expand_star(node.this, node.table)
                items += [_Item(name, node, value) for name, value in stars]
            elif isinstance(node, exp.Alias):
                self.source.accept(node, "this", "alias")
                items.append(self._read_item(clause, node.alias, node.this))
                add_alias(visible, node)
            elif isinstance(node, exp.Column):
                items.append(self._read_item(clause, self.rows.scope.name(node), node))
            else:
                items.append(self._read_item(clause, node.sql(dialect=self.source.dialect), node))
        if not items:
            raise self.source.error(self.node, "SELECT without columns; name at least one")
        return items

    def _read_item(self, clause: Clause, name: str, node: exp.Expr) -> _Item:
        if self.rank is None or node != self.rank:
            return _Item(name, node, clause.read(node))
        if node is not self.rank:
            self.source.mark_read(node)
        if self.bounds.first == self.bounds.last:
            return _Item(name, node, integer(self.bounds.first))
        unreadable_reason = (
            f"the value of row_number() as {name!r}; leave it out of the SELECT list, "
            "or ask for one number, as in = 1"
        )
        return _Item(name, node, Literal(None, pa.int64()), unreadable_reason)

    def _read_keys(self) -> None:
        group, grouping = self.node.args.get("group"), self.grouping
        if group is None or grouping is None:
            return
        clause = self.rows.clause("GROUP BY")

        def read_key(node: exp.Expr) -> int:
            if isinstance(node, exp.Literal) and not node.is_string:
                item = self._item_at_position(node)
                if has_aggregate(item.node):
                    raise self.source.error(node, f"GROUP BY {node.this} is an aggregate")
                value = item.value
            else:
                value = clause.read(node)
            if is_correlated(value):
                raise self.source.unsupported(node, "a correlated GROUP BY", USE_WHERE)
            grouping.key(value)
            return grouping.keys.index(value)

        sets = read_grouping_sets(self.source, group, read_key)
        if group.args.get("all"):
            for item in self.items:
                if not has_aggregate(item.node) and not isinstance(item.value, Literal):
                    grouping.key(item.value)
        if sets is not None:
            grouping.add_sets(sets)

    def _read_having(self) -> list[tuple[exp.Expr, Expression]]:
        having = self.node.args.get("having")
        if having is None:
            return []
        self.source.accept(having, "this")
        clause, read = self._expression_clause("HAVING"), []
        for part in conjuncts_of(having.this):
            if is_membership(part):
                raise self.source.unsupported(
                    part,
                    "EXISTS or IN (subquery) in HAVING",
                    "put the grouped query in FROM, and the condition in the WHERE around",
                )
            self._check_names(part, "HAVING")
            read.append((part, clause.predicate(part)))
        return read

    def _read_conditions(self) -> list[Expression]:
        correlated = self.rows.correlated
        if self.grouping is None:
            return [condition for _, condition in correlated]
        if correlated and not self.node.args.get("group"):
            raise self.source.unsupported(
                correlated[0][0],
                "a correlated aggregate in EXISTS or IN",
                "compare with it as a scalar subquery, as x = (SELECT max(y) ...)",
            )
        return [add_condition_keys(self.grouping, *condition) for condition in correlated]

    def _read_order_key(self, node: exp.Expr) -> Expression:
        matches: list[_Item] = []
        if isinstance(node, exp.Literal) and not node.is_string:
            matches = [self._item_at_position(node)]
        elif isinstance(node, exp.Column) and not node.table:
            self.source.accept(node, "this", "table")
            name = node.name.casefold()
            matches = [item for item in self.items if item.name.casefold() == name]
        if len({item.value for item in matches}) > 1:
            raise self.source.error(
                node, f"column {node.name!r} is ambiguous in ORDER BY; order by its position"
            )
        if matches:
            if matches[0].unreadable_reason:
                raise self.source.unsupported(node, *matches[0].unreadable_reason.split("; ", 1))
            return matches[0].value
        self._check_names(node, "ORDER BY")
        value = self._expression_clause("ORDER BY").read(node)
        if isinstance(value, Literal):
            raise self.source.error(node, "ORDER BY a constant orders nothing; name a column")
        return value

    def _item_at_position(self, node: exp.Literal) -> _Item:
        count = len(self.items)
        if not node.this.isdecimal() or not 1 <= int(node.this) <= count:
            raise self.source.error(node, f"no column {node.this}; the list has 1 to {count}")
        return self.items[int(node.this) - 1]

    def _check_names(self, node: exp.Expr, clause: str) -> None:
        """Refuse a name that is both a column of FROM and the alias of another expression."""
        for part in node.walk(prune=lambda part: is_aggregate(part) or isinstance(part, exp.Query)):
            if not isinstance(part, exp.Column) or part.table:
                continue
            named = [item for item in self.items if item.name.casefold() == part.name.casefold()]
            here = Scope(self.source, self.rows.slots).find(part) if named else None
            if here is not None and any(item.value != here for item in named):
                raise self.source.error(
                    part,
                    f"{part.name!r} in {clause} is both a column and the alias of another "
                    "expression; put the table before it, or choose another alias",
                )

    def _over_groups(self, node: exp.Expr, value: Expression) -> Expression:
        return self.grouping.rewrite_over_groups(node, value) if self.grouping else value

    def _sort_key_over_groups(self, key: SortKey) -> SortKey:
        return replace(key, expression=self._over_groups(self.node, key.expression))

    def _rank_over_groups(self, rank: Rank) -> Rank:
        keys = tuple(self._over_groups(self.node, key) for key in rank.keys)
        return replace(rank, keys=keys, order=tuple(map(self._sort_key_over_groups, rank.order)))


def _refuse_window(clause: Clause, node: exp.Expr) -> Expression:
    inner = node.this
    word = (
        clause.source.written_name(inner) if isinstance(inner, exp.Func | exp.IgnoreNulls) else ""
    )
    raise clause.source.unsupported(node, "a window function", row_number.HOW_TO_BOUND, word=word)


def finish_selection(selection: Selection) -> DerivedTable:
    """Apply the list, then QUALIFY, DISTINCT, ORDER BY and LIMIT."""
    source, node, rank = selection.source, selection.node, selection.rank
    limit, distinct = read_limit(source, node), node.args.get("distinct")
    shown = list(selection.outputs)
    if distinct is not None:
        _check_distinct(selection, distinct, limit)
    wide = list(shown)
    if rank is not None:
        wide += [*rank.keys, *(key.expression for key in rank.order)]
    if limit is not None:
        wide += [key.expression for key in selection.order]
    if any(map(is_correlated, [*wide, *(key.expression for key in selection.order)])):
        raise source.unsupported(node, "a correlated subquery of this form", USE_WHERE)
    wide = shown + [value for value in dict.fromkeys(wide[len(shown) :]) if value not in shown]
    plan = _map_rows(selection.plan, wide, selection.names)
    if rank is not None:
        keys = tuple(dict.fromkeys(map(wide.index, rank.keys)))
        first, last = rank.bounds.first, rank.bounds.last
        plan = TopK(
            plan, keys, order_columns(rank.order, wide), max(0, last - first + 1), first - 1
        )
    if distinct is not None:
        plan = Distinct(_keep_first_columns(plan, len(shown)))
    if limit is not None:
        plan = TopK(plan, (), order_columns(selection.order, wide), limit.limit, limit.offset)
    return DerivedTable(_keep_first_columns(plan, len(shown)), selection.unreadable_columns)


def _check_distinct(selection: Selection, distinct: exp.Expr, limit: Limit | None) -> None:
    source = selection.source
    if distinct.args.get("on"):
        raise source.unsupported(
            distinct, "DISTINCT ON", "use QUALIFY row_number() OVER (...) = 1", word="distinct"
        )
    source.accept(distinct)
    for unreadable_reason in selection.unreadable_columns.values():
        raise source.unsupported(selection.node, *unreadable_reason.split("; ", 1))
    for key in selection.order if limit else ():
        if key.expression not in selection.outputs:
            raise source.error(
                selection.node.args["order"],
                "ORDER BY of SELECT DISTINCT has an expression that is not in its list; add it "
                "to the list",
            )


def _map_rows(plan: PlanNode, expressions: list[Expression], names: tuple[str, ...]) -> PlanNode:
    """Map each row to the expressions; those without a name become hidden columns."""
    hidden = range(len(expressions) - len(names))
    every = (*names, *(f"hidden_{number}" for number in hidden))
    if plan == ONE_ROW and all(isinstance(value, Literal) for value in expressions):
        fields = tuple(Field(*pair) for pair in zip(every, _types_of(expressions), strict=True))
        return Values(fields, (tuple(e.value for e in expressions if isinstance(e, Literal)),))
    same = tuple(expressions) == columns(plan)
    if same and every == tuple(field.name for field in plan.fields):
        return plan
    return Map(plan, tuple(expressions), every)


def _types_of(expressions: list[Expression]) -> list[pa.DataType]:
    return [expression.type for expression in expressions]


def _keep_first_columns(plan: PlanNode, count: int) -> PlanNode:
    """Return the plan with its first ``count`` columns only."""
    if len(plan.fields) == count:
        return plan
    names = tuple(field.name for field in plan.fields[:count])
    return Map(plan, columns(plan)[:count], names)
