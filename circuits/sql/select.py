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

from circuits.plan.expressions import Column, Expression, Literal, columns_of, conjuncts
from circuits.plan.nodes import Distinct, Field, Filter, Map, Plan, TopK, Values, columns
from circuits.plan.window import Window, WindowCall
from circuits.sql import row_number
from circuits.sql.conditions import restrict
from circuits.sql.environment import (
    NO_RANK_RANGES,
    Environment,
    RankRange,
    RankRanges,
)
from circuits.sql.expressions import HOW_TO_USE_A_WINDOW, Clause, integer, is_aggregate
from circuits.sql.grouping import ONE_ROW, Grouping, has_aggregate, is_grouped
from circuits.sql.ordering import Limit, SortKey, order_columns, read_limit, read_order
from circuits.sql.rows import Rows, add_alias, conjuncts_of, factor_out_common
from circuits.sql.scope import OUTER, Scope, is_correlated
from circuits.sql.selection import Rank, Selection
from circuits.sql.subqueries import add_condition_keys, is_membership
from circuits.sql.tables import read_from_clause
from circuits.sql.windows import Windows
from circuits.types import functions

__all__ = ["finish_selection", "read_rows", "read_selection"]

SELECT_ARGUMENTS: Final = (
    *("expressions", "distinct", "from_", "joins", "where", "group", "having", "qualify"),
    *("order", "limit", "offset", "with_", "windows"),
)
WINDOW_CLAUSES: Final = ("SELECT", "QUALIFY", "ORDER BY")
# The placeholder of the value of a bounded row_number(), until TopK has selected the rows.
RANK_VALUE: Final = Column(6 * OUTER, pa.int64())
USE_WHERE: Final = "name the columns of the enclosing query in WHERE only"


@dataclass(frozen=True)
class _Item:
    """A column of the list; ``value`` is an expression over the rows, not yet over groups."""

    name: str
    node: exp.Expr
    value: Expression


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
        self.windows = Windows(self._named_windows())
        self.qualify_parts: list[exp.Expr] = []
        self.rank, self.bounds = self._read_qualify(rank_ranges)
        self.items = self._read_items()

    def selection(self) -> Selection:
        self.rows.aliases = self.aliases
        self._read_keys()
        having = self._read_having()
        rank = None
        if self.rank is not None:
            rank = row_number.read_rank(
                self._expression_clause("QUALIFY"), self.rank, self.bounds, self.windows
            )
        qualify = self._expression_clause("QUALIFY")
        qualify_conditions = [(part, qualify.predicate(part)) for part in self.qualify_parts]
        order = self.node.args.get("order")
        sorted_ = read_order(self.source, order, self._read_order_key) if order else ()
        conditions = self._read_conditions()
        self.windows.check_all_used(self.source)
        plan = self.grouping.plan() if self.grouping else self.rows.plan
        for part, condition in having:
            placed = self._over_groups(part, condition)
            if is_correlated(placed):
                raise self.source.unsupported(part, "a correlated HAVING", USE_WHERE)
            for each in conjuncts([factor_out_common(placed)]):
                plan = Filter(plan, each)
        selection = Selection(
            self.node,
            self.source,
            plan,
            tuple(item.name for item in self.items),
            tuple(self._over_groups(item.node, item.value) for item in self.items),
            tuple(self._over_groups(self.node, condition) for condition in conditions),
            rank and rank.map(lambda value: self._over_groups(self.node, value)),
            tuple(self._sort_key_over_groups(key) for key in sorted_),
            tuple(self._over_groups(part, condition) for part, condition in qualify_conditions),
        )
        return self._over_windows(selection) if self.windows else selection

    def _over_windows(self, selection: Selection) -> Selection:
        """Add the window functions to the plan, and return all expressions over their results."""
        if selection.conditions:
            raise self.source.unsupported(
                self.node,
                "a window function in a correlated subquery",
                "compute it in a query in WITH or FROM",
            )
        read = {index for value in selection.expressions for index in columns_of(value)}
        selection.plan = self.windows.plan(
            selection.plan, lambda value: self._over_groups(self.node, value), read
        )
        return selection.map(self.windows.replace_placeholders)

    def _expression_clause(self, name: str) -> Clause:
        clause = self.grouping.clause(name) if self.grouping else self.rows.clause(name)
        return replace(
            clause, window=self.windows.read if name in WINDOW_CLAUSES else _refuse_window
        )

    def _named_windows(self) -> dict[str, exp.Window]:
        named: dict[str, exp.Window] = {}
        for window in self.node.args.get("windows") or ():
            if named.setdefault(window.name.casefold(), window) is not window:
                raise self.source.error(window, f"two windows {window.name!r}; rename one")
        return named

    def _read_qualify(self, rank_ranges: RankRanges) -> tuple[exp.Window | None, RankRange]:
        """Return the row_number() that QUALIFY or the enclosing query bounds, and its ranks."""
        ranks = [
            (value, bounds)
            for name, bounds in rank_ranges.items()
            if (value := self.aliases.get(name)) is not None and row_number.is_rank(value)
        ]
        qualify = self.node.args.get("qualify")
        if qualify is not None:
            self.source.accept(qualify, "this")
            for part in conjuncts_of(qualify.this):
                value, bounds = row_number.read_bound(part) or (part, None)
                if isinstance(value, exp.Column) and not value.table:
                    value = self.aliases.get(value.name.casefold(), value) or value
                if bounds is None or not row_number.is_rank(value) or ranks:
                    self.qualify_parts.append(part)
                    continue
                for column in part.find_all(exp.Column):
                    self.source.accept(column, "this", "table")
                self.source.accept(part, "this", "expression", "low", "high")
                ranks.append((value, bounds))
        return ranks[0] if ranks else (None, RankRange(1, 1))

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
        return _Item(name, node, RANK_VALUE)

    def _read_keys(self) -> None:
        group, grouping = self.node.args.get("group"), self.grouping
        if group is None or grouping is None:
            return
        self.source.accept(group, "expressions", "all")
        clause = self.rows.clause("GROUP BY")
        if group.args.get("all"):
            for item in self.items:
                if not has_aggregate(item.node) and not isinstance(item.value, Literal):
                    grouping.key(item.value)
        for node in group.expressions:
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
        return key.map(lambda value: self._over_groups(self.node, value))


