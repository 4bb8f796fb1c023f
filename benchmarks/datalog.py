"""Datalog programs from papers, from scratch and under changes, compared with DuckDB and clingo.

Run with ``python -m benchmarks.datalog``. Papers about Datalog engines measure these programs:
transitive closure, same generation, connected components, reachability, shortest paths, Dyck
reachability, three pointer analyses (Andersen's; CSPA, a context-sensitive one; and one with
fields), and the classification of an ontology. The facts are generated, for ``--nodes`` nodes times
the scale of the program. For each program:

- the engine computes the view in one step, and then updates it in ``--changes`` steps. Each step
  deletes 0.5 % of the facts and inserts about as many new ones. The first of these steps also sorts
  the state that only changes read, which the load leaves unsorted;
- DuckDB computes the same with a recursive common table expression, if SQL can express the program
  so that the query terminates. The time to load its tables does not count. For components it uses
  ``USING KEY``, which keeps one value per node, as a minimum in a recursion does;
- clingo grounds the program, which computes its only model. The time to load the facts counts. It
  has no minimum in a recursion, so SciPy checks the shortest paths.

Each answer is the number of rows; for components the sum of the labels, and for shortest paths the
sum of the distances. All systems use one thread. The answers are compared from scratch and after
the last change.

Seconds from scratch, and those of the other systems, are medians of `REPETITIONS` runs in one
process. The table has the seconds of the first run as well. It can take several times as long, on
a virtual machine: its memory may be handed out by the host when the process first writes to it, at
about half a gigabyte per second, and the later runs use the same memory again.

The closure and the same generation of a graph of uniform random edges have hundreds of rows per
fact. They run only from scratch, and not in clingo. The same is true of components and reachability
on ``--graph``, a real graph, which run if its file exists. There, reachability starts at the 10
nodes with the most edges.

The graph G5K-0.001 has 5,000 nodes, and each of the possible edges with probability 0.001. Its
closure has 24.6 million pairs.

The rules of the ontology are those of the GALEN benchmark: completion rules of the description
logic EL. The facts are generated, because the real ones are not available. So the rows per CPU
second are the only figure to compare with published ones. The hierarchies of classes and of roles
have no cycles.
"""

from __future__ import annotations

import gc
import re
import statistics
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import typer
from numpy.typing import NDArray
from rich.console import Console
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

import dbsp_wcoj
from benchmarks.cost import Clock, Cost, PeakResidentMemory, median
from benchmarks.recomputed import RecomputedQuery
from benchmarks.result import Result, Row, terminal
from benchmarks.shared_data import SHARED
from benchmarks.verdict import Verdict
from circuits import Circuit, StepLimits, compile_datalog

__all__ = ["PROGRAMS", "main", "sum_of_distances"]

_CNR_2000: Final = SHARED / "data" / "graphs" / "cnr-2000.parquet"

CLAIM: Final = "A recursive view follows changes of its facts exactly; the other systems recompute."
Facts = Mapping[str, NDArray[np.int64]]  # each relation, one row per fact
ENGINE, DUCKDB, CLINGO, SCIPY = "this engine", "DuckDB", "clingo", "SciPy"


@dataclass(frozen=True)
class Program:
    """A Datalog program.

    Attributes:
        rules: The rules; variables are single letters.
        view: The relation whose rows are counted or summed.
        facts: For each relation of facts, the number of columns, and the number of facts per node;
            the number of all facts for a relation of `FIXED_RELATIONS`.
        sql: The query for DuckDB; None if SQL cannot express the program so that it terminates.
        is_summed: True if the answer is the sum of the last column, False if it is the number of
            rows.
        scale: Multiplies the number of nodes; larger for programs with few rows per node.
        changes: False to run it only from scratch.
        other_views: More relations whose rows are counted.
    """

    rules: str
    view: str
    facts: Mapping[str, tuple[int, float]]
    sql: str | None = None
    is_summed: bool = False
    scale: float = 1
    changes: bool = True
    other_views: tuple[str, ...] = ()

    @property
    def views(self) -> tuple[str, ...]:
        """All relations whose rows are counted."""
        return (self.view, *self.other_views)


