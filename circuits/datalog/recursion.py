"""Recursive rules: heads that use each other are the fixpoint of their rules.

::

    tc(x, z) :- e(x, z).
    tc(x, z) :- e(x, y), tc(y, z).      =  Fixpoint tc = distinct(e ∪ π(e ⋈ tc))

Each iteration applies all rules of these heads to the result of the previous iteration. The
iterations end, because they only add rows, and these have values that exist already. Rules that
compute new values, as ``n(x + 1) :- n(x)``, need a condition such as ``x < 100``; otherwise they
raise `IterationError` when they reach the limit on iterations.

The types of a head's columns are common to all of its rules, which may read the head itself. So the
plans are built first from the rules that read only relations of known types, and then again with
the types found, until these no longer change. Nullability is found in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from circuits.datalog.body import BodyPlanner
from circuits.datalog.program import Atom, Program, Rule, walk
from circuits.plan.fixpoint import DistinctMode, Fixpoint
from circuits.plan.nodes import Fields, PlanNode
from circuits.plan.rewrite.nullability import with_nullability
from circuits.types.codecs.codec import Codecs

__all__ = ["plan_recursion"]

# The types of integers and floats are stable after a few iterations; decimals may grow in each.
MAX_TYPE_ITERATIONS: Final = 12

# Returns the plan of some rules of a head.
PlanRules = Callable[[Sequence[Rule], BodyPlanner, Rule], PlanNode]


def plan_recursion(
    heads: Sequence[str],
    program: Program,
    relations: Mapping[str, Fields],
    modes: Mapping[str, DistinctMode],
    plan_rules: PlanRules,
) -> dict[str, Fixpoint]:
    """Return the plans of heads that use each other.

    Args:
        heads: A stratum, see `circuits.datalog.stratification`.
        program: All rules.
        relations: The columns of all other relations that the rules use.
        modes: The rows of each head that are kept: all, or the best by a minimum or maximum.
        plan_rules: Returns the plan of some rules of a head. Its arguments are the rules, the
            planner of their bodies, and the first of all rules of the head.

    Raises:
        DatalogError: No base rule, or the types of the columns are never stable.
    """
    source = program.source
    rules = program.heads
    fields: dict[str, Fields] = {}
    for _ in range(MAX_TYPE_ITERATIONS):
        body_planner = BodyPlanner({**relations, **fields}, source, heads)
        plans = {}
        for head in heads:
            ready_rules = [
                rule
                for rule in rules[head]
                if _relations_read(rule) <= body_planner.relations.keys()
            ]
            if ready_rules:
                plans[head] = plan_rules(ready_rules, body_planner, rules[head][0])
        new_fields = {head: with_nullability(plan) for head, plan in plans.items()}
        if new_fields == fields:
            break
        fields = new_fields
    else:
        head = heads[0]
        raise source.error(
            f"the types of the columns of {head!r} grow with every iteration; "
            "cast them to one type",
            rules[head][0].offset,
        )
    for head in heads:
        if head not in fields:
            raise source.error(
                f"{head!r} has no base rule: each of its rules needs rows of "
                f"{', '.join(map(repr, heads))} first, so it stays empty; add a rule that does not "
                "read them",
                rules[head][0].offset,
            )
        column = modes[head].column
        if column is not None and not Codecs().codec(fields[head][column].type).ordered:
            raise source.error(
                f"{modes[head].kind} of {fields[head][column].type} in the recursion of {head!r}; "
                f"in a recursion, {modes[head].kind} takes numbers, dates and times",
                rules[head][0].offset,
            )
    names = tuple(heads)
    bodies_of_heads = tuple(plans[head] for head in heads)
    modes_of_heads = tuple(modes[head] for head in heads)
    return {
        head: Fixpoint(names, bodies_of_heads, modes_of_heads, index)
        for index, head in enumerate(heads)
    }


def _relations_read(rule: Rule) -> set[str]:
    return {node.relation for node in walk(rule) if isinstance(node, Atom)}
