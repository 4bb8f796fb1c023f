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

# q1, a join of a chain, takes seconds: the normal run loads it once, slow tests maintain it.
QUICK = [query for query in ANSWERS if query != "q1"]


class MaintainedCounts:
    """The counts of some queries, by a circuit and by recomputation."""

    def __init__(self, *queries: str) -> None:
        relations = lsqb.select_relations(lsqb.load(FOLDER), *queries)
        schemas = {name: rows.schema for name, rows in relations.items()}
        self.mirror = Mirror(relations, lsqb.views_of(*queries))
        self.circuit: Circuit = compile_sql(
            lsqb.view_statements(*queries), schemas, outputs=queries
        )
        self.counts = dict.fromkeys(queries, 0)

    def shuffle(self, seed: int) -> RowNumbers:
        """Return the numbers of all rows of each relation, in random order."""
        random = np.random.default_rng(seed)
        return {n: random.permutation(t.num_rows) for n, t in self.mirror.relations.items()}

    def step(self, row_numbers: RowNumbers, *, delete: bool = False) -> None:
        change = self.mirror.delete if delete else self.mirror.insert
        outputs = self.circuit.step(change(row_numbers))
        for query, output in outputs.items():
            rows = output.to_pylist()
            self.counts[query] += sum(row["n"] * row["weight"] for row in rows)

    def check(self) -> None:
        recomputed = {q: self.mirror.answer(lsqb.QUERIES[q])[0][0] for q in self.counts}
        assert self.counts == recomputed


def load_delete_and_insert_again(maintained: MaintainedCounts, steps: int) -> None:
    """Load all rows in random order in some steps, delete a random fifth, and insert it again."""
    order = maintained.shuffle(1)
    for step in range(steps):
        maintained.step({name: np.array_split(o, steps)[step] for name, o in order.items()})
        maintained.check()
    fifth = {name: o[: len(o) // 5] for name, o in maintained.shuffle(2).items()}
    maintained.step(fifth, delete=True)
    maintained.check()
    maintained.step(fifth)
    maintained.check()
    assert maintained.counts == {query: ANSWERS[query] for query in maintained.counts}


@pytest.mark.parametrize("query", ANSWERS)
def test_a_query_over_the_whole_network_gives_the_published_answer(query: str) -> None:
    maintained = MaintainedCounts(query)

    maintained.step(maintained.shuffle(0))

    assert maintained.counts == {query: ANSWERS[query]}


def test_queries_in_one_circuit_follow_inserts_and_deletes() -> None:
    load_delete_and_insert_again(MaintainedCounts(*QUICK), steps=3)


@pytest.mark.slow
@pytest.mark.parametrize("query", ANSWERS)
def test_a_query_follows_the_network_loaded_in_twenty_steps_and_a_fifth_deleted(query: str) -> None:
    load_delete_and_insert_again(MaintainedCounts(query), steps=20)
