"""Functions of lists, structs and maps with DuckDB's names.

Functions for which sqlglot has a class, and functions that dialect spark has too, are in
`circuits.sql.expressions.nested`. A function that is a composition of others has no kernel of its
own.
"""

from __future__ import annotations

from functools import reduce
from typing import Final

import pyarrow as pa
from sqlglot import exp

from circuits.plan.expressions import Expression, Literal
from circuits.sql.binding.clause import Clause, Reader
from circuits.sql.expressions.literals import NULL, integer_literal, string_literal
from circuits.sql.expressions.named_functions import (
    Arguments,
    Builder,
    as_readers,
    call_of,
    check_count,
    count_error,
    literal_text,
    merge_tables,
)
from circuits.sql.expressions.spark.lists import unless_null
from circuits.sql.syntax.parsing import parse_by_name
from circuits.types.functions.nested.list_rules import is_list
from circuits.types.functions.type_rules import is_number

__all__ = ["READERS_BY_NAME", "join_texts"]

# The aggregates of list_aggregate(list, 'name'), and of list_name(list).
_AGGREGATES: Final = {
    "any_value": "list_any_value",
    "arbitrary": "list_first",
    "avg": "list_avg",
    "bit_and": "list_bit_and",
    "bit_or": "list_bit_or",
    "bit_xor": "list_bit_xor",
    "bool_and": "list_bool_and",
    "bool_or": "list_bool_or",
    "count": "list_count",
    "first": "list_first",
    "last": "list_last",
    "max": "list_max",
    "mean": "list_avg",
    "median": "list_median",
    "min": "list_min",
    "mode": "list_mode",
    "product": "list_product",
    "stddev": "list_stddev_samp",
    "stddev_pop": "list_stddev_pop",
    "stddev_samp": "list_stddev_samp",
    "sum": "list_sum",
    "var_pop": "list_var_pop",
    "var_samp": "list_var_samp",
    "variance": "list_var_samp",
}


