"""The statements of a text: views in order. A view can name the views before it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sqlglot import exp

from circuits.plan.nodes import Field, PlanNode, Scan
from circuits.sql import dates, nested, predicates, query, scalar_functions
from circuits.sql.environment import Environment, rename_columns
from circuits.sql.rows import QueryReader
from circuits.sql.source import SqlSource

__all__ = ["plan_sql"]

# These modules are imported because they add their readers.
_READERS: Final = (predicates, scalar_functions, dates)


def plan_sql(
    text: str,
    relations: Mapping[str, tuple[Field, ...]],
    *,
    name: str = "view",
    dialect: str = "duckdb",
) -> dict[str, PlanNode]:
    """Return the plans of the views that a text defines, in order.

    Args:
        text: One SELECT, or ``CREATE VIEW v AS SELECT ...;`` any number of times and then perhaps
            a SELECT. A view can name the views before it.
        relations: The columns of each relation that the text can name.
        name: The name of the view of a plain SELECT.
        dialect: The dialect of sqlglot to read the text in.

    Raises:
        SqlError: The text is no SQL, or a name is unknown; the error has line and column.
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
        trees = source.statements()
        if not trees:
            raise source.error_at(0, "the text has no statement; write a SELECT")
        for number, tree in enumerate(trees):
            environment = Environment(source, scans, queries)
            view, plan_query = _plan_statement(environment, tree, name, number)
            source.check_read(tree)
            if isinstance(tree, exp.Create) or number + 1 == len(trees):
                _check_name(source, tree, view, scans)
                _check_columns(source, tree, view, plan_query)
                plans[view] = plan_query
                scans[view] = Scan(view, plan_query.fields)
                continue
            raise source.error(tree, "a SELECT before other statements; make it a CREATE VIEW")
    except RecursionError:
        raise source.error_at(
            0, "the text is nested too deeply; put parts of it in views"
        ) from None
    return plans


def _plan_statement(
    environment: Environment, tree: exp.Expr, name: str, number: int
) -> tuple[str, PlanNode]:
    source = environment.source
    if not isinstance(tree, exp.Create):
        if not isinstance(tree, exp.Query | exp.Values):
            place, word = source.first_word(number)
            if isinstance(tree, exp.Command) and word.upper() == "CREATE":
                word = "this CREATE"
            raise source.unsupported_at(place, word.upper(), "there are SELECT and CREATE VIEW")
        derived = query.plan_query(environment, tree)
        derived.complete(source, tree)
        return name, rename_columns(source, derived, []).plan
    if tree.kind != "VIEW":
        raise source.unsupported(tree, f"CREATE {tree.kind}", "there is CREATE VIEW", word="create")
    source.accept(tree, "this", "kind", "replace", "expression", "exists", "properties")
    properties = tree.args.get("properties")
    if properties is not None:
        source.accept(properties, "expressions")
    for part in properties.expressions if properties else ():
        if not isinstance(part, exp.MaterializedProperty):
            raise source.unsupported(
                tree, f"CREATE with {part.key}", "there is CREATE VIEW", "create"
            )
        source.accept(part)
    target, names = tree.this, []
    if isinstance(target, exp.Schema):
        source.accept(target, "this", "expressions")
        target, names = target.this, target.expressions
    for part in names:
        if not isinstance(part, exp.Identifier):
            raise source.unsupported(part, "a column definition in CREATE VIEW", "give names only")
    source.accept(target, "this")
    if tree.expression is None:
        raise source.error(target, "CREATE VIEW without AS SELECT")
    derived = query.plan_query(environment, tree.expression)
    derived.complete(source, tree.expression)
    return target.name, rename_columns(source, derived, names).plan


def _check_name(source: SqlSource, tree: exp.Expr, view: str, scans: Mapping[str, Scan]) -> None:
    same = [relation for relation in scans if relation.casefold() == view.casefold()]
    if same:
        raise source.error(
            tree.this if isinstance(tree, exp.Create) else tree,
            f"view {view!r} has the name of an existing relation or view; choose another",
        )


def _check_columns(source: SqlSource, tree: exp.Expr, view: str, plan_query: PlanNode) -> None:
    query_ = tree.expression if isinstance(tree, exp.Create) else tree
    items = {item.alias_or_name.casefold(): item for item in query_.expressions}
    for field in plan_query.fields:
        key = field.name.casefold()
        tree = items.get(key, query_)
        if key == "weight":
            raise source.error(
                tree, f"column {field.name!r} of view {view!r} has the name of the weights; rename"
            )
