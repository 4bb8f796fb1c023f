"""Lists, structs, maps and JSON in expressions: syntax trees to `circuits.types.functions`.

Positions and missing elements differ between dialects:

================= ============================ ==============================================
..                DuckDB                       Spark
================= ============================ ==============================================
``a[i]``          from 1, NULL without one     from 0, an error without one
element_at(a, i)  from 1, NULL without one     from 1, an error without one; try_element_at: NULL
list functions    skip a NULL argument         are NULL if an argument is NULL
================= ============================ ==============================================

A lambda is read with its parameters as columns beyond those of any plan;
`circuits.types.functions.lambdas` makes them the first columns of its body.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa
import sqlglot
from sqlglot import exp

from circuits.errors import SchemaError
from circuits.plan.expressions import Column, Expression, Literal, substitute
from circuits.sql.clause import Clause, Reader
from circuits.sql.literals import NULL, integer_literal, string_literal
from circuits.sql.spark.documents import read_schema
from circuits.sql.spark.lists import unless_null
from circuits.sql.spark.sequences import read_sequence
from circuits.types import functions
from circuits.types.ddl import field_of, schema_of_ddl
from circuits.types.functions.lambdas import lambda_call
from circuits.types.functions.list_rules import is_list
from circuits.types.functions.type_rules import is_text

__all__ = ["READERS", "READERS_BY_NAME"]

# The column number of the first parameter of a lambda; each level of nesting adds a hundred.
FIRST_PARAMETER: Final = 1 << 40
PARAMETERS_OF_LEVEL: Final = 100


def _read_list(clause: Clause, node: exp.Array) -> Expression:
    clause.source.allow_arguments(node, "expressions", "value_constructor", "bracket_notation")
    parts = node.expressions
    if len(parts) == 1 and isinstance(parts[0], exp.Comprehension):
        return _read_comprehension(clause, parts[0])
    # ARRAY(SELECT ...) is a list of rows; [(SELECT ...), x] and Spark's array() have values.
    has_values = clause.source.is_spark or node.args.get("value_constructor") is not None
    rows = exp.SetOperation | exp.Select if has_values else exp.Query
    if any(isinstance(part, rows) for part in parts):
        raise clause.source.unsupported(
            node, "a list of the rows of a subquery", "use array_agg in a subquery", word="array"
        )
    return clause.call(node, "make_list", *map(clause.read, parts))


def _read_struct(clause: Clause, node: exp.Struct) -> Expression:
    clause.source.allow_arguments(node, "expressions")
    arguments: list[Expression] = []
    for number, part in enumerate(node.expressions, 1):
        if isinstance(part, exp.PropertyEQ):
            clause.source.allow_arguments(part, "this", "expression")
            name, value = part.this.name, part.expression
            if isinstance(value, exp.Dot) and clause.source.name_in_text(node) == "struct":
                name = value.expression.name  # as in Spark, the name of the field
        elif isinstance(part, exp.Star):
            raise clause.source.unsupported(part, "'*' in a struct", "name the columns")
        else:
            name, value = f"col{number}", part
        arguments += [string_literal(name), clause.read(value)]
    return clause.call(node, "make_struct", *arguments)


def _read_row(clause: Clause, node: exp.Tuple | exp.Anonymous) -> Expression:
    """Read ``(a, b)`` or ``row(a, b)`` as a struct, with the field names that the dialect gives."""
    clause.source.allow_arguments(node, "this", "expressions")
    arguments: list[Expression] = []
    for number, part in enumerate(node.expressions, 1):
        name = f"col{number}" if clause.source.is_spark else f"element{number}"
        if clause.source.is_spark and isinstance(part, exp.Column):
            name = part.name
        arguments += [string_literal(name), clause.read(part)]
    return clause.call(node, "make_struct", *arguments)


def _read_map(clause: Clause, node: exp.Map | exp.VarMap) -> Expression:
    clause.source.allow_arguments(node, "keys", "values")
    keys, values = (node.args.get(name) for name in ("keys", "values"))
    empty = exp.Array()
    clause.source.allow_arguments(empty)
    parts = [clause.read(part if part is not None else empty) for part in (keys, values)]
    return clause.call(node, "make_map", *parts)


def _read_map_literal(clause: Clause, node: exp.ToMap) -> Expression:
    """Read ``MAP {key: value}``, of which sqlglot puts a subscript after it inside."""
    clause.source.allow_arguments(node, "this")
    if not isinstance(node.this, exp.Bracket):
        return _map_of_pairs(clause, node.this)
    subscript = node.this
    clause.source.allow_arguments(subscript, "this", "expressions")
    if len(subscript.expressions) != 1 or not isinstance(subscript.this, exp.Struct):
        raise clause.source.unsupported(subscript, "this subscript", "write it in parentheses")
    made = _map_of_pairs(clause, subscript.this)
    return clause.call(node, "map_value", made, clause.read(subscript.expressions[0]))


def _map_of_pairs(clause: Clause, node: exp.Struct) -> Expression:
    """Return a map of pairs in braces; the keys are expressions."""
    clause.source.allow_arguments(node, "expressions")
    keys, values = [], []
    for pair in node.expressions:
        clause.source.allow_arguments(pair, "this", "expression")
        keys.append(clause.read(pair.this))
        values.append(clause.read(pair.expression))
    lists = [clause.call(node, "make_list", *parts) for parts in (keys, values)]
    return clause.call(node, "make_map", *lists)


def _read_subscript(clause: Clause, node: exp.Bracket) -> Expression:
    """Read ``a[i]``, ``a[i:j]``, ``s['field']``, ``m[key]``, and element_at, which Spark names."""
    clause.source.allow_arguments(
        node, "this", "expressions", "offset", "safe", "returns_list_for_maps"
    )
    value = clause.read(node.this)
    if len(node.expressions) != 1:
        raise clause.source.unsupported(node, "several subscripts [a, b]", "write [a][b]")
    subscript = node.expressions[0]
    if isinstance(subscript, exp.Slice):
        return _read_slice(clause, node, value, subscript)
    index = clause.read(subscript)
    if pa.types.is_map(value.type):
        return clause.call(node, "map_value", value, index)
    if pa.types.is_struct(value.type):
        return clause.call(node, "struct_field", value, index)
    if is_text(value.type) and not clause.source.is_spark:
        return clause.call(node, "substring", value, index, integer_literal(1))
    if not is_list(value.type):
        raise clause.source.unsupported(
            node, f"a subscript of a value of type {value.type}", "subscript a list, struct or map"
        )
    if node.args.get("offset"):  # element_at and try_element_at of Spark
        name = "list_element" if node.args.get("safe") else "list_element_strict"
    else:
        name = "list_get_strict" if clause.source.is_spark else "list_element"
    return clause.call(node, name, value, index)


def _read_slice(
    clause: Clause, node: exp.Bracket, value: Expression, bounds: exp.Slice
) -> Expression:
    clause.source.allow_arguments(bounds, "this", "expression")
    low, high = bounds.args.get("this"), bounds.args.get("expression")
    begin = clause.read(low) if low is not None else integer_literal(1)
    end = clause.read(high) if high is not None else integer_literal(-1)
    if is_text(value.type) and not clause.source.is_spark:
        return _slice_text(clause, node, value, begin, end)
    return clause.call(node, "list_slice", value, begin, end)


def _slice_text(
    clause: Clause, node: exp.Expr, value: Expression, begin: Expression, end: Expression
) -> Expression:
    """Return the characters from position ``begin`` to ``end``; -1 is the last one."""

    def call(function: str, *arguments: Expression) -> Expression:
        return clause.call(node, function, *arguments)

    zero, one, length = integer_literal(0), integer_literal(1), call("length", value)
    from_end = call("greatest", call("add", call("add", length, begin), one), one)
    first = call("case", call("lt", begin, zero), from_end, call("greatest", begin, one))
    last = call("case", call("lt", end, zero), call("add", call("add", length, end), one), end)
    count = call("greatest", call("add", call("subtract", last, first), one), zero)
    is_null = call("or", call("is_null", begin), call("is_null", end))
    return call("case", is_null, NULL, call("substring", value, first, count))


def _read_dot(clause: Clause, node: exp.Dot) -> Expression:
    clause.source.allow_arguments(node, "this", "expression")
    if not isinstance(node.expression, exp.Identifier):
        raise clause.source.unsupported(node, "a function after a dot", "write f(x)")
    clause.source.allow_arguments(node.expression, "this", "quoted")
    return clause.call(
        node, "struct_field", clause.read(node.this), string_literal(node.expression.name)
    )


def _read_array_slice(clause: Clause, node: exp.ArraySlice) -> Expression:
    clause.source.allow_arguments(node, "this", "start", "end", "step", "zero_based", "is_length")
    parts = [clause.read(node.args[name]) for name in ("this", "start", "end")]
    by_length = node.args.get("is_length") or clause.source.is_spark
    return clause.call(node, "list_slice_length" if by_length else "list_slice", *parts)


def _read_comparator_sort(clause: Clause, node: exp.ArraySort) -> Expression:
    """Read ``array_sort(a, (x, y) -> comparison)`` of Spark."""
    clause.source.allow_arguments(node, "this", "expression")
    value = clause.read(node.this)
    if not is_list(value.type):
        raise clause.source.error(node, f"array_sort() takes a list, not a value of {value.type}")
    element = value.type.value_type
    body, parameters = _read_lambda(clause, node, [element, element], node.args["expression"])
    with clause.source.errors_at(node):
        return lambda_call("list_sort_by", value, body, parameters)


def _read_sort(clause: Clause, node: exp.ArraySort) -> Expression:
    if node.args.get("expression") is not None:
        return _read_comparator_sort(clause, node)
    clause.source.allow_arguments(node, "this", "asc", "nulls_first")
    flags = {"asc": True, "nulls_first": False}
    for name in flags:
        given = node.args.get(name)
        if given is None:
            continue
        if not isinstance(given, exp.Boolean):
            raise clause.source.unsupported(
                given, "a sort order that is an expression", "write a constant"
            )
        clause.source.allow_arguments(given, "this")
        flags[name] = bool(given.this)
    name = "list_sort" + ("" if flags["asc"] else "_desc")
    name += "_nulls_first" if flags["nulls_first"] else ""
    return clause.call(node, name, clause.read(node.this))


def _two(duckdb: str, spark: str, *names: str, ignored: Sequence[str] = ()) -> Reader:
    """Return the reader of a function that is another one in dialect spark."""

    def read(clause: Clause, node: exp.Expr) -> Expression:
        clause.source.allow_arguments(node, *names, *ignored)
        parts: list[exp.Expr] = []
        for name in names:
            given = node.args.get(name)
            parts += given if isinstance(given, list) else [given] if given is not None else []
        function = spark if clause.source.is_spark else duckdb
        return clause.call(node, function, *map(clause.read, parts))

    return read


def _named(duckdb: str, spark: str = "", *, least: int = 1, most: int | None = None) -> Reader:
    """Return the reader of a function that sqlglot knows by its name only."""

    def read(clause: Clause, node: exp.Anonymous) -> Expression:
        given, upper = len(node.expressions), most or least
        if not least <= given <= upper:
            count = f"{least}" if least == upper else f"{least} to {upper}"
            raise clause.source.error(node, f"{node.name}() takes {count} arguments, not {given}")
        function = spark if spark and clause.source.is_spark else duckdb
        return clause.call(node, function, *map(clause.read, node.expressions))

    return read


def _read_length(clause: Clause, node: exp.Anonymous) -> Expression:
    """Read cardinality(), array_length() and the like; they count entries of maps, too."""
    if len(node.expressions) != 1:
        raise clause.source.error(
            node, f"{node.name}() takes 1 argument, not {len(node.expressions)}"
        )
    return clause.call(node, "length", clause.read(node.expressions[0]))


def _read_array_size(clause: Clause, node: exp.ArraySize) -> Expression:
    clause.source.allow_arguments(node, "this")
    return clause.call(node, "length", clause.read(node.this))


def _read_element_at(clause: Clause, node: exp.Anonymous) -> Expression:
    """Read element_at() and list_extract() of DuckDB, and get() of Spark."""
    if len(node.expressions) != 2:
        raise clause.source.error(node, f"{node.name}() takes 2 arguments")
    value, index = map(clause.read, node.expressions)
    if is_text(value.type) and not clause.source.is_spark and node.name.lower() != "element_at":
        return clause.call(node, "substring", value, index, integer_literal(1))
    if pa.types.is_map(value.type):
        return _extract(clause, node, value, index)
    return clause.call(
        node, "list_get" if node.name.lower() == "get" else "list_element", value, index
    )


def _extract(clause: Clause, node: exp.Anonymous, value: Expression, key: Expression) -> Expression:
    """Return element_at() of a map in DuckDB: the list of the value, empty without the key."""
    has_key = clause.call(node, "map_contains", value, key)
    single = clause.call(node, "make_list", clause.call(node, "map_value", value, key))
    empty = clause.call(node, "make_list")
    missing = clause.call(node, "not", has_key)
    return clause.call(node, "case", has_key, single, missing, empty, NULL)


def _read_aggregate(clause: Clause, node: exp.Anonymous) -> Expression:
    """Read list_aggregate(a, 'sum')."""
    if len(node.expressions) != 2 or not isinstance(node.expressions[1], exp.Literal):
        raise clause.source.error(node, f"{node.name}() takes a list and the name of an aggregate")
    value, name = map(clause.read, node.expressions)
    if isinstance(name, Literal) and str(name.value).lower() == "histogram":
        return clause.call(node, "sorted_list_histogram", clause.call(node, "list_sort", value))
    known = {"sum": "list_sum", "min": "list_min", "max": "list_max", "avg": "list_avg"}
    function = known.get(str(name.value).lower() if isinstance(name, Literal) else "")
    if function is None:
        raise clause.source.unsupported(
            node, f"{node.name}() with {name}", f"there are: {', '.join(known)}"
        )
    return clause.call(node, function, value)


def _read_histogram(clause: Clause, node: exp.Anonymous) -> Expression:
    """Read list_histogram(a)."""
    if len(node.expressions) != 1:
        raise clause.source.error(node, f"{node.name}() takes a list")
    values = clause.call(node, "list_sort", clause.read(node.expressions[0]))
    return clause.call(node, "sorted_list_histogram", values)


def _read_series(clause: Clause, node: exp.GenerateSeries) -> Expression:
    if clause.source.is_spark:
        return read_sequence(clause, node)
    clause.source.allow_arguments(node, "start", "end", "step", "is_end_exclusive")
    given = (node.args.get(name) for name in ("start", "end", "step"))
    parts = [clause.read(part) for part in given if part is not None]
    exclusive = node.args.get("is_end_exclusive")
    return clause.call(node, "series_before" if exclusive else "series", *parts)


def _read_intersection(clause: Clause, node: exp.Expr) -> Expression:
    """Read array_intersect(); in DuckDB it leaves NULL out, and a second list may be NULL."""
    clause.source.allow_arguments(node, "this", "expressions")
    if len(node.expressions) != 2:
        raise clause.source.unsupported(
            node, "the intersection of more than two lists", "nest the calls"
        )
    left, right = map(clause.read, node.expressions)
    if clause.source.is_spark:
        return clause.call(node, "list_intersect", left, right)
    right = clause.call(node, "coalesce", right, clause.call(node, "make_list"))
    shared = clause.call(node, "list_intersect", left, right)
    return clause.call(node, "list_compact", shared)


def _read_joined(clause: Clause, node: exp.ArrayToString) -> Expression:
    return clause.call(
        node, "list_join", *clause.read_arguments(node, "this", "expression", "null")
    )


def _split_reader(function: str) -> Reader:
    def read(clause: Clause, node: exp.Expr) -> Expression:
        return clause.call(node, function, *clause.read_arguments(node, "this", "expression"))

    return read


# Lambdas


def _read_lambda(
    clause: Clause, node: exp.Expr, types: Sequence[pa.DataType], body: exp.Expr
) -> tuple[Expression, tuple[int, ...]]:
    """Return the body of a lambda, and the numbers of its parameters, which have these types."""
    if not isinstance(body, exp.Lambda):
        raise clause.source.unsupported(
            body, "a function as a value", "write a lambda: x -> expression"
        )
    clause.source.allow_arguments(body, "this", "expressions", "colon")
    names = [parameter.name.casefold() for parameter in body.expressions]
    if not 1 <= len(names) <= len(types):
        raise clause.source.error(
            node, f"a lambda of {len(names)} parameters; it takes 1 to {len(types)}"
        )
    level = len({c.index // PARAMETERS_OF_LEVEL for c in clause.parameters.values()})
    first = FIRST_PARAMETER + level * PARAMETERS_OF_LEVEL
    parameters = {name: Column(first + k, types[k]) for k, name in enumerate(names)}
    inner = replace(clause, parameters={**clause.parameters, **parameters})
    return inner.read(body.this), tuple(range(first, first + len(types)))


def _apply(
    clause: Clause,
    node: exp.Expr,
    function: str,
    value: Expression,
    body: exp.Expr,
) -> Expression:
    if pa.types.is_null(value.type):
        value = clause.call(node, "cast", value, type=pa.list_(pa.null()))
    if not is_list(value.type):
        raise clause.source.error(node, f"{function} takes a list, not a value of {value.type}")
    position_type = pa.int32() if clause.source.is_spark else pa.int64()
    types = [value.type.value_type, position_type]
    lambda_body, parameters = _read_lambda(clause, node, types, body)
    position = Column(parameters[1], pa.int64())
    if clause.source.is_spark:
        as_int = clause.call(node, "cast", position, type=position_type)
        lambda_body = _substitute(lambda_body, {Column(parameters[1], position_type): as_int})
    else:  # positions are from 1
        lambda_body = _shift(clause, node, lambda_body, position)
    with clause.source.errors_at(node):
        return lambda_call(function, value, lambda_body, parameters)


def _shift(clause: Clause, node: exp.Expr, body: Expression, position: Column) -> Expression:
    from_one = clause.call(node, "add", position, integer_literal(1))
    return _substitute(body, {position: from_one})


def _substitute(body: Expression, values: dict[Column, Expression]) -> Expression:
    return substitute(body, lambda column: values.get(column, column))


def _lambda_reader(function: str) -> Reader:
    def read(clause: Clause, node: exp.Expr) -> Expression:
        clause.source.allow_arguments(node, "this", "expression")
        return _apply(clause, node, function, clause.read(node.this), node.args["expression"])

    return read


def _named_lambda(function: str) -> Reader:
    def read(clause: Clause, node: exp.Anonymous) -> Expression:
        if len(node.expressions) != 2:
            raise clause.source.error(node, f"{node.name}() takes a list and a lambda")
        value, body = node.expressions
        return _apply(clause, node, function, clause.read(value), body)

    return read


def _read_comprehension(clause: Clause, node: exp.Comprehension) -> Expression:
    """Read ``[f(x) for x in a if p(x)]``."""
    clause.source.allow_arguments(node, "this", "expression", "iterator", "condition")
    name = node.expression.name.casefold()

    def as_lambda(body: exp.Expr) -> exp.Lambda:
        def rename(part: exp.Expr) -> exp.Expr:
            if isinstance(part, exp.Column) and not part.table and part.name.casefold() == name:
                name_node: exp.Expr = part.this
                return name_node
            return part

        function = exp.Lambda(this=body.transform(rename), expressions=[exp.to_identifier(name)])
        clause.source.mark_read(body)
        return function

    value = clause.read(node.args["iterator"])
    condition = node.args.get("condition")
    if condition is not None:
        value = _apply(clause, node, "list_filter", value, as_lambda(condition))
    return _apply(clause, node, "list_transform", value, as_lambda(node.this))


def _read_reduce(clause: Clause, node: exp.Reduce) -> Expression:
    """Read aggregate(list, start, merge) and reduce() of Spark."""
    clause.source.allow_arguments(node, "this", "initial", "merge", "finish")
    start = clause.read(node.args["initial"])
    reduced = _reduce(clause, node, clause.read(node.this), node.args["merge"], start)
    finish = node.args.get("finish")
    if finish is None:
        return reduced
    body, parameters = _read_lambda(clause, node, [reduced.type], finish)
    return _substitute(body, {Column(parameters[0], reduced.type): reduced})


def _reduce(
    clause: Clause, node: exp.Expr, value: Expression, body: exp.Expr, start: Expression
) -> Expression:
    if not is_list(value.type):
        raise clause.source.error(node, f"a reduction takes a list, not a value of {value.type}")
    step, parameters = _read_lambda(clause, node, [start.type, value.type.value_type], body)
    with clause.source.errors_at(node):
        return lambda_call("list_reduce", value, step, parameters, start)


def _read_list_reduce(clause: Clause, node: exp.Anonymous) -> Expression:
    if len(node.expressions) != 3:
        raise clause.source.unsupported(
            node, "list_reduce() without a start", "give the first value as third argument"
        )
    value, body, start = node.expressions
    read = clause.read(value)
    first = clause.read(start)
    if is_list(read.type):
        with clause.source.errors_at(node):
            wide = functions.common_type([first.type, read.type.value_type])
        first = clause.call(node, "cast", first, type=wide)
    return _reduce(clause, node, read, body, first)


def _entry_lambda(kind: str) -> Reader:
    """Return the reader of transform_values, transform_keys or map_filter: (k, v) -> expression."""

    def read(clause: Clause, node: exp.Anonymous) -> Expression:
        if len(node.expressions) != 2:
            raise clause.source.error(node, f"{node.name}() takes a map and a lambda")
        value, body = clause.read(node.expressions[0]), node.expressions[1]
        if not pa.types.is_map(value.type):
            raise clause.source.error(
                node, f"{node.name}() takes a map, not a value of {value.type}"
            )
        entries = clause.call(node, "map_entries", value)
        parts = [value.type.key_type, value.type.item_type]
        lambda_body, parameters = _read_lambda(clause, node, parts, body)
        entry = Column(parameters[0] + 50, entries.type.value_type)
        fields = {
            Column(parameters[k], parts[k]): clause.call(
                node, "struct_field", entry, string_literal(("key", "value")[k])
            )
            for k in (0, 1)
        }
        lambda_body = _substitute(lambda_body, fields)
        function = "list_filter" if kind == "filter" else "list_transform"
        with clause.source.errors_at(node):
            results = lambda_call(function, entries, lambda_body, (entry.index, entry.index + 1))
        if kind == "filter":
            return clause.call(node, "map_from_entries", results)
        keys = results if kind == "keys" else clause.call(node, "map_keys", value)
        values = results if kind == "values" else clause.call(node, "map_values", value)
        return clause.call(node, "make_map", keys, values)

    return read


def _read_zip_with(clause: Clause, node: exp.Anonymous) -> Expression:
    """Read zip_with(a, b, (x, y) -> expression); a shorter list is filled up with NULL."""
    lists = _read_pair(clause, node, "two lists", is_list)
    zipped = clause.call(node, "list_zip", *lists)
    types = [value.type.value_type for value in lists]
    body, parameters = _read_lambda(clause, node, types, node.expressions[2])
    pair = Column(parameters[0] + 50, zipped.type.value_type)
    items = {
        Column(parameters[k], types[k]): clause.call(
            node, "struct_field", pair, string_literal(str(k))
        )
        for k in (0, 1)
    }
    with clause.source.errors_at(node):
        results = lambda_call(
            "list_transform", zipped, _substitute(body, items), (pair.index, pair.index + 1)
        )
    return unless_null(clause, node, results, *lists)


def _read_map_zip_with(clause: Clause, node: exp.Anonymous) -> Expression:
    """Read map_zip_with(a, b, (k, x, y) -> expression), over the keys of both maps."""
    maps = _read_pair(clause, node, "two maps", pa.types.is_map)
    key_lists = [clause.call(node, "map_keys", value) for value in maps]
    keys = clause.call(node, "list_distinct", clause.call(node, "list_concat_or_null", *key_lists))
    types = [keys.type.value_type, *(value.type.item_type for value in maps)]
    body, parameters = _read_lambda(clause, node, types, node.expressions[2])
    key = Column(parameters[0], types[0])
    items = {
        Column(parameters[k], types[k]): clause.call(node, "map_value", maps[k - 1], key)
        for k in (1, 2)
    }
    with clause.source.errors_at(node):
        values = lambda_call("list_transform", keys, _substitute(body, items), parameters[:2])
    return clause.call(node, "make_map", keys, values)


def _read_pair(
    clause: Clause, node: exp.Anonymous, kind: str, is_kind: Callable[[pa.DataType], bool]
) -> tuple[Expression, Expression]:
    """Return the first two arguments of a call whose third one is a lambda."""
    if len(node.expressions) != 3:
        raise clause.source.error(node, f"{node.name}() takes {kind} and a lambda")
    first, second = map(clause.read, node.expressions[:2])
    if not (is_kind(first.type) and is_kind(second.type)):
        raise clause.source.error(
            node, f"{node.name}() takes {kind}, not values of {first.type} and {second.type}"
        )
    return first, second


def _read_generator(clause: Clause, node: exp.Expr) -> Expression:
    return clause.read_generator(clause, node)


def _read_parameter(clause: Clause, node: exp.Identifier) -> Expression:
    parameter = clause.parameters.get(node.name.casefold())
    if parameter is None:
        raise clause.source.error(node, f"unknown name {node.name!r} in {clause.name}")
    clause.source.allow_arguments(node, "this", "quoted")
    return parameter


# JSON


def _path_of(clause: Clause, node: exp.Expr, path: exp.Expr | None) -> list[Expression]:
    """Return a constant path as a JSON text of its steps."""
    if path is None:
        return []
    steps: list[str | int] = []
    if isinstance(path, exp.Literal):
        clause.source.allow_arguments(path, "this", "is_string")
        steps = [path.this] if path.is_string else [int(path.this)]
        return [string_literal(json.dumps(steps))]
    if not isinstance(path, exp.JSONPath):
        raise clause.source.unsupported(
            path, "a path that is not constant", "write it as '$.name[0]'"
        )
    clause.source.mark_read(path)
    for step in path.expressions:
        if isinstance(step, exp.JSONPathRoot):
            continue
        if isinstance(step, exp.JSONPathKey | exp.JSONPathSubscript) and isinstance(
            step.this, str | int
        ):
            steps.append(step.this)
        else:
            raise clause.source.unsupported(
                node, "a path with wildcards or filters", "write the keys and positions"
            )
    return [string_literal(json.dumps(steps))]


def _json_reader(function: str) -> Reader:
    def read(clause: Clause, node: exp.Expr) -> Expression:
        clause.source.allow_arguments(node, "this", "expression", "only_json_types", "scalar_only")
        path = _path_of(clause, node, node.args.get("expression"))
        return clause.call(node, function, clause.read(node.this), *path)

    return read


def _read_json_keys(clause: Clause, node: exp.JSONKeys) -> Expression:
    """Read json_keys(). A value that is not an object has keys [] in DuckDB, NULL in Spark."""
    clause.source.allow_arguments(node, "this", "expression", "expressions")
    path = _path_of(clause, node, node.args.get("expression"))
    value = clause.read(node.this)
    keys = clause.call(node, "json_keys", value, *path)
    if clause.source.is_spark:
        return keys
    none = clause.call(node, "is_null", clause.call(node, "json_value", value, *path))
    empty = clause.call(node, "make_list")
    return clause.call(node, "case", none, NULL, clause.call(node, "coalesce", keys, empty))


def _named_json(duckdb: str, spark: str = "") -> Reader:
    def read(clause: Clause, node: exp.Anonymous) -> Expression:
        value, *path = node.expressions
        function = spark if spark and clause.source.is_spark else duckdb
        steps: list[Expression] = []
        if path:
            literal = path[0]
            if not isinstance(literal, exp.Literal) or len(path) > 1:
                raise clause.source.unsupported(
                    node, "a path that is not constant", "write it as '$.name[0]'"
                )
            clause.source.allow_arguments(literal, "this", "is_string")
            parsed: exp.Expr | None = literal
            if literal.this.startswith("$"):
                parsed = sqlglot.Dialect.get_or_raise(clause.source.dialect).to_json_path(literal)
            steps = _path_of(clause, node, parsed)
        return clause.call(node, function, clause.read(value), *steps)

    return read


def _read_from_json(clause: Clause, node: exp.FromJson) -> Expression:
    clause.source.allow_arguments(node, "this", "expression")
    schema = node.args.get("expression")
    if clause.source.is_spark and isinstance(schema, exp.Expr) and not _is_structure(schema):
        data_type = read_schema(clause, schema, clause.read(schema))
        return clause.call(node, "from_json", clause.read(node.this), Literal(None, data_type))
    if not isinstance(schema, exp.Literal) or not schema.is_string:
        raise clause.source.unsupported(
            node, "from_json() without a constant schema", "write it as 'a INT, b STRING'"
        )
    clause.source.allow_arguments(schema, "this", "is_string")
    try:
        type = _json_schema(schema.this)
    except (SchemaError, ValueError) as error:
        raise clause.source.error(schema, str(error)) from None
    return clause.call(node, "from_json", clause.read(node.this), Literal(None, type))


def _is_structure(schema: exp.Expr) -> bool:
    """Return whether a schema is JSON: ``{"a": "INT"}`` of DuckDB."""
    return isinstance(schema, exp.Literal) and schema.this.lstrip().startswith(("{", "[", '"'))


def _json_schema(written: str) -> pa.DataType:
    """Return the type of a schema: of Spark (``a INT``), or DuckDB's JSON (``{"a": "INT"}``)."""
    if written.lstrip().startswith(("{", "[", '"')):
        return _duckdb_structure(json.loads(written))
    try:
        return field_of("value", written).type
    except SchemaError:
        return pa.struct(list(schema_of_ddl(written)))


