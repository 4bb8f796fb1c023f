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
    dates,
    expressions,
    literals,
    predicates,
    scalar_functions,
    time_buckets,
)
from circuits.sql.clause import Reader, ReaderTable

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
        time_buckets.READERS,
    ]),
    by_name=_merge([scalar_functions.READERS_BY_NAME, dates.READERS_BY_NAME, time_buckets.READERS_BY_NAME]),
)  # fmt: skip
