"""``from_json`` and casts of JSON: a JSON text as a value of a type.

A part of a value may not fit its type, such as the text ``x`` where an integer is due. The systems
convert different parts, and do different things with a part that does not fit:

================ ================================== ======================================
                 DuckDB                             Spark
================ ================================== ======================================
a number         from numbers, texts and booleans   from numbers; decimals from texts,
                                                    too, and floats from NaN and Infinity
a time           from texts                         from texts; an instant also from
                                                    whole seconds since 1970
bytes            the text                           the text is in base64
a misfit         NULL; an error in a cast           NULL, and so is its list or map
not an object    a struct of NULLs; null is NULL    NULL; at the top, a struct of NULLs
================ ================================== ======================================

A decimal has all digits of the text, and is rounded half up.

Cost: O(bytes of the distinct texts) in Python; a text that becomes a number or a time takes some
20 microseconds, unless it is one of the latest texts, whose results are cached.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from functools import lru_cache, partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyarrow import types as arrow

from circuits.types.arrow_types import is_nested
from circuits.types.functions.argument_rows import fill_rows, map_distinct, row_count
from circuits.types.functions.casting.coercion import cast_to
from circuits.types.functions.casting.text_formatting import write_text
from circuits.types.functions.casting.text_parsing import read_text
from circuits.types.functions.function import (
    Arguments,
    Function,
    Kernel,
    TypedArguments,
    Values,
    argument_error,
    require,
)
from circuits.types.functions.nested.json_texts import (
    DUCKDB_RULES,
    MISSING,
    POSTGRES_RULES,
    JsonFloat,
    JsonRules,
    RepeatedMembers,
    parse_document,
    parse_json_prefix,
    text_of,
    write_json,
)
from circuits.types.functions.texts.spark_notation import spark_date_texts, spark_timestamp_texts
from circuits.types.functions.type_rules import is_binary, is_temporal, is_text

__all__ = ["FUNCTIONS"]

# Decimals of up to 76 digits are exact in it; Python's default context rounds to 28.
_EXACT: Final = Context(prec=76)
_DIGITS: Final = re.compile(r"\s*[+-]?\d+\s*", re.ASCII)
_MAX_FLOAT32: Final = float(np.finfo(np.float32).max)
_MAX_EXCERPT: Final = 100  # characters of a value in a message
#: The texts that are numbers in a field of Spark, in addition to JSON's numbers.
_SPARK_FLOATS: Final = {
    **{"NaN": math.nan, "+INF": math.inf, "-INF": -math.inf},
    **{"Infinity": math.inf, "+Infinity": math.inf, "-Infinity": -math.inf},
}


def _misfit(value: Any, data_type: pa.DataType) -> ValueError:
    return ValueError(f"{write_json(value)[:_MAX_EXCERPT]} in a JSON text is no {data_type}")


class _DuckdbConverter:
    """Converts parsed JSON to values for Arrow, as ``from_json`` and the casts of DuckDB do."""

    def __init__(self, *, is_strict: bool, is_cast: bool) -> None:
        """Create a converter.

        Args:
            is_strict: True if a part that does not fit is an error, as in CAST. An object must then
                have exactly the fields of the struct.
            is_cast: True for CAST and TRY_CAST, which read fewer texts as numbers.
        """
        self._is_strict = is_strict
        self._is_cast = is_cast

    def convert(self, value: Any, data_type: pa.DataType) -> Any:
        """Return a JSON value as a value of a type.

        Raises:
            ValueError, ArithmeticError: The value, or if the converter is strict a part of it, does
                not fit the type.
        """
        if value is None:
            return None
        if arrow.is_struct(data_type):
            return self._struct(value, data_type)
        if arrow.is_map(data_type):
            return self._map(value, data_type)
        if is_nested(data_type):
            if not isinstance(value, list):
                raise _misfit(value, data_type)
            return [self._part(element, data_type.value_type) for element in value]
        if self._is_cast and isinstance(value, str):
            _check_number_text(value, data_type)
        return _duckdb_scalar(value, data_type)

    def _part(self, value: Any, data_type: pa.DataType) -> Any:
        try:
            return self.convert(value, data_type)
        except (ValueError, ArithmeticError):
            if self._is_strict:
                raise
            return None

    def _struct(self, value: Any, data_type: pa.StructType) -> dict[str, Any]:
        if not isinstance(value, dict):
            if self._is_strict:
                raise _misfit(value, data_type)
            value = {}
        elif self._is_strict:
            names = [name for name, _ in value.items()]  # a member may be repeated
            if sorted(names) != sorted(field.name for field in data_type):
                raise _misfit(value, data_type)
        return {field.name: self._part(value.get(field.name), field.type) for field in data_type}

    def _map(self, value: Any, data_type: pa.MapType) -> list[tuple[Any, Any]]:
        # A key of a map occurs once.
        if not isinstance(value, dict) or isinstance(value, RepeatedMembers):
            raise _misfit(value, data_type)
        keys = [self.convert(name, data_type.key_type) for name in value]
        if len(set(keys)) < len(keys):
            raise _misfit(value, data_type)
        return [
            (key, self._part(part, data_type.item_type))
            for key, part in zip(keys, value.values(), strict=True)
        ]


def _check_number_text(text: str, data_type: pa.DataType) -> None:
    """Check the text of a number for a cast, in which integers have digits only."""
    if arrow.is_integer(data_type) and not _DIGITS.fullmatch(text):
        raise _misfit(text, data_type)
    if arrow.is_floating(data_type) and text != text.strip():
        raise _misfit(text, data_type)


def _duckdb_scalar(value: Any, data_type: pa.DataType) -> Any:
    if is_text(data_type) or is_binary(data_type):
        # A number by itself is written as DuckDB casts a DOUBLE to a text: 1e+40.
        text = _double_text(value) if isinstance(value, float) else str(text_of(value))
        return text.encode() if is_binary(data_type) else text
    if isinstance(value, str):
        return _read_scalar(value, data_type)
    if isinstance(value, dict | list):
        raise _misfit(value, data_type)
    if arrow.is_boolean(data_type):
        return value != 0
    if arrow.is_integer(data_type):
        # round() of a float is half to even, as in DuckDB.
        return _integer(round(value) if isinstance(value, float) else int(value), data_type)
    if arrow.is_floating(data_type):
        number = _float(value)
        is_too_large = arrow.is_float32(data_type) and _MAX_FLOAT32 < abs(number) < math.inf
        if is_too_large:
            raise _misfit(value, data_type)
        return number
    if arrow.is_decimal(data_type):
        return _decimal(value, data_type)
    raise _misfit(value, data_type)


class _SparkConverter:
    """Converts parsed JSON to values for Arrow, as ``from_json`` of Spark does."""

    def convert(self, value: Any, data_type: pa.DataType) -> Any:
        """Return a JSON value as a value of a type.

        Raises:
            ValueError: The value does not fit the type, or is a list or map with such a part.
        """
        if value is None:
            return None
        if arrow.is_struct(data_type):
            if not isinstance(value, dict):
                raise _misfit(value, data_type)
            return self.fields(value, data_type)
        if arrow.is_map(data_type):
            if not isinstance(value, dict) or not is_text(data_type.key_type):
                raise _misfit(value, data_type)
            return [(name, self.convert(part, data_type.item_type)) for name, part in value.items()]
        if is_nested(data_type):
            if not isinstance(value, list):
                raise _misfit(value, data_type)
            return [self.convert(element, data_type.value_type) for element in value]
        return text_of(value) if is_text(data_type) else _spark_scalar(value, data_type)

    def fields(self, value: dict[str, Any], data_type: pa.StructType) -> dict[str, Any]:
        """Return the members of an object as the fields of a struct; a misfit is None."""
        return {field.name: self._field(value.get(field.name), field.type) for field in data_type}

    def _field(self, value: Any, data_type: pa.DataType) -> Any:
        try:
            return self.convert(value, data_type)
        except (ValueError, ArithmeticError):
            return None


def _spark_scalar(value: Any, data_type: pa.DataType) -> Any:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if arrow.is_boolean(data_type) and isinstance(value, bool):
        return value
    if arrow.is_integer(data_type) and isinstance(value, int) and is_number:
        return _integer(value, data_type)
    if arrow.is_floating(data_type) and is_number:
        return _float(value)
    if arrow.is_floating(data_type) and isinstance(value, str):
        number = _SPARK_FLOATS.get(value)
        if number is not None:
            return number
    if arrow.is_decimal(data_type) and (is_number or isinstance(value, str)):
        return _decimal(value, data_type)
    if arrow.is_timestamp(data_type) and data_type.tz is not None and is_number:
        # A number is a time in seconds.
        if isinstance(value, int):
            return pa.scalar(value * 1_000_000, pa.int64()).cast(data_type).value
    elif isinstance(value, str):
        if is_binary(data_type):
            return base64.b64decode(value, validate=True)
        if is_temporal(data_type):
            return _read_spark_time(value, data_type)
    raise _misfit(value, data_type)


def _integer(number: int, data_type: pa.DataType) -> int:
    is_signed = arrow.is_signed_integer(data_type)
    bits = data_type.bit_width - (1 if is_signed else 0)
    if not (-(2**bits) if is_signed else 0) <= number < 2**bits:
        raise _misfit(number, data_type)
    return number


def _float(value: float) -> float:
    """Return a number as a float, which is infinite beyond the floats."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _decimal(value: Any, data_type: pa.DataType) -> Decimal:
    """Return a number or a text of one as a decimal of a type, rounded half up."""
    text = value.text if isinstance(value, JsonFloat) else value
    try:
        number = Decimal(int(text) if isinstance(text, bool) else text)
        rounded = number.quantize(_unit(data_type), ROUND_HALF_UP, _EXACT)
    except InvalidOperation:  # no number, or more digits than a decimal has
        raise _misfit(value, data_type) from None
    decimal: Decimal = pa.scalar(rounded, data_type).as_py()
    return decimal


