"""Values of 32 bits: runs on both sides of the limits hold the same rows as runs of words."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dbsp_wcoj import DeltaQuery, Query, Trace, ZSet
from dbsp_wcoj.errors import DbspWcojError
from dbsp_wcoj.kernels.storage import run_layout
from dbsp_wcoj.storage.parallel_build import write_in_parts
from dbsp_wcoj.storage.range_scan import range_scan
from dbsp_wcoj.storage.run import Merge, Run, run_words
from tests.generators.strategies import LAW, streams
from tests.oracles import naive
from tests.support.placed_index import place_index
from tests.support.wide_runs import widen

LEAST, GREATEST = -(2**31), 2**31 - 1
NEAR_LIMITS = (LEAST - 1, LEAST, LEAST + 1, -1, 0, 1, GREATEST - 1, GREATEST, GREATEST + 1)
WEIGHTS = st.sampled_from([-3, -1, 1, 2])


def zset(rows: dict[tuple[int, ...], int]) -> ZSet:
    columns = np.array([*rows], np.int64).T
    return ZSet.from_columns([*columns], np.array([*rows.values()], np.int64))


def build(rows: dict[tuple[int, ...], int]) -> Run:
    return Run.of(zset(rows), np.arange(len(next(iter(rows)))))


def rows_of(run: Run) -> dict[tuple[int, ...], int]:
    columns, weights = run.read()
    return dict(zip(zip(*columns.tolist(), strict=True), weights.tolist(), strict=True))


def fits(rows: dict[tuple[int, ...], int]) -> bool:
    return all(LEAST <= row[-1] <= GREATEST for row in rows)


@st.composite
def weighted_rows(draw: st.DrawFn, arity: int) -> dict[tuple[int, ...], int]:
    """Draw rows near the limits, often with all values within them; often of equal weights."""
    values = st.sampled_from(draw(st.sampled_from([NEAR_LIMITS, NEAR_LIMITS[1:-1]])))
    weights = draw(st.sampled_from([WEIGHTS, st.just(1), st.just(-2)]))
    row = st.tuples(*[values] * arity)
    return draw(st.dictionaries(row, weights, min_size=1, max_size=40))


ARITIES = st.integers(2, 4)


@LAW
@given(st.data(), ARITIES)
def test_a_run_is_narrow_if_the_last_values_fit_and_has_the_same_rows(data, arity):
    rows = data.draw(weighted_rows(arity))
    run = build(rows)
    assert run.is_narrow == fits(rows)
    assert rows_of(run) == rows
    assert run.find_damage() == ""
    wide = widen(run)
    assert rows_of(wide) == rows
    assert wide.find_damage() == ""
    stored = Run.from_words(run.to_words())
    assert rows_of(stored) == rows
    assert np.array_equal(stored.buffer, stored.to_words())
    for other in (run, wide, stored):
        columns, weights = other.read_rows(0, other.rows)
        assert columns.T.tolist() == [[*row] for row in sorted(rows)]
        assert weights.tolist() == [rows[row] for row in sorted(rows)]
        for key in [*rows, *[(*row[:-1], row[-1] + step) for row in rows for step in (-1, 1)]]:
            assert other.count_up_to(key) == sum(row <= key for row in rows)


@LAW
@given(st.data(), ARITIES)
def test_sums_of_narrow_and_wide_runs_are_those_of_their_rows(data, arity):
    older, newer = (data.draw(weighted_rows(arity)) for _ in range(2))
    expected = {row: w for row, w in naive.add(older, newer).items() if w}
    for widens_older in (False, True):
        for widens_newer in (False, True):
            left, right = build(older), build(newer)
            left = widen(left) if widens_older else left
            right = widen(right) if widens_newer else right
            sums = [Run.merged(left, right), Run.sum_of([left, right])]
            merge = Merge(left, right)
            merged = None
            while merged is None:
                merged = merge.work(data.draw(st.integers(1, 30)))
            for total in [*sums, merged]:
                assert rows_of(total) == expected
                assert total.is_narrow == (left.is_narrow and right.is_narrow)
                if expected:
                    assert Run.from_words(total.to_words()).find_damage() == ""


@pytest.mark.parametrize("weights", ["equal", "different"])
@pytest.mark.parametrize("arity", [2, 3])
@pytest.mark.parametrize("groups", [1, 7, 500])
def test_sums_of_long_runs_with_gaps_are_those_of_their_rows(groups, arity, weights):
    rng = np.random.default_rng(groups * arity)
    rows = []
    for _ in range(2):
        columns = [rng.integers(0, groups, 3000), *rng.integers(-500, 1500, (arity - 1, 3000))]
        values = rng.integers(1, 3, 3000) if weights == "different" else np.ones(3000, np.int64)
        keys = zip(*(column.tolist() for column in columns), strict=True)
        rows.append(dict(zip(keys, values.tolist(), strict=True)))
    runs = [build(part) for part in rows]
    expected = naive.add(*rows)
    for left in (runs[0], widen(runs[0])):
        for right in (runs[1], widen(runs[1])):
            assert rows_of(Run.merged(left, right)) == expected
            deleted = Run.merged(
                Run.merged(left, right), build({r: -w for r, w in rows[1].items()})
            )
            assert rows_of(deleted) == rows[0]


@LAW
@given(st.data(), ARITIES, st.integers(1, 5))
def test_a_run_that_is_written_in_parts_has_the_same_words(data, arity, parts):
    rows = data.draw(weighted_rows(arity))
    columns, weights = zset(rows).row_array, zset(rows).weight_array
    buffer = np.zeros(run_words(arity, len(rows)), np.int64)
    run = Run(buffer, *write_in_parts(columns, weights, buffer, min(parts, len(rows))))
    assert np.array_equal(run.to_words(), build(rows).to_words())


@LAW
@given(st.data(), ARITIES, st.sampled_from(["below", "above"]))
def test_a_narrow_run_with_an_index_in_memory_has_the_same_rows(data, arity, place):
    rows = data.draw(weighted_rows(arity))
    rows |= {(first, *[0] * (arity - 1)): 1 for first in range(40)}
    placed = place_index(build(rows), place)
    trace = Trace(arity)
    trace.update(zset(rows))
    assert rows_of(placed) == trace.to_zset().to_dict() == rows


def test_four_bytes_per_row_are_saved():
    rows = {(n % 10, n): 1 for n in range(1001)}
    run = build(rows)
    assert run.nbytes == widen(run).nbytes - 8 * 500
    assert build({(n,): 1 for n in range(100)}).is_narrow is False


def test_the_unused_half_of_the_last_word_is_zero():
    one, two = build({(1, -1): 1, (2, -1): 1, (3, -1): 1}), build({(2, -1): -1, (4, -1): 1})
    for run in (one, Run.merged(one, two)):
        assert run.rows == 3
        words = run.to_words()[run.leaf_sections[0]] if run is one else run.buffer
        section = words if run is one else words[run.leaf_sections[0]]
        assert section.view(np.int32).tolist() == [-1, -1, -1, 0]


def test_only_the_last_of_several_levels_can_be_narrow():
    words = build({(1, 2): 1, (3, 4): 1}).to_words().copy()
    words[run_layout.LEVEL_HEADERS + run_layout.LEVEL_VALUES] += run_layout.NARROW
    with pytest.raises(DbspWcojError, match="narrow values of a level"):
        Run.from_words(words)
    single = build({(1,): 1, (3,): 1}).to_words().copy()
    single[run_layout.LEVEL_HEADERS + run_layout.LEVEL_VALUES] += run_layout.NARROW
    with pytest.raises(DbspWcojError, match="narrow values of a level"):
        Run.from_words(single)


def test_equal_or_falling_narrow_siblings_are_damage():
    words = build({(1, 2): 1, (1, 3): 1, (1, 4): 1}).to_words()
    for values in ((2, 2, 4), (3, 2, 4), (2, 4, 4)):
        damaged = words.copy()
        section = Run.from_words(words).leaf_sections[0]
        damaged[section].view(np.int32)[:3] = values
        assert "level 1" in Run.from_words(damaged).find_damage()


@LAW
@given(st.data())
def test_range_scans_read_narrow_and_wide_runs(data):
    trace = Trace(3)
    expected: Counter[tuple[int, ...]] = Counter()
    for _ in range(data.draw(st.integers(1, 4))):
        rows = data.draw(weighted_rows(3))
        trace.update(zset(rows))
        expected.update(rows)
    low, high = sorted(data.draw(st.tuples(*[st.sampled_from(NEAR_LIMITS)] * 2)))
    for first, order in ((0, (0, 1, 2)), (2, (2, 0, 1)), (1, (1, 2, 0))):
        found = range_scan(trace, order, low, high).to_dict()
        assert found == {row: w for row, w in expected.items() if w and low <= row[first] <= high}


QUERIES = (
    "n() :- e(a, b), e(b, c), e(a, c)",
    "n() :- e(a, b), e(b, c), e(c, d), e(a, d)",
    "n() :- e(a, b), e(b, c), e(a, c), e(a, d), e(b, d), e(c, d)",
    "q(a, c) :- r(a, b), s(b, c), t(c, a)",
    "q(a, d) :- r(a, b, c), s(c, d), l(d)",
    "n() :- r(a, b, c), s(c, b), a < c",
    "n() :- e(a, b), e(b, c), e(a, c), l(c)",
)


@settings(LAW, max_examples=60)
@given(data=st.data())
def test_views_over_values_near_the_limits_equal_recomputation(data):
    query = Query.parse(data.draw(st.sampled_from(QUERIES)))
    domain = data.draw(st.sampled_from([NEAR_LIMITS[5:], NEAR_LIMITS[:4], NEAR_LIMITS[1:-1]]))
    view = DeltaQuery(query)
    state: dict[str, dict[tuple[int, ...], int]] = {}
    output: dict[tuple[int, ...], int] = {}
    for step in data.draw(streams(query, domain)):
        delta = view.step({name: zset(rows) for name, rows in step.items() if rows})
        state = {
            name: naive.add(state.get(name, {}), step.get(name, {})) for name in {*state, *step}
        }
        output = naive.add(output, delta.to_dict())
        assert output == naive.evaluate(query, state)


CYCLES = QUERIES[:3]


@pytest.mark.parametrize("query", CYCLES)
@pytest.mark.parametrize("step_rows", [3, 100, 3000])
def test_counts_do_not_depend_on_where_the_values_are(query, step_rows):
    """The same graph, with all values narrow, all of them wide, and on both sides of the limit."""
    rng = np.random.default_rng(step_rows)
    edges = np.unique(rng.integers(0, 90, (3000, 2)), axis=0)
    rng.shuffle(edges)
    hub = np.stack([np.zeros(90, np.int64), np.arange(90)])
    counts = []
    for shift in (0, -45, GREATEST - 200, GREATEST - 45, LEAST - 45, 1 << 40):
        view = DeltaQuery(query)
        total, counted = 0, []
        parts = [edges[: -6 * step_rows], *np.array_split(edges[-6 * step_rows :], 6)]
        for sign in (1, -1):
            for part in parts[::sign]:
                if len(part):
                    delta = ZSet.from_columns([*(part.T + shift)], np.full(len(part), sign))
                    total += view.step({"e": delta}).to_dict().get((), 0)
                    counted.append(total)
        assert total == 0
        counts.append(counted)
        joined = DeltaQuery(query).step({"e": ZSet.from_columns([*(hub + shift)])})
        counts[-1].append(joined.to_dict().get((), 0))
    assert all(count == counts[0] for count in counts)
