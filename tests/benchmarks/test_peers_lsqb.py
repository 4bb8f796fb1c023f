"""LSQB of the peers at a tiny size: every system is right after each step."""

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
from benchmarks.peers import lsqb as race
from benchmarks.peers import process, workload
from benchmarks.peers.lsqb_cypher import CYPHER
from benchmarks.peers.lsqb_joins import JOINS, PARTS, delta_sql
from benchmarks.peers.roster import SYSTEMS
from benchmarks.peers.systems import ENGINE, LSQB, Resources, System, View
from benchmarks.result import Result
from benchmarks.verdict import Verdict

FEW = 8 << 30


def social_network(seed: int) -> dict[str, pa.Table]:
    """Every relation of the benchmark, at random over a few ids; a post is no comment."""
    random = np.random.default_rng(seed)
    kinds = {"Post": (100, 8), "Comment": (200, 10)}

    def ids(kind: str) -> np.ndarray:
        first, number = kinds.get(kind, (0, 5))
        return np.arange(first, first + number)

    relations = {"Forum": pa.table({"forum": ids("Forum"), "ts": ids("Forum") + 70})}
    for name in sorted(set().union(*(read_names(query) for query in lsqb.QUERIES)) - {"Forum"}):
        start, _, end = name.split("_")
        pairs = np.array(list(itertools.product(ids(start), ids(end))))
        if start == end:
            pairs = pairs[pairs[:, 0] < pairs[:, 1]]
        some = random.permutation(pairs)[: 4 + len(pairs) // 3]
        relations[name] = pa.table(dict(zip(COLUMNS[name], some.T, strict=True)))
    return relations


def read_names(query: str) -> set[str]:
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
NETWORK = social_network(1)


def by_python(query: str, relations: dict[str, set[tuple[int, ...]]]) -> int:
    """The count from the rows of its joins, extended atom by atom in Python."""
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


def facts_of(table: pa.Table) -> set[tuple[int, ...]]:
    return set(zip(*table.to_pydict().values(), strict=True))


def recount(query: str, relations: dict[str, pa.Table]) -> int:
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


def check(query: str, view: View) -> None:
    """The count after each step is DuckDB's over the rows that are there then."""
    relations, steps = steps_of(query)
    there = {name: facts_of(table) for name, table in relations.items()}
    assert view.count() == recount(query, relations)
    for weight, changed in steps:
        for name, table in changed.items():
            rows = facts_of(table)
            there[name] = there[name] | rows if weight > 0 else there[name] - rows
        now = {
            name: pa.table(
                dict(zip(COLUMNS[name], np.array(sorted(rows), np.int64).T, strict=True))
            )
            for name, rows in there.items()
        }
        view.change(changed, weight)
        assert view.count() == recount(query, now)


def installed(name: str) -> System:
    system = SYSTEMS[name]
    if importlib.util.find_spec(system.package.replace("-", "_")) is None:
        pytest.skip(f"{system.package} is not installed; the extra 'bench' has it")
    return system


@pytest.mark.parametrize("query", JOINS)
def test_the_joins_of_a_query_count_what_its_text_counts(query: str) -> None:
    relations = lsqb.select_relations(NETWORK, query)
    facts = {name: facts_of(table) for name, table in relations.items()}

    assert by_python(query, facts) == recount(query, relations) > 0


def test_every_query_has_a_text_for_each_language_but_one_whose_joins_are_outer() -> None:
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
        ("duckdb-recompute", "q9"),  # its texts are those that the truth is from
    ],
)
def test_a_view_is_right_after_every_step(name: str, query: str, tmp_path: Path) -> None:
    relations, _ = steps_of(query)
    driver, options = SYSTEMS[name].driver(), SYSTEMS[name].options

    with driver.view(query, relations, Resources(1, FEW, tmp_path), **options) as view:
        check(query, view)


# Kùzu and its fork cannot be loaded into one process: their symbols have the same names.
@pytest.mark.parametrize("query", lsqb.QUERIES)
def test_kuzu_is_right_after_every_step(query: str, tmp_path: Path) -> None:
    system = installed("kuzu-recompute")
    relations, _ = steps_of(query)

    with system.view(query, relations, Resources(1, 1 << 30, tmp_path)) as view:
        check(query, view)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("query", ["q3", "q7", "q9"])
def test_spark_is_right_after_every_step(query: str, spark: SparkSession) -> None:
    from benchmarks.peers.systems.spark import session_view

    relations, _ = steps_of(query)

    check(query, session_view(spark, query, relations))


