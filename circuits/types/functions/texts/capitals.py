"""Capital letters at the start of words."""

from __future__ import annotations

import pyarrow as pa

from circuits.types.functions.function import Function
from circuits.types.functions.signatures import Signature, per_distinct_row

__all__ = ["FUNCTIONS"]


def _initcap(text: str) -> str:
    return " ".join(word[:1].upper() + word[1:].lower() for word in text.split(" "))


# In a signature, t is a text.
FUNCTIONS = (
    Function(
        "initcap",
        "a with a capital letter after each space, all others small",
        Signature("t", pa.string()),
        per_distinct_row(_initcap),
    ),
)
