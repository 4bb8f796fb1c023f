"""Measures a maintained recursive view, the closure of a graph, against its recomputation.

Claim: the view lists which class depends on which, directly or through others. On the history of
Kafka's imports, a median step is at least 50 times faster than this engine recomputes the closure,
and 10 times faster than DuckDB's WITH RECURSIVE. All run on one thread. Times are CPU seconds,
which other work on the machine hardly changes. The state grows with the closure.

Input: the transactions of a history (``--history``; if the folder is missing, a generated one).
Each transaction is one step of these Datalog rules::

    depends(x, z) :- e(x, z).
    depends(x, z) :- e(x, y), depends(y, z).

After ``--samples`` transactions, evenly spread, each system of `benchmarks.recursion_recompute`
recomputes the closure. pydbsp, which also maintains it, processes the first transactions for
``--peer-seconds`` seconds. After ``--checks`` random transactions, and at all samples, every row of
the view is compared with an independent closure (`benchmarks.closure`).
"""

from __future__ import annotations

import gc
import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import typer

import dbsp_wcoj
from benchmarks.closure import NODES, closure
from benchmarks.cost import Clock
from benchmarks.history import History, generate_history, read_history
from benchmarks.peers.process import watch
from benchmarks.peers.roster import SYSTEMS
from benchmarks.recursion_recompute import compile_closure, prepare_query, recompute_closure
from benchmarks.result import Result, Row, terminal
from benchmarks.shared_data import SHARED
from benchmarks.verdict import Verdict
from circuits import Circuit

CLAIM = (
    "The closure of Kafka's imports over its history: a median step is at least 50 times faster "
    "than this engine recomputes it, and 10 times faster than DuckDB's WITH RECURSIVE"
)
STEP = "this engine, maintained: a step"
ENGINE_TARGET, DUCKDB_TARGET = 50.0, 10.0
TARGETS = {
    "this engine, a new view": ENGINE_TARGET,
    "this engine, a query": ENGINE_TARGET,
    "DuckDB": DUCKDB_TARGET,
}

_KAFKA = SHARED / "data" / "git-imports-kafka"
_PEER_MEMORY = 6 << 30


@dataclass
class StepLog:
    """For each step so far: its CPU seconds, its wall seconds, and the pairs after it."""

    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)
    pairs: list[int] = field(default_factory=list)


def main(
    history: Annotated[Path, typer.Option(help="Folder of a history.")] = _KAFKA,
    transactions: Annotated[int | None, typer.Option(help="Only the first ones.")] = None,
    samples: Annotated[int, typer.Option(help="How often to recompute.")] = 10,
    checks: Annotated[
        int, typer.Option(help="How often to check the view between the samples.")
    ] = 50,
    peer_seconds: Annotated[float, typer.Option(help="For pydbsp; 0 leaves it out.")] = 60.0,
    seed: int = 0,
    json: Annotated[Path | None, typer.Option(help="Write the result here.")] = None,
) -> None:
    """Step through the history; exit status 1 if an answer is wrong."""
    verdict = Verdict()
    steps: list[Row] = []
    recomputed: list[Row] = []
    state: list[Row] = []
    tables = {"Steps": steps, "Recomputation": recomputed, "State of the closure": state}
    result = Result("recursion", CLAIM, tables)
    progress = terminal()
    dbsp_wcoj.warm_up()
    measured_history = (
        read_history(history) if history.is_dir() else generate_history(300, 300, seed)
    )
    measured_history = measured_history.prefix(transactions or len(measured_history))
    size = len(measured_history)
    progress.print(f"{measured_history.name}: {size:,} transactions ...")
    _warm_up_kernels(measured_history)
    checked = np.random.default_rng(seed).choice(size, min(checks, size), replace=False) + 1
    log = StepLog()
    for steps_row, recomputed_rows, state_row in run_history(
        measured_history, samples, set(checked.tolist()), log, verdict
    ):
        progress.print(f"after {steps_row['until']:,} ...")
        steps.append(steps_row)
        recomputed += recomputed_rows
        state.append(state_row)
    tables["Median step against recomputation"] = _summary(measured_history, recomputed)
    if peer_seconds:
        progress.print("pydbsp ...")
        tables["Maintained by another system"] = [
            _pydbsp(measured_history, log, peer_seconds, verdict)
        ]
    verdict.close(result, json)


def run_history(
    history: History, samples: int, checks: set[int], log: StepLog, verdict: Verdict
) -> Iterator[tuple[Row, list[Row], Row]]:
    """Run the history in parts; yield for each the rows of its steps, recomputation and state.

    Args:
        history: The transactions.
        samples: Number of parts.
        checks: Numbers of transactions after which the view is checked, besides the ends of parts.
        log: Collects the cost of each step.
        verdict: Collects the answers.
    """
    circuit = compile_closure()
    ends = np.linspace(0, len(history), samples + 1).astype(int).tolist()
    for begin, end in pairwise(ends):
        rows = []
        gc.collect()
        for number in range(begin, end):
            change = history.change(number)
            clock = Clock()
            delta = circuit.step({"e": change})["depends"]
            cost = clock.read()
            log.cpu.append(cost.cpu)
            log.wall.append(cost.wall)
            new_pairs = pc.sum(delta["weight"]).as_py() or 0
            log.pairs.append((log.pairs[-1] if log.pairs else 0) + new_pairs)
            rows.append((change.num_rows, delta.num_rows))
            if number + 1 in checks and number + 1 != end:
                _check(circuit, history, number + 1, verdict)
                gc.collect()
        cpu, wall = log.cpu[begin:end], log.wall[begin:end]
        steps_row: Row = {
            "until": end,
            "steps": end - begin,
            "edges changed, median": statistics.median(changed for changed, _ in rows),
            "pairs changed, median": statistics.median(pairs for _, pairs in rows),
            "pairs changed, mean": statistics.mean(pairs for _, pairs in rows),
            "step CPU ms": statistics.median(cpu) * 1000,
            "p90 CPU ms": float(np.quantile(cpu, 0.9)) * 1000,
            "p99 CPU ms": float(np.quantile(cpu, 0.99)) * 1000,
            "largest CPU ms": max(cpu) * 1000,
            "step wall ms": statistics.median(wall) * 1000,
        }
        edges, pairs = _check(circuit, history, end, verdict)
        recomputed = list(recompute_closure(end, edges, pairs, verdict))
        step: Row = {
            "system": STEP,
            "CPU s": statistics.median(cpu),
            "wall s": statistics.median(wall),
        }
        recomputed.append(recomputed[0] | step)
        yield steps_row, recomputed, _state_row(circuit, end, edges)


