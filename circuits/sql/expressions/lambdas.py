"""Lambdas in SQL: ``list_transform(l, x -> x + 1)``, reductions, comprehensions, lambdas over maps.

A lambda is read with its parameters as columns beyond those of any plan;
`circuits.types.functions.nested.lambdas` makes them the first columns of its body.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa
from sqlglot import exp

from circuits.plan.expressions import Call, Column, Expression, substitute
from circuits.sql.binding.clause import Clause, Reader
from circuits.sql.expressions.literals import integer_literal, string_literal
from circuits.sql.expressions.spark.lists import unless_null
from circuits.types import functions
from circuits.types.functions.nested.lambdas import lambda_call
from circuits.types.functions.nested.list_rules import is_list

__all__ = ["READERS", "READERS_BY_NAME", "read_comparator_sort", "read_comprehension"]

# A lambda of two lists or of a map is rewritten to have one parameter, a struct. The number of this
# column is that of the lambda's own first parameter plus STRUCT_COLUMN_OFFSET.
STRUCT_COLUMN_OFFSET: Final = 50


def _read_lambda(
    clause: Clause,
    node: exp.Expr,
    types: Sequence[pa.DataType],
    lambda_node: exp.Expr,
    values: Sequence[Expression] = (),
) -> tuple[Expression, tuple[int, ...]]:
    """Return the body of a lambda, and the numbers of its parameters, which have these types.

    In Spark, any other expression is the value of the lambda for all elements. The first
    parameters are JSON if these values of the row are.
    """
    first = clause.first_parameter
    if not isinstance(lambda_node, exp.Lambda) and clause.source.is_spark:
        return clause.read(lambda_node), tuple(range(first, first + len(types)))
    if not isinstance(lambda_node, exp.Lambda):
        raise clause.source.unsupported(
            lambda_node, "a function as a value", "write a lambda: x -> expression"
        )
    clause.source.allow_arguments(lambda_node, "this", "expressions", "colon")
    names = [parameter.name.casefold() for parameter in lambda_node.expressions]
    if not 1 <= len(names) <= len(types):
        raise clause.source.error(
            node, f"a lambda of {len(names)} parameters; it takes 1 to {len(types)}"
        )
    parameters = {name: Column(first + k, types[k]) for k, name in enumerate(names)}
    values_of_row = dict(zip(parameters.values(), values, strict=False))
    inner = replace(
        clause,
        parameters={**clause.parameters, **parameters},
        lambda_depth=clause.lambda_depth + 1,
        json_kind=lambda value: clause.json_kind(_substitute(value, values_of_row)),
    )
    body = lambda_node.this
    if any(column.parts[0].name.casefold() in names for column in body.find_all(exp.Column)):
        # sqlglot takes X in ``x -> X + 1`` as a column.
        clause.source.mark_read(body)
        body = body.transform(_name_parameter, names)
    return inner.read(body), tuple(range(first, first + len(types)))


def _name_parameter(node: exp.Expr, names: Sequence[str]) -> exp.Expr:
    """Replace a column with the name of a parameter by its identifier, as sqlglot writes one."""
    if not isinstance(node, exp.Column):
        return node
    # Of ``s.x.y``, the parameter s can be the table or the schema.
    first, *others = node.parts
    if first.name.casefold() not in names:
        return node
    value: exp.Expr = first
    for other in others:
        value = exp.Dot(this=value, expression=other)
    return value


def _call_with_lambda(
    clause: Clause,
    node: exp.Expr,
    function: str,
    value: Expression,
    lambda_node: exp.Expr,
) -> Expression:
    if pa.types.is_null(value.type):
        value = clause.call(node, "cast", value, type=pa.list_(pa.null()))
    if not is_list(value.type):
        raise clause.source.error(node, f"{function} takes a list, not a value of {value.type}")
    position_type = pa.int32() if clause.source.is_spark else pa.int64()
    types = [value.type.value_type, position_type]
    element = Call("list_element", (value, integer_literal(1)), value.type.value_type)
    body, parameters = _read_lambda(clause, node, types, lambda_node, [element])
    # The body reads the position as an INT from 0 in Spark, and from 1 in DuckDB. `lambda_call`
    # passes it as int64 from 0.
    position: Expression = Column(parameters[1], pa.int64())
    if clause.source.is_spark:
        position = clause.call(node, "cast", position, type=position_type)
    else:
        position = clause.call(node, "add", position, integer_literal(1))
    body = _substitute(body, {Column(parameters[1], position_type): position})
    with clause.source.errors_at(node):
        return lambda_call(function, value, body, parameters)


def _substitute(body: Expression, values: dict[Column, Expression]) -> Expression:
    return substitute(body, lambda column: values.get(column, column))


def _lambda_reader(function: str) -> Reader:
    def read(clause: Clause, node: exp.Expr) -> Expression:
        clause.source.allow_arguments(node, "this", "expression")
        body = node.args.get("expression")
        if body is None:
            name = clause.source.name_in_text(node)
            raise clause.source.error(node, f"{name}() takes a list and a lambda")
        return _call_with_lambda(clause, node, function, clause.read(node.this), body)

    return read


def _lambda_reader_of_name(function: str) -> Reader:
    def read(clause: Clause, node: exp.Anonymous) -> Expression:
        if len(node.expressions) != 2:
            raise clause.source.error(node, f"{node.name}() takes a list and a lambda")
        value, lambda_node = node.expressions
        return _call_with_lambda(clause, node, function, clause.read(value), lambda_node)

    return read


def read_comparator_sort(clause: Clause, node: exp.ArraySort) -> Expression:
    """Read ``array_sort(a, (x, y) -> comparison)`` of Spark."""
    clause.source.allow_arguments(node, "this", "expression")
    value = clause.read(node.this)
    if not is_list(value.type):
        raise clause.source.error(node, f"array_sort() takes a list, not a value of {value.type}")
    element = value.type.value_type
    body, parameters = _read_lambda(clause, node, [element, element], node.args["expression"])
    with clause.source.errors_at(node):
        return lambda_call("list_sort_by", value, body, parameters)


def read_comprehension(clause: Clause, node: exp.Comprehension) -> Expression:
    """Read ``[f(x) for x in a if p(x)]``."""
    clause.source.allow_arguments(node, "this", "expression", "iterator", "condition")
    name = node.expression.name.casefold()

    def as_lambda(body: exp.Expr) -> exp.Lambda:
        function = exp.Lambda(
            this=body.transform(_name_parameter, [name]), expressions=[exp.to_identifier(name)]
        )
        clause.source.mark_read(body)
        return function

    value = clause.read(node.args["iterator"])
    condition = node.args.get("condition")
    if condition is not None:
        value = _call_with_lambda(clause, node, "list_filter", value, as_lambda(condition))
    return _call_with_lambda(clause, node, "list_transform", value, as_lambda(node.this))


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
    clause: Clause, node: exp.Expr, value: Expression, lambda_node: exp.Expr, start: Expression
) -> Expression:
    if not is_list(value.type):
        raise clause.source.error(node, f"a reduction takes a list, not a value of {value.type}")
    types = [start.type, value.type.value_type]
    element = Call("list_element", (value, integer_literal(1)), value.type.value_type)
    body, parameters = _read_lambda(clause, node, types, lambda_node, [start, element])
    with clause.source.errors_at(node):
        return lambda_call("list_reduce", value, body, parameters, start)


def _read_list_reduce(clause: Clause, node: exp.Anonymous) -> Expression:
    """Read ``list_reduce(a, lambda x, y[, i]: ...[, start])``; i is the position of y.

    By default, the first element is the start.
    """
    if not 2 <= len(node.expressions) <= 3:
        raise clause.source.error(node, f"{node.name}() takes a list, a lambda and a start")
    value, lambda_node, *start = node.expressions
    elements = clause.read(value)
    first = (
        clause.read(start[0])
        if start  # an empty list has no first element, which is an error as in DuckDB
        else clause.call(node, "list_element_strict", elements, integer_literal(1))
    )
    if is_list(elements.type):
        with clause.source.errors_at(node):
            common = functions.common_type([first.type, elements.type.value_type])
        first = clause.call(node, "cast", first, type=common)
    has_position = isinstance(lambda_node, exp.Lambda) and len(lambda_node.expressions) == 3
    reduce = _reduce_pairs if has_position and is_list(elements.type) else _reduce
    if reduce is _reduce_pairs:
        bounds = integer_literal(1), clause.call(node, "length", elements), integer_literal(1)
        positions = clause.call(node, "series", *bounds)
        pairs = clause.call(node, "list_zip", elements, positions)
        elements = unless_null(clause, node, pairs, elements)
    if not start:
        others = integer_literal(2), integer_literal(-1)
        elements = clause.call(node, "list_slice", elements, *others)
    return reduce(clause, node, elements, lambda_node, first)


def _reduce_pairs(
    clause: Clause, node: exp.Expr, pairs: Expression, lambda_node: exp.Expr, start: Expression
) -> Expression:
    """Reduce a list of structs of an element and its position: (total, element, position) -> x."""
    pair_type = pairs.type.value_type
    types = [start.type, *(pair_type.field(number).type for number in (0, 1))]
    body, parameters = _read_lambda(clause, node, types, lambda_node)
    pair = Column(parameters[0] + STRUCT_COLUMN_OFFSET, pair_type)
    items = {
        Column(parameters[k + 1], types[k + 1]): clause.call(
            node, "struct_field", pair, string_literal(str(k))
        )
        for k in (0, 1)
    }
    body = _substitute(body, items)
    with clause.source.errors_at(node):
        return lambda_call("list_reduce", pairs, body, (parameters[0], pair.index), start)


def _entry_lambda_reader(kind: str) -> Reader:
    """Return the reader of transform_values, transform_keys or map_filter: (k, v) -> expression."""

    def read(clause: Clause, node: exp.Anonymous) -> Expression:
        if len(node.expressions) != 2:
            raise clause.source.error(node, f"{node.name}() takes a map and a lambda")
        value, lambda_node = clause.read(node.expressions[0]), node.expressions[1]
        if not pa.types.is_map(value.type):
            raise clause.source.error(
                node, f"{node.name}() takes a map, not a value of {value.type}"
            )
        entries = clause.call(node, "map_entries", value)
        parts = [value.type.key_type, value.type.item_type]
        body, parameters = _read_lambda(clause, node, parts, lambda_node)
        entry = Column(parameters[0] + STRUCT_COLUMN_OFFSET, entries.type.value_type)
        fields = {
            Column(parameters[k], parts[k]): clause.call(
                node, "struct_field", entry, string_literal(("key", "value")[k])
            )
            for k in (0, 1)
        }
        body = _substitute(body, fields)
        function = "list_filter" if kind == "filter" else "list_transform"
        entry_and_position = (entry.index, entry.index + 1)  # the body does not read the position
        with clause.source.errors_at(node):
            results = lambda_call(function, entries, body, entry_and_position)
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
    pair = Column(parameters[0] + STRUCT_COLUMN_OFFSET, zipped.type.value_type)
    items = {
        Column(parameters[k], types[k]): clause.call(
            node, "struct_field", pair, string_literal(str(k))
        )
        for k in (0, 1)
    }
    body = _substitute(body, items)
    pair_and_position = (pair.index, pair.index + 1)  # the body does not read the position
    with clause.source.errors_at(node):
        results = lambda_call("list_transform", zipped, body, pair_and_position)
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
    body = _substitute(body, items)
    key_and_position = parameters[:2]  # the body does not read the position
    with clause.source.errors_at(node):
        values = lambda_call("list_transform", keys, body, key_and_position)
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


def _read_parameter(clause: Clause, node: exp.Identifier) -> Expression:
    parameter = clause.parameters.get(node.name.casefold())
    if parameter is None:
        raise clause.source.error(node, f"unknown name {node.name!r} in {clause.name}")
    clause.source.allow_arguments(node, "this", "quoted")
    return parameter


READERS: Final[dict[type[exp.Expr], Reader]] = {
    exp.ArrayFilter: _lambda_reader("list_filter"),
    exp.Identifier: _read_parameter,
    exp.Reduce: _read_reduce,
    exp.Transform: _lambda_reader("list_transform"),
}
READERS_BY_NAME: Final[dict[str, Reader]] = {
    "apply": _lambda_reader_of_name("list_transform"),
    "array_apply": _lambda_reader_of_name("list_transform"),
    "array_reduce": _read_list_reduce,
    "array_transform": _lambda_reader_of_name("list_transform"),
    "forall": _lambda_reader_of_name("list_forall"),
    "list_apply": _lambda_reader_of_name("list_transform"),
    "list_exists": _lambda_reader_of_name("list_exists"),
    "list_reduce": _read_list_reduce,
    "map_filter": _entry_lambda_reader("filter"),
    "map_zip_with": _read_map_zip_with,
    "transform_keys": _entry_lambda_reader("keys"),
    "transform_values": _entry_lambda_reader("values"),
    "zip_with": _read_zip_with,
}
