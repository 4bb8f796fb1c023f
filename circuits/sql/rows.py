"""Rows: the plan of a SELECT while it is read, and the names of its columns.

FROM makes the first plan. Conditions wrap it (`circuits.sql.conditions`). A scalar subquery is
joined, so that its value is one more column on the right. Expressions that have been read stay
valid, because columns are only ever added at the end.

A condition that names columns of the enclosing query cannot be applied here. ``correlated`` keeps
it for the reader of the subquery (`circuits.sql.subqueries`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from typing import Protocol, cast

import pyarrow as pa
from sqlglot import exp

from circuits.plan.expressions import (
    Call,
    Column,
    Expression,
    Literal,
    conjuncts,
    substitute,
)
from circuits.plan.nodes import Filter, PlanNode
from circuits.sql.environment import DerivedTable, Environment, QueryPlanner
from circuits.sql.expressions import Clause
from circuits.sql.scope import Scope, Slot, is_correlated, is_outer, shift_columns
from circuits.sql.selection import Selection
from circuits.types import functions

__all__ = ["QueryReader", "Rows", "add_alias", "conjuncts_of", "factor_out_common"]


class QueryReader(QueryPlanner, Protocol):
    """The interface of the module `circuits.sql.query`, which reads subqueries."""

    def read_rows(
        self, environment: Environment, node: exp.Select, parent: Scope | None = None
    ) -> Rows:
        """Read FROM and WHERE of a SELECT that may name the columns of the scope around it."""

    def read_selection(
        self, environment: Environment, node: exp.Select, parent: Scope | None = None
    ) -> Selection:
        """Read such a SELECT up to its list."""

    def finish_selection(self, selection: Selection) -> DerivedTable:
        """Apply the clauses after the list: QUALIFY, DISTINCT, ORDER BY and LIMIT."""

    def read_generator(
        self, rows: Rows, node: exp.Expr
    ) -> list[tuple[str, Expression]] | None:
        """Apply a function that makes several rows of one, and return its columns."""

    def join_scalar(self, rows: Rows, node: exp.Expr) -> tuple[PlanNode, Expression]:
        """Return the rows with a scalar subquery beside them, and its value there."""


class Rows:
    """The rows of a FROM clause after the conditions that have been applied so far.

    Args:
        environment: The names that subqueries can use.
        plan: The rows so far.
        slots: The names of their columns.
        parent: The scope around, if this is a subquery.
    """

    def __init__(
        self,
        environment: Environment,
        plan: PlanNode,
        slots: Iterable[Slot] = (),
        parent: Scope | None = None,
    ) -> None:
        self.environment = environment
        self.source = environment.source
        self.plan = plan
        self.slots = tuple(slots)
        self.parent = parent
        self.correlated: list[tuple[exp.Expr, Expression]] = []
        self.aliases: Mapping[str, exp.Expr | None] = {}
        self._being_read: set[int] = set()  # ids of aliases in progress, against self-reference

    @property
    def queries(self) -> QueryReader:
        """The reader of subqueries."""
        return cast(QueryReader, self.environment.queries)

    @property
    def scope(self) -> Scope:
        return Scope(self.source, self.slots, self.parent, self.environment.hidden)

    @property
    def width(self) -> int:
        return len(self.plan.fields)

    def clause(self, name: str) -> Clause:
        """Return a clause of expressions over these rows; its subqueries are joined to them."""
        hooks = {"generator": self.unnest} if name == "SELECT" else {}
        return Clause(self.source, name, self.column, scalar=self.join_scalar_subquery, **hooks)

    def unnest(self, clause: Clause, node: exp.Expr) -> Expression:
        """Replace the rows by one row per element of a list, and return the element."""
        made = self.queries.read_generator(self, node)
        if made is None or len(made) != 1:
            raise self.source.unsupported(
                node, "a function with several columns in an expression", "make it a column"
            )
        return made[0][1]

    def column(self, clause: Clause, node: exp.Column) -> Expression:
        """Return a column of FROM, an expression of the list by its alias, or an outer column.

        A name with dots is a column of a table, or a field of a struct: ``t.s.f``, ``s.f``.
        """
        if node.table:
            parts = [part for part in node.parts if isinstance(part, exp.Identifier)]
            scopes = self.scope.enclosing_scopes()
            named = any(scope.has_table(parts[0].name) for scope in scopes)
            if len(parts) > 2 or not named:
                return self._field(clause, node, parts, 2 if named else 1)
        here = Scope(self.source, self.slots).find(node)
        if here is not None:
            return here
        name = node.name.casefold()
        alias = None if node.table else self.aliases.get(name)
        if alias is None and not node.table and name in self.aliases:
            raise self.source.error(
                node, f"{node.name!r} is the alias of several expressions; give each its own"
            )
        if alias is None or id(alias) in self._being_read:
            return self.scope.resolve(node)
        self._being_read.add(id(alias))
        try:
            return clause.read(alias)
        finally:
            self._being_read.remove(id(alias))

    def _field(
        self, clause: Clause, node: exp.Column, parts: list[exp.Identifier], width: int
    ) -> Expression:
        """Return a field of a struct; the first ``width`` parts of the name are the column."""
        column = exp.Column(this=parts[width - 1], table=parts[0] if width == 2 else None)
        column.meta.update(node.meta)
        if width == 1 and self.scope.find(column) is None and len(parts) == 2:
            alias = self.aliases.get(parts[0].name.casefold())
            if alias is None:
                return self.scope.resolve(node)  # the error names the unknown table
        self.source.accept(node, "this", "table", "db", "catalog")
        value = self.column(clause, column)
        for part in parts[width:]:
            if not pa.types.is_struct(value.type):
                raise self.source.error(
                    node, f"{node.sql()!r}: a value of type {value.type} has no fields"
                )
            value = clause.call(node, "struct_field", value, Literal(part.name, pa.string()))
        return value

    def filter_by(self, node: exp.Expr, condition: Expression) -> None:
        """Keep the rows for which a condition is true."""
        for part in conjuncts([factor_out_common(condition)]):
            if is_correlated(part):
                self.correlated.append((node, part))
            else:
                self.plan = Filter(self.plan, part)

    def append_columns_of(self, right: Rows) -> None:
        """Add the names of rows that are to the right of these rows in a new plan."""
        width = self.width

        def shift(expression: Expression) -> Expression:
            return shift_columns(expression, width)

        self.slots += tuple(slot.map_values(shift) for slot in right.slots)
        self.correlated += [
            (node, _shift_own_columns(part, width)) for node, part in right.correlated
        ]

    def join_scalar_subquery(self, clause: Clause, node: exp.Expr) -> Expression:
        """Join a scalar subquery to the rows and return its value."""
        self.plan, value = self.queries.join_scalar(self, node)
        return value


def add_alias(aliases: dict[str, exp.Expr | None], item: exp.Alias) -> None:
    """Record the expression of an alias of the SELECT list; None if it has several."""
    name = item.alias.casefold()
    known = aliases.get(name, item.this)
    aliases[name] = item.this if known == item.this else None


def _shift_own_columns(expression: Expression, width: int) -> Expression:
    """Shift the columns of the query itself, but not those of the enclosing query."""

    def shift(column: Column) -> Column:
        return column if is_outer(column.index) else Column(column.index + width, column.type)

    return substitute(expression, shift)


def conjuncts_of(condition: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the parts of a conjunction in the text."""
    todo = [condition]
    while todo:
        part = todo.pop()
        if isinstance(part, exp.And):
            todo += [part.right, part.left]
        elif isinstance(part, exp.Paren):
            todo.append(part.this)
        else:
            yield part


def factor_out_common(condition: Expression) -> Expression:
    """Factor the conditions that all branches of an OR have in common out of it.

    ``(a and b) or (a and c)`` is ``a and (b or c)``, so that a join condition that is repeated in
    each branch is one condition of a join. Equal also in three-valued logic.
    """
    if not isinstance(condition, Call):
        return condition
    if condition.function == "and":
        return functions.call("and", *map(factor_out_common, condition.arguments))
    if condition.function != "or":
        return condition
    branches = [list(conjuncts([factor_out_common(branch)])) for branch in condition.arguments]
    common = [part for part in branches[0] if all(part in branch for branch in branches)]
    if not common:
        return condition
    common = list(dict.fromkeys(common))
    rests = [[part for part in branch if part not in common] for branch in branches]
    if not all(rests):
        return reduce(lambda left, right: functions.call("and", left, right), common)
    joined = [functions.call("and", *rest) for rest in rests]
    return functions.call("and", *common, functions.call("or", *joined))
