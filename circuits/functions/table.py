"""All functions by name, each family in a file of its own."""

from __future__ import annotations

from types import MappingProxyType

from circuits.functions import arithmetic, comparison, conditional, conversion, logic
from circuits.functions.function import Function

__all__ = ["TABLE"]

_FAMILIES = (logic, comparison, arithmetic, conditional, conversion)

TABLE = MappingProxyType(
    {function.name: function for family in _FAMILIES for function in family.FUNCTIONS}
)
_FUNCTION = Function
