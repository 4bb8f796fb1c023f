"""Measures recursive views that are divided among cells, against one process.

A cell runs all iterations for some values of the columns that no rule changes, and has a copy of
the edges (`streaming.distributed.planning.divided_recursion`). The load of a cell is its rows of
the view. Claim: the cells together publish the same deltas as one process. The largest load is at
most 1.1 times the mean on real graphs, and 1.5 times where half of all edges leave one node.

closure         all pairs of nodes with a path between them
reachability    the nodes that some starts reach; a start in a large component reaches most nodes

After the first step, in which all edges arrive, the last transactions of a history follow, one step
each. The cells run one after the other in this process. The speed-up is the CPU seconds of one
process divided by those of the busiest cell.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.cost import Clock
from benchmarks.graph import Graph, generate_graph
from benchmarks.history import History
from benchmarks.parts import PartsRun
from benchmarks.result import Row
from benchmarks.scale.cells import generate_hub_graph
from benchmarks.verdict import Verdict
from circuits import Circuit, compile_datalog
from streaming.distributed.cell_state import circuit_stages
from streaming.distributed.execution.cell import cell_spec, group_by_destination, source_spec
from streaming.distributed.execution.routing import CELL
from streaming.distributed.execution.stage_rows import (
    pack_relations,
    replicate_rows,
    split_relations,
)
from streaming.distributed.planning.grid_planning import stage_grid

TARGET = 1.1  # largest load divided by the mean, on real graphs
HUB_TARGET = 1.5  # the same where half of all edges leave one node
EDGE = pa.schema([pa.field(name, pa.int64(), nullable=False) for name in ("src", "dst")])
START = pa.schema([pa.field("node", pa.int64(), nullable=False)])
CLOSURE = "view(x, z) :- e(x, z). view(x, z) :- view(x, y), e(y, z)."
REACHABILITY = "view(x, x) :- start(x). view(x, z) :- view(x, y), e(y, z)."

#: Odd factors that mix the bits of two columns and a weight.
_FACTORS = np.array([0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB], np.uint64)

Changes = dict[str, pa.Table]  # by input


@dataclass(frozen=True)
class Recursion:
    """A recursive view and its steps.

    Attributes:
        name: What it computes.
        graph: The name of the edges.
        circuit: The view, named ``view``.
        steps: The changes of each step.
        target: The target of the largest load divided by the mean; None for none.
    """

    name: str
    graph: str
    circuit: Circuit
    steps: Sequence[Changes]
    target: float | None


@dataclass(frozen=True)
class RecursionSizes:
    """The sizes of the part.

    Attributes:
        cells: The numbers of cells.
        steps: The number of the last transactions of the history that are one step each.
        starts: The number of nodes whose reachability is computed.
        hub: Scale and edges of the graph with a hub.
    """

    cells: tuple[int, ...]
    steps: int
    starts: int
    hub: tuple[int, int]


def measure_recursions(
    run: PartsRun, sizes: RecursionSizes, history: History, real: Graph | None
) -> list[Row]:
    """Return the rows of the table; ``real`` is the real graph, if there is one."""
    graph = generate_graph(9, 1_500, run.seed) if real is None else real
    recursions: tuple[Callable[[], Recursion], ...] = (
        lambda: closure_of_history(history, sizes.steps),
        lambda: reachability(graph, sizes.starts, run.seed),
        lambda: closure_of_graph(generate_hub_graph(*sizes.hub, run.seed), HUB_TARGET),
    )
    # The first steps of a process load kernels.
    measure_recursion(closure_of_graph(generate_hub_graph(9, 200, run.seed), None), 2, Verdict())
    rows: list[Row] = []
    for make in recursions:
        recursion = make()
        for cells in sizes.cells:
            run.report(f"{recursion.name} of {recursion.graph} in {cells} cells ...")
            rows.append(measure_recursion(recursion, cells, run.verdict))
    return rows


def closure_of_history(history: History, steps: int) -> Recursion:
    """Return the closure of a history, whose last transactions are one step each."""
    first = len(history) - steps
    edges = history.edges(first)
    changes = [{"e": edges}, *({"e": history.change(n)} for n in range(first, len(history)))]
    circuit = compile_datalog(CLOSURE, {"e": EDGE}, threads=1)
    return Recursion("closure", history.name, circuit, changes, TARGET)


def closure_of_graph(graph: Graph, target: float | None) -> Recursion:
    """Return the closure of a graph that arrives in one step."""
    circuit = compile_datalog(CLOSURE, {"e": EDGE}, threads=1)
    return Recursion("closure", graph.name, circuit, [{"e": _edges(graph)}], target)


def reachability(graph: Graph, starts: int, seed: int) -> Recursion:
    """Return the reachability from random nodes that have edges."""
    nodes = np.unique(graph.source)
    chosen = np.random.default_rng(seed).choice(nodes, min(starts, len(nodes)), replace=False)
    circuit = compile_datalog(REACHABILITY, {"e": EDGE, "start": START}, threads=1)
    changes = {"e": _edges(graph), "start": pa.table([chosen], START)}
    name = f"reachability from {len(chosen):,} nodes"
    return Recursion(name, graph.name, circuit, [changes], TARGET)


def measure_recursion(recursion: Recursion, cells: int, verdict: Verdict) -> Row:
    """Return a row of the table.

    Args:
        recursion: The view.
        cells: The number of cells.
        verdict: Fails if the cells compute something else than one process.
    """
    truth = f"{recursion.name} of {recursion.graph}"
    first_cpu, later_cpu = _run_one_process(recursion, verdict, truth)
    stages = circuit_stages(recursion.circuit)
    (stage,) = stages.stages
    grid = stage_grid(stage, cells)
    source = Circuit(source_spec(recursion.circuit.spec, stages))
    sent_rows = 0
    divided_rows: list[pa.Table] = []  # of each step, with their cells
    copies: list[Changes] = []  # of each step: what all cells receive
    for changes in recursion.steps:
        sent = group_by_destination(source.step(changes))
        divided, common = (
            {
                r.name: sent.get(f"relation {r.name}", [])
                for r in stage.relations
                if bool(r.keys) == k
            }
            for k in (True, False)
        )
        divided_rows.append(replicate_rows(stage, pack_relations(stage, divided), grid))
        packed = replicate_rows(stage, pack_relations(stage, common), stage_grid(stage, 1))
        copies.append(split_relations(stage, packed))
        sent_rows += divided_rows[-1].num_rows + grid.cells * packed.num_rows
    load, first, later = np.zeros(grid.cells, np.int64), [], []
    checksums = [0] * len(recursion.steps)
    for cell in range(grid.cells):  # one circuit at a time is in memory
        circuit, cpu = Circuit(cell_spec(stage, stages)), 0.0
        for number, rows in enumerate(divided_rows):
            of_cell = rows.filter(pc.equal(rows.column(CELL), cell))
            inputs = copies[number] | split_relations(stage, of_cell)
            clock = Clock()
            outputs = circuit.step(inputs)
            seconds = clock.read().cpu
            for delta in group_by_destination(outputs).get("view view", ()):
                load[cell] += pc.sum(delta.column("weight")).as_py() or 0
                checksums[number] = (checksums[number] + _checksum(delta)) % (1 << 64)
            if number:
                cpu += seconds
            else:
                first.append(seconds)
        later.append(cpu)
    for number, checksum in enumerate(checksums):
        verdict.compare(
            f"step {number} in {grid.cells} cells", f"step {number} of {truth}", checksum
        )
    balance = float(load.max() / load.mean())
    return {
        "view": recursion.name,
        "graph": recursion.graph,
        "cells": grid.cells,
        "rows": int(load.sum()),
        "copies": sent_rows / sum(t.num_rows for c in recursion.steps for t in c.values()),
        "rows/cell": float(load.mean()),
        "max/mean": balance,
        "target": recursion.target,
        "met": None if recursion.target is None else balance <= recursion.target,
        "one process CPU s": first_cpu,
        "all cells CPU s": sum(first),
        "speed-up": first_cpu / max(first),
        "changes": len(recursion.steps) - 1,
        "change in one process CPU ms": _milliseconds(later_cpu, recursion),
        "in the busiest cell": _milliseconds(max(later), recursion),
    }


def _run_one_process(recursion: Recursion, verdict: Verdict, truth: str) -> tuple[float, float]:
    """Return the CPU seconds of the first step, and of all others; set the truths."""
    circuit, later = Circuit(recursion.circuit.spec), 0.0
    first = 0.0
    for number, changes in enumerate(recursion.steps):
        clock = Clock()
        delta = circuit.step(changes)["view"]
        seconds = clock.read().cpu
        verdict.set_truth(f"step {number} of {truth}", _checksum(delta))
        if number:
            later += seconds
        else:
            first = seconds
    return first, later


def _milliseconds(seconds: float, recursion: Recursion) -> float | None:
    """Return the mean of the steps after the first, if there are any."""
    count = len(recursion.steps) - 1
    return 1000 * seconds / count if count else None


def _edges(graph: Graph) -> pa.Table:
    return pa.table([graph.source, graph.target], EDGE)


def _checksum(delta: pa.Table) -> int:
    """Return a checksum of rows with weights; that of a union is the sum, modulo 2^64."""
    mixed = np.zeros(delta.num_rows, np.uint64)
    for factor, column in zip(_FACTORS, delta.columns, strict=True):
        mixed += column.to_numpy().astype(np.uint64) * factor
        mixed ^= mixed >> np.uint64(29)
        mixed *= _FACTORS[0]
    mixed ^= mixed >> np.uint64(32)
    return int(np.add.reduce(mixed)) if len(mixed) else 0
