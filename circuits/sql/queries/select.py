"""SELECT: from FROM and WHERE to the columns of the list, and the clauses after it.

::

    FROM, WHERE -> [GROUP BY, HAVING] -> list -> [QUALIFY] -> [DISTINCT] -> [ORDER BY ... LIMIT]

A name refers first to a column of FROM, then to an alias of the list; in ORDER BY first to an
alias. Within an expression of HAVING or ORDER BY, a name that is both is an error, because dialects
disagree about it. `SelectBuilder.read_column` says where columns of an enclosing query come.

The list is one Map. QUALIFY and LIMIT may sort by expressions that are not in the list. These are
hidden columns after those of the list, and a last Map removes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
from sqlglot import exp

from circuits.plan.expression_text import column_names
from circuits.plan.expressions import (
    Call,
    Column,
    Expression,
    Literal,
    columns_of,
    conjuncts,
    substitute,
)
from circuits.plan.json_values import json_kind_of, without_json_marks
from circuits.plan.nodes import Distinct, Field, Filter, Map, PlanNode, TopK, Values, columns
from circuits.plan.window import Window, WindowCall
from circuits.sql.aggregation.grouping import (
    ONE_ROW,
    Grouping,
    has_aggregate,
    is_group_value,
    is_grouped,
    is_window_value,
)
from circuits.sql.aggregation.grouping_sets import (
    group_keys,
    has_all_keys,
    has_grouping_sets,
    is_in_sets,
    read_grouping_sets,
)
from circuits.sql.aggregation.row_number import (
    find_row_number_conditions,
    is_row_number,
    read_bound,
    read_row_number,
)
from circuits.sql.aggregation.windows import Windows
from circuits.sql.binding.clause import WINDOW_ADVICE, Clause, is_aggregate
from circuits.sql.binding.environment import (
    NO_BOUNDS,
    DerivedTable,
    Environment,
    RowNumberBounds,
    RowNumberRange,
)
from circuits.sql.binding.interval_keys import normalize_interval, normalize_intervals
from circuits.sql.binding.ordering import (
    Limit,
    SortKey,
    limit_rows,
    order_columns,
    position_of,
    read_limit,
    read_order,
    read_position,
)
from circuits.sql.binding.scope import (
    NOW_COLUMN,
    ROW_NUMBER_COLUMN,
    Scope,
    is_correlated,
    is_outer_column,
)
from circuits.sql.binding.select_builder import (
    SelectBuilder,
    add_alias,
    conjuncts_of,
    factor_out_common,
)
from circuits.sql.binding.selection import BoundedRowNumber, Selection
from circuits.sql.expressions.current_time import (
    filter_by_time,
    join_current_time,
    read_timed_condition,
    reads_now,
)
from circuits.sql.expressions.literals import integer_literal
from circuits.sql.queries.column_patterns import expand_items
from circuits.sql.queries.conditions import has_query, restrict
from circuits.sql.queries.group_windows import add_group_window
from circuits.sql.queries.subqueries import add_condition_keys
from circuits.sql.queries.tables import read_from_clause
from circuits.sql.queries.unnesting import read_generator, zip_generators
from circuits.sql.queries.window_tables import replace_session_end
from circuits.sql.syntax.nodes import strip_parentheses
from circuits.types import functions

__all__ = ["finish_selection", "read_from_and_where", "read_selection"]

SELECT_ARGUMENTS: Final = (
    *("expressions", "distinct", "from_", "joins", "where", "group", "having", "qualify"),
    *("order", "limit", "offset", "with_", "laterals", "windows"),
)
# Elsewhere, now() is compared with a value, and the rows are not joined with the time.
CLAUSES_WITH_TIME: Final = ("SELECT",)
CLAUSES_WITH_WINDOWS: Final = ("SELECT", "QUALIFY", "ORDER BY")
WHERE_ADVICE: Final = "name the columns of the enclosing query in WHERE only"


@dataclass(frozen=True)
class _Item:
    """A column of the list; ``value`` is an expression over the rows before grouping."""

    name: str
    node: exp.Expr
    value: Expression


def read_from_and_where(
    environment: Environment, node: exp.Select, parent: Scope | None = None
) -> SelectBuilder:
    """Read FROM and WHERE."""
    numbered = find_row_number_conditions(environment, node)
    replace_session_end(node)
    builder = read_from_clause(environment, node, parent, numbered.bounds_by_table)
    aliases: dict[str, exp.Expr | None] = {}
    builder.aliases = aliases
    for item in node.expressions:
        if isinstance(item, exp.Alias):
            add_alias(aliases, item)
    where = node.args.get("where")
    for column in numbered.column_by_condition.values():
        # FROM applies these conditions. This only checks that the name is not ambiguous.
        builder.scope.find_own_column(column)
    if where is not None:
        environment.source.allow_arguments(where, "this")
        restrict(builder, where.this, "WHERE", frozenset(numbered.column_by_condition))
    add_group_window(builder, node)
    return builder


def read_selection(
    environment: Environment,
    node: exp.Select,
    parent: Scope | None = None,
    row_number_bounds: RowNumberBounds = NO_BOUNDS,
) -> Selection:
    """Read a SELECT up to its list.

    Args:
        environment: The names that it can use.
        node: Its syntax tree.
        parent: The scope of the enclosing query, if it may be correlated.
        row_number_bounds: The numbers that the enclosing query keeps of its row_number() columns.
    """
    environment.source.allow_arguments(node, *SELECT_ARGUMENTS)
    environment = environment.with_common_tables(node, parent)
    return _SelectReader(
        node, read_from_and_where(environment, node, parent), row_number_bounds
    ).read()


class _SelectReader:
    """Reads the clauses after WHERE.

    The plan of the groups is made after all clauses have been read, because each may call
    aggregates. Then the expressions are rewritten over the groups.
    """

    def __init__(
        self, node: exp.Select, builder: SelectBuilder, row_number_bounds: RowNumberBounds
    ) -> None:
        self.node = node
        self.builder = builder
        self.source = builder.source
        self.aliases = dict(builder.aliases)
        group = node.args.get("group")
        has_sets = group is not None and has_grouping_sets(group)
        self.grouping = Grouping(builder, has_sets=has_sets) if is_grouped(node) else None
        #: False if the query has one row even if its input has none.
        self.has_group_by = group is not None
        self.windows = Windows(self._named_windows(), builder.json_kinds)
        self.qualify_parts: list[exp.Expr] = []  # except the bound of ``self.row_number``
        self.row_number = self._find_row_number(row_number_bounds)
        self.items = self._read_items()

    def read(self) -> Selection:
        self.builder.aliases = self.aliases
        self._read_group_by()
        having = self._read_having()
        row_number = self._read_row_number()
        qualify = self._clause("QUALIFY")
        filters = [(part, _read_condition(qualify, part)) for part in self.qualify_parts]
        order_by = self._read_order_by()
        distinct_on = self._read_distinct_on()
        correlated_conditions = self._read_correlated_conditions()
        self.windows.check_unused(self._clause("WINDOW"))
        plan = self.builder.plan
        if self.grouping is not None:
            plan = self.grouping.build_plan(self.node, has_group_by=self.has_group_by)
        selection = Selection(
            self.node,
            self.source,
            self._apply_having(plan, having),
            names=tuple(item.name for item in self.items),
            outputs=tuple(self._over_groups(item.node, item.value) for item in self.items),
            correlated_conditions=tuple(map(self._value_over_groups, correlated_conditions)),
            row_number=row_number and row_number.map(self._value_over_groups),
            order_by=tuple(key.map(self._value_over_groups) for key in order_by),
            filters=tuple(self._over_groups(part, condition) for part, condition in filters),
            domain=self.builder.domain,
            domain_columns=tuple(map(self._value_over_groups, self.builder.domain_columns)),
            distinct_on=tuple(
                normalize_interval(self._value_over_groups(value)) for value in distinct_on
            ),
        )
        return self._over_windows(selection) if self.windows else selection

    def _over_windows(self, selection: Selection) -> Selection:
        """Add the window functions to the plan, and let all expressions read their results."""
        if selection.correlated_conditions:
            raise self.source.correlated(
                self.node,
                "a window function in a correlated subquery",
                "compute it in a query in WITH or FROM",
            )
        columns_read = {index for value in selection.expressions for index in columns_of(value)}
        selection.plan = self.windows.plan(
            selection.plan,
            self._value_over_groups,
            columns_read,
            selection.domain_columns,
        )
        return selection.map(self.windows.replace_placeholders)

    def _clause(self, name: str) -> Clause:
        """Return a clause whose expressions may call aggregates."""
        clause = self.grouping.clause(name) if self.grouping else self.builder.clause(name)
        read_window = self.windows.read if name in CLAUSES_WITH_WINDOWS else _refuse_window
        read_now = join_current_time if name in CLAUSES_WITH_TIME else clause.read_now
        return replace(clause, read_window=read_window, read_now=read_now)

    def _named_windows(self) -> dict[str, exp.Window]:
        named: dict[str, exp.Window] = {}
        for window in self.node.args.get("windows") or ():
            if named.setdefault(window.name.casefold(), window) is not window:
                raise self.source.error(window, f"two windows {window.name!r}; rename one")
        return named

    def _find_row_number(
        self, row_number_bounds: RowNumberBounds
    ) -> tuple[exp.Window, RowNumberRange] | None:
        """Return the row_number() that QUALIFY or the enclosing query bounds, and its bound.

        The enclosing query passes at most one bound. Of several bounds, the first is planned as a
        TopK; the others, all of QUALIFY, stay ordinary conditions.
        """
        bounded: list[tuple[exp.Window, RowNumberRange]] = []
        for name, kept_numbers in row_number_bounds.items():
            value = self.aliases.get(name)
            if value is not None and is_row_number(value):
                bounded.append((value, kept_numbers))
        qualify = self.node.args.get("qualify")
        if qualify is not None:
            self.source.allow_arguments(qualify, "this")
            for part in conjuncts_of(qualify.this):
                bound = read_bound(part)
                value = bound.value if bound else part
                if isinstance(value, exp.Column) and not value.table:
                    is_alias = self.builder.find_own_value(value) is None
                    value = (self.aliases.get(value.name.casefold()) if is_alias else None) or value
                if bound is None or not is_row_number(value) or bounded:
                    self.qualify_parts.append(part)
                    continue
                for column in part.find_all(exp.Column):
                    self.source.allow_arguments(column, "this", "table")
                self.source.allow_arguments(part, "this", "expression", "low", "high")
                bounded.append((value, bound.kept_numbers))
        return bounded[0] if bounded else None

    def _read_row_number(self) -> BoundedRowNumber | None:
        if self.row_number is None:
            return None
        return read_row_number(self._clause("QUALIFY"), *self.row_number, self.windows)

    def _read_items(self) -> list[_Item]:
        items: list[_Item] = []
        aliases_before: dict[str, exp.Expr | None] = {}  # an item can use the aliases before it
        self.builder.aliases = aliases_before
        clause = self._clause("SELECT")
        scope = self.builder.scope
        self.node.set("expressions", expand_items(scope, self.node.expressions))
        if self.grouping is None:
            zip_generators(self.builder, self.node)
        for node in self.node.expressions:
            generated = None if self.grouping else read_generator(self.builder, node)
            if generated is not None:
                items += [_Item(name, node, value) for name, value in generated]
                if isinstance(node, exp.Alias):
                    aliases_before[node.alias.casefold()] = None  # other items cannot use it
            elif isinstance(node, exp.Star):
                items += self._read_star(clause, node, node, scope.expand_star(node))
            elif isinstance(node, exp.Column) and isinstance(node.this, exp.Star):
                self.source.allow_arguments(node, "this", "table")
                columns_of_star: Iterable[tuple[str, Expression]] | None
                columns_of_star = self._fields_of_struct(clause, node)
                if columns_of_star is None:
                    columns_of_star = scope.expand_star(node.this, node.table)
                items += self._read_star(clause, node, node.this, columns_of_star)
            elif isinstance(node, exp.Alias):
                self.source.allow_arguments(node, "this", "alias")
                items.append(self._read_item(clause, node.alias, node.this))
                add_alias(aliases_before, node)
            elif isinstance(node, exp.Column):
                items.append(self._read_item(clause, scope.column_name(node), node))
            else:
                items.append(self._read_item(clause, self.source.default_name(node), node))
        if not items:
            raise self.source.error(self.node, "SELECT without columns; name at least one")
        return items

    def _fields_of_struct(
        self, clause: Clause, node: exp.Column
    ) -> Iterable[tuple[str, Expression]] | None:
        """Return the fields that ``s.*`` names if s is a struct and no table; else None."""
        column = exp.Column(this=node.args["table"])
        if self.builder.scope.has_table(node.table):
            return None
        value = self.builder.find_own_value(column)
        if value is None or not pa.types.is_struct(value.type):
            return None
        self.source.refuse_arguments(node.this)
        names = [field.name for field in value.type]
        return [
            (name, clause.call(node, "struct_field", value, Literal(name, pa.string())))
            for name in names
        ]

    def _read_star(
        self,
        clause: Clause,
        node: exp.Expr,
        star: exp.Star,
        columns_of_star: Iterable[tuple[str, Expression]],
    ) -> Iterator[_Item]:
        """Yield the columns of ``*`` or ``table.*``, after its REPLACE and RENAME."""
        replaced: dict[str, exp.Alias] = {}
        for part in star.args.get("replace") or ():
            self.source.allow_arguments(part, "this", "alias")
            if replaced.setdefault(part.alias.casefold(), part) is not part:
                raise self.source.error(part, f"two REPLACE of column {part.alias!r}; drop one")
        renamed: dict[str, exp.Alias] = {}
        for part in star.args.get("rename") or ():
            self.source.allow_arguments(part, "this", "alias")
            self.source.allow_arguments(part.this, "this")
            name = part.this.name
            renamed[name.casefold()] = part
            if name.casefold() in replaced and self.source.dialect == "duckdb":
                raise self.source.error(
                    part, f"column {name!r} in REPLACE and in RENAME; write it as another item"
                )
        unused = {**replaced, **renamed}
        for name, value in columns_of_star:
            key = name.casefold()
            unused.pop(key, None)
            new_name = renamed[key].alias if key in renamed else name
            if key in replaced:
                yield self._read_item(clause, new_name, replaced[key].this)
            else:
                yield _Item(new_name, node, value)
        for key, part in unused.items():
            word = "REPLACE" if key in replaced else "RENAME"
            raise self.source.error(part, f"unknown column {key!r} in {word} of '*'")

    def _is_key_with_query(self, node: exp.Expr, name: str) -> bool:
        """Return whether an item has a subquery, and GROUP BY names it.

        Such an item is read over the rows before grouping, as GROUP BY reads it.
        """
        group = self.node.args.get("group")
        if group is None or not has_query(node):
            return False
        if has_all_keys(group):
            return not has_aggregate(node)

        item = strip_parentheses(node)

        def is_item(key: exp.Expr) -> bool:
            number = position_of(self.source, key)
            if number is not None:
                items = self.node.expressions
                position = int(number.this) if number.this.isdecimal() else 0
                return 1 <= position <= len(items) and bool(
                    strip_parentheses(items[position - 1].unalias()) == item
                )
            is_alias = isinstance(key, exp.Column) and key.name.casefold() == name.casefold()
            return is_alias or bool(strip_parentheses(key) == item)

        return any(map(is_item, group_keys(group)))

    def _read_item(self, clause: Clause, name: str, node: exp.Expr) -> _Item:
        if self._is_key_with_query(node, name):
            clause = replace(self.builder.clause("SELECT"), read_window=_refuse_window)
        window, kept_numbers = self.row_number or (None, None)
        if kept_numbers is None or node != window:
            return _Item(name, node, clause.read(node))
        if node is not window:
            self.source.mark_read(node)
        type_ = pa.int32() if self.source.is_spark else pa.int64()
        if kept_numbers.first == kept_numbers.last:
            number = functions.call("cast", integer_literal(kept_numbers.first), type=type_)
            return _Item(name, node, number)
        return _Item(name, node, Column(ROW_NUMBER_COLUMN, type_))

    def _read_group_by(self) -> None:
        group, grouping = self.node.args.get("group"), self.grouping
        if group is None or grouping is None:
            return
        clause = self.builder.clause("GROUP BY", read_generator=self.builder.unnest)
        aliases: dict[Expression, str] = {}  # the alias that names a key, by its value

        def read_key(node: exp.Expr) -> int:
            position = position_of(self.source, node)
            if position is not None:
                value = self._key_of_item(self._item_at_position(position), position)
                if value is None:
                    raise self.source.error(
                        position, f"GROUP BY {position.this} is an aggregate; drop it"
                    )
            else:
                value = clause.read(node)
            if is_correlated(value):
                raise self.source.correlated(node, "a correlated GROUP BY", WHERE_ADVICE)
            if self.source.is_spark and "map<" in str(value.type):
                raise self.source.unsupported(
                    node, "GROUP BY of a map in dialect spark", "group by map_entries() of it"
                )
            alias = node.name.casefold() if isinstance(node, exp.Column) else ""
            is_alias = any(item.name.casefold() == alias for item in self.items)
            if is_alias and aliases.setdefault(value, alias) != alias and is_in_sets(node):
                raise self.source.unsupported(
                    node,
                    "a second name of an expression in grouping sets",
                    "name the expression once, or select it in FROM twice",
                )
            grouping.add_key(value)
            return grouping.keys.index(value)

        if has_all_keys(group):
            self._add_all_keys(grouping)
        sets = read_grouping_sets(self.source, group, read_key)
        if sets is not None:
            outer_keys = range(len(self.builder.domain_columns))
            if any(key in outer_keys for keys in sets for key in keys):
                raise self.source.unsupported(
                    group, "a grouping set with a column of the enclosing query", WHERE_ADVICE
                )
            grouping.add_sets(sets)

    def _add_all_keys(self, grouping: Grouping) -> None:
        """Add the keys of GROUP BY ALL: the items without aggregates, except constants.

        In a query with aggregates, a value of the enclosing query is a constant, too. Without keys,
        such a query has one row, as without GROUP BY.
        """
        keys = [(item.node, self._key_of_item(item, item.node)) for item in self.items]
        has_having = self.node.args.get("having") is not None
        if has_having or any(value is None for _, value in keys):
            domain = self.builder.domain_columns

            def is_own(column: int) -> bool:
                return not is_outer_column(column) and all(
                    column not in columns_of(value) for value in domain
                )

            keys = [(node, v) for node, v in keys if v and any(map(is_own, columns_of(v)))]
            self.has_group_by = bool(keys)
        for node, value in keys:
            if value is None or isinstance(value, Literal):
                continue
            if is_correlated(value):
                raise self.source.correlated(node, "a correlated GROUP BY", WHERE_ADVICE)
            grouping.add_key(value)

    def _key_of_item(self, item: _Item, place: exp.Expr) -> Expression | None:
        """Return the value of an item as a key of GROUP BY; None if it has an aggregate.

        An item may have its aggregates and window functions by the alias of an item before it.
        """
        if has_aggregate(item.node):  # also in the arguments of a window function
            return None
        if any(map(is_window_value, columns_of(item.value))):
            raise self.source.unsupported(
                place, "a window function in GROUP BY", "list the other columns in GROUP BY"
            )
        return None if any(map(is_group_value, columns_of(item.value))) else item.value

    def _read_having(self) -> list[tuple[exp.Expr, Expression]]:
        having = self.node.args.get("having")
        if having is None:
            return []
        self.source.allow_arguments(having, "this")
        clause = self._clause("HAVING")
        conditions = []
        for part in conjuncts_of(having.this):
            self._check_names(part, "HAVING")
            conditions.append((part, _read_condition(clause, part)))
        return conditions

    def _apply_having(
        self, plan: PlanNode, conditions: list[tuple[exp.Expr, Expression]]
    ) -> PlanNode:
        for node, condition in conditions:
            over_groups = self._over_groups(node, condition)
            if is_correlated(over_groups):
                raise self.source.correlated(node, "a correlated HAVING", WHERE_ADVICE)
            if reads_now(node):
                plan = filter_by_time(self.source, node, plan, over_groups)
                continue
            for part in conjuncts([factor_out_common(over_groups)]):
                plan = Filter(plan, part)
        return plan

    def _read_correlated_conditions(self) -> list[Expression]:
        correlated = self.builder.correlated_conditions
        if self.grouping is None:
            return [part.condition for part in correlated]
        # An aggregate without GROUP BY has a row even if no row meets the condition. The enclosing
        # query cannot add such a row by comparing keys.
        has_row_without_input = self.grouping.has_set_without_keys and not self.source.is_spark
        if correlated and (not self.has_group_by or has_row_without_input):
            raise self.source.correlated(
                correlated[0].node,
                "a correlated aggregate in EXISTS or IN",
                "compare with it as a scalar subquery, as x = (SELECT max(y) ...)",
            )
        return [add_condition_keys(self.grouping, node, part) for node, part in correlated]

    def _read_order_by(self) -> tuple[SortKey, ...]:
        order = self.node.args.get("order")
        if order is None:
            return ()
        values = [item.value for item in self.items if not isinstance(item.value, Literal)]
        return read_order(self.source, order, self._read_order_key, values)

    def _read_distinct_on(self) -> tuple[Expression, ...]:
        distinct = self.node.args.get("distinct")
        if distinct is None or distinct.args.get("on") is None:
            return ()
        keys = distinct.args["on"]
        self.source.allow_arguments(distinct, "on")
        if isinstance(keys, exp.Tuple):
            self.source.allow_arguments(keys, "expressions")
        nodes = keys.expressions if isinstance(keys, exp.Tuple) else [keys]
        return tuple(map(self._read_order_key, nodes))

    def _read_order_key(self, node: exp.Expr) -> Expression:
        items = self._find_items(node)
        if len({item.value for item in items}) > 1:
            raise self.source.error(
                node, f"column {node.name!r} is ambiguous in ORDER BY; order by its position"
            )
        if items:
            return items[0].value
        self._check_names(node, "ORDER BY")
        value = self._clause("ORDER BY").read(node)
        if isinstance(value, Literal):
            raise self.source.error(node, "ORDER BY a constant has no effect; name a column")
        return value

    def _find_items(self, node: exp.Expr) -> list[_Item]:
        """Return the items that a position or a name in ORDER BY refers to."""
        position = position_of(self.source, node)
        if position is not None:
            return [self._item_at_position(position)]
        if isinstance(node, exp.Column) and not node.table:
            self.source.allow_arguments(node, "this", "table")
            name = node.name.casefold()
            return [item for item in self.items if item.name.casefold() == name]
        return []

    def _item_at_position(self, node: exp.Expr) -> _Item:
        return self.items[read_position(self.source, node, len(self.items))]

    def _check_names(self, node: exp.Expr, clause: str) -> None:
        """Refuse a name that is both a column of FROM and the alias of another expression.

        In HAVING, the name of a key of the groups is that key.
        """

        def is_other_context(part: exp.Expr) -> bool:
            return is_aggregate(part) or isinstance(part, exp.Query)

        for part in node.walk(prune=is_other_context):
            if not isinstance(part, exp.Column) or part.table:
                continue
            items = [item for item in self.items if item.name.casefold() == part.name.casefold()]
            value = self.builder.find_own_value(part) if items else None
            if clause == "HAVING" and self.grouping and value in self.grouping.keys:
                continue  # the name of a key is the key
            if value is not None and any(item.value != value for item in items):
                raise self.source.error(
                    part,
                    f"{part.name!r} in {clause} is both a column and the alias of another "
                    "expression; put the table before it, or choose another alias",
                )

    def _over_groups(self, node: exp.Expr, value: Expression) -> Expression:
        return self.grouping.rewrite_over_groups(node, value) if self.grouping else value

    def _value_over_groups(self, value: Expression) -> Expression:
        return self._over_groups(self.node, value)


def _read_condition(clause: Clause, node: exp.Expr) -> Expression:
    """Read a condition, in which the current time is a column outside of window functions."""
    if not reads_now(node):
        return clause.read_condition(node)

    def read_window(inner: Clause, window: exp.Expr) -> Expression:
        return clause.read_window(replace(inner, read_now=clause.read_now), window)

    return read_timed_condition(
        lambda read_now: replace(clause, read_now=read_now, read_window=read_window).read_condition(
            node
        )
    )


def _refuse_window(clause: Clause, node: exp.Expr) -> Expression:
    function = node.this
    has_name = isinstance(function, exp.Func | exp.IgnoreNulls)
    word = clause.source.name_in_text(function) if has_name else ""
    raise clause.source.unsupported(
        node, f"a window function in {clause.name}", WINDOW_ADVICE, word=word
    )


def finish_selection(selection: Selection) -> DerivedTable:
    """Apply the list, then QUALIFY, DISTINCT, ORDER BY and LIMIT."""
    source, node, row_number = selection.source, selection.node, selection.row_number
    limit, distinct = read_limit(source, node), node.args.get("distinct")
    if distinct is not None:
        _check_distinct(selection, distinct, limit)
    outputs = (*selection.domain_columns, *selection.outputs)
    domain_keys = tuple(range(len(selection.domain_columns)))
    order_by = [key.expression for key in selection.order_by]
    hidden: list[Expression] = []  # read by the clauses after the list, then removed
    if row_number is not None:
        hidden += [*row_number.partition_by, *(key.expression for key in row_number.order_by)]
        hidden += [part for value in selection.filters for part in _parts_to_keep(value)]
    hidden += selection.distinct_on
    if limit is not None or selection.distinct_on:
        hidden += order_by
    if any(map(is_correlated, [*selection.outputs, *hidden, *order_by])):
        raise source.correlated(node, "a correlated subquery of this form", WHERE_ADVICE)
    hidden = [value for value in dict.fromkeys(hidden) if value not in outputs]
    expressions = [*outputs, *hidden]
    width = len(outputs)
    plan = selection.plan
    if row_number is None:
        for condition in selection.filters:
            plan = _filter(selection, plan, condition)
    # `_select_numbered_rows` replaces this 0 by the row number.
    values = [Literal(0, v.type) if _is_row_number(v) else v for v in expressions]
    plan = _map_columns(plan, values, _column_names(selection))
    if row_number is not None:
        plan = _select_numbered_rows(plan, expressions, row_number, domain_keys)
        # A row_number() counts all rows, so other conditions of QUALIFY come after it.
        for condition in selection.filters:
            plan = _filter(selection, plan, _over_kept(condition, expressions, columns(plan)))
    if selection.distinct_on:
        partition_by = map(expressions.index, selection.distinct_on)
        keys = tuple(dict.fromkeys([*domain_keys, *partition_by]))
        plan = TopK(plan, keys, order_columns(selection.order_by, expressions), 1)
    elif distinct is not None:
        plan = Distinct(normalize_intervals(_keep_first_columns(plan, width)))
        computed = [value for value in dict.fromkeys(order_by) if value not in outputs]
        if limit is not None and computed:
            expressions = [*outputs, *computed]
            values = [_over_outputs(value, outputs, columns(plan)) for value in expressions]
            plan = _map_columns(plan, values, tuple(field.name for field in plan.fields))
    if limit is not None:
        order = order_columns(selection.order_by, expressions)
        plan = limit_rows(plan, domain_keys, order, limit)
    return DerivedTable(_keep_first_columns(plan, width), selection.domain)


def _filter(selection: Selection, plan: PlanNode, condition: Expression) -> PlanNode:
    """Keep the rows for which a condition of QUALIFY is true."""
    if NOW_COLUMN in columns_of(condition):
        return filter_by_time(selection.source, selection.node.args["qualify"], plan, condition)
    return Filter(plan, condition)


def _parts_to_keep(condition: Expression) -> list[Expression]:
    """Return the values that a condition needs after the list: itself, unless it reads the time."""
    if NOW_COLUMN not in columns_of(condition):
        return [condition]
    parts: list[Expression] = []

    def add(column: Column) -> Column:
        if column.index != NOW_COLUMN:
            parts.append(column)
        return column

    substitute(condition, add)
    return parts


def _over_kept(
    condition: Expression, kept: Sequence[Expression], kept_columns: Sequence[Column]
) -> Expression:
    """Return a condition over the columns with the values of `_parts_to_keep`."""
    if NOW_COLUMN not in columns_of(condition):
        return kept_columns[kept.index(condition)]

    def replace_column(column: Column) -> Column:
        return column if column.index == NOW_COLUMN else kept_columns[kept.index(column)]

    return substitute(condition, replace_column)


def _is_row_number(value: Expression) -> bool:
    """Return whether a value is the placeholder of a bounded row_number()."""
    return isinstance(value, Column) and value.index == ROW_NUMBER_COLUMN


def _select_numbered_rows(
    plan: PlanNode,
    expressions: list[Expression],
    row_number: BoundedRowNumber,
    domain_keys: tuple[int, ...],
) -> PlanNode:
    """Keep the rows in the bounds of a row_number(), and number them if its value is selected."""
    partition_by = map(expressions.index, row_number.partition_by)
    keys = tuple(dict.fromkeys([*domain_keys, *partition_by]))
    order = order_columns(row_number.order_by, expressions)
    first, last = row_number.kept_numbers.first, row_number.kept_numbers.last
    plan = TopK(plan, keys, order, max(0, last - first + 1), first - 1)
    numbers = [index for index, value in enumerate(expressions) if _is_row_number(value)]
    if not numbers:
        return plan
    names = tuple(field.name for field in plan.fields)
    values: list[Expression] = list(columns(plan))
    plan = Window(plan, keys, order, (WindowCall("row_number", (), pa.int64(), "row_number"),))
    number: Expression = columns(plan)[-1]
    if first > 1:
        number = functions.call("add", number, integer_literal(first - 1))
    for index in numbers:
        values[index] = functions.call("cast", number, type=expressions[index].type)
    return Map(plan, tuple(values), names)


def _column_names(selection: Selection) -> tuple[str, ...]:
    """Return the names of the columns of the domain, then those of the list."""
    domain = selection.domain
    fields = () if domain is None else domain.plan.fields
    return (*(field.name for field in fields), *selection.names)


def _check_distinct(selection: Selection, distinct: exp.Expr, limit: Limit | None) -> None:
    source = selection.source
    source.allow_arguments(distinct, "on")
    if distinct.args.get("on"):
        return
    for key in selection.order_by if limit else ():
        if not _is_computed_from(key.expression, selection.outputs):
            raise source.error(
                selection.node.args["order"],
                "ORDER BY of SELECT DISTINCT has an expression that is not in its list; add it "
                "to the list",
            )


def _is_computed_from(value: Expression, outputs: Sequence[Expression]) -> bool:
    """Return whether a value depends on nothing but some expressions."""
    if value in outputs or isinstance(value, Literal):
        return True
    return isinstance(value, Call) and all(_is_computed_from(v, outputs) for v in value.arguments)


def _over_outputs(
    value: Expression, outputs: Sequence[Expression], output_columns: Sequence[Column]
) -> Expression:
    """Return a value that is computed from expressions, over the columns that have them."""
    if value in outputs:
        return output_columns[outputs.index(value)]
    if not isinstance(value, Call):
        return value
    arguments = (_over_outputs(part, outputs, output_columns) for part in value.arguments)
    return replace(value, arguments=tuple(arguments))


def _map_columns(plan: PlanNode, expressions: list[Expression], names: tuple[str, ...]) -> PlanNode:
    """Map each row to the expressions; those without a name become hidden columns."""
    all_names = (*names, *column_names(expressions[len(names) :], plan.fields))
    kinds = tuple(json_kind_of(value, plan.fields) for value in expressions)
    expressions = [without_json_marks(value) for value in expressions]
    if plan == ONE_ROW and all(isinstance(value, Literal) for value in expressions):
        types = [expression.type for expression in expressions]
        fields = tuple(
            Field(name, type, json_kind=kind)
            for name, type, kind in zip(all_names, types, kinds, strict=True)
        )
        return Values(fields, (tuple(e.value for e in expressions if isinstance(e, Literal)),))
    has_same_columns = tuple(expressions) == columns(plan)
    same_fields = tuple((field.name, field.json_kind) for field in plan.fields)
    if has_same_columns and tuple(zip(all_names, kinds, strict=True)) == same_fields:
        return plan
    return Map(plan, tuple(expressions), all_names, kinds)


def _keep_first_columns(plan: PlanNode, count: int) -> PlanNode:
    """Return the plan with its first ``count`` columns only."""
    if len(plan.fields) == count:
        return plan
    names = tuple(field.name for field in plan.fields[:count])
    return Map(plan, columns(plan)[:count], names)
