"""The table of all functions, by name. Each family of functions is a module with ``FUNCTIONS``."""

from __future__ import annotations

from types import MappingProxyType

from circuits.types.functions import comparison, conditional, failures, greatest_least, logic
from circuits.types.functions.casting import casts
from circuits.types.functions.dates import (
    calendar,
    date_fields,
    date_formats,
    date_shifts,
    interval_arithmetic,
    time_buckets,
    time_zones,
    times_of_day,
)
from circuits.types.functions.nested import (
    csv_texts,
    json_schemas,
    json_texts,
    lambdas,
    list_aggregates,
    list_builders,
    list_combination,
    list_order,
    list_search,
    list_selection,
    list_sets,
    nested_texts,
    spark_json,
    structs_and_maps,
    vectors,
)
from circuits.types.functions.numbers import (
    ansi_arithmetic,
    ansi_division,
    arithmetic,
    bitmaps,
    bits,
    division,
    mathematics,
    number_formats,
    number_patterns,
    rounding,
    special_functions,
    trigonometry,
)
from circuits.types.functions.texts import (
    bytes_parts,
    capitals,
    encodings,
    hashes,
    joined_text,
    like_patterns,
    number_texts,
    regular_expressions,
    spark_notation,
    string_distance,
    text_checks,
    text_functions,
    text_parts,
    text_search,
)

__all__ = ["TABLE"]

_FAMILIES = (
    comparison,
    conditional,
    failures,
    greatest_least,
    logic,
    casts,
    calendar,
    date_fields,
    date_formats,
    date_shifts,
    interval_arithmetic,
    time_buckets,
    time_zones,
    times_of_day,
    csv_texts,
    json_schemas,
    json_texts,
    lambdas,
    list_aggregates,
    list_builders,
    list_combination,
    list_order,
    list_search,
    list_selection,
    list_sets,
    nested_texts,
    spark_json,
    structs_and_maps,
    vectors,
    ansi_arithmetic,
    ansi_division,
    arithmetic,
    bitmaps,
    bits,
    division,
    mathematics,
    number_formats,
    number_patterns,
    rounding,
    special_functions,
    trigonometry,
    bytes_parts,
    capitals,
    encodings,
    hashes,
    joined_text,
    like_patterns,
    number_texts,
    regular_expressions,
    spark_notation,
    string_distance,
    text_checks,
    text_functions,
    text_parts,
    text_search,
)

TABLE = MappingProxyType(
    {function.name: function for family in _FAMILIES for function in family.FUNCTIONS}
)
