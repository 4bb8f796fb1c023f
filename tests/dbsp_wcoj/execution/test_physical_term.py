"""Terms: results in chunks, and work split into ranges of values."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbsp_wcoj import DeltaQuery, Query, ZSet
from dbsp_wcoj.execution.physical_term import ALL_VALUES, CHUNK_ROWS
from dbsp_wcoj.storage.run import Run, value_ranges
from dbsp_wcoj.zset import accumulate
from tests.generators.strategies import DOMAINS, LAW, relation_deltas, zset
from tests.oracles import columnar
from tests.oracles.naive import add
from tests.support.working_threads import working_threads

LOWEST, HIGHEST = -(2**63), 2**63 - 1


def random_relation(seed: int, rows: int, nodes: int) -> ZSet:
    """Return a random relation with a hub and with weights of both signs."""
    rng = np.random.default_rng(seed)
    source, target = rng.integers(-nodes, nodes, (2, rows))
    source[: rows // 10] = 5
    target[rows // 10 : rows // 5] = 5
    return ZSet.from_columns([source, target], rng.choice([-2, 1, 1, 3], rows))


def oracle(text: str, relations: dict[str, ZSet]) -> tuple[np.ndarray, np.ndarray]:
    columns, weights = columnar.evaluate(
        Query.parse(text), {n: (tuple(z.columns), z.weights) for n, z in relations.items()}
    )
    return np.array(columns), weights


def check_equal(zset: ZSet, expected: tuple[np.ndarray, np.ndarray]) -> None:
    assert np.array_equal(np.array(zset.columns), expected[0])
    assert np.array_equal(zset.weights, expected[1])


PATH = "q(a, b, c) :- r(a, b), s(b, c)"


def test_a_result_of_many_chunks_is_exact_and_no_chunk_is_too_large():
    relations = {"r": random_relation(1, 6_000, 900), "s": random_relation(2, 6_000, 900)}
    expected = oracle(PATH, relations)
    assert len(expected[1]) > 200_000
    view = DeltaQuery(PATH)
    chunks = list(view.step_chunks(relations))
    assert len(chunks) > 3
    assert max(map(len, chunks)) <= CHUNK_ROWS
    assert sum(map(len, chunks)) >= len(expected[1])
    check_equal(accumulate(chunks, 3), expected)
    deleted = view.step({"r": -relations["r"]})
    check_equal(-deleted, expected)


def test_a_result_of_one_full_chunk_has_no_second_chunk():
    side = int(CHUNK_ROWS**0.5)
    assert side * side == CHUNK_ROWS
    for surplus in (0, 1, 2):
        rows = {
            "r": ZSet.from_rows([(a, 0) for a in range(side)] + [(k, 1) for k in range(surplus)]),
            "s": ZSet.from_rows([(0, c) for c in range(side)] + [(1, 7)]),
        }
        chunks = list(DeltaQuery(PATH).step_chunks(rows))
        assert [len(chunk) for chunk in chunks] == [CHUNK_ROWS, surplus][: 2 if surplus else 1]


def test_closing_the_chunks_early_leaves_the_view_as_it_was():
    relations = {"r": random_relation(3, 6_000, 900), "s": random_relation(4, 6_000, 900)}
    view = DeltaQuery(PATH)
    chunks = view.step_chunks(relations)
    assert len(next(chunks)) > 0
    chunks.close()
    check_equal(view.step(relations), oracle(PATH, relations))


QUERIES = (
    "q(a, b, c) :- r(a, b), s(b, c), t(a, c)",
    "q(c) :- r(a, b), s(b, c), t(a, c), a != b",
    "n() :- r(a, b), s(b, c), t(a, c)",
    "n() :- r(a, b), s(b, c), a < c",
    "q(b) :- r(5, b), s(b, c)",
)


@pytest.mark.parametrize("text", QUERIES)
def test_threads_change_neither_rows_nor_counts(text):
    names = Query.parse(text).relations
    alone = DeltaQuery(text)
    total = {name: ZSet.empty(2) for name in names}
    answer = ZSet.empty(len(alone.query.head))
    views = {threads: DeltaQuery(text) for threads in (2, 5)}
    with working_threads(1):
        for number, size in enumerate((9_000, 7_000, 30)):
            step = {
                name: random_relation(10 * number + k, size, 900)
                for k, name in enumerate(sorted(names))
            }
            delta = alone.step(step)
            for threads, view in views.items():
                with working_threads(threads):
                    assert view.step(step) == delta
            answer += delta
            total = {name: total[name] + step[name] for name in names}
        assert {view.stats.joins for view in views.values()} == {alone.stats.joins}
    expected = oracle(text, total)
    if alone.query.head:
        check_equal(answer, expected)
    else:
        assert answer.to_dict() == ({(): int(expected[1][0])} if len(expected[1]) else {})


def check_ranges(run: Run, parts: int) -> list[tuple[int, int]]:
    ranges = value_ranges(run, parts)
    assert 1 <= len(ranges) <= parts
    assert ranges[0][0] == LOWEST
    assert ranges[-1][1] == HIGHEST
    for low, high in ranges:
        assert low <= high
    for (_, high), (low, _) in pairwise(ranges):
        assert low == high + 1
    return ranges


@LAW
@given(st.data())
def test_ranges_cover_all_values_once(data):
    arity = data.draw(st.integers(1, 3))
    domain = data.draw(st.sampled_from([*DOMAINS, (LOWEST, 0, HIGHEST)]))
    delta = data.draw(relation_deltas(arity, domain))
    if delta:
        order = np.array(data.draw(st.permutations(range(arity))))
        check_ranges(Run.of(zset(delta, arity=arity), order), data.draw(st.integers(1, 9)))


def test_ranges_have_about_the_same_number_of_rows_and_no_value_is_split():
    for nodes, parts in ((20_000, 2), (20_000, 7), (1 << 60, 5)):
        rng = np.random.default_rng(parts)
        rows = ZSet.from_columns(list(rng.integers(-nodes, nodes, (3, 30_000))))
        for order in ((0, 1, 2), (2, 0, 1)):
            ranges = check_ranges(Run.of(rows, np.array(order)), parts)
            first = rows.columns[order[0]]
            shares = [int(((first >= low) & (first <= high)).sum()) for low, high in ranges]
            assert len(ranges) == parts
            assert sum(shares) == len(rows)
            assert max(shares) < 1.1 * len(rows) / parts
    hub = ZSet.from_columns([np.full(9_000, 3), np.arange(9_000)])
    assert check_ranges(Run.of(hub, np.arange(2)), 4) == list(ALL_VALUES)


@LAW
@given(st.lists(relation_deltas(2, (0, 1, 2)), max_size=9))
def test_accumulated_deltas_are_their_sum(deltas):
    total = accumulate([zset(delta, arity=2) for delta in deltas], 2)
    assert total.to_dict() == add(*deltas)
    assert total.arity == 2
