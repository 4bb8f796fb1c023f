"""Functions of JSON texts. Python's parser parses each distinct text once per call.

A path is a JSON array of steps. A step is a key of an object or a position in an array; so
``["a", 0]`` is the path ``$.a[0]`` of SQL, which the SQL front end converts. A text that is not
JSON is an error in the functions of DuckDB, and NULL in those of other dialects.

Cost: O(bytes of the distinct texts) in Python, about a microsecond per JSON value in them.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, time
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from functools import lru_cache, partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as arrow

from circuits.plan.expressions import Literal
from circuits.types.arrow_types import has_variant, is_nested, part_types
from circuits.types.functions.argument_rows import fill_rows, map_distinct, row_count
from circuits.types.functions.casting.coercion import cast_to
from circuits.types.functions.function import (
    Arguments,
    Function,
    Kernel,
    Rule,
    TypedArguments,
    Values,
    argument_error,
    require,
)
from circuits.types.functions.nested.json_columns import (
    JsonStyle,
    json_column,
    map_values,
    quote_text,
    quote_texts,
)
from circuits.types.functions.numbers.number_formats import postgres_float_texts
from circuits.types.functions.signatures import Signature, per_distinct_row
from circuits.types.functions.texts.bytes_parts import escape_bytes
from circuits.types.functions.type_rules import is_binary, is_interval, is_text

__all__ = [
    "FUNCTIONS",
    "MISSING",
    "RepeatedMembers",
    "members_of",
    "parse_document",
    "parse_json",
    "parse_json_prefix",
    "path_rule",
    "steps_of",
    "text_of",
    "to_json_rule",
    "type_of",
    "write_json",
]

#: Stands for invalid JSON, and for a path without a value; None stands for JSON's null.
MISSING: Final = object()


class _HugeFloat(float):
    """A number beyond the floats, which is infinite and keeps its text."""

    text: str

    def __new__(cls, text: str) -> _HugeFloat:
        number = super().__new__(cls, text)
        number.text = text
        return number


def _parse_float(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _HugeFloat(text)


def _parse_integer(text: str) -> int | float:
    """Return an integer; one with more digits than Python reads is a float that keeps its text."""
    return int(text) if len(text) <= _MAX_DIGITS else _parse_float(text)


#: Half of a surrogate pair, which is no character, as a JSON text escapes it.
_SURROGATE_ESCAPE: Final = re.compile(r"\\u[dD][89a-fA-F]")


def _check_characters(text: str, value: Any) -> None:
    """Check the characters of a parsed JSON text; ValueError for half of a surrogate pair."""
    if _SURROGATE_ESCAPE.search(text):
        write_json(value).encode()


def parse_json(text: str, *, keeps_all_members: bool = True) -> Any:
    """Return the value of a JSON text; `MISSING` if it is no JSON.

    An object in which a name occurs twice is `RepeatedMembers`, as DuckDB reads it. If
    ``keeps_all_members`` is false, it has the last member of each name, as in PostgreSQL.

    Raises:
        pa.ArrowInvalid: The text has more levels than Python's parser reads.
    """
    try:
        decoders = _DECODERS if keeps_all_members else _LAST_MEMBERS_DECODERS
        value = decoders.decoder_of(text).decode(text)
        _check_characters(text, value)
    except RecursionError:
        raise pa.ArrowInvalid("the JSON text has too many levels of arrays and objects") from None
    except ValueError:
        return MISSING
    return value


def parse_document(text: str, *, keeps_all_members: bool = True) -> Any:
    """Return the value of a JSON text; `MISSING` for another text, unless DuckDB reads it.

    Args:
        text: The text.
        keeps_all_members: True to read it as DuckDB does; false for other dialects.

    Raises:
        pa.ArrowInvalid: The text is no JSON, and DuckDB reads it.
    """
    value = parse_json(text, keeps_all_members=keeps_all_members)
    if value is MISSING and keeps_all_members:
        raise pa.ArrowInvalid("the text is no JSON")
    return value


def parse_json_prefix(text: str) -> Any:
    """Return the value at the start of a text, as Spark reads JSON; `MISSING` if there is none.

    A string may be in single quotes. An object in which a name occurs twice is `RepeatedMembers`.
    The text after the value is ignored, but a number must end at a blank, and a word such as
    ``true`` must not go on.
    """
    start = len(text) - len(text.lstrip(_JSON_BLANKS))
    try:
        value, end = _SPARK_DECODERS.decoder_of(text).raw_decode(text, start)
        _check_characters(text[:end], value)
    except (ValueError, RecursionError):
        quoted = _with_double_quotes(text) if "'" in text else text
        return MISSING if quoted == text else parse_json_prefix(quoted)
    following = text[end : end + 1]
    if isinstance(value, bool) or value is None:
        return MISSING if following.isalnum() or following in ("_", "$") else value
    if isinstance(value, int | float) and following not in _JSON_BLANKS:
        return MISSING
    return value


class RepeatedMembers(dict[str, Any]):
    """An object in which a name occurs twice.

    A look-up finds the first member of a name. `items` and `values` return all members in their
    order.
    """

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(reversed(pairs))
        self._pairs = pairs

    def items(self) -> Any:
        """All members, as pairs of a name and a value."""
        return self._pairs

    def values(self) -> Any:
        """The values of all members."""
        return [value for _, value in self._pairs]


def members_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object with all of some members: a dict if no name occurs twice."""
    members = dict(pairs)
    return RepeatedMembers(pairs) if len(members) < len(pairs) else members


