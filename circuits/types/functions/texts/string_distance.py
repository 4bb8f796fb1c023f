"""Functions for the distance of two texts, and Soundex. Each distinct pair is computed once.

``levenshtein`` and ``jaro_winkler`` count characters, as Spark does; the other functions count
bytes, as DuckDB does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa

from circuits.types.functions.function import Function
from circuits.types.functions.signatures import Signature, per_distinct_row

__all__ = ["FUNCTIONS"]

_SOUNDS: Final = dict(zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "01230127022455012623010202", strict=True))
_SILENT: Final = "HW"  # letters that are skipped; their numbers in _SOUNDS are not used


def _levenshtein(left: str, right: str, limit: int | None = None) -> int:
    previous = list(range(len(right) + 1))
    for row, character in enumerate(left, 1):
        current = [row]
        for column, other in enumerate(right, 1):
            substituted = previous[column - 1] + (character != other)
            current.append(min(previous[column] + 1, current[-1] + 1, substituted))
        previous = current
    return -1 if limit is not None and limit < previous[-1] else previous[-1]


def _damerau_levenshtein(left: str, right: str) -> int:
    """Count insertions, deletions, substitutions and transpositions (unrestricted).

    ``table[i, j]`` is the distance of the first i and the first j characters. A transposition that
    ends at (i, j) begins at the latest earlier row whose character is that of column j, and at the
    latest earlier column whose character is that of row i.

    Source: Lowrance, Wagner, An Extension of the String-to-String Correction Problem, JACM 1975.
    """
    last_row: dict[str, int] = {}  # the latest row of each character
    # Row and column -1 stand for a transposition that has no beginning.
    max_distance = len(left) + len(right)
    table = {(-1, -1): max_distance}
    for i in range(len(left) + 1):
        table[i, -1], table[i, 0] = max_distance, i
    for j in range(len(right) + 1):
        table[-1, j], table[0, j] = max_distance, j
    for i in range(1, len(left) + 1):
        last_column = 0
        for j in range(1, len(right) + 1):
            match_row, match_column = last_row.get(right[j - 1], 0), last_column
            cost = left[i - 1] != right[j - 1]
            if not cost:
                last_column = j
            table[i, j] = min(
                table[i - 1, j - 1] + cost,
                table[i, j - 1] + 1,
                table[i - 1, j] + 1,
                table[match_row - 1, match_column - 1]
                + (i - match_row - 1)
                + 1
                + (j - match_column - 1),
            )
        last_row[left[i - 1]] = i
    return table[len(left), len(right)]


def _hamming(left: str, right: str) -> int:
    if len(left) != len(right):
        raise ValueError("the texts have different lengths")
    if not left:
        raise ValueError("the texts are empty")
    return sum(a != b for a, b in zip(left, right, strict=True))


def _jaccard(left: str, right: str) -> float:
    if not left or not right:
        raise ValueError("a text is empty")
    return len(set(left) & set(right)) / len(set(left) | set(right))


def _of_bytes(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function of two texts, so that it counts bytes instead of characters."""

    def apply(left: str, right: str) -> Any:
        return function(left.encode().decode("latin-1"), right.encode().decode("latin-1"))

    return apply


def _soundex(text: str) -> str:
    """Return the Soundex code of the text; a text without a leading letter is returned as it is."""
    if not text or text[0].upper() not in _SOUNDS:
        return text
    code, last = text[0].upper(), _SOUNDS[text[0].upper()]
    for character in text[1:].upper():
        sound = _SOUNDS.get(character)
        if sound is None:
            last = "0"
            continue
        if character in _SILENT:
            continue
        if sound not in ("0", last):
            code += sound
            if len(code) == 4:
                break
        last = sound
    return code.ljust(4, "0")


_MAX_PREFIX, _PREFIX_WEIGHT = 4, 0.1
#: DuckDB counts a common prefix only for texts that are more similar than this.
_MIN_SIMILARITY_FOR_PREFIX = 0.7