EDGES: Final = {"edge": (2, 1.5)}
CLOSURE: Final = "tc(x, y) :- edge(x, y). tc(x, z) :- edge(x, y), tc(y, z)."
CLOSURE_SQL: Final = (
    "WITH RECURSIVE tc(a, b) AS (SELECT c0, c1 FROM edge UNION "
    "SELECT edge.c0, tc.b FROM edge JOIN tc ON edge.c1 = tc.a) SELECT count(*) FROM tc"
)
SAME_GENERATION: Final = (
    "sg(x, y) :- edge(p, x), edge(p, y), x != y. sg(x, y) :- edge(a, x), sg(a, b), edge(b, y)."
)
SAME_GENERATION_SQL: Final = (
    "WITH RECURSIVE sg(a, b) AS (SELECT e.c1, f.c1 FROM edge e JOIN edge f ON e.c0 = f.c0 "
    "WHERE e.c1 <> f.c1 UNION SELECT e.c1, f.c1 FROM sg JOIN edge e ON e.c0 = sg.a "
    "JOIN edge f ON f.c0 = sg.b) SELECT count(*) FROM sg"
)


def _closure_from_scratch(relation: str, facts_per_node: float, scale: float) -> Program:
    """Return the closure of a relation, which does not change."""
    return Program(
        CLOSURE.replace("edge", relation),
        "tc",
        {relation: (2, facts_per_node)},
        CLOSURE_SQL.replace("edge", relation),
        scale=scale,
        changes=False,
    )


