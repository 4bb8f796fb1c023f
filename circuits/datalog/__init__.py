"""The Datalog front end: text to logical plans.

::

    text -> parser -> program -> safety (names, arities, bound variables) -> stratification (order)
         -> per rule: scope (local variables) -> disjunctions -> body (joins, semijoins)
         -> planner (heads, aggregates) -> {head: PlanNode}

Set semantics: every head is distinct. NULL follows SQL: it joins nothing and makes no comparison
true.
"""

from circuits.datalog.planner import plan_datalog

__all__ = ["plan_datalog"]
