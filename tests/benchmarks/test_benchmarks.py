"""The benchmarks at tiny sizes; a wrong count ends each of them with status 1."""

from __future__ import annotations

import ast
import doctest
import importlib
import json
import re
import sys
from dataclasses import replace
from importlib.metadata import packages_distributions
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from scipy.sparse import csr_array

import benchmarks
from benchmarks import circuits, datalog, history, live, lsqb, recursion, step_parts, toggles
from benchmarks.closure import NODES, closure
from benchmarks.counter import count
from benchmarks.encoding import measure_encoding
from benchmarks.engine import QUERY, count_of, count_once
from benchmarks.graph import Graph, generate_graph, read_graph
from benchmarks.recomputed import RecomputedQuery
from benchmarks.rmat import candidates, rmat
from benchmarks.verdict import Verdict
from dbsp_wcoj import DeltaQuery, ZSet
from tests.support.packaging import PROJECT, ROOT

TINY = generate_graph(7, 600, 3)
HERE = Path(live.__file__).parent
MODULES = sorted(
    ".".join(path.relative_to(HERE).with_suffix("").parts)
    for path in HERE.rglob("[a-z]*.py")
    if path.parent.name != "systems"  # each needs a peer's package
)


@pytest.fixture(autouse=True)
def few_repetitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Repeat the phases of `live` the least number of times, not for seconds."""
    monkeypatch.setattr(live, "REPEATED_SECONDS", 0.0)


def count_by_sparse_product(graph: Graph) -> int:
    nodes = int(max(graph.source.max(), graph.target.max())) + 1
    ones = np.ones(graph.edges, np.int64)
    adjacency = csr_array((ones, (graph.source, graph.target)), shape=(nodes, nodes))
    return int((adjacency @ adjacency).multiply(adjacency).sum())


@pytest.mark.parametrize("module", MODULES)
def test_examples_in_the_docstrings_hold(module: str) -> None:
    failures, _ = doctest.testmod(importlib.import_module(f"benchmarks.{module}"))

    assert failures == 0


def test_the_list_of_benchmarks_has_all_that_make_bench_runs() -> None:
    commands = re.findall(r"python -m (benchmarks[\w.]*)", (ROOT / "Makefile").read_text())
    listed = re.findall(r"``python -m ([\w.]+)``", benchmarks.__doc__ or "")

    assert commands and set(commands) <= set(listed)


def test_make_bench_installs_the_packages_that_the_benchmarks_import() -> None:
    def packages(requirements: list[str]) -> set[str]:
        names = set()
        for requirement in map(Requirement, requirements):
            if requirement.name == PROJECT["name"]:
                for extra in requirement.extras:
                    names |= packages(PROJECT["optional-dependencies"][extra])
            else:
                names.add(canonicalize_name(requirement.name))
        return names

    nodes = [
        node
        for path in HERE.rglob("*.py")
        if path.parent.name != "systems"  # a missing peer is left out
        for node in ast.walk(ast.parse(path.read_text()))
    ]
    modules = [a.name for node in nodes if isinstance(node, ast.Import) for a in node.names]
    modules += [str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)]
    own = {"benchmarks", "circuits", "dbsp_wcoj", "streaming"}
    roots = {module.partition(".")[0] for module in modules} - own - sys.stdlib_module_names
    installed = packages([*PROJECT["dependencies"], f"{PROJECT['name']}[demo,bench]"])
    origins = packages_distributions()
    missing = {
        root
        for root in roots | {"moto"}  # `python -m moto.server`
        if installed.isdisjoint(map(canonicalize_name, origins.get(root, [root])))
    }

    assert not missing


def test_rmat_is_deterministic_distinct_loop_free_and_sorted() -> None:
    first, repeated = rmat(8, 2_000, seed=1), rmat(8, 2_000, seed=1)
    different = rmat(8, 2_000, seed=2)

    pairs = list(zip(*(column.tolist() for column in first), strict=True))
    assert np.array_equal(first, repeated)
    assert pairs == sorted(set(pairs))
    assert all(source != target for source, target in pairs)
    assert pairs != list(zip(*(column.tolist() for column in different), strict=True))


def test_rmat_refuses_nodes_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match=r"scale 40 is outside 1\.\.31"):
        rmat(40, 10)


def test_candidates_are_the_smaller_lists_of_the_three_delta_terms() -> None:
    source, target = TINY.source.tolist(), TINY.target.tolist()
    out_degree = [sum(x == node for x in source) for node in range(128)]
    in_degree = [sum(x == node for x in target) for node in range(128)]

    total = sum(
        min(out_degree[x], out_degree[y])
        + min(in_degree[x], in_degree[y])
        + min(out_degree[x], in_degree[y])
        for x, y in zip(source, target, strict=True)
    )

    assert candidates(TINY.source, TINY.target) == pytest.approx(total / TINY.edges)


@pytest.mark.parametrize(("scale", "samples"), [(3, 10), (6, 900), (9, 4_000), (11, 30_000)])
def test_the_independent_counter_equals_a_product_of_sparse_matrices(
    scale: int, samples: int
) -> None:
    graph = generate_graph(scale, samples, 5).shuffled(0)

    assert count(graph.source, graph.target) == count_by_sparse_product(graph)


def test_the_independent_counter_gives_0_without_edges() -> None:
    empty = TINY.take(slice(0, 0))

    assert count(empty.source, empty.target) == 0


def test_reading_a_graph_drops_loops_and_duplicates(tmp_path: Path) -> None:
    path = tmp_path / "small.parquet"
    Graph("any", np.array([2, 1, 1, 3, 1]), np.array([3, 2, 2, 3, 3])).write(path)

    graph = read_graph(path)

    assert graph.name == "small"
    assert (graph.source.tolist(), graph.target.tolist()) == ([1, 1, 2], [2, 3, 3])


@pytest.mark.parametrize("threads", [1, 2])
def test_the_engine_counts_once_what_the_counter_counts(threads: int) -> None:
    counted = count_once(TINY.shuffled(1), threads)

    assert counted.answer == count(TINY.source, TINY.target)
    assert counted.index.wall > 0


def test_live_restores_the_state_after_every_batch_size(tmp_path: Path) -> None:
    path = tmp_path / "live.json"

    live.main(rmat=(7, 600), batch=[1, 10, 1000], seed=3, json=path)

    tables = json.loads(path.read_text())["tables"]
    (state,) = tables["Backfill and state"]
    preload = TINY.shuffled(4).take(slice(0, state["loaded"]))
    assert [(row["batch"], row["change"]) for row in tables["LIVE"]] == [
        (batch, change) for batch in (1, 10, 1000) for change in ("insert", "delete")
    ]
    assert state["count"] == count_by_sparse_product(preload)
    parts = tables["Parts of a step"]
    assert [row["batch"] for row in parts] == [1, 100]
    for row in parts:
        assert row["joins"] > 0
        assert row["joins"] + row["merges"] + row["rest"] == pytest.approx(row["us/edge"])


def test_the_parts_of_a_large_step_are_its_phases() -> None:
    view = DeltaQuery(QUERY)

    row = step_parts.measure_parts(view, TINY.name, TINY, 10_000)

    assert float(row["merges"] or 0) > 0
    assert count_of(view.step({"e": ZSet.from_columns([TINY.source, TINY.target])})) == count(
        TINY.source, TINY.target
    )


def test_live_with_two_threads_gives_the_same_counts() -> None:
    verdict = Verdict()

    (inserts, deletes), _, _ = live.measure_graph(
        TINY, (50,), rows=50, threads=2, seed=0, verdict=verdict
    )

    assert inserts["repetitions"] == deletes["repetitions"]
    assert float(inserts["ns/candidate"] or 0) > 0
    assert verdict.comparisons == 1 + 2 * int(inserts["repetitions"] or 0)
    assert verdict.differences == []


@pytest.mark.parametrize("hubs_are_joined", [False, True])
def test_toggled_edges_leave_the_view_as_it_was(hubs_are_joined: bool, monkeypatch) -> None:
    monkeypatch.setattr(toggles, "_WARM_UP_STEPS", 4)
    monkeypatch.setattr(toggles, "_STEPS", 4)
    # Two hubs, 0 and 1, with the triangles (0, 1, i) if they are joined.
    edges = [(hub, i) for hub in (0, 1) for i in range(2, 9)] + [(0, 1)] * hubs_are_joined
    source, target = np.array(edges, np.int64).T.copy()
    view = DeltaQuery(QUERY)
    view.step({"e": ZSet.from_columns([source, target])})

    row = toggles.toggle_edges(view, Graph("hubs", source, target))

    assert float(row["hubs us"] or 0) > 0
    assert count_of(view.step({"e": ZSet.from_rows([(0, 1)])})) == 7


def test_live_ends_with_status_1_on_a_wrong_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "count", lambda source, target: count(source, target) + 1)

    with pytest.raises(typer.Exit) as stop:
        live.main(rmat=(7, 600), batch=[100])

    assert stop.value.exit_code == 1


def test_live_gives_ratios_if_the_speed_of_the_machine_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    published = replace(next(iter(live.PUBLISHED.values())), rates={100: 1.0}, backfill=5.0)
    monkeypatch.setitem(live.PUBLISHED, TINY.name, published)

    steps, state, _ = live.measure_graph(
        TINY, (100, 1000), rows=50, threads=1, seed=0, verdict=Verdict()
    )
    live.compare_with_published(steps, state, machine_speed=2.0)
    inserts, without_figure = steps[0], steps[2]

    assert inserts["dogsdogsdogs here"] == 2.0
    assert inserts["times faster"] == pytest.approx(float(inserts["edges/CPU s"] or 0) / 2)
    assert "times faster" not in without_figure
    assert state["dogsdogsdogs here"] == 2.5


def run_small_circuits(json: Path | None = None) -> None:
    missing = Path("no such folder")
    circuits.main(
        missing, people=80, rows=20, steps=3, encoded_rows=50, encoding_steps=1, seed=1, json=json
    )


def test_views_are_compared_with_their_recomputation_and_the_state_is_restored(
    tmp_path: Path,
) -> None:
    run_small_circuits(tmp_path / "circuits.json")

    tables = json.loads((tmp_path / "circuits.json").read_text())["tables"]
    relations = lsqb.generate_network(80, 1)
    knows = {
        pair
        for a, b in zip(*relations["Person_knows_Person"].to_pydict().values(), strict=True)
        for pair in ((a, b), (b, a))
    }
    interests = relations["Person_hasInterest_Tag"]["person"].to_pylist()
    two_hops = [(a, d) for a, b in knows for c, d in knows if b == c and a != d]
    counts = {row["query"]: row["count"] for row in tables["SQL views"]}
    assert counts["q6"] == sum(interests.count(d) for _, d in two_hops)
    assert counts["q9"] == sum(interests.count(d) for a, d in two_hops if (a, d) not in knows)
    assert [row["steps"] for row in tables["SQL views"]] == [6, 6, 6]
    assert [row["values"] for row in tables["Encoding and decoding"]] == ["int", "string"]


def test_a_view_that_is_wrong_once_ends_the_run_with_status_1(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    step = RecomputedQuery.step

    def wrong(tables: RecomputedQuery, rows: dict, weight: int, query: str) -> object:
        recomputation = step(tables, rows, weight, query)
        return replace(recomputation, answer=recomputation.answer + 1)

    monkeypatch.setattr(RecomputedQuery, "step", wrong)

    with pytest.raises(typer.Exit) as stop:
        run_small_circuits(tmp_path / "no.json")

    assert stop.value.exit_code == 1
    assert not (tmp_path / "no.json").exists()


def test_encoding_and_decoding_are_parts_of_a_step() -> None:
    verdict = Verdict()

    row = measure_encoding("string", rows=500, steps=2, seed=0, verdict=verdict)

    assert (verdict.comparisons, verdict.differences) == (6, [])
    assert min(row["encode ms"], row["decode ms"]) > 0
    assert row["encode ms"] + row["decode ms"] < row["step ms"]
    assert row["steps"] == 4


def test_recomputation_deletes_rows_by_all_their_columns() -> None:
    rows = pa.table({"a": [1, 1, 2], "b": [1, 2, 2]})
    tables = RecomputedQuery(
        {"e": rows}, {"twice": "SELECT a FROM e UNION ALL SELECT b FROM e"}, threads=1
    )
    total = "SELECT sum(a)::BIGINT FROM twice"

    assert tables.step({"e": rows.slice(1, 1)}, -1, total).answer == 6
    assert tables.step({"e": rows.slice(1, 1)}, 1, total).answer == 9


def test_recursion_checks_the_maintained_closure_and_every_recomputation(
    tmp_path,
) -> None:
    path = tmp_path / "result.json"
    recursion.main(history=tmp_path / "none", transactions=60, samples=2, peer_seconds=0, json=path)

    tables = json.loads(path.read_text())["tables"]
    assert [row["until"] for row in tables["Steps"]] == [30, 60]
    assert {row["system"] for row in tables["Recomputation"]} >= {"DuckDB", recursion.STEP}
    assert all(row["bytes/pair"] > 0 for row in tables["State of the closure"])


def test_datalog_compares_every_program_from_scratch_and_after_changes(tmp_path) -> None:
    path, graph = tmp_path / "result.json", tmp_path / "ring.parquet"
    pq.write_table(pa.table({"src": [*range(20)], "dst": [*range(1, 20), 0]}), graph)
    datalog.main(nodes=40, changes=3, graph=graph, json=path)

    tables = json.loads(path.read_text())["tables"]
    maintained = [name for name, program in datalog.PROGRAMS.items() if program.changes]
    real = ["connected components, ring", "reachability, ring"]
    for rows, programs in (
        (tables["From scratch"], [*datalog.PROGRAMS, *real]),
        (tables["Changes of 1 %"], maintained),
    ):
        assert [row["program"] for row in rows] == programs
        assert all(row["rows"] > 0 for row in rows)
        assert rows[0]["DuckDB CPU s"] > 0
    assert [row["rows"] for row in tables["From scratch"][-2:]] == [20, 20]


def test_a_wrong_answer_of_a_datalog_program_ends_with_status_1(monkeypatch) -> None:
    monkeypatch.setattr(datalog, "sum_of_distances", lambda roads: -1, raising=True)
    with pytest.raises(typer.Exit) as stop:
        datalog.main(nodes=30, changes=1, only=["shortest paths"], graph=Path("missing"))

    assert stop.value.exit_code == 1


def test_a_wrong_closure_ends_with_status_1(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(recursion, "closure", lambda edges: np.arange(3))
    with pytest.raises(typer.Exit) as stop:
        recursion.main(history=tmp_path / "none", transactions=20, samples=1, peer_seconds=0)

    assert stop.value.exit_code == 1


def test_the_independent_closure_is_that_of_a_search_from_each_node() -> None:
    graph = history.generate_history(12, 40, seed=3).edges(40)
    edges = list(zip(*(column.to_pylist() for column in graph.columns), strict=True))
    reached = {x: {z for y, z in edges if y == x} for x, _ in edges}
    for _ in reached:
        reached = {
            x: nodes.union(*(reached.get(node, set()) for node in nodes))
            for x, nodes in reached.items()
        }
    expected = sorted(x * NODES + z for x, nodes in reached.items() for z in nodes)

    assert closure(graph).tolist() == expected