@lru_cache(maxsize=64)
def _unit(data_type: pa.DataType) -> Decimal:
    """Return the least positive value of a decimal type."""
    return Decimal(1).scaleb(-data_type.scale)


def _value_of(scalar: pa.Scalar) -> Any:
    """Return a value for Arrow; a time as an integer, because Python has no year 20000."""
    data_type = scalar.type
    is_time = is_temporal(data_type) or arrow.is_time(data_type)
    return scalar.value if is_time else scalar.as_py()


def _double_text(value: float) -> str:
    text: str = write_text(pa.array([float(value)]), pa.string())[0].as_py()
    return text


@lru_cache(maxsize=4096)
def _read_scalar(text: str, data_type: pa.DataType) -> Any:
    """Return a value that DuckDB casts from a text."""
    return _value_of(read_text(pa.array([text]), data_type)[0])


# A clock and a zone at the end of a time.
_WITH_ZONE: Final = re.compile(r".*:\d\d(?:\.\d*)? *(?:[A-Za-z].*|[+-]\d.*)", re.ASCII | re.DOTALL)
_DAYS: Final = re.compile(r"[+-]?\d{1,10}", re.ASCII)


@lru_cache(maxsize=4096)
def _read_spark_time(text: str, data_type: pa.DataType) -> Any:
    """Return a date or a timestamp that Spark reads from a text."""
    texts = pa.array([text])
    if arrow.is_date(data_type):
        try:
            return _value_of(read_text(spark_date_texts(texts), data_type)[0])
        except pa.ArrowInvalid:
            if not _DAYS.fullmatch(text):
                raise
            return _integer(int(text), pa.int32())  # days since 1970
    if data_type.tz is None and _WITH_ZONE.fullmatch(text):
        raise _misfit(text, data_type)
    return _value_of(read_text(spark_timestamp_texts(texts), data_type)[0])


