"""The table of all functions, by name. Each family of functions is a module with ``FUNCTIONS``."""

from __future__ import annotations

from types import MappingProxyType

from circuits.types.functions import (
    ansi_arithmetic,
    ansi_division,
    arithmetic,
    bits,
    calendar,
    capitals,
    casts,
    comparison,
    conditional,
    date_fields,
    date_formats,
    date_shifts,
    dates,
    division,
    encodings,
    failures,
    greatest_least,
    hashes,
    joined_text,
    json_texts,
    lambdas,
    like_patterns,
    list_builders,
    lists,
    logic,
    mathematics,
    number_formats,
    regular_expressions,
    rounding,
    string_distance,
    structs_and_maps,
    text_checks,
    text_functions,
    text_search,
    time_buckets,
    trigonometry,
)

__all__ = ["TABLE"]

_FAMILIES = (
    logic,
    comparison,
    like_patterns,
    ansi_arithmetic,
    ansi_division,
    failures,
    joined_text,
    text_checks,
    arithmetic,
    division,
    mathematics,
    greatest_least,
    text_functions,
    conditional,
    casts,
    dates,
    calendar,
    bits,
    capitals,
    date_fields,
    date_formats,
    date_shifts,
    encodings,
    hashes,
    number_formats,
    regular_expressions,
    rounding,
    string_distance,
    text_search,
    trigonometry,
    time_buckets,
    list_builders,
    lists,
    lambdas,
    structs_and_maps,
    json_texts,
)

TABLE = MappingProxyType(
    {function.name: function for family in _FAMILIES for function in family.FUNCTIONS}
)
