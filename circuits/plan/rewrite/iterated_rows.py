"""Bodies of recursions over rows that carry their iteration, as the last column.

::

    X̂ = {(x, i): change of X[x] from iteration i - 1 to i}         X at iteration i = Σ over j ≤ i

    Recur X        X̂                                  the one source of iterations
    A x B          Â x B̂ at the greater of the two iterations
    σ, π, A x S    as they are: the iteration is carried along      S does not depend on X: all of
    A + B          Â + B̂, with iteration 0 for rows of what does    it is there from iteration 0 on
                   not depend on X
    A ▷ S          as it is                                         linear in A
    distinct       per row its history (`circuits.runtime.operators.recursive_distinct`)

The first line is differentiation with respect to the inner time of a nested circuit; the others are
the operators lifted to it [1]. A join is multilinear and a combination is there from the iteration
on from which the last of its rows is, so its change is at the join (in the lattice) of their times.
The outer time needs no column: it is the step. So a body is an ordinary plan, made into N-way joins
and made incremental like any other.

The right side of an antijoin may contain keys of the left side, to be looked up in what does not
depend on X (`circuits.datalog.body`). Which keys are looked up for rows that are not there does not
matter, so they are those of all iterations.

What is not here is not monotone (a negation, an aggregate, an outer join whose optional side
recurs): the languages refuse it with the place in the text, and this module does if they do not.

References:
    [1] Budiu, Chajed, McSherry, Ryzhyk, Tannen. DBSP. PVLDB 16(7), 2023, sections 5 and 6.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from circuits.errors import CircuitError
from circuits.plan.expressions import Column, Expression, Literal, substitute
from circuits.plan.fixpoint import ITERATION, SET, DistinctMode
from circuits.plan.nodes import (
    CrossJoin,
    Distinct,
    Filter,
    Fixpoint,
    Map,
    OuterJoin,
    Plan,
    RecursiveDistinct,
    RecursiveReference,
    Semijoin,
    Union,
    columns,
)
from circuits.types.functions import call

__all__ = ["add_iterations", "is_recursive"]

FIRST = Literal(0, pa.int64())

# The nodes over recursive rows that may compute the keys that an antijoin looks up.
_KEYS_OF_ALL_ITERATIONS = (CrossJoin, Union, Semijoin, OuterJoin, Map, Filter, Distinct)


def add_iterations(body: Plan, mode: DistinctMode) -> Plan:
    """The body over rows with an iteration, and below a distinct of this mode.

    Raises:
        CircuitError: The body is not monotone.
    """
    return RecursiveDistinct(_Iterated().timed(body), mode)


def is_recursive(plan: Plan) -> bool:
    """Whether a plan reads rows of the recursion that it is part of."""
    return _Iterated().is_recursive(plan)


class _Iterated:
    """Rewrites each node once: a DAG can have far more paths than nodes."""

    def __init__(self) -> None:
        # By the ``id`` of a node, which stays its own as long as the node is kept beside.
        self._known: dict[int, tuple[bool, Plan]] = {}
        self._made: dict[int, tuple[Plan, Plan]] = {}
        self._ever: dict[int, tuple[Plan, Plan]] = {}

    def is_recursive(self, plan: Plan) -> bool:
        """Whether the rows of a plan have an iteration other than 0."""
        known = self._known.get(id(plan))
        if known is None:
            known = self._known[id(plan)] = (self._recurs(plan), plan)
        return known[0]

    def _recurs(self, plan: Plan) -> bool:
        if isinstance(plan, Fixpoint):
            return False  # its bodies refer to a recursion of their own
        return isinstance(plan, RecursiveReference) or any(map(self.is_recursive, plan.inputs))

    def timed(self, plan: Plan) -> Plan:
        """The plan with the iteration as its last column."""
        if id(plan) not in self._made:
            self._made[id(plan)] = self._timed(plan), plan
        return self._made[id(plan)][0]

    def ever(self, plan: Plan) -> Plan:
        """The plan over the rows of all iterations."""
        if not self.is_recursive(plan):
            return plan
        if isinstance(plan, RecursiveReference):
            rows = self.timed(plan)
            return Map(rows, columns(rows)[:-1], tuple(field.name for field in plan.fields))
        if id(plan) not in self._ever:
            if not isinstance(plan, _KEYS_OF_ALL_ITERATIONS):
                raise AssertionError(f"{type(plan).__name__} on the right side of an antijoin")
            found = plan.with_inputs([self.ever(below) for below in plan.inputs])
            self._ever[id(plan)] = found, plan
        return self._ever[id(plan)][0]

    def _timed(self, plan: Plan) -> Plan:
        if not self.is_recursive(plan):
            return _mapped(plan, columns(plan), FIRST, plan)
        match plan:
            case RecursiveReference(name, fields):
                return RecursiveReference(name, (*fields, ITERATION))
            case Filter(below, predicate):
                return Filter(self.timed(below), predicate)
            case Map(below, expressions):
                inner = self.timed(below)
                return _mapped(inner, expressions, columns(inner)[-1], plan)
            case Union(inputs):
                return Union(tuple(map(self.timed, inputs)))
            case Distinct(below):
                return RecursiveDistinct(self.timed(below), SET)
            case CrossJoin(inputs):
                return self._crossed(inputs, plan)
            case Semijoin(left, right, predicate, False) if self.is_recursive(right):
                # How often a row is there does not matter in a set, which this is part of.
                both = CrossJoin((left, right))
                kept = columns(both)[: len(left.fields)]
                names = tuple(field.name for field in left.fields)
                return self.timed(Map(Filter(both, predicate), kept, names))
            case Semijoin(left, right, predicate):
                moved = _moved(predicate, len(left.fields))
                return replace(plan, left=self.timed(left), right=self.ever(right), predicate=moved)
            case OuterJoin(left, right, predicate, "left") if not self.is_recursive(right):
                width = len(left.fields)
                moved = _moved(predicate, width)
                joined = replace(plan, left=self.timed(left), predicate=moved)
                found = columns(joined)
                return _mapped(joined, found[:width] + found[width + 1 :], found[width], plan)
        raise CircuitError(
            f"a recursion through {type(plan).__name__.lower()} is not monotone: rows that are "
            "derived later would take earlier ones back; move it out of the recursion"
        )

    def _crossed(self, inputs: tuple[Plan, ...], plan: Plan) -> Plan:
        made = CrossJoin(tuple(self.timed(p) if self.is_recursive(p) else p for p in inputs))
        found = columns(made)
        own: list[Expression] = []
        iterations: list[Expression] = []
        at = 0
        for given, used in zip(inputs, made.inputs, strict=True):
            own += found[at : at + len(given.fields)]
            at += len(used.fields)
            if used is not given:
                iterations.append(found[at - 1])
        last = iterations[0] if len(iterations) == 1 else call("greatest", *iterations)
        return _mapped(made, own, last, plan)


def _mapped(
    below: Plan, expressions: tuple[Expression, ...] | list[Expression], last: Expression, of: Plan
) -> Plan:
    names = (*(field.name for field in of.fields), ITERATION.name)
    return Map(below, (*expressions, last), names)


def _moved(predicate: Expression, width: int) -> Expression:
    """A predicate over two plans of which the first has one column more."""
    return substitute(predicate, lambda c: Column(c.index + 1, c.type) if c.index >= width else c)
