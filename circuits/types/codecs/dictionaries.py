"""The dictionaries of a circuit's codecs, by name.

There is one dictionary of strings, one of binaries, one of nested values, and one of wide decimals
per scale. The last two are created when a column first needs them. Stored state identifies them by
name: ``text``, ``binary``, ``nested``, ``decimal 2`` for scale 2. Decimals are stored as rows of
four words (`circuits.types.codecs.decimals`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from circuits.errors import SchemaError
from circuits.types.codecs.decimals import WORDS
from dbsp_wcoj.values.interner import Interner, InternerArrays
from dbsp_wcoj.values.overlay import InternerOverlay

__all__ = ["Dictionaries"]

_DECIMAL: Final = "decimal "
_NESTED: Final = "nested"


class Dictionaries:
    """Named interners.

    Args:
        existing: Existing dictionaries, by name.

    >>> dictionaries = Dictionaries()
    >>> dictionaries.dictionary("decimal 2") is dictionaries.decimals(2)
    True
    >>> dictionaries.lengths()
    {'text': 0, 'binary': 0, 'decimal 2': 0}
    """

    def __init__(self, existing: Mapping[str, Interner] | None = None) -> None:
        self.named = {"text": Interner(), "binary": Interner(), **(existing or {})}
        self.text = self.named["text"]
        self.binary = self.named["binary"]

    def decimals(self, scale: int) -> Interner:
        """Return the dictionary of the wide decimals of a scale."""
        return self.named.setdefault(f"{_DECIMAL}{scale}", Interner(words=WORDS))

    def nested(self) -> Interner:
        """Return the dictionary of lists, structs and maps."""
        return self.named.setdefault(_NESTED, Interner())

    def dictionary(self, name: str) -> Interner:
        """Return the dictionary with a name; create it if it is one of decimals or nested values.

        Raises:
            SchemaError: No dictionary has such a name.
        """
        if name.startswith(_DECIMAL):
            scale = name.removeprefix(_DECIMAL)
            if scale.removeprefix("-").isdecimal():
                return self.decimals(int(scale))
        if name == _NESTED:
            return self.nested()
        if name not in self.named:
            raise SchemaError(
                f"no dictionary {name!r}: the dictionaries are text, binary, nested and "
                "decimal <scale>; use one of these names"
            )
        return self.named[name]

    def overlay(self, shared: Mapping[str, InternerArrays]) -> Dictionaries:
        """Return dictionaries that have these values, and keep new values private.

        Another thread may add to these dictionaries at the same time.

        Args:
            shared: The values to share of each dictionary, from `Interner.share`. The names of
                other dictionaries are ignored.
        """
        named = self.named.copy()  # another thread may add a dictionary
        return Dictionaries(
            {name: InternerOverlay(arrays) for name, arrays in shared.items() if name in named}
        )

    def lengths(self) -> dict[str, int]:
        """Return the number of codes of each dictionary."""
        return {name: len(interner) for name, interner in self.named.items()}
