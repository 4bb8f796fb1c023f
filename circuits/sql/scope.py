"""Name resolution: the column of a plan that a name in the text refers to.

A scope has the names of a FROM clause. It is a list of slots. A slot is a column of a table under
the alias of the table, with its value: an expression over the plan of the clause. Names are
compared without case, as in DuckDB. ``JOIN ... USING (k)`` leaves one unqualified ``k``: the
``merged`` value of the slot of the first table. The second slot is only reachable by the name of
its table.

The scope of a subquery has a parent. Columns of the parent are numbered from ``OUTER`` on, so that
an expression can contain columns of both queries without confusion.

Alternatives considered: sqlglot's ``qualify`` and ``build_scope`` (tried with sqlglot 30). They
resolve the same names, but cannot replace this module:

- Errors: an unknown and an ambiguous name give the same message without candidates; a duplicate
  alias or an unknown table before ``.*`` gives no place at all.
- Places: the columns that come from ``*``, from USING and from expanded aliases have no place or
  that of another clause, so later errors would point to the wrong word.
- Semantics: ``JOIN ... USING`` becomes COALESCE of both sides for inner joins too; an ambiguous
  alias below an expression of ORDER BY is resolved where this module raises an error; ``GROUP BY
  1`` of an aggregate passes.
- Names: column names lose their case, and ``count(*)`` becomes ``_col_0``.
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
    """Return whether an index is that of a column of the enclosing query."""
    return OUTER <= index < 2 * OUTER


@dataclass(frozen=True)
class Slot:
    """A column of a table in FROM.

    Args:
        table: The alias of the table.
        name: The name of the column.
        value: Its value over the plan of the clause.
        merged: The value under its unqualified name, after ``USING``; None: ``value``.
        shadowed: True if it has no unqualified name, because ``USING`` merged it into another slot.
    """

    table: str
    name: str
    value: Expression
    merged: Expression | None = None
    shadowed: bool = False

    @property
    def unqualified(self) -> Expression:
        return self.value if self.merged is None else self.merged

    def map_values(self, change: Callable[[Expression], Expression]) -> Slot:
        merged = None if self.merged is None else change(self.merged)
        return replace(self, value=change(self.value), merged=merged)


def slots_of(plan: Plan, table: str) -> tuple[Slot, ...]:
    """Return the slots of a plan under an alias."""
    return tuple(
        Slot(table, field.name, Column(index, field.type))
        for index, field in enumerate(plan.fields)
    )


def shift_columns(expression: Expression, by: int) -> Expression:
    """Return the expression with its columns ``by`` places to the right."""
    return substitute(expression, lambda column: Column(column.index + by, column.type))


def is_correlated(expression: Expression) -> bool:
    """Return whether the expression reads a column of the enclosing query."""
    return any(map(is_outer, columns_of(expression)))


def _is_same_name(left: str, right: str) -> bool:
    return left.casefold() == right.casefold()


@dataclass(frozen=True)
class Scope:
    """The slots of a FROM clause, and the scope around a subquery.

    Args:
        source: The text, for errors.
        slots: The columns of the clause.
        parent: The scope of the enclosing query, whose columns can be named too.
        hidden: The scope of an enclosing query whose columns SQL could name, but this package does
            not support it.
    """

    source: SqlSource
    slots: tuple[Slot, ...] = ()
    parent: Scope | None = None
    hidden: Scope | None = None

    def resolve(self, node: exp.Column) -> Expression:
        """Return the value of a column by its name.

        Raises:
            SqlError: No column has the name, or several have.
            UnsupportedSqlError: It is a column of a query further out than the enclosing one.
        """
        found = self.find(node)
        if found is None:
            raise self._unknown_column_error(node)
        return found

    def find(self, node: exp.Column) -> Expression | None:
        """Return the value of a column here or in the enclosing queries, None if there is none."""
        table, matches = node.table, self.matches(node)
        if matches:
            return matches[0].value if table else matches[0].unqualified
        if self.parent is None or (table and self.has_table(table)):
            beyond = None if table and self.has_table(table) else self.hidden
            if beyond is not None and beyond.find(node) is not None:
                raise self.source.unsupported(
                    node,
                    f"column {node.sql()!r} of the enclosing query, from within a set operation, "
                    "WITH, FROM or a grouped query,",
                    "join the tables, or name it in the WHERE of a separate EXISTS or IN",
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
        """Return the slot that a column names in a list; the list is empty if there is none."""
        self.source.accept(node, "this", "table")
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
        """Return whether the clause itself has a table with this alias."""
        return any(_is_same_name(slot.table, table) for slot in self.slots)

    def expand_star(self, node: exp.Star, table: str = "") -> Iterator[tuple[str, Expression]]:
        """Yield names and values of the columns of ``*`` or ``table.*``."""
        self.source.accept(node, "except_")
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
                self.source.accept(name, "this")
            excluded[name.name.casefold()] = name
        seen = set()
        for slot in self.slots:
            if (table and not _is_same_name(slot.table, table)) or (not table and slot.shadowed):
                continue
            if slot.name.casefold() in excluded:
                seen.add(slot.name.casefold())
            else:
                yield slot.name, slot.value if table else slot.unqualified
        for key, name in excluded.items():
            if key not in seen:
                raise self.source.error(name, f"unknown column {name.name!r} in EXCLUDE")

    def name(self, node: exp.Column) -> str:
        """Return the name of a column as its table spells it; of an unknown column, as written."""
        table, name = node.table, node.name
        for slot in self.slots:
            if _is_same_name(slot.name, name) and (not table or _is_same_name(slot.table, table)):
                return slot.name
        return self.parent.name(node) if self.parent else name

    def _unknown_column_error(self, node: exp.Column) -> Exception:
        table = node.table
        scopes = list(self.enclosing_scopes())
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

    def enclosing_scopes(self) -> Iterator[Scope]:
        """Yield this scope and the scopes around it, innermost first."""
        yield self
        if self.parent is not None:
            yield from self.parent.enclosing_scopes()


def _list_names(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names)) or "none"
