"""The statements of a text: views in order. A view can name the views before it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from sqlglot import exp

from circuits.plan.nodes import Field, PlanNode, Scan
from circuits.sql import query
from circuits.sql.environment import Environment, names_table, rename_columns
from circuits.sql.equations import Equation, find_cycles, plan_equations
from circuits.sql.readers import READERS
from circuits.sql.select_builder import QueryReader
from circuits.sql.source import SqlSource

__all__ = ["plan_sql"]

#: The column of the weights in the output of a view.
WEIGHT_COLUMN: Final = "weight"


class _View(NamedTuple):
    name: str
    plan: PlanNode


def plan_sql(
    text: str,
    relations: Mapping[str, tuple[Field, ...]],
    *,
    name: str = "view",
    dialect: str = "duckdb",
) -> dict[str, PlanNode]:
    """Return the plans of the views that a text defines, in order.

    Args:
        text: One SELECT, or any number of ``CREATE VIEW v AS SELECT ...;`` and then perhaps a
            SELECT. A view can name the views before it.
        relations: The columns of each relation that the text can name.
        name: The name of the view of a plain SELECT.
        dialect: The dialect of sqlglot to read the text in.

    Raises:
        SqlError: The text is not valid SQL, or a name is unknown; the error has line and column.
        UnsupportedSqlError: A construct is valid SQL, but not supported.

    Complexity:
        O(len(text)), except for comparisons of subexpressions by GROUP BY and ORDER BY.

    >>> import pyarrow as pa
    >>> e = (Field("src", pa.int64()), Field("dst", pa.int64()))
    >>> plans = plan_sql("SELECT x.src FROM e x JOIN e y ON x.dst = y.src", {"e": e}, name="two")
    >>> print(plans["two"].input.predicate, plans["two"].names)
    eq(#1, #2) ('src',)
    >>> plan_sql("SELECT src FROM e WHERE dts > 3", {"e": e})
    Traceback (most recent call last):
    ...
    circuits.errors.SqlError: line 1, column 25: unknown column 'dts'; in FROM: e.src, e.dst
      SELECT src FROM e WHERE dts > 3
                              ^
    """
    source = SqlSource(text, dialect)
    scans = {relation: Scan(relation, fields) for relation, fields in relations.items()}
    plans: dict[str, PlanNode] = {}
    queries: QueryReader = query
    try:
        trees = source.parse()
        if not trees:
            raise source.error_at(0, "the text has no statement; write a SELECT")
        for numbers in _order_statements(source, trees):
            environment = Environment(source, scans, queries, READERS)
            for number in numbers:
                if not isinstance(trees[number], exp.Create) and number + 1 < len(trees):
                    raise source.error(
                        trees[number], "a SELECT before other statements; make it a CREATE VIEW"
                    )
            cycle = [trees[number] for number in numbers]
            if len(numbers) > 1 or _names_itself(source, cycle[0]):
                views = _plan_cycle(environment, cycle)
            else:
                views = [_plan_statement(environment, cycle[0], name, numbers[0])]
            for tree, view in zip(cycle, views, strict=True):
                source.check_all_read(tree)
                _check_name(source, tree, view.name, scans)
                _check_columns(source, tree, view)
                plans[view.name] = view.plan
                scans[view.name] = Scan(view.name, view.plan.fields)
    except RecursionError:
        raise source.error_at(
            0, "the text is nested too deeply; put parts of it in views"
        ) from None
    return plans


def _view_name(tree: exp.Expr) -> str:
    """Return the lower-case name of the view that a statement creates; empty for others."""
    if not isinstance(tree, exp.Create) or tree.kind != "VIEW" or tree.expression is None:
        return ""
    table = tree.find(exp.Table)
    return table.name.casefold() if table is not None else ""


def _order_statements(source: SqlSource, trees: list[exp.Expr]) -> list[tuple[int, ...]]:
    """Return the numbers of the statements, each after the views that it names.

    Views that name each other are together in one tuple.
    """
    numbers: dict[str, int] = {}
    for number, tree in enumerate(trees):
        name = _view_name(tree)
        numbers.setdefault(name if name and name not in numbers else f"#{number}", number)
    names = {
        key: frozenset(
            other
            for other in numbers
            if (other != key or key in source.recursive_views)
            and _reads_view(trees[number], other)
        )
        for key, number in numbers.items()
    }
    return [tuple(numbers[key] for key in keys) for keys in find_cycles(names)]


def _reads_view(tree: exp.Expr, name: str) -> bool:
    """Return whether the query of a statement names a view, and not a WITH query of that name."""
    query_ = tree.expression if _view_name(tree) else tree
    ctes = {cte.alias.casefold() for cte in query_.find_all(exp.CTE)}
    return name not in ctes and names_table(query_, name)


def _names_itself(source: SqlSource, tree: exp.Expr) -> bool:
    name = _view_name(tree)
    return name in source.recursive_views and _reads_view(tree, name)


def _plan_cycle(environment: Environment, trees: list[exp.Expr]) -> list[_View]:
    """Return the views of recursive statements: several, or one that names itself."""
    source = environment.source
    for tree in trees:
        if _view_name(tree) not in source.recursive_views:
            others = ", ".join(repr(_view_name(other)) for other in trees)
            raise source.error(
                tree.this,
                f"the views {others} name each other; write CREATE RECURSIVE VIEW if they are to "
                "be a recursion",
            )
    equations = []
    for tree in trees:
        target, column_names = _read_create_view(source, tree)
        equations.append(Equation(target.name, tree, tree.expression, column_names, environment))
    plans = plan_equations(equations)
    return [_View(equation.name, plan) for equation, plan in zip(equations, plans, strict=True)]


def _plan_statement(environment: Environment, tree: exp.Expr, name: str, number: int) -> _View:
    source = environment.source
    if isinstance(tree, exp.Create):
        return _plan_create_view(environment, tree)
    if not isinstance(tree, exp.Query | exp.Values | exp.Pivot):
        offset, word = source.first_word(number)
        if isinstance(tree, exp.Command) and word.upper() == "CREATE":
            word = "this CREATE"
        raise source.unsupported_at(offset, word.upper(), "write SELECT or CREATE VIEW")
    derived = query.plan_query(environment, tree)
    derived.require_all_columns(source, tree)
    return _View(name, rename_columns(source, derived, []).plan)


def _plan_create_view(environment: Environment, tree: exp.Expr) -> _View:
    source = environment.source
    target, column_names = _read_create_view(source, tree)
    derived = query.plan_query(environment, tree.expression)
    derived.require_all_columns(source, tree.expression)
    return _View(target.name, rename_columns(source, derived, column_names).plan)


def _read_create_view(source: SqlSource, tree: exp.Expr) -> tuple[exp.Table, list[exp.Identifier]]:
    """Return the name of a view and the names of its columns, if they are given."""
    assert isinstance(tree, exp.Create)
    if tree.kind != "VIEW":
        raise source.unsupported(tree, f"CREATE {tree.kind}", "write CREATE VIEW", word="create")
    source.allow_arguments(tree, "this", "kind", "replace", "expression", "exists", "properties")
    properties = tree.args.get("properties")
    if properties is not None:
        source.allow_arguments(properties, "expressions")
        for part in properties.expressions:
            if not isinstance(part, exp.MaterializedProperty):
                raise source.unsupported(
                    tree, f"CREATE with {part.key}", "write CREATE VIEW", "create"
                )
            source.allow_arguments(part)
    target, column_names = tree.this, []
    if isinstance(target, exp.Schema):
        source.allow_arguments(target, "this", "expressions")
        target, column_names = target.this, target.expressions
    for part in column_names:
        if not isinstance(part, exp.Identifier):
            raise source.unsupported(part, "a column definition in CREATE VIEW", "give names only")
    source.allow_arguments(target, "this")
    if tree.expression is None:
        raise source.error(target, "CREATE VIEW without AS SELECT; add it")
    return target, column_names


def _check_name(source: SqlSource, tree: exp.Expr, name: str, scans: Mapping[str, Scan]) -> None:
    if any(relation.casefold() == name.casefold() for relation in scans):
        raise source.error(
            tree.this if isinstance(tree, exp.Create) else tree,
            f"view {name!r} has the name of an existing relation or view; choose another",
        )


def _check_columns(source: SqlSource, tree: exp.Expr, view: _View) -> None:
    """Refuse a column with the name of the column of the weights."""
    select = tree.expression if isinstance(tree, exp.Create) else tree
    items = {item.alias_or_name.casefold(): item for item in select.expressions}
    for field in view.plan.fields:
        if field.name.casefold() == WEIGHT_COLUMN:
            raise source.error(
                items.get(WEIGHT_COLUMN, select),
                f"column {field.name!r} of view {view.name!r} has the name of the weights; "
                "rename it",
            )
