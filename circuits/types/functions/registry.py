"""All functions by name, each family in a file of its own."""

from __future__ import annotations

from types import MappingProxyType

from circuits.types.functions import (
    arithmetic,
    calendar,
    comparison,
    conditional,
    dates,
    division,
    logic,
    mathematics,
)
from circuits.types.functions import casts as conversion
from circuits.types.functions import greatest_least as extremes
from circuits.types.functions import like_patterns as like
from circuits.types.functions import text_functions as text

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
