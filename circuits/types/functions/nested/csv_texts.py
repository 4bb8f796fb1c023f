"""CSV texts of one row, and the schemas of CSV and JSON texts, with Spark's results.

Python's parser reads each distinct text once. A field that is no value of its type is NULL.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as arrow

from circuits.types.functions.argument_rows import fill_rows, row_count
from circuits.types.functions.casting.casts import convert
from circuits.types.functions.casting.coercion import cast_to
from circuits.types.functions.function import (
    Arguments,
    Function,
    TypedArguments,
    Values,
    argument_error,
    require,
)
from circuits.types.functions.nested.nested_texts import spark_texts
from circuits.types.functions.signatures import Signature, per_distinct_row
from circuits.types.functions.type_rules import is_text, plain

__all__ = ["FUNCTIONS"]

_INT32 = range(-(2**31), 2**31)


def _fields(text: str) -> list[str]:
    return next(csv.reader([text], skipinitialspace=True, escapechar="\\"), [])


def _from_csv_rule(
    name: str, arguments: Arguments, target_type: pa.DataType | None
) -> TypedArguments:
    require(name, arguments, 2, 2)
    value, schema = arguments
    if not (is_text(value.type) or arrow.is_null(value.type)) or not arrow.is_struct(schema.type):
        raise argument_error(name, arguments, "it takes a CSV text and the schema of a row")
    # The type of the result is that of the second argument, a NULL.
    return (cast_to(value, pa.string()), schema), schema.type


def _from_csv(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    texts = fill_rows(arguments[0], row_count(arguments))
    encoded = pc.dictionary_encode(texts)
    rows = [_fields(text) for text in encoded.dictionary.to_pylist()]
    columns = []
    for position, field in enumerate(result_type):
        cells = [row[position].strip() if position < len(row) else None for row in rows]
        cells = [cell or None for cell in cells]
        columns.append(_convert_cells(cells, plain(field.type)).cast(field.type))
    structs = pa.StructArray.from_arrays(columns, fields=list(result_type))
    return structs.take(encoded.indices)


def _convert_cells(cells: list[str | None], data_type: pa.DataType) -> pa.Array:
    texts = pa.array(cells, pa.string())
    try:
        return convert(texts, data_type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        parts = [_convert_cell(cell, data_type) for cell in texts]
        return pa.concat_arrays(parts)


def _convert_cell(cell: pa.Scalar, data_type: pa.DataType) -> pa.Array:
    try:
        return convert(pa.array([cell.as_py()], pa.string()), data_type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.nulls(1, data_type)


def _to_csv_rule(
    name: str, arguments: Arguments, target_type: pa.DataType | None
) -> TypedArguments:
    require(name, arguments, 1, 1)
    if not arrow.is_struct(arguments[0].type):
        raise argument_error(name, arguments, "it takes a struct")
    return arguments, pa.string()


def _to_csv(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    (structs,) = arguments
    cells = [pc.fill_null(_quote(spark_texts(column)), "") for column in structs.flatten()]
    rows = pc.binary_join_element_wise(*cells, pa.scalar(",", cells[0].type))
    null = pa.scalar(None, rows.type)
    return pc.cast(pc.if_else(structs.is_valid(), rows, null), result_type)


def _quote(texts: pa.Array) -> pa.Array:
    """Return texts without outer blanks; in quotes if empty, or with a comma, quote or line."""
    texts = pc.utf8_trim(texts, " \t")
    escaped = pc.replace_substring(texts, '"', '\\"')
    quoted = pc.binary_join_element_wise(
        pa.scalar('"', texts.type), escaped, pa.scalar('"', texts.type), pa.scalar("", texts.type)
    )
    return pc.if_else(pc.match_substring_regex(texts, '^$|[,"\r\n]'), quoted, texts)


def _schema_of_csv(text: str) -> str:
    parts = (f"_c{position}: {_type_of_cell(cell)}" for position, cell in enumerate(_fields(text)))
    return f"STRUCT<{', '.join(parts)}>"


def _type_of_cell(cell: str) -> str:
    if re.fullmatch(r"[+-]?\d+", cell):
        return _integer_type(int(cell))
    if re.fullmatch(r"[+-]?(\d+\.\d*|\.\d+|\d+)([eE][+-]?\d+)?", cell):
        return "DOUBLE"
    if cell.lower() in ("true", "false"):
        return "BOOLEAN"
    if re.fullmatch(r"\d{4}-\d{2}-\d{2}", cell):
        return "DATE"
    return "TIMESTAMP" if re.fullmatch(r"\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}.*", cell) else "STRING"


def _integer_type(value: int) -> str:
    if value in _INT32:
        return "INT"
    return "BIGINT" if -(2**63) <= value < 2**63 else f"DECIMAL({len(str(abs(value)))},0)"


def _schema_of_json(text: str) -> str:
    return _type_of_json(json.loads(text, parse_float=Decimal))


def _type_of_json(value: Any) -> str:
    match value:
        case bool():
            return "BOOLEAN"
        case int():
            return "BIGINT" if -(2**63) <= value < 2**63 else _integer_type(value)
        case Decimal():
            return "DOUBLE"
        case dict():
            parts = (f"{name}: {_type_of_json(part)}" for name, part in sorted(value.items()))
            return f"STRUCT<{', '.join(parts)}>"
        case list():
            types = {_type_of_json(part) for part in value}
            if len(types) > 1 and types <= {"BIGINT", "DOUBLE"}:
                types = {"DOUBLE"}
            if len(types) > 1 and any("<" in name for name in types):
                raise ValueError("the elements of an array have different types")
            return f"ARRAY<{types.pop() if len(types) == 1 else 'STRING'}>"
        case _:
            return "STRING"


FUNCTIONS = (
    Function("from_csv", "the row of the CSV text a, as a struct", _from_csv_rule, _from_csv),
    Function("to_csv", "the struct a as a CSV text", _to_csv_rule, _to_csv),
    Function(
        "schema_of_csv",
        "the type of the row of the CSV text a",
        Signature("t", pa.string()),
        per_distinct_row(_schema_of_csv),
    ),
    Function(
        "schema_of_json",
        "the type of the JSON text a",
        Signature("t", pa.string()),
        per_distinct_row(_schema_of_json),
    ),
)
