"""Peers at tiny sizes: every driver is right, limits are reported, a wrong answer is fatal."""

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
from benchmarks.peers.job import Job, Steps
from benchmarks.peers.live import Live, Stream
from benchmarks.peers.pattern import CLIQUES, DIAMONDS, PATTERNS, TRIANGLES, Pattern, ring
from benchmarks.peers.roster import SYSTEMS
from benchmarks.peers.systems import BULK, KUZU, LIVE, Edges, Maintainer, Resources, System
from benchmarks.verdict import Verdict

TINY = generate_graph(5, 160, 3)
EDGES = np.stack([TINY.source, TINY.target])
MODULES = ("bulk", "job", "pattern", "truth", "usage", "workload")
FEW = 8 << 30


def by_assignments(pattern: Pattern, edges: Edges) -> int:
    """Every assignment of nodes to variables, tried one by one."""
    there = set(zip(*edges.tolist(), strict=True))
    nodes = sorted(set(edges.ravel().tolist()))
    total = 0
    for values in itertools.product(nodes, repeat=len(pattern.variables)):
        bound = dict(zip(pattern.variables, values, strict=True))
        total += all((bound[x], bound[y]) in there for x, y in pattern.atoms) and all(
            bound[x] < bound[y] if sign == "<" else bound[x] != bound[y]
            for x, sign, y in pattern.comparisons
        )
    return total


def installed(system: System) -> System:
    if importlib.util.find_spec(system.package.replace("-", "_")) is None:
        pytest.skip(f"{system.package} is not installed; the extra 'bench' has it")
    return system


@pytest.mark.parametrize("module", MODULES)
def test_examples_in_the_docstrings_hold(module: str) -> None:
    failures, _ = doctest.testmod(importlib.import_module(f"benchmarks.peers.{module}"))

    assert failures == 0


@pytest.mark.parametrize("name", ["triangles", "4-cliques", "diamonds", "3-rings", "4-rings"])
def test_the_truth_is_what_trying_all_assignments_gives(name: str) -> None:
    few = generate_graph(4, 60, 1)
    edges = np.stack([few.source, few.target])

    assert truth.count_rows(PATTERNS[name], edges) == by_assignments(PATTERNS[name], edges) > 0


@pytest.mark.parametrize("name", ["5-rings", "6-rings"])
def test_the_truth_of_long_rings_is_what_trying_all_assignments_gives(name: str) -> None:
    few = generate_graph(3, 60, 1)
    edges = np.stack([few.source, few.target])

    assert truth.count_rows(PATTERNS[name], edges) == by_assignments(PATTERNS[name], edges) > 0


def test_undirected_truth_counts_each_pattern_once() -> None:
    both = np.array([[1, 2, 2, 3, 1, 3, 9], [2, 1, 3, 2, 3, 1, 1]])

    assert truth.count_rows(TRIANGLES, both, undirected=True) == 1
    assert truth.count_rows(TRIANGLES, both) == 6


def bulk_answer(system: System, pattern: Pattern, folder: Path) -> int:
    np.save(folder / "edges.npy", EDGES)
    job = Job(folder, system.name, pattern.name, "bulk", 1, FEW, 0.0)
    ended = process.run(job, installed(system), limit=60.0)
    assert ended.failure is None, ended.failure
    (counted,) = ended.messages_of("counted")
    return counted["answer"]


# Kùzu and its fork cannot be loaded into one process: their symbols have the same names.
@pytest.mark.parametrize("name", [one.name for one in BULK if one.module == "kuzu"])
def test_a_driver_in_its_own_process_counts_triangles_with_the_plan_it_stands_for(
    name: str, tmp_path: Path
) -> None:
    assert bulk_answer(SYSTEMS[name], TRIANGLES, tmp_path) == truth.count_rows(TRIANGLES, EDGES)


