"""Functions of JSON texts. Python's parser parses each distinct text once per call.

A path is a JSON array of steps. A step is a key of an object or a position in an array; so
``["a", 0]`` is the path ``$.a[0]`` of SQL, which the SQL front end converts. `JsonRules` are the
rules of DuckDB, PostgreSQL and Spark: a text that is not JSON is an error in the functions of
DuckDB, and NULL in the others. `circuits.types.functions.nested.json_conversion` has ``from_json``.

Cost: O(bytes of the distinct texts) in Python, about a microsecond per JSON value in them.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, time
from decimal import Decimal
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as arrow

from circuits.plan.expressions import Literal
from circuits.types.arrow_types import has_variant, is_nested, part_types
from circuits.types.codecs.variants import refuse_constant
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
from circuits.types.functions.numbers.number_formats import java_float, postgres_float_texts
from circuits.types.functions.signatures import Signature, per_distinct_row
from circuits.types.functions.texts.bytes_parts import escape_bytes
from circuits.types.functions.type_rules import is_interval, is_text

__all__ = [
    "DUCKDB_RULES",
    "FUNCTIONS",
    "MISSING",
    "POSTGRES_RULES",
    "SPARK_RULES",
    "JsonFloat",
    "JsonRules",
    "RepeatedMembers",
    "follow_path",
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


class JsonFloat(float):
    """A number of a JSON text with a fraction or an exponent, or with very many digits.

    Attributes:
        text: The number as the text has it. It may have more digits than a float, or be beyond the
            floats; then the value is rounded, or infinite.
    """

    __slots__ = ("text",)

    text: str

    def __init__(self, text: str) -> None:  # float.__new__ reads the number
        self.text = text

    def write(self) -> str:
        """Return the number as JSON in the notation of the dialect; here that of DuckDB."""
        return _write_float(float(self)) if math.isfinite(self) else self.text


class _PostgresFloat(JsonFloat):
    __slots__ = ()

    def write(self) -> str:
        return self.text  # as in the text, with zeros at the end


class _JavaFloat(JsonFloat):
    __slots__ = ()

    def write(self) -> str:
        text = java_float(float(self))
        return text if math.isfinite(self) else f'"{text}"'


#: Half of a surrogate pair, which is no character, as a JSON text escapes it.
_SURROGATE_ESCAPE: Final = re.compile(r"\\u[dD][89a-fA-F]")


def _check_characters(text: str, value: Any) -> None:
    """Check the characters of a parsed JSON text; ValueError for half of a surrogate pair."""
    if _SURROGATE_ESCAPE.search(text):
        write_json(value).encode()


def parse_json(text: str, rules: JsonRules) -> Any:
    """Return the value of a JSON text; `MISSING` if it is no JSON.

    Raises:
        pa.ArrowInvalid: The text has more levels than Python's parser reads.
    """
    try:
        value = rules.decoders.decoder_of(text).decode(text)
        _check_characters(text, value)
    except RecursionError:
        raise pa.ArrowInvalid("the JSON text has too many levels of arrays and objects") from None
    except ValueError:
        return MISSING
    return value


def parse_document(text: str, rules: JsonRules) -> Any:
    """Return the value of a JSON text; `MISSING` for another text, unless the rules refuse it.

    Raises:
        pa.ArrowInvalid: The text is no JSON, and the rules refuse such a text.
    """
    value = parse_json(text, rules)
    if value is MISSING and rules.refuses_invalid:
        raise pa.ArrowInvalid("the text is no JSON")
    return value


def parse_json_prefix(text: str, *, keeps_all_members: bool = True) -> Any:
    """Return the value at the start of a text, as Spark reads JSON; `MISSING` if there is none.

    A string may be in single quotes. The text after the value is ignored, but a number must end at
    a blank, and a word such as ``true`` must not go on.

    Args:
        text: The text.
        keeps_all_members: If True, as for a path, an object in which a name occurs twice is
            `RepeatedMembers`. If False, as for ``from_json``, it has the last member of each name,
            and ``NaN``, ``INF`` and ``Infinity`` are numbers.
    """
    decoders = _SPARK_PATH_DECODERS if keeps_all_members else _SPARK_FIELD_DECODERS
    start = len(text) - len(text.lstrip(_JSON_BLANKS))
    try:
        value, end = decoders.decoder_of(text).raw_decode(text, start)
        _check_characters(text[:end], value)
    except (ValueError, RecursionError):
        other = _in_plain_json(text, has_infinities=not keeps_all_members)
        if other == text:
            return MISSING
        return parse_json_prefix(other, keeps_all_members=keeps_all_members)
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


# A string in double or in single quotes, or an infinity as Spark also writes it.
_QUOTED: Final = re.compile(
    r""""(?:[^"\\]|\\.)*"|'((?:[^'\\]|\\.)*)'|([+-]INF|\+Infinity)\b""", re.DOTALL
)
_ESCAPED: Final = re.compile(r"""\\.|\"""", re.DOTALL)


