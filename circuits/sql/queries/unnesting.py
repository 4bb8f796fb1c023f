"""UNNEST, explode and their relatives: functions that make several rows from each row.

========================================== ======================= ================================
in FROM                                    in the SELECT list      columns
========================================== ======================= ================================
UNNEST(a) [WITH ORDINALITY], explode(a)    unnest(a), explode(a)   the element; of a map: key, value
UNNEST(a) AS t(x, y)                                               the fields of the structs
UNNEST(a, b) AS t(x, y)                    unnest(a), unnest(b)    the elements side by side; NULL
                                                                   after the end of a list
posexplode(a)                              posexplode(a)           the position from 0, the element
inline(a)                                  inline(a)               the fields of the structs
json_tuple(j, 'a', 'b')                    json_tuple(j, 'a')      one text per key
                                           unnest(s) of a struct   its fields; no further rows
                                           unnest(a, max_depth     the elements of lists in lists,
                                           := 2, recursive :=      and the fields of structs in them
                                           true)
generate_series(...), range(...)           as a list               the number
========================================== ======================= ================================

In FROM they may read the columns of the tables before them, after a comma, CROSS JOIN, JOIN ... ON
TRUE, LATERAL or LATERAL VIEW. LEFT JOIN ... ON TRUE, LATERAL VIEW OUTER and the functions whose
name ends in _outer keep a row without elements. The list becomes the last column, which the node
`Unnest` replaces by its elements, so that the positions of the other columns stay the same.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from sqlglot import exp

from circuits.errors import UnsupportedSqlError
from circuits.plan.expressions import Expression, Literal
from circuits.plan.nodes import Map, PlanNode, columns
from circuits.plan.unnest import Unnest
from circuits.sql.binding.clause import Clause
from circuits.sql.binding.scope import ScopeColumn, is_correlated
from circuits.sql.binding.select_builder import SelectBuilder
from circuits.sql.expressions.json_functions.values import call_json
from circuits.sql.expressions.literals import integer_literal, string_literal
from circuits.sql.syntax.function_templates import HAS_LIST_PER_ROW
from circuits.sql.syntax.source import SqlSource
from circuits.types.arrow_types import is_nested
from circuits.types.functions.nested.list_rules import is_list

__all__ = [
    "is_generator",
    "is_table_function",
    "read_generator",
    "read_table_function",
    "zip_generators",
]

# The kind of each generator, and whether it keeps rows without elements: by the class of its node,
# and by the name of the function if sqlglot has no class for it. The first class that fits decides:
# ExplodeOuter is parsed to a class that also is an Explode, and Posexplode is an Explode.
_CLASSES: Final[dict[type[exp.Expr], tuple[str, bool]]] = {
    exp.PosexplodeOuter: ("posexplode", True),
    exp.Posexplode: ("posexplode", False),
    exp.ExplodeOuter: ("explode", True),
    exp.Explode: ("explode", False),
    exp.Inline: ("inline", False),
}
_NAMES: Final = {
    "inline_outer": ("inline", True),
    "json_tuple": ("json_tuple", False),
    "variant_explode": ("variant_explode", False),
    "variant_explode_outer": ("variant_explode", True),
    "range": ("series", False),
}
_ALL_LEVELS: Final = 1 << 30


@dataclass(frozen=True)
class _Generated:
    """The new columns of a generator: names and values over the new plan."""

    names: list[str]
    values: list[Expression]


def _generator_kind(node: exp.Expr) -> tuple[str, bool] | None:
    """Return the kind of a generator, and whether it keeps rows without elements."""
    if isinstance(node, exp.Anonymous):
        return _NAMES.get(node.name.lower())
    if isinstance(node, exp.GenerateSeries):
        return "series", False
    return next((kind for class_, kind in _CLASSES.items() if isinstance(node, class_)), None)


def is_generator(node: exp.Expr) -> bool:
    """Return whether a node of the SELECT list makes several rows from each row."""
    kind = _generator_kind(node)
    return kind is not None and kind[0] != "series"


def _is_explode(node: exp.Expr) -> bool:
    kind = _generator_kind(node)
    return kind is not None and kind[0] == "explode"


def is_table_function(node: exp.Expr) -> bool:
    """Return whether an item of FROM is UNNEST or a function that makes rows."""
    if isinstance(node, exp.Unnest):
        return True
    if isinstance(node, exp.Lateral):
        is_function = _generator_kind(node.this) is not None or isinstance(node.this, exp.Unnest)
        return is_function or _generators_of_lateral(node) is not None
    if isinstance(node, exp.Table):
        return _generator_kind(node.this) is not None
    return _generator_kind(node) is not None


def _generators_of_lateral(node: exp.Lateral) -> list[exp.Expr] | None:
    """Return the SELECT list of ``LATERAL (SELECT unnest(a))``; None for any other LATERAL.

    The list is one generator, and the SELECT has no other clause.
    """
    query = node.this.this if isinstance(node.this, exp.Subquery) else None
    if not isinstance(query, exp.Select) or len(query.expressions) != 1:
        return None
    if any(value for name, value in query.args.items() if name != "expressions"):
        return None
    (item,) = query.expressions
    function = item.this if isinstance(item, exp.Alias | exp.Aliases) else item
    return [item] if is_generator(function) else None


def read_table_function(builder: SelectBuilder, node: exp.Expr, *, outer: bool = False) -> None:
    """Apply an item of FROM to the rows of the items before it, and add its columns to the scope.

    Args:
        builder: The rows of the items before it.
        node: The item, for which `is_table_function` is True.
        outer: True to keep a row without elements, as for LEFT JOIN.
    """
    source = builder.source
    function, ordinality = node, False
    if isinstance(node, exp.Unnest):
        source.allow_arguments(node, "expressions", "alias", "offset")
        ordinality = bool(node.args.get("offset"))
    elif isinstance(node, exp.Lateral | exp.Table):
        function = node.this
        source.allow_arguments(node, "this", "alias", "view", "outer", "ordinality", "joins")
        outer = outer or bool(node.args.get("outer"))
        ordinality = bool(node.args.get("ordinality"))
    clause = builder.clause("FROM")
    items = _generators_of_lateral(node) if isinstance(node, exp.Lateral) else None
    if items is not None:
        if ordinality:
            raise _unsupported_ordinality(source, node, function)
        source.allow_arguments(node.this, "this")
        source.allow_arguments(node.this.this, "expressions")
        if outer:
            raise source.unsupported(node, "LEFT JOIN LATERAL of a SELECT", "join UNNEST(a) itself")
        new_columns = read_generator(builder, items[0]) or []
        generated = _Generated(
            [name for name, _ in new_columns], [value for _, value in new_columns]
        )
    elif isinstance(function, exp.Unnest):
        source.allow_arguments(function, "expressions", "alias", "offset")
        offset = function.args.get("offset")
        ordinality = ordinality or bool(offset)
        first_position = _first_position(source, ordinality)
        if len(function.expressions) != 1:
            generated = _unnest_together(builder, node, function.expressions, first_position, outer)
            _add_to_scope(builder, node, generated, offset, has_ordinality=ordinality)
            return
        value = _read_list(clause, function.expressions[0])
        names_all_fields = source.is_spark or source.is_postgres
        fields = _fields_to_name(node, value, ordinality, offset, names_all_fields)
        default_names = ["key", "value"] if pa.types.is_map(value.type) else ["unnest"]
        default_names += ["ordinality"] if ordinality else []
        generated = _unnest(builder, node, value, default_names, first_position, outer)
        if fields:
            element, *positions = generated.values
            values = [
                clause.call(node, "struct_field", element, string_literal(name)) for name in fields
            ]
            generated = _Generated([*fields, *default_names[1:]], [*values, *positions])
    else:
        generated = _apply_generator(builder, clause, function, outer, ordinality)
    _add_to_scope(builder, node, generated, function.args.get("offset"), has_ordinality=ordinality)


def _first_position(source: SqlSource, ordinality: bool) -> int | None:
    """Return the position of the first element; None without a column of positions.

    WITH ORDINALITY counts from 1; WITH OFFSET, which sqlglot reads as the same, is of BigQuery.
    """
    if not ordinality:
        return None
    return 0 if source.dialect == "bigquery" else 1


def _unsupported_ordinality(
    source: SqlSource, node: exp.Expr, function: exp.Expr
) -> UnsupportedSqlError:
    return source.unsupported(
        node, f"{source.describe(function)} WITH ORDINALITY", "write it with UNNEST of a list"
    )


def _unnest_together(
    builder: SelectBuilder,
    node: exp.Expr,
    lists: Sequence[exp.Expr],
    first_position: int | None,
    outer: bool,
) -> _Generated:
    """Unnest several lists element by element; a shorter list ends with NULLs."""
    clause = builder.clause("FROM")
    values = [_read_list(clause, part) for part in lists]
    zipped = clause.call(node, "list_zip", *values)
    names = ["zip", *(["ordinality"] if first_position is not None else [])]
    unnested = _unnest(builder, node, zipped, names, first_position, outer)
    element, *positions = unnested.values
    fields = [
        clause.call(node, "struct_field", element, string_literal(str(number)))
        for number in range(len(lists))
    ]
    return _Generated(["unnest"] * len(lists) + names[1:], [*fields, *positions])


def _read_list(clause: Clause, argument: exp.Expr) -> Expression:
    """Return a list to unnest: in PostgreSQL, the elements of an array of all dimensions."""
    value = clause.read(argument)
    if clause.source.is_postgres and not argument.meta.get(HAS_LIST_PER_ROW):
        while is_list(value.type) and is_list(value.type.value_type):
            value = clause.call(argument, "list_flatten", value)
    return value


def _fields_to_name(
    node: exp.Expr,
    value: Expression,
    ordinality: bool,
    offset: exp.Expr | bool | None,
    without_names: bool,
) -> list[str]:
    """Return the fields of the elements if UNNEST makes a column of each of them.

    Standard SQL does so; DuckDB makes one column, unless the alias names each field.

    Args:
        node: The item of FROM.
        value: The list.
        ordinality: True if there is a column for the position.
        offset: The name of that column.
        without_names: True for the fields also if the alias names no columns.
    """
    element = getattr(value.type, "value_type", None)
    if element is None or not pa.types.is_struct(element):
        return []
    fields = [field.name for field in element]
    alias = node.args.get("alias")
    # sqlglot takes the name of the ordinality out of the names.
    is_named = isinstance(offset, exp.Identifier)
    name_count = len(alias.args.get("columns") or ()) if alias is not None else 0
    if not name_count and without_names:
        return fields
    name_count += is_named
    return fields if name_count == len(fields) + ordinality and len(fields) > 1 else []


#: Functions in FROM whose name is that of the table and of its column.
_SERIES: Final = ("generate_series", "range")


def _add_to_scope(
    builder: SelectBuilder,
    node: exp.Expr,
    generated: _Generated,
    offset: exp.Expr | bool | None = None,
    *,
    has_ordinality: bool = False,
) -> None:
    """Add the new columns of an item of FROM to the scope, with the names of its alias.

    Args:
        builder: The rows.
        node: The item.
        generated: The columns.
        offset: The name of the ordinality, which sqlglot takes out of the names of the alias.
        has_ordinality: True if the last column is the ordinality.
    """
    source, names, alias = builder.source, generated.names, node.args.get("alias")
    table = names[0] if names[0] in _SERIES else "unnest"
    if alias is not None:
        source.allow_arguments(alias, "this", "columns")
        table = alias.name or table
        alias_names = [name.name for name in alias.args.get("columns") or ()]
        if isinstance(offset, exp.Identifier):
            alias_names.append(offset.name)
        if len(alias_names) > len(names):
            raise source.error(
                alias, f"{len(alias_names)} names for {len(names)} columns: {', '.join(names)}"
            )
        names = [*alias_names, *names[len(alias_names) :]]
        has_one_column = len(names) - has_ordinality == 1
        if not alias_names and has_one_column and alias.name and not source.is_spark:
            # In DuckDB, the alias of a function in FROM is also the name of its only column.
            names = [alias.name, *names[1:]]
    other_tables = {column.table.casefold() for column in builder.scope_columns}
    if alias is not None and not alias.name:
        while table in other_tables:  # LATERAL VIEW without the name of a table
            table += "_"
    if alias is not None and table.casefold() in other_tables:
        raise source.error(node, f"two tables in FROM are called {table!r}; give one an alias")
    builder.scope_columns += tuple(
        ScopeColumn(table, name, value) for name, value in zip(names, generated.values, strict=True)
    )


def read_generator(builder: SelectBuilder, node: exp.Expr) -> list[tuple[str, Expression]] | None:
    """Apply a generator of the SELECT list to the rows, and return its columns.

    The node may have one alias or several. The result is None for a node that is not a generator.
    """
    source, names = builder.source, []
    function = node
    if isinstance(node, exp.Aliases):
        function = node.this
        names = [name.name for name in node.expressions]
    elif isinstance(node, exp.Alias):
        function, names = node.this, [node.alias]
    if id(function) in builder.generated:  # `zip_generators` has applied it
        name, value = builder.generated[id(function)]
        source.allow_arguments(node, "this", "alias")
        return [(names[0] if names else name, value)]
    if not is_generator(function):
        return None
    if isinstance(node, exp.Aliases):
        source.allow_arguments(node, "this", "expressions")
    elif isinstance(node, exp.Alias):
        source.allow_arguments(node, "this", "alias")
    generated = _apply_generator(builder, builder.clause("SELECT"), function, False, False)
    if names and len(names) != len(generated.names):
        raise source.error(
            node,
            f"{len(names)} names for {len(generated.names)} columns: {', '.join(generated.names)}",
        )
    if not names and len(generated.names) == 1 and not source.is_spark:
        names = [source.default_name(function)]
    return list(zip(names or generated.names, generated.values, strict=True))


def zip_generators(builder: SelectBuilder, select: exp.Select) -> None:
    """Apply several unnest() of one SELECT list together: element by element, as DuckDB does.

    Raises:
        UnsupportedSqlError: The functions cannot be combined, or the SELECT has window functions,
            which are computed before its rows are multiplied.
    """
    source, items = builder.source, select.expressions
    generators = [
        node
        for item in items
        # A generator in the arguments of another one is applied before it, not together with it.
        for node in item.walk(prune=lambda part: isinstance(part, exp.Query) or is_generator(part))
        if is_generator(node) and not isinstance(node, exp.Query)
    ]
    if generators:
        clauses = [*items, select.args.get("qualify"), select.args.get("order")]
        # A window in a subquery is over the rows of the subquery.
        parts = (
            part
            for clause in clauses
            if clause is not None
            for part in clause.walk(prune=lambda part: isinstance(part, exp.Query))
        )
        if any(isinstance(part, exp.Window) for part in parts):
            raise source.unsupported(
                generators[0],
                f"{source.describe(generators[0])} in one SELECT with a window function",
                "compute the window in a query in FROM",
            )
    if len(generators) < 2:
        return
    if source.is_spark or not all(map(_is_explode, generators)):
        raise source.unsupported(
            generators[1], "a second function of this kind in one SELECT list", "use it in FROM"
        )
    clause, values = builder.clause("SELECT"), []
    for node in generators:
        if _read_depth(source, node) > 1:
            raise source.unsupported(
                node, "several levels of one of two unnest() of a SELECT list", "use it in FROM"
            )
        values.append(_read_list(clause, node.this))
    zipped = clause.call(generators[0], "list_zip", *values)
    unnested = _unnest(builder, generators[0], zipped, ["zip"], None, False)
    for position, node in enumerate(generators):
        value = clause.call(node, "struct_field", unnested.values[0], string_literal(str(position)))
        builder.generated[id(node)] = source.text_of(node), value


def _apply_generator(
    builder: SelectBuilder, clause: Clause, node: exp.Expr, outer: bool, ordinality: bool
) -> _Generated:
    source, generator_kind = builder.source, _generator_kind(node)
    assert generator_kind is not None
    kind, is_outer = generator_kind
    outer = outer or is_outer
    first_position = _first_position(source, ordinality)
    if ordinality and kind not in ("explode", "series"):
        raise _unsupported_ordinality(source, node, node)
    if kind == "explode" and not source.is_spark:
        depth = _read_depth(source, node)
        value = _read_list(clause, node.this)
        if depth > 1 or pa.types.is_struct(value.type):
            if ordinality:
                raise _unsupported_ordinality(source, node, node)
            return _unnest_deeply(builder, node, value, depth, outer)
    if kind == "json_tuple":
        return _apply_json_tuple(builder, clause, node)
    if kind == "series":
        if isinstance(node, exp.Anonymous):
            source.allow_arguments(node, "this", "expressions")
            parts = [clause.read(part) for part in node.expressions]
            bounds = parts if len(parts) > 1 else [Literal(0, pa.int64()), *parts]
            value = clause.call(node, "series_before", *bounds)
            name = "id"
        else:
            value = clause.read(node)
            name = "range" if node.args.get("is_end_exclusive") else "generate_series"
        names = [name, "ordinality"] if ordinality else [name]
        return _unnest(builder, node, value, names, first_position, outer)
    if isinstance(node, exp.Anonymous):
        source.allow_arguments(node, "this", "expressions")
        (argument,) = node.expressions
    else:
        if kind != "explode" or source.is_spark:  # else `_read_depth` has read the options
            source.allow_arguments(node, "this")
        argument = node.this
    value = _read_list(clause, argument)
    if kind == "variant_explode":
        value = clause.call(node, "variant_parts", value)
        rows = _apply_inline(builder, node, value, outer)
        *others, text = rows.values
        part = builder.clause("SELECT").call(node, "parse_variant", text)
        return _Generated(rows.names, [*others, part])
    if kind == "inline":
        return _apply_inline(builder, node, value, outer)
    is_map = pa.types.is_map(value.type)
    default_names = ["key", "value"] if is_map else ["col" if source.is_spark else "unnest"]
    if kind == "posexplode":
        return _unnest(
            builder, node, value, [*default_names, "pos"], 0, outer, position_before=True
        )
    names = [*default_names, "ordinality"] if ordinality else default_names
    return _unnest(builder, node, value, names, first_position, outer)


def _read_depth(source: SqlSource, node: exp.Expr) -> int:
    """Return how many levels ``unnest(a, max_depth := n)`` or ``recursive := true`` unnests."""
    depth = 1
    source.allow_arguments(node, "this", "expressions")
    for option in node.expressions:
        source.allow_arguments(option, "this", "expression")
        name, value = option.name.casefold(), option.args.get("expression")
        is_option = isinstance(option, exp.PropertyEQ)
        if is_option and name == "recursive" and isinstance(value, exp.Boolean):
            depth = _ALL_LEVELS if value.this else depth
        elif is_option and name == "max_depth" and isinstance(value, exp.Literal) and value.is_int:
            depth = int(value.name)
            if depth == 0:
                raise source.error(option, "max_depth is at least 1; write max_depth := 1")
        else:
            raise source.unsupported(option, "this option of unnest()", "write max_depth := 2")
        source.mark_read(option)
    return depth


def _unnest_deeply(
    builder: SelectBuilder, node: exp.Expr, value: Expression, depth: int, outer: bool
) -> _Generated:
    """Unnest lists within lists, and make a column of each field of a struct."""
    generated = _Generated(["unnest"], [value])
    while depth > 0 and is_nested(value.type) and not pa.types.is_struct(value.type):
        generated = _unnest(builder, node, value, ["unnest"], None, outer)
        value, depth = generated.values[0], depth - 1
    if depth > 0 and pa.types.is_struct(value.type):
        return _fields_of_struct(builder.clause("SELECT"), node, value, depth)
    return generated


def _fields_of_struct(clause: Clause, node: exp.Expr, value: Expression, depth: int) -> _Generated:
    """Return the fields of a struct, and those of structs within it, as columns."""
    names: list[str] = []
    values: list[Expression] = []
    for number, field in enumerate(value.type, 1):
        part = clause.call(node, "struct_field", value, integer_literal(number))
        if depth > 1 and pa.types.is_struct(field.type):
            inner = _fields_of_struct(clause, node, part, depth - 1)
            names, values = [*names, *inner.names], [*values, *inner.values]
        else:
            names.append(field.name)
            values.append(part)
    return _Generated(names, values)


def _unnest(
    builder: SelectBuilder,
    node: exp.Expr,
    value: Expression,
    names: list[str],
    first_position: int | None,
    outer: bool,
    *,
    position_before: bool = False,
) -> _Generated:
    """Replace the plan of the rows by its unnested rows; return the new columns.

    Args:
        builder: The rows.
        node: The generator, for errors.
        value: The list or map.
        names: The names of the new columns; the position, if there is one, is the last.
        first_position: The position of the first element; None for no column of positions.
        outer: True to keep a row without elements.
        position_before: True to return the position before the elements.
    """
    source, width = builder.source, builder.width
    if pa.types.is_null(value.type):
        value = Literal(None, pa.list_(pa.null()))
    if not is_nested(value.type) or pa.types.is_struct(value.type):
        raise source.error(
            node,
            f"{source.describe(node)} takes a list or a map, not a value of type {value.type}",
        )
    if pa.types.is_map(value.type) and not source.is_spark:
        raise source.error(node, "UNNEST of a map; unnest map_entries() of it")
    if is_correlated(value):
        raise source.correlated(
            node,
            "UNNEST of a column of the enclosing query in a subquery",
            "write it in FROM, after the table: FROM t, UNNEST(t.a)",
        )
    plan: PlanNode = builder.plan
    kept = columns(plan)
    names_before = tuple(field.name for field in plan.fields)
    plan = Map(plan, (*kept, value), (*names_before, names[0]))
    unnested = Unnest(plan, tuple(names), first_position, outer)
    builder.plan = unnested
    values: list[Expression] = [*columns(unnested)[width:]]
    if position_before:
        if source.is_spark:
            values[-1] = builder.clause("FROM").call(node, "cast", values[-1], type=pa.int32())
        values, names = [values[-1], *values[:-1]], [names[-1], *names[:-1]]
    return _Generated(names, values)


def _apply_inline(
    builder: SelectBuilder, node: exp.Expr, value: Expression, outer: bool
) -> _Generated:
    element = value.type.value_type if is_list(value.type) else value.type
    if not pa.types.is_struct(element):
        raise builder.source.error(
            node, f"inline() takes a list of structs, not a value of type {value.type}"
        )
    unnested = _unnest(builder, node, value, ["struct"], None, outer)
    clause = builder.clause("SELECT")
    names = [field.name for field in element]
    fields = [
        clause.call(node, "struct_field", unnested.values[0], string_literal(name))
        for name in names
    ]
    return _Generated(names, fields)


def _apply_json_tuple(builder: SelectBuilder, clause: Clause, node: exp.Expr) -> _Generated:
    """Read json_tuple(j, 'a', 'b'), which makes columns but no rows."""
    source = builder.source
    source.allow_arguments(node, "this", "expressions")
    value, *keys = node.expressions
    json_value, names, values = clause.read(value), [], []
    for number, key in enumerate(keys):
        if not isinstance(key, exp.Literal) or not key.is_string:
            raise source.unsupported(key, "a key that is not constant", "write it as a text")
        source.allow_arguments(key, "this", "is_string")
        steps = string_literal(json.dumps([key.this]))
        names.append(f"c{number}")
        values.append(call_json(clause, node, "json_text", json_value, steps))
    return _Generated(names, values)