@pytest.mark.parametrize("pattern", [CLIQUES, DIAMONDS], ids=lambda one: one.name)
def test_kuzu_counts_other_patterns(pattern: Pattern, tmp_path: Path) -> None:
    assert bulk_answer(KUZU, pattern, tmp_path) == truth.count_rows(pattern, EDGES)


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=lambda one: one.name)
@pytest.mark.parametrize("name", ["dbsp_wcoj", "duckdb"])
def test_a_driver_counts_every_pattern(name: str, pattern: Pattern, tmp_path: Path) -> None:
    system = installed(SYSTEMS[name])

    with system.counter(pattern, EDGES, Resources(1, FEW, tmp_path)) as counter:
        found = counter.count()

    assert found == truth.count_rows(pattern, EDGES)


@pytest.mark.parametrize("pattern", [TRIANGLES, CLIQUES], ids=lambda one: one.name)
@pytest.mark.parametrize("name", [one.name for one in BULK if one.undirected])
def test_a_library_counts_undirected_patterns(name: str, pattern: Pattern, tmp_path: Path) -> None:
    system = installed(SYSTEMS[name])

    with system.counter(pattern, EDGES, Resources(1, FEW, tmp_path)) as counter:
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

    ended = process.watch(["-c", busy], limit=0.6, memory=FEW)

    assert ended.failure == "stopped after 0.6 s"
    assert [message["event"] for message in ended.messages] == ["count"]
    assert ended.cost.cpu > 0.1
    assert 0.6 <= ended.cost.wall < 10


def test_a_system_that_never_ends_its_load_is_stopped_while_loading() -> None:
    loading = 'print(\'{"event": "load"}\', flush=True)\nwhile True: pass'

    ended = process.watch(["-c", loading], limit=20.0, memory=FEW, loading=0.3)

    assert ended.failure == "stopped after 0.3 s of loading"


def test_a_system_that_holds_too_much_memory_is_stopped() -> None:
    greedy = (
        "held = []\n"
        'print(\'{"event": "count"}\', flush=True)\n'
        "while True: held.append(b'x' * 1_000_000)"
    )

    ended = process.watch(["-c", greedy], limit=20.0, memory=200 << 20)

    assert ended.failure == "out of memory at 0.195 GB"
    assert ended.peak > 200 << 20


def test_a_system_that_fails_leaves_its_last_line() -> None:
    ended = process.watch(["-c", "raise SystemExit('cannot go on')"], limit=20.0, memory=FEW)

    assert ended.failure == "failed: cannot go on"


def test_a_package_that_is_missing_is_reported(tmp_path: Path) -> None:
    np.save(tmp_path / "edges.npy", EDGES)
    missing = System("nothing", "no_such_driver", "no-such-package", "none")
    job = Job(tmp_path, "kuzu", "triangles", "bulk", 1, FEW, 1.0)

    ended = process.run(job, missing, limit=10.0)

    assert ended.failure == "not installed: no-such-package"


def quick(tmp_path: Path, patch: pytest.MonkeyPatch, **options: object) -> dict:
    """The tables of a quick run that ends after its first graph."""
    path = tmp_path / "peers.json"
    for name in ("bulk_cases", "live_streams"):
        whole = getattr(workload, name)
        patch.setattr(
            command, name, lambda *a, whole=whole, **o: itertools.islice(whole(*a, **o), 1)
        )
    command.main(quick=True, json=path, **options)
    return json.loads(path.read_text())["tables"]


def test_a_quick_bulk_run_writes_the_rows_with_their_bars(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(KUZU)

    rows = quick(tmp_path, monkeypatch, part="bulk", peers="kuzu", threads=[1])["BULK"]

    assert [(row["query"], row["system"]) for row in rows] == [
        ("triangles", "dbsp_wcoj"),
        ("triangles", "kuzu"),
    ]
    assert [row["target"] for row in rows] == [None, 10.0]
    assert all(row["met"] == (row["times faster"] >= 10) for row in rows[1::2])


def test_a_wrong_answer_ends_the_race_with_status_1_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bulk, "count_rows", lambda *_, **__: -1)

    with pytest.raises(typer.Exit) as stop:
        quick(tmp_path, monkeypatch, part="bulk", peers="duckdb-delta", threads=[1])

    assert stop.value.exit_code == 1
    assert "wrong" in capsys.readouterr().out
    assert not (tmp_path / "peers.json").exists()


