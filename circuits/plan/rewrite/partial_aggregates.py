"""Partial aggregates: push an aggregate over a join down to one atom, as weights of that atom.

::

    aggregate(key; sum(a.x), count(*), …)(A ⋈ B ⋈ …)  =  final(π[key, slot](partial(A) ⋈ B ⋈ …))

The partial aggregate of A has the values of ``x`` as weights of its rows. So the join adds up
weights instead of enumerating its rows (`circuits.runtime.operators.aggregates.partial_aggregate`).
The column ``slot`` says which sum or count the weight of a row belongs to.

The rule applies to joins of at least two atoms whose counts, sums and means are of plain columns of
one atom. Other expressions could fail for rows that no other atom matches, so they are computed
after the join. The rule does not apply if a condition is evaluated after the join, because that
condition needs the rows of the join.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from circuits.plan.expressions import Column, Expression, columns_of, conjuncts, substitute
from circuits.plan.nodes import Aggregate, PlanNode, columns
from circuits.plan.physical_nodes import FinalAggregate, PartialAggregate
from circuits.plan.rewrite.conditions import Conditions
from circuits.plan.rewrite.join_planning import plan_block
from circuits.plan.rewrite.projection import push_filter, push_projection
from circuits.plan.rewrite.select_block import AntijoinOperand, SelectBlock

__all__ = ["aggregate_partially"]


def aggregate_partially(plan: Aggregate, block: SelectBlock) -> PlanNode | None:
    """Return the final aggregate over a join with a partial aggregate; None if not applicable."""
    calls = plan.aggregates
    arguments = [block.outputs[c.argument] for c in calls if c.argument is not None]
    are_linear = all(
        c.function in ("count", "sum", "avg") and not c.distinct and not c.others for c in calls
    )
    argument_atoms = block.atoms_of(arguments)
    are_columns = all(isinstance(argument, Column) for argument in arguments)
    if len(block.atoms) < 2 or not arguments or len(argument_atoms) != 1:
        return None
    if not are_linear or not are_columns:
        return None
    if Conditions(block).residual:
        return None
    (atom,) = argument_atoms
    keys = [block.outputs[key] for key in plan.keys]
    return _PartialAggregation(block, atom, keys).build_plan(plan)


class _PartialAggregation:
    """Replaces one atom of a block by its partial aggregate.

    Args:
        block: The block that is aggregated.
        atom: The number of the atom.
        keys: The group keys, over the block's columns.
    """

    def __init__(self, block: SelectBlock, atom: int, keys: list[Expression]) -> None:
        self._start = block.starts[atom]
        self._width = len(block.atoms[atom].fields)
        atom_predicates = [p for p in conjuncts(block.predicates) if block.atoms_of([p]) == {atom}]
        self._other_predicates = [
            p for p in conjuncts(block.predicates) if p not in atom_predicates
        ]
        self._rows = block.atoms[atom]
        for predicate in atom_predicates:
            self._rows = push_filter(self._rows, self._over_atom(predicate))
        self._block = block
        self._atom = atom
        self._keys = keys
        antijoin_keys = [key for antijoin in block.antijoins for key in antijoin.keys]
        columns_read = {
            c for e in (*self._other_predicates, *keys, *antijoin_keys) for c in columns_of(e)
        }
        # The columns of the atom that the join still reads.
        self._kept_columns = [c for c in range(self._width) if self._start + c in columns_read]

    def build_plan(self, plan: Aggregate) -> PlanNode:
        """Return the plan of an aggregate over the block."""
        block, kept_columns = self._block, self._kept_columns
        atom_columns = columns(self._rows)
        arguments: dict[int, int] = {}
        calls = []
        for call in plan.aggregates:
            argument = None
            if call.argument is not None:
                output = block.outputs[call.argument]
                assert isinstance(output, Column)
                column = output.index - self._start
                argument = len(kept_columns) + arguments.setdefault(column, len(arguments))
            calls.append(replace(call, argument=argument))
        rows = push_projection(self._rows, [atom_columns[c] for c in (*kept_columns, *arguments)])
        partial = PartialAggregate(rows, len(kept_columns), tuple(calls))
        atoms = (*block.atoms[: self._atom], partial, *block.atoms[self._atom + 1 :])
        # The last column of the partial aggregate.
        slot = Column(self._start + len(kept_columns), pa.int64())
        joined = SelectBlock(
            atoms,
            tuple(map(self._renumber, self._other_predicates)),
            tuple(
                AntijoinOperand(a.plan, tuple(map(self._renumber, a.keys))) for a in block.antijoins
            ),
            (*map(self._renumber, self._keys), slot),
        )
        # The rows to combine come from the join; ``partial`` says what the values of ``slot`` mean.
        return FinalAggregate(plan_block(joined), len(self._keys), partial)

    def _renumber(self, expression: Expression) -> Expression:
        """Return an expression over the block's columns after the atom has been replaced."""
        after = self._start + self._width

        def column(old: Column) -> Expression:
            if old.index < self._start:
                return old
            if old.index >= after:
                return Column(old.index - self._width + len(self._kept_columns) + 1, old.type)
            return Column(self._start + self._kept_columns.index(old.index - self._start), old.type)

        return substitute(expression, column)

    def _over_atom(self, expression: Expression) -> Expression:
        """Renumber an expression that reads only the atom: its first column becomes column 0."""
        return substitute(expression, lambda c: Column(c.index - self._start, c.type))
