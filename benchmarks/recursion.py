"""Recursion: the closure of a graph kept live, against asking for it again.

Claim: on the history of Kafka's imports a median step of "which class depends on which", also
through others, is at least 50 times faster than recomputing the closure by this engine and 10 times
faster than DuckDB's WITH RECURSIVE, all on one thread; the state grows with the closure.

Input: the transactions of a history (``--history``, by default where the tests find it; else a
made one), each one step, as Datalog says it::

    depends(x, z) :- e(x, z).
    depends(x, z) :- e(x, y), depends(y, z).

At ``--samples`` transactions, evenly spread, the closure is asked for again: by a new circuit that
is given all edges in one step, by a one-shot query (`Circuit.query`), by DuckDB over tables of its
own, by clingo if it is installed (grounding; no search is left), and by SciPy's breadth-first
search, which is the truth. Every row of the view is compared with it there.
"""

from __future__ import annotations

import gc
import os
import statistics
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import numpy as np
import pyarrow as pa
import typer
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import shortest_path

import dbsp_wcoj
from benchmarks.cost import Clock
from benchmarks.history import History, made, read
from benchmarks.recomputed import Recomputed
from benchmarks.result import Result, Row, terminal
from benchmarks.verdict import Verdict
from circuits import Circuit, compile_datalog

CLAIM = (
    "Recursion, the closure of Kafka's imports over its history: a median step is at least 50 "
    "times faster than recomputing it by this engine, and 10 times faster than DuckDB's WITH "
    "RECURSIVE"
)
RULES = "depends(x, z) :- e(x, z). depends(x, z) :- e(x, y), depends(y, z)."
SQL = (
    "WITH RECURSIVE depends(x, z) AS (SELECT src, dst FROM e UNION "
    "SELECT e.src, depends.z FROM e JOIN depends ON e.dst = depends.x) "
    "SELECT count(*) FROM depends"
)
ENGINE_BAR, DUCKDB_BAR = 50.0, 10.0

_SCHEMA = pa.schema([pa.field(name, pa.int64(), nullable=False) for name in ("src", "dst")])
_SHARED = Path(os.environ.get("DBSP_WCOJ_SHARED", Path(__file__).parents[2] / "shared"))
_KAFKA = _SHARED / "data" / "git-imports-kafka"
_NODES = 1 << 32


def main(
    history: Annotated[Path, typer.Option(help="Folder of a history.")] = _KAFKA,
    transactions: Annotated[int | None, typer.Option(help="Only the first ones.")] = None,
    samples: Annotated[int, typer.Option(help="How often to ask again.")] = 10,
    seed: int = 0,
    json: Annotated[Path | None, typer.Option(help="Write the result here.")] = None,
) -> None:
    """Step through the history; exit status 1 when an answer is ever wrong."""
    verdict = Verdict()
    steps: list[Row] = []
    again: list[Row] = []
    state: list[Row] = []
    tables = {"Steps": steps, "Asked again": again, "State of the closure": state}
    result = Result("recursion", CLAIM, tables)
    progress = terminal()
    dbsp_wcoj.warm_up()
    found = read(history) if history.is_dir() else made(300, 300, seed)
    found = found.first(transactions or len(found))
    progress.print(f"{found.name}: {len(found):,} transactions ...")
    _stir(found)
    for part, sample, held in live(found, samples, verdict):
        progress.print(f"after {part['until']:,} ...")
        steps.append(part)
        state.append(held)
        again += sample
    summary = _summary(found, steps, again)
    tables["Median step against asking again"] = summary
    verdict.close(result, json)


def live(history: History, samples: int, verdict: Verdict) -> Iterator[tuple[Row, list[Row], Row]]:
    """Per part of the history: its steps, asking again after it, and what is held then."""
    circuit = compile_datalog(RULES, {"e": _SCHEMA}, materialize=["depends"])
    ends = np.linspace(0, len(history), samples + 1).astype(int).tolist()
    for begin, end in pairwise(ends):
        seconds, rows = [], []
        gc.collect()
        for number in range(begin, end):
            change = history.change(number)
            clock = Clock()
            delta = circuit.step({"e": change})["depends"]
            seconds.append(clock.read().wall)
            rows.append((change.num_rows, delta.num_rows))
        part: Row = {
            "until": end,
            "steps": end - begin,
            "edges changed, median": statistics.median(changed for changed, _ in rows),
            "pairs changed, mean": statistics.mean(pairs for _, pairs in rows),
            "step ms": statistics.median(seconds) * 1000,
            "p90 ms": float(np.quantile(seconds, 0.9)) * 1000,
            "p99 ms": float(np.quantile(seconds, 0.99)) * 1000,
            "largest ms": max(seconds) * 1000,
        }
        edges = history.edges(end)
        truth = closure(edges)
        verdict.truth(f"the closure after {end}", len(truth))
        view = circuit.views["depends"]
        found = np.sort(view["x"].to_numpy() * _NODES + view["z"].to_numpy())
        verdict.compare("the view", f"the closure after {end}", view.num_rows)
        verdict.truth(f"differences after {end}", 0)
        differ = np.setxor1d(found, truth, assume_unique=True)
        verdict.compare("pairs", f"differences after {end}", len(differ))
        yield part, list(_asked_again(end, edges, len(truth), verdict)), _held(circuit, end, edges)


