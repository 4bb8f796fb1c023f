"""Nested values as texts, in the format of Spark or of DuckDB.

========= ================ ====================
value     Spark            DuckDB
========= ================ ====================
a list    ``[1, null]``    ``[1, NULL]``
a map     ``{a -> 1}``     ``{a=1}``
a struct  ``{1, x}``       ``{'a': 1, 'b': x}``
a float   ``1.0E10``       ``1e+10``
a decimal ``0.5``          ``.5``
a date    ``+10000-01-01`` ``10000-01-01``
a text    ``a, b``         ``'a, b'``
========= ================ ====================

DuckDB writes a text in quotes if it has a special character, is empty or NULL, or has a blank at an
end. The values inside of a nested column are formatted first. Each level is one operation on whole
arrays.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as arrow

from circuits.types.arrow_types import is_nested, part_types
from circuits.types.codecs.nested import list_array, list_parts
from circuits.types.functions.argument_rows import fill_rows, row_count
from circuits.types.functions.casting.casts import convert
from circuits.types.functions.casting.text_formatting import with_whole_digit, write_text
from circuits.types.functions.function import (
    Arguments,
    Function,
    TypedArguments,
    Values,
    argument_error,
    require,
)
from circuits.types.functions.numbers.number_formats import java_floats
from circuits.types.functions.type_rules import (
    is_binary,
    is_interval,
    is_row_without_names,
    kernel_type,
)

__all__ = ["FUNCTIONS", "spark_texts"]

_TEXT = pa.string()
# The texts that DuckDB writes in quotes.
_NEEDS_QUOTES: Final = r"""["'(),:=\[\]{}\\]|^[\t\n\v\f\r ]|[\t\n\v\f\r ]$|^$|^(?i:null)$"""


def spark_texts(values: pa.Array) -> pa.Array:
    """Return values as texts; NULL stays NULL, and NULL within a value is ``null``."""
    data_type = values.type
    if is_nested(data_type):
        texts = _struct_texts(values) if arrow.is_struct(data_type) else _list_texts(values)
        return pc.if_else(values.is_valid(), texts, pa.scalar(None, _TEXT))
    if arrow.is_floating(data_type):
        return pc.cast(java_floats(values), _TEXT)
    if arrow.is_timestamp(data_type) and data_type.tz is not None:
        values = convert(values, pa.timestamp("us"))
    if arrow.is_date(data_type) or arrow.is_timestamp(data_type):
        return pc.cast(write_text(values, pa.large_string(), signed_years=True), _TEXT)
    if arrow.is_decimal(data_type):
        values = with_whole_digit(values)
    decoded = values.cast(kernel_type(values.type))  # without a dictionary encoding
    return pc.cast(convert(decoded, pa.large_string()), _TEXT)


def _texts_with_nulls(values: pa.Array) -> pa.Array:
    return pc.fill_null(spark_texts(values), "null")


def _struct_texts(values: pa.Array) -> pa.Array:
    joined = pc.binary_join_element_wise(*map(_texts_with_nulls, values.flatten()), ", ")
    return _enclose("{", joined, "}")


def _list_texts(values: pa.Array) -> pa.Array:
    return _join_lists(values, _texts_with_nulls, " -> ")


def _join_lists(values: pa.Array, write: Callable[[pa.Array], pa.Array], between: str) -> pa.Array:
    """Return lists or maps as texts; ``between`` stands between a key and its value."""
    counts, parts = list_parts(values)
    is_map = arrow.is_map(values.type)
    texts = write(parts[0])
    if is_map:
        texts = pc.binary_join_element_wise(texts, write(parts[1]), between)
    joined = pc.binary_join(list_array(pa.list_(_TEXT), counts, [texts], None), ", ")
    return _enclose("{", joined, "}") if is_map else _enclose("[", joined, "]")


def _enclose(start: str, texts: pa.Array, end: str) -> pa.Array:
    return pc.cast(pc.binary_join_element_wise(start, texts, end, ""), _TEXT)


def _duckdb_texts(values: pa.Array) -> pa.Array:
    """Return nested values as texts; NULL stays NULL, and NULL within a value is ``NULL``."""
    texts = _duckdb_struct(values) if arrow.is_struct(values.type) else _duckdb_list(values)
    return pc.if_else(values.is_valid(), texts, pa.scalar(None, _TEXT))


def _duckdb_part(values: pa.Array) -> pa.Array:
    """Return the parts of nested values as texts."""
    if is_nested(values.type):
        return pc.fill_null(_duckdb_texts(values), "NULL")
    decoded = values.cast(kernel_type(values.type))  # without a dictionary encoding
    texts = pc.cast(convert(decoded, pa.large_string()), _TEXT)
    quoted = pc.if_else(
        pc.match_substring_regex(texts, _NEEDS_QUOTES),
        _enclose("'", pc.replace_substring_regex(texts, r"(['\\])", r"\\\1"), "'"),
        texts,
    )
    return pc.fill_null(quoted, "NULL")


def _duckdb_struct(values: pa.Array) -> pa.Array:
    names = [field.name for field in values.type]
    parts = [_duckdb_part(part) for part in values.flatten()]
    if is_row_without_names(values.type):
        return _enclose("(", pc.binary_join_element_wise(*parts, ", "), ")")
    quoted = ["'" + re.sub(r"(['\\])", r"\\\1", name) + "': " for name in names]
    fields = [
        pc.binary_join_element_wise(name, part, "")
        for name, part in zip(quoted, parts, strict=True)
    ]
    return _enclose("{", pc.binary_join_element_wise(*fields, ", "), "}")


def _duckdb_list(values: pa.Array) -> pa.Array:
    return _join_lists(values, _duckdb_part, "=")


def _rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
    require(name, arguments, 1, 1)
    return arguments, _TEXT


def _kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    return pc.cast(spark_texts(fill_rows(arguments[0], row_count(arguments))), result_type)


def _duckdb_rule(
    name: str, arguments: Arguments, target_type: pa.DataType | None
) -> TypedArguments:
    require(name, arguments, 1, 1)
    if not is_nested(arguments[0].type) or _has_other_text(arguments[0].type):
        raise argument_error(
            name, arguments, "it takes a list, struct or map without bytes and intervals"
        )
    return arguments, _TEXT


def _has_other_text(data_type: pa.DataType) -> bool:
    """Return whether a type has parts whose text in DuckDB is not that of Arrow."""
    if is_nested(data_type):
        return any(map(_has_other_text, part_types(data_type)))
    return is_binary(data_type) or is_interval(data_type)


def _duckdb_kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    return pc.cast(_duckdb_texts(arguments[0]), result_type)


FUNCTIONS = (
    Function("spark_text", "a as text in the format of Spark", _rule, _kernel),
    Function(
        "nested_text",
        "the list, struct or map a as text, as in DuckDB",
        _duckdb_rule,
        _duckdb_kernel,
    ),
)
