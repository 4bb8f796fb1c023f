"""The typed functions of expressions: their list, their type rules, and calls of them.

============================ =======================================================
`casting`                    casts, explicit and implicit
`numbers`, `dates`, `texts`, the families: a type rule and a kernel per function
`nested`
`logic`, `comparison`, …     functions of values of any type
`type_rules`                 common types, types of aggregates
`registry`                   the table of all functions
`calls`                      ``call`` and ``conjunction``, with which front ends build expressions
============================ =======================================================

The semantics are those of DuckDB, which is the oracle of the tests; each family documents where and
why it differs. Kernels work on whole Arrow columns; `circuits.runtime.evaluation` runs them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from circuits.types.functions.calls import call, conjunction
from circuits.types.functions.registry import TABLE
from circuits.types.functions.signatures import Signature
from circuits.types.functions.type_rules import aggregate_type, common_type

__all__ = [
    "FUNCTIONS",
    "Signature",
    "aggregate_type",
    "call",
    "common_type",
    "conjunction",
    "signature_of",
]

#: The descriptions of all functions. ``call`` builds "if" and "nullif" as CASE, so they are not in
#: the table of functions with a rule.
FUNCTIONS: Final[Mapping[str, str]] = {
    **{name: function.description for name, function in TABLE.items()},
    "if": "b if the condition a is true, else c",
    "nullif": "NULL if a equals b, else a",
}


def signature_of(name: str) -> Signature | None:
    """Return the signature of a function; None if its type rule is a function of its own."""
    rule = TABLE[name].rule if name in TABLE else None
    return rule if isinstance(rule, Signature) else None
