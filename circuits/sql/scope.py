"""Names: which column of a plan a name in the text stands for.

A scope is what a FROM clause offers: slots, each a column of a table under the table's alias, with
the expression over the clause's plan that gives its value. Names are compared without case, as in
DuckDB. ``JOIN ... USING (k)`` leaves one unqualified ``k``: the slot of the first table, whose
``merged`` value it is; the second one can only be reached by its table's name.

A subquery's scope has a parent. A column that is found there is numbered from ``OUTER`` on, so that
an expression can hold columns of both queries, and none is taken for the other by mistake.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from sqlglot import exp

from circuits.plan.expressions import Column, Expression, columns_of, substitute
from circuits.plan.nodes import Plan
from circuits.sql.source import SqlSource

__all__ = ["OUTER", "Scope", "Slot", "is_correlated", "is_outer", "shift_columns", "slots_of"]

OUTER: Final = 1 << 32


def is_outer(index: int) -> bool:
    """Is it the number of a column of the enclosing query?"""
    return OUTER <= index < 2 * OUTER


@dataclass(frozen=True)
class Slot:
    """A column of a table in FROM.

    Args:
        table: The alias of the table.
        name: The name of the column.
        value: Its value over the plan of the clause.
        merged: The value under its unqualified name, after ``USING``; None: ``value``.
        shadowed: It has no unqualified name, because ``USING`` merged it into another one.
        refusal: Why it has no value, if it has none.
    """

    table: str
    name: str
    value: Expression
    merged: Expression | None = None
    shadowed: bool = False
    refusal: str = ""

    @property
    def unqualified(self) -> Expression:
        return self.value if self.merged is None else self.merged

    def map_values(self, change: Callable[[Expression], Expression]) -> Slot:
        merged = None if self.merged is None else change(self.merged)
        return replace(self, value=change(self.value), merged=merged)


def slots_of(plan: Plan, table: str, refusals: dict[int, str]) -> tuple[Slot, ...]:
    """The slots of a plan under an alias."""
    return tuple(
        Slot(table, field.name, Column(index, field.type), refusal=refusals.get(index, ""))
        for index, field in enumerate(plan.fields)
    )


def shift_columns(expression: Expression, by: int) -> Expression:
    """The expression over the columns ``by`` places to the right."""
    return substitute(expression, lambda column: Column(column.index + by, column.type))


def is_correlated(expression: Expression) -> bool:
    """Does the expression read a column of the enclosing query?"""
    return any(map(is_outer, columns_of(expression)))


def _is_same_name(left: str, right: str) -> bool:
    return left.casefold() == right.casefold()


@dataclass(frozen=True)
class Scope:
    """The slots of a FROM clause, and the scope around a subquery.

    Args:
        source: The text, for errors.
        slots: The columns here.
        parent: The scope around, whose columns can be named too.
        hidden: The scope around, where SQL could name its columns but it is not supported.
    """

    source: SqlSource
    slots: tuple[Slot, ...] = ()
    parent: Scope | None = None
    hidden: Scope | None = None

    def resolve(self, node: exp.Column) -> Expression:
        """The value of a column by its name.

        Raises:
            SqlError: No column has the name, or several have.
            UnsupportedSqlError: It is a column of a query further out than the enclosing one.
        """
        found = self.find(node)
        if found is None:
            raise self._unknown_column_error(node)
        return found

    def find(self, node: exp.Column) -> Expression | None:
        """The value of a column here or in the enclosing queries, None if there is none."""
        table, matches = node.table, self.matches(node)
        if matches:
            if matches[0].refusal:
                raise self.source.unsupported(node, *matches[0].refusal.split("; ", 1))
            return matches[0].value if table else matches[0].unqualified
        if self.parent is None or (table and self.has_table(table)):
            beyond = None if table and self.has_table(table) else self.hidden
            if beyond is not None and beyond.find(node) is not None:
                raise self.source.unsupported(
                    node,
                    f"column {node.sql()!r} of the enclosing query, from within a set operation, "
                    "WITH, FROM or a grouped query,",
                    "join the tables, or name it in the WHERE of an EXISTS or IN of its own",
                )
            return None
        outside = self.parent.find(node)
        if outside is not None and is_correlated(outside):
            raise self.source.unsupported(
                node,
                f"column {node.sql()!r} of a query two levels further out",
                "pass it through the subquery in between",
            )
        return None if outside is None else shift_columns(outside, OUTER)

    def matches(self, node: exp.Column) -> list[Slot]:
        """The slot that a column names, in a list that is empty if there is none."""
        self.source.only(node, "this", "table")
        table, name = node.table, node.name
        matches = [
            slot
            for slot in self.slots
            if _is_same_name(slot.name, name)
            and (_is_same_name(slot.table, table) if table else not slot.shadowed)
        ]
        if len(matches) > 1:
            places = _list_names(f"{slot.table}.{slot.name}".removeprefix(".") for slot in matches)
            raise self.source.error(
                node, f"column {node.sql()!r} is ambiguous: {places}; name the table or an alias"
            )
        return matches

    def has_table(self, table: str) -> bool:
        """Is there a table of this alias in the clause itself?"""
        return any(_is_same_name(slot.table, table) for slot in self.slots)

    def expand_star(self, node: exp.Star, table: str = "") -> Iterator[tuple[str, Expression]]:
        """Names and values of the columns of ``*`` or ``table.*``."""
        self.source.only(node, "except_")
        if table and not self.has_table(table):
            known = ", ".join(dict.fromkeys(slot.table for slot in self.slots)) or "none"
            raise self.source.error(
                node.parent or node, f"unknown table {table!r} before '.*'; in FROM: {known}"
            )
        if not self.slots:
            raise self.source.error(node, "'*' without a FROM clause; name the columns")
        excluded = {}
        for name in node.args.get("except_") or ():
            if not isinstance(name, exp.Column | exp.Identifier) or not name.name:
                raise self.source.error(name, "EXCLUDE takes names of columns")
            if isinstance(name, exp.Column):
                self.source.only(name, "this")
            excluded[name.name.casefold()] = name
        seen = set()
        for slot in self.slots:
            if (table and not _is_same_name(slot.table, table)) or (not table and slot.shadowed):
                continue
            if slot.name.casefold() in excluded:
                seen.add(slot.name.casefold())
            elif slot.refusal:
                raise self.source.unsupported(node, *slot.refusal.split("; ", 1))
            else:
                yield slot.name, slot.value if table else slot.unqualified
        for key, name in excluded.items():
            if key not in seen:
                raise self.source.error(name, f"unknown column {name.name!r} in EXCLUDE")

    def name(self, node: exp.Column) -> str:
        """How a column is called where it was made, if it is there; else as written."""
        table, name = node.table, node.name
        for slot in self.slots:
            if _is_same_name(slot.name, name) and (not table or _is_same_name(slot.table, table)):
                return slot.name
        return self.parent.name(node) if self.parent else name

    def _unknown_column_error(self, node: exp.Column) -> Exception:
        table = node.table
        scopes = list(self._enclosing_scopes())
        slots = [slot for scope in scopes for slot in scope.slots]
        if table and not any(_is_same_name(slot.table, table) for slot in slots):
            known = _list_names(slot.table for slot in slots)
            return self.source.error(node, f"unknown table {table!r}; in FROM: {known}")
        if table:
            known = _list_names(slot.name for slot in slots if _is_same_name(slot.table, table))
            return self.source.error(
                node, f"unknown column {node.name!r} of {table!r}; it has: {known}"
            )
        known = _list_names(f"{slot.table}.{slot.name}".removeprefix(".") for slot in slots)
        return self.source.error(node, f"unknown column {node.name!r}; in FROM: {known}")

    def _enclosing_scopes(self) -> Iterator[Scope]:
        yield self
        if self.parent is not None:
            yield from self.parent._enclosing_scopes()


def _list_names(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names)) or "none"