def test_plans_are_compared_where_both_kinds_ran() -> None:
    def row(system: str, method: str, seconds: float | None, note: str | None = None) -> dict:
        same = {"graph": "g", "query": "triangles", "threads": 2}
        return same | {"system": system, "method": method, "seconds": seconds, "note": note}

    table = bulk.plans(
        [
            row("dbsp_wcoj", "generic join", 0.5),
            row("kuzu", "WCO plan", 2.0),
            row("kuzu-binary", "binary joins", 60.0),
            row("dbsp_wcoj-binary", "binary joins", None, "out of memory at 8 GB"),
        ]
    )

    assert [(one["system"], one["binary by WCO"], one["note"]) for one in table] == [
        ("kuzu", 30.0, None),
        ("dbsp_wcoj", None, "out of memory at 8 GB"),
    ]
    assert (table[0]["WCO by this engine"], table[0]["binary by this engine"]) == (4.0, 120.0)


def test_an_unknown_peer_is_refused() -> None:
    with pytest.raises(typer.BadParameter, match="unknown peer 'oracle'; choose from dbsp_wcoj"):
        command.main(peers="oracle")


def test_a_peer_that_failed_on_a_graph_does_not_run_a_larger_one(tmp_path: Path) -> None:
    installed(SYSTEMS["duckdb"])
    verdict = Verdict()
    race = bulk.Bulk(
        [SYSTEMS["duckdb"]], [1], 30.0, 30.0, 30.0, 1 << 20, verdict, lambda text: None
    )
    small, larger = TINY, Graph("larger", TINY.source, TINY.target)

    rows = race.run([bulk.Case(TRIANGLES, small), bulk.Case(TRIANGLES, larger)])

    notes = [row["note"] for row in rows if row["system"] == "duckdb"]
    assert notes[0].startswith("out of memory")
    assert notes[1] == f"not run: failed on {TINY.name}"
    assert all(row["times faster"] is None for row in rows)


def test_a_plan_with_a_target_runs_on_every_graph(tmp_path: Path) -> None:
    installed(KUZU)
    race = bulk.Bulk([KUZU], [1], 30.0, 30.0, 30.0, 1 << 20, Verdict(), lambda text: None)
    larger = Graph("larger", TINY.source, TINY.target)

    rows = race.run([bulk.Case(TRIANGLES, TINY), bulk.Case(TRIANGLES, larger)])

    notes = [row["note"] for row in rows if row["system"] == "kuzu"]
    assert [note.startswith("out of memory") for note in notes] == [True, True]


def test_a_peer_that_fails_while_it_counts_gives_a_lower_bound() -> None:
    end = process.DriverRun([{"event": "count"}], "out of memory at 8 GB", Cost(12.0, 11.0), 0)

    row = bulk._peer_row(bulk.Case(TRIANGLES, TINY), KUZU, 1, end, Cost(1.0, 1.0))

    assert (row["times faster"], row["count"], row["met"]) == (12.0, None, True)
    assert row["note"] == "stopped after 12 s, out of memory at 8 GB"


def test_a_union_of_graphs_has_the_sum_of_their_counts() -> None:
    both = workload.disjoint_union([TINY, TINY])

    assert both.edges == 2 * TINY.edges
    once = truth.count_rows(TRIANGLES, EDGES)
    assert truth.count_rows(TRIANGLES, np.stack([both.source, both.target])) == 2 * once


STREAM = np.stack([*generate_graph(6, 400, 2).shuffled(1).__dict__.values()][1:])
HELD = 200


