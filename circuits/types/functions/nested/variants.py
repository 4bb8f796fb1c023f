"""Functions of VARIANT, on canonical JSON texts (`circuits.types.codecs.variants`).

Each call of a function parses each distinct text once, and `to_variant` writes each distinct value
once; but lists, structs and maps, which Arrow cannot compare, it writes for each row.

Cost: O(bytes of these texts) in Python, about a microsecond per JSON value in them.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as arrow

from circuits.plan.expressions import Literal
from circuits.types.arrow_types import VARIANT, Family, family_of, has_variant, is_nested
from circuits.types.codecs.variants import (
    canonical_texts,
    read_variant,
    strip_zeros,
    write_variant,
)
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
from circuits.types.functions.nested.json_texts import MISSING, steps_of
from circuits.types.functions.numbers.number_formats import java_float
from circuits.types.functions.type_rules import is_number, is_text

__all__ = ["ELEMENTS", "FUNCTIONS", "NUMBER"]

#: The type of integers and decimals in a VARIANT: up to 38 digits, before and after the point.
NUMBER: Final = pa.decimal256(76, 38)
#: The type of `variant_parts`: the position from 0, the name in an object, and the JSON text.
ELEMENTS: Final = pa.list_(
    pa.struct([("pos", pa.int32()), ("key", pa.string()), ("value", pa.string())])
)
_INT64: Final = range(-(2**63), 2**63)
_LONG_DIGITS: Final = 20  # the digits of a BIGINT next to a decimal, in Spark
_MAX_DIGITS: Final = 38


# -- Texts ------------------------------------------------------------------------------------


def _quote(text: str) -> str:
    """Return a text as JSON; as in Spark, the hexadecimal digits of escapes are upper case."""
    quoted = json.dumps(text, ensure_ascii=False)
    return re.sub(r"\\(u00[01][0-9a-f]|.)", _escape_in_spark, quoted)


def _escape_in_spark(match: re.Match[str]) -> str:
    escaped = match[1]
    return f"\\u{escaped[1:].upper()}" if len(escaped) > 1 else match[0]


def _number_text(value: int | float | Decimal) -> str:
    if isinstance(value, float):
        return java_float(value)
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


def _variant_json(value: Any) -> str:
    """Return a value as Spark's to_json() writes it."""
    if isinstance(value, dict):
        members = (f"{_quote(name)}:{_variant_json(part)}" for name, part in value.items())
        return f"{{{','.join(members)}}}"
    if isinstance(value, list):
        return f"[{','.join(map(_variant_json, value))}]"
    if isinstance(value, str):
        return _quote(value)
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    text = _number_text(value)
    return _quote(text) if isinstance(value, float) and not math.isfinite(value) else text


def _text_of(value: Any) -> str | None:
    """Return a value as a text: a string without its quotes; None for null."""
    if value is None or isinstance(value, str):
        return value
    is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
    return _number_text(value) if is_number else _variant_json(value)


# -- Types ------------------------------------------------------------------------------------

# The type of a value: a name, the precision and scale of a decimal, [type of the elements], or
# {name: type} of an object.
_Type = str | tuple[int, int] | list[Any] | dict[str, Any]


def _infer(value: Any) -> _Type:
    match value:
        case None:
            return "VOID"
        case bool():
            return "BOOLEAN"
        case int():
            return "BIGINT" if value in _INT64 else (len(str(abs(value))), 0)
        case float():
            return "DOUBLE"
        case Decimal():
            _, digits, exponent = value.as_tuple()
            scale = max(-int(exponent), 0)
            precision = len(digits) + max(int(exponent), 0)
            return max(precision, scale), scale
        case dict():
            return {name: _infer(part) for name, part in value.items()}
        case list():
            element: _Type = "VOID"
            for part in value:
                element = _merge(element, _infer(part))
            return [element]
        case _:
            return "STRING"