def _duckdb_structure(value: object) -> pa.DataType:
    if isinstance(value, dict):
        return pa.struct([(name, _duckdb_structure(part)) for name, part in value.items()])
    if isinstance(value, list) and len(value) == 1:
        return pa.list_(_duckdb_structure(value[0]))
    if isinstance(value, str):
        return field_of("value", value).type
    raise ValueError(f"{value!r} is not a type; write the name of a type, {{...}} or [...]")


# Expressions whose value is that of a part: JSON in the part is JSON in the value.
_CONTAINERS: Final = (
    *(exp.Array, exp.Case, exp.Coalesce, exp.If, exp.List, exp.Map, exp.Paren),
    *(exp.PropertyEQ, exp.Struct, exp.ToMap),
)


def _check_has_no_json(clause: Clause, node: exp.Expr) -> None:
    """Refuse JSON in the argument of to_json(): JSON is text here, so it would be quoted."""
    is_json = (
        isinstance(node, exp.JSONExtract | exp.ParseJSON)
        or (isinstance(node, exp.Cast) and node.to.this == exp.DType.JSON)
        or (isinstance(node, exp.Anonymous) and node.name.casefold() == "to_json")
    )
    if is_json:
        raise clause.source.unsupported(
            node, "JSON in the argument of to_json()", "build one value, and convert it at once"
        )
    if isinstance(node, _CONTAINERS):
        for part in node.iter_expressions():
            _check_has_no_json(clause, part)