def steps_of(system: System) -> list[tuple[Edges, np.ndarray]]:
    """Inserts, and where they are taken deletes and updates, over and over the same edges."""
    new, old = STREAM[:, HELD : HELD + 20], STREAM[:, :10]
    plus, minus = np.full(20, 1), np.full(20, -1)
    if not system.deletes:
        return [(new, plus), (STREAM[:, HELD + 20 : HELD + 40], plus)]
    update = np.concatenate([old, new[:, :10]], axis=1), np.repeat([-1, 1], 10)
    return [(new, plus), (new[:, ::-1], minus), update, (update[0], -update[1])]


def check_steps(system: System, pattern: Pattern, maintainer: Maintainer) -> None:
    there = set(zip(*STREAM[:, :HELD].tolist(), strict=True))
    for edges, weights in steps_of(system):
        found = maintainer.step(np.ascontiguousarray(edges), weights)
        for source, target, weight in zip(*edges.tolist(), weights.tolist(), strict=True):
            (there.add if weight > 0 else there.remove)((source, target))
        now = np.array(sorted(there)).T
        assert found == truth.count_rows(pattern, now, undirected=system.undirected)


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=lambda one: one.name)
@pytest.mark.parametrize("name", ["dbsp_wcoj", "duckdb-delta"])
def test_a_maintained_count_is_right_after_every_step(
    name: str, pattern: Pattern, tmp_path: Path
) -> None:
    system = installed(SYSTEMS[name])

    with system.maintainer(pattern, STREAM[:, :HELD], Resources(1, FEW, tmp_path)) as maintainer:
        check_steps(system, pattern, maintainer)


@pytest.mark.parametrize("name", ["duckdb-recompute", "igraph-live", "networkx-live"])
def test_a_recount_is_right_after_every_step(name: str, tmp_path: Path) -> None:
    system = installed(SYSTEMS[name])

    with system.maintainer(TRIANGLES, STREAM[:, :HELD], Resources(1, FEW, tmp_path)) as maintainer:
        check_steps(system, TRIANGLES, maintainer)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("name", [one.name for one in LIVE if one.module == "spark"])
@pytest.mark.parametrize("pattern", [TRIANGLES, ring(3)], ids=lambda one: one.name)
def test_spark_is_right_after_every_step(
    name: str, pattern: Pattern, tmp_path: Path, spark: SparkSession
) -> None:
    from benchmarks.peers.systems.spark import session_maintainer

    system = SYSTEMS[name]
    resources, method = Resources(1, FEW, tmp_path), system.options["method"]
    with session_maintainer(spark, pattern, STREAM[:, :HELD], resources, method=method) as one:
        check_steps(system, pattern, one)


@pytest.mark.slow
@pytest.mark.parametrize(
    "pattern", [TRIANGLES, CLIQUES, DIAMONDS, ring(4)], ids=lambda one: one.name
)
@pytest.mark.parametrize("name", ["pathway", "pydbsp"])
def test_a_peer_with_an_environment_of_its_own_is_right_after_every_phase(
    name: str, pattern: Pattern
) -> None:
    system = SYSTEMS[name]
    if not system.installed:
        pytest.skip(f"{name} is not installed; `make bench` gives it an environment")
    verdict = Verdict()
    race = Live([system], 1, 0.1, 30.0, 60.0, FEW, verdict, lambda text: None)
    graph = Graph("stream", *STREAM)

    rows = race.run([Stream(pattern, graph, HELD, (1, 20), (name,), "one")])

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
    rows = quick(tmp_path, monkeypatch, part="live", peers="duckdb-delta")["LIVE"]

    changes = {(row["system"], row["batch"], row["change"]) for row in rows}
    assert changes == {
        (system, batch, change)
        for system in ("dbsp_wcoj", "duckdb-delta")
        for batch in (10, 100)
        for change in ("insert", "delete", "update")
    }
    assert all(row["edges/s"] > 0 and row["note"] is None for row in rows)