PROGRAMS: Final[Mapping[str, Program]] = {
    "closure": Program(CLOSURE, "tc", EDGES, CLOSURE_SQL, scale=10),
    "closure, uniform edges": _closure_from_scratch("arc", 2.4, scale=6),
    "closure, G5K-0.001": _closure_from_scratch("link", 4.999, scale=12.5),
    "same generation": Program(
        SAME_GENERATION, "sg", {"edge": (2, 1.1)}, SAME_GENERATION_SQL, scale=20
    ),
    "same generation, uniform edges": Program(
        SAME_GENERATION.replace("edge", "arc"),
        "sg",
        {"arc": (2, 2.0)},
        SAME_GENERATION_SQL.replace("edge", "arc"),
        scale=4,
        changes=False,
    ),
    "connected components": Program(
        "cc(x, min(x)) :- edge(x, _). cc(y, min(y)) :- edge(_, y). "
        "cc(y, min(c)) :- cc(x, c), edge(x, y). cc(x, min(c)) :- cc(y, c), edge(x, y).",
        "cc",
        EDGES,
        "WITH RECURSIVE both_ways AS MATERIALIZED "
        "(SELECT c0, c1 FROM edge UNION SELECT c1, c0 FROM edge), "
        "cc(a, b) USING KEY (a) AS (SELECT DISTINCT c0, c0 FROM both_ways UNION "
        "SELECT e.c1 AS a, min(cc.b) AS b FROM cc JOIN both_ways e ON e.c0 = cc.a "
        "JOIN recurring.cc old ON old.a = e.c1 WHERE cc.b < old.b GROUP BY e.c1) "
        "SELECT sum(b) FROM cc",
        is_summed=True,
        scale=50,
    ),
    "reachability": Program(
        "reached(y) :- edge(x, y), x < 10. reached(y) :- reached(x), edge(x, y).",
        "reached",
        EDGES,
        "WITH RECURSIVE reached(a) AS (SELECT c1 FROM edge WHERE c0 < 10 UNION "
        "SELECT edge.c1 FROM reached JOIN edge ON edge.c0 = reached.a) "
        "SELECT count(*) FROM reached",
        scale=100,
    ),
    "shortest paths": Program(
        "path(y, min(d)) :- road(x, y, d), x < 10. "
        "path(y, min(c + d)) :- path(x, c), road(x, y, d).",
        "path",
        {"road": (3, 3.0)},
        is_summed=True,
        scale=20,
    ),
    "Dyck reachability": Program(
        "dyck(x, y) :- open(x, z, k), close(z, y, k). "
        "dyck(x, y) :- open(x, a, k), dyck(a, b), close(b, y, k). "
        "dyck(x, z) :- dyck(x, y), dyck(y, z).",
        "dyck",
        {"open": (3, 0.8), "close": (3, 0.8)},
        scale=20,
    ),
    "Andersen": Program(
        "pt(v, o) :- address(v, o). pt(v, o) :- assign(v, u), pt(u, o). "
        "pt(v, o) :- load(v, u), pt(u, w), pt(w, o). "
        "pt(w, o) :- store(v, u), pt(v, w), pt(u, o).",
        "pt",
        {"address": (2, 0.5), "assign": (2, 0.6), "load": (2, 0.2), "store": (2, 0.2)},
    ),
    "CSPA": Program(
        "vf(y, x) :- assign(y, x). vf(x, y) :- assign(x, z), ma(z, y). "
        "vf(x, y) :- vf(x, z), vf(z, y). ma(x, w) :- deref(y, x), va(y, z), deref(z, w). "
        "va(x, y) :- vf(z, x), vf(z, y). va(x, y) :- vf(z, x), ma(z, w), vf(w, y). "
        "vf(x, x) :- assign(x, _). vf(x, x) :- assign(_, x). "
        "ma(x, x) :- assign(x, _). ma(x, x) :- assign(_, x).",
        "va",
        {"assign": (2, 0.5), "deref": (2, 0.3)},
    ),
    "points-to with fields": Program(
        "vp(v, h) :- alloc(v, h). vp(v, h) :- assign(v, u), vp(u, h). "
        "hp(b, f, h) :- store(x, f, y), vp(x, b), vp(y, h). "
        "vp(v, h) :- load(v, x, f), vp(x, b), hp(b, f, h).",
        "vp",
        {"alloc": (2, 0.5), "assign": (2, 0.8), "store": (3, 0.3), "load": (3, 0.3)},
    ),
    "ontology": Program(
        "sub(x, z) :- isa(x, z). sub(x, z) :- sub(x, y), sub(y, z). "
        "rel(x, r, z) :- has(x, r, z). rel(x, r, z) :- sub(x, y), rel(y, r, z). "
        "sub(x, z) :- sub(y, w), some(w, r, z), rel(x, r, y). "
        "sub(x, z) :- both(y, w, z), sub(x, w), sub(x, y). "
        "rel(x, t, z) :- rel(x, r, z), subrole(r, t). "
        "rel(x, e, o) :- rel(x, y, z), chain(y, w, e), rel(z, w, o).",
        "sub",
        {
            "isa": (2, 1.2),
            "has": (3, 0.5),
            "some": (3, 0.1),
            "both": (3, 0.2),
            "subrole": (2, 4),
            "chain": (3, 2),
        },
        scale=50,
        other_views=("rel",),
    ),
}
# The runs of each system whose median is compared.
REPETITIONS: Final = 3
FIRST_RUN: Final = "first run CPU s"
# Columns of labels in relations of three columns, and of those of roles alone: fields, kinds of
# parentheses, lengths and roles.
MAX_LABEL: Final = 8
LABEL_COLUMNS: Final = {
    "store": (1,),
    "load": (2,),
    "open": (2,),
    "close": (2,),
    "road": (2,),
    "has": (1,),
    "some": (1,),
    "subrole": (0, 1),
    "chain": (0, 1, 2),
}
# Relations that have the same number of facts for any number of nodes, and do not change.
FIXED_RELATIONS: Final = ("subrole", "chain")