def _merge(left: _Type, right: _Type) -> _Type:
    """Return the common type of two elements of an array; VARIANT if they have no other."""
    if left in ("VOID", right):
        return right
    if right == "VOID":
        return left
    if isinstance(left, dict) and isinstance(right, dict):
        names = sorted({*left, *right})
        return {name: _merge(left.get(name, "VOID"), right.get(name, "VOID")) for name in names}
    if isinstance(left, list) and isinstance(right, list):
        return [_merge(left[0], right[0])]
    sides = [(_LONG_DIGITS, 0) if side == "BIGINT" else side for side in (left, right)]
    decimals = [side for side in sides if isinstance(side, tuple)]
    if len(decimals) == 2:
        scale = max(scale for _, scale in decimals)
        digits = max(precision - scale for precision, scale in decimals) + scale
        return (digits, scale) if digits <= _MAX_DIGITS else "DOUBLE"
    if "DOUBLE" in sides and len(decimals) == 1:
        return "DOUBLE"
    return "VARIANT"


def _write_type(data_type: _Type) -> str:
    match data_type:
        case str():
            return data_type
        case (precision, scale):
            return f"DECIMAL({precision},{scale})"
        case list():
            return f"ARRAY<{_write_type(data_type[0])}>"
    fields = (f"{_quote_name(name)}: {_write_type(part)}" for name, part in data_type.items())
    return f"OBJECT<{', '.join(fields)}>"


def _quote_name(name: str) -> str:
    is_plain = re.fullmatch(r"[A-Za-z_][A-Za-z_0-9]*", name) is not None
    return name if is_plain else f"`{name.replace('`', '``')}`"


def _schema_of(value: Any) -> str:
    return _write_type(_infer(value))


# -- Parts ------------------------------------------------------------------------------------


def _variant_kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case float():
            return "double"
        case int() | Decimal():
            return "number"
        case dict():
            return "object"
        case list():
            return "array"
        case _:
            return "string"


def _part_at(value: Any, steps: Sequence[str | int]) -> Any:
    """Return the part of a value at a path, in which positions count from 0; `MISSING` if none."""
    for step in steps:
        if isinstance(step, int):
            if not isinstance(value, list) or not 0 <= step < len(value):
                return MISSING
            value = value[step]
        else:
            if not isinstance(value, dict) or step not in value:
                return MISSING
            value = value[step]
    return value


def _parts_of(value: Any) -> list[dict[str, Any]] | None:
    if isinstance(value, dict):
        members = list(value.items())
    elif isinstance(value, list):
        members = [(None, part) for part in value]
    else:
        return None
    return [
        {"pos": position, "key": key, "value": write_variant(part)}
        for position, (key, part) in enumerate(members)
    ]


