"""The typed functions of expressions: their list, their type rules, and calls of them.

============ ===========================================================================
families     `logic`, `comparison`, `arithmetic`, `text_functions`, …: type rules and kernels
`type_rules` common types, types of aggregates
`coercion`   implicit casts
`calls`      ``call``, with which front ends build expressions
============ ===========================================================================

The semantics are those of DuckDB, which is the oracle of the tests; each family documents where and
why it differs. Kernels work on whole Arrow columns; `circuits.runtime.evaluation` runs them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from circuits.types.functions.calls import call
from circuits.types.functions.registry import TABLE
from circuits.types.functions.type_rules import aggregate_type, common_type

__all__ = ["FUNCTIONS", "aggregate_type", "call", "common_type"]

FUNCTIONS: Final[Mapping[str, str]] = {
    **{name: function.description for name, function in TABLE.items()},
    "if": "b if the condition a is true, else c",
    "nullif": "NULL if a equals b, else a",
}
