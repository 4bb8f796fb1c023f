"""The queries of Nexmark, each a whole program, against DuckDB after every step, with deletes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.nexmark import QUERIES, add_delta, oracle_answer, side_input, sql_program
from benchmarks.nexmark_events import generate
from circuits import compile_sql

EVENTS = 1_000


def test_the_events_have_the_published_ratios_and_hot_keys():
    tables = generate(0, 50_000)
    assert [tables[name].num_rows for name in ("person", "auction", "bid")] == [1000, 3000, 46_000]
    for name in ("person", "auction"):
        assert tables[name]["id"].to_pylist() == list(range(1000, 1000 + tables[name].num_rows))
    bids = tables["bid"]
    hot = np.mean(bids["auction"].to_numpy() % 100 == 0)
    assert 0.5 < hot < 0.52
    hot_bidders = np.mean(bids["bidder"].to_numpy() % 100 == 1)
    assert 0.75 < hot_bidders < 0.78
    assert tables["auction"]["seller"].to_numpy().max() < 2000


@pytest.mark.parametrize(
    "query",
    list(QUERIES),
)
def test_a_query_is_exact_after_every_step(query):
    circuit = compile_sql(sql_program(query))
    assert circuit.outputs == (query,)
    present = {"side_input": side_input()}
    answer: Counter[tuple[Any, ...]] = Counter()
    add_delta(answer, circuit.step({"side_input": side_input()})[query])
    random = np.random.default_rng(1)
    for number in range(4):
        # 20 ms between events: a step spans two tumbling windows, and some sessions end.
        batch = generate(number * EVENTS, EVENTS, seed=2, interval=20_000)
        changes = {}
        for name, rows in batch.items():
            old = present.get(name, rows[:0])
            is_deleted = random.random(old.num_rows) < (0.3 if number == 3 else 0.05)
            deleted = old.filter(pa.array(is_deleted))
            weights = np.repeat([1, -1], [rows.num_rows, deleted.num_rows])
            changes[name] = pa.concat_tables([rows, deleted]).append_column(
                "weight", pa.array(weights)
            )
            present[name] = pa.concat_tables([old.filter(pa.array(~is_deleted)), rows])
        add_delta(answer, circuit.step(changes)[query])
        assert {row: n for row, n in answer.items() if n} == dict(oracle_answer(query, present))
    assert answer
