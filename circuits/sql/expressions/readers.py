"""The table of all expression readers.

To support another construct in expressions, write its reader in the module of its family and add
it to the ``READERS`` of that module, by its class in sqlglot, or to ``READERS_BY_NAME``, by its
name, if sqlglot has no class for it. Two readers of one construct in one dialect are an error when
this module is imported (`merge_tables`).
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from sqlglot import exp

from circuits.sql.binding.clause import ReaderTable
from circuits.sql.expressions import (
    casts,
    columns,
    current_time,
    date_units,
    dates,
    duckdb_functions,
    duckdb_lists,
    duckdb_texts,
    lambdas,
    literals,
    nested,
    operators,
    predicates,
    scalar_functions,
    spark_functions,
    time_buckets,
)
from circuits.sql.expressions.json_functions import constructors, paths, queries
from circuits.sql.expressions.named_functions import merge_tables
from circuits.sql.expressions.postgres import json as postgres_json
from circuits.sql.expressions.postgres import lists as postgres_lists
from circuits.sql.expressions.postgres import numbers as postgres_numbers
from circuits.sql.expressions.postgres import shifts as postgres_shifts
from circuits.sql.expressions.postgres import texts as postgres_texts
from circuits.sql.expressions.postgres import type_names
from circuits.sql.expressions.spark import arithmetic, common_types, json_constructors
from circuits.sql.expressions.variants import functions as variants

__all__ = ["READERS"]

# Functions of both dialects; their readers may distinguish the dialects.
_COMMON_BY_NAME: Final = merge_tables(
    scalar_functions.READERS_BY_NAME,
    dates.READERS_BY_NAME,
    current_time.READERS_BY_NAME,
    time_buckets.READERS_BY_NAME,
    nested.READERS_BY_NAME,
    lambdas.READERS_BY_NAME,
    queries.READERS_BY_NAME,
    paths.READERS_BY_NAME,
    variants.READERS_BY_NAME,
)
READERS: Final = ReaderTable(
    by_class=merge_tables(
        literals.READERS,
        columns.READERS,
        casts.READERS,
        predicates.READERS,
        scalar_functions.READERS,
        dates.READERS,
        current_time.READERS,
        operators.READERS,
        time_buckets.READERS,
        nested.READERS,
        lambdas.READERS,
        paths.READERS,
        variants.READERS,
    ),
    by_name=merge_tables(
        _COMMON_BY_NAME,
        duckdb_functions.READERS_BY_NAME,
        constructors.READERS_BY_NAME,
        duckdb_lists.READERS_BY_NAME,
        duckdb_texts.READERS_BY_NAME,
    ),
    spark_by_name=merge_tables(
        _COMMON_BY_NAME,
        spark_functions.READERS_BY_NAME,
        date_units.READERS_BY_NAME,
        json_constructors.READERS_BY_NAME,
    ),
    postgres_by_class=merge_tables(
        postgres_json.READERS,
        postgres_lists.READERS,
        postgres_numbers.READERS,
        postgres_shifts.READERS,
        postgres_texts.READERS,
    ),
    postgres_by_name=merge_tables(
        postgres_json.READERS_BY_NAME,
        postgres_lists.READERS_BY_NAME,
        postgres_numbers.READERS_BY_NAME,
        postgres_texts.READERS_BY_NAME,
        type_names.READERS_BY_NAME,
    ),
    # An integer result of these functions is cast to the type that the dialect gives it.
    spark_results=arithmetic.RESULT_TYPES,
    postgres_results=dict.fromkeys(
        (exp.Extract, exp.Ceil, exp.Floor, exp.Round, exp.Trunc, exp.Sign, "date_part", "trunc"),
        pa.float64(),
    ),
    spark_casts=common_types.cast_to_common_type,
)
