"""Runs small maintained queries over generated graphs, and counts their work.

Every case loads most of a skewed graph in one step. Then it inserts the other edges in steps of 1
and of 32 rows, deletes them in another order, and at last replaces edges in steps that delete and
insert. The label of vertex v is v modulo 3. Seeds, rows and steps are fixed, so every count is the
same on every machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from benchmarks.graph import Graph, generate_graph
from benchmarks.result import Row
from circuits import compile_sql
from dbsp_wcoj import DeltaQuery, Trace, ZSet
from dbsp_wcoj.execution.profiler import Profiler

TRIANGLE: Final = "e(a, b), e(b, c), e(a, c)"
CLIQUE: Final = f"{TRIANGLE}, e(a, d), e(b, d), e(c, d)"
CYCLE: Final = "e(a, b), e(b, c), e(c, d), e(d, a)"
PATH: Final = "e(a, b), e(b, c), e(c, d), e(d, f)"
HOUSE: Final = f"{CYCLE}, e(a, f), e(b, f)"

# Name: the query and its formula.
QUERIES: Final[Mapping[str, tuple[str, str]]] = {
    "triangles, counted": (f"n() :- {TRIANGLE}", "collapsed"),
    "triangles, listed": (f"tri(a, b, c) :- {TRIANGLE}", "collapsed"),
    "triangles, recursive": (f"n() :- {TRIANGLE}", "recursive_flipped"),
    "4-cliques, counted": (f"n() :- {CLIQUE}", "collapsed"),
    "4-cliques, listed": (f"q(a, b, c, d) :- {CLIQUE}", "collapsed"),
    "4-cycles, counted": (f"n() :- {CYCLE}", "collapsed"),
    "paths of 4, counted": (f"n() :- {PATH}", "collapsed"),
    "2-paths by end": ("n(a, c) :- e(a, b), e(b, c), a != c", "collapsed"),
    "labelled triangles": (f"n() :- {TRIANGLE}, l0(a), l1(b), l2(c)", "collapsed"),
    "labelled 4-cliques": (f"n() :- {CLIQUE}, l0(a), l1(b), l2(c), l0(d)", "collapsed"),
    "labelled houses": (f"n() :- {HOUSE}, l0(a), l1(b), l2(c), l0(d), l1(f)", "collapsed"),
}
SQL: Final = """
    SELECT x.src, count(*) AS n, sum(y.dst) AS total
    FROM e x JOIN e y ON x.dst = y.src
    WHERE NOT EXISTS (SELECT 1 FROM e k WHERE k.src = x.src AND k.dst = y.dst)
    GROUP BY x.src
