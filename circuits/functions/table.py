"""All functions by name, each family in a file of its own."""

from __future__ import annotations

from types import MappingProxyType

from circuits.functions import (
    arithmetic,
    calendar,
    comparison,
    conditional,
    conversion,
    dates,
    division,
    extremes,
    like,
    logic,
    mathematics,
    text,
)

__all__ = ["TABLE"]

_FAMILIES = (
    logic,
    comparison,
    like,
    arithmetic,
    division,
    mathematics,
    extremes,
    text,
    conditional,
    conversion,
    dates,
    calendar,
)

TABLE = MappingProxyType(
    {function.name: function for family in _FAMILIES for function in family.FUNCTIONS}
)
