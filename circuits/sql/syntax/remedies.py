"""Advice in error messages: what to write instead of unsupported types and functions.

For a name without an entry here, the message lists the types, or the names of similar functions.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["function_remedy", "type_remedy"]

_READ_VARIANT: Final = "read a VARIANT with v['a'] and CAST, or variant_get(v, '$.a', 'int')"
_READ_VARIANT_IN_SPARK: Final = "read a VARIANT with v:a::int, or variant_get(v, '$.a', 'int')"
_JSON_TYPE: Final = "declare a text of JSON, as STRING, and read it with functions of JSON"
_NO_RANGES: Final = "declare two columns, the start and the end, and compare them"
_NO_PLACES: Final = "declare a column for each coordinate, or pass functions of Python"
_TYPES: Final = {
    "object": _JSON_TYPE,
    "hstore": "declare MAP(VARCHAR, VARCHAR), or a text of JSON",
    "enum": "write its labels, as in ENUM ('a', 'b')",
    "bit": "declare a BIGINT, which has &, |, ~, << and >>; or a VARCHAR of digits",
    "varbit": "declare a BIGINT, which has &, |, ~, << and >>; or a VARCHAR of digits",
    "union": "declare a STRUCT with a field for each type, of which one is not NULL",
    "xml": "declare a VARCHAR, and convert the documents to JSON before",
    **dict.fromkeys(("inet", "cidr", "macaddr"), "declare a VARCHAR; its order is that of texts"),
    "money": "declare a DECIMAL(18, 2)",
    **dict.fromkeys(("tsvector", "tsquery"), "declare a VARCHAR, and search it with LIKE or ~"),
    **dict.fromkeys(
        ("geography", "geometry", "point", "line", "box", "circle", "polygon", "path"), _NO_PLACES
    ),
    "vector": "declare FLOAT[], and use list_distance() and its relatives",
}
_RANGE_TYPE: Final = re.compile(r"(int[48]|num|ts|tstz|date)(multi)?range")
# Patterns of names of functions, and what to write instead.
_FUNCTIONS: Final = [
    (re.compile(pattern), remedy)
    for pattern, remedy in (
        (r".*xpath.*|.*_xml(_agg)?|xml\w+", "convert the documents to JSON before"),
        (r"st_\w+", "pass functions of Python by functions={...}, over columns of coordinates"),
        (r"union_(value|tag|extract)", "use a struct with a field for each type"),
        (r"enum_\w+", "compare enum_code(x), the position of a label, or write the labels"),
        (r"(get|set)_bit|bitstring(_agg)?", "use &, |, << and >> of integers"),
        (r"collect", "use collect_list(), whose list repeats each value"),
        (r"current_watermark", "compare a time with now() in WHERE, or declare WATERMARK FOR"),
        (r"map_union", "use map_concat(), after map_filter() of the keys that both maps have"),
        (r"hash", "use md5() or sha256(), which are the same in all systems"),
        (
            r"(hll|theta|kll|tuple|cpc)_\w+|count_min_sketch|approx_top_\w+|.*_sketch(_agg)?",
            "use exact aggregates, or approx_count_distinct()",
        ),
        (r"histogram_numeric", "count by width_bucket(x, least, greatest, n) in GROUP BY"),
        (r"(to|plainto|phraseto)_ts(vector|query)", "search with LIKE or a regular expression"),
        (r"aes_\w+|try_aes_\w+", "pass a function of Python by functions={...}"),
        (
            r"current_(setting|database|schema|catalog|user|role)|session_user|version|user",
            "write its value as a constant",
        ),
        (r"input_file_\w+|spark_partition_id", "add a column with it to the input"),
    )
]
_VARIANT_FUNCTION: Final = re.compile(r".*variant.*")


def type_remedy(name: str) -> str:
    """Return what to write instead of a type; empty if nothing is known about it.

    >>> type_remedy("MONEY")
    'declare a DECIMAL(18, 2)'
    """
    word = re.split(r"[\s(\[]", name.casefold(), maxsplit=1)[0]
    return _NO_RANGES if _RANGE_TYPE.fullmatch(word) else _TYPES.get(word, "")


def function_remedy(name: str, *, is_spark: bool) -> str:
    """Return what to write instead of a function; empty if nothing is known about it.

    >>> function_remedy("st_point", is_spark=True)
    'pass functions of Python by functions={...}, over columns of coordinates'
    """
    name = name.casefold()
    if _VARIANT_FUNCTION.fullmatch(name):
        return _READ_VARIANT_IN_SPARK if is_spark else _READ_VARIANT
    return next((remedy for pattern, remedy in _FUNCTIONS if pattern.fullmatch(name)), "")