"""
SQL_NAME: Final = "SQL: aggregate over an antijoin"

_ONE_ROW_STEPS: Final = 24
_LARGE_STEPS: Final = 12
_LARGE_STEP_ROWS: Final = 32


@dataclass(frozen=True)
class Work:
    """The counted work of a stream of steps, and its state at the end.

    Attributes:
        weight_out: The sum of the absolute weights of the output deltas.
        joins: Executed generic joins.
        proposals: Values that atoms proposed.
        intersections: Values that other atoms were asked for.
        sorted: Rows sorted.
        built: Rows put into runs.
        merged: Rows moved by merging runs.
        runs: Runs of all spines.
        bytes: Bytes of all spines.
    """

    weight_out: int
    joins: int
    proposals: int
    intersections: int
    sorted: int
    built: int
    merged: int
    runs: int
    bytes: int

    def row(self, case: str) -> Row:
        """Return the row of the table."""
        return {
            "case": case,
            "weight out": self.weight_out,
            "joins": self.joins,
            "proposals": self.proposals,
            "intersections": self.intersections,
            "rows sorted": self.sorted,
            "rows into runs": self.built,
            "rows merged": self.merged,
            "runs": self.runs,
            "bytes": self.bytes,
        }


#: The columns that must not grow: all but the case and the weight of its output.
COUNTED: Final = tuple(Work(*([0] * 9)).row(""))[2:]


def count_work(case: str) -> Work:
    """Run a case, and count its work."""
    if case == SQL_NAME:
        return _run_circuit(_graph())
    query, formula = QUERIES[case]
    return _run_query(query, formula, _graph())


def case_names() -> tuple[str, ...]:
    """Return the names of all cases."""
    return (*QUERIES, SQL_NAME)


def steps(graph: Graph) -> Iterator[tuple[Graph, int | list[int]]]:
    """Yield the edges of each step, with their weight or weights."""
    changed = _ONE_ROW_STEPS + _LARGE_STEPS * _LARGE_STEP_ROWS
    loaded, streamed = graph.take(slice(changed, None)), graph.take(slice(0, changed))
    sizes = [1] * _ONE_ROW_STEPS + [_LARGE_STEP_ROWS] * _LARGE_STEPS
    yield loaded, 1
    for edges, sign in ((streamed, 1), (streamed.shuffled(2), -1)):
        start = 0
        for size in sizes:
            yield edges.take(slice(start, start + size)), sign
            start += size
    for start in range(0, 4 * _LARGE_STEP_ROWS, _LARGE_STEP_ROWS):
        # Delete some of the loaded edges, and insert as many of the others.
        deleted = loaded.take(slice(start, start + _LARGE_STEP_ROWS // 2))
        inserted = streamed.take(slice(start, start + _LARGE_STEP_ROWS // 2))
        changes = Graph(
            graph.name,
            np.concatenate([deleted.source, inserted.source]),
            np.concatenate([deleted.target, inserted.target]),
        )
        yield changes, [-1] * deleted.edges + [1] * inserted.edges


def _graph() -> Graph:
    return generate_graph(8, 2_400, 11).shuffled(1)


def _run_query(query: str, formula: str, graph: Graph) -> Work:
    view = DeltaQuery(query, formula=formula)
    vertices = np.arange(max(graph.source.max(), graph.target.max()) + 1)
    labels = {
        name: ZSet.from_columns([vertices[vertices % 3 == int(name[1:])]])
        for name in view.query.relations
        if name != "e"
    }
    if labels:
        view.step(labels)

    def step(edges: Graph, weights: list[int]) -> int:
        delta = view.step({"e": ZSet.from_columns([edges.source, edges.target], weights)})
        return int(np.abs(delta.weights).sum())

    return _count_steps(graph, step, lambda: ([view], view._relations.traces.values()))


def _run_circuit(graph: Graph) -> Work:
    columns = [pa.field(name, pa.int64(), nullable=False) for name in ("src", "dst")]
    circuit = compile_sql(SQL, {"e": pa.schema(columns)}, threads=1)

    def step(edges: Graph, weights: list[int]) -> int:
        table = pa.table({"src": edges.source, "dst": edges.target, "weight": weights})
        return int(np.abs(circuit.step({"e": table})["view"]["weight"].to_numpy()).sum())

    return _count_steps(
        graph, step, lambda: (list(circuit.graph.joins.values()), circuit.graph.traces.values())
    )


def _count_steps(
    graph: Graph,
    step: Callable[[Graph, list[int]], int],
    read_state: Callable[[], tuple[list[DeltaQuery], object]],
) -> Work:
    """Run all steps and count their work; the profiler gets a constant clock, so it only counts.

    Args:
        graph: The edges.
        step: Runs a step of edges and their weights; returns the sum of the absolute weights of the
            output delta.
        read_state: Returns the joins and the traces after the last step.
    """
    weight_out = 0
    with Profiler(lambda: 0.0) as profiler:
        for edges, weight in steps(graph):
            weight_out += step(edges, [weight] * edges.edges if isinstance(weight, int) else weight)
    views, traces = read_state()
    stats = [view.stats for view in views]
    spines = [
        arrangement.spine
        for trace in traces
        if isinstance(trace, Trace)
        for arrangement in trace.arrangements
    ]
    rows = {name: phase.rows for name, phase in profiler.phases.items()}
    return Work(
        weight_out=weight_out,
        joins=sum(view_stats.joins for view_stats in stats),
        proposals=sum(view_stats.proposals for view_stats in stats),
        intersections=sum(view_stats.intersections for view_stats in stats),
        sorted=rows.get("sort", 0) + rows.get("collect", 0),
        built=rows.get("build runs", 0),
        merged=rows.get("merge", 0),
        runs=sum(len(spine.runs) for spine in spines),
        bytes=sum(spine.nbytes for spine in spines),
    )
