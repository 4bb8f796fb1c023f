"""Rows that make a step fail are found by bounded retries, and no good row is lost."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from circuits import InputOptions, InputOptionsError, StepLimitError, StepLimits, compile_sql
from dbsp_wcoj.errors import DbspWcojError
from streaming import RowError
from streaming.engine.failing_rows import MAX_LIMIT_HITS, isolate_failing_rows
from streaming.engine.prepare import prepare_batch
from streaming.sources.dead_letters import DeadLetters

ROWS = st.lists(st.integers(-3, 9), max_size=40)


class CountedAttempts:
    """A step that fails for rows below zero and for a sum above a limit; counts its attempts."""

    def __init__(self, limit=10**9):
        self.limit, self.steps, self.rows = limit, 0, 0

    def __call__(self, tables):
        values = [value for table in tables.values() for value in table["x"].to_pylist()]
        self.steps += 1
        self.rows += len(values)
        if any(value < 0 for value in values):
            raise DbspWcojError("below zero")
        if sum(values) > self.limit:
            raise DbspWcojError("too much")


def tables_of(*columns):
    return {str(n): pa.table({"x": pa.array(x, pa.int64())}) for n, x in enumerate(columns)}


def values(table):
    return table["x"].to_pylist()


@given(ROWS, ROWS, st.sampled_from([10**9, 30]))
def test_each_row_is_good_or_failing_and_the_good_ones_are_the_first_that_fit(first, second, limit):
    tables = tables_of(first, second)
    actual = isolate_failing_rows(tables, CountedAttempts(limit))
    assert actual.is_complete
    expected, total = {}, 0
    for name, table in tables.items():
        expected[name] = []
        for value in values(table):
            if 0 <= value <= limit - total:
                expected[name].append(value)
                total += value
    assert {name: values(table) for name, table in actual.good.items()} == expected
    bad = Counter((bad_row.relation, values(bad_row.row)[0]) for bad_row in actual.bad)
    given = Counter((name, value) for name, table in tables.items() for value in values(table))
    assert bad == given - Counter((n, v) for n, kept in expected.items() for v in kept)


def test_rows_that_fail_alone_are_found_in_few_times_the_rows():
    rows = np.ones(100_000, np.int64)
    rows[np.random.default_rng(0).choice(len(rows), 64, replace=False)] = -1
    tried = CountedAttempts()
    result = isolate_failing_rows(tables_of(rows), tried)
    assert len(result.bad) == 64 and len(values(result.good["0"])) == len(rows) - 64
    assert tried.rows < 12 * len(rows)


def test_the_search_ends_at_its_limits():
    result = isolate_failing_rows(tables_of([-1] * 5000), CountedAttempts())
    assert (result.is_complete, len(result.bad)) == (False, 1000)
    tried = CountedAttempts(limit=0)
    result = isolate_failing_rows(tables_of([1] * 100_000), tried)
    assert not result.is_complete and tried.rows < 101 * 100_000


SCHEMA = {"r": pa.schema([("k", pa.int64()), ("s", pa.string())])}


def batch(circuit, texts, **more):
    table = pa.table({"k": range(len(texts)), "s": texts})
    return prepare_batch(circuit, {"r": table}, DeadLetters.empty(), batch_id=7, **more)


def test_a_row_without_a_value_is_a_dead_letter_and_the_others_are_the_step():
    circuit = compile_sql("SELECT k, CAST(s AS BIGINT) AS n FROM r", SCHEMA)
    with pytest.raises(RowError, match=r'micro-batch 7: row .*"s": "x".*relation \'r\''):
        batch(circuit, ["1", "x", "3"], bad_rows="fail")
    kept = batch(circuit, ["1", "x", "3"], bad_rows="dead_letter")
    kept.step.commit()
    assert kept.dead_letters.table["row"].to_pylist() == ['{"k": 1, "s": "x"}']
    assert kept.dead_letters.table["batch_id"].to_pylist() == [7]
    assert kept.step.outputs["view"]["n"].to_pylist() == [1, 3]


def test_too_many_failing_rows_are_an_error_and_the_micro_batch_can_be_replayed():
    circuit = compile_sql("SELECT k, CAST(s AS BIGINT) AS n FROM r", SCHEMA)
    with pytest.raises(RowError, match=r"1000 were found.*smaller micro-batches"):
        batch(circuit, ["x"] * 1500, bad_rows="dead_letter")
    assert batch(circuit, ["1"] * 1500, bad_rows="dead_letter").step.outputs["view"].num_rows


def test_an_error_that_no_row_causes_is_raised_unchanged():
    circuit = compile_sql("SELECT k FROM r", SCHEMA, input_options={"r": InputOptions(keys=("k",))})
    with pytest.raises(InputOptionsError, match="has no retention"):
        batch(circuit, ["1"] * 500, bad_rows="dead_letter", watermarks={"r": 5})


class LimitedStep:
    """A step that produces as many rows as the sum of its values; its limit is 100 rows."""

    def __init__(self, limit: str = "max_step_rows") -> None:
        self.limit, self.steps = limit, 0

    def __call__(self, tables):
        self.steps += 1
        produced = sum(value for table in tables.values() for value in table["x"].to_pylist())
        if produced > 100:
            raise StepLimitError("too much", limit=self.limit)


def test_a_row_that_exceeds_a_limit_alone_is_a_failing_row():
    result = isolate_failing_rows(tables_of([1, 2, 500, 3], [101, 4]), LimitedStep())
    assert [values(result.good[name]) for name in "01"] == [[1, 2, 3], [4]]
    assert [(row.relation, values(row.row)) for row in result.bad] == [("0", [500]), ("1", [101])]


def test_rows_that_exceed_a_limit_only_together_are_not_failing_rows():
    with pytest.raises(StepLimitError, match="too much"):
        isolate_failing_rows(tables_of([60, 30], [60]), LimitedStep())


@pytest.mark.parametrize("limit", ["max_seconds", "memory"])
def test_a_limit_of_time_or_memory_is_not_attributed_to_a_row(limit):
    tried = LimitedStep(limit)
    with pytest.raises(StepLimitError):
        isolate_failing_rows(tables_of([1, 500]), tried)
    assert tried.steps == 2


def test_the_search_for_rows_beyond_a_limit_ends_soon():
    tried = LimitedStep()
    result = isolate_failing_rows(tables_of([101] * 100_000), tried)
    assert not result.is_complete
    assert tried.steps < 4 * MAX_LIMIT_HITS


KEYED = {name: pa.schema([("k", pa.int64()), ("x", pa.int64())]) for name in "ef"}
MATCHES = "SELECT e.x AS a, f.x AS b FROM e JOIN f ON e.k = f.k"


def matching():
    """A circuit in which a row of e with k = 1 makes 1,000 rows."""
    result = compile_sql(MATCHES, KEYED, limits=StepLimits(max_step_rows=500))
    result.step({"f": pa.table({"k": [1] * 1000 + [2], "x": range(1001)})})
    return result


def test_a_row_that_makes_too_many_rows_becomes_a_dead_letter():
    circuit = matching()
    rows = {"e": pa.table({"k": [2, 1, 2], "x": [7, 8, 9]})}
    batch = prepare_batch(circuit, rows, DeadLetters.empty(), bad_rows="dead_letter", batch_id=0)
    batch.step.commit()
    assert batch.step.outputs["view"].num_rows == 2
    (reason,) = batch.dead_letters.table["reason"].to_pylist()
    assert "view 'view'" in reason and "max_step_rows=500" in reason


def test_with_the_policy_fail_a_limit_ends_the_query_at_once(monkeypatch):
    circuit = matching()
    steps = []
    prepare = circuit.prepare

    def count_and_prepare(*given, **options):
        steps.append(given)
        return prepare(*given, **options)

    monkeypatch.setattr(circuit, "prepare", count_and_prepare)
    with pytest.raises(StepLimitError, match="view 'view'"):
        prepare_batch(
            circuit,
            {"e": pa.table({"k": [2, 1], "x": [7, 8]})},
            DeadLetters.empty(),
            bad_rows="fail",
            batch_id=0,
        )
    assert len(steps) == 1


@pytest.mark.parametrize("bad_rows", ["fail", "dead_letter"])
def test_rows_that_are_too_many_together_end_the_query_and_change_nothing(bad_rows):
    circuit = compile_sql(MATCHES, KEYED, limits=StepLimits(max_step_rows=500))
    many = pa.table({"k": [1] * 100, "x": range(100)})
    with pytest.raises(StepLimitError, match="max_step_rows=500"):
        prepare_batch(
            circuit, {"e": many, "f": many}, DeadLetters.empty(), bad_rows=bad_rows, batch_id=0
        )
    assert circuit.step({"e": many.slice(0, 2), "f": many.slice(0, 2)})["view"].num_rows == 4