def main(
    nodes: Annotated[int, typer.Option(help="Nodes, times the scale of a program.")] = 400,
    changes: Annotated[int, typer.Option(help="Steps that change 1 % of the facts.")] = 10,
    only: Annotated[list[str] | None, typer.Option(help="Only these programs.")] = None,
    graph: Annotated[Path, typer.Option(help="Parquet file of a real graph.")] = _CNR_2000,
    seed: int = 0,
    json: Annotated[Path | None, typer.Option(help="Write the result here.")] = None,
) -> None:
    """Run all programs; exit status 1 if an answer is wrong."""
    verdict = Verdict()
    scratch: list[Row] = []
    live: list[Row] = []
    tables = {"From scratch": scratch, "Changes of 1 %": live}
    result = Result("datalog", CLAIM, tables)
    progress = terminal()
    dbsp_wcoj.warm_up()
    for name in only or PROGRAMS:
        progress.print(f"{name} ...")
        program = PROGRAMS[name]
        list(_run(name, program, 30, 2, seed, Verdict()))  # compiles the remaining kernels
        scratch_row, *live_rows = _run(name, program, nodes, changes, seed, verdict)
        scratch.append(scratch_row)
        live += live_rows
    if graph.is_file():
        scratch += _run_on_graph(graph, only, verdict, progress)
    verdict.close(result, json)


def _run_on_graph(
    path: Path, only: Collection[str] | None, verdict: Verdict, progress: Console
) -> Iterator[Row]:
    """Yield a row for each program on a real graph."""
    edges = np.stack([column.to_numpy() for column in pq.read_table(path).columns[:2]], axis=1)
    # Number the nodes by descending number of edges.
    order = np.argsort(-np.bincount(edges.ravel()), kind="stable")
    number = np.empty(len(order), np.int64)
    number[order] = np.arange(len(order))
    facts = {"edge": number[edges]}
    for name in ("connected components", "reachability"):
        if only and name not in only:
            continue
        progress.print(f"{name}, {path.stem} ...")
        program = PROGRAMS[name]
        _, answer, rows, ours = _run_from_scratch(program, facts)
        others = _compare(f"{name}, {path.stem}", program, facts, answer, verdict, clingo=False)
        yield _row(f"{name}, {path.stem}", facts, rows, ours, others, has_first_run=True)


def _run(
    name: str, program: Program, nodes: int, changes: int, seed: int, verdict: Verdict
) -> Iterator[Row]:
    """Yield the row from scratch, and the row of the changes unless the program has none."""
    generator = np.random.default_rng(seed)
    nodes = int(nodes * program.scale)
    facts = {
        relation: _new_facts(
            relation,
            columns,
            int(rate if relation in FIXED_RELATIONS else rate * nodes),
            nodes,
            generator,
        )
        for relation, (columns, rate) in program.facts.items()
    }
    circuit, answer, rows, ours = _run_from_scratch(program, facts)
    others = _compare(f"{name}, from scratch", program, facts, answer, verdict)
    yield _row(name, facts, rows, ours, others, has_first_run=True)
    if not program.changes:
        return
    steps: list[float] = []
    for _ in range(changes):
        tables = {}
        for relation, (columns, _) in program.facts.items():
            if relation in FIXED_RELATIONS:
                continue
            facts[relation], tables[relation] = _change(
                relation, columns, facts[relation], nodes, generator
            )
        clock = Clock()
        circuit.step(tables)
        steps.append(clock.read().cpu)
    answer, rows = _answer(circuit, program)
    others = _compare(f"{name}, after the changes", program, facts, answer, verdict)
    seconds = {"median CPU s of a step": statistics.median(steps), "first change CPU s": steps[0]}
    yield _row(name, facts, rows, seconds, others)


@dataclass(frozen=True)
class _StepCost:
    """CPU seconds of a step, and the largest resident memory of the process during it."""

    cpu: float
    peak_mb: float


