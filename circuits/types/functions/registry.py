"""All functions by name. Each family of functions is a module."""

from __future__ import annotations

from types import MappingProxyType

from circuits.types.functions import (
    arithmetic,
    calendar,
    casts,
    comparison,
    conditional,
    dates,
    division,
    greatest_least,
    like_patterns,
    logic,
    mathematics,
    text_functions,
    time_buckets,
)

__all__ = ["TABLE"]

_FAMILIES = (
    logic,
    comparison,
    like_patterns,
    arithmetic,
    division,
    mathematics,
    greatest_least,
    text_functions,
    conditional,
    casts,
    dates,
    calendar,
    time_buckets,
)

TABLE = MappingProxyType(
    {function.name: function for family in _FAMILIES for function in family.FUNCTIONS}
)