# A string in double or in single quotes.
_QUOTED: Final = re.compile(r""""(?:[^"\\]|\\.)*"|'((?:[^'\\]|\\.)*)'""", re.DOTALL)
_ESCAPED: Final = re.compile(r"""\\.|\"""", re.DOTALL)


def _with_double_quotes(text: str) -> str:
    """Return a text whose strings in single quotes are in double quotes.

    >>> _with_double_quotes("{'a': 'x', 'b': 1}")
    '{"a": "x", "b": 1}'
    """

    def replace(match: re.Match[str]) -> str:
        inner = match[1]
        if inner is None:
            return match[0]
        changes = {"\\'": "'", '"': '\\"'}
        body = _ESCAPED.sub(lambda part: changes.get(part[0], part[0]), inner)
        return f'"{body}"'

    return _QUOTED.sub(replace, text)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_JSON_BLANKS: Final = " \t\n\r"
#: The longest text of an integer that Python reads in all its settings.
_MAX_DIGITS: Final = 640
#: A prime: a list of short integers of one length has its commas among every 23rd character.
_SAMPLING_STEP: Final = 23
#: A longer integer has these digits among the sampled characters of a text.
_SAMPLED_INTEGER: Final = re.compile(f"[0-9]{{{_MAX_DIGITS // _SAMPLING_STEP}}}")


class _Decoders:
    """Python's decoders of JSON with some options: of most texts, and of those with long integers.

    The latter calls a Python function for each integer, which takes several times as long.
    """

    def __init__(self, **options: Any) -> None:
        options |= {"parse_float": _parse_float, "parse_constant": _refuse_constant}
        self._decoder = json.JSONDecoder(**options)
        self._long_decoder = json.JSONDecoder(parse_int=_parse_integer, **options)

    def decoder_of(self, text: str) -> json.JSONDecoder:
        """Return the decoder of a text."""
        if len(text) > _MAX_DIGITS and _SAMPLED_INTEGER.search(text[::_SAMPLING_STEP]):
            return self._long_decoder
        return self._decoder


_DECODERS: Final = _Decoders(object_pairs_hook=members_of)
_LAST_MEMBERS_DECODERS: Final = _Decoders()
# In Spark, a string may contain control characters.
_SPARK_DECODERS: Final = _Decoders(object_pairs_hook=members_of, strict=False)


def _follow(value: Any, steps: Sequence[str | int]) -> Any:
    for step in steps:
        if isinstance(step, int):
            if not isinstance(value, list) or not -len(value) <= step < len(value):
                return MISSING
            value = value[step]
        else:
            if not isinstance(value, dict) or step not in value:
                return MISSING
            value = value[step]
    return value


def _write_float(value: float) -> str:
    """Write a float as JavaScript and DuckDB do: with an exponent from 1e21 on, and below 1e-6."""
    text = repr(value)
    if "e" not in text:
        return text
    magnitude = abs(value)
    if 1e-6 <= magnitude < 1e21:
        digits = format(Decimal(text), "f")
        return digits if "." in digits else f"{digits}.0"
    mantissa, _, exponent = text.partition("e")
    return f"{mantissa}e{int(exponent)}"


