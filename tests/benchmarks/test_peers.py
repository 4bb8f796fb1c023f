"""Peers at tiny sizes: every driver is right, limits are reported, a wrong answer ends the run."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
import typer
from pyspark.sql import SparkSession

from benchmarks.cost import Cost
from benchmarks.graph import Graph, generate_graph
from benchmarks.peers import __main__ as command
from benchmarks.peers import bulk, live, process, truth, workload
from benchmarks.peers.job import Job, PhaseSteps
from benchmarks.peers.live import Live, Stream
from benchmarks.peers.pattern import CLIQUES, DIAMONDS, PATTERNS, TRIANGLES, Pattern, ring
from benchmarks.peers.roster import SYSTEMS
from benchmarks.peers.systems import BULK, KUZU, LIVE, Edges, Maintainer, Resources, System
from benchmarks.verdict import Verdict

TINY = generate_graph(5, 160, 3)
EDGES = np.stack([TINY.source, TINY.target])
MODULES = ("bulk", "job", "pattern", "truth", "usage", "workload")
MEMORY_LIMIT = 8 << 30


def count_assignments(pattern: Pattern, edges: Edges) -> int:
    """Count the rows of a pattern: try every assignment of nodes to variables."""
    existing = set(zip(*edges.tolist(), strict=True))
    nodes = sorted(set(edges.ravel().tolist()))
    total = 0
    for values in itertools.product(nodes, repeat=len(pattern.variables)):
        bound = dict(zip(pattern.variables, values, strict=True))
        total += all((bound[x], bound[y]) in existing for x, y in pattern.atoms) and all(
            bound[x] < bound[y] if sign == "<" else bound[x] != bound[y]
            for x, sign, y in pattern.comparisons
        )
    return total


def require_installed(system: System) -> System:
    """Skip the test if the package of the system is missing; return the system."""
    if importlib.util.find_spec(system.package.replace("-", "_")) is None:
        pytest.skip(f"{system.package} is not installed; the extra 'bench' has it")
    return system


@pytest.mark.parametrize("module", MODULES)
def test_examples_in_the_docstrings_hold(module: str) -> None:
    failures, _ = doctest.testmod(importlib.import_module(f"benchmarks.peers.{module}"))

    assert failures == 0


@pytest.mark.parametrize("name", ["triangles", "4-cliques", "diamonds", "3-rings", "4-rings"])
def test_the_truth_is_the_number_of_assignments(name: str) -> None:
    graph = generate_graph(4, 60, 1)
    edges = np.stack([graph.source, graph.target])

    assert truth.count_rows(PATTERNS[name], edges) == count_assignments(PATTERNS[name], edges) > 0


@pytest.mark.parametrize("name", ["5-rings", "6-rings"])
def test_the_truth_of_long_rings_is_the_number_of_assignments(name: str) -> None:
    graph = generate_graph(3, 60, 1)
    edges = np.stack([graph.source, graph.target])

    assert truth.count_rows(PATTERNS[name], edges) == count_assignments(PATTERNS[name], edges) > 0


def test_undirected_truth_counts_each_pattern_once() -> None:
    # A triangle with its edges in both directions, and one more edge.
    edges = np.array([[1, 2, 2, 3, 1, 3, 9], [2, 1, 3, 2, 3, 1, 1]])

    assert truth.count_rows(TRIANGLES, edges, undirected=True) == 1
    assert truth.count_rows(TRIANGLES, edges) == 6


def count_in_driver(system: System, pattern: Pattern, folder: Path) -> int:
    """Count the pattern once in a process of its own."""
    np.save(folder / "edges.npy", EDGES)
    job = Job(folder, system.name, pattern.name, "bulk", 1, MEMORY_LIMIT, 0.0)
    ended = process.run(job, require_installed(system), limit=60.0)
    assert ended.failure is None, ended.failure
    (counted,) = ended.messages_of("counted")
    return counted["answer"]


# Kùzu and its fork cannot be loaded into one process: their symbols have the same names.
@pytest.mark.parametrize("name", [system.name for system in BULK if system.module == "kuzu"])
def test_a_driver_in_its_own_process_counts_triangles_with_a_plan_of_its_kind(
    name: str, tmp_path: Path
) -> None:
    assert count_in_driver(SYSTEMS[name], TRIANGLES, tmp_path) == truth.count_rows(TRIANGLES, EDGES)


@pytest.mark.parametrize("pattern", [CLIQUES, DIAMONDS], ids=lambda pattern: pattern.name)
def test_kuzu_counts_other_patterns(pattern: Pattern, tmp_path: Path) -> None:
    assert count_in_driver(KUZU, pattern, tmp_path) == truth.count_rows(pattern, EDGES)


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=lambda pattern: pattern.name)
@pytest.mark.parametrize("name", ["dbsp_wcoj", "duckdb"])
def test_a_driver_counts_every_pattern(name: str, pattern: Pattern, tmp_path: Path) -> None:
    system = require_installed(SYSTEMS[name])

    with system.counter(pattern, EDGES, Resources(1, MEMORY_LIMIT, tmp_path)) as counter:
        answer = counter.count()

    assert answer == truth.count_rows(pattern, EDGES)


@pytest.mark.parametrize("pattern", [TRIANGLES, CLIQUES], ids=lambda pattern: pattern.name)
@pytest.mark.parametrize("name", [system.name for system in BULK if system.undirected])
def test_a_library_counts_undirected_patterns(name: str, pattern: Pattern, tmp_path: Path) -> None:
    system = require_installed(SYSTEMS[name])

    with system.counter(pattern, EDGES, Resources(1, MEMORY_LIMIT, tmp_path)) as counter:
        assert counter.count() == truth.count_rows(pattern, EDGES, undirected=True)


def test_a_plan_of_the_wrong_kind_is_refused() -> None:
    with pytest.raises(RuntimeError, match="kuzu should run a plan with INTERSECT"):
        KUZU.check("HASH_JOIN_PROBE over HASH_JOIN_BUILD")


def test_a_system_that_takes_too_long_is_stopped_with_its_children_and_its_cost_is_reported() -> (
    None
):
    busy = (
        "import subprocess, sys\n"
        'print(\'{"event": "count"}\', flush=True)\n'
        "subprocess.run([sys.executable, '-c', 'while True: pass'])"
    )

    ended = process.watch(["-c", busy], limit=0.6, memory=MEMORY_LIMIT)

    assert ended.failure == "stopped after 0.6 s"
    assert [message["event"] for message in ended.messages] == ["count"]
    assert ended.cost_since_message.cpu > 0
    assert 0.6 <= ended.cost_since_message.wall < 10


def test_a_system_that_loads_too_long_is_stopped() -> None:
    loading = 'print(\'{"event": "load"}\', flush=True)\nwhile True: pass'

    ended = process.watch(["-c", loading], limit=20.0, memory=MEMORY_LIMIT, loading=0.3)

    assert ended.failure == "stopped after 0.3 s of loading"


def test_a_system_that_uses_too_much_memory_is_stopped() -> None:
    greedy = (
        "chunks = []\n"
        'print(\'{"event": "count"}\', flush=True)\n'
        "while True: chunks.append(b'x' * 1_000_000)"
    )

    ended = process.watch(["-c", greedy], limit=20.0, memory=200 << 20)

    assert ended.failure == "out of memory at 0.195 GB"
    assert ended.peak > 200 << 20


def test_a_failure_is_reported_with_the_last_line_of_the_system() -> None:
    ended = process.watch(
        ["-c", "raise SystemExit('cannot go on')"], limit=20.0, memory=MEMORY_LIMIT
    )

    assert ended.failure == "failed: cannot go on"


def test_a_package_that_is_missing_is_reported(tmp_path: Path) -> None:
    np.save(tmp_path / "edges.npy", EDGES)
    missing = System("nothing", "no_such_driver", "no-such-package", "none")
    job = Job(tmp_path, "kuzu", "triangles", "bulk", 1, MEMORY_LIMIT, 1.0)

    ended = process.run(job, missing, limit=10.0)

    assert ended.failure == "not installed: no-such-package"


def run_quickly(tmp_path: Path, patch: pytest.MonkeyPatch, **options: object) -> dict:
    """Return the tables of a quick run that ends after its first graph."""
    path = tmp_path / "peers.json"
    for name in ("bulk_cases", "live_streams"):
        all_cases = getattr(workload, name)

        def first_case(*arguments, all_cases=all_cases, **options):
            return itertools.islice(all_cases(*arguments, **options), 1)

        patch.setattr(command, name, first_case)
    command.main(quick=True, json=path, **options)
    return json.loads(path.read_text())["tables"]


def test_a_quick_bulk_run_writes_the_rows_with_their_targets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_installed(KUZU)

    rows = run_quickly(tmp_path, monkeypatch, part="bulk", peers="kuzu", threads=[1])["BULK"]

    assert [(row["query"], row["system"]) for row in rows] == [
        ("triangles", "dbsp_wcoj"),
        ("triangles", "kuzu"),
    ]
    assert [row["target"] for row in rows] == [None, 10.0]
    assert all(row["met"] == (row["times faster"] >= 10) for row in rows[1::2])


def test_a_wrong_answer_ends_the_run_with_status_1_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bulk, "count_rows", lambda *_, **__: -1)

    with pytest.raises(typer.Exit) as stop:
        run_quickly(tmp_path, monkeypatch, part="bulk", peers="duckdb-delta", threads=[1])

    assert stop.value.exit_code == 1
    assert "wrong" in capsys.readouterr().out
    assert not (tmp_path / "peers.json").exists()


def test_plans_are_compared_where_both_kinds_ran() -> None:
    def row(system: str, method: str, seconds: float | None, note: str | None = None) -> dict:
        case = {"graph": "g", "query": "triangles", "threads": 2}
        return case | {"system": system, "method": method, "seconds": seconds, "note": note}

    table = bulk.plans(
        [
            row("dbsp_wcoj", "generic join", 0.5),
            row("kuzu", "WCO plan", 2.0),
            row("kuzu-binary", "binary joins", 60.0),
            row("dbsp_wcoj-binary", "binary joins", None, "out of memory at 8 GB"),
        ]
    )

    assert [(plan["system"], plan["binary/WCO"], plan["note"]) for plan in table] == [
        ("kuzu", 30.0, None),
        ("dbsp_wcoj", None, "out of memory at 8 GB"),
    ]
    assert (table[0]["WCO/engine"], table[0]["binary/engine"]) == (4.0, 120.0)


def test_an_unknown_peer_is_refused() -> None:
    with pytest.raises(typer.BadParameter, match="unknown peer 'oracle'; choose from dbsp_wcoj"):
        command.main(peers="oracle")


def test_a_peer_that_failed_on_a_graph_does_not_run_a_larger_one(tmp_path: Path) -> None:
    require_installed(SYSTEMS["duckdb"])
    verdict = Verdict()
    benchmark = bulk.Bulk(
        [SYSTEMS["duckdb"]], [1], 30.0, 30.0, 30.0, 1 << 20, verdict, lambda text: None
    )
    larger = Graph("larger", TINY.source, TINY.target)

    rows = benchmark.run([bulk.Case(TRIANGLES, TINY), bulk.Case(TRIANGLES, larger)])

    notes = [row["note"] for row in rows if row["system"] == "duckdb"]
    assert notes[0].startswith("out of memory")
    assert notes[1] == f"not run: did not finish on {TINY.name}"
    assert all(row["times faster"] is None for row in rows)


def test_a_plan_with_a_target_runs_on_every_graph(tmp_path: Path) -> None:
    require_installed(KUZU)
    benchmark = bulk.Bulk([KUZU], [1], 30.0, 30.0, 30.0, 1 << 20, Verdict(), lambda text: None)
    larger = Graph("larger", TINY.source, TINY.target)

    rows = benchmark.run([bulk.Case(TRIANGLES, TINY), bulk.Case(TRIANGLES, larger)])

    notes = [row["note"] for row in rows if row["system"] == "kuzu"]
    assert [note.startswith("out of memory") for note in notes] == [True, True]


def test_a_peer_that_fails_while_it_counts_gives_a_lower_bound() -> None:
    end = process.DriverRun([{"event": "count"}], "out of memory at 8 GB", Cost(12.0, 11.0), 0)

    row = bulk._peer_row(bulk.Case(TRIANGLES, TINY), KUZU, 1, end, Cost(1.0, 1.0))

    assert (row["times faster"], row["count"], row["met"]) == (12.0, None, True)
    assert row["note"] == "stopped after 12 s, out of memory at 8 GB"


def test_a_union_of_graphs_has_the_sum_of_their_counts() -> None:
    union = workload.disjoint_union([TINY, TINY])

    assert union.edges == 2 * TINY.edges
    single_count = truth.count_rows(TRIANGLES, EDGES)
    assert truth.count_rows(TRIANGLES, np.stack([union.source, union.target])) == 2 * single_count


SHUFFLED = generate_graph(6, 400, 2).shuffled(1)
STREAM = np.stack([SHUFFLED.source, SHUFFLED.target])
LOADED = 200  # edges of the stream that are loaded first


def steps_of(system: System) -> list[tuple[Edges, np.ndarray]]:
    """Return the edges and weights of an insert, a delete, an update and its reverse.

    For a system without deletes, return two inserts.
    """
    new_edges, loaded_edges = STREAM[:, LOADED : LOADED + 20], STREAM[:, :10]
    inserts, deletes = np.full(20, 1), np.full(20, -1)
    if not system.deletes:
        return [(new_edges, inserts), (STREAM[:, LOADED + 20 : LOADED + 40], inserts)]
    updated = np.concatenate([loaded_edges, new_edges[:, :10]], axis=1)
    weights = np.repeat([-1, 1], 10)
    return [
        (new_edges, inserts),
        (new_edges[:, ::-1], deletes),
        (updated, weights),
        (updated, -weights),
    ]


def check_steps(system: System, pattern: Pattern, maintainer: Maintainer) -> None:
    """Assert that the count after each step is the independent count of the edges so far."""
    current = set(zip(*STREAM[:, :LOADED].tolist(), strict=True))
    for edges, weights in steps_of(system):
        answer = maintainer.step(np.ascontiguousarray(edges), weights)
        for source, target, weight in zip(*edges.tolist(), weights.tolist(), strict=True):
            (current.add if weight > 0 else current.remove)((source, target))
        edges_now = np.array(sorted(current)).T
        assert answer == truth.count_rows(pattern, edges_now, undirected=system.undirected)


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=lambda pattern: pattern.name)
@pytest.mark.parametrize("name", ["dbsp_wcoj", "duckdb-delta"])
def test_a_maintained_count_is_right_after_every_step(
    name: str, pattern: Pattern, tmp_path: Path
) -> None:
    system = require_installed(SYSTEMS[name])

    with system.maintainer(
        pattern, STREAM[:, :LOADED], Resources(1, MEMORY_LIMIT, tmp_path)
    ) as maintainer:
        check_steps(system, pattern, maintainer)


@pytest.mark.parametrize("name", ["duckdb-recompute", "igraph-live", "networkx-live"])
def test_a_recount_is_right_after_every_step(name: str, tmp_path: Path) -> None:
    system = require_installed(SYSTEMS[name])

    with system.maintainer(
        TRIANGLES, STREAM[:, :LOADED], Resources(1, MEMORY_LIMIT, tmp_path)
    ) as maintainer:
        check_steps(system, TRIANGLES, maintainer)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("name", [system.name for system in LIVE if system.module == "spark"])
@pytest.mark.parametrize("pattern", [TRIANGLES, ring(3)], ids=lambda pattern: pattern.name)
def test_spark_is_right_after_every_step(
    name: str, pattern: Pattern, tmp_path: Path, spark: SparkSession
) -> None:
    from benchmarks.peers.systems.spark import session_maintainer

    system = SYSTEMS[name]
    resources, method = Resources(1, MEMORY_LIMIT, tmp_path), system.options["method"]
    with session_maintainer(
        spark, pattern, STREAM[:, :LOADED], resources, method=method
    ) as maintainer:
        check_steps(system, pattern, maintainer)


@pytest.mark.slow
@pytest.mark.parametrize(
    "pattern", [TRIANGLES, CLIQUES, DIAMONDS, ring(4)], ids=lambda pattern: pattern.name
)
@pytest.mark.parametrize("name", ["pathway", "pydbsp"])
def test_a_peer_with_an_environment_of_its_own_is_right_after_every_phase(
    name: str, pattern: Pattern
) -> None:
    system = SYSTEMS[name]
    if not system.installed:
        pytest.skip(f"{name} is not installed; `make bench` gives it an environment")
    verdict = Verdict()
    benchmark = Live([system], 1, 0.1, 30.0, 60.0, MEMORY_LIMIT, verdict, lambda text: None)
    graph = Graph("stream", *STREAM)

    rows = benchmark.run([Stream(pattern, graph, LOADED, (1, 20), (name,), "family")])

    assert verdict.differences == []
    assert [row["change"] for row in rows if row["system"] == name] == [
        "insert",
        "delete",
        "insert",
        "delete",
        "update",
    ]


def test_a_quick_live_run_gives_rates_for_the_engine_and_for_a_peer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = run_quickly(tmp_path, monkeypatch, part="live", peers="duckdb-delta")["LIVE"]

    changes = {(row["system"], row["batch"], row["change"]) for row in rows}
    assert changes == {
        (system, batch, change)
        for system in ("dbsp_wcoj", "duckdb-delta")
        for batch in (10, 100)
        for change in ("insert", "delete", "update")
    }
    assert all(row["edges/s"] > 0 and row["note"] is None for row in rows)


def test_the_engine_is_timed_on_exactly_the_steps_of_a_slow_peer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jobs: list[tuple[Job, process.DriverRun]] = []

    def run(job: Job, system: System, **limits: float) -> process.DriverRun:
        jobs.append((job, process.run(job, system, **limits)))
        return jobs[-1][1]

    monkeypatch.setattr(live, "run", run)
    verdict = Verdict()
    benchmark = Live(
        [SYSTEMS["duckdb-delta"]], 1, 0.0, 30.0, 60.0, MEMORY_LIMIT, verdict, lambda text: None
    )
    graph = Graph("stream", *STREAM)

    rows = benchmark.run([Stream(TRIANGLES, graph, LOADED, (1, 10), ("duckdb-delta",), "family")])

    (_, engine_alone), (_, peer), (engine_job, engine) = jobs
    # Within 0 seconds, each phase has one step.
    assert engine_alone.messages_of("measured")[0]["steps"] == 1
    peer_phases, engine_phases = peer.messages_of("measured"), engine.messages_of("measured")
    for name in ("batch", "change", "steps", "rows", "answer", "added", "deleted"):
        peer_values = [phase[name] for phase in peer_phases]
        assert [phase[name] for phase in engine_phases] == live.ENGINE_RUNS * peer_values
    assert (engine_job.system, engine_job.seconds, engine_job.deletes) == (
        "dbsp_wcoj",
        math.inf,
        True,
    )
    engine_walls = [phase["wall"] for phase in engine_phases[:: len(peer_phases)]]
    (first_row,) = [
        row
        for row in rows
        if (row["system"], row["batch"], row["change"]) == ("duckdb-delta", 1, "insert")
    ]
    assert first_row["times faster"] == peer_phases[0]["wall"] / float(np.median(engine_walls))
    assert verdict.differences == []


def test_a_peer_that_is_stopped_while_it_deletes_its_inserts_gives_a_lower_bound() -> None:
    def measured(change: str, wall: float) -> dict:
        times = dict.fromkeys(("wall", "cpu", "p50", "p99"), wall)
        return {
            "event": "measured",
            "batch": 100,
            "change": change,
            "steps": 2,
            "rows": 200,
        } | times

    started = [{"event": "phase", "batch": 100, "change": name} for name in ("insert", "delete")]
    peer = [started[0], measured("insert", 3.0), started[1]]
    ended = process.DriverRun(peer, "stopped after 9 s", Cost(9.0, 8.0), 0)
    engine_messages = [measured("insert", 0.001), measured("delete", 0.01)]
    engine = live._phases(process.DriverRun(engine_messages, None, Cost(0.0, 0.0), 0))
    stream = Stream(TRIANGLES, TINY, 10, (100,), ("pydbsp",), "family")

    rows = live._rows(stream, SYSTEMS["pydbsp"], 1, ended, live._phases(ended), engine)

    assert [(row["change"], row["times faster"], row["met"]) for row in rows] == [
        ("insert", 3_000.0, True),
        ("delete", 900.0, None),  # stopped before the target of 1,000 was reached
    ]
    assert (rows[1]["note"], rows[1]["edges/s"]) == ("stopped after 9 s", None)


def test_the_engine_deletes_nothing_if_the_peer_accepts_no_deletes() -> None:
    job = Job(Path(), "spark-streams", "triangles", "live", 1, MEMORY_LIMIT, 0.5, deletes=False)

    engine_job = live.same_steps(job, [{"batch": 10, "change": "insert", "steps": 3}])

    assert (engine_job.phases, engine_job.deletes) == ((PhaseSteps(10, "insert", 3),), False)


def test_a_peer_that_is_too_slow_to_load_has_a_row_that_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stopped = process.DriverRun([{"event": "load"}], "stopped after 9 s of loading", Cost(9, 9), 0)

    def run(job: Job, system: System, **limits: float) -> process.DriverRun:
        return stopped if system.name == "networkx-live" else process.run(job, system, **limits)

    monkeypatch.setattr(live, "run", run)
    peers = [SYSTEMS["networkx-live"]]
    benchmark = Live(peers, 1, 0.1, 5.0, 9.0, MEMORY_LIMIT, Verdict(), lambda text: None)
    graph = Graph("stream", *STREAM)
    stream = Stream(TRIANGLES, graph, LOADED, (10,), ("networkx-live",), "family")

    rows = benchmark.run([stream, stream])

    notes = [row["note"] for row in rows if row["system"] == "networkx-live"]
    assert notes == ["stopped after 9 s of loading", "not run: did not finish on triangles"]
