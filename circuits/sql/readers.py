"""The table of all expression readers.

To support another construct in expressions, write its reader in the module of its family and add
it to the ``READERS`` of that module, by its class in sqlglot, or to ``READERS_BY_NAME``, by its
name, if sqlglot has no class for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

from circuits.sql import (
    casts,
    current_time,
    date_units,
    dates,
    duckdb_functions,
    expressions,
    literals,
    nested,
    operators,
    predicates,
    scalar_functions,
    spark_functions,
    time_buckets,
)
from circuits.sql.clause import Reader, ReaderTable
from circuits.sql.spark import arithmetic

__all__ = ["READERS"]

Key = TypeVar("Key")


def _merge(tables: Iterable[Mapping[Key, Reader]]) -> dict[Key, Reader]:
    """Return the entries of all tables; two readers of one construct are an error."""
    merged: dict[Key, Reader] = {}
    for table in tables:
        duplicates = merged.keys() & table.keys()
        if duplicates:
            raise ValueError(f"two readers of {duplicates}; keep one")
        merged.update(table)
    return merged


READERS: Final = ReaderTable(
    by_class=_merge([
        literals.READERS,
        expressions.READERS,
        casts.READERS,
        predicates.READERS,
        scalar_functions.READERS,
        dates.READERS,
        current_time.READERS,
        operators.READERS,
        time_buckets.READERS,
        nested.READERS,
    ]),
    by_name=_merge([
        scalar_functions.READERS_BY_NAME,
        dates.READERS_BY_NAME,
        current_time.READERS_BY_NAME,
        duckdb_functions.READERS_BY_NAME,
        time_buckets.READERS_BY_NAME,
        nested.READERS_BY_NAME,
    ]),
    spark_by_name={**spark_functions.READERS_BY_NAME, **date_units.READERS_BY_NAME},
    spark_results=arithmetic.RESULTS,
)  # fmt: skip
