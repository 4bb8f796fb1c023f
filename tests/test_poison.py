"""Poisoned rows: found by trying, with bounded effort, and no good row is lost."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from circuits import RuleError, Rules, compile_sql
from dbsp_wcoj.errors import DbspWcojError
from streaming import RowError
from streaming.letters import Letters
from streaming.poison import isolated
from streaming.preparing import prepared

ROWS = st.lists(st.integers(-3, 9), max_size=40)


class Tried:
    """A step that fails for rows below zero, and for a sum above a limit; what was tried."""

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
def test_each_row_is_good_or_poison_and_the_good_ones_are_the_first_that_fit(one, two, limit):
    tables = tables_of(one, two)
    found = isolated(tables, Tried(limit))
    assert found.complete
    expected, total = {}, 0
    for name, table in tables.items():
        expected[name] = []
        for value in values(table):
            if 0 <= value <= limit - total:
                expected[name].append(value)
                total += value
    assert {name: values(table) for name, table in found.good.items()} == expected
    bad = Counter((each.relation, values(each.row)[0]) for each in found.bad)
    given = Counter((name, value) for name, table in tables.items() for value in values(table))
    assert bad == given - Counter((n, v) for n, kept in expected.items() for v in kept)


def test_rows_that_are_poison_by_themselves_cost_few_times_the_rows():
    rows = np.ones(100_000, np.int64)
    rows[np.random.default_rng(0).choice(len(rows), 64, replace=False)] = -1
    tried = Tried()
    found = isolated(tables_of(rows), tried)
    assert len(found.bad) == 64 and len(values(found.good["0"])) == len(rows) - 64
    assert tried.rows < 12 * len(rows)


def test_the_search_ends_when_there_is_too_much_to_find():
    found = isolated(tables_of([-1] * 5000), Tried())
    assert (found.complete, len(found.bad)) == (False, 1000)
    tried = Tried(limit=0)
    found = isolated(tables_of([1] * 100_000), tried)
    assert not found.complete and tried.rows < 101 * 100_000


SCHEMA = {"r": pa.schema([("k", pa.int64()), ("s", pa.string())])}


def batch(circuit, texts, **more):
    table = pa.table({"k": range(len(texts)), "s": texts})
    return prepared(circuit, {"r": table}, Letters.none(), batch_id=7, **more)


def test_a_row_without_a_value_is_a_letter_and_the_others_are_the_step():
    circuit = compile_sql("SELECT k, CAST(s AS BIGINT) AS n FROM r", SCHEMA)
    with pytest.raises(RowError, match=r'micro-batch 7: row .*"s": "x".*relation \'r\''):
        batch(circuit, ["1", "x", "3"], bad_rows="fail")
    kept = batch(circuit, ["1", "x", "3"], bad_rows="dead_letter")
    kept.step.commit()
    assert kept.letters.table["row"].to_pylist() == ['{"k": 1, "s": "x"}']
    assert kept.letters.table["batch_id"].to_pylist() == [7]
    assert kept.step.outputs["view"]["n"].to_pylist() == [1, 3]


def test_too_many_poisoned_rows_are_an_error_and_the_micro_batch_can_come_again():
    circuit = compile_sql("SELECT k, CAST(s AS BIGINT) AS n FROM r", SCHEMA)
    with pytest.raises(RowError, match=r"1000 were found.*smaller micro-batches"):
        batch(circuit, ["x"] * 1500, bad_rows="dead_letter")
    assert batch(circuit, ["1"] * 1500, bad_rows="dead_letter").step.outputs["view"].num_rows


def test_an_error_that_is_of_no_row_is_raised_as_it_is():
    circuit = compile_sql("SELECT k FROM r", SCHEMA, rules={"r": Rules(keys=("k",))})
    with pytest.raises(RuleError, match="kept for ever"):
        batch(circuit, ["1"] * 500, bad_rows="dead_letter", watermarks={"r": 5})
