"""Values as texts in the format of Spark: ``[1, 2]``, ``{a -> 1}``, ``{1, x}``, ``1.0E10``.

The values inside of a nested column are formatted first. Each level is one operation on whole
arrays.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as arrow

from circuits.types.arrow_types import is_nested
from circuits.types.codecs.nested import list_array, list_parts
from circuits.types.functions.casting.casts import convert
from circuits.types.functions.function import Arguments, Function, TypedArguments, Values, require
from circuits.types.functions.numbers.number_formats import java_floats
from circuits.types.functions.type_rules import kernel_type

__all__ = ["FUNCTIONS", "spark_texts"]

_TEXT = pa.string()


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
    decoded = values.cast(kernel_type(values.type))  # without a dictionary encoding
    return pc.cast(convert(decoded, pa.large_string()), _TEXT)


def _texts_with_nulls(values: pa.Array) -> pa.Array:
    return pc.fill_null(spark_texts(values), "null")


def _struct_texts(values: pa.Array) -> pa.Array:
    joined = pc.binary_join_element_wise(*map(_texts_with_nulls, values.flatten()), ", ")
    return _enclose("{", joined, "}")


def _list_texts(values: pa.Array) -> pa.Array:
    counts, parts = list_parts(values)
    is_map = arrow.is_map(values.type)
    texts = _texts_with_nulls(parts[0])
    if is_map:
        texts = pc.binary_join_element_wise(texts, _texts_with_nulls(parts[1]), " -> ")
    joined = pc.binary_join(list_array(pa.list_(_TEXT), counts, [texts], None), ", ")
    return _enclose("{", joined, "}") if is_map else _enclose("[", joined, "]")


def _enclose(start: str, texts: pa.Array, end: str) -> pa.Array:
    return pc.cast(pc.binary_join_element_wise(start, texts, end, ""), _TEXT)


def _rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
    require(name, arguments, 1, 1)
    return arguments, _TEXT


def _kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    return pc.cast(spark_texts(arguments[0]), result_type)


FUNCTIONS = (Function("spark_text", "a as text in the format of Spark", _rule, _kernel),)
