"""Sums over joins: an aggregate of one atom's columns becomes weights of that atom.

::

    aggregate(key; sum(a.x), count(*), …)(A ⋈ B ⋈ …)  =  totals(project(spread(A) ⋈ B ⋈ …))

so that the join counts up what it would have listed
(`circuits.runtime.operators.partial_aggregate`). It is done for joins of at least two atoms whose
counts, sums and means are of plain columns of one atom; other expressions could fail for rows that
no other atom matches, and are computed after the join. A condition that is left for after the join
needs its rows, and forbids it.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from circuits.plan.expressions import Column, Expression, columns_of, conjuncts, substitute
from circuits.plan.nodes import Aggregate, FinalAggregate, PartialAggregate, Plan, columns
from circuits.plan.rewrite.conditions import Conditions
from circuits.plan.rewrite.join_planning import plan_block
from circuits.plan.rewrite.projection import push_filter, push_projection
from circuits.plan.rewrite.select_block import AntijoinOperand, SelectBlock

__all__ = ["aggregate_partially"]


def aggregate_partially(plan: Aggregate, block: SelectBlock) -> Plan | None:
    """The aggregate of a block by its weights; None where that cannot be."""
    calls = plan.aggregates
    arguments = [block.outputs[c.argument] for c in calls if c.argument is not None]
    linear = all(c.function in ("count", "sum", "avg") and not c.distinct for c in calls)
    holders = block.atoms_of(arguments)
    plain = all(isinstance(argument, Column) for argument in arguments)
    if len(block.atoms) < 2 or not arguments or not linear or not plain or len(holders) != 1:
        return None
    if Conditions(block).residual:
        return None
    (atom,) = holders
    keys = [block.outputs[key] for key in plan.keys]
    return _Summing(block, atom, keys).plan(plan)


class _Summing:
    """A block with one atom that is to be spread."""

    def __init__(self, block: SelectBlock, atom: int, keys: list[Expression]) -> None:
        self._start = block.starts[atom]
        self._width = len(block.atoms[atom].fields)
        own = [p for p in conjuncts(block.predicates) if block.atoms_of([p]) == {atom}]
        self._others = [p for p in conjuncts(block.predicates) if p not in own]
        self._rows = block.atoms[atom]
        for predicate in own:
            self._rows = push_filter(self._rows, self._local(predicate))
        self._block = block
        self._atom = atom
        self._keys = keys
        joined = [*self._others, *keys, *(key for absent in block.absent for key in absent.keys)]
        read = {c for e in joined for c in columns_of(e)}
        self._kept = [c for c in range(self._width) if self._start + c in read]

    def plan(self, plan: Aggregate) -> Plan:
        block, kept = self._block, self._kept
        every = columns(self._rows)
        arguments: dict[int, int] = {}
        calls = []
        for call in plan.aggregates:
            place = None
            if call.argument is not None:
                found = block.outputs[call.argument]
                assert isinstance(found, Column)
                column = found.index - self._start
                place = len(kept) + arguments.setdefault(column, len(arguments))
            calls.append(replace(call, argument=place))
        rows = push_projection(self._rows, [every[c] for c in (*kept, *arguments)])
        spread = PartialAggregate(rows, len(kept), tuple(calls))
        atoms = (*block.atoms[: self._atom], spread, *block.atoms[self._atom + 1 :])
        slot = Column(self._start + len(kept), pa.int64())
        joined = SelectBlock(
            atoms,
            tuple(map(self._moved, self._others)),
            tuple(AntijoinOperand(a.plan, tuple(map(self._moved, a.keys))) for a in block.absent),
            (*map(self._moved, self._keys), slot),
        )
        return FinalAggregate(plan_block(joined), len(self._keys), spread)

    def _moved(self, expression: Expression) -> Expression:
        """An expression over the block's columns, with the atom spread."""
        after = self._start + self._width

        def column(old: Column) -> Expression:
            if old.index < self._start:
                return old
            if old.index >= after:
                return Column(old.index - self._width + len(self._kept) + 1, old.type)
            return Column(self._start + self._kept.index(old.index - self._start), old.type)

        return substitute(expression, column)

    def _local(self, expression: Expression) -> Expression:
        return substitute(expression, lambda c: Column(c.index - self._start, c.type))
