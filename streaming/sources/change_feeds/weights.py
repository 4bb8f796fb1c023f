"""Weights: a column of a stream as the weights of rows, and what is wrong with those that are none.

A weight is an integer of 64 bits; the column may be of any type that can hold one. NULL, NaN, a
fraction, a text of something else are errors of their rows.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from streaming.sources.change_feeds.sql_expressions import MAX_SHOWN

__all__ = ["shown_column", "weight_of"]


def weight_of(given: Column) -> tuple[Column, Column]:
    """The weights, NULL where there is none, and there the reason, elsewhere NULL."""
    number = given.try_cast("long")
    same = number.try_cast("double") == given.try_cast("double")
    fine = F.coalesce(number.isNotNull() & same, F.lit(False))
    reason = F.concat(
        F.lit("the weight is "),
        F.coalesce(shown_column(given), F.lit("NULL")),
        F.lit(", weights are integers of 64 bits"),
    )
    return number, F.when(~fine, reason)


def shown_column(given: Column) -> Column:
    """The values of a column as a message shows them: of a long text its beginning and length."""
    text = given.cast("string")
    more = F.concat(F.lit("… ("), F.length(text).cast("string"), F.lit(" characters)"))
    is_long = F.length(text) > MAX_SHOWN
    return F.when(is_long, F.concat(F.substring(text, 1, MAX_SHOWN), more)).otherwise(text)