def _check(circuit: Circuit, history: History, end: int, verdict: Verdict) -> tuple[pa.Table, int]:
    """Compare the view with the truth; return the edges, and the true number of pairs."""
    edges = history.edges(end)
    truth = closure(edges)
    verdict.set_truth(f"the closure after {end}", len(truth))
    view = circuit.views["depends"]
    view_pairs = np.sort(view["x"].to_numpy() * NODES + view["z"].to_numpy())
    verdict.compare("the view", f"the closure after {end}", view.num_rows)
    verdict.set_truth(f"differences after {end}", 0)
    differ = np.setxor1d(view_pairs, truth, assume_unique=True)
    verdict.compare("pairs", f"differences after {end}", len(differ))
    return edges, len(truth)


def _state_row(circuit: Circuit, end: int, edges: pa.Table) -> Row:
    """Return the row about the state of the recursion, without the materialized view."""
    input_traces = [
        trace for name, trace in circuit.graph.traces.items() if name.startswith("relation")
    ]
    recursive_traces = [
        trace
        for node in circuit.graph.nodes
        if node.is_nested
        for trace in getattr(node.operator, "traces", ())
    ]
    spines = [
        arrangement.spine
        for trace in (*input_traces, *recursive_traces)
        for arrangement in trace.arrangements
    ]
    pairs = circuit.views["depends"].num_rows
    size = sum(spine.nbytes for spine in spines)
    return {
        "until": end,
        "edges": edges.num_rows,
        "pairs": pairs,
        "derivations": sum(trace.arrangements[0].spine.rows for trace in recursive_traces),
        "rows held": sum(spine.rows for spine in spines),
        "MB": size / 1e6,
        "bytes/pair": size / pairs,
    }


def _warm_up_kernels(history: History) -> None:
    """Run a few transactions, not timed, so that the kernels are compiled."""
    circuit = compile_closure()
    for number in range(min(40, len(history))):
        circuit.step({"e": history.change(number)})
    edges = history.edges(min(40, len(history)))
    circuit.step({"e": edges.append_column("weight", pa.array(np.full(edges.num_rows, -1)))})
    prepare_query(edges)()


def _summary(history: History, recomputed: list[Row]) -> list[Row]:
    """Compare the median step with each system's median in the second half of the history."""
    medians: dict[str, list[float]] = {}
    for row in recomputed:
        if _number(row["until"]) > len(history) / 2:
            medians.setdefault(str(row["system"]), []).append(_number(row["CPU s"]))
    step_ms = statistics.median(medians.pop(STEP)) * 1000
    rows: list[Row] = []
    for system, system_medians in medians.items():
        seconds = statistics.median(system_medians)
        ratio, target = seconds * 1000 / step_ms, TARGETS.get(system)
        rows.append({
            "history": history.name,
            "system": system,
            "recompute CPU s": seconds,
            "step CPU ms": step_ms,
            "times faster": ratio,
            "target": target,
            "met": None if target is None else ratio >= target,
        })  # fmt: skip
    return rows


def _pydbsp(history: History, log: StepLog, seconds: float, verdict: Verdict) -> Row:
    """Run the first transactions in pydbsp, as many as it processes in this time."""
    system = SYSTEMS["pydbsp"]
    row: Row = {"history": history.name, "system": "pydbsp"}
    if not system.installed:
        return row | {"result": "not installed"}
    with tempfile.TemporaryDirectory() as folder:
        changes = np.stack((history.source, history.target, history.weight))
        np.save(Path(folder, "changes.npy"), changes[:, : history.bounds[-1]])
        np.save(Path(folder, "bounds.npy"), np.array(history.bounds))
        arguments = ["-m", "benchmarks.peers.systems.pydbsp_reachability", folder, str(seconds)]
        run = watch(arguments, limit=seconds, memory=_PEER_MEMORY, interpreter=system.interpreter)
    steps = run.messages_of("step")
    for number, step in enumerate(steps):
        verdict.set_truth(f"pairs after {number + 1}", log.pairs[number])
        verdict.compare("pydbsp", f"pairs after {number + 1}", step["pairs"])
    if not steps:
        return row | {"result": run.failure}
    peer_ms = statistics.median(step["cpu"] for step in steps) * 1000
    engine_ms = statistics.median(log.cpu[: len(steps)]) * 1000
    peer_last_ms = statistics.median(step["cpu"] for step in steps[-5:]) * 1000
    return row | {
        "transactions": len(steps),
        "pairs": steps[-1]["pairs"],
        "step CPU ms": engine_ms,
        "pydbsp step CPU ms": peer_ms,
        "pydbsp last steps CPU ms": peer_last_ms,
        "times faster": peer_ms / engine_ms,
        "result": run.failure or "",
    }


def _number(cell: object) -> float:
    assert isinstance(cell, int | float)
    return float(cell)


if __name__ == "__main__":
    typer.run(main)
