"""The tables of a circuit's codecs: values in the order of their codes, out and in again.

One of texts, one of binaries and one of wide decimals per scale, which come to be when a column
first needs them. They are named, so that a checkpoint can tell them apart: ``text``, ``binary``,
``decimal 2`` for scale 2. Decimals are kept as rows of four words (`circuits.codec_decimal`).

Invariant: what raises leaves all tables as they were.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa

from circuits.codec_buffers import strings_array, strings_of
from circuits.codec_decimal import WORDS, decimal_rows, decimals_of
from circuits.errors import SchemaError
from dbsp_wcoj.errors import ColumnTypeError
from dbsp_wcoj.interner import Interner

__all__ = ["Tables"]

_DECIMAL: Final = "decimal "
_STRINGS: Final = {"text": pa.large_string(), "binary": pa.large_binary()}


class Tables:
    """Named interners.

    >>> tables = Tables()
    >>> tables.append({"text": pa.array(["x", "y"], pa.large_string())})
    >>> tables.lengths()
    {'text': 2, 'binary': 0}
    >>> tables.values_since({"text": 1})["text"].to_pylist()
    ['y']
    """

    def __init__(self) -> None:
        self.text = Interner()
        self.binary = Interner()
        self.named = {"text": self.text, "binary": self.binary}

    def decimals(self, scale: int) -> Interner:
        """The table of the wide decimals of a scale."""
        return self.named.setdefault(f"{_DECIMAL}{scale}", Interner(words=WORDS))

    def table(self, name: str) -> Interner:
        """The table of a name, new if it is one of decimals of a scale that no column had.

        Raises:
            SchemaError: No table has such a name.
        """
        scale = name.removeprefix(_DECIMAL)
        if name not in _STRINGS and (scale == name or not scale.lstrip("-").isdecimal()):
            raise SchemaError(
                f"no table {name!r}: tables are text, binary and decimal <scale>; "
                "give those that there were"
            )
        return self.named[name] if name in _STRINGS else self.decimals(int(scale))

    def lengths(self) -> dict[str, int]:
        """The number of values of each table."""
        return {name: len(table) for name, table in self.named.items()}

    def values_since(self, lengths: Mapping[str, int]) -> dict[str, pa.Array]:
        """What was added to each table since `lengths` gave these."""
        self._check_lengths(lengths)
        values = {}
        for name, table in self.named.items():
            offsets, data = table.arena(lengths.get(name, 0))
            if name in _STRINGS:
                values[name] = strings_array(_STRINGS[name], offsets, data, None)
            else:
                rows = data.view(np.int64).reshape(-1, WORDS)
                values[name] = decimals_of(rows, int(name.removeprefix(_DECIMAL)))
        return values

    def append(self, values: Mapping[str, pa.Array]) -> None:
        """Give the next codes to values: the inverse of `values_since`."""
        before = self.lengths()
        try:
            for name, array in values.items():
                self._append(name, array)
        except BaseException:
            self.truncate(before)
            raise

    def truncate(self, lengths: Mapping[str, int]) -> None:
        """Take back the codes given since `lengths` gave these."""
        self._check_lengths(lengths)
        for name, table in self.named.items():
            table.truncate(lengths.get(name, 0))

    def _append(self, name: str, values: pa.Array) -> None:
        scale = name.removeprefix(_DECIMAL)
        if name not in _STRINGS and (scale == name or not scale.lstrip("-").isdecimal()):
            raise SchemaError(
                f"no table {name!r}: tables are text, binary and decimal <scale>; "
                "give what values_since returned"
            )
        type = _STRINGS[name] if name in _STRINGS else pa.decimal256(76, int(scale))
        if values.type != type or values.null_count:
            raise SchemaError(
                f"table {name!r}: values of type {values.type} with {values.null_count} NULL, "
                f"it has {type} without NULL: give what values_since returned"
            )
        if name in _STRINGS:
            table = self.named[name]
            offsets, data = strings_of(values)
        else:
            table = self.decimals(int(scale))
            rows = decimal_rows(values)
            offsets = np.arange(len(rows) + 1) * (rows.itemsize * WORDS)
            data = rows.view(np.uint8).reshape(-1)
        try:
            table.append(offsets, data)
        except ColumnTypeError as error:
            raise SchemaError(f"table {name!r}: {error}") from error

    def _check_lengths(self, lengths: Mapping[str, int]) -> None:
        for name, length in lengths.items():
            size = len(self.named[name]) if name in self.named else 0
            if not 0 <= length <= size:
                raise SchemaError(
                    f"table {name!r} has {size} values, not {length}: give lengths that "
                    "these tables had"
                )