def _aggregate_by_name(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
    """Read ``list_aggregate(a, 'sum')``; ``string_agg`` and ``histogram`` are aggregates, too."""
    if len(arguments) < 2:
        raise count_error(clause, node, "a list and the name of an aggregate")
    values, name, *options = arguments
    aggregate = literal_text(clause, node, name, "an aggregate").casefold()
    if aggregate in ("string_agg", "group_concat", "listagg") and len(options) <= 1:
        return _string_agg(clause, node, values, *options)
    if options:
        raise clause.source.unsupported(
            node, f"{node.name}() with options of {aggregate}", "leave them out"
        )
    if aggregate == "list":
        return values
    if aggregate == "histogram":
        return _histogram(clause, node, values)
    if aggregate not in _AGGREGATES:
        raise clause.source.unsupported(
            node,
            f"{node.name}() with {aggregate}",
            f"there are: {', '.join(_AGGREGATES)}, histogram, list, string_agg",
        )
    return _aggregate_builder(aggregate)(clause, node, [values])


def _aggregate_builder(name: str) -> Builder:
    function = _AGGREGATES[name]

    def build(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
        if len(arguments) != 1:
            raise count_error(clause, node, "1")
        (values,) = arguments
        if name == "sum" and is_list(values.type) and pa.types.is_boolean(values.type.value_type):
            values = clause.call(node, "cast", values, type=pa.list_(pa.int8()))
        return clause.call(node, function, values)

    return build


def _string_agg(
    clause: Clause, node: exp.Expr, values: Expression, *separator: Expression
) -> Expression:
    return join_texts(clause, node, values, *(separator or (string_literal(","),)), empty=NULL)


def join_texts(
    clause: Clause, node: exp.Expr, values: Expression, *others: Expression, empty: Expression
) -> Expression:
    """Join the texts of a list as the aggregate string_agg: NULL if all elements are NULL.

    Args:
        clause: The clause of the call.
        node: The call.
        values: The list.
        others: The separator; then, if there is one, the text in place of a NULL.
        empty: The result for a list without elements.
    """

    def is_empty(elements: Expression) -> Expression:
        return clause.call(node, "eq", clause.call(node, "length", elements), integer_literal(0))

    no_texts = is_empty(clause.call(node, "list_compact", values))
    joined = clause.call(node, "list_join", values, *others)
    return clause.call(node, "case", is_empty(values), empty, no_texts, NULL, joined)


def _histogram(clause: Clause, node: exp.Expr, values: Expression) -> Expression:
    return clause.call(node, "sorted_list_histogram", clause.call(node, "list_sort", values))


def _count_distinct(clause: Clause, node: exp.Expr, values: Expression) -> Expression:
    return clause.call(node, "list_length", clause.call(node, "list_distinct", values))


def _extract(clause: Clause, node: exp.Expr, value: Expression, position: Expression) -> Expression:
    """Read ``array_extract``: an element of a list, a field of a struct, a character of a text."""
    if pa.types.is_struct(value.type):
        return clause.call(node, "struct_field", value, position)
    if pa.types.is_string(value.type) or pa.types.is_large_string(value.type):
        return clause.call(node, "substring", value, position, integer_literal(1))
    return clause.call(node, "list_element", value, position)


def _slice(clause: Clause, node: exp.Expr, *arguments: Expression) -> Expression:
    """Read ``list_slice(a, begin, end[, step])``."""
    function = "list_slice" if len(arguments) == 3 else "list_slice_step"
    return clause.call(node, function, *arguments)


def _zip(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
    """Read ``list_zip(a, b, ...)``; a last argument ``true`` cuts all lists to the shortest one."""
    cuts_to_shortest = False
    if arguments and pa.types.is_boolean(arguments[-1].type):
        *arguments, flag = arguments
        if not isinstance(flag, Literal):
            raise clause.source.unsupported(
                node, f"{node.name}() with a condition of columns", "write true or false"
            )
        cuts_to_shortest = bool(flag.value)
    if not arguments:
        raise count_error(clause, node, "1 or more")
    zipped = clause.call(node, "list_zip", *arguments)
    fields = [
        (f"element{number}", field.type) for number, field in enumerate(zipped.type.value_type, 1)
    ]
    zipped = clause.call(node, "cast", zipped, type=pa.list_(pa.struct(fields)))
    if not cuts_to_shortest:
        return zipped
    lengths = [
        clause.call(node, "coalesce", clause.call(node, "list_length", values), integer_literal(0))
        for values in arguments
    ]
    shortest = clause.call(node, "least", *lengths) if len(lengths) > 1 else lengths[0]
    return clause.call(node, "list_slice", zipped, integer_literal(1), shortest)


def _grade_up(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
    """Read ``list_grade_up(a[, 'DESC'[, 'NULLS FIRST']])``."""
    if not 1 <= len(arguments) <= 3:
        raise count_error(clause, node, "1 to 3")
    words = [
        " ".join(literal_text(clause, node, word, "an order").upper().split())
        for word in arguments[1:]
    ]
    orders = {"ASC": "", "ASCENDING": "", "DESC": "_desc", "DESCENDING": "_desc"}
    nulls = {"NULLS FIRST": "_nulls_first", "NULLS LAST": ""}
    name = "list_grade_up"
    for word, suffixes in zip(words, (orders, nulls), strict=False):
        if word not in suffixes:
            raise clause.source.error(
                node, f"{word!r} is not an order; write ASC or DESC, NULLS FIRST or LAST"
            )
        name += suffixes[word]
    return clause.call(node, name, arguments[0])


def _one_minus_cosine(
    clause: Clause, node: exp.Expr, left: Expression, right: Expression
) -> Expression:
    cosine = clause.call(node, "list_cosine_similarity", left, right)
    distance = clause.call(node, "subtract", Literal(1.0, pa.float64()), cosine)
    return clause.call(node, "cast", distance, type=cosine.type)


def _negative_product(
    clause: Clause, node: exp.Expr, left: Expression, right: Expression
) -> Expression:
    return clause.call(node, "negate", clause.call(node, "list_dot_product", left, right))


def _fields(clause: Clause, node: exp.Expr, value: Expression) -> list[tuple[str, Expression]]:
    """Return the names and the values of the fields of a struct."""
    if not pa.types.is_struct(value.type):
        raise clause.source.error(
            node, f"{clause.source.name_in_text(node)}() takes a struct, not {value.type}"
        )
    return [
        (field.name, clause.call(node, "struct_field", value, integer_literal(number)))
        for number, field in enumerate(value.type, 1)
    ]


def _struct(clause: Clause, node: exp.Expr, fields: list[tuple[str, Expression]]) -> Expression:
    parts = [part for name, value in fields for part in (string_literal(name), value)]
    return clause.call(node, "make_struct", *parts)


def _struct_concat(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
    if not arguments:
        raise count_error(clause, node, "1 or more")
    fields = [field for value in arguments for field in _fields(clause, node, value)]
    return _struct(clause, node, fields)


def _struct_keys(clause: Clause, node: exp.Expr, value: Expression) -> Expression:
    names = [string_literal(name) for name, _ in _fields(clause, node, value)]
    return unless_null(clause, node, clause.call(node, "make_list", *names), value)


def _struct_values(clause: Clause, node: exp.Expr, value: Expression) -> Expression:
    fields = [
        (f"element{number}", part)
        for number, (_, part) in enumerate(_fields(clause, node, value), 1)
    ]
    return unless_null(clause, node, _struct(clause, node, fields), value)


def _equal_fields(
    clause: Clause, node: exp.Expr, value: Expression, item: Expression
) -> list[Expression]:
    """Return, for each field, the condition that it equals an item.

    The condition is FALSE if the field is a number and the item is not, or the other way round.
    """
    return [
        clause.call(node, "same", part, item)
        if is_number(part.type) == is_number(item.type) and part.type != pa.null()
        else Literal(False, pa.bool_())
        for _, part in _fields(clause, node, value)
    ]


def _struct_contains(
    clause: Clause, node: exp.Expr, value: Expression, item: Expression
) -> Expression:
    tests = _equal_fields(clause, node, value, item)
    return reduce(lambda left, right: clause.call(node, "or", left, right), tests)


def _struct_position(
    clause: Clause, node: exp.Expr, value: Expression, item: Expression
) -> Expression:
    tests = _equal_fields(clause, node, value, item)
    branches = [part for n, test in enumerate(tests, 1) for part in (test, integer_literal(n))]
    return clause.call(node, "case", *branches, NULL)


def _new_fields_reader(*, replaces: bool) -> Reader:
    """Return the reader of ``struct_insert(s, name := value)`` or of ``struct_update``."""

    def read(clause: Clause, node: exp.Anonymous) -> Expression:
        if len(node.expressions) < 2:
            raise count_error(clause, node, "a struct and name := value")
        fields = dict(_fields(clause, node, clause.read(node.expressions[0])))
        for part in node.expressions[1:]:
            if not isinstance(part, exp.PropertyEQ):
                raise clause.source.error(node, f"{node.name}() takes a struct and name := value")
            clause.source.allow_arguments(part, "this", "expression")
            new_name = part.this.name
            name = next((old for old in fields if old.casefold() == new_name.casefold()), None)
            if name is not None and not replaces:
                raise clause.source.error(part, f"the struct has a field {name!r}")
            fields[name or new_name] = clause.read(part.expression)
        return _struct(clause, node, list(fields.items()))

    return read


def _map_merge(clause: Clause, node: exp.Anonymous, arguments: Arguments) -> Expression:
    if not arguments:
        raise count_error(clause, node, "1 or more")
    return clause.call(node, "map_merge", *arguments)


def _alias(function: str, count: int | tuple[int, int]) -> Builder:
    """Return the builder of a function of ``count`` arguments under another name."""

    def build(clause: Clause, node: exp.Expr, *arguments: Expression) -> Expression:
        return clause.call(node, function, *arguments)

    return check_count(count, build)


_PREFIXES: Final = ("list_", "array_")


def _with_prefixes(name: str, builder: Builder) -> dict[str, Builder]:
    return {prefix + name: builder for prefix in _PREFIXES}


_BUILDERS: Final[dict[str, Builder]] = {
    **{
        f"list_{name}": _aggregate_builder(name)
        for name in _AGGREGATES
        if name not in ("arbitrary", "mean")
    },
    **_with_prefixes("aggregate", _aggregate_by_name),
    **_with_prefixes("aggr", _aggregate_by_name),
    "aggregate": _aggregate_by_name,
    "list_string_agg": check_count(1, _string_agg),
    "list_histogram": check_count(1, _histogram),
    **_with_prefixes("unique", check_count(1, _count_distinct)),
    **_with_prefixes("select", _alias("list_select", 2)),
    **_with_prefixes("where", _alias("list_where", 2)),
    **_with_prefixes("resize", _alias("list_resize", (2, 3))),
    **_with_prefixes("slice", check_count((3, 4), _slice)),
    **_with_prefixes("zip", _zip),
    **_with_prefixes("grade_up", _grade_up),
    "grade_up": _grade_up,
    **_with_prefixes("dot_product", _alias("list_dot_product", 2)),
    **_with_prefixes("inner_product", _alias("list_dot_product", 2)),
    **_with_prefixes("negative_dot_product", check_count(2, _negative_product)),
    **_with_prefixes("negative_inner_product", check_count(2, _negative_product)),
    **_with_prefixes("distance", _alias("list_distance", 2)),
    **_with_prefixes("cosine_similarity", _alias("list_cosine_similarity", 2)),
    **_with_prefixes("cosine_distance", check_count(2, _one_minus_cosine)),
    **_with_prefixes("extract", check_count(2, _extract)),
    "list_element": check_count(2, _extract),
    "array_indexof": _alias("list_position", 2),
    "list_cat": call_of("list_concat", least=1),
    "array_value": call_of("make_list"),
    "list_pack": call_of("make_list"),
    "unpivot_list": call_of("make_list"),
    "struct_concat": _struct_concat,
    "struct_keys": check_count(1, _struct_keys),
    "struct_values": check_count(1, _struct_values),
    "struct_extract_at": _alias("struct_field", 2),
    "struct_contains": check_count(2, _struct_contains),
    "struct_has": check_count(2, _struct_contains),
    "struct_position": check_count(2, _struct_position),
    "struct_indexof": check_count(2, _struct_position),
    "map_extract_value": _alias("map_value", 2),
    "map_concat": _map_merge,
}
# Their arguments ``name := value`` are not expressions, so a builder cannot have them.
_FIELD_READERS: Final[dict[str, Reader]] = {
    "struct_insert": _new_fields_reader(replaces=False),
    "struct_update": _new_fields_reader(replaces=True),
}
parse_by_name(_FIELD_READERS, is_spark_dialect=False)
READERS_BY_NAME: Final[dict[str, Reader]] = merge_tables(
    as_readers(spark=False, table=_BUILDERS), _FIELD_READERS
)