def _jaro(left: Sequence[Any], right: Sequence[Any]) -> float:
    """Return the similarity of Jaro, from 0 to 1; 0 for an empty text.

    Source: Winkler, String Comparator Metrics and Enhanced Decision Rules, 1990.
    """
    if not left or not right:
        return 0.0
    window = max(max(len(left), len(right)) // 2 - 1, 0)
    is_matched = [False] * len(right)
    matches: list[Any] = []
    for i, letter in enumerate(left):
        for j in range(max(0, i - window), min(len(right), i + window + 1)):
            if not is_matched[j] and right[j] == letter:
                is_matched[j] = True
                matches.append(letter)
                break
    if not matches:
        return 0.0
    # The matched letters of both texts are compared in their orders; two places with different
    # letters are one transposition.
    right_matches = [letter for letter, flag in zip(right, is_matched, strict=True) if flag]
    transpositions = sum(a != b for a, b in zip(matches, right_matches, strict=True)) // 2
    count = len(matches)
    similarity: float = count / len(left) + count / len(right) + (count - transpositions) / count
    return similarity / 3


def _add_prefix_bonus(left: Sequence[Any], right: Sequence[Any], jaro: float) -> float:
    """Return the similarity of Winkler: that of Jaro, increased for a common prefix."""
    prefix = 0
    for a, b in zip(left[:_MAX_PREFIX], right, strict=False):
        if a != b:
            break
        prefix += 1
    return jaro + prefix * _PREFIX_WEIGHT * (1 - jaro)


def _jaro_winkler_of_spark(left: str, right: str) -> float:
    return 1.0 if left == right else _add_prefix_bonus(left, right, _jaro(left, right))


def _jaro_winkler_of_duckdb(left: str, right: str) -> float:
    jaro: float = _jaro(left, right)
    return _add_prefix_bonus(left, right, jaro) if jaro > _MIN_SIMILARITY_FOR_PREFIX else jaro


# In a signature, i is an integer and t a text; parameters after | are optional.
FUNCTIONS = (
    Function(
        "jaro_winkler",
        "the similarity of Jaro and Winkler of a and b, from 0 to 1; as in Spark",
        Signature("tt", pa.float64()),
        per_distinct_row(_jaro_winkler_of_spark),
    ),
    Function(
        "jaro_similarity",
        "the similarity of Jaro of the bytes of a and b, from 0 to 1; as in DuckDB",
        Signature("tt", pa.float64()),
        per_distinct_row(_of_bytes(_jaro)),
    ),
    Function(
        "jaro_winkler_similarity",
        "the similarity of Jaro and Winkler of the bytes of a and b; as in DuckDB",
        Signature("tt", pa.float64()),
        per_distinct_row(_of_bytes(_jaro_winkler_of_duckdb)),
    ),
    Function(
        "levenshtein",
        "the number of edits from a to b; -1 if there are more than c",
        Signature("tt|i", pa.int64()),
        per_distinct_row(_levenshtein),
    ),
    Function(
        "levenshtein_of_bytes",
        "the number of edits from the bytes of a to those of b",
        Signature("tt", pa.int64()),
        per_distinct_row(_of_bytes(_levenshtein)),
    ),
    Function(
        "damerau_levenshtein",
        "as levenshtein, and swapped neighbours are one edit",
        Signature("tt", pa.int64()),
        per_distinct_row(_of_bytes(_damerau_levenshtein)),
    ),
    Function(
        "hamming",
        "the number of positions where texts of equal length differ",
        Signature("tt", pa.int64()),
        per_distinct_row(_of_bytes(_hamming)),
    ),
    Function(
        "jaccard",
        "the share of characters that both texts have",
        Signature("tt", pa.float64()),
        per_distinct_row(_of_bytes(_jaccard)),
    ),
    Function(
        "soundex",
        "the Soundex code of a word",
        Signature("t", pa.string()),
        per_distinct_row(_soundex),
    ),
)