# -- Functions ---------------------------------------------------------------------------------


def _rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
    require(name, arguments, 2, 2)
    value, schema = arguments
    if not is_text(value.type) and not arrow.is_null(value.type):
        raise argument_error(name, arguments, "it takes a JSON text: cast it to string")
    # The type of the result is that of the second argument, a NULL.
    return (cast_to(value, pa.string()), schema), schema.type


def _duckdb_kernel(
    *, is_strict: bool = False, is_cast: bool = False, rules: JsonRules = DUCKDB_RULES
) -> Kernel:
    converter = _DuckdbConverter(is_strict=is_strict, is_cast=is_cast)
    parse = partial(parse_document, rules=rules)

    def kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
        def convert(text: str) -> Any:
            value = parse(text)
            try:
                return None if value is MISSING else converter.convert(value, result_type)
            except (ValueError, ArithmeticError) as error:
                if is_strict:
                    raise pa.ArrowInvalid(str(error)) from None
                return None

        return map_distinct(fill_rows(arguments[0], row_count(arguments)), convert, result_type)

    return kernel


def _spark_kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
    converter = _SparkConverter()
    is_struct = arrow.is_struct(result_type)
    is_list_of_structs = arrow.is_list(result_type) and arrow.is_struct(result_type.value_type)

    def convert(text: str) -> Any:
        if not text.strip():
            return None
        value = parse_json_prefix(text, keeps_all_members=False)
        if is_struct:
            return converter.fields(value if isinstance(value, dict) else {}, result_type)
        if value is MISSING:
            return None
        try:
            is_one = is_list_of_structs and isinstance(value, dict)
            return converter.convert([value] if is_one else value, result_type)
        except (ValueError, ArithmeticError):
            return None

    return map_distinct(fill_rows(arguments[0], row_count(arguments)), convert, result_type)


FUNCTIONS = (
    Function(
        "from_json",
        "the JSON text a as a value of the type of b; parts of another form are NULL",
        _rule,
        _duckdb_kernel(),
    ),
    Function(
        "last_from_json",
        "as from_json; of two members of a name, the last one, and NULL for a text that is no JSON",
        _rule,
        _duckdb_kernel(rules=POSTGRES_RULES),
    ),
    Function(
        "cast_json",
        "the JSON text a as a value of the type of b; fails if a part has another form",
        _rule,
        _duckdb_kernel(is_strict=True, is_cast=True),
    ),
    Function(
        "try_cast_json",
        "as cast_json; NULL for a part of another form",
        _rule,
        _duckdb_kernel(is_cast=True),
    ),
    Function(
        "spark_from_json",
        "the JSON text a as a value of the type of b; a list or map of which a part has another "
        "form is NULL, as is such a field",
        _rule,
        _spark_kernel,
    ),
)
