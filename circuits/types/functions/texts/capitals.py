"""Upper case, lower case and capital letters at the start of words, as in Spark.

They use the full case mapping of Unicode, which may change the length of a text: ``ß`` becomes
``SS``, ``İ`` becomes an ``i`` and a combining dot, and a ``Σ`` at the end of a word becomes ``ς``.
The functions ``upper`` and ``lower`` map single characters, as DuckDB does.

Cost: Arrow maps the case of ASCII texts, Python that of each other distinct text.

Reference: The Unicode Standard, section 3.13, and its file SpecialCasing.txt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from circuits.types.functions.argument_rows import map_distinct
from circuits.types.functions.function import Function, Kernel, Values
from circuits.types.functions.signatures import Signature, per_distinct_row
from circuits.types.functions.texts.text_functions import text_rule

__all__ = ["FUNCTIONS"]


def _case_kernel(map_ascii: Callable[..., Any], map_text: Callable[[str], str]) -> Kernel:
    """Return a kernel that applies one function to ASCII texts, and one to each other text."""

    def kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
        texts = arguments[0]
        is_other = pc.fill_null(pc.invert(pc.string_is_ascii(texts)), False)
        result = pc.cast(map_ascii(texts), result_type)
        if not pc.any(is_other).as_py():
            return result
        others = map_distinct(texts.filter(is_other), map_text, result_type)
        return pc.replace_with_mask(result, is_other, others)

    return kernel


def _initcap(text: str) -> str:
    return " ".join(map(_capitalize, text.split(" ")))


def _capitalize(word: str) -> str:
    # The lower case of a letter depends on the letters before it, so that of the word is cut.
    first = word[:1]
    return first.title() + word.lower()[len(first.lower()) :]


# In a signature, t is a text.
FUNCTIONS = (
    Function(
        "full_upper",
        "in upper case, where a character may become several: ß becomes SS",
        text_rule("t", 1),
        _case_kernel(pc.utf8_upper, str.upper),
    ),
    Function(
        "full_lower",
        "in lower case, where a character may become several, and Σ ς at the end of a word",
        text_rule("t", 1),
        _case_kernel(pc.utf8_lower, str.lower),
    ),
    Function(
        "initcap",
        "a with a capital letter after each space, all others small",
        Signature("t", pa.string()),
        per_distinct_row(_initcap),
    ),
)