def test_the_engine_is_timed_on_just_the_steps_that_a_slow_peer_did(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jobs: list[tuple[Job, process.DriverRun]] = []

    def run(job: Job, system: System, **limits: float) -> process.DriverRun:
        jobs.append((job, process.run(job, system, **limits)))
        return jobs[-1][1]

    monkeypatch.setattr(live, "run", run)
    verdict = Verdict()
    race = Live([SYSTEMS["duckdb-delta"]], 1, 0.0, 30.0, 60.0, FEW, verdict, lambda text: None)
    graph = Graph("stream", *STREAM)

    rows = race.run([Stream(TRIANGLES, graph, HELD, (1, 10), ("duckdb-delta",), "one")])

    (_, own), (_, peer), (followed, engine) = jobs
    assert (
        own.messages_of("measured")[0]["steps"] == 1
    )  # at 0 s of allowance one step of each phase
    told = peer.messages_of("measured")
    for name in ("batch", "change", "steps", "rows", "answer", "added", "deleted"):
        once = [one[name] for one in told]
        assert [one[name] for one in engine.messages_of("measured")] == live.ENGINE_RUNS * once
    assert (followed.system, followed.seconds, followed.deletes) == ("dbsp_wcoj", math.inf, True)
    walls = [one["wall"] for one in engine.messages_of("measured")[:: len(told)]]
    (first,) = [
        row
        for row in rows
        if (row["system"], row["batch"], row["change"]) == ("duckdb-delta", 1, "insert")
    ]
    assert first["times faster"] == peer.messages_of("measured")[0]["wall"] / float(
        np.median(walls)
    )
    assert verdict.differences == []


def test_a_peer_that_is_stopped_while_it_takes_back_its_inserts_gives_a_lower_bound() -> None:
    def measured(change: str, wall: float) -> dict:
        times = dict.fromkeys(("wall", "cpu", "p50", "p99"), wall)
        return {
            "event": "measured",
            "batch": 100,
            "change": change,
            "steps": 2,
            "rows": 200,
        } | times

    begun = [{"event": "phase", "batch": 100, "change": name} for name in ("insert", "delete")]
    peer = [begun[0], measured("insert", 3.0), begun[1]]
    ended = process.DriverRun(peer, "stopped after 9 s", Cost(9.0, 8.0), 0)
    same = [measured("insert", 0.001), measured("delete", 0.01)]
    engine = live._phases(process.DriverRun(same, None, Cost(0.0, 0.0), 0))
    stream = Stream(TRIANGLES, TINY, 10, (100,), ("pydbsp",), "one")

    rows = live._rows(stream, SYSTEMS["pydbsp"], 1, ended, live._phases(ended), engine)

    assert [(row["change"], row["times faster"], row["met"]) for row in rows] == [
        ("insert", 3_000.0, True),
        ("delete", 900.0, None),  # of at least 1,000: it was stopped before that was known
    ]
    assert (rows[1]["note"], rows[1]["edges/s"]) == ("stopped after 9 s", None)


def test_the_engine_deletes_nothing_where_a_peer_takes_no_deletes() -> None:
    job = Job(Path(), "spark-streams", "triangles", "live", 1, FEW, 0.5, deletes=False)

    same = live.same_steps(job, [{"batch": 10, "change": "insert", "steps": 3}])

    assert (same.phases, same.deletes) == ((Steps(10, "insert", 3),), False)


def test_a_peer_that_is_too_slow_to_load_has_a_row_that_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stopped = process.DriverRun([{"event": "load"}], "stopped after 9 s of loading", Cost(9, 9), 0)

    def run(job: Job, system: System, **limits: float) -> process.DriverRun:
        return stopped if system.name == "networkx-live" else process.run(job, system, **limits)

    monkeypatch.setattr(live, "run", run)
    peers = [SYSTEMS["networkx-live"]]
    race = Live(peers, 1, 0.1, 5.0, 9.0, FEW, Verdict(), lambda text: None)
    graph = Graph("stream", *STREAM)
    stream = Stream(TRIANGLES, graph, HELD, (10,), ("networkx-live",), "one")

    rows = race.run([stream, stream])

    notes = [row["note"] for row in rows if row["system"] == "networkx-live"]
    assert notes == ["stopped after 9 s of loading", "not run: failed on triangles"]
