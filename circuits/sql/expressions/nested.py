"""Lists, structs and maps in expressions: syntax trees to `circuits.types.functions`.

Positions and missing elements differ between dialects:

================= ============================ ==============================================
..                DuckDB                       Spark
================= ============================ ==============================================
``a[i]``          from 1; missing: NULL        from 0; missing: error
element_at(a, i)  from 1; missing: NULL        from 1; missing: error, NULL for try_element_at
list functions    skip a NULL argument         are NULL if an argument is NULL
================= ============================ ==============================================
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
from sqlglot import exp

from circuits.plan.expressions import Column, Expression, Literal
from circuits.sql.binding.clause import Clause, Reader
from circuits.sql.binding.scope import FIRST_HIDDEN_PARAMETER
from circuits.sql.expressions.casts import spark_cast
from circuits.sql.expressions.duckdb_lists import join_texts
from circuits.sql.expressions.lambdas import read_comparator_sort, read_comprehension
from circuits.sql.expressions.literals import NULL, integer_literal, string_literal
from circuits.sql.expressions.spark.sequences import read_sequence
from circuits.sql.expressions.time_series import is_time_series, read_time_series
from circuits.sql.expressions.variants.paths import read_variant_subscript
from circuits.sql.syntax.parsing import parse_by_name
from circuits.types.arrow_types import VARIANT, is_nested
from circuits.types.functions.nested.lambdas import lambda_call
from circuits.types.functions.nested.list_rules import is_list
from circuits.types.functions.type_rules import is_text

__all__ = ["READERS", "READERS_BY_NAME", "subscript_value"]


def _read_list(clause: Clause, node: exp.Array) -> Expression:
    clause.source.allow_arguments(node, "expressions", "value_constructor", "bracket_notation")
    parts = node.expressions
    if len(parts) == 1 and isinstance(parts[0], exp.Comprehension):
        return read_comprehension(clause, parts[0])
    # ARRAY(SELECT ...) is a list of the rows. In [(SELECT ...), x] and in Spark's array(), a query
    # in parentheses (``exp.Subquery``) is a value.
    has_values = clause.source.is_spark or node.args.get("value_constructor") is not None
    row_queries = exp.SetOperation | exp.Select if has_values else exp.Query
    if any(isinstance(part, row_queries) for part in parts):
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
            # sqlglot gives the names col1, col2, ... to the fields of struct(a, b, ...). Such a
            # name has no position in the text.
            is_call = clause.source.name_in_text(node).lower() == "struct"
            is_unnamed = is_call and not part.this.meta
            if isinstance(value, exp.Dot) and is_unnamed:
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
    prefix = "f" if clause.source.is_postgres else "element"
    prefix = "col" if clause.source.is_spark else prefix
    arguments: list[Expression] = []
    for number, part in enumerate(node.expressions, 1):
        name, value = f"{prefix}{number}", part
        if clause.source.is_spark and isinstance(part, exp.Column):
            name = part.name
        elif clause.source.is_spark and isinstance(part, exp.Alias):  # (a AS x, b AS y)
            clause.source.allow_arguments(part, "this", "alias")
            name, value = part.alias, part.this
        arguments += [string_literal(name), clause.read(value)]
    return clause.call(node, "make_struct", *arguments)


def _read_map(clause: Clause, node: exp.Map | exp.VarMap) -> Expression:
    clause.source.allow_arguments(node, "keys", "values")
    keys, values = (node.args.get(name) for name in ("keys", "values"))
    empty = exp.Array()
    clause.source.refuse_arguments(empty)
    parts = [clause.read(part if part is not None else empty) for part in (keys, values)]
    return clause.call(node, "make_map", *parts)


def _read_map_literal(clause: Clause, node: exp.ToMap) -> Expression:
    """Read ``MAP {key: value}`` and ``MAP {key: value}[k]``, whose subscript is inside the node."""
    clause.source.allow_arguments(node, "this")
    if not isinstance(node.this, exp.Bracket):
        return _map_of_pairs(clause, node.this)
    subscript = node.this
    clause.source.allow_arguments(subscript, "this", "expressions")
    if len(subscript.expressions) != 1 or not isinstance(subscript.this, exp.Struct):
        raise clause.source.unsupported(subscript, "this subscript", "write it in parentheses")
    map_ = _map_of_pairs(clause, subscript.this)
    return clause.call(node, "map_value", map_, clause.read(subscript.expressions[0]))


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
    """Read ``a[i]``, ``a[i:j]``, ``s['field']``, ``m[key]``, and element_at() of Spark."""
    return subscript_value(clause, node, clause.read(node.this))


def subscript_value(clause: Clause, node: exp.Bracket, value: Expression) -> Expression:
    """Return a part of a value, by the subscript of a node."""
    clause.source.allow_arguments(
        node, "this", "expressions", "offset", "safe", "returns_list_for_maps"
    )
    if len(node.expressions) != 1:
        raise clause.source.unsupported(node, "several subscripts [a, b]", "write [a][b]")
    subscript = node.expressions[0]
    if isinstance(subscript, exp.Slice):
        return _read_slice(clause, node, value, subscript)
    if value.type == VARIANT:
        return read_variant_subscript(clause, node, value, subscript)
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
        name = "list_element_not_zero" if node.args.get("safe") else "list_element_strict"
    else:
        name = "list_get_strict" if clause.source.is_spark else "list_element"
    return clause.call(node, name, value, index)


def _read_slice(
    clause: Clause, node: exp.Bracket, value: Expression, bounds: exp.Slice
) -> Expression:
    clause.source.allow_arguments(bounds, "this", "expression", "step")
    low, high, step = (bounds.args.get(name) for name in ("this", "expression", "step"))
    is_slice_of_text = is_text(value.type) and not clause.source.is_spark
    if step is not None:
        if is_slice_of_text:
            raise clause.source.unsupported(bounds, "a step in a slice of a text", "leave it out")
        return _slice_by_step(clause, node, value, bounds, clause.read(step))
    begin = clause.read(low) if low is not None else integer_literal(1)
    end = clause.read(high) if high is not None else integer_literal(-1)
    if is_slice_of_text:
        return _slice_text(clause, node, value, begin, end)
    return clause.call(node, "list_slice", value, begin, end)


def _slice_by_step(
    clause: Clause, node: exp.Bracket, value: Expression, bounds: exp.Slice, step: Expression
) -> Expression:
    """Return ``a[i:j:step]``; without bounds, a negative step goes from the end to the start."""
    first, last = integer_literal(1), integer_literal(-1)
    is_negative = clause.call(node, "lt", step, integer_literal(0))
    ends = []
    for name, default, default_if_negative in (("this", first, last), ("expression", last, first)):
        bound = bounds.args.get(name)
        if bound is None:
            ends.append(clause.call(node, "case", is_negative, default_if_negative, default))
        else:
            ends.append(clause.read(bound))
    return clause.call(node, "list_slice_step", value, *ends, step)


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
    return clause.field(node, clause.read(node.this), node.expression.name)


def _read_array_slice(clause: Clause, node: exp.ArraySlice) -> Expression:
    clause.source.allow_arguments(node, "this", "start", "end", "step", "zero_based", "is_length")
    parts = [clause.read(node.args[name]) for name in ("this", "start", "end")]
    by_length = node.args.get("is_length") or clause.source.is_spark
    return clause.call(node, "list_slice_length" if by_length else "list_slice", *parts)


def _read_sort(clause: Clause, node: exp.ArraySort) -> Expression:
    if node.args.get("expression") is not None:
        return read_comparator_sort(clause, node)
    clause.source.allow_arguments(node, "this", "asc", "nulls_first")
    flags = {"asc": True, "nulls_first": False}
    for name in flags:
        flag = node.args.get(name)
        if flag is None:
            continue
        if not isinstance(flag, exp.Boolean):
            raise clause.source.unsupported(
                flag, "a sort order that is an expression", "write a constant"
            )
        clause.source.allow_arguments(flag, "this")
        flags[name] = bool(flag.this)
    name = "list_sort" + ("" if flags["asc"] else "_desc")
    name += "_nulls_first" if flags["nulls_first"] else ""
    return clause.call(node, name, clause.read(node.this))


def _reader_of(function: str, *names: str, ignored: Sequence[str] = ()) -> Reader:
    """Return the reader of a node that calls one function in all dialects."""
    return _reader_by_dialect(function, function, *names, ignored=ignored)


def _reader_by_dialect(duckdb: str, spark: str, *names: str, ignored: Sequence[str] = ()) -> Reader:
    """Return the reader of a node that calls the function ``spark`` in dialect spark.

    Args:
        duckdb: The function in the other dialects.
        spark: The function in dialect spark.
        names: The arguments of the node, in the order of the function's parameters.
        ignored: Arguments of the node that have no effect.
    """

    def read(clause: Clause, node: exp.Expr) -> Expression:
        clause.source.allow_arguments(node, *names, *ignored)
        parts: list[exp.Expr] = []
        for name in names:
            argument = node.args.get(name)
            if argument is not None:
                parts += argument if isinstance(argument, list) else [argument]
        function = spark if clause.source.is_spark else duckdb
        return clause.call(node, function, *map(clause.read, parts))

    return read


def _reader_of_name(
    duckdb: str, spark: str = "", *, least: int = 1, most: int | None = None
) -> Reader:
    """Return the reader of a function that sqlglot knows by its name only."""

    def read(clause: Clause, node: exp.Anonymous) -> Expression:
        count, max_count = len(node.expressions), most or least
        if not least <= count <= max_count:
            allowed = f"{least}" if least == max_count else f"{least} to {max_count}"
            raise clause.source.error(node, f"{node.name}() takes {allowed} arguments, not {count}")
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


def _read_containment(
    clause: Clause, node: exp.ArrayContainsAll | exp.ArrayContainedBy
) -> Expression:
    """Read ``a @> b``, or ``b <@ a``: the list a has all elements of the list b.

    Two texts are JSON, and a has all members of b.
    """
    container, contained = clause.read_arguments(node, "this", "expression")
    if isinstance(node, exp.ArrayContainedBy):
        container, contained = contained, container
    is_json = is_text(container.type) and is_text(contained.type)
    function = "json_includes" if is_json else "list_contains_all"
    return clause.call(node, function, container, contained)


def _read_prepend(clause: Clause, node: exp.ArrayPrepend) -> Expression:
    """Read array_prepend(); Feldera has the list first, as Spark does."""
    clause.source.allow_arguments(node, "this", "expression", "null_propagation")
    values, element = clause.read(node.this), clause.read(node.expression)
    if not is_list(values.type) and is_list(element.type):
        values, element = element, values
    function = "list_prepend_or_null" if clause.source.is_spark else "list_prepend"
    return clause.call(node, function, values, element)


def _read_array_size(clause: Clause, node: exp.ArraySize) -> Expression:
    clause.source.allow_arguments(node, "this", "expression")
    dimension = node.args.get("expression")
    value = clause.read(node.this)
    if dimension is None:
        return clause.call(node, "length", value)
    return _length_of_dimension(clause, node, value, dimension)


def _length_of_dimension(
    clause: Clause, node: exp.Expr, value: Expression, dimension: exp.Expr
) -> Expression:
    """Return the length of a list, or of the first element at another level of a nested list.

    It is NULL if the list has no such dimension.
    """
    number = clause.read(dimension)
    if not isinstance(number, Literal):
        raise clause.source.unsupported(
            dimension, "a dimension that is not constant", "write it as a number"
        )
    nothing = Literal(None, pa.int64())
    if not isinstance(number.value, int) or number.value < 1:
        return nothing
    for _ in range(number.value - 1):
        if not is_list(value.type) or not is_list(value.type.value_type):
            return nothing
        value = clause.call(node, "list_element", value, integer_literal(1))
    return clause.call(node, "length", value)


def _read_bound(clause: Clause, node: exp.Anonymous) -> Expression:
    """Read ``array_lower(a, 1)`` and ``array_upper(a, 1)``, NULL for an empty list."""
    if len(node.expressions) != 2:
        raise clause.source.error(node, f"{node.name}() takes a list and a dimension")
    value, dimension = clause.read(node.expressions[0]), node.expressions[1]
    length = _length_of_dimension(clause, node, value, dimension)
    upper = clause.call(node, "nullif", length, integer_literal(0))
    if node.name.casefold() == "array_upper":
        return upper
    is_null = clause.call(node, "is_null", upper)
    return clause.call(node, "case", is_null, Literal(None, pa.int64()), integer_literal(1))


def _read_dimensions(clause: Clause, node: exp.Anonymous) -> Expression:
    """Read ``array_ndims(a)``, NULL for an empty list."""
    if len(node.expressions) != 1:
        raise clause.source.error(node, "array_ndims() takes a list")
    value = clause.read(node.expressions[0])
    is_empty = clause.call(node, "eq", clause.call(node, "length", value), integer_literal(0))
    is_null = clause.call(node, "is_null", value)
    nothing = Literal(None, pa.int64())
    count, type_ = 0, value.type
    while is_list(type_):
        count, type_ = count + 1, type_.value_type
    levels = integer_literal(count)
    return clause.call(node, "case", is_null, nothing, is_empty, nothing, levels)


def _read_element_at(clause: Clause, node: exp.Anonymous) -> Expression:
    """Read element_at() and list_extract() of DuckDB, and get() of Spark."""
    if len(node.expressions) != 2:
        raise clause.source.error(node, f"{node.name}() takes 2 arguments")
    value, index = map(clause.read, node.expressions)
    # list_extract() also takes a text, element_at() does not.
    if is_text(value.type) and not clause.source.is_spark and node.name.lower() != "element_at":
        return clause.call(node, "substring", value, index, integer_literal(1))
    if pa.types.is_map(value.type):
        return _list_of_map_value(clause, node, value, index)
    return clause.call(
        node, "list_get" if node.name.lower() == "get" else "list_element", value, index
    )


def _list_of_map_value(
    clause: Clause, node: exp.Anonymous, value: Expression, key: Expression
) -> Expression:
    """Return element_at() of a map in DuckDB: the list of the value, empty without the key."""
    has_key = clause.call(node, "map_contains", value, key)
    single = clause.call(node, "make_list", clause.call(node, "map_value", value, key))
    empty = clause.call(node, "make_list")
    missing = clause.call(node, "not", has_key)
    return clause.call(node, "case", has_key, single, missing, empty, NULL)


def _read_series(clause: Clause, node: exp.GenerateSeries) -> Expression:
    if clause.source.is_spark:
        return read_sequence(clause, node)
    clause.source.allow_arguments(node, "start", "end", "step", "is_end_exclusive")
    function = "series_before" if node.args.get("is_end_exclusive") else "series"
    ends = [clause.read(node.args[name]) for name in ("start", "end") if node.args.get(name)]
    if len(ends) == 2 and is_time_series(*ends):
        start, stop = ends
        return read_time_series(clause, node, start, stop, function)
    step = node.args.get("step")
    return clause.call(node, function, *ends, *([] if step is None else [clause.read(step)]))


def _read_string_to_array(clause: Clause, node: exp.StringToArray) -> Expression:
    """Read PostgreSQL's ``string_to_array(s, ',')``; the parts of an empty text are no parts.

    A separator that is NULL separates all characters; an empty one separates none. Parts that equal
    the third argument are NULL.
    """
    clause.source.allow_arguments(node, "this", "expression", "null")
    text, delimiter = clause.read(node.this), clause.read(node.expression)
    # For the function, an empty separator separates all characters, and NULL none.
    is_null = clause.call(node, "is_null", delimiter)
    separator = clause.call(node, "nullif", delimiter, string_literal(""))
    separator = clause.call(node, "case", is_null, string_literal(""), separator)
    parts = clause.call(node, "split", text, separator)
    null = node.args.get("null")
    if null is not None:
        word = clause.read(null)
        if not isinstance(word, Literal):
            raise clause.source.unsupported(
                node, "a computed text for NULL in string_to_array()", "write a constant"
            )
        value = clause.call(node, "nullif", Column(FIRST_HIDDEN_PARAMETER, pa.string()), word)
        with clause.source.errors_at(node):
            parameters = (FIRST_HIDDEN_PARAMETER, FIRST_HIDDEN_PARAMETER + 1)
            parts = lambda_call("list_transform", parts, value, parameters)
    is_empty = clause.call(node, "eq", text, string_literal(""))
    no_parts = clause.call(node, "list_slice", parts, integer_literal(1), integer_literal(0))
    return clause.call(node, "case", is_empty, no_parts, parts)


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


def _read_join(clause: Clause, node: exp.ArrayToString) -> Expression:
    values, *others = clause.read_arguments(node, "this", "expression", "null")
    if clause.source.is_spark:
        return clause.call(node, "list_join", _texts_of_elements(clause, node, values), *others)
    return join_texts(clause, node, values, *others, empty=string_literal(""))


def _texts_of_elements(clause: Clause, node: exp.Expr, values: Expression) -> Expression:
    """Return a list with the texts that its elements have in Spark."""
    if not is_list(values.type) or is_nested(values.type.value_type):
        return values
    return spark_cast(clause, node, values, pa.list_(pa.string()))


def _split_reader(function: str) -> Reader:
    def read(clause: Clause, node: exp.Expr) -> Expression:
        value, separator = clause.read_arguments(node, "this", "expression")
        if pa.types.is_null(separator.type) and not clause.source.is_spark:
            # Without a separator, the text is the only part.
            part = clause.call(node, "cast", value, type=pa.string())
            is_null = clause.call(node, "is_null", part)
            return clause.call(node, "case", is_null, NULL, clause.call(node, "make_list", part))
        return clause.call(node, function, value, separator)

    return read


def _read_generator(clause: Clause, node: exp.Expr) -> Expression:
    """Read explode(), which makes several rows: the clause applies it to its rows."""
    return clause.read_generator(clause, node)


READERS: Final[dict[type[exp.Expr], Reader]] = {
    exp.Array: _read_list,
    exp.ArrayAppend: _reader_by_dialect(
        "list_append", "list_append_or_null", "this", "expression", ignored=["null_propagation"]
    ),
    exp.ArrayCompact: _reader_of("list_compact", "this"),
    exp.ArrayConcat: _reader_by_dialect(
        "list_concat",
        "list_concat_or_null",
        *("this", "expressions"),
        ignored=["null_propagation"],
    ),
    exp.ArrayContains: _reader_by_dialect(
        "list_contains",
        "list_contains_or_null",
        *("this", "expression"),
        ignored=["ensure_variant", "check_null"],
    ),
    exp.ArrayContainedBy: _read_containment,
    exp.ArrayContainsAll: _read_containment,
    exp.ArrayDistinct: _reader_by_dialect(
        "list_distinct", "list_distinct_with_null", "this", ignored=["check_null"]
    ),
    exp.ArrayExcept: _reader_of("list_except", "this", "expression"),
    exp.ArrayIntersect: _read_intersection,
    exp.ArrayMax: _reader_of("list_max", "this"),
    exp.ArrayMin: _reader_of("list_min", "this"),
    exp.ArrayOverlaps: _reader_by_dialect(
        "list_overlaps", "list_overlaps_or_null", "this", "expression"
    ),
    exp.ArrayPosition: _reader_by_dialect(
        "list_position",
        "list_position_or_zero",
        *("this", "expression"),
        ignored=["zero_based"],
    ),
    exp.ArrayPrepend: _read_prepend,
    exp.ArrayRemove: _reader_of("list_remove", "this", "expression", ignored=["null_propagation"]),
    exp.ArraySize: _read_array_size,
    exp.ArraySlice: _read_array_slice,
    exp.ArraySort: _read_sort,
    exp.ArrayToString: _read_join,
    exp.Bracket: _read_subscript,
    exp.Dot: _read_dot,
    exp.Explode: _read_generator,
    exp.Flatten: _reader_by_dialect("list_flatten", "list_flatten_or_null", "this"),
    exp.GenerateSeries: _read_series,
    exp.Map: _read_map,
    exp.MapContainsKey: _reader_of("map_contains", "this", "key"),
    exp.MapFromEntries: _reader_by_dialect("map_from_entries", "map_from_entries_or_null", "this"),
    exp.MapKeys: _reader_of("map_keys", "this"),
    exp.RegexpSplit: _split_reader("split_regex"),
    exp.Split: _split_reader("split"),
    exp.StringToArray: _read_string_to_array,
    exp.Struct: _read_struct,
    exp.StructExtract: _reader_of("struct_field", "this", "expression"),
    exp.ToMap: _read_map_literal,
    exp.Tuple: _read_row,
    exp.VarMap: _read_map,
}
_LENGTH_NAMES: Final = ("cardinality", "array_length", "list_length", "size")
READERS_BY_NAME: Final[dict[str, Reader]] = {
    **dict.fromkeys(_LENGTH_NAMES, _read_length),
    "array_contains_all": _reader_of_name("list_contains_all", least=2),
    "array_has_all": _reader_of_name("list_contains_all", least=2),
    "array_has_any": _reader_of_name("list_overlaps", least=2),
    **dict.fromkeys(("array_lower", "array_upper"), _read_bound),
    "array_ndims": _read_dimensions,
    "array_repeat": _reader_of_name("list_repeat", least=2),
    "array_union": _reader_of_name("list_union", least=2),
    "arrays_overlap": _reader_of_name("list_overlaps", "list_overlaps_or_null", least=2),
    "element_at": _read_element_at,
    "get": _read_element_at,
    "list_except": _reader_of_name("list_except", least=2),
    "list_has_all": _reader_of_name("list_contains_all", least=2),
    "list_intersect": _read_intersection,
    "list_position": _reader_of_name("list_position", least=2),
    "list_indexof": _reader_of_name("list_position", least=2),
    "list_reverse": _reader_of_name("list_reverse"),
    "array_reverse": _reader_of_name("list_reverse"),
    "map_contains": _reader_of_name("map_contains", least=2),
    "map_extract": _read_element_at,
    "map_entries": _reader_of_name("map_entries"),
    "map_values": _reader_of_name("map_values"),
    "regexp_split_to_array": _reader_of_name("split_regex", least=2),
    "row": _read_row,
}
for is_spark_dialect in (False, True):
    parse_by_name(("array_reverse",), is_spark_dialect=is_spark_dialect)