def _at_path(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    array = fill_rows(arguments[0], row_count(arguments))
    steps = steps_of(arguments)
    if steps is None:
        return pa.nulls(len(array), result_type)

    def find(text: str) -> str | None:
        value = _part_at(read_variant(text), steps)
        return None if value is MISSING else write_variant(value)

    return map_distinct(array, find, result_type)


# -- Kernels and rules --------------------------------------------------------------------------


def _rule(result: pa.DataType, max_arguments: int = 1) -> Rule:
    """Return the rule of a function of a VARIANT and, optionally, a constant path."""

    def rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
        require(name, arguments, 1, max_arguments)
        value, *path = arguments
        if family_of(value.type) not in (Family.VARIANT, Family.NULL):
            raise argument_error(name, arguments, "it takes a VARIANT; read a text by parse_json()")
        if path and not isinstance(path[0], Literal):
            raise argument_error(name, arguments, "the path must be a constant")
        return (cast_to(value, VARIANT), *path), result

    return rule


def _kernel(read: Callable[[Any], Any]) -> Kernel:
    def kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
        array = fill_rows(arguments[0], row_count(arguments))
        return map_distinct(array, lambda text: read(read_variant(text)), result_type)

    return kernel


def _parse_rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
    require(name, arguments, 1, 1)
    (value,) = arguments
    if not is_text(value.type) and not arrow.is_null(value.type):
        raise argument_error(name, arguments, "it takes a JSON text: cast it to string")
    return (cast_to(value, pa.string()),), VARIANT


def _parse(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    return canonical_texts(fill_rows(arguments[0], 1))


def _try_parse(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    def parse(text: str) -> str | None:
        try:
            return write_variant(read_variant(text))
        except ValueError:
            return None

    return map_distinct(fill_rows(arguments[0], 1), parse, result_type)


def _to_variant_rule(
    name: str, arguments: Arguments, target_type: pa.DataType | None
) -> TypedArguments:
    require(name, arguments, 1, 1)
    data_type = arguments[0].type
    if has_variant(data_type) or not _is_json(data_type):
        raise argument_error(
            name,
            arguments,
            "it takes booleans, texts, numbers of 64 bits, decimals, and lists, structs and maps "
            "of them: cast others to a text",
        )
    return arguments, VARIANT


def _is_json(data_type: pa.DataType) -> bool:
    if arrow.is_struct(data_type):
        return all(_is_json(field.type) for field in data_type)
    if arrow.is_map(data_type):
        return is_text(data_type.key_type) and _is_json(data_type.item_type)
    if arrow.is_list(data_type):
        return _is_json(data_type.value_type)
    is_narrow = arrow.is_float32(data_type) or arrow.is_float16(data_type)
    is_scalar = is_text(data_type) or arrow.is_boolean(data_type) or arrow.is_null(data_type)
    return is_scalar or (is_number(data_type) and not is_narrow)


def _to_variant(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    array = fill_rows(arguments[0], 1)

    def write(value: Any) -> str:
        return write_variant(_with_members(value, array.type))

    try:
        if not is_nested(array.type):
            return map_distinct(array, write, result_type)
        texts = [None if value is None else write(value) for value in array.to_pylist()]
    except ValueError as error:
        raise pa.ArrowInvalid(f"a value has no VARIANT: {error}") from error
    return pa.array(texts, result_type)


def _with_members(value: Any, data_type: pa.DataType) -> Any:
    """Return a value whose maps are dicts and whose decimals have no zeros at the end."""
    if value is None:
        return None
    if arrow.is_struct(data_type):
        return {field.name: _with_members(value[field.name], field.type) for field in data_type}
    if arrow.is_map(data_type):
        return {key: _with_members(part, data_type.item_type) for key, part in value}
    if arrow.is_list(data_type):
        return [_with_members(part, data_type.value_type) for part in value]
    if isinstance(value, Decimal):
        return strip_zeros(value)
    return value


def _is_null(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    return pc.fill_null(pc.equal(fill_rows(arguments[0], 1), "null"), False)


def _only(*kinds: type) -> Callable[[Any], Any]:
    """Return a function that returns values of some types, and None for others."""

    def read(value: Any) -> Any:
        is_kind = isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))
        return value if is_kind else None

    return read


FUNCTIONS = (
    Function("parse_variant", "the value of the JSON text a, as VARIANT", _parse_rule, _parse),
    Function(
        "try_parse_variant",
        "the value of the JSON text a, as VARIANT; NULL if it is not JSON",
        _parse_rule,
        _try_parse,
    ),
    Function(
        "variant_at",
        "the VARIANT at the path b in the VARIANT a; NULL if there is none",
        _rule(VARIANT, 2),
        _at_path,
    ),
    Function(
        "variant_json",
        "the VARIANT a as JSON, as in Spark",
        _rule(pa.string()),
        _kernel(_variant_json),
    ),
    Function(
        "variant_text",
        "the VARIANT a as a text: a string without its quotes, NULL for null",
        _rule(pa.string()),
        _kernel(_text_of),
    ),
    Function(
        "variant_kind",
        "null, boolean, number, double, string, array or object",
        _rule(pa.string()),
        _kernel(_variant_kind),
    ),
    Function(
        "variant_boolean",
        "the boolean in the VARIANT a; NULL for another value",
        _rule(pa.bool_()),
        _kernel(_only(bool)),
    ),
    Function(
        "variant_number",
        "the integer or decimal in the VARIANT a; NULL for another value",
        _rule(NUMBER),
        _kernel(_only(int, Decimal)),
    ),
    Function(
        "variant_double",
        "the double in the VARIANT a; NULL for another value",
        _rule(pa.float64()),
        _kernel(_only(float)),
    ),
    Function(
        "variant_parts",
        "the elements or members of the VARIANT a, with positions and names",
        _rule(ELEMENTS),
        _kernel(_parts_of),
    ),
    Function(
        "is_variant_null", "true if the VARIANT a is JSON's null", _rule(pa.bool_()), _is_null
    ),
    Function(
        "schema_of_variant",
        "the type of the value in the VARIANT a, as in Spark",
        _rule(pa.string()),
        _kernel(_schema_of),
    ),
    Function("to_variant", "the value a as VARIANT", _to_variant_rule, _to_variant),
)
