"""Iterated rows: rewrite the body of a recursion so that rows end with an iteration number.

A recursion is computed in iterations (`circuits.plan.fixpoint`). A row ``(x, i)`` with weight +1
says that iteration ``i`` first derives ``x``. For the nodes reachable from 1 over the edges 1 → 2 →
3, the rows of X are ``(1, 0), (2, 1), (3, 2)``.

In the following equations, X is the recursive relation, A and B depend on X, and S does not. All
rows of S exist from iteration 0 on. A hat marks a relation with an iteration column::

    X̂ = {(x, i): change of X[x] from iteration i - 1 to i}

    reference to X   X̂                              the only source of iterations
    A x B            Â x B̂                          with the greater of the two iterations
    σ, π, A x S      unchanged                      they keep the iteration of the row of A
    A + B            Â + B̂                          rows of S get iteration 0
    A ▷ S            unchanged                      linear in A
    distinct         the history of each row (`circuits.runtime.operators.recursive_distinct`)

So X at iteration i is the sum of X̂ over all iterations up to i. The first line is differentiation
with respect to the inner time of a nested circuit; the others are the operators lifted to it [1]. A
join is multilinear, and a combination of rows exists from the first iteration at which all of its
rows exist: the greatest of their iterations. The outer time, the step, needs no column. So a body
is an ordinary plan, and the same rules turn it into N-way joins and make it incremental.

A semijoin with recursive rows on its right side is a join. A recursion that keeps duplicates joins
with the distinct keys of these rows, so that a row of the left side keeps its weight; below a
distinct this is not necessary.

A recursive plan may be on the right side of an antijoin in one case: it only computes keys of the
left side, and these are joined with plans that do not depend on X (the context of a negation in
`circuits.datalog.body`). More keys there do not change the result. So the keys of all iterations
are used, without an iteration column.

No other operator over recursive rows is supported. Most of them are not monotone: a negation, an
aggregate, an outer join whose optional side is recursive. The front ends raise an error with the
position in the text; this module raises an error if a front end misses one.

References:
    [1] Budiu, Chajed, McSherry, Ryzhyk, Tannen. DBSP. PVLDB 16(7), 2023, sections 5 and 6.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial, reduce
from typing import Final

import pyarrow as pa

from circuits.errors import CircuitError
from circuits.plan.expressions import (
    Call,
    Column,
    Expression,
    Literal,
    columns_of,
    conjuncts,
    shift_columns,
    substitute,
)
from circuits.plan.fixpoint import ITERATION, SET, DistinctMode
from circuits.plan.nodes import (
    CrossJoin,
    Distinct,
    Filter,
    Fixpoint,
    Map,
    OuterJoin,
    PlanNode,
    RecursiveDistinct,
    RecursiveReference,
    Semijoin,
    Union,
    columns,
)
from circuits.plan.unnest import Unnest
from circuits.plan.user_call import UserCall
from circuits.types.functions import call

__all__ = ["add_iterations", "is_recursive"]

FIRST_ITERATION = Literal(0, pa.int64())

# A row of the left side of a semijoin with these conditions has one key that can match.
_EQUALITIES: Final = ("eq", "same")

# The classes of nodes over recursive rows that may be on the right side of an antijoin.
_NODES_OF_ANTIJOIN_KEYS = (
    CrossJoin,
    Union,
    Semijoin,
    OuterJoin,
    Map,
    Filter,
    Distinct,
    Unnest,
)


def add_iterations(body: PlanNode, mode: DistinctMode) -> PlanNode:
    """Return a distinct of this mode over the body with an iteration column.

    Raises:
        CircuitError: The body has a node over recursive rows that is not supported.
    """
    keeps_duplicates = mode.kind == "bag"
    return RecursiveDistinct(_IterationRewriter(keeps_duplicates).with_iterations(body), mode)


def is_recursive(plan: PlanNode) -> bool:
    """Return True if rows of a plan may have an iteration other than 0.

    These are the plans that read rows of the recursion that they are part of. Each node stores the
    answer, because the rules ask again for every plan that is built over it.
    """
    answer = plan.memo.get("is_recursive")
    if answer is None:
        if isinstance(plan, Fixpoint):
            answer = False  # its bodies reference its own recursion
        else:
            answer = isinstance(plan, RecursiveReference) or any(map(is_recursive, plan.inputs))
        plan.memo["is_recursive"] = answer
    return bool(answer)


class _IterationRewriter:
    """Rewrites each node once: a DAG can have far more paths than nodes.

    The results are stored by the ``id`` of a node, together with the node: an ``id`` stays unique
    only as long as its node is referenced.
    """

    def __init__(self, keeps_duplicates: bool) -> None:
        self._keeps_duplicates = keeps_duplicates
        # Below a distinct, the weights of rows do not matter.
        self._below_distinct = _IterationRewriter(False) if keeps_duplicates else self
        self._iterated: dict[int, tuple[PlanNode, PlanNode]] = {}
        self._without_iterations: dict[int, tuple[PlanNode, PlanNode]] = {}

    def with_iterations(self, plan: PlanNode) -> PlanNode:
        """Return the plan with the iteration as its last column."""
        if id(plan) not in self._iterated:
            self._iterated[id(plan)] = self._add_iterations(plan), plan
        return self._iterated[id(plan)][0]

    def drop_iterations(self, plan: PlanNode) -> PlanNode:
        """Return the plan over the rows of all iterations, without an iteration column."""
        if not is_recursive(plan):
            return plan
        if isinstance(plan, RecursiveReference):
            rows = self.with_iterations(plan)
            return Map(rows, columns(rows)[:-1], tuple(field.name for field in plan.fields))
        if id(plan) not in self._without_iterations:
            if not isinstance(plan, _NODES_OF_ANTIJOIN_KEYS):
                raise AssertionError(f"{type(plan).__name__} on the right side of an antijoin")
            rewritten = plan.with_inputs([self.drop_iterations(input) for input in plan.inputs])
            self._without_iterations[id(plan)] = rewritten, plan
        return self._without_iterations[id(plan)][0]

    def _add_iterations(self, plan: PlanNode) -> PlanNode:
        if not is_recursive(plan):
            return _map_with_iteration(plan, columns(plan), FIRST_ITERATION, plan)
        match plan:
            case RecursiveReference(name, fields):
                return RecursiveReference(name, (*fields, ITERATION))
            case Filter(input, predicate):
                return Filter(self.with_iterations(input), predicate)
            case Map(input, expressions):
                inner = self.with_iterations(input)
                return _map_with_iteration(inner, expressions, columns(inner)[-1], plan)
            case Unnest(input):
                # The list must be the last column, so the iteration is moved before it for the
                # Unnest, and to the end afterwards.
                before = columns(self.with_iterations(input))
                width = len(input.fields) - 1
                names = (*(f.name for f in input.fields[:-1]), "iteration", input.fields[-1].name)
                moved = (*before[:width], before[-1], before[width])
                unnested = replace(plan, input=Map(self.with_iterations(input), moved, names))
                after = columns(unnested)
                return _map_with_iteration(
                    unnested, (*after[:width], *after[width + 1 :]), after[width], plan
                )
            case Union(inputs):
                return Union(tuple(map(self.with_iterations, inputs)))
            case Distinct(input):
                return RecursiveDistinct(self._below_distinct.with_iterations(input), SET)
            case CrossJoin(inputs):
                return self._cross(inputs, plan)
            case Semijoin(left, right, predicate, False) if is_recursive(right):
                if self._keeps_duplicates:
                    right, predicate = _distinct_keys(left, right, predicate)
                product = CrossJoin((left, right))
                left_columns = columns(product)[: len(left.fields)]
                names = tuple(field.name for field in left.fields)
                return self.with_iterations(Map(Filter(product, predicate), left_columns, names))
            case Semijoin(left, right, predicate):
                shifted = _shift_right_columns(predicate, len(left.fields))
                return replace(
                    plan,
                    left=self.with_iterations(left),
                    right=self.drop_iterations(right),
                    predicate=shifted,
                )
            case OuterJoin(left, right, predicate, "left") if not is_recursive(right):
                width = len(left.fields)
                shifted = _shift_right_columns(predicate, width)
                joined = replace(plan, left=self.with_iterations(left), predicate=shifted)
                all_columns = columns(joined)  # the iteration follows the columns of the left
                other_columns = all_columns[:width] + all_columns[width + 1 :]
                return _map_with_iteration(joined, other_columns, all_columns[width], plan)
            case UserCall(name=name):
                raise CircuitError(
                    f"the user-defined function {name}() is called for rows of a recursion, which "
                    "is not supported: call it for the input or for the result of the recursion"
                )
        raise CircuitError(
            f"a recursion through {type(plan).__name__.lower()} is not supported: move it out of "
            "the recursion"
        )

    def _cross(self, inputs: tuple[PlanNode, ...], plan: PlanNode) -> PlanNode:
        """Return a cross join whose rows have the greatest iteration of their recursive inputs."""
        iterated = (self.with_iterations(p) if is_recursive(p) else p for p in inputs)
        crossed = CrossJoin(tuple(iterated))
        all_columns = columns(crossed)
        other_columns: list[Expression] = []
        iterations: list[Expression] = []
        offset = 0
        for before, after in zip(inputs, crossed.inputs, strict=True):
            other_columns += all_columns[offset : offset + len(before.fields)]
            offset += len(after.fields)
            if after is not before:  # the last column of a recursive input is its iteration
                iterations.append(all_columns[offset - 1])
        greatest = iterations[0] if len(iterations) == 1 else call("greatest", *iterations)
        return _map_with_iteration(crossed, other_columns, greatest, plan)


def _distinct_keys(
    left: PlanNode, right: PlanNode, predicate: Expression
) -> tuple[PlanNode, Expression]:
    """Return the right side of a semijoin as keys, of which a row of the left matches at most one.

    Without them, a join with the right side would multiply the weights of the left rows.

    Returns:
        The distinct keys; and the predicate over the columns of the left side and the keys.

    Raises:
        CircuitError: A condition that reads both sides is not an equality of a value of each.
    """
    width = len(left.fields)
    on_right: list[Expression] = []
    keys: list[Expression] = []
    conditions: list[Expression] = []
    for condition in conjuncts([predicate]):
        if _reads_left(condition, width) is False:
            on_right.append(shift_columns(condition, -width))
            continue
        if _reads_left(condition, width) is None:
            sides: tuple[Expression, ...] = ()
            if isinstance(condition, Call) and condition.function in _EQUALITIES:
                sides = condition.arguments
            key = next((side for side in sides if _reads_left(side, width) is False), None)
            if key is None or any(_reads_left(side, width) is None for side in sides):
                raise CircuitError(
                    "EXISTS or IN over rows of the same recursion compares with something else "
                    "than equality, in a query that keeps duplicates: compare with =, or remove "
                    "duplicates with UNION or DISTINCT"
                )
            assert isinstance(condition, Call)
            column = Column(width + len(keys), key.type)
            keys.append(shift_columns(key, -width))
            arguments = tuple(column if side is key else side for side in sides)
            condition = Call(condition.function, arguments, condition.type)
        conditions.append(condition)
    filtered = Filter(right, _all_of(on_right)) if on_right else right
    values = tuple(keys) or (FIRST_ITERATION,)  # without a key, one row says that there are rows
    names = tuple(f"key{index}" for index in range(len(values)))
    return Distinct(Map(filtered, values, names)), _all_of(conditions)


def _reads_left(expression: Expression, width: int) -> bool | None:
    """Return whether an expression reads only the first ``width`` columns, or only later ones.

    None if it reads both. A constant counts as one of the left side.
    """
    sides = {index < width for index in columns_of(expression)}
    return None if len(sides) == 2 else sides != {False}


def _all_of(conditions: list[Expression]) -> Expression:
    return reduce(partial(call, "and"), conditions) if conditions else Literal(True, pa.bool_())


def _map_with_iteration(
    input: PlanNode,
    expressions: tuple[Expression, ...] | list[Expression],
    iteration: Expression,
    plan: PlanNode,
) -> PlanNode:
    """Return a map with the column names of ``plan`` and an iteration column at the end."""
    names = (*(field.name for field in plan.fields), ITERATION.name)
    return Map(input, (*expressions, iteration), names)


def _shift_right_columns(predicate: Expression, width: int) -> Expression:
    """Shift the columns from ``width`` on by one, because the left plan has one more column."""
    return substitute(predicate, lambda c: Column(c.index + 1, c.type) if c.index >= width else c)
