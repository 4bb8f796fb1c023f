"""min and max in recursive rules: shortest paths, and where they are monotone.

::

    dist(x, 0) :- source(x).
    dist(y, min(d + w)) :- dist(x, d), e(x, y, w).

In a recursion a head with ``min(x)`` keeps, per value of its other columns, the least value that
any of its rules derives: all rules give candidates, also those without an aggregate. (Elsewhere
each rule aggregates by itself.)

It has a least solution if a smaller value can only lead to smaller ones. So what a rule reads from
the column of a minimum may

- be passed to such a column of a minimum, as it is or in a function that does not fall with it:
  ``d + w``, ``least``, ``greatest``, a constant that is not negative times it;
- be asked to be smaller than something: ``d < 10``, ``d + w <= k``.

Anything else (another column, a join, ``d > 10``, a negation) would let a row go again when a
smaller value comes, and is refused. For ``max`` all is the other way round. It ends if no cycle
improves on itself: a cycle of negative weight goes on until the bound of iterations refuses it.

Reference: Ross, Sagiv. Monotonic aggregation in deductive databases. PODS 1992.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from circuits.datalog.program import Apply, Program, Rule
from circuits.datalog.terms import EXTREMES
from circuits.fixpoint import SET, Cut

__all__ = ["candidates", "cuts_of"]


def cuts_of(program: Program, component: Sequence[str]) -> dict[str, Cut]:
    """What is kept of each head of a recursive component."""
    return dict.fromkeys(component, SET)


def candidates(rule: Rule) -> Rule:
    """The rule of what a minimum or maximum is taken of."""
    terms = []
    for term in rule.terms:
        match term.term:
            case Apply(function=function, arguments=(argument,)) if function in EXTREMES:
                terms.append(replace(term, term=argument))
            case _:
                terms.append(term)
    return replace(rule, terms=tuple(terms))
