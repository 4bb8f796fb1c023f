"""CSV texts of one row, and their schemas, with Spark's results.

Python's parser reads each distinct text once. A field that is not a value of its type is NULL. The
options are a JSON object with Spark's names in lower case; unknown options are ignored.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as arrow

from circuits.types.arrow_types import is_nested
from circuits.types.functions.argument_rows import fill_rows, row_count
from circuits.types.functions.casting.casts import convert
from circuits.types.functions.casting.coercion import cast_to
from circuits.types.functions.dates.date_formats import format_java
from circuits.types.functions.dates.date_parsing import parse_java
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
from circuits.types.functions.type_rules import is_binary, is_temporal, is_text, kernel_type

__all__ = ["FUNCTIONS"]

_INT32 = range(-(2**31), 2**31)


@dataclass(frozen=True)
class _Options:
    """The options of the format.

    Attributes:
        separator: Separates fields.
        quote: Encloses fields that contain special characters.
        escape: Precedes a quote within such a field.
        null: The text of NULL.
        empty: How an empty text is written; None to write it as two quotes.
        quotes_all: True if all fields are written in quotes.
        trims_start: True if blanks before a field are dropped.
        trims_end: True if blanks after a field are dropped.
        date_format: The pattern of dates; None for ISO 8601.
        timestamp_format: The pattern of timestamps; None for ISO 8601.
        fails_if_malformed: True if a malformed field is an error; else it is NULL.
    """

    separator: str = ","
    quote: str = '"'
    escape: str = "\\"
    null: str = ""
    empty: str | None = None
    quotes_all: bool = False
    trims_start: bool = False
    trims_end: bool = False
    date_format: str | None = None
    timestamp_format: str | None = None
    fails_if_malformed: bool = False

    @classmethod
    def of(cls, options_json: str, *, trims: bool) -> _Options:
        """Read the options from JSON; ``trims`` is the default of trims_start and trims_end."""
        options = json.loads(options_json)

        def flag(name: str, default: bool) -> bool:
            return str(options.get(name, default)).lower() == "true"

        separator = options.get("sep", options.get("delimiter", ",")).replace("\\t", "\t")
        quote, escape = options.get("quote", '"'), options.get("escape", "\\")
        if any(len(character) != 1 for character in (separator, quote, escape)):
            raise ValueError("sep, quote and escape of CSV are one character each")
        return cls(
            separator=separator,
            quote=quote,
            escape=escape,
            null=options.get("nullvalue", ""),
            empty=options.get("emptyvalue"),
            quotes_all=flag("quoteall", False),
            trims_start=flag("ignoreleadingwhitespace", trims),
            trims_end=flag("ignoretrailingwhitespace", trims),
            date_format=options.get("dateformat"),
            timestamp_format=options.get("timestampformat"),
            fails_if_malformed=options.get("mode", "").upper() == "FAILFAST",
        )


def _fields(text: str, options: _Options) -> list[str]:
    rows = csv.reader(
        [text], delimiter=options.separator, quotechar=options.quote, escapechar=options.escape
    )
    cells = next(rows, [])
    if options.trims_start:
        cells = [cell.lstrip(" \t") for cell in cells]
    return [cell.rstrip(" \t") for cell in cells] if options.trims_end else cells


def _from_csv_rule(
    name: str, arguments: Arguments, target_type: pa.DataType | None
) -> TypedArguments:
    require(name, arguments, 3, 3)
    value, schema, options = arguments
    if not (is_text(value.type) or arrow.is_null(value.type)) or not arrow.is_struct(schema.type):
        raise argument_error(name, arguments, "it takes a CSV text and the schema of a row")
    # The type of the result is that of the second argument, a NULL.
    return (cast_to(value, pa.string()), schema, options), schema.type


def _from_csv(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    texts = fill_rows(arguments[0], row_count(arguments))
    encoded = pc.dictionary_encode(texts)
    options = _Options.of(_constant(arguments[2]), trims=False)
    rows = [_fields(text, options) for text in encoded.dictionary.to_pylist()]
    columns = []
    for index, field in enumerate(result_type):
        cells = [row[index] if index < len(row) else None for row in rows]
        cells = [None if cell in (options.null, "") else cell for cell in cells]
        columns.append(_read_cells(cells, kernel_type(field.type), options).cast(field.type))
    structs = pa.StructArray.from_arrays(columns, fields=list(result_type))
    return structs.take(encoded.indices)


def _constant(values: Values) -> str:
    """Return the text of a constant argument."""
    text: str = values.as_py() if isinstance(values, pa.Scalar) else values[0].as_py()
    return text


def _read_cells(cells: list[str | None], data_type: pa.DataType, options: _Options) -> pa.Array:
    pattern = options.date_format if arrow.is_date(data_type) else options.timestamp_format
    if pattern is not None and is_temporal(data_type):
        parsed = [None if cell is None else parse_java(cell, pattern) for cell in cells]
        return convert(pa.array(parsed, pa.timestamp("us")), data_type)
    if arrow.is_integer(data_type):
        cells = [cell if re.fullmatch(r"[+-]?\d+", cell or "") else None for cell in cells]
    values = _convert_cells(cells, data_type)
    if options.fails_if_malformed and values.null_count > cells.count(None):
        raise pa.ArrowInvalid("a malformed CSV text, in the mode FAILFAST")
    return values


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
    require(name, arguments, 2, 2)
    if not arrow.is_struct(arguments[0].type):
        raise argument_error(name, arguments, "it takes a struct")
    return arguments, pa.string()


def _to_csv(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    structs = fill_rows(arguments[0], row_count(arguments))
    options = _Options.of(_constant(arguments[1]), trims=True)
    cells = [_cells(_texts(column, options), options) for column in structs.flatten()]
    rows = pc.binary_join_element_wise(*cells, pa.scalar(options.separator, cells[0].type))
    missing = pa.scalar(None, rows.type)
    return pc.cast(pc.if_else(structs.is_valid(), rows, missing), result_type)


_byte_texts: Final = per_distinct_row(lambda value: f"[{value.hex(' ').upper()}]")


def _texts(values: pa.Array, options: _Options) -> pa.Array:
    """Return the texts of a column of a CSV row."""
    data_type = values.type
    if arrow.is_timestamp(data_type):
        # In Spark, the option timestampFormat has no effect on timestamps without a zone.
        pattern = "yyyy-MM-dd'T'HH:mm:ss.SSS"
        if data_type.tz:
            pattern = options.timestamp_format or f"{pattern}XXX"
        return format_java(convert(values, pa.timestamp("us")), pattern)
    if arrow.is_date(data_type) and options.date_format:
        return format_java(convert(values, pa.timestamp("us")), options.date_format)
    if is_binary(data_type):
        return _byte_texts([values], pa.string())
    if arrow.is_decimal(data_type):  # a small decimal is 1E-8 here
        return pc.cast(values, pa.string())
    texts = spark_texts(values)
    if is_nested(data_type):
        # NULL within a value is written as nothing, without the blank before it.
        texts = pc.replace_substring_regex(texts, r"(^|[\[{ ])null([,\]}]|$)", r"\1\2")
        texts = pc.replace_substring_regex(texts, r", ([,\]}])", r",\1")
    return texts


def _cells(texts: pa.Array, options: _Options) -> pa.Array:
    """Return the cells of texts; the cell of NULL has quotes only with the option quoteAll."""
    if options.quotes_all:
        return _quote(pc.fill_null(texts, options.null), options)
    return pc.fill_null(_quote(texts, options), options.null)


def _quote(texts: pa.Array, options: _Options) -> pa.Array:
    """Return texts without outer blanks, if the options say so, and with quotes where needed.

    Quotes are needed for an empty text and one with a separator, a quote or the end of a line.
    """
    if options.trims_start:
        texts = pc.utf8_ltrim(texts, " \t")
    if options.trims_end:
        texts = pc.utf8_rtrim(texts, " \t")
    if options.empty is not None:
        texts = pc.if_else(pc.equal(texts, ""), options.empty, texts)
    escaped = pc.replace_substring(texts, options.quote, options.escape + options.quote)
    quote = pa.scalar(options.quote, texts.type)
    quoted = pc.binary_join_element_wise(quote, escaped, quote, pa.scalar("", texts.type))
    special = "".join(map(re.escape, (options.separator, options.quote)))
    needs_quotes = pc.match_substring_regex(texts, rf"^$|[{special}\r\n]")
    return pc.if_else(pc.or_(needs_quotes, options.quotes_all), quoted, texts)


def _schema_of_csv(text: str, options_json: str) -> str:
    cells = _fields(text, _Options.of(options_json, trims=False))
    parts = (f"_c{index}: {_type_of_cell(cell)}" for index, cell in enumerate(cells))
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


# In a signature, t is a text.
FUNCTIONS = (
    Function("from_csv", "the row of the CSV text a, as a struct", _from_csv_rule, _from_csv),
    Function("to_csv", "the struct a as a CSV text", _to_csv_rule, _to_csv),
    Function(
        "schema_of_csv",
        "the type of the row of the CSV text a",
        Signature("tt", pa.string()),
        per_distinct_row(_schema_of_csv),
    ),
)
