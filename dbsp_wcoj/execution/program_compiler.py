"""Program compiler: compiles the plan of a term to the program that the join kernel interprets.

A program is an int64 array (`dbsp_wcoj.kernels.join.join_layout`): a header, and one block for each
level of the join, which binds one variable. A block lists the factors that contain the variable and
the comparisons that bound it. An example, the triangles R(a, b), S(b, c), T(a, c)::

    level 0    binds a    factors R, T
    level 1    binds b    factors R, S
    level 2    binds c    factors S, T

If the query only needs the sum of the weights over its last variables, a special kernel computes
the sum instead of enumerating their values. The block of the level then contains its address, which
`link` writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Final

import numpy as np

from dbsp_wcoj.cached_property import cached_property
from dbsp_wcoj.kernels.compilation import address_of
from dbsp_wcoj.kernels.join import join_layout
from dbsp_wcoj.kernels.join.clique_sums import sum_clique
from dbsp_wcoj.kernels.join.cycle_sums import sum_cycle
from dbsp_wcoj.kernels.join.row_sums import sum_rows
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

#: The kernels that sum over the variable of a level and over those of the levels after it. The sum
#: over the last level with one atom needs no kernel.
SUM_KERNELS: Final = {
    join_layout.SUM_LAST: sum_last,
    join_layout.SUM_PAIRS: sum_pairs,
    join_layout.SUM_CYCLE: sum_cycle,
    join_layout.SUM_CLIQUE: sum_clique,
}


def link(program: Int64Array) -> None:
    """Write the addresses of the kernels that a program calls into the program.

    This must happen before the program runs for the first time. It is not part of `compile_program`
    because it compiles these kernels or loads them from the cache, and many programs never run.
    """
    starts = int(program[join_layout.BLOCKS])
    for block in program[starts : starts + int(program[join_layout.LEVELS])].tolist():
        sum_kind = int(program[block + join_layout.SUM_KIND])
        if sum_kind == join_layout.SUM_NONE:
            continue
        if sum_kind != join_layout.SUM_LAST or program[block + join_layout.PARTICIPANTS] > 1:
            program[block + join_layout.SUM_KERNEL] = address_of(SUM_KERNELS[sum_kind])
    if program[join_layout.ROW_SUM_KERNEL] == NOT_LINKED:
        program[join_layout.ROW_SUM_KERNEL] = address_of(sum_rows)


def compile_program(plan: TermPlan, delta_factors: Sequence[int] = ()) -> Int64Array:
    """Compile a plan to a program.

    Args:
        plan: The plan.
        delta_factors: The factors that are deltas. The join may start from the rows of one of them.
    """
    levels = len(plan.order)
    shape = _Shape(plan)
    max_depth = max((factor.depth for factor in plan.factors), default=0)
    driver = _driving_delta(plan, delta_factors)
    # In the order of the words that `join_layout` declares; zeros are set below.
    header = [
        len(plan.factors),
        levels,
        shape.emitted_levels,
        len(plan.head),
        0,
        max_depth,
        shape.split_level,
        0,
        0,
        *driver,
        0,
        NOT_LINKED if _is_row_sum(shape, driver) else join_layout.NO_KERNEL,
    ]
    head_start = join_layout.PROGRAM_WORDS
    blocks_start = head_start + len(plan.head)
    depths_start = blocks_start + levels + 1
    header[join_layout.HEAD_LEVELS] = head_start
    header[join_layout.BLOCKS] = blocks_start
    header[join_layout.ATOM_DEPTHS] = depths_start
    memoizations = shape.memoizations
    is_memoized = any(kind != join_layout.MEMO_NONE for kind, _ in memoizations)
    header[join_layout.CAN_DEFER] = int(not shape.emitted_levels and not is_memoized)
    first_block = depths_start + len(plan.factors)
    starts: list[int] = []
    blocks: list[int] = []
    pair_sum = _sum_of_last_two(shape)
    for level in range(levels):
        block = _block(shape, level)
        if pair_sum and level == levels - 2:
            block[join_layout.SUM_KIND] = pair_sum
        if not (pair_sum and level == levels - 1):
            block[join_layout.MEMO_KIND : join_layout.MEMO_LEVEL + 1] = memoizations[level]
        starts.append(first_block + len(blocks))
        blocks += block
    starts.append(first_block + len(blocks))
    if pair_sum == join_layout.SUM_CLIQUE:
        blocks += _block(shape, levels - 1, without=plan.order[-2])
    return np.array(
        header
        + [shape.level[name] for name in plan.head]
        + starts
        + [factor.depth for factor in plan.factors]
        + blocks,
        np.int64,
    )


class _Shape:
    """The variables, factors and comparisons of a plan by level.

    Attributes:
        plan: The plan.
        level: The level of each variable.
        bound: The variables that each factor binds, in its column order.
        holders: For each level, the factors that contain its variable, each with the position of
            the variable in its column order (the depth).
        compared: For each level, the comparisons that read its variable.
        emitted_levels: As `TermPlan.emitted_levels`.
        split_level: As `TermPlan.split_level`.
    """

    def __init__(self, plan: TermPlan) -> None:
        self.plan = plan
        self.level = {name: i for i, name in enumerate(plan.order)}
        self.bound = [
            tuple(factor.variables[column] for column in factor.order[: factor.depth])
            for factor in plan.factors
        ]
        self.holders: list[list[tuple[int, int]]] = [[] for _ in plan.order]
        for index, names in enumerate(self.bound):
            for depth, name in enumerate(names):
                self.holders[self.level[name]].append((index, depth))
        # Atoms of one column come first: one look-up may reject a value before the others search.
        for holders in self.holders:
            holders.sort(key=lambda holder: len(plan.factors[holder[0]].variables) > 1)
        self.compared: list[list[Comparison]] = [[] for _ in plan.order]
        for comparison in plan.comparisons:
            for name in dict.fromkeys(comparison.variables):
                self.compared[self.level[name]].append(comparison)
        self.emitted_levels = plan.emitted_levels
        self.split_level = plan.split_level

    @cached_property
    def memoizations(self) -> list[tuple[int, int]]:
        """For each level, how its sum is memoized: ``MEMO_KIND`` and ``MEMO_LEVEL`` of its block.

        The sum over the variables of a level and of all later levels is memoized by value if it
        depends on only one earlier variable, unless that is the first variable. Otherwise it is
        memoized by prefix if it does not depend on the variable just before the level. It is not
        memoized where rows are emitted or where the work is split.

        The sum depends on an earlier variable if this shares a factor or a comparison with one of
        the summed variables. Take a variable at level p, and the last variable with which it shares
        a factor or a comparison, at level q: the sums of levels p + 1 to q depend on it.

        Complexity:
            O(levels + columns of the factors).
        """
        levels = len(self.plan.order)
        last_partner = list(range(levels))
        names_together = [*self.bound, *(c.variables for c in self.plan.comparisons)]
        for names in names_together:
            last = max((self.level[name] for name in names), default=0)
            for name in names:
                level = self.level[name]
                last_partner[level] = max(last_partner[level], last)
        # The change at each level of the number of variables on which the sum depends.
        count_changes = [0] * (levels + 1)
        for level, last in enumerate(last_partner):
            count_changes[level + 1] += 1
            count_changes[last + 1] -= 1
        counts = list(accumulate(count_changes))
        first_memoized = max(self.emitted_levels, self.split_level + 1, 2)
        memoizations = [(join_layout.MEMO_NONE, NONE)] * levels
        # Earlier levels; the sums do not depend on those that are removed.
        earlier: list[int] = []
        for level in range(1, levels):
            earlier.append(level - 1)
            while earlier and last_partner[earlier[-1]] < level:
                earlier.pop()
            if level < first_memoized or not earlier:
                continue
            last = earlier[-1]
            if counts[level] == 1 and last > 0:
                memoizations[level] = join_layout.MEMO_VALUE, last
            elif last < level - 1:
                memoizations[level] = join_layout.MEMO_PREFIX, last
        return memoizations


def _driving_delta(plan: TermPlan, delta_factors: Sequence[int]) -> tuple[int, int]:
    """Return the delta factor from whose rows the join starts, and the number of its variables.

    Its variables must be the first ones of the plan. If several of its rows can contribute to one
    row of the head, the join cannot start from it. The result is (0, 0) if there is no such factor.
    """
    for index in delta_factors:
        factor = plan.factors[index]
        bound = tuple(factor.variables[k] for k in factor.order[: factor.depth])
        if bound and plan.order[: len(bound)] == bound and not 0 < plan.emitted_levels < len(bound):
            return index, len(bound)
    return 0, 0


def _is_row_sum(shape: _Shape, driver: tuple[int, int]) -> bool:
    """Return whether `dbsp_wcoj.kernels.join.row_sums` computes the join from the driver's rows.

    The driver d(x, y) binds two variables, and the third one is summed: d(x, y), a(x, z), b(y, z).
    """
    plan = shape.plan
    index, bound = driver
    is_sum = len(plan.order) == 3 and not plan.emitted_levels and not plan.comparisons
    if bound != 2 or len(plan.factors) != 3 or not is_sum or shape.split_level > 0:
        return False
    x, y, z = plan.order
    others = [names for factor, names in enumerate(shape.bound) if factor != index]
    # The last column of the other two is the summed variable.
    are_whole = all(
        factor.depth == len(factor.variables)
        for position, factor in enumerate(plan.factors)
        if position != index
    )
    return are_whole and sorted(others) == sorted([(x, z), (y, z)])


def _sum_of_last_two(shape: _Shape) -> int:
    """Return which kernel sums over the last two variables together; `SUM_NONE` if none does.

    Let y be the last variable and x the one before it:

    - ``SUM_PAIRS`` if two factors contain y;
    - ``SUM_CYCLE`` if two factors contain y, two contain x, exactly one contains both, and no
      comparison reads y: such as the triangle R(a, x), S(x, y), T(a, y);
    - ``SUM_CLIQUE`` if more than two factors contain y, and exactly one of them contains x.
    """
    plan = shape.plan
    last = len(plan.order) - 1
    # The join then does not iterate over the last variable, so it cannot be the split one.
    if last < 1 or last - 1 < shape.emitted_levels or shape.split_level == last:
        return join_layout.SUM_NONE
    x = plan.order[-2]
    with_y = {i for i, _ in shape.holders[last]}
    # These kernels need y to be the last column: a factor must not have columns that are not read.
    if any(plan.factors[i].depth < len(plan.factors[i].variables) for i in with_y):
        return join_layout.SUM_NONE
    with_x = {i for i, _ in shape.holders[last - 1]}
    with_both = with_x & with_y
    comparisons = shape.compared[last]
    if len(with_y) == 2:
        if any(comparison.op == "!=" for comparison in comparisons):
            return join_layout.SUM_NONE
        is_cycle = len(with_x) == 2 and len(with_both) == 1 and not comparisons
        return join_layout.SUM_CYCLE if is_cycle else join_layout.SUM_PAIRS
    reads_x = any(x in comparison.variables for comparison in comparisons)
    if len(with_y) > 2 and len(with_both) == 1 and not reads_x:
        return join_layout.SUM_CLIQUE
    return join_layout.SUM_NONE


def _block(shape: _Shape, level: int, *, without: str | None = None) -> list[int]:
    """Return the program block of a level, without the factors that contain ``without``."""
    plan = shape.plan
    name = plan.order[level]
    participants: list[int] = []
    factor_count = 0
    are_last_columns = True
    for index, depth in shape.holders[level]:
        if without in shape.bound[index]:
            continue
        factor = plan.factors[index]
        participants += [index, depth, int(depth == factor.depth - 1)]
        are_last_columns &= depth == len(factor.variables) - 1
        factor_count += 1
    comparisons: list[int] = []
    has_unequal = False
    for comparison in shape.compared[level]:
        op, operand, shift = _orient(comparison, name)
        if isinstance(operand, Constant):
            value = int(operand.value)  # type: ignore[call-overload]
            comparisons += [OPERATORS[op], join_layout.CONSTANT, value, 0]
            has_unequal |= op == "!="
            continue
        assert isinstance(operand, Variable)
        if operand.name == name:
            if op in ("<", ">", "!="):  # x < x holds for no x: an empty range
                comparisons += [join_layout.LESS, join_layout.CONSTANT, -(2**63), 0]
            continue
        elif shape.level[operand.name] < level:
            other_level = shape.level[operand.name]
            comparisons += [OPERATORS[op], join_layout.VARIABLE, other_level, shift]
        else:
            continue
        has_unequal |= op == "!="
    is_innermost = level == len(plan.order) - 1 and level >= shape.emitted_levels
    has_fast_sum = factor_count == 1 or are_last_columns
    is_summed = is_innermost and not has_unequal and has_fast_sum
    return [
        join_layout.MEMO_NONE,  # set by `compile_program`, like the next word
        NONE,
        join_layout.SUM_LAST if is_summed else join_layout.SUM_NONE,
        NOT_LINKED,  # the address of the kernel of the sum; set by `link`
        factor_count,
        *participants,
        len(comparisons) // join_layout.COMPARISON_WORDS,
        *comparisons,
    ]


def _orient(comparison: Comparison, name: str) -> tuple[str, Term, int]:
    """Return a comparison, turned so that ``name`` is left: operator, right side and shift."""
    if isinstance(comparison.left, Variable) and comparison.left.name == name:
        return comparison.op, comparison.right, comparison.shift
    return FLIPPED[comparison.op], comparison.left, -comparison.shift
