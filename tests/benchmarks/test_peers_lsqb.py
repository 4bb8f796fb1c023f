"""The part LSQB of the peers at a tiny size: every system is right after each step."""

from __future__ import annotations

import importlib.util
import itertools
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest
import typer
from pyspark.sql import SparkSession

from benchmarks import lsqb
from benchmarks.cost import Cost
from benchmarks.peers import __main__ as command
from benchmarks.peers import lsqb as lsqb_peers
from benchmarks.peers import process, workload
from benchmarks.peers.lsqb_cypher import CYPHER
from benchmarks.peers.lsqb_joins import JOINS, PARTS, delta_sql
from benchmarks.peers.roster import SYSTEMS
from benchmarks.peers.systems import ENGINE, LSQB, Resources, System, View
from benchmarks.result import Result
from benchmarks.verdict import Verdict

MEMORY_LIMIT = 8 << 30


def generate_network(seed: int) -> dict[str, pa.Table]:
    """Generate every relation of the benchmark over a few ids; posts and comments share no id."""
    random = np.random.default_rng(seed)
    first_id_and_count = {"Post": (100, 8), "Comment": (200, 10)}

    def ids(entity: str) -> np.ndarray:
        first, count = first_id_and_count.get(entity, (0, 5))
        return np.arange(first, first + count)

    relations = {"Forum": pa.table({"forum": ids("Forum"), "ts": ids("Forum") + 70})}
    for name in sorted(set().union(*(read_names(query) for query in lsqb.QUERIES)) - {"Forum"}):
        start, _, end = name.split("_")
        pairs = np.array(list(itertools.product(ids(start), ids(end))))
        if start == end:
            pairs = pairs[pairs[:, 0] < pairs[:, 1]]
        chosen = random.permutation(pairs)[: 4 + len(pairs) // 3]
        relations[name] = pa.table(dict(zip(COLUMNS[name], chosen.T, strict=True)))
    return relations


def read_names(query: str) -> set[str]:
    """Return the names of the relations that a query reads."""
    return set(lsqb.select_relations(dict.fromkeys(COLUMNS), query))


COLUMNS = {
    "City_isPartOf_Country": ("city", "country"),
    "Comment_hasCreator_Person": ("comment", "person"),
    "Comment_hasTag_Tag": ("comment", "tag"),
    "Comment_replyOf_Comment": ("comment", "parent"),
    "Comment_replyOf_Post": ("comment", "post"),
    "Forum": ("forum", "ts"),
    "Forum_containerOf_Post": ("forum", "post"),
    "Forum_hasMember_Person": ("forum", "person"),
    "Person_hasInterest_Tag": ("person", "tag"),
    "Person_isLocatedIn_City": ("person", "city"),
    "Person_knows_Person": ("person1", "person2"),
    "Person_likes_Comment": ("person", "comment"),
    "Person_likes_Post": ("person", "post"),
    "Post_hasCreator_Person": ("post", "person"),
    "Post_hasTag_Tag": ("post", "tag"),
    "Tag_hasType_TagClass": ("tag", "tagclass"),
}
NETWORK = generate_network(1)


def count_in_python(query: str, relations: dict[str, set[tuple[int, ...]]]) -> int:
    """Count the rows of the joins of a query, extending them atom by atom."""
    total = 0
    for join in JOINS[query]:
        rows: list[dict[str, int]] = [{}]
        for relation, variables in join.atoms:
            facts = [
                fact[::-1] if swapped else fact
                for part, swapped in PARTS.get(relation, ((relation, False),))
                for fact in relations[part]
            ]
            rows = [
                row | bound
                for row in rows
                for fact in facts
                if row | (bound := dict(zip(variables, fact, strict=False))) == bound | row
            ]
        total += join.sign * sum(all(row[x] != row[y] for x, y in join.unequal) for row in rows)
    return total


def rows_of(table: pa.Table) -> set[tuple[int, ...]]:
    return set(zip(*table.to_pydict().values(), strict=True))


def recompute(query: str, relations: dict[str, pa.Table]) -> int:
    with duckdb.connect() as database:
        for name, rows in relations.items():
            database.register(name, rows)
        for name, text in lsqb.views_of(query).items():
            database.execute(f"CREATE VIEW {name} AS {text}")
        ((answer,),) = database.execute(lsqb.QUERIES[query]).fetchall()
    return answer


def steps_of(query: str) -> tuple[dict[str, pa.Table], list[lsqb.Step]]:
    relations = lsqb.select_relations(NETWORK, query)
    changing = {name: rows for name, rows in relations.items() if name != "Forum"}
    return relations, list(lsqb.alternate_changes(changing, lsqb.choose_rows(changing, 7, 3, 0)))


def check_view(query: str, view: View) -> None:
    """Assert that the count after each step is DuckDB's over the rows so far."""
    relations, steps = steps_of(query)
    current = {name: rows_of(table) for name, table in relations.items()}
    assert view.count() == recompute(query, relations)
    for weight, changed in steps:
        for name, table in changed.items():
            rows = rows_of(table)
            current[name] = current[name] | rows if weight > 0 else current[name] - rows
        tables = {
            name: pa.table(
                dict(zip(COLUMNS[name], np.array(sorted(rows), np.int64).T, strict=True))
            )
            for name, rows in current.items()
        }
        view.change(changed, weight)
        assert view.count() == recompute(query, tables)


def require_installed(name: str) -> System:
    """Skip the test if the package of the system is missing; return the system."""
    system = SYSTEMS[name]
    if importlib.util.find_spec(system.package.replace("-", "_")) is None:
        pytest.skip(f"{system.package} is not installed; the extra 'bench' has it")
    return system


@pytest.mark.parametrize("query", JOINS)
def test_the_joins_of_a_query_count_what_its_text_counts(query: str) -> None:
    relations = lsqb.select_relations(NETWORK, query)
    facts = {name: rows_of(table) for name, table in relations.items()}

    assert count_in_python(query, facts) == recompute(query, relations) > 0


def test_every_query_has_cypher_and_every_query_without_outer_joins_has_joins() -> None:
    assert list(CYPHER) == list(lsqb.QUERIES)
    assert set(lsqb.QUERIES) - set(JOINS) == {"q7"}


def test_a_delta_has_one_term_for_each_atom_that_changed() -> None:
    assert delta_sql("q9", {"Person_hasInterest_Tag"}).count("count") == 0
    assert delta_sql("q9", {"Person_hasInterest_Tag"}).count("coalesce") == 2
    assert delta_sql("q9", {"Person_knows_Person"}).count("coalesce") == 5
    assert delta_sql("q9", set()) == "SELECT sum(w) FROM (SELECT 0 AS w)"


@pytest.mark.parametrize(
    ("name", "query"),
    [
        *(("dbsp_wcoj", query) for query in lsqb.QUERIES),
        *(("duckdb-delta", query) for query in JOINS),
        ("duckdb-recompute", "q9"),  # the truth runs the same SQL
    ],
)
def test_a_view_is_right_after_every_step(name: str, query: str, tmp_path: Path) -> None:
    relations, _ = steps_of(query)
    driver, options = SYSTEMS[name].load_module(), SYSTEMS[name].options

    with driver.view(query, relations, Resources(1, MEMORY_LIMIT, tmp_path), **options) as view:
        check_view(query, view)


# Kùzu and its fork cannot be loaded into one process: their symbols have the same names.
@pytest.mark.parametrize("query", lsqb.QUERIES)
def test_kuzu_is_right_after_every_step(query: str, tmp_path: Path) -> None:
    system = require_installed("kuzu-recompute")
    relations, _ = steps_of(query)

    with system.view(query, relations, Resources(1, 1 << 30, tmp_path)) as view:
        check_view(query, view)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("query", ["q3", "q7", "q9"])
def test_spark_is_right_after_every_step(query: str, spark: SparkSession) -> None:
    from benchmarks.peers.systems.spark import session_view

    relations, _ = steps_of(query)

    check_view(query, session_view(spark, query, relations))


def run_queries(
    queries: tuple[str, ...], peers: list[System], verdict: Verdict, **limits: float
) -> list:
    network = lsqb.Network("tiny", NETWORK, queries, {})
    limits = {"seconds": 5.0, "limit": 30.0, "loading": 60.0} | limits
    benchmark = lsqb_peers.Lsqb(
        peers,
        1,
        rows=7,
        deletes=3,
        memory=MEMORY_LIMIT,
        verdict=verdict,
        progress=lambda _: None,
        runs_engine_twice=False,
        **limits,
    )
    return benchmark.run(network, 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ladybug-recompute", "pathway"])
def test_a_peer_in_its_own_process_is_right_after_every_step(name: str) -> None:
    if not SYSTEMS[name].installed:
        pytest.skip(f"{name} is not installed; `make bench` gives it an environment")
    verdict = Verdict()

    rows = run_queries(tuple(lsqb.QUERIES), [SYSTEMS[name]], verdict)

    assert verdict.differences == []
    notes = {row["note"] for row in rows if row["system"] == name}
    assert notes == ({None} if SYSTEMS[name].recounts else {None, "not written: an outer join"})


def run_quickly(tmp_path: Path, patch: pytest.MonkeyPatch, peers: str) -> Result:
    path = tmp_path / "peers.json"
    tiny = lsqb.Network("tiny", NETWORK, ("q2",), {})
    patch.setattr(command, "lsqb_network", lambda **_: tiny)
    command.main(part="lsqb", quick=True, peers=peers, json=path)
    return Result.read(path)


def test_a_quick_run_gives_a_row_for_each_system_and_keeps_the_other_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier = Result("peers", "", {"BULK": [{"n": 1}]}, {"commit": "a1", "Plans by": "another"})
    earlier.write(tmp_path / "peers.json")

    result = run_quickly(tmp_path, monkeypatch, "duckdb-recompute,duckdb-delta")

    rows = result.tables["LSQB"]
    assert [(row["system"], row["steps"], row["note"]) for row in rows] == [
        ("dbsp_wcoj", 4, None),
        ("duckdb-recompute", 4, None),
        ("duckdb-delta", 4, None),
    ]
    assert [row["times faster"] is None for row in rows] == [True, False, False]
    assert [row["times faster than the recount"] is None for row in rows] == [True, False, True]
    assert result.tables["BULK"] == [{"n": 1}]
    assert result.machine["BULK by"] == "None, commit a1, None"


def test_a_wrong_answer_is_reported_with_the_system_and_the_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wrong = process.DriverRun([stepped(5, 1.0) | {"answer": -1}], None, Cost(0.0, 0.0), 0)
    monkeypatch.setattr(lsqb_peers, "run", lambda *_, **__: wrong)
    verdict = Verdict()

    run_queries(("q2",), [], verdict)

    (difference,) = verdict.differences
    assert difference.startswith("dbsp_wcoj after 5 steps: -1, but q2 after 5 steps is ")


def test_an_unknown_part_is_refused() -> None:
    with pytest.raises(typer.BadParameter, match="unknown part 'lsbq'; choose from bulk, live"):
        command.main(part="lsbq")


def stepped(number: int, wall: float) -> dict:
    """Return the message of a driver after a step."""
    return {"event": "stepped", "number": number, "wall": wall, "count": wall / 2, "answer": 1}


def test_a_slow_peer_is_compared_with_the_engine_on_the_same_steps() -> None:
    walls = [9.0] * lsqb_peers.WARM_UP_STEPS + [1.0, 3.0, 100.0]
    engine = lsqb_peers._steps(
        process.DriverRun(
            [stepped(number, wall) for number, wall in enumerate(walls, 1)], None, Cost(0, 0), 0
        )
    )
    peer = [stepped(number, 8.0) for number in range(1, lsqb_peers.WARM_UP_STEPS + 3)]
    loaded = {"event": "loaded", "wall": 2.0, "answer": 1, "number": 0}
    recounted = {"event": "recounted", "count": 1.0, "answer": 1, "number": 0}
    ended = process.DriverRun([loaded, recounted, *peer], "stopped after 30 s", Cost(30.0, 0.0), 0)

    row = lsqb_peers._row(SYSTEMS["kuzu-recompute"], ended, [engine])

    assert (row["steps"], row["step ms"], row["times faster"]) == (2, 8_000.0, 4.0)
    assert (row["recount ms"], row["times faster than the recount"]) == (1_000.0, 0.5)


def test_a_peer_that_is_stopped_in_its_first_steps_gives_a_lower_bound() -> None:
    engine = [stepped(lsqb_peers.WARM_UP_STEPS + 1, 0.5)]
    loaded = {"event": "loaded", "wall": 2.0, "answer": 1, "number": 0}
    ended = process.DriverRun([loaded], "stopped after 30 s", Cost(30.0, 0.0), 0)

    row = lsqb_peers._row(SYSTEMS["duckdb-delta"], ended, [engine])

    assert (row["load s"], row["steps"], row["step ms"], row["times faster"]) == (2, None, None, 60)


def test_without_the_sample_a_network_is_generated(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(workload, "LSQB", tmp_path / "missing")

    network = workload.lsqb_network(quick=False, seed=0)

    assert (network.name, network.queries) == ("2,000 generated people", ("q3", "q6", "q9"))


def test_every_system_of_lsqb_is_listed_by_its_name() -> None:
    assert [SYSTEMS[system.name] for system in (ENGINE, *LSQB)] == [ENGINE, *LSQB]