def _in_plain_json(text: str, *, has_infinities: bool) -> str:
    """Return a text with double quotes instead of single ones, and maybe without ``+INF``.

    >>> _in_plain_json("{'a': 'x', 'b': -INF}", has_infinities=True)
    '{"a": "x", "b": -Infinity}'
    """

    def replace(match: re.Match[str]) -> str:
        inner, infinity = match[1], match[2]
        if infinity is not None and has_infinities:
            return "-Infinity" if infinity[0] == "-" else "Infinity"
        if inner is None:
            return match[0]
        changes = {"\\'": "'", '"': '\\"'}
        body = _ESCAPED.sub(lambda part: changes.get(part[0], part[0]), inner)
        return f'"{body}"'

    return _QUOTED.sub(replace, text)


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

    def __init__(self, number: type[JsonFloat], **options: Any) -> None:
        """Create the decoders: the class of numbers with a fraction, and options of Python's."""
        options.setdefault("parse_constant", refuse_constant)
        options["parse_float"] = number

        def read_integer(text: str) -> int | float:
            return int(text) if len(text) <= _MAX_DIGITS else number(text)

        self._decoder = json.JSONDecoder(**options)
        self._long_decoder = json.JSONDecoder(parse_int=read_integer, **options)

    def decoder_of(self, text: str) -> json.JSONDecoder:
        """Return the decoder of a text."""
        if len(text) > _MAX_DIGITS and _SAMPLED_INTEGER.search(text[::_SAMPLING_STEP]):
            return self._long_decoder
        return self._decoder


@dataclass(frozen=True)
class JsonRules:
    """How a system reads and writes JSON.

    Attributes:
        decoders: The decoders. They say which member of an object counts of two with one name, and
            how numbers are written.
        refuses_invalid: True if a text that is no JSON is an error, and not NULL.
    """

    decoders: _Decoders
    refuses_invalid: bool


#: Objects have all members (`RepeatedMembers`), and a look-up finds the first one of a name.
DUCKDB_RULES: Final = JsonRules(_Decoders(JsonFloat, object_pairs_hook=members_of), True)
#: Objects have the last member of each name, and numbers are written as they are read.
POSTGRES_RULES: Final = JsonRules(_Decoders(_PostgresFloat), False)
#: Objects have the last member of each name, and numbers are written as in Java.
SPARK_RULES: Final = JsonRules(_Decoders(_JavaFloat), False)
# In Spark, a string may contain control characters.
_SPARK_PATH_DECODERS: Final = _Decoders(_JavaFloat, object_pairs_hook=members_of, strict=False)
_SPARK_FIELD_DECODERS: Final = _Decoders(_JavaFloat, strict=False, parse_constant=_JavaFloat)


def follow_path(value: Any, steps: Sequence[str | int]) -> Any:
    """Return the part of a value at a path; `MISSING` if there is none."""
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
    if isinstance(value, JsonFloat):
        return value.write()
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


def _kind(arguments: Sequence[Values], result_type: pa.DataType, *, rules: JsonRules) -> Values:
    array = fill_rows(arguments[0], row_count(arguments))
    steps = steps_of(arguments) or []

    def find(text: str) -> str:
        document = parse_json(text, rules)
        if document is MISSING:
            return "invalid"
        value = follow_path(document, steps)
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


