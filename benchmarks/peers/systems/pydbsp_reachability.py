"""Runs pydbsp's own incremental reachability over a history, in an environment of its own.

``python -m benchmarks.peers.systems.pydbsp_reachability FOLDER SECONDS`` reads ``changes.npy``
(rows: sources, targets, weights) and ``bounds.npy``, and steps through the transactions until the
seconds are used up; it writes a line of JSON for each. The circuit is the library's, indexed, over
pairs of a step and an iteration. The loop around it follows its documentation: the differences of
an iteration are the input of the next one, and each step iterates at least as often as any step
before it.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from pydbsp.circuit import Circuit
from pydbsp.compute import ComputeCtx
from pydbsp.core import Antichain, dbsp_time
from pydbsp.evaluate import Evaluator
from pydbsp.indexed_relational_operators import IndexedIncrementalReachabilityBody
from pydbsp.operator import Input
from pydbsp.storage import DictStorage
from pydbsp.zset import ZSet, ZSetAddition


class Reachability:
    """The pairs of nodes with a path from the first to the second."""

    def __init__(self) -> None:
        group: Any = ZSetAddition()
        circuit: Any = Circuit()
        self._evaluator: Any = Evaluator(
            circuit=circuit,
            storage=DictStorage(),
            ctx=ComputeCtx(lattice=dbsp_time(2)),
            group=group,
        )
        self._edges = Input(frontier=Antichain(dbsp_time(1))).connect(circuit, ())
        self._state = Input(frontier=Antichain(dbsp_time(2))).connect(circuit, ())
        body: Any = IndexedIncrementalReachabilityBody(edge_group=group)
        self._body = body.connect(circuit, (self._edges, self._state))
        self._step, self._last_iteration = 0, -1
        self.pairs: Counter[tuple[int, int]] = Counter()

    def step(self, edges: dict[tuple[int, int], int]) -> int:
        """Apply changes of edges (pairs with weights); return the number of pairs."""
        evaluator, outer = self._evaluator, self._step
        evaluator.push(self._edges, ZSet(edges), t=(outer,))
        reached = -1
        for inner, delta in evaluator.saturate_inner(
            self._body, outer, lambda d: not d.inner, min_inner=self._last_iteration
        ):
            evaluator.push(self._state, delta, t=(outer, inner))
            for pair, weight in delta.inner.items():
                self.pairs[pair] += weight
                if not self.pairs[pair]:
                    del self.pairs[pair]
            reached = inner
        self._step, self._last_iteration = outer + 1, max(self._last_iteration, reached)
        evaluator.compact()
        return len(self.pairs)


def main(folder: Path, seconds: float) -> None:
    """Step through the transactions until the seconds are used up."""
    source, target, weight = np.load(folder / "changes.npy").tolist()
    bounds = np.load(folder / "bounds.npy").tolist()
    reachability = Reachability()
    start = time.perf_counter()
    for begin, end in pairwise(bounds):
        rows = range(begin, end)
        edges = {(source[row], target[row]): weight[row] for row in rows}
        cpu = time.process_time()
        pairs = reachability.step(edges)
        cpu = time.process_time() - cpu
        sys.stdout.write(json.dumps({"event": "step", "cpu": cpu, "pairs": pairs}) + "\n")
        sys.stdout.flush()
        if time.perf_counter() - start > seconds:
            break


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