def write_json(value: Any) -> str:
    """Return a value as JSON, without blanks between its parts."""
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, _HugeFloat):
        return value.text
    if isinstance(value, float) and math.isfinite(value):
        return _write_float(value)
    if isinstance(value, dict):
        members = (f"{write_json(name)}:{write_json(part)}" for name, part in value.items())
        return f"{{{','.join(members)}}}"
    if isinstance(value, list):
        return f"[{','.join(map(write_json, value))}]"
    return json.dumps(value, ensure_ascii=False)


def text_of(value: Any) -> str | None:
    """Return a value as text: a string without quotes, NULL for null."""
    if value is MISSING or value is None:
        return None
    return value if isinstance(value, str) else write_json(value)


def _json_of(value: Any) -> str | None:
    return None if value is MISSING else write_json(value)


def _length_of(value: Any) -> int | None:
    return len(value) if isinstance(value, list) else None


def _length_or_zero_of(value: Any) -> int | None:
    if value is MISSING:
        return None
    return len(value) if isinstance(value, list) else 0


def type_of(value: Any) -> str | None:
    """Return the name of the type of a value, as in DuckDB."""
    if value is MISSING:
        return None
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "BOOLEAN"
    if isinstance(value, int):
        if not -(2**63) <= value < 2**64:
            return "DOUBLE"
        return "UBIGINT" if value >= 0 else "BIGINT"
    if isinstance(value, float):
        return "DOUBLE"
    if isinstance(value, str):
        return "VARCHAR"
    return "ARRAY" if isinstance(value, list) else "OBJECT"


def _kind_of(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, dict):
        return "object"
    return "array" if isinstance(value, list) else "scalar"


def _kind(
    arguments: Sequence[Values], result_type: pa.DataType, *, keeps_all_members: bool
) -> Values:
    array = fill_rows(arguments[0], row_count(arguments))
    steps = steps_of(arguments) or []

    def find(text: str) -> str:
        document = parse_json(text, keeps_all_members=keeps_all_members)
        if document is MISSING:
            return "invalid"
        value = _follow(document, steps)
        return "missing" if value is MISSING else _kind_of(value)

    return map_distinct(array, find, result_type)


def _scalar_text_of(value: Any) -> str | None:
    return None if isinstance(value, dict | list) else text_of(value)


def _keys_of(value: Any) -> list[str] | None:
    return [name for name, _ in value.items()] if isinstance(value, dict) else None


def _elements_of(value: Any) -> list[str] | None:
    return list(map(write_json, value)) if isinstance(value, list) else None


def _members_of(value: Any) -> list[dict[str, str]] | None:
    if not isinstance(value, dict):
        return None
    return [{"key": name, "value": write_json(part)} for name, part in value.items()]


def path_rule(result: pa.DataType) -> Rule:
    """Return the rule of a function of a JSON text and, optionally, a constant path."""

    def rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
        require(name, arguments, 1, 2)
        value, *path = arguments
        if not is_text(value.type) and not arrow.is_null(value.type):
            raise argument_error(name, arguments, "it takes a JSON text: cast it to string")
        if path and not isinstance(path[0], Literal):
            raise argument_error(name, arguments, "the path is a constant")
        return (cast_to(value, pa.string()), *path), result

    return rule


def steps_of(arguments: Sequence[Values]) -> list[str | int] | None:
    """Return the steps of the path; none without a path, None for NULL."""
    if len(arguments) < 2:
        return []
    path = arguments[1]
    text = path.as_py() if isinstance(path, pa.Scalar) else path[0].as_py()
    steps: list[str | int] | None = None if text is None else json.loads(text)
    return steps


def _path_kernel(read: Callable[[Any], Any], *, keeps_all_members: bool) -> Kernel:
    """Return a kernel that follows a path in each text and returns ``read(value)``."""

    def kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
        array = fill_rows(arguments[0], row_count(arguments))
        steps = steps_of(arguments)
        if steps is None:
            return pa.nulls(len(array), result_type)

        def find(text: str) -> Any:
            value = parse_document(text, keeps_all_members=keeps_all_members)
            return read(value if value is MISSING else _follow(value, steps))

        return map_distinct(array, find, result_type)

    return kernel