def _path_kernel(read: Callable[[Any], Any], *, rules: JsonRules) -> Kernel:
    """Return a kernel that follows a path in each text and returns ``read(value)``."""

    def kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
        array = fill_rows(arguments[0], row_count(arguments))
        steps = steps_of(arguments)
        if steps is None:
            return pa.nulls(len(array), result_type)

        def find(text: str) -> Any:
            value = parse_document(text, rules)
            return read(value if value is MISSING else follow_path(value, steps))

        return map_distinct(array, find, result_type)

    return kernel


def _valid(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    def is_valid(text: str) -> bool:
        return parse_json(text, DUCKDB_RULES) is not MISSING

    return map_distinct(arguments[0], is_valid, result_type)


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


def _to_json(arguments: Sequence[Values], result_type: pa.DataType, *, style: JsonStyle) -> Values:
    kind = arguments[1].as_py() if len(arguments) > 1 else ""
    return json_column(fill_rows(arguments[0], 1), style, kind)


def _as_json_rule(
    name: str, arguments: Arguments, target_type: pa.DataType | None
) -> TypedArguments:
    require(name, arguments, 2, 2)
    return arguments, arguments[0].type


def _as_json(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    return arguments[0]


def _checked_json(text: str) -> str:
    parse_document(text, DUCKDB_RULES)
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


def _document_writer(rules: JsonRules) -> Callable[[pa.Array], pa.Array]:
    """Return a function that writes texts of JSON without blanks."""

    def write(text: str) -> str | None:
        return _json_of(parse_document(text, rules))

    return lambda texts: map_distinct(texts, write, pa.string())


_STYLE: Final = replace(
    JsonStyle.of_values(_write_scalar, _cast_to_text, keeps_null_fields=True),
    writes_rows_as_lists=True,
    write_documents=_document_writer(DUCKDB_RULES),
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
    write_documents=_document_writer(POSTGRES_RULES),
)


def _functions(prefix: str, note: str, rules: JsonRules, style: JsonStyle) -> tuple[Function, ...]:
    """Return the functions that read JSON by some rules, and the one that writes it in a style."""
    kernel = partial(_path_kernel, rules=rules)
    list_of_texts = pa.list_(pa.string())
    list_of_members = pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))
    kind = partial(_kind, rules=rules)
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
                "to_json",
                "the value a as JSON; b says which texts in it are JSON"
                + ("; numbers and times are PostgreSQL's" if style is _POSTGRES_STYLE else ""),
                to_json_rule,
                partial(_to_json, style=style),
            ),
        )
    )


#: Spark has other functions in their place.
_NOT_OF_SPARK: Final = ("spark_json_array_length_or_zero", "spark_json_keys", "spark_to_json")

FUNCTIONS = (
    *_functions("", "", DUCKDB_RULES, _STYLE),
    *_functions(
        "last_", "; of two members of a name, the last one", POSTGRES_RULES, _POSTGRES_STYLE
    ),
    *(
        function
        for function in _functions("spark_", "; as in Spark and Flink", SPARK_RULES, _STYLE)
        if function.name not in _NOT_OF_SPARK
    ),
    Function(
        "json_scalar",
        "the scalar at the path b in the JSON text a as text; NULL for another value",
        path_rule(pa.string()),
        _path_kernel(_scalar_text_of, rules=SPARK_RULES),
    ),
    Function(
        "json_array_length",
        "the number of elements of the JSON array at the path b in a; NULL for another value",
        path_rule(pa.int64()),
        _path_kernel(_length_of, rules=SPARK_RULES),
    ),
    Function("json_valid", "true if the text a is JSON", Signature("t", pa.bool_()), _valid),
    Function(
        "json_of_text",
        "the text a, which must be JSON",
        Signature("t", pa.string()),
        per_distinct_row(_checked_json),
    ),
    Function("as_json", "the value a; b says which texts in it are JSON", _as_json_rule, _as_json),
)