def _to_json_reader(function: str) -> Reader:
    def read(clause: Clause, node: exp.Expr) -> Expression:
        clause.source.allow_arguments(node, "this", "expressions")
        given = node.expressions if isinstance(node, exp.Anonymous) else [node.this]
        if len(given) != 1:
            raise clause.source.unsupported(node, "options of to_json()", "give one value")
        if not clause.source.is_spark:
            _check_has_no_json(clause, given[0])
        return clause.call(node, function, clause.read(given[0]))

    return read


READERS: Final[dict[type[exp.Expr], Reader]] = {
    exp.Array: _read_list,
    exp.ArrayAppend: _two(
        "list_append", "list_append_or_null", "this", "expression", ignored=["null_propagation"]
    ),
    exp.ArrayCompact: _two("list_compact", "list_compact", "this"),
    exp.ArrayConcat: _two(
        "list_concat",
        "list_concat_or_null",
        *("this", "expressions"),
        ignored=["null_propagation"],
    ),
    exp.ArrayContains: _two(
        "list_contains",
        "list_contains_or_null",
        *("this", "expression"),
        ignored=["ensure_variant", "check_null"],
    ),
    exp.ArrayContainsAll: _two("list_contains_all", "list_contains_all", "this", "expression"),
    exp.ArrayDistinct: _two(
        "list_distinct", "list_distinct_with_null", "this", ignored=["check_null"]
    ),
    exp.ArrayExcept: _two("list_except", "list_except", "this", "expression"),
    exp.ArrayFilter: _lambda_reader("list_filter"),
    exp.ArrayIntersect: _read_intersection,
    exp.ArrayMax: _two("list_max", "list_max", "this"),
    exp.ArrayMin: _two("list_min", "list_min", "this"),
    exp.ArrayOverlaps: _two("list_overlaps", "list_overlaps_or_null", "this", "expression"),
    exp.ArrayPosition: _two(
        "list_position",
        "list_position_or_zero",
        *("this", "expression"),
        ignored=["zero_based"],
    ),
    exp.ArrayPrepend: _two(
        "list_prepend",
        "list_prepend_or_null",
        *("this", "expression"),
        ignored=["null_propagation"],
    ),
    exp.ArrayRemove: _two(
        "list_remove", "list_remove", "this", "expression", ignored=["null_propagation"]
    ),
    exp.ArraySize: _read_array_size,
    exp.ArraySlice: _read_array_slice,
    exp.ArraySort: _read_sort,
    exp.ArrayToString: _read_joined,
    exp.Bracket: _read_subscript,
    exp.Dot: _read_dot,
    exp.Explode: _read_generator,
    exp.Flatten: _two("list_flatten", "list_flatten_or_null", "this"),
    exp.FromJson: _read_from_json,
    exp.GenerateSeries: _read_series,
    exp.Identifier: _read_parameter,
    exp.JSONExtract: _json_reader("json_value"),
    exp.JSONExtractScalar: _json_reader("json_text"),
    exp.JSONFormat: _to_json_reader("to_json_without_null"),
    exp.JSONKeys: _read_json_keys,
    exp.JSONType: _json_reader("json_type"),
    exp.Map: _read_map,
    exp.MapContainsKey: _two("map_contains", "map_contains", "this", "key"),
    exp.MapFromEntries: _two("map_from_entries", "map_from_entries", "this"),
    exp.MapKeys: _two("map_keys", "map_keys", "this"),
    exp.Reduce: _read_reduce,
    exp.RegexpSplit: _split_reader("split_regex"),
    exp.Split: _split_reader("split"),
    exp.Struct: _read_struct,
    exp.StructExtract: _two("struct_field", "struct_field", "this", "expression"),
    exp.ToMap: _read_map_literal,
    exp.Transform: _lambda_reader("list_transform"),
    exp.Tuple: _read_row,
    exp.VarMap: _read_map,
}
_LENGTH_NAMES: Final = ("cardinality", "array_length", "list_length", "size")
READERS_BY_NAME: Final[dict[str, Reader]] = {
    **dict.fromkeys(_LENGTH_NAMES, _read_length),
    "array_contains_all": _named("list_contains_all", least=2),
    "array_has_all": _named("list_contains_all", least=2),
    "array_has_any": _named("list_overlaps", least=2),
    "array_repeat": _named("list_repeat", least=2),
    "array_union": _named("list_union", least=2),
    "arrays_overlap": _named("list_overlaps", "list_overlaps_or_null", least=2),
    "element_at": _read_element_at,
    "forall": _named_lambda("list_forall"),
    "get": _read_element_at,
    "json_array_length": _named_json("json_array_length_or_zero", "json_array_length"),
    "json_valid": _named_json("json_valid"),
    "list_aggregate": _read_aggregate,
    "list_aggr": _read_aggregate,
    "list_avg": _named("list_avg"),
    "list_except": _named("list_except", least=2),
    "list_exists": _named_lambda("list_exists"),
    "list_extract": _read_element_at,
    "list_histogram": _read_histogram,
    "list_has_all": _named("list_contains_all", least=2),
    "list_intersect": _read_intersection,
    "list_position": _named("list_position", least=2),
    "list_indexof": _named("list_position", least=2),
    "list_reduce": _read_list_reduce,
    "list_reverse": _named("list_reverse"),
    "array_reverse": _named("list_reverse"),
    "list_slice": _named("list_slice", least=3),
    "list_sum": _named("list_sum"),
    "list_zip": _named("list_zip", least=1, most=16),
    "map_concat": _named("map_concat", least=1, most=16),
    "map_contains": _named("map_contains", least=2),
    "map_extract": _read_element_at,
    "map_entries": _named("map_entries"),
    "map_filter": _entry_lambda("filter"),
    "map_values": _named("map_values"),
    "map_zip_with": _read_map_zip_with,
    "regexp_split_to_array": _named("split_regex", least=2),
    "row": _read_row,
    "to_json": _to_json_reader("to_json"),
    "transform_keys": _entry_lambda("keys"),
    "transform_values": _entry_lambda("values"),
    "zip_with": _read_zip_with,
}