def _first_step(program: Program, facts: Facts) -> tuple[Circuit, int, int, _StepCost]:
    """Run the program from scratch; return the circuit, the answer, its rows and the cost."""
    tables = {relation: _table(rows) for relation, rows in facts.items()}
    schemas = {relation: table.schema for relation, table in tables.items()}
    circuit = compile_datalog(
        program.rules, schemas, materialize=program.views, limits=StepLimits.off(), threads=1
    )
    gc.collect()
    memory, clock = PeakResidentMemory(), Clock()
    circuit.step(tables)
    cost = _StepCost(clock.read().cpu, memory.read() / 1e6)
    answer, rows = _answer(circuit, program)
    return circuit, answer, rows, cost


def _run_from_scratch(
    program: Program, facts: Facts
) -> tuple[Circuit, int, int, Mapping[str, float]]:
    """Run the program `REPETITIONS` times; return the last circuit, its answer, rows and figures.

    The answer and the number of rows are the same in each run.
    """
    costs = []
    results = set()
    circuit = None
    for _ in range(REPETITIONS):
        del circuit  # its memory is free before the next run
        circuit, answer, rows, cost = _first_step(program, facts)
        costs.append(cost)
        results.add((answer, rows))
    ((answer, rows),) = results
    return (
        circuit,
        answer,
        rows,
        {
            "CPU s": statistics.median([cost.cpu for cost in costs]),
            FIRST_RUN: costs[0].cpu,
            "peak MB": max(cost.peak_mb for cost in costs),
        },
    )


def _row(
    name: str,
    facts: Facts,
    rows: int,
    ours: Mapping[str, float],
    others: Mapping[str, Sequence[Cost]],
    *,
    has_first_run: bool = False,
) -> Row:
    """Return a row; the first of the figures ``ours`` are the seconds that are compared."""
    row: Row = {
        "program": name,
        "facts": sum(map(len, facts.values())),
        "rows": rows,
        **ours,
    }
    seconds = next(iter(ours.values()))
    for system in (DUCKDB, CLINGO):
        costs = others.get(system)
        cpu = None if costs is None else median(costs).cpu
        if system == DUCKDB:
            row[f"{system} CPU s"] = cpu
            if has_first_run:
                row[f"{system} {FIRST_RUN}"] = None if costs is None else costs[0].cpu
        row[f"times faster than {system}"] = None if cpu is None else cpu / seconds
    return row


def _compare(
    title: str,
    program: Program,
    facts: Facts,
    answer: int,
    verdict: Verdict,
    *,
    clingo: bool = True,
) -> dict[str, list[Cost]]:
    """Compute the answer in the other systems and compare it; return the cost of each run."""
    systems: dict[str, Callable[[], int]] = {}
    if (sql := program.sql) is not None:
        tables = {relation: _table(rows) for relation, rows in facts.items()}
        database = RecomputedQuery(tables, {}, threads=1)
        systems[DUCKDB] = lambda: database.answer(sql)
    if (
        clingo
        and program.changes
        and "min(" not in program.rules
        and find_spec("clingo") is not None
    ):
        systems[CLINGO] = lambda: _count_with_clingo(program, facts)
    if "road" in facts:
        systems[SCIPY] = lambda: sum_of_distances(facts["road"])
    costs: dict[str, list[Cost]] = {system: [] for system in systems}
    verdict.set_truth(title, answer)
    for system, answer_of in systems.items():
        for _ in range(1 if system == SCIPY else REPETITIONS):
            gc.collect()
            clock = Clock()
            other = answer_of()
            costs[system].append(clock.read())
            verdict.compare(system, title, other)
    return costs


def _answer(circuit: Circuit, program: Program) -> tuple[int, int]:
    """Return the answer of the program, and the number of rows of its views."""
    views = [circuit.views[view] for view in program.views]
    rows = sum([view.num_rows for view in views])
    if not program.is_summed:
        return rows, rows
    last = views[0].drop_columns("weight").columns[-1]
    return int(pc.sum(last).as_py() or 0), rows


