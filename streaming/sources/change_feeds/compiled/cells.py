"""Cells: convert the values of one column of JSON rows to an Arrow array.

A `CellReader` has the kernel and the limits of its type. It returns the values and the mask of the
refused rows, whose text is not one of the plain ones (`dbsp_wcoj.kernels.json.values`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from circuits.types.arrow_types import Family, family_of, value_type
from dbsp_wcoj.kernels.json.values import (
    AS_BASE64,
    AS_EITHER,
    AS_TEXT,
    REFUSED,
    copy_texts,
    decode_base64,
    decode_hex,
    decode_latin1,
    measure_texts,
    read_booleans,
    read_decimals,
    read_floats,
    read_integers,
    read_times,
)
from streaming.sources.change_feeds.compiled.scanner import Integers, Mask, ScannedEvents
from streaming.sources.change_feeds.physical_types import MAX_DECIMAL_DIGITS
from streaming.sources.change_feeds.text_values import NANOSECONDS, Encoding
from streaming.sources.change_feeds.unscaled_decimals import may_be_bytes

__all__ = ["NO_DESCRIPTION", "CellReader", "Description", "Images", "is_readable"]

DECIMALS: Final = {"text": AS_TEXT, "base64": AS_BASE64, "either": AS_EITHER}
BINARY_DECODERS: Final = {"base64": decode_base64, "hex": decode_hex, "latin1": decode_latin1}
# Forms of `measure_texts`.
ONLY_STRINGS, TEXTS, NUMBERS = range(3)
# Forms of `read_times`.
DATE, TIMESTAMP, CLOCK, DURATION = range(4)
# Zones of a text of `read_times`.
WITHOUT_ZONE, WITH_ZONE, UTC_OR_ZONE = range(3)
UTC_NAMES: Final = ("UTC", "Z")


@dataclass(frozen=True)
class Description:
    """How an event says that it encodes a column.

    Attributes:
        is_bytes: Whether a number is the base64 of its bytes; None if the event does not say it.
        scale: The scale of such a number; None if the event does not say it.
        unit: The nanoseconds per unit of a time; None if the event does not say it.
    """

    is_bytes: bool | None = None
    scale: int | None = None
    unit: int | None = None


NO_DESCRIPTION: Final = Description()


@dataclass(frozen=True)
class Images:
    """Images of one relation: for each, the row that has its cells, and the row for missing ones.

    Attributes:
        rows: The rows; -1 for none.
        fallback_rows: The rows that have the cells that ``rows`` lacks; -1 for none.
    """

    rows: Integers
    fallback_rows: Integers

    def take(self, numbers: npt.NDArray[Any]) -> Images:
        """Return some of the images."""
        return Images(self.rows[numbers], self.fallback_rows[numbers])


def is_readable(type: pa.DataType) -> bool:
    """Return whether a `CellReader` can read values of a type."""
    type = value_type(type)
    match family_of(type):
        case Family.BOOLEAN | Family.INTEGER | Family.DATE | Family.TIME | Family.DURATION:
            return True
        case Family.TIMESTAMP | Family.BINARY | Family.STRING:
            return True
        case Family.FLOAT:
            return bool(type != pa.float16())
        case Family.DECIMAL:
            return bool(type.precision <= MAX_DECIMAL_DIGITS and type.scale >= 0)
    return False


class CellReader:
    """Reads the cells of one column.

    Args:
        column: The number of the column in rows.
        field: The column of the input.
        encoding: The encodings that events do not define.
        hidden: Texts that stand for a value that the database did not log; they are refused.
    """

    def __init__(
        self, column: int, field: pa.Field, encoding: Encoding, hidden: Sequence[str]
    ) -> None:
        self.column = column
        self.field = field
        self._encoding = encoding
        self._type = value_type(field.type)
        self._family = family_of(self._type)
        texts = [text.encode() for text in hidden]
        self._hidden = pa.array(hidden, pa.string())
        self._hidden_bytes = np.frombuffer(bytearray(b"".join(texts) + bytes(8)), np.uint8)
        self._hidden_ends = np.cumsum([len(text) for text in texts]).astype(np.int64)

    def read(
        self, events: ScannedEvents, images: Images, description: Description
    ) -> tuple[pa.Array, Mask]:
        """Return the values of images, and the mask of the refused ones."""
        size = len(images.rows)
        refused = np.zeros(size, np.bool_)
        arguments = (events.address, events.cells, self.column, images.rows, images.fallback_rows)
        match self._family:
            case Family.BOOLEAN:
                flags, is_valid = np.empty((2, size), np.bool_)
                read_booleans(*arguments, flags, is_valid, refused)
                return pa.array(flags, mask=~is_valid), refused
            case Family.INTEGER:
                return self._read_integers(arguments, description, refused), refused
            case Family.DECIMAL:
                return self._read_decimals(arguments, description, refused), refused
            case Family.FLOAT:
                return self._read_floats(events, images, refused), refused
            case Family.BINARY:
                return self._read_binaries(events, images, refused), refused
            case Family.STRING:
                return self._read_texts(events, images, TEXTS, refused).array(), refused
        return self._read_times(arguments, description, refused), refused

    def _read_integers(
        self, arguments: tuple[Any, ...], description: Description, refused: Mask
    ) -> pa.Array:
        type, size = self._type, len(refused)
        encoding = AS_TEXT
        if may_be_bytes(type):
            encoding = self._number_encoding(description, scale=0)
        low, high = -(2 ** (type.bit_width - 1)), 2 ** (type.bit_width - 1) - 1
        if types.is_unsigned_integer(type):
            low, high = 0, min(2**type.bit_width - 1, 2**63 - 1)
        values, is_valid = np.empty(size, np.int64), np.empty(size, np.bool_)
        # Circuits reserve the least int64 for NULL.
        limits = (max(low, -(2**63) + 1), high)
        read_integers(*arguments, encoding, *limits, values, is_valid, refused)
        return _to_array(values.astype(type.to_pandas_dtype(), copy=False), is_valid)

    def _number_encoding(self, description: Description, scale: int) -> int:
        """Return the encoding of a number in a string."""
        if description.is_bytes is None:
            return DECIMALS[self._encoding.decimals]
        if not description.is_bytes:
            return AS_TEXT
        return AS_BASE64 if description.scale in (None, scale) else REFUSED

    def _read_decimals(
        self, arguments: tuple[Any, ...], description: Description, refused: Mask
    ) -> pa.Array:
        type, size = self._type, len(refused)
        words, is_valid = np.empty((size, 2), np.int64), np.empty(size, np.bool_)
        limit = (10**type.precision).to_bytes(16, "little")
        encoding = self._number_encoding(description, type.scale)
        read_decimals(
            *arguments,
            encoding,
            type.precision,
            type.scale,
            np.frombuffer(bytearray(limit), np.int64),
            np.empty(24, np.uint8),
            words,
            is_valid,
            refused,
        )
        wide = pa.decimal128(type.precision, type.scale)
        buffers = [_bitmap(is_valid), pa.py_buffer(words)]
        return pa.Array.from_buffers(wide, size, buffers)

    def _read_floats(self, events: ScannedEvents, images: Images, refused: Mask) -> pa.Array:
        size = len(refused)
        is_single = self._type == pa.float32()
        values, is_valid = np.empty(size, np.float64), np.empty(size, np.bool_)
        is_long = np.empty(size, np.bool_)
        arguments = (events.address, events.cells, self.column, images.rows, images.fallback_rows)
        read_floats(*arguments, not is_single, values, is_valid, is_long, refused)
        if is_single:  # a float64 that is rounded again may differ
            is_long = is_valid & ~refused
            values = values.astype(np.float32)
        if is_long.any():
            numbers = np.flatnonzero(is_long)
            refused_texts = np.zeros(len(numbers), np.bool_)
            texts = self._read_texts(events, images.take(numbers), NUMBERS, refused_texts)
            try:
                parsed = texts.array().cast(self._type).to_numpy(zero_copy_only=False)
            except pa.ArrowInvalid:
                parsed = np.full(len(numbers), np.inf)
            refused[numbers] |= refused_texts | ~np.isfinite(parsed)
            values[numbers] = parsed
        return _to_array(values, is_valid)

    def _read_times(
        self, arguments: tuple[Any, ...], description: Description, refused: Mask
    ) -> pa.Array:
        type, size, family = self._type, len(refused), self._family
        ticks, is_valid = np.empty(size, np.int64), np.empty(size, np.bool_)
        unit = description.unit
        zone = WITHOUT_ZONE
        tick = 1
        if family is Family.DATE:
            form = DATE
            unit = 1 if unit is None and self._encoding.epoch_days else 0
        else:
            form = {Family.TIMESTAMP: TIMESTAMP, Family.TIME: CLOCK}.get(family, DURATION)
            unit = unit if unit is not None else self._encoding.unit(self.field.name)
            tick = NANOSECONDS[type.unit]
        if family is Family.TIMESTAMP and type.tz is not None:
            zone = UTC_OR_ZONE if self._encoding.zone in UTC_NAMES else WITH_ZONE
        read_times(*arguments, form, unit or 0, tick, zone, ticks, is_valid, refused)
        if family is Family.DATE:
            return _to_array(ticks.astype(np.int32), is_valid).cast(pa.date32())
        if type.bit_width == 32:
            return _to_array(ticks.astype(np.int32), is_valid).cast(type)
        return _to_array(ticks, is_valid).cast(type)

    def _read_binaries(self, events: ScannedEvents, images: Images, refused: Mask) -> pa.Array:
        texts = self._read_texts(events, images, ONLY_STRINGS, refused)
        if self._encoding.binary == "utf8":
            return texts.array().cast(pa.binary())
        decode: Callable[..., int] = BINARY_DECODERS[self._encoding.binary]
        decoded = np.empty(len(texts.data) + 8, np.uint8)
        ends = np.zeros(len(texts.ends), np.int64)
        size = decode(texts.data, texts.ends, texts.is_valid, decoded, ends, refused)
        return _Texts(decoded[:size], ends, texts.is_valid).array(pa.binary())

    def _read_texts(
        self, events: ScannedEvents, images: Images, form: int, refused: Mask
    ) -> _Texts:
        size = len(refused)
        ends, is_valid = np.empty(size + 1, np.int64), np.empty(size, np.bool_)
        arguments = (events.address, events.cells, self.column, images.rows, images.fallback_rows)
        has_escapes = measure_texts(
            *arguments, form, self._hidden_bytes, self._hidden_ends, ends, is_valid, refused
        )
        data = np.empty(int(ends[-1]) + 8, np.uint8)
        end = copy_texts(*arguments, is_valid, refused, ends, data)
        texts = _Texts(data[:end], ends, is_valid)
        if has_escapes and len(self._hidden):
            is_hidden = pc.is_in(texts.array(), value_set=self._hidden)
            refused |= np.asarray(is_hidden.to_numpy(zero_copy_only=False), np.bool_)
        return texts


@dataclass(frozen=True)
class _Texts:
    """Texts one after another, the end of each, and whether each is not NULL."""

    data: npt.NDArray[np.uint8]
    ends: Integers
    is_valid: Mask

    def array(self, type: pa.DataType | None = None) -> pa.Array:
        """Return the texts as an array."""
        buffers = [
            _bitmap(self.is_valid),
            pa.py_buffer(self.ends.astype(np.int32)),
            pa.py_buffer(self.data),
        ]
        return pa.Array.from_buffers(type or pa.string(), len(self.is_valid), buffers)


def _bitmap(is_valid: Mask) -> pa.Buffer | None:
    """Return the validity of an array; None if all values are valid."""
    return None if is_valid.all() else pa.py_buffer(np.packbits(is_valid, bitorder="little"))


def _to_array(values: npt.NDArray[Any], is_valid: Mask) -> pa.Array:
    """Return numbers, with NULL where they are not valid."""
    return pa.array(values) if is_valid.all() else pa.array(values, mask=~is_valid)