def _valid(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    return map_distinct(arguments[0], lambda text: parse_json(text) is not MISSING, result_type)


def _from_json_rule(
    name: str, arguments: Arguments, target_type: pa.DataType | None
) -> TypedArguments:
    require(name, arguments, 2, 2)
    value, schema = arguments
    if not is_text(value.type) and not arrow.is_null(value.type):
        raise argument_error(name, arguments, "it takes a JSON text: cast it to string")
    # The type of the result is that of the second argument, a NULL.
    return (cast_to(value, pa.string()), schema), schema.type


def _from_json(
    arguments: Sequence[Values],
    result_type: pa.DataType,
    *,
    is_spark: bool = False,
    keeps_all_members: bool,
) -> Values:
    array = fill_rows(arguments[0], row_count(arguments))

    def convert(text: str) -> Any:
        if is_spark and not text.strip():
            return None
        value = parse_document(text, keeps_all_members=keeps_all_members)
        if arrow.is_struct(result_type) and not isinstance(value, dict):
            value = {}
        if _is_list_of_structs(result_type) and isinstance(value, dict):
            value = [value]
        return None if value is MISSING else _convert_to_type(value, result_type, is_spark)

    return map_distinct(array, convert, result_type)


def _is_list_of_structs(data_type: pa.DataType) -> bool:
    return bool(arrow.is_list(data_type) and arrow.is_struct(data_type.value_type))


def _convert_to_type(value: Any, data_type: pa.DataType, is_spark: bool) -> Any:
    """Return a JSON value as a value of an Arrow type; None if it does not fit the type.

    A part of a struct, list or map that does not fit is None. In Spark, the whole list or map is.
    """
    if value is None:
        return None
    if arrow.is_struct(data_type):
        if not isinstance(value, dict):
            return None
        return {
            field.name: _convert_to_type(value.get(field.name), field.type, is_spark)
            for field in data_type
        }
    if arrow.is_map(data_type):
        if not isinstance(value, dict) or not is_text(data_type.key_type):
            return None
        if isinstance(value, RepeatedMembers):  # a key of a map occurs once
            return None
        items = _convert_all(list(value.values()), data_type.item_type, is_spark)
        return items if items is None else list(zip(value, items, strict=True))
    if is_nested(data_type):
        is_list = isinstance(value, list)
        return _convert_all(value, data_type.value_type, is_spark) if is_list else None
    if is_text(data_type):
        return text_of(value)
    return _scalar_of(value, data_type)


def _convert_all(values: list[Any], data_type: pa.DataType, is_spark: bool) -> list[Any] | None:
    """Return the elements of a list as values of a type; None in Spark if one does not fit."""
    converted = [_convert_to_type(value, data_type, is_spark) for value in values]
    pairs = zip(values, converted, strict=True)
    if is_spark and any(result is None and value is not None for value, result in pairs):
        return None
    return converted


def _scalar_of(value: Any, data_type: pa.DataType) -> Any:
    if arrow.is_boolean(data_type):
        return value if isinstance(value, bool) else None
    if isinstance(value, bool):
        return None
    if arrow.is_integer(data_type):
        return value if isinstance(value, int) and _fits_integer(value, data_type) else None
    if arrow.is_floating(data_type):
        return _float_of(value) if isinstance(value, int | float) else None
    try:
        if arrow.is_decimal(data_type):
            rounded = Decimal(str(value)).quantize(_unit(data_type), ROUND_HALF_UP)
            return pa.scalar(rounded, data_type).as_py()
        if arrow.is_timestamp(data_type) and data_type.tz is not None and isinstance(value, int):
            # As in Spark, a number is a time in seconds.
            return pa.scalar(value * 1_000_000, pa.int64()).cast(data_type).value
        if is_binary(data_type):
            return base64.b64decode(value, validate=True) if isinstance(value, str) else None
        if isinstance(value, str):
            return pc.cast(pa.scalar(value), data_type).as_py()
    except (pa.ArrowException, InvalidOperation, OverflowError, ValueError):
        return None
    return None


def _float_of(value: float) -> float:
    """Return a number as a float, which is infinite beyond the floats."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


@lru_cache(maxsize=64)
def _unit(data_type: pa.DataType) -> Decimal:
    """Return the least positive value of a decimal type."""
    return Decimal(1).scaleb(-data_type.scale)


def _fits_integer(value: int, data_type: pa.DataType) -> bool:
    is_signed = arrow.is_signed_integer(data_type)
    bits = data_type.bit_width - (1 if is_signed else 0)
    return bool((-(2**bits) if is_signed else 0) <= value < 2**bits)


def to_json_rule(
    name: str, arguments: Arguments, target_type: pa.DataType | None
) -> TypedArguments:
    """The type rule of functions that write a value as JSON; an interval cannot be written."""
    require(name, arguments, 1, 2)
    if _has_interval(arguments[0].type):
        raise argument_error("to_json", arguments, "it takes no intervals; cast them to a text")
    if has_variant(arguments[0].type):
        raise argument_error(
            "to_json", arguments, "it takes a VARIANT alone, not in a list, struct or map"
        )
    return arguments, pa.string()


def _has_interval(data_type: pa.DataType) -> bool:
    if is_nested(data_type):
        return any(map(_has_interval, part_types(data_type)))
    return is_interval(data_type)


def _to_json(
    arguments: Sequence[Values], result_type: pa.DataType, *, keeps_all_members: bool
) -> Values:
    kind = arguments[1].as_py() if len(arguments) > 1 else ""
    style = _STYLE if keeps_all_members else _POSTGRES_STYLE
    return json_column(fill_rows(arguments[0], 1), style, kind)


def _as_json_rule(
    name: str, arguments: Arguments, target_type: pa.DataType | None
) -> TypedArguments:
    require(name, arguments, 2, 2)
    return arguments, arguments[0].type


def _as_json(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    return arguments[0]


def _checked_json(text: str) -> str:
    parse_document(text)
    return text


#: DuckDB writes decimals of at most this precision as doubles.
_MAX_DOUBLE_PRECISION: Final = 15


_FRACTION: Final = re.compile(r"\.\d+")


def _strip_zeros(text: str) -> str:
    """Return the text of a time without the zeros at the end of its fraction."""
    return _FRACTION.sub(lambda match: match[0].rstrip("0"), text)


def _cast_to_text(value: Any, _: pa.DataType) -> str:
    """Return a value as DuckDB casts it to text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, bytes):
        return escape_bytes(value)
    text = str(value)
    if isinstance(value, datetime | time):
        text = _strip_zeros(text)
    # As in DuckDB, an offset of whole hours has no minutes: +00.
    has_offset = isinstance(value, datetime) and value.tzinfo is not None
    return text.removesuffix(":00") if has_offset else text