def _count_with_clingo(program: Program, facts: Facts) -> int:
    """Ground the program with the facts; count the atoms of its view."""
    import clingo

    control = clingo.Control(["--warn=none"])
    rules = re.sub(r"\b([a-z])\b", lambda match: match.group().upper(), program.rules)
    lines = [
        f"{relation}({','.join(map(str, fact))})."
        for relation, rows in facts.items()
        for fact in rows.tolist()
    ]
    control.add("base", [], "".join(lines) + rules)
    control.ground([("base", [])])
    count = 0
    for view in program.views:
        head = re.findall(rf"\b{view}\(([^)]*)\)", program.rules)[0]
        count += sum(1 for _ in control.symbolic_atoms.by_signature(view, len(head.split(","))))
    return count


def sum_of_distances(roads: NDArray[np.int64]) -> int:
    """Return the sum, over all nodes, of the distance from the nearest of nodes 0 to 9.

    A path has at least one road. Nodes that no path reaches do not count.
    """
    size = int(roads[:, :2].max(initial=0)) + 2
    # One extra node stands for all starts, so that paths back to a start count, too.
    starts = roads[roads[:, 0] < 10].copy()
    starts[:, 0] = size - 1
    source, target, length = np.concatenate((roads, starts)).T
    pairs, position = np.unique(source * size + target, return_inverse=True)
    least = np.full(len(pairs), np.iinfo(np.int64).max)
    np.minimum.at(least, position, length)
    graph = csr_array((least, (pairs // size, pairs % size)), shape=(size, size))
    distances = dijkstra(graph, indices=size - 1)
    return int(distances[np.isfinite(distances)].sum())


def _new_facts(
    relation: str, columns: int, count: int, nodes: int, generator: np.random.Generator
) -> NDArray[np.int64]:
    """Return about ``count`` distinct random facts."""
    if relation == "link":
        # Each pair of different nodes with the same probability.
        pairs = nodes * (nodes - 1)
        drawn = generator.choice(pairs, generator.binomial(pairs, count / pairs), replace=False)
        source, target = np.divmod(np.sort(drawn), nodes - 1)
        return np.stack((source, target + (target >= source)), axis=1)
    rows = generator.integers(0, nodes, (count, columns))
    has_labels = columns == 3 or relation in FIXED_RELATIONS
    for column in LABEL_COLUMNS.get(relation, ()) if has_labels else ():
        rows[:, column] = generator.integers(1, MAX_LABEL + 1, count)
    if relation == "edge":
        # Mostly from smaller to larger numbers, so that chains are long.
        forward = generator.random(count) < 0.95
        rows[forward] = np.sort(rows[forward], axis=1)
    elif relation in ("isa", "subrole", "chain"):
        # From larger to smaller numbers; without cycles, because no number is repeated.
        rows = -np.sort(-rows, axis=1)
        rows = rows[(np.diff(rows, axis=1) != 0).all(axis=1)]
    return np.unique(rows, axis=0)


def _change(
    relation: str,
    columns: int,
    rows: NDArray[np.int64],
    nodes: int,
    generator: np.random.Generator,
) -> tuple[NDArray[np.int64], pa.Table]:
    """Delete 0.5 % of the facts and insert about as many; return the facts and the change."""
    count = max(len(rows) // 200, 1)
    deleted = generator.choice(len(rows), min(count, len(rows)), replace=False)
    drawn = _new_facts(relation, columns, count, nodes, generator)
    known = set(map(tuple, rows.tolist()))
    inserted = np.array(
        [row for row in drawn.tolist() if tuple(row) not in known], np.int64
    ).reshape(-1, columns)
    weights = np.repeat([-1, 1], [len(deleted), len(inserted)])
    table = _table(np.concatenate((rows[deleted], inserted)))
    kept = np.delete(rows, deleted, axis=0)
    return np.concatenate((kept, inserted)), table.append_column("weight", pa.array(weights))


def _table(rows: NDArray[np.int64]) -> pa.Table:
    schema = pa.schema(
        [pa.field(f"c{k}", pa.int64(), nullable=False) for k in range(rows.shape[1])]
    )
    return pa.Table.from_arrays([pa.array(column) for column in rows.T], schema=schema)


if __name__ == "__main__":
    typer.run(main)
