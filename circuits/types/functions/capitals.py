"""Capital letters: the first letter of each word, or of the text."""

from __future__ import annotations

import re

import pyarrow as pa

from circuits.types.functions.function import Function
from circuits.types.functions.signatures import Signature, per_distinct_row

__all__ = ["FUNCTIONS"]


def _initcap(text: str) -> str:
    return " ".join(word[:1].upper() + word[1:].lower() for word in text.split(" "))


def _initcap_of_words(text: str) -> str:
    return re.sub(r"[^\W_]+", lambda word: word[0][:1].upper() + word[0][1:].lower(), text)


FUNCTIONS = (
    Function(
        "initcap",
        "a with a capital letter after each space, all others small",
        Signature("t", pa.string()),
        per_distinct_row(_initcap),
    ),
    Function(
        "initcap_of_words",
        "as initcap; every character that is no letter or digit separates",
        Signature("t", pa.string()),
        per_distinct_row(_initcap_of_words),
    ),
)
