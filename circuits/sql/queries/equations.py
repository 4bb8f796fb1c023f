"""Views and WITH queries that refer to each other: one Fixpoint for all of them.

::

    CREATE RECURSIVE VIEW even(n) AS SELECT 0 UNION SELECT n + 1 FROM odd WHERE n < 9;
    CREATE RECURSIVE VIEW odd(n) AS SELECT n + 1 FROM even WHERE n < 9

Each query is the body of one equation; the views are the least solution. It exists and is unique,
because a body may only join, filter, compute and unite the rows of the recursion, with any number
of references. Unlike WITH RECURSIVE of a single query, whose iterations SQL defines, the solution
does not depend on an order of evaluation. A row of a view occurs once. A row of a WITH query occurs
as often as its query returns it, so a query without UNION or DISTINCT keeps duplicates.

The types of the columns are found as for a single recursion: first from the parts of UNION that
name no recursive view, then again until they are stable.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sqlglot import exp

from circuits.errors import SqlError
from circuits.plan.columns import Fields
from circuits.plan.fixpoint import SET, DistinctMode, Fixpoint
from circuits.plan.nodes import (
    CrossJoin,
    Distinct,
    Filter,
    Map,
    OuterJoin,
    PlanNode,
    RecursiveReference,
    Semijoin,
    Union,
    columns,
)
from circuits.plan.rewrite.nullability import with_nullability
from circuits.plan.unnest import Unnest
from circuits.sql.binding.clause import call_function
from circuits.sql.binding.environment import (
    CommonTable,
    DerivedTable,
    Environment,
    names_table,
    rename_columns,
)
from circuits.sql.queries.recursion import DESCRIPTIONS
from circuits.sql.syntax.source import SqlSource
from circuits.types import functions

__all__ = ["Equation", "order_by_needs", "plan_equations"]

MAX_TYPE_ITERATIONS: Final = 12


@dataclass(frozen=True)
class Equation:
    """A query that may name itself and the other equations.

    Args:
        name: Its name.
        node: The node that errors point to.
        query: The query.
        column_names: The names of its columns, if they are given.
        environment: The names that it can use, without those of the equations.
        keeps_duplicates: True if a row occurs as often as the query returns it, False if once.
    """

    name: str
    node: exp.Expr
    query: exp.Expr
    column_names: Sequence[exp.Identifier]
    environment: Environment
    keeps_duplicates: bool = False

    @property
    def mode(self) -> DistinctMode:
        return DistinctMode("bag") if self.keeps_duplicates else SET


def order_by_needs(names: Mapping[str, frozenset[str]]) -> list[tuple[str, ...]]:
    """Return the names in an order in which each comes after those that it needs.

    Names that need each other are together in one tuple (strongly connected components).

    >>> order_by_needs({"a": frozenset("b"), "b": frozenset("cb"), "c": frozenset("b")})
    [('b', 'c'), ('a',)]
    """
    reachable = {name: set(needs) & names.keys() for name, needs in names.items()}
    changed = True
    while changed:
        changed = False
        for needs in reachable.values():
            further = set().union(*(reachable[other] for other in needs)) - needs
            changed = changed or bool(further)
            needs |= further
    components: list[tuple[str, ...]] = []
    visited: set[str] = set()

    def visit(name: str) -> None:
        """Add the components that the component of a name needs, then this component."""
        if name in visited:
            return
        component = {name} | {other for other in reachable[name] if name in reachable[other]}
        visited.update(component)
        for member in names:
            if member in component:
                for needed in names:
                    if needed in reachable[member] and needed not in component:
                        visit(needed)
        components.append(tuple(member for member in names if member in component))

    for name in names:
        visit(name)
    return components


def plan_equations(equations: Sequence[Equation]) -> list[PlanNode]:
    """Return the plan of each equation; they share one recursion.

    Raises:
        SqlError: A query has no rows to begin with, or its types grow forever.
        UnsupportedSqlError: A query is not monotone in the rows of the recursion.
    """
    known_fields: dict[str, Fields] = {}  # by equation, as far as its types are found
    source = equations[0].environment.source
    names = tuple(equation.name for equation in equations)
    for _ in range(MAX_TYPE_ITERATIONS):
        bodies: dict[str, PlanNode] = {}
        for equation in equations:
            body = _plan_known_parts(equation, names, known_fields)
            if body is not None:
                bodies[equation.name] = body
        fields = {name: with_nullability(body) for name, body in bodies.items()}
        for name, old in known_fields.items():
            _check_column_count(source, equations[names.index(name)], old, fields[name])
            fields[name] = _common_fields(old, fields[name])
        if fields == known_fields:
            break
        known_fields = fields
    else:
        raise source.error(
            equations[0].node,
            f"the types of the columns of {', '.join(names)} grow with every iteration; cast them "
            "to one type",
        )
    for equation in equations:
        if equation.name not in known_fields:
            raise source.error(
                equation.node,
                f"the recursive {equation.name!r} has no rows to begin with; add a query of other "
                "tables by UNION to one of the queries that refer to each other",
            )
    plans = []
    for equation in equations:
        inner = _with_references(equation, names, known_fields)
        derived = inner.queries.plan_query(inner, equation.query)
        derived = rename_columns(source, derived, list(equation.column_names))
        plan = derived.plan
        _check_monotone(source, equation, plan, names)
        plans.append(_cast(source, equation, plan, known_fields[equation.name]))
    shared = tuple(plans)
    modes = tuple(equation.mode for equation in equations)
    return [Fixpoint(names, shared, modes, index) for index in range(len(names))]


def _plan_known_parts(
    equation: Equation, names: Sequence[str], known_fields: Mapping[str, Fields]
) -> PlanNode | None:
    """Return the union of the parts that name only recursive tables of known types.

    None if there is no such part.
    """
    unknown = [name for name in names if name not in known_fields]
    parts = list(_parts_of(equation.query))
    readable = [
        part for part in parts if not any(names_table(part, name.casefold()) for name in unknown)
    ]
    if not readable:
        return None
    environment = _with_references(equation, names, known_fields)
    source = environment.source
    if len(readable) == len(parts):
        readable = [equation.query]  # nothing is left out
    plans = []
    for part in readable:
        derived = environment.queries.plan_query(environment, part)
        plans.append(derived.plan)
    result = plans[0]
    for plan in plans[1:]:
        if len(plan.fields) != len(result.fields):
            raise source.error(equation.node, "UNION of queries with different numbers of columns")
        fields = _common_fields(result.fields, plan.fields)
        result = Union(
            (_cast(source, equation, result, fields), _cast(source, equation, plan, fields))
        )
    return rename_columns(source, DerivedTable(result), list(equation.column_names)).plan


def _parts_of(query: exp.Expr) -> Iterator[exp.Expr]:
    while isinstance(query, exp.Subquery) and not query.args.get("with_"):
        query = query.this
    if isinstance(query, exp.Union) and not query.args.get("with_"):
        yield from _parts_of(query.this)
        yield from _parts_of(query.expression)
    else:
        yield query


def _with_references(
    equation: Equation, names: Sequence[str], known_fields: Mapping[str, Fields]
) -> Environment:
    """Return an environment in which the names of the equations are recursive references."""
    environment = equation.environment
    tables = dict(environment.common_tables)
    for name in names:
        if name in known_fields:
            alias = exp.TableAlias(this=exp.to_identifier(name))
            reference = DerivedTable(RecursiveReference(name, known_fields[name]))
            cte = exp.CTE(this=exp.Select(), alias=alias)
            # The key () is for queries that do not bound a row_number(). A plan that is given is
            # not made again, so the empty ``cte`` is never planned.
            tables[name.casefold()] = CommonTable(cte, environment, plans={(): reference})
    return replace(environment, common_tables=tables)


def _check_column_count(source: SqlSource, equation: Equation, old: Fields, new: Fields) -> None:
    if len(old) != len(new):
        raise source.error(equation.node, "UNION of queries with different numbers of columns")


def _common_fields(first: Fields, second: Fields) -> Fields:
    return tuple(
        replace(
            left,
            type=functions.common_type([left.type, right.type]),
            nullable=left.nullable or right.nullable,
        )
        for left, right in zip(first, second, strict=True)
    )


def _cast(source: SqlSource, equation: Equation, plan: PlanNode, fields: Fields) -> PlanNode:
    expressions = tuple(
        column
        if column.type == field.type
        else call_function(source, equation.node, "cast", column, type=field.type)
        for column, field in zip(columns(plan), fields, strict=True)
    )
    return Map(plan, expressions, tuple(field.name for field in fields))


def _check_monotone(
    source: SqlSource, equation: Equation, plan: PlanNode, names: Sequence[str]
) -> None:
    """Refuse an operator that would delete rows of an earlier iteration."""
    forbidden = _find_forbidden(plan, frozenset(names))
    if forbidden is None:
        return
    for table in equation.query.find_all(exp.Table):
        if table.name.casefold() in {name.casefold() for name in names}:
            raise source.unsupported(
                table,
                f"{_EQUATION_DESCRIPTIONS.get(forbidden, forbidden)} the recursive {table.name!r}",
                "a recursion may only join, filter, compute and unite its rows; do it outside",
            )
    raise SqlError(f"{forbidden} of a recursive view")


# In an equation the inner side of an outer join, and EXISTS, may be recursive.
_EQUATION_DESCRIPTIONS: Final = {
    **DESCRIPTIONS,
    "OuterJoin": "an outer join with",
    "Semijoin": "NOT EXISTS or NOT IN (subquery) of",
}


def _find_forbidden(plan: PlanNode, names: frozenset[str]) -> str | None:
    """Return the class of an operator over recursive rows that is not monotone; None if all are.

    Args:
        plan: The plan.
        names: The recursive relations.
    """
    # By the id of a node: whether it reads recursive rows, and the class to return.
    memo: dict[int, tuple[bool, str | None]] = {}

    def visit(node: PlanNode) -> tuple[bool, str | None]:
        if id(node) not in memo:
            memo[id(node)] = compute(node)
        return memo[id(node)]

    def compute(node: PlanNode) -> tuple[bool, str | None]:
        if isinstance(node, RecursiveReference):
            return node.name in names, None
        if isinstance(node, Fixpoint) and set(node.names) & names:
            return False, None  # the names below it are its own
        below = [visit(child) for child in node.inputs]
        is_recursive = any(recursive for recursive, _ in below)
        forbidden_below = next((forbidden for _, forbidden in below if forbidden), None)
        if forbidden_below or not is_recursive:
            return is_recursive, forbidden_below
        match node:
            case CrossJoin() | Union() | Map() | Filter() | Distinct() | Unnest():
                return True, None
            case Semijoin(anti=False):
                return True, None
            case Semijoin() | OuterJoin(kind="left"):
                is_right_recursive, _ = below[1]
                if not is_right_recursive:
                    return True, None
        return True, type(node).__name__

    return visit(plan)[1]
