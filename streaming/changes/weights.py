"""Weights: a column of a stream as the weights of rows, and what is wrong with those that are none.

A weight is an integer of 64 bits; the column may be of any type that can hold one. NULL, NaN, a
fraction, a text of something else are errors of their rows.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

__all__ = ["weight_of"]


def weight_of(given: Column) -> tuple[Column, Column]:
    """The weights, NULL where there is none, and there the reason, elsewhere NULL."""
    number = given.try_cast("long")
    same = number.try_cast("double") == given.try_cast("double")
    fine = F.coalesce(number.isNotNull() & same, F.lit(False))
    reason = F.concat(
        F.lit("the weight is "),
        F.coalesce(given.cast("string"), F.lit("NULL")),
        F.lit(", weights are integers of 64 bits"),
    )
    return number, F.when(~fine, reason)
