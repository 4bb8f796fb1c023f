"""The tables of a circuit's codecs, by name.

One of texts, one of binaries and one of wide decimals per scale, which come to be when a column
first needs them. They are named, so that stored state can tell them apart: ``text``, ``binary``,
``decimal 2`` for scale 2. Decimals are kept as rows of four words
(`circuits.types.codecs.decimals`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from circuits.errors import SchemaError
from circuits.types.codecs.decimals import WORDS
from dbsp_wcoj.values.interner import Interner
from dbsp_wcoj.values.overlay import InternerOverlay

__all__ = ["Dictionaries"]

_DECIMAL: Final = "decimal "


class Dictionaries:
    """Named interners.

    Args:
        known: Tables that are there already, by name.

    >>> tables = Dictionaries()
    >>> tables.table("decimal 2") is tables.decimals(2)
    True
    >>> tables.lengths()
    {'text': 0, 'binary': 0, 'decimal 2': 0}
    """

    def __init__(self, known: Mapping[str, Interner] | None = None) -> None:
        self.named = {"text": Interner(), "binary": Interner(), **(known or {})}
        self.text = self.named["text"]
        self.binary = self.named["binary"]

    def decimals(self, scale: int) -> Interner:
        """The table of the wide decimals of a scale."""
        return self.named.setdefault(f"{_DECIMAL}{scale}", Interner(words=WORDS))

    def table(self, name: str) -> Interner:
        """The table of a name, new if it is one of decimals of a scale that no column had.

        Raises:
            SchemaError: No table has such a name.
        """
        scale = name.removeprefix(_DECIMAL)
        if scale != name and scale.removeprefix("-").isdecimal():
            return self.decimals(int(scale))
        if name not in self.named:
            raise SchemaError(
                f"no table {name!r}: tables are text, binary and decimal <scale>; "
                "give those that there were"
            )
        return self.named[name]

    def overlaid(self, lengths: Mapping[str, int]) -> Dictionaries:
        """Tables of the first values of each, to read and to add to in private.

        Another thread may add to these tables meanwhile.

        Args:
            lengths: How many values of each table are seen; none of a table without a length.
        """
        known = self.named.copy()
        return Dictionaries(
            {
                name: InternerOverlay(t, lengths[name])
                for name, t in known.items()
                if name in lengths
            }
        )

    def lengths(self) -> dict[str, int]:
        """The number of values of each table."""
        return {name: len(table) for name, table in self.named.items()}
