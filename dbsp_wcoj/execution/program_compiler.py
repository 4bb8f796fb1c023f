"""The program compiler: compiles a term's plan to the program that the join kernel runs.

It also names the kernels that the program calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from typing import Final

import numpy as np

from dbsp_wcoj.kernels.compilation import address_of
from dbsp_wcoj.kernels.join import join_layout
from dbsp_wcoj.kernels.join.clique_sums import sum_clique
from dbsp_wcoj.kernels.join.cycle_sums import sum_cycle
from dbsp_wcoj.kernels.join.sums import sum_last, sum_pairs
from dbsp_wcoj.planning.planner import FLIPPED, TermPlan
from dbsp_wcoj.query import Comparison, Constant, Term, Variable
from dbsp_wcoj.zset import Int64Array

__all__ = ["SUM_KERNELS", "compile_program", "link"]

NONE: Final = -1
NOT_LINKED: Final = 0

OPERATORS: Final = {
    "<": join_layout.LESS,
    "<=": join_layout.AT_MOST,
    ">": join_layout.GREATER,
    ">=": join_layout.AT_LEAST,
    "==": join_layout.EQUAL,
    "!=": join_layout.UNEQUAL,
}

#: The kernels that sum a level and those after it; a level with one atom is summed without any.
SUM_KERNELS: Final = {
    join_layout.SUM_LAST: sum_last,
    join_layout.SUM_PAIRS: sum_pairs,
    join_layout.SUM_CYCLE: sum_cycle,
    join_layout.SUM_CLIQUE: sum_clique,
}


def link(program: Int64Array) -> None:
    """Write to a program the addresses of the kernels that it calls; it runs only then.

    They are compiled, or loaded from the cache: so this is left until a program runs.
    """
    starts = int(program[join_layout.BLOCKS])
    for block in program[starts : starts + int(program[join_layout.LEVELS])].tolist():
        summed = int(program[block + join_layout.SUM_KIND])
        if summed == join_layout.SUM_NONE:
            continue
        if summed != join_layout.SUM_LAST or program[block + join_layout.PARTICIPANTS] > 1:
            program[block + join_layout.SUM_KERNEL] = address_of(SUM_KERNELS[summed])


def compile_program(plan: TermPlan, deltas: Sequence[int] = ()) -> Int64Array:
    """Return the program of a plan; its layout is in `dbsp_wcoj.kernels.join.join_layout`.

    Args:
        plan: The plan.
        deltas: The factors that are deltas; the rows of one of them may drive the join.
    """
    levels = len(plan.order)
    shape = _Shape(plan)
    depths = max((factor.depth for factor in plan.factors), default=0)
    fixed = [
        len(plan.factors),
        levels,
        shape.emitted_levels,
        len(plan.head),
        0,
        depths,
        shape.split_level,
        0,
        0,
        *_driving_delta(plan, deltas),
    ]
    head_start = join_layout.PROGRAM_WORDS
    blocks_start = head_start + len(plan.head)
    depths_start = blocks_start + levels + 1
    fixed[join_layout.HEAD_LEVELS] = head_start
    fixed[join_layout.BLOCKS] = blocks_start
    fixed[join_layout.ATOM_DEPTHS] = depths_start
    position = depths_start + len(plan.factors)
    starts: list[int] = []
    blocks: list[int] = []
    summed = _sum_of_last_two(shape)
    memoization_keys = shape.memoization_keys
    for level in range(levels):
        block = _block(shape, level)
        if summed and level == levels - 2:
            block[join_layout.SUM_KIND] = summed
        if not (summed and level == levels - 1):
            block[join_layout.MEMO_KEY_LEVEL] = memoization_keys[level]
        starts.append(position + len(blocks))
        blocks += block
    starts.append(position + len(blocks))
    if summed == join_layout.SUM_CLIQUE:
        blocks += _block(shape, levels - 1, without=plan.order[-2])
    return np.array(
        fixed
        + [shape.level[name] for name in plan.head]
        + starts
        + [factor.depth for factor in plan.factors]
        + blocks,
        np.int64,
    )


class _Shape:
    """A plan's variables by level, computed once for all levels.

    Attributes:
        plan: The plan.
        level: The level of each variable.
        bound: The variables that each factor binds, in its order.
        holders: By level, the factors that bind its variable, each with the depth.
        compared: By level, the comparisons that read its variable.
        emitted_levels: As `TermPlan.emitted_levels`.
        split_level: As `TermPlan.split_level`.
    """

    def __init__(self, plan: TermPlan) -> None:
        self.plan = plan
        self.level = {name: i for i, name in enumerate(plan.order)}
        self.bound = [tuple(f.variables[k] for k in f.order[: f.depth]) for f in plan.factors]
        self.holders: list[list[tuple[int, int]]] = [[] for _ in plan.order]
        for index, names in enumerate(self.bound):
            for depth, name in enumerate(names):
                self.holders[self.level[name]].append((index, depth))
        self.compared: list[list[Comparison]] = [[] for _ in plan.order]
        for comparison in plan.comparisons:
            for name in dict.fromkeys(comparison.variables):
                self.compared[self.level[name]].append(comparison)
        self.emitted_levels = plan.emitted_levels
        self.split_level = plan.split_level

    @cached_property
    def memoization_keys(self) -> list[int]:
        """For each level, the level of the one variable that the sum from there on depends on.

        `NONE` where the sum depends on several variables, where rows are still emitted, where the
        work is split, and where each value occurs once, so that memoization is useless: this holds
        for the first variable, and for a sum that depends on it alone.

        The sum from a level on depends on the earlier variables that share a factor or a comparison
        with a variable from there on. A variable at level p whose last such partner is at level q
        counts for the levels p + 1 to q. So running sums of differences at these two ends give, for
        each level, the number of such variables and the sum of their levels.

        Complexity:
            O(levels + columns of the factors).
        """
        levels = len(self.plan.order)
        last = list(range(levels))
        groups = [*self.bound, *(c.variables for c in self.plan.comparisons)]
        for names in groups:
            furthest = max((self.level[name] for name in names), default=0)
            for name in names:
                last[self.level[name]] = max(last[self.level[name]], furthest)
        ends = [(0, 0)] * (levels + 1)
        for place, furthest in enumerate(last):
            for at, sign in ((place + 1, 1), (furthest + 1, -1)):
                count, total = ends[at]
                ends[at] = count + sign, total + sign * place
        open_at = list(accumulate(ends, lambda a, b: (a[0] + b[0], a[1] + b[1])))
        first = max(self.emitted_levels, self.split_level + 1, 2)
        return [
            total if level >= first and count == 1 and total else NONE
            for level, (count, total) in enumerate(open_at[:levels])
        ]


def _driving_delta(plan: TermPlan, deltas: Sequence[int]) -> tuple[int, int]:
    """The delta whose rows bind the first variables, and their number; (0, 0) if there is none.

    No delta drives the join if several of its rows contribute to one row of the head.
    """
    for index in deltas:
        factor = plan.factors[index]
        bound = tuple(factor.variables[k] for k in factor.order[: factor.depth])
        if bound and plan.order[: len(bound)] == bound and not 0 < plan.emitted_levels < len(bound):
            return index, len(bound)
    return 0, 0


def _sum_of_last_two(shape: _Shape) -> int:
    """The method that sums the last two variables together; `SUM_NONE` if none applies.

    ``SUM_PAIRS`` if two atoms contain the last variable. ``SUM_CYCLE`` if one of these two also
    contains the variable before, together with one other atom, and there are no comparisons.
    ``SUM_CLIQUE`` if more than two atoms contain the last variable and exactly one of them also
    contains the variable before.
    """
    plan = shape.plan
    last = len(plan.order) - 1
    # The join then does not iterate over the last variable, so it cannot be the split one.
    if last < 1 or last - 1 < shape.emitted_levels or shape.split_level == last:
        return join_layout.SUM_NONE
    before = plan.order[-2]
    at_last = {i for i, _ in shape.holders[last]}
    if any(plan.factors[i].depth < len(plan.factors[i].variables) for i in at_last):
        return join_layout.SUM_NONE
    meeting = {i for i, _ in shape.holders[last - 1]}
    moving = meeting & at_last
    compared = shape.compared[last]
    if len(at_last) == 2:
        if any(c.op == "!=" for c in compared):
            return join_layout.SUM_NONE
        closes = len(meeting) == 2 and len(moving) == 1 and not compared
        return join_layout.SUM_CYCLE if closes else join_layout.SUM_PAIRS
    if len(at_last) > 2 and len(moving) == 1 and not any(before in c.variables for c in compared):
        return join_layout.SUM_CLIQUE
    return join_layout.SUM_NONE


def _block(shape: _Shape, level: int, *, without: str | None = None) -> list[int]:
    """The program block of a level, without the atoms that bind ``without``."""
    plan = shape.plan
    name = plan.order[level]
    participants: list[int] = []
    count = 0
    at_leaves = True
    for index, depth in shape.holders[level]:
        if without in shape.bound[index]:
            continue
        factor = plan.factors[index]
        participants += [index, depth, int(depth == factor.depth - 1)]
        at_leaves &= depth == len(factor.variables) - 1
        count += 1
    comparisons: list[int] = []
    unequal = False
    for comparison in shape.compared[level]:
        op, other = _orient(comparison, name)
        if isinstance(other, Constant):
            comparisons += [OPERATORS[op], join_layout.CONSTANT, int(other.value)]  # type: ignore[call-overload]
            unequal |= op == "!="
            continue
        assert isinstance(other, Variable)
        if other.name == name:
            if op in ("<", ">", "!="):  # x < x holds for no x: an empty range
                comparisons += [join_layout.LESS, join_layout.CONSTANT, -(2**63)]
            continue
        elif shape.level[other.name] < level:
            comparisons += [OPERATORS[op], join_layout.VARIABLE, shape.level[other.name]]
        else:
            continue
        unequal |= op == "!="
    innermost = level == len(plan.order) - 1 and level >= shape.emitted_levels
    summed = innermost and not unequal and (count == 1 or (count == 2 and at_leaves))
    return [
        NONE,
        join_layout.SUM_LAST if summed else join_layout.SUM_NONE,
        NOT_LINKED,
        count,
        *participants,
        len(comparisons) // join_layout.COMPARISON_WORDS,
        *comparisons,
    ]


def _orient(comparison: Comparison, name: str) -> tuple[str, Term]:
    """The operator and the other side of a comparison that reads ``name``, with it on the left."""
    if isinstance(comparison.left, Variable) and comparison.left.name == name:
        return comparison.op, comparison.right
    return FLIPPED[comparison.op], comparison.left
