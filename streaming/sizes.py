"""Sizes: texts such as ``4 GB`` as numbers of bytes."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["parse_size"]

_SIZE: Final = re.compile(r"(\d{1,15})\s*([kmgt]?)i?b?")
#: Units as powers of two.
_UNIT_EXPONENTS: Final = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}


def parse_size(text: str) -> int | None:
    """Return the number of bytes; None if the text is not a size. Units are powers of two.

    >>> parse_size("512M"), parse_size("1 GiB"), parse_size("7"), parse_size("much")
    (536870912, 1073741824, 7, None)
    """
    match = _SIZE.fullmatch(text.strip().lower())
    return None if match is None else int(match[1]) << _UNIT_EXPONENTS[match[2]]
