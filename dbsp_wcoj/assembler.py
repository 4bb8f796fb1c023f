"""From a term's plan to the program that the join kernel runs."""

from __future__ import annotations

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


def assemble(plan: TermPlan) -> Int64Array:
    """Return the program of a plan; its layout is in `dbsp_wcoj.kernels.program`."""
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
    ]
    head_start = words.PROGRAM_WORDS
    blocks_start = head_start + len(plan.head)
    depths_start = blocks_start + levels
    fixed[words.HEAD] = head_start
    fixed[words.BLOCKS] = blocks_start
    fixed[words.ATOM_DEPTHS] = depths_start
    position = depths_start + len(plan.factors)
    starts: list[int] = []
    blocks: list[int] = []
    pairs = _sums_pairs(plan)
    for level in range(levels):
        block = _block(plan, level)
        if pairs and level == levels - 2:
            block[words.SUMMED] = words.SUM_CLOSING if _closes(plan) else words.SUM_PAIRS
        if not (pairs and level == levels - 1):
            block[words.SEPARATOR] = _separator(plan, level)
        starts.append(position + len(blocks))
        blocks += block
    return np.array(
        fixed
        + [plan.order.index(name) for name in plan.head]
        + starts
        + [factor.depth for factor in plan.factors]
        + blocks,
        np.int64,
    )


def _sums_pairs(plan: TermPlan) -> bool:
    """Whether the last two variables are both summed and the last is a sum over two atoms."""
    last = len(plan.order) - 1
    # The innermost variable is not walked by itself then, so it cannot be the one that is split.
    if last < 1 or last - 1 < plan.emitted or plan.split == last:
        return False
    block = _block(plan, last)
    return block[words.SUMMED] == words.SUM_LAST and block[words.PARTICIPANTS] == 2


def _closes(plan: TermPlan) -> bool:
    """Whether the last two variables close a cycle (`dbsp_wcoj.kernels.closing`).

    Two atoms meet at the first of them, one complete there and one that goes on to the innermost,
    where it meets an atom that the first variable does not move; no comparison is made there, whose
    ranges would depend on it.
    """
    before, last = plan.order[-2:]
    bound = [[f.variables[k] for k in f.order[: f.depth]] for f in plan.factors]
    meeting = {i for i, names in enumerate(bound) if before in names}
    going_on = {i for i in meeting if last in bound[i]}
    others = {i for i, names in enumerate(bound) if last in names} - going_on
    compared = any(last in comparison.variables for comparison in plan.comparisons)
    shape = (len(meeting), len(going_on), len(others))
    complete = all(bound[i][-1] == before for i in meeting - going_on)
    return shape == (2, 1, 1) and complete and not compared


def _block(plan: TermPlan, level: int) -> list[int]:
    name = plan.order[level]
    participants: list[int] = []
    count = 0
    at_leaves = True
    for index, factor in enumerate(plan.factors):
        if name in factor.variables:
            bound = [factor.variables[k] for k in factor.order[: factor.depth]]
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
