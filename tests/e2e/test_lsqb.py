"""The nine LSQB queries, maintained on a real social network, against DuckDB at every step."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import lsqb
from circuits.circuit import Circuit
from circuits.compile import compile_sql
from tests.generators.lsqb import ANSWERS, FOLDER, needs_lsqb
from tests.oracles.duckdb_mirror import Mirror, RowNumbers

pytestmark = needs_lsqb

# The join of the chain q1 takes seconds; it is in the normal run once, and live among the slow.
QUICK = [query for query in ANSWERS if query != "q1"]


class Maintained:
    """The counts of some queries, by a circuit and by recomputation."""

    def __init__(self, *queries: str) -> None:
        relations = lsqb.select_relations(lsqb.load(FOLDER), *queries)
        schemas = {name: rows.schema for name, rows in relations.items()}
        self.mirror = Mirror(relations, lsqb.views_of(*queries))
        self.circuit: Circuit = compile_sql(
            lsqb.view_statements(*queries), schemas, outputs=queries
        )
        self.counts = dict.fromkeys(queries, 0)

    def shuffled(self, seed: int) -> RowNumbers:
        random = np.random.default_rng(seed)
        return {n: random.permutation(t.num_rows) for n, t in self.mirror.relations.items()}

    def step(self, places: RowNumbers, *, delete: bool = False) -> None:
        change = self.mirror.delete if delete else self.mirror.insert
        outputs = self.circuit.step(change(places))
        for query, output in outputs.items():
            rows = output.to_pylist()
            self.counts[query] += sum(row["n"] * row["weight"] for row in rows)

    def check(self) -> None:
        recomputed = {q: self.mirror.answer(lsqb.QUERIES[q])[0][0] for q in self.counts}
        assert self.counts == recomputed


def load_delete_and_insert_again(maintained: Maintained, steps: int) -> None:
    """The whole network in steps of all relations, in random order; then a random fifth."""
    order = maintained.shuffled(1)
    for step in range(steps):
        maintained.step({name: np.array_split(o, steps)[step] for name, o in order.items()})
        maintained.check()
    fifth = {name: o[: len(o) // 5] for name, o in maintained.shuffled(2).items()}
    maintained.step(fifth, delete=True)
    maintained.check()
    maintained.step(fifth)
    maintained.check()
    assert maintained.counts == {query: ANSWERS[query] for query in maintained.counts}


@pytest.mark.parametrize("query", ANSWERS)
def test_a_query_over_the_whole_network_gives_the_published_answer(query: str) -> None:
    maintained = Maintained(query)

    maintained.step(maintained.shuffled(0))

    assert maintained.counts == {query: ANSWERS[query]}


def test_queries_in_one_circuit_follow_inserts_and_deletes() -> None:
    load_delete_and_insert_again(Maintained(*QUICK), steps=3)


@pytest.mark.slow
@pytest.mark.parametrize("query", ANSWERS)
def test_a_query_follows_the_network_loaded_in_twenty_steps_and_a_fifth_deleted(query: str) -> None:
    load_delete_and_insert_again(Maintained(query), steps=20)
