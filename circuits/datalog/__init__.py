"""Datalog: text to relational plans.

::

    text -> parser -> program -> safety (names, arities, bound variables) -> strata (order)
         -> per rule: scope (hygiene) -> alternatives (ors) -> body (joins, semijoins)
         -> planner (heads, aggregates) -> {head: Plan}

Set semantics: every head is distinct. NULL follows SQL: it joins nothing and makes no comparison
true. ``extenders`` is another translation of the same bodies, for one-shot queries by the readable
generic join of `dbsp_wcoj`.
"""

from circuits.datalog.planner import plan_datalog

__all__ = ["plan_datalog"]