def _refuse_window(clause: Clause, node: exp.Expr) -> Expression:
    inner = node.this
    word = (
        clause.source.written_name(inner) if isinstance(inner, exp.Func | exp.IgnoreNulls) else ""
    )
    raise clause.source.unsupported(
        node, f"a window function in {clause.name}", HOW_TO_USE_A_WINDOW, word=word
    )


def finish_selection(selection: Selection) -> Plan:
    """Apply the list, then QUALIFY, DISTINCT, ORDER BY and LIMIT."""
    source, node, rank = selection.source, selection.node, selection.rank
    limit, distinct = read_limit(source, node), node.args.get("distinct")
    shown = list(selection.outputs)
    if distinct is not None:
        _check_distinct(selection, distinct, limit)
    wide = list(shown)
    if rank is not None:
        wide += [*rank.keys, *(key.expression for key in rank.order), *selection.filters]
    if limit is not None:
        wide += [key.expression for key in selection.order]
    if any(map(is_correlated, [*wide, *(key.expression for key in selection.order)])):
        raise source.unsupported(node, "a correlated subquery of this form", USE_WHERE)
    wide = shown + [value for value in dict.fromkeys(wide[len(shown) :]) if value not in shown]
    listed = [integer(0) if value == RANK_VALUE else value for value in wide]
    plan = selection.plan
    if rank is None:
        for condition in selection.filters:
            plan = Filter(plan, condition)
    plan = _map_rows(plan, listed, selection.names)
    if rank is not None:
        plan = _select_ranked_rows(plan, wide, rank)
        # A row_number() counts all rows, so other conditions of QUALIFY come after it.
        for condition in selection.filters:
            plan = Filter(plan, columns(plan)[wide.index(condition)])
    if distinct is not None:
        plan = Distinct(_keep_first_columns(plan, len(shown)))
    if limit is not None:
        plan = TopK(plan, (), order_columns(selection.order, wide), limit.limit, limit.offset)
    return _keep_first_columns(plan, len(shown))


def _select_ranked_rows(plan: Plan, wide: list[Expression], rank: Rank) -> Plan:
    """Keep the rows in the bounds of a row_number(), and number them if its value is selected."""
    keys = tuple(dict.fromkeys(map(wide.index, rank.keys)))
    order = order_columns(rank.order, wide)
    first, last = rank.bounds.first, rank.bounds.last
    plan = TopK(plan, keys, order, max(0, last - first + 1), first - 1)
    if RANK_VALUE not in wide:
        return plan
    names = tuple(field.name for field in plan.fields)
    values: list[Expression] = list(columns(plan))
    plan = Window(plan, keys, order, (WindowCall("row_number", (), pa.int64(), "row_number"),))
    number: Expression = columns(plan)[-1]
    if first > 1:
        number = functions.call("add", number, integer(first - 1))
    values[wide.index(RANK_VALUE)] = number
    return Map(plan, tuple(values), names)


def _check_distinct(selection: Selection, distinct: exp.Expr, limit: Limit | None) -> None:
    source = selection.source
    if distinct.args.get("on"):
        raise source.unsupported(
            distinct, "DISTINCT ON", "use QUALIFY row_number() OVER (...) = 1", word="distinct"
        )
    source.accept(distinct)
    for key in selection.order if limit else ():
        if key.expression not in selection.outputs:
            raise source.error(
                selection.node.args["order"],
                "ORDER BY of SELECT DISTINCT has an expression that is not in its list; add it "
                "to the list",
            )


def _map_rows(plan: Plan, expressions: list[Expression], names: tuple[str, ...]) -> Plan:
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


def _keep_first_columns(plan: Plan, count: int) -> Plan:
    """Return the plan with its first ``count`` columns only."""
    if len(plan.fields) == count:
        return plan
    names = tuple(field.name for field in plan.fields[:count])
    return Map(plan, columns(plan)[:count], names)
