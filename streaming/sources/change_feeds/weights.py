"""Weights: read a column of a stream as weights, and describe the invalid weights.

A weight is an integer of 64 bits; the column may have any type that can hold such an integer. NULL,
NaN, a fraction, or a string that is not an integer makes the row invalid.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from circuits.excerpt import MAX_EXCERPT_CHARACTERS

__all__ = ["excerpt_column", "parse_weight"]


def parse_weight(column: Column) -> tuple[Column, Column]:
    """Return two columns: the weights, NULL if invalid, and the reasons, NULL if valid."""
    number = column.try_cast("long")
    is_unchanged = number.try_cast("double") == column.try_cast("double")
    is_valid = F.coalesce(number.isNotNull() & is_unchanged, F.lit(False))
    reason = F.concat(
        F.lit("the weight is "),
        F.coalesce(excerpt_column(column), F.lit("NULL")),
        F.lit(", weights are integers of 64 bits"),
    )
    return number, F.when(~is_valid, reason)


def excerpt_column(column: Column) -> Column:
    """Return the values of a column for messages: a long text is cut, with its length."""
    text = column.cast("string")
    ending = F.concat(F.lit("… ("), F.length(text).cast("string"), F.lit(" characters)"))
    is_long = F.length(text) > MAX_EXCERPT_CHARACTERS
    return F.when(
        is_long, F.concat(F.substring(text, 1, MAX_EXCERPT_CHARACTERS), ending)
    ).otherwise(text)
