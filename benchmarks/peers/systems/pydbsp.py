"""pydbsp: DBSP in pure Python; each atom after the first is one incremental join.

A join is that of the DBSP paper: ``J(I a, b) + J(a, z⁻¹ I b)``, with the library's sort-merge join
over indexed Z-sets. Time has one dimension, because nothing here is recursive; the library's doubly
incremental join with four terms does the same at a higher cost. The last join projects to the empty
row, so its weight is the count. Data that no later step reads is dropped (``compact``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydbsp.circuit import Circuit
from pydbsp.compute import ComputeCtx
from pydbsp.core import Antichain, dbsp_time
from pydbsp.evaluate import Evaluator
from pydbsp.indexed_relational_operators import LiftIndex
from pydbsp.indexed_zset import IndexedZSetAddition, sort_merge_join
from pydbsp.operator import Delay, Input, Integrate, Lift2
from pydbsp.storage import DictStorage
from pydbsp.zset import ZSet, ZSetAddition

from benchmarks.peers.pattern import Pattern
from benchmarks.peers.systems import Edges, Resources

_GROUP: Any = ZSetAddition()


class _Maintainer:
    def __init__(self, pattern: Pattern) -> None:
        self._circuit: Any = Circuit()
        self._pattern = pattern
        self._evaluator = Evaluator(
            circuit=self._circuit,
            storage=DictStorage(),
            ctx=ComputeCtx(lattice=dbsp_time(1)),
            group=_GROUP,
        )
        self._edges = Input(frontier=Antichain(dbsp_time(1))).connect(self._circuit, ())
        self._result = self._plan()
        self._tick, self._count = 0, 0

    def step(self, edges: Edges, weights: NDArray[np.int64]) -> int:
        rows = zip(zip(*edges.tolist(), strict=True), weights.tolist(), strict=True)
        self._evaluator.push(self._edges, ZSet(dict(rows)))
        delta = self._evaluator.read(self._result, (self._tick,))
        self._count += delta.inner.get((), 0)
        self._tick += 1
        self._evaluator.compact()
        return self._count

    def _plan(self) -> Any:
        """Build the joins; return the node whose weight is the change of the count."""
        node, bound = self._edges, list(self._pattern.atoms[0])
        for position, atom in enumerate(self._pattern.atoms[1:], start=1):
            shared = [variable for variable in atom if variable in bound]
            new = [variable for variable in atom if variable not in bound]
            variables = [*bound, *new]
            comparisons = [
                (variables.index(x), sign == "<", variables.index(y))
                for x, sign, y in self._pattern.comparisons
                if x in variables
                and y in variables
                and (position == 1 or not (x in bound and y in bound))
            ]
            is_last = position == len(self._pattern.atoms) - 1
            node = self._join(
                node,
                [bound.index(variable) for variable in shared],
                [atom.index(variable) for variable in shared],
                [atom.index(variable) for variable in new],
                comparisons,
                is_last,
            )
            bound = variables
        return node

    def _join(
        self,
        left: Any,
        left_key: list[int],
        right_key: list[int],
        new: list[int],
        comparisons: list[tuple[int, bool, int]],
        is_last: bool,
    ) -> Any:
        """Join the rows so far with the edges.

        Args:
            left: The node of the rows so far.
            left_key: The columns of the join in the rows so far.
            right_key: The columns of the join in the edges.
            new: The columns of the edges that are appended to a row.
            comparisons: Two columns of the joined row, and true for ``<``, false for ``!=``.
            is_last: True if the result is the empty row, so that its weight is the count.
        """

        def key_of(columns: list[int]) -> Any:
            if len(columns) == 1:
                (column,) = columns
                return lambda row: row[column]
            first, second = columns
            return lambda row: (row[first], row[second])

        def project(_: Any, row: Any, edge: Any) -> Any:
            joined_row = row + tuple(edge[column] for column in new)
            for x, is_less, y in comparisons:
                a, b = joined_row[x], joined_row[y]
                if not (a < b if is_less else a != b):
                    return None
            return () if is_last else joined_row

        def join(a: Any, b: Any) -> Any:
            return sort_merge_join(a, b, project)

        circuit = self._circuit
        by_left, by_right = key_of(left_key), key_of(right_key)
        a: Any = LiftIndex(indexer=by_left).connect(circuit, (left,))
        b: Any = LiftIndex(indexer=by_right).connect(circuit, (self._edges,))
        group_a = IndexedZSetAddition(_GROUP, by_left)
        group_b = IndexedZSetAddition(_GROUP, by_right)
        all_a = Integrate(group=group_a).connect(circuit, (a,))
        all_b = Integrate(group=group_b).connect(circuit, (b,))
        old_b = Delay(group=group_b).connect(circuit, (all_b,))
        first = Lift2(op=join).connect(circuit, (all_a, b))
        second = Lift2(op=join).connect(circuit, (a, old_b))
        return Lift2(op=_GROUP.add).connect(circuit, (first, second))


@contextmanager
def maintainer(pattern: Pattern, edges: Edges, resources: Resources) -> Iterator[_Maintainer]:
    joins = _Maintainer(pattern)
    joins.step(edges, np.ones(edges.shape[1], np.int64))
    yield joins
