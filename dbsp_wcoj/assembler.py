"""From a term's plan to the program that the join kernel runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from dbsp_wcoj.kernels import program as words
from dbsp_wcoj.planner import FLIPPED, TermPlan
from dbsp_wcoj.query import Comparison, Constant, Variable
from dbsp_wcoj.zset import Int64Array

__all__ = ["assemble"]

NONE: Final = -1

OPERATORS: Final = {
    "<": words.LESS,
    "<=": words.AT_MOST,
    ">": words.GREATER,
    ">=": words.AT_LEAST,
    "==": words.EQUAL,
    "!=": words.UNEQUAL,
}


def assemble(plan: TermPlan, deltas: Sequence[int] = ()) -> Int64Array:
    """Return the program of a plan; its layout is in `dbsp_wcoj.kernels.program`.

    Args:
        plan: The plan.
        deltas: The factors that are deltas; the rows of one of them may drive the join.
    """
    levels = len(plan.order)
    depths = max((factor.depth for factor in plan.factors), default=0)
    fixed = [
        len(plan.factors),
        levels,
        plan.emitted,
        len(plan.head),
        0,
        depths,
        plan.split,
        0,
        0,
        *_driver(plan, deltas),
    ]
    head_start = words.PROGRAM_WORDS
    blocks_start = head_start + len(plan.head)
    depths_start = blocks_start + levels + 1
    fixed[words.HEAD] = head_start
    fixed[words.BLOCKS] = blocks_start
    fixed[words.ATOM_DEPTHS] = depths_start
    position = depths_start + len(plan.factors)
    starts: list[int] = []
    blocks: list[int] = []
    summed = _sums_two(plan)
    for level in range(levels):
        block = _block(plan, level)
        if summed and level == levels - 2:
            block[words.SUMMED] = summed
        if not (summed and level == levels - 1):
            block[words.SEPARATOR] = _separator(plan, level)
        starts.append(position + len(blocks))
        blocks += block
    starts.append(position + len(blocks))
    if summed == words.SUM_SHARED:
        blocks += _block(plan, levels - 1, without=plan.order[-2])
    return np.array(
        fixed
        + [plan.order.index(name) for name in plan.head]
        + starts
        + [factor.depth for factor in plan.factors]
        + blocks,
        np.int64,
    )


def _driver(plan: TermPlan, deltas: Sequence[int]) -> tuple[int, int]:
    """The delta whose rows bind the first variables, and how many; none where they bind others.

    Rows are not driven where several of them add up to one row of the head.
    """
    for index in deltas:
        factor = plan.factors[index]
        bound = tuple(factor.variables[k] for k in factor.order[: factor.depth])
        if bound and plan.order[: len(bound)] == bound and not 0 < plan.emitted < len(bound):
            return index, len(bound)
    return 0, 0


def _sums_two(plan: TermPlan) -> int:
    """How the last two variables are summed together, if they are; else `NOT_SUMMED`.

    ``SUM_PAIRS`` where the last is a sum over two atoms. ``SUM_CLOSING`` where of these two one
    comes from the variable before, at which it meets one atom more, and nothing is compared.
    ``SUM_SHARED`` where one comes from there and meets several that do not.
    """
    last = len(plan.order) - 1
    # The innermost variable is not walked by itself then, so it cannot be the one that is split.
    if last < 1 or last - 1 < plan.emitted or plan.split == last:
        return words.NOT_SUMMED
    before, innermost = plan.order[-2:]
    bound = [[f.variables[k] for k in f.order[: f.depth]] for f in plan.factors]
    at_last = {i for i, names in enumerate(bound) if innermost in names}
    if any(len(bound[i]) < len(plan.factors[i].variables) for i in at_last):
        return words.NOT_SUMMED
    meeting = {i for i, names in enumerate(bound) if before in names}
    moving = meeting & at_last
    compared = [c.variables for c in plan.comparisons if innermost in c.variables]
    if len(at_last) == 2:
        unequal = any(c.op == "!=" and innermost in c.variables for c in plan.comparisons)
        if unequal:
            return words.NOT_SUMMED
        closes = len(meeting) == 2 and len(moving) == 1 and not compared
        return words.SUM_CLOSING if closes else words.SUM_PAIRS
    if len(at_last) > 2 and len(moving) == 1 and not any(before in names for names in compared):
        return words.SUM_SHARED
    return words.NOT_SUMMED


def _block(plan: TermPlan, level: int, *, without: str | None = None) -> list[int]:
    """The block of a level; of its atoms those that do not bind ``without``."""
    name = plan.order[level]
    participants: list[int] = []
    count = 0
    at_leaves = True
    for index, factor in enumerate(plan.factors):
        if name in factor.variables:
            bound = [factor.variables[k] for k in factor.order[: factor.depth]]
            if without in bound:
                continue
            depth = bound.index(name)
            participants += [index, depth, int(depth == factor.depth - 1)]
            at_leaves &= depth == len(factor.variables) - 1
            count += 1
    comparisons: list[int] = []
    unequal = False
    for comparison in plan.comparisons:
        oriented = _orient(comparison, name)
        if oriented is None:
            continue
        op, other = oriented
        if isinstance(other, Constant):
            comparisons += [OPERATORS[op], words.CONSTANT, int(other.value)]  # type: ignore[call-overload]
        elif other.name == name:
            if op in ("<", ">", "!="):  # x < x holds for no x: an empty range
                comparisons += [words.LESS, words.CONSTANT, -(2**63)]
            continue
        elif plan.order.index(other.name) < level:
            comparisons += [OPERATORS[op], words.VARIABLE, plan.order.index(other.name)]
        else:
            continue
        unequal |= op == "!="
    innermost = level == len(plan.order) - 1 and level >= plan.emitted
    summed = innermost and not unequal and (count == 1 or (count == 2 and at_leaves))
    return [
        NONE,
        words.SUM_LAST if summed else words.NOT_SUMMED,
        count,
        *participants,
        len(comparisons) // words.COMPARISON_WORDS,
        *comparisons,
    ]


def _separator(plan: TermPlan, level: int) -> int:
    """The level of the one variable that the sum over this level and those after it depends on.

    None where there are several, where rows are still made, where the work is split, and where
    values come once: the first variable's do, and so does a sum after it alone.
    """
    if level < max(plan.emitted, plan.split + 1, 2):
        return NONE
    earlier = set(plan.order[:level])
    later = set(plan.order[level:])
    bound: set[str] = set()
    for factor in plan.factors:
        names = {factor.variables[k] for k in factor.order[: factor.depth]}
        if names & later:
            bound |= names & earlier
    for comparison in plan.comparisons:
        names = set(comparison.variables)
        if names & later:
            bound |= names & earlier
    if len(bound) != 1:
        return NONE
    (name,) = bound
    return plan.order.index(name) or NONE


def _orient(comparison: Comparison, name: str) -> tuple[str, Variable | Constant] | None:
    """Return ``(operator, other side)`` with ``name`` on the left, or None."""
    if isinstance(comparison.left, Variable) and comparison.left.name == name:
        return comparison.op, comparison.right
    if isinstance(comparison.right, Variable) and comparison.right.name == name:
        return FLIPPED[comparison.op], comparison.left
    return None
