"""The functions of Spark by name (see `named_functions`), with the semantics of Spark 4.

ANSI mode is on, as by default in Spark 4: a value that cannot be computed is an error, and the
functions ``try_...`` return NULL. The session has the time zone UTC. Each family of functions is a
file of `circuits.sql.expressions.spark`; ``flink`` has functions of Flink that Spark lacks. A
builder returns the expression of a call from its arguments, and `as_readers` makes it a reader.
"""

from __future__ import annotations

from typing import Final

from circuits.sql.binding.clause import Reader
from circuits.sql.expressions.named_functions import COMMON, Builder, as_readers, merge_tables
from circuits.sql.expressions.spark import (
    conversions,
    dates,
    documents,
    flink,
    lists,
    numbers,
    text,
)

__all__ = ["BUILDERS", "READERS_BY_NAME"]

BUILDERS: Final[dict[str, Builder]] = merge_tables(
    COMMON,
    text.BUILDERS,
    numbers.BUILDERS,
    dates.BUILDERS,
    conversions.BUILDERS,
    documents.BUILDERS,
    lists.BUILDERS,
    flink.BUILDERS,
)

READERS_BY_NAME: Final[dict[str, Reader]] = as_readers(spark=True, table=BUILDERS)