def _write_scalar(value: Any, data_type: pa.DataType) -> str:
    """Return a value as DuckDB writes it in JSON; NaN and Infinity have no quotes."""
    if isinstance(value, Decimal) and data_type.precision <= _MAX_DOUBLE_PRECISION:
        return write_json(float(value))
    if isinstance(value, float | Decimal):
        return write_json(value)
    return quote_text(_cast_to_text(value, data_type))


def _document_writer(*, keeps_all_members: bool) -> Callable[[pa.Array], pa.Array]:
    """Return a function that writes texts of JSON without blanks."""

    def write(text: str) -> str | None:
        return _json_of(parse_document(text, keeps_all_members=keeps_all_members))

    return lambda texts: map_distinct(texts, write, pa.string())


_STYLE: Final = replace(
    JsonStyle.of_values(_write_scalar, _cast_to_text, keeps_null_fields=True),
    writes_rows_as_lists=True,
    write_documents=_document_writer(keeps_all_members=True),
)


def _postgres_text(value: Any) -> str:
    """Return a value as PostgreSQL writes it in JSON, without quotes."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, bytes):
        return f"\\x{value.hex()}"
    if isinstance(value, datetime | time):
        return _strip_zeros(value.isoformat())
    return str(value)


def _write_postgres_scalars(array: pa.Array) -> pa.Array:
    """Return scalars as PostgreSQL writes them in JSON; NaN and Infinity have quotes."""
    if arrow.is_floating(array.type):
        texts = postgres_float_texts(array)
        return pc.if_else(pc.is_finite(array), texts, quote_texts(texts))
    texts = map_values(array, _postgres_text)
    return texts if arrow.is_decimal(array.type) else quote_texts(texts)


def _write_postgres_keys(array: pa.Array) -> pa.Array:
    if arrow.is_floating(array.type):
        return postgres_float_texts(array)
    return map_values(array, _postgres_text)


_POSTGRES_STYLE: Final = JsonStyle(
    _write_postgres_scalars,
    _write_postgres_keys,
    write_documents=_document_writer(keeps_all_members=False),
)


def _functions(prefix: str, note: str, *, keeps_all_members: bool) -> tuple[Function, ...]:
    """Return the functions that depend on which member of an object counts of two of a name."""
    kernel = partial(_path_kernel, keeps_all_members=keeps_all_members)
    list_of_texts = pa.list_(pa.string())
    list_of_members = pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))
    kind = partial(_kind, keeps_all_members=keeps_all_members)
    convert = partial(_from_json, keeps_all_members=keeps_all_members)
    return tuple(
        Function(f"{prefix}{name}", f"{description}{note}", rule, kernel_of_name)
        for name, description, rule, kernel_of_name in (
            (
                "json_text",
                "the value at the path b in the JSON text a; a string without its quotes",
                path_rule(pa.string()),
                kernel(text_of),
            ),
            (
                "json_value",
                "the value at the path b in the JSON text a, as JSON",
                path_rule(pa.string()),
                kernel(_json_of),
            ),
            (
                "json_kind",
                "object, array, scalar or null: the value at the path b in a; else missing or "
                "invalid",
                path_rule(pa.string()),
                kind,
            ),
            (
                "json_array_length_or_zero",
                "the number of elements of the JSON array at the path b in a; 0 for another value",
                path_rule(pa.int64()),
                kernel(_length_or_zero_of),
            ),
            (
                "json_type",
                "the name of the type of the value at the path b in the JSON text a, as in DuckDB",
                path_rule(pa.string()),
                kernel(type_of),
            ),
            (
                "json_keys",
                "the keys of the JSON object at the path b in a",
                path_rule(list_of_texts),
                kernel(_keys_of),
            ),
            (
                "json_elements",
                "the elements of the JSON array at the path b in a, as JSON",
                path_rule(list_of_texts),
                kernel(_elements_of),
            ),
            (
                "json_members",
                "the keys and values of the JSON object at the path b in a; the values are JSON",
                path_rule(list_of_members),
                kernel(_members_of),
            ),
            (
                "from_json",
                "the JSON text a as a value of the type of b; parts of another form are NULL",
                _from_json_rule,
                convert,
            ),
            (
                "to_json",
                "the value a as JSON; b says which texts in it are JSON"
                + ("" if keeps_all_members else "; numbers and times are PostgreSQL's"),
                to_json_rule,
                partial(_to_json, keeps_all_members=keeps_all_members),
            ),
        )
    )


FUNCTIONS = (
    *_functions("", "", keeps_all_members=True),
    *_functions("last_", "; of two members of a name, the last one", keeps_all_members=False),
    Function(
        "json_scalar",
        "the scalar at the path b in the JSON text a as text; NULL for another value",
        path_rule(pa.string()),
        _path_kernel(_scalar_text_of, keeps_all_members=False),
    ),
    Function(
        "json_array_length",
        "the number of elements of the JSON array at the path b in a; NULL for another value",
        path_rule(pa.int64()),
        _path_kernel(_length_of, keeps_all_members=False),
    ),
    Function("json_valid", "true if the text a is JSON", path_rule(pa.bool_()), _valid),
    Function(
        "spark_from_json",
        "the JSON text a as a value of the type of b; a list or map of which a part has another "
        "form is NULL, as is such a field",
        _from_json_rule,
        partial(_from_json, is_spark=True, keeps_all_members=False),
    ),
    Function(
        "json_of_text",
        "the text a, which must be JSON",
        Signature("t", pa.string()),
        per_distinct_row(_checked_json),
    ),
    Function("as_json", "the value a; b says which texts in it are JSON", _as_json_rule, _as_json),
)
