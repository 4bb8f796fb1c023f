"""The queries of the LDBC Social Network Benchmark, maintained, against DuckDB after every step.

BI 1 to 20 and Interactive complex 1 to 14, over a small generated network. All tables arrive in
three parts in random order, so that edges arrive before their nodes. Then a fifth of all rows is
deleted, and half of these rows are inserted again.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from circuits import compile_sql
from tests.generators.snb import parameters, social_network
from tests.generators.snb_queries import QUERIES, VIEWS
from tests.oracles.duckdb_mirror import Mirror, RowNumbers
from tests.support.comparison import add_changes, comparable

TABLES = social_network(seed=1)
SCHEMAS = {name: rows.schema for name, rows in TABLES.items()}
#: The queries of the normal run: a recursion of each kind, a window, nested subqueries, lists.
QUICK = ("bi-14", "bi-15", "ic-1", "ic-10", "ic-14")


def program(text: str) -> str:
    """Return the statements of the views that a query reads, and of the query."""
    views = "".join(f"CREATE VIEW {name} AS {view};\n" for name, view in VIEWS.items())
    return f"{views}CREATE VIEW answer AS {text};"


def values(seed: int) -> dict[str, str]:
    return parameters(TABLES, seed)


def test_every_query_compiles():
    for name, text in QUERIES.items():
        circuit = compile_sql(program(text.format_map(values(1))), SCHEMAS, outputs=["answer"])
        assert circuit.outputs == ("answer",), name


@pytest.mark.parametrize("query", QUICK)
def test_a_query_is_exact_after_every_step(query):
    check(query, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("query", QUERIES)
def test_every_query_is_exact_after_every_step(query):
    assert any([check(query, seed) for seed in (1, 2, 3)]), "no answer has rows"


def check(query: str, seed: int) -> bool:
    """Compare a query with DuckDB after every step; return whether it ever has rows."""
    text = QUERIES[query].format_map(values(seed))
    circuit = compile_sql(program(text), SCHEMAS, outputs=["answer"])
    mirror = Mirror(TABLES, VIEWS)
    total: Counter[tuple[Any, ...]] = Counter()
    has_rows = False
    for number, (inserted, deleted) in enumerate(history(seed)):
        deltas = mirror.change({name: (inserted[name], deleted[name]) for name in TABLES})
        output = circuit.step(deltas)["answer"]
        total = add_changes(total, output)
        assert total == Counter(map(comparable, mirror.answer(text))), (query, seed, number)
        has_rows = has_rows or any(value not in (0, -1, None) for row in total for value in row)
    return has_rows


def history(seed: int) -> list[tuple[RowNumbers, RowNumbers]]:
    """Return the numbers of the rows that each step inserts and deletes."""
    random = np.random.default_rng(seed)
    order = {name: random.permutation(rows.num_rows) for name, rows in TABLES.items()}
    thirds = {name: np.array_split(numbers, 3) for name, numbers in order.items()}
    nothing = {name: numbers[:0] for name, numbers in order.items()}
    fifth = {name: numbers[: len(numbers) // 5] for name, numbers in order.items()}
    tenth = {name: numbers[: len(numbers) // 2] for name, numbers in fifth.items()}
    inserts = [({name: parts[n] for name, parts in thirds.items()}, nothing) for n in range(3)]
    return [*inserts, (nothing, fifth), (tenth, nothing)]