def closure(edges: pa.Table) -> NDArray[np.int64]:
    """All pairs with a way from one to the other, as sorted numbers, by SciPy.

    >>> ring = pa.table({"src": [1, 2], "dst": [2, 1]})
    >>> [divmod(int(pair), 2**32) for pair in closure(ring)]
    [(1, 1), (1, 2), (2, 1), (2, 2)]
    """
    source, target = (column.to_numpy() for column in edges.columns)
    nodes, places = np.unique(np.concatenate((source, target)), return_inverse=True)
    source, target = places.reshape(2, -1)
    ones = np.ones(len(source))
    graph = csr_array((ones, (source, target)), shape=(len(nodes), len(nodes)))
    # From each node's targets on, so that a node reaches itself by a cycle only.
    reached = np.isfinite(shortest_path(graph, unweighted=True))
    pairs = (graph @ reached.astype(np.float64)) > 0
    x, z = np.nonzero(pairs)
    return np.sort(nodes[x] * _NODES + nodes[z])


def _asked_again(end: int, edges: pa.Table, pairs: int, verdict: Verdict) -> Iterator[Row]:
    """The closure from scratch by each system."""
    database = Recomputed({"e": edges}, {}, threads=1)
    systems: dict[str, Callable[[], int]] = {
        "this engine, a new view": lambda: _new_view(edges),
        "this engine, a query": _asking(edges),
        "DuckDB": lambda: database.step({}, 1, SQL).answer,
    }
    if find_spec("clingo") is not None:
        systems["clingo"] = lambda: _grounded(edges)
    for system, ask in systems.items():
        gc.collect()
        clock = Clock()
        answer = ask()
        seconds = clock.read().wall
        verdict.compare(f"{system} after {end}", f"the closure after {end}", answer)
        yield {
            "until": end,
            "edges": edges.num_rows,
            "pairs": pairs,
            "system": system,
            "seconds": seconds,
        }


def _new_view(edges: pa.Table) -> int:
    return int(compile_datalog(RULES, {"e": _SCHEMA}).step({"e": edges})["depends"].num_rows)


def _asking(edges: pa.Table) -> Callable[[], int]:
    """A circuit that keeps the edges, to be asked."""
    circuit = compile_datalog("kept(x, z) :- e(x, z).", {"e": _SCHEMA}, materialize=["e"])
    circuit.step({"e": edges})
    return lambda: int(circuit.query(RULES).num_rows)


def _grounded(edges: pa.Table) -> int:
    """The closure by clingo's grounder."""
    import clingo

    control = clingo.Control(["--warn=none"])
    rows = zip(*(column.to_pylist() for column in edges.columns), strict=True)
    facts = "".join(f"e({x},{z})." for x, z in rows)
    control.add("base", [], facts + "d(X,Z) :- e(X,Z). d(X,Z) :- e(X,Y), d(Y,Z).")
    control.ground([("base", [])])
    return sum(1 for _ in control.symbolic_atoms.by_signature("d", 2))


def _held(circuit: Circuit, end: int, edges: pa.Table) -> Row:
    """What the recursion holds, without the view that is kept to be read."""
    traces = {
        name: trace for name, trace in circuit._graph.traces.items() if name.startswith("relation")
    }
    settled = [
        trace
        for node in circuit._graph.nodes
        if node.inner
        for trace in getattr(node.operator, "traces", ())
    ]
    arranged = [a for trace in (*traces.values(), *settled) for a in trace.arrangements]
    pairs = circuit.views["depends"].num_rows
    size = sum(a.spine.nbytes for a in arranged)
    return {
        "until": end,
        "edges": edges.num_rows,
        "pairs": pairs,
        "derivations": sum(t.arrangements[0].spine.rows for t in settled),
        "rows held": sum(a.spine.rows for a in arranged),
        "MB": size / 1e6,
        "bytes/pair": size / pairs,
    }


def _stir(history: History) -> None:
    """A few transactions there and back, not counted: what they run is compiled then."""
    circuit = compile_datalog(RULES, {"e": _SCHEMA}, materialize=["depends"])
    for number in range(min(40, len(history))):
        circuit.step({"e": history.change(number)})
    edges = history.edges(min(40, len(history)))
    circuit.step({"e": edges.append_column("weight", pa.array(np.full(edges.num_rows, -1)))})
    _asking(edges)()


def _summary(history: History, steps: list[Row], again: list[Row]) -> list[Row]:
    """The median step by the median of each system over the second half of the history."""
    half = [row for row in again if _number(row["until"]) > len(history) / 2]
    step = statistics.median(
        _number(row["step ms"]) for row in steps if _number(row["until"]) > len(history) / 2
    )
    bars = {"this engine, a new view": ENGINE_BAR, "this engine, a query": ENGINE_BAR}
    bars["DuckDB"] = DUCKDB_BAR
    rows: list[Row] = []
    for system in dict.fromkeys(str(row["system"]) for row in half):
        seconds = statistics.median(
            _number(row["seconds"]) for row in half if row["system"] == system
        )
        times, bar = seconds * 1000 / step, bars.get(system)
        rows.append({
            "history": history.name,
            "system": system,
            "asked again s": seconds,
            "step ms": step,
            "times faster": times,
            "bar": bar,
            "within": None if bar is None else times >= bar,
        })  # fmt: skip
    return rows


def _number(cell: object) -> float:
    assert isinstance(cell, int | float)
    return float(cell)


if __name__ == "__main__":
    typer.run(main)
