"""Recursive rules: the heads of a strongly connected component are the fixpoint of their rules.

::

    tc(x, z) :- e(x, z).
    tc(x, z) :- e(x, y), tc(y, z).      =  Fixpoint tc = set(e ∪ π(e ⋈ Recur tc))

Each iteration applies all rules of all heads of the component to the result of the previous one. It
terminates because iterations only add rows, of existing values. Rules that compute new values, as
``n(x + 1) :- n(x)``, need a bound of their own; without it, the limit on iterations stops them.

The types of the columns of a head are common to all of its rules, which may read that head. They
are found by iteration, starting from the rules whose types are known, until nothing changes. The
columns without NULL are found in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from circuits.datalog.body import BodyPlanner
from circuits.datalog.program import Atom, Program, Rule, walk
from circuits.plan.fixpoint import DistinctMode, Fixpoint
from circuits.plan.nodes import Fields, Plan
from circuits.plan.rewrite.nullability import with_nullability
from circuits.types.codecs.codec import Codecs

__all__ = ["plan_recursion"]

# Integers and floats are stable after a few iterations; decimals may grow in each.
MAX_TYPE_ITERATIONS: Final = 12

Derive = Callable[[Sequence[Rule], BodyPlanner, Rule], Plan]


def plan_recursion(
    heads: Sequence[str],
    program: Program,
    known: Mapping[str, Fields],
    modes: Mapping[str, DistinctMode],
    derive: Derive,
) -> dict[str, Fixpoint]:
    """Return the plans of heads that use each other.

    Args:
        heads: A component.
        program: All rules.
        known: The columns of all other relations that the rules use.
        modes: Which rows of each head are kept.
        derive: Returns the plan of some rules of a head, from the rules, the planner of their
            bodies, and the first of all rules of the head.

    Raises:
        DatalogError: No base rule, or the types of the columns are never stable.
    """
    source = program.source
    rules = program.heads
    fields: dict[str, Fields] = {}
    for _ in range(MAX_TYPE_ITERATIONS):
        bodies = BodyPlanner({**known, **fields}, source, heads)
        plans = {}
        for head in heads:
            ready = [
                rule for rule in rules[head] if not _relations_read(rule) - bodies.relations.keys()
            ]
            if ready:
                plans[head] = derive(ready, bodies, rules[head][0])
        after = {head: with_nullability(plan) for head, plan in plans.items()}
        if after == fields:
            break
        fields = after
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
                f"{', '.join(map(repr, heads))} first, so there are none; add one that does not",
                rules[head][0].offset,
            )
        column = modes[head].column
        if column is not None and not Codecs().codec(fields[head][column].type).ordered:
            raise source.error(
                f"{modes[head].kind} of {fields[head][column].type} in the recursion of {head!r}; "
                "there it takes numbers, dates and times",
                rules[head][0].offset,
            )
    made = tuple(plans[head] for head in heads)
    names = tuple(heads)
    kept_modes = tuple(modes[head] for head in heads)
    return {h: Fixpoint(names, made, kept_modes, place) for place, h in enumerate(heads)}


def _relations_read(rule: Rule) -> set[str]:
    return {node.relation for node in walk(rule) if isinstance(node, Atom)}
