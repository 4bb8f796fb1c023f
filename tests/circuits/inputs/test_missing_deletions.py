"""Rows that are deleted and were never inserted: kept, counted, and reported once."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circuits import InputOptions, compile_sql
from tests.support.tables import bag_of

E = {"e": pa.schema([("a", pa.int64()), ("b", pa.int64())])}
JOINED = "SELECT x.a, y.b FROM e x JOIN e y ON x.b = y.a"
COUNTED = "SELECT a, count(*) AS n FROM e GROUP BY a"
STEPS = st.lists(
    st.lists(
        st.tuples(st.integers(0, 1), st.integers(0, 1), st.sampled_from([-2, -1, 1])), max_size=4
    ),
    min_size=1,
    max_size=6,
)


def table_of(rows):
    columns = zip(*rows, strict=True) if rows else ((), (), ())
    return pa.table(dict(zip(("a", "b", "weight"), map(list, columns), strict=True))).cast(
        pa.schema([*E["e"], ("weight", pa.int64())])
    )


@pytest.mark.parametrize("sql", [JOINED, COUNTED, "SELECT DISTINCT a FROM e"])
@settings(max_examples=30, deadline=None)
@given(steps=STEPS)
def test_a_step_counts_the_rows_that_it_leaves_with_a_negative_weight(sql, steps):
    circuit = compile_sql(sql, E, materialize=["e"])
    present = Counter()
    for rows in steps:
        delta = Counter()
        for a, b, weight in rows:
            delta[a, b] += weight
        expected = sum(weight < 0 and present[row] + weight < 0 for row, weight in delta.items())
        step = circuit.prepare({"e": table_of(rows)})
        assert step.missing_deletions.get("e", 0) == expected
        step.commit()
        present.update(delta)
    assert bag_of(circuit.views["e"]) == Counter({row: n for row, n in present.items() if n})


@settings(max_examples=50, deadline=None)
@given(steps=STEPS)
def test_the_count_for_an_input_that_joins_read_is_a_lower_bound(steps):
    joined, materialized = compile_sql(JOINED, E), compile_sql(JOINED, E, materialize=["e"])
    for rows in steps:
        bound, exact = (
            circuit.prepare({"e": table_of(rows)}) for circuit in (joined, materialized)
        )
        assert bound.missing_deletions["e"] <= exact.missing_deletions["e"]
        bound.commit()
        exact.commit()


def test_missing_deletions_are_counted_only_for_inputs_whose_rows_the_state_contains():
    deleted = {"e": table_of([(1, 1, -1), (2, 2, 1)])}
    assert compile_sql(JOINED, E).prepare(deleted).missing_deletions == {"e": 1}
    assert compile_sql(COUNTED, E).prepare(deleted).missing_deletions == {}
    assert compile_sql(COUNTED, E, materialize=True).prepare(deleted).missing_deletions == {"e": 1}
    parts = "SELECT x.a FROM e x JOIN (SELECT a + 1 AS c FROM e WHERE b > 0) y ON x.a = y.c"
    assert compile_sql(parts, E).prepare(deleted).missing_deletions == {"e": 1}


def test_a_key_that_does_not_exist_may_be_deleted_and_a_strict_input_loses_nothing():
    deleted = {"e": table_of([(1, 1, -1)])}
    keyed = compile_sql(JOINED, E, input_options={"e": InputOptions(keys=("a",))}).prepare(deleted)
    assert (keyed.missing_deletions, keyed.rejected) == ({}, {})
    strict = compile_sql(JOINED, E, input_options={"e": InputOptions(strict=True)}).prepare(deleted)
    assert sum(strict.missing_deletions.values()) == 0 and strict.rejected["e"]


def test_only_rows_of_negative_weight_are_looked_up(monkeypatch):
    from dbsp_wcoj import Trace

    looked_up = []
    weights_of = Trace.weights_of
    monkeypatch.setattr(
        Trace,
        "weights_of",
        lambda self, rows: looked_up.append(len(rows)) or weights_of(self, rows),
    )
    circuit = compile_sql(JOINED, E, materialize=["e"])
    circuit.step({"e": table_of([(n, n + 1, 1) for n in range(500)])})
    circuit.step({"e": table_of([(n, n + 1, -1) for n in range(3)] + [(900, 1, 1)])})
    assert looked_up == [3]