def raced(queries: tuple[str, ...], peers: list[System], verdict: Verdict, **limits: float) -> list:
    network = lsqb.Network("tiny", NETWORK, queries, {})
    chosen = {"seconds": 5.0, "limit": 30.0, "loading": 60.0} | limits
    one = race.Lsqb(
        peers,
        1,
        rows=7,
        deletes=3,
        memory=FEW,
        verdict=verdict,
        progress=lambda _: None,
        again=False,
        **chosen,
    )
    return one.run(network, 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ladybug-recompute", "pathway"])
def test_a_peer_in_its_own_process_is_right_after_every_step(name: str) -> None:
    if not SYSTEMS[name].installed:
        pytest.skip(f"{name} is not installed; `make bench` gives it an environment")
    verdict = Verdict()

    rows = raced(tuple(lsqb.QUERIES), [SYSTEMS[name]], verdict)

    assert verdict.differences == []
    notes = {row["note"] for row in rows if row["system"] == name}
    assert notes == ({None} if SYSTEMS[name].recounts else {None, "not written: an outer join"})


def quick(tmp_path: Path, patch: pytest.MonkeyPatch, peers: str) -> Result:
    path = tmp_path / "peers.json"
    tiny = lsqb.Network("tiny", NETWORK, ("q2",), {})
    patch.setattr(command, "lsqb_network", lambda **_: tiny)
    command.main(part="lsqb", quick=True, peers=peers, json=path)
    return Result.read(path)


def test_a_quick_run_gives_a_row_for_each_system_and_keeps_the_other_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Result("peers", "", {"BULK": [{"n": 1}]}, {"commit": "a1", "Plans by": "another"})
    before.write(tmp_path / "peers.json")

    found = quick(tmp_path, monkeypatch, "duckdb-recompute,duckdb-delta")

    rows = found.tables["LSQB"]
    assert [(row["system"], row["steps"], row["note"]) for row in rows] == [
        ("dbsp_wcoj", 4, None),
        ("duckdb-recompute", 4, None),
        ("duckdb-delta", 4, None),
    ]
    assert [row["times faster"] is None for row in rows] == [True, False, False]
    assert [row["than the recount"] is None for row in rows] == [True, False, True]
    assert found.tables["BULK"] == [{"n": 1}]
    assert found.machine["BULK by"] == "None, commit a1, None"


def test_a_wrong_answer_is_told_with_the_system_and_the_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wrong = process.DriverRun([stepped(5, 1.0) | {"answer": -1}], None, Cost(0.0, 0.0), 0)
    monkeypatch.setattr(race, "run", lambda *_, **__: wrong)
    verdict = Verdict()

    raced(("q2",), [], verdict)

    (difference,) = verdict.differences
    assert difference.startswith("dbsp_wcoj after 5 steps: -1, but q2 after 5 steps is ")


def test_a_part_that_there_is_not_is_refused() -> None:
    with pytest.raises(typer.BadParameter, match="unknown part 'lsbq'; choose from bulk, live"):
        command.main(part="lsbq")


def stepped(number: int, wall: float) -> dict:
    return {"event": "stepped", "number": number, "wall": wall, "count": wall / 2, "answer": 1}


def test_a_slow_peer_is_compared_with_the_engine_on_the_steps_that_it_did() -> None:
    walls = [9.0] * race.WARM_UP_STEPS + [1.0, 3.0, 100.0]
    engine = race._steps(
        process.DriverRun([stepped(i, w) for i, w in enumerate(walls, 1)], None, Cost(0, 0), 0)
    )
    peer = [stepped(i, 8.0) for i in range(1, race.WARM_UP_STEPS + 3)]
    loaded = {"event": "loaded", "wall": 2.0, "answer": 1, "number": 0}
    faster = {"event": "recounted", "count": 1.0, "answer": 1, "number": 0}
    ended = process.DriverRun([loaded, faster, *peer], "stopped after 30 s", Cost(30.0, 0.0), 0)

    row = race._row(SYSTEMS["kuzu-recompute"], ended, [engine])

    assert (row["steps"], row["step ms"], row["times faster"]) == (2, 8_000.0, 4.0)
    assert (row["recount ms"], row["than the recount"]) == (1_000.0, 0.5)


def test_a_peer_that_is_stopped_in_its_first_steps_gives_a_lower_bound() -> None:
    engine = [stepped(race.WARM_UP_STEPS + 1, 0.5)]
    loaded = {"event": "loaded", "wall": 2.0, "answer": 1, "number": 0}
    ended = process.DriverRun([loaded], "stopped after 30 s", Cost(30.0, 0.0), 0)

    row = race._row(SYSTEMS["duckdb-delta"], ended, [engine])

    assert (row["load s"], row["steps"], row["step ms"], row["times faster"]) == (2, None, None, 60)


def test_the_network_of_a_checkout_without_the_sample_is_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(workload, "LSQB", tmp_path / "absent")

    network = workload.lsqb_network(quick=False, seed=0)

    assert (network.name, network.queries) == ("2,000 generated people", ("q3", "q6", "q9"))


def test_every_system_of_lsqb_is_known_by_its_name() -> None:
    assert [SYSTEMS[one.name] for one in (ENGINE, *LSQB)] == [ENGINE, *LSQB]
