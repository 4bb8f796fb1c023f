"""FROM: tables, queries and VALUES, and their joins.

A comma binds less tightly than JOIN: ``a, b JOIN c`` is ``a`` beside ``(b JOIN c)``. An inner join
is a CrossJoin and one Filter per condition, in textual order. The join order is not decided here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa
from sqlglot import exp

from circuits.plan.expressions import Column, Expression, Literal, substitute
from circuits.plan.nodes import CrossJoin, Filter, Map, OuterJoin, PlanNode, Semijoin, columns
from circuits.sql.conditions import restrict
from circuits.sql.environment import (
    NO_RANK_RANGES,
    DerivedTable,
    Environment,
    RankRanges,
    check_rank_names,
    rename_columns,
)
from circuits.sql.expressions import Clause
from circuits.sql.grouping import ONE_ROW
from circuits.sql.parsing import COMMA, WRITTEN
from circuits.sql.rows import Rows
from circuits.sql.scope import Scope, Slot, is_correlated, slots_of
from circuits.sql.unnesting import is_table_function, read_table_function
from circuits.sql.values import read_values
from circuits.types import functions

__all__ = ["read_from_clause"]

TRUE: Final = Literal(True, pa.bool_())
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


def read_from_clause(
    environment: Environment,
    node: exp.Select,
    parent: Scope | None,
    ranks: Mapping[int, RankRanges],
) -> Rows:
    """Read FROM; ``ranks`` are the ranks to keep of a derived table, by the ``id`` of its node."""
    source = environment.source
    clause = node.args.get("from_")
    joins = node.args.get("joins") or []
    if clause is None:
        if joins:
            raise source.error(joins[0], "a join without FROM")
        return Rows(environment, ONE_ROW, (), parent)
    source.accept(clause, "this")
    rows = _FromReader(environment, parent, ranks).read(clause.this, joins)
    for view in node.args.get("laterals") or ():
        if not is_table_function(view):
            raise source.unsupported(view, "LATERAL VIEW of this function", "use explode(list)")
        read_table_function(rows, view)
    return rows


class _FromReader:
    """Reads one FROM clause."""

    def __init__(
        self, environment: Environment, parent: Scope | None, ranks: Mapping[int, RankRanges]
    ) -> None:
        self.environment = environment
        self.source = environment.source
        self.parent = parent
        self.ranks = ranks

    def read(self, first: exp.Expr, joins: list[exp.Join]) -> Rows:
        """Return the tables of a list with commas and joins, side by side."""
        groups = [self._read_item(first)]
        for join in joins:
            self.source.accept(join, "this", "on", "side", "kind", "using", "method")
            bare = not any(
                join.args.get(name) for name in ("on", "side", "kind", "using", "method")
            )
            if is_table_function(join.this):
                groups = [self._unnest(self._cross(groups, first), join)]
            elif not bare:
                groups[-1] = self._join(groups[-1], join)
            elif join.meta.get(COMMA):
                groups.append(self._read_item(join.this))
            else:
                raise self.source.error(
                    join.this, "JOIN without ON or USING; write CROSS JOIN for all combinations"
                )
        return self._cross(groups, first)

    def _cross(self, groups: list[Rows], first: exp.Expr) -> Rows:
        """Return all combinations of the rows of items of FROM."""
        rows = groups[0]
        for right in groups[1:]:
            self._check_distinct_names(rows, right, first)
            plan = CrossJoin((rows.plan, right.plan))
            rows.append_columns_of(right)
            rows.plan = plan
        return rows

    def _unnest(self, rows: Rows, join: exp.Join) -> Rows:
        """Apply UNNEST or a function that makes rows to the items before it."""
        self.source.accept(join, "this", *JOIN_ARGUMENTS)
        side, kind = ((join.args.get(name) or "").upper() for name in ("side", "kind"))
        join_kind, on = JOIN_KINDS.get((side, kind)), join.args.get("on")
        if join_kind not in ("inner", "cross", "left") or join.args.get("using"):
            raise self.source.unsupported(
                join.this, "this kind of join with UNNEST", "write CROSS JOIN or LEFT JOIN ON TRUE"
            )
        is_true = isinstance(on, exp.Boolean) and on.this
        if join_kind == "left" and on is not None and not is_true:
            raise self.source.unsupported(
                on, "LEFT JOIN with UNNEST on a condition", "write ON TRUE"
            )
        read_table_function(rows, join.this, outer=join_kind == "left")
        if on is not None and not is_true:
            restrict(rows, on, "JOIN ... ON")
        elif on is not None:
            self.source.accept(on, "this")
        return rows

    def _is_comma(self, join: exp.Join) -> bool:
        """Return whether a join is a comma; sqlglot has one node for it and for a bare JOIN."""
        self.source.accept(join, "this", *JOIN_ARGUMENTS)
        if any(join.args.get(name) for name in JOIN_ARGUMENTS):
            return False
        if not join.meta.get(COMMA):
            raise self.source.error(
                join.this, "JOIN without ON or USING; write CROSS JOIN for all combinations"
            )
        return True

    def _read_item(self, node: exp.Expr) -> Rows:
        """Read a table and the joins to it within brackets."""
        rows = self._read_table(node)
        for join in node.args.get("joins") or []:
            if self._is_comma(join):
                raise self.source.unsupported(
                    join.this, "a comma in a bracketed join", "write CROSS JOIN"
                )
            rows = self._join(rows, join)
        return rows

    def _read_table(self, node: exp.Expr) -> Rows:
        if is_table_function(node):
            rows = Rows(self.environment, ONE_ROW, (), self.parent)
            read_table_function(rows, node)
            return rows
        source, ranks = self.source, self.ranks.get(id(node), NO_RANK_RANGES)
        alias = node.args.get("alias")
        names: list[exp.Identifier] = []
        if alias is not None:
            source.accept(alias, "this", "columns")
            names = alias.args.get("columns") or []
        if isinstance(node, exp.Table):
            source.accept(node, "this", "alias", "joins", *(["db"] if node.db else []))
            if node.db:
                raise source.unsupported(
                    node, f"the schema in table name {node.sql()!r}", "name the table alone"
                )
            derived = self.environment.plan_table(node, ranks)
            name = node.alias or node.name
        elif isinstance(node, exp.Subquery):
            if isinstance(node.this, exp.Table | exp.Subquery) and not _is_query(node.this):
                return self._read_bracketed(node)
            source.accept(node, "this", "alias", "joins")
            apart = self.environment.without_outer_columns(self.parent)
            derived = apart.queries.plan_query(apart, node.this, ranks)
            check_rank_names(source, node, derived, ranks)
            name = node.alias
        elif isinstance(node, exp.Values):
            source.accept(node, "expressions", "alias", "joins")
            derived = DerivedTable(read_values(self.environment, node))
            name = node.alias
        else:
            raise source.unsupported(
                node,
                f"{source.construct(node)} in FROM",
                "there are tables, queries and VALUES",
                word=str(node.meta.get(WRITTEN, node.key)),
            )
        derived = rename_columns(source, derived, names)
        slots = slots_of(derived.plan, name, derived.unreadable_columns)
        return Rows(self.environment, derived.plan, slots, self.parent)

    def _read_bracketed(self, node: exp.Subquery) -> Rows:
        """Read ``(a JOIN b ON ...)``; the tables keep their names unless there is an alias."""
        self.source.accept(node, "this", "alias", "joins")
        rows = self._read_item(node.this)
        alias = node.args.get("alias")
        if alias is None:
            return rows
        self.source.accept(alias, "this")
        scope = Scope(self.source, rows.slots)
        rows.slots = tuple(
            Slot(node.alias, name, value) for name, value in scope.expand_star(exp.Star())
        )
        return rows

    def _check_distinct_names(self, left: Rows, right: Rows, node: exp.Expr) -> None:
        names = {slot.table.casefold() for slot in left.slots}
        for slot in right.slots:
            if slot.table and slot.table.casefold() in names:
                raise self.source.error(
                    node, f"two tables in FROM are called {slot.table!r}; give one an alias"
                )

    def _join(self, left: Rows, join: exp.Join) -> Rows:
        source = self.source
        side, kind, method = (
            (join.args.get(name) or "").upper() for name in ("side", "kind", "method")
        )
        join_kind = JOIN_KINDS.get((side, kind))
        if join_kind is None or method not in ("", "NATURAL"):
            words = " ".join(filter(None, (method, side, kind, "JOIN")))
            raise source.unsupported(join.this, words, word=method or kind or side)
        right = self._read_item(join.this)
        self._check_distinct_names(left, right, join.this)
        width, left_slots = left.width, left.slots
        joined = Rows(self.environment, left.plan, left_slots, self.parent)
        joined.correlated = list(left.correlated)
        joined.append_columns_of(right)
        right_slots = joined.slots[len(left_slots) :]
        equal, slots = self._read_using(join, join_kind, method, left_slots, right_slots)
        on = join.args.get("on")
        if join_kind == "cross" and (on or equal):
            raise source.error(join.this, "CROSS JOIN with a condition; write JOIN")
        if join_kind != "cross" and not on and not equal:
            raise source.error(join.this, f"{join_kind.upper()} JOIN without ON or USING")
        if join_kind in ("inner", "cross"):
            joined.plan = CrossJoin((left.plan, right.plan))
            for condition in equal:
                joined.plan = Filter(joined.plan, condition)
            if on is not None:
                restrict(joined, on, "JOIN ... ON")
            joined.slots = slots
            return joined
        if joined.correlated and (join_kind in ("right", "full") or right.correlated):
            raise source.unsupported(
                join.this,
                f"a correlated condition inside of a {join_kind} join",
                "use it in WHERE",
            )
        clause = Clause(source, f"{join_kind.upper()} JOIN ... ON", joined.column)
        parts = [*equal, *([clause.predicate(on)] if on is not None else [])]
        predicate = parts[0] if len(parts) == 1 else functions.call("and", *parts)
        if is_correlated(predicate):
            raise source.unsupported(
                on or join.this,
                f"a column of the enclosing query in a {join_kind} join's condition",
                "use it in WHERE",
            )
        joined.plan = _outer_join(join_kind, left.plan, right.plan, predicate, width)
        joined.slots = left_slots if join_kind in ("semi", "anti") else slots
        return joined

    def _read_using(
        self,
        join: exp.Join,
        join_kind: str,
        method: str,
        left: tuple[Slot, ...],
        right: tuple[Slot, ...],
    ) -> tuple[list[Expression], tuple[Slot, ...]]:
        """Return the equalities of USING or NATURAL, and the slots with the merged columns."""
        source = self.source
        names = join.args.get("using") or []
        if method == "NATURAL":
            if names or join.args.get("on"):
                raise source.error(join.this, "NATURAL JOIN with a condition")
            mine = {slot.name.casefold() for slot in right if not slot.shadowed}
            common = dict.fromkeys(
                slot.name for slot in left if not slot.shadowed and slot.name.casefold() in mine
            )
            names = [exp.to_identifier(name) for name in common]
            if not names:
                raise source.error(join.this, "NATURAL JOIN of tables without a common column")
        elif names and join.args.get("on"):
            raise source.error(join.this, "JOIN with both ON and USING")
        equal, slots = [], [*left, *right]
        clause = Clause(source, "USING", _no_column)
        seen: set[str] = set()
        for name in names:
            if name.name.casefold() in seen:
                raise source.error(name, f"column {name.name!r} is twice in USING")
            seen.add(name.name.casefold())
            places = []
            for part, where in ((left, "left"), (right, "right")):
                wanted = name.name.casefold()
                found = [s for s in part if s.name.casefold() == wanted and not s.shadowed]
                if len(found) != 1:
                    problem = "is ambiguous" if found else "is unknown"
                    raise source.error(
                        name if name.meta else join.this,
                        f"column {name.name!r} of USING {problem} on the {where} side",
                    )
                if found[0].unreadable_reason:
                    raise source.unsupported(join.this, *found[0].unreadable_reason.split("; ", 1))
                places.append(found[0])
            place = name if name.meta else join.this
            ours, theirs = places[0].unqualified, places[1].unqualified
            equal.append(clause.call(place, "eq", ours, theirs))
            merged = ours
            if join_kind == "right":
                merged = theirs
            elif join_kind == "full":
                merged = clause.call(place, "coalesce", ours, theirs)
            for old, new in (
                (places[0], _replace_slot(places[0], merged=merged)),
                (places[1], _replace_slot(places[1], shadowed=True)),
            ):
                slots[next(i for i, slot in enumerate(slots) if slot is old)] = new
        return equal, tuple(slots)


def _replace_slot(slot: Slot, merged: Expression | None = None, shadowed: bool = False) -> Slot:
    return Slot(slot.table, slot.name, slot.value, merged, shadowed, slot.unreadable_reason)


def _no_column(clause: Clause, node: exp.Column) -> Expression:
    raise AssertionError("USING has no expressions")


def _outer_join(
    join_kind: str, left: PlanNode, right: PlanNode, predicate: Expression, width: int
) -> PlanNode:
    if join_kind in ("semi", "anti"):
        return Semijoin(left, right, predicate, anti=join_kind == "anti")
    if join_kind == "left":
        return OuterJoin(left, right, predicate)
    if join_kind == "full":
        return OuterJoin(left, right, predicate, "full")
    other = len(right.fields)

    def exchange(column: Column) -> Column:
        moved = column.index + other if column.index < width else column.index - width
        return Column(moved, column.type)

    plan = OuterJoin(right, left, substitute(predicate, exchange))
    order = [*range(other, other + width), *range(other)]
    kept = tuple(columns(plan)[index] for index in order)
    return Map(plan, kept, tuple(plan.fields[index].name for index in order))


def _is_query(node: exp.Expr) -> bool:
    """Return whether brackets contain a query, not a join."""
    while isinstance(node, exp.Subquery):
        if node.args.get("alias") or node.args.get("joins"):
            return False
        node = node.this
    return not isinstance(node, exp.Table)
