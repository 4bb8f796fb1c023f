"""Merged tails: views whose steps merge runs before they join equal recomputation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbsp_wcoj import DeltaQuery, Formula, Query, ZSet
from dbsp_wcoj.execution import merged_tails
from dbsp_wcoj.execution.merged_tails import MergedRelation, merge_tail
from dbsp_wcoj.kernels.storage.spine import FIRST_RUN, RUN_COUNT
from dbsp_wcoj.storage.run import Run
from dbsp_wcoj.storage.spine import Spine
from dbsp_wcoj.storage.trace import build_run
from tests.generators.strategies import DOMAINS, LAW, streams
from tests.support.followed_streams import assert_follows
from tests.support.working_threads import working_threads

TRIANGLES = "n() :- e(a, b), e(b, c), e(a, c)"
QUERIES = (
    TRIANGLES,
    "t(a, c) :- e(a, b), e(b, c)",
    "t(a) :- e(a, b), f(b, c), e(a, c), a < c",
    "n() :- e(a, b), f(b, c), f(c, a)",
)


def force(patch: pytest.MonkeyPatch) -> list[MergedRelation | None]:
    """Let steps of any size merge runs; list what they merge."""
    results: list[MergedRelation | None] = []

    def record(spine: Spine, delta: Run) -> MergedRelation | None:
        results.append(merge_tail(spine, delta))
        return results[-1]

    patch.setattr("dbsp_wcoj.execution.bound_terms.merge_tail", record)
    patch.setattr("dbsp_wcoj.execution.bound_terms.MIN_MERGED_ROWS", 1)
    patch.setattr("dbsp_wcoj.execution.bound_terms.MIN_PREPARED_ROWS", 1)
    patch.setattr("dbsp_wcoj.execution.small_steps.MAX_SMALL_ROWS", 0)
    return results


@pytest.mark.parametrize("text", QUERIES)
@LAW
@given(
    formula=st.sampled_from(Formula),
    ratio=st.sampled_from([1, 4, 1000]),
    domain=st.sampled_from(DOMAINS),
    data=st.data(),
)
def test_each_step_equals_the_change_of_the_recomputed_view(text, formula, ratio, domain, data):
    query = Query.parse(text)
    with pytest.MonkeyPatch.context() as patch:
        force(patch)
        patch.setattr(merged_tails, "MAX_TAIL_ROWS_PER_ROW", ratio)
        view = DeltaQuery(query, formula=formula)
        assert_follows(view, query, data.draw(streams(query, domain)))


def edges(rng: np.random.Generator, rows: int) -> np.ndarray:
    """Random edges, shape ``(2, rows)``, all different."""
    return np.stack(np.divmod(rng.choice(100 * 100, rows, replace=False), 100))


@pytest.mark.parametrize("threads", [1, 3])
def test_deletes_of_late_rows_propose_as_few_values_as_their_inserts(threads, monkeypatch):
    results = force(monkeypatch)
    rows = edges(np.random.default_rng(1), 9500)
    first, late = rows[:, :9000], rows[:, 9000:]
    view = DeltaQuery(TRIANGLES)
    proposals, changes = [], []
    with working_threads(threads):
        for columns, weight in ((first, 1), (late, 1), (late[:, ::-1], -1)):
            before = view.stats.proposals
            delta = ZSet.from_columns(list(columns), np.full(columns.shape[1], weight))
            changes.append(view.step({"e": delta}).to_dict()[()])
            proposals.append(view.stats.proposals - before)
    assert changes[2] == -changes[1]
    assert any(result is not None for result in results)
    assert proposals[2] < 1.1 * proposals[1]


def test_the_sources_of_a_view_are_restored_after_each_step(monkeypatch):
    results = force(monkeypatch)
    rows = edges(np.random.default_rng(2), 9900)
    view = DeltaQuery("t(a, c) :- e(a, b), e(b, c)")
    for part in (rows[:, :9000], rows[:, 9000:9500]):
        view.step({"e": ZSet.from_columns(list(part))})
    sources = [term.physical._referenced[0].copy() for term in view.terms]
    chunks = view.step_chunks({"e": ZSet.from_columns(list(rows[:, 9500:]))})
    next(chunks)
    assert results[-1] is not None
    chunks.close()
    for term, before in zip(view.terms, sources, strict=True):
        assert (term.physical._referenced[0] == before).all()


def test_a_step_after_a_failed_sum_of_rows_reads_the_relations_as_they_are(monkeypatch):
    results = force(monkeypatch)
    rows = edges(np.random.default_rng(3), 9900)
    query = "t(a, c) :- e(a, b), e(b, c)"
    view, other = DeltaQuery(query), DeltaQuery(query)
    for part in (rows[:, :9000], rows[:, 9000:9500]):
        for each in (view, other):
            each.step({"e": ZSet.from_columns(list(part))})
    delta = {"e": ZSet.from_columns(list(rows[:, 9500:]))}

    def fail(chunks, arity):
        next(iter(chunks))
        assert results[-1] is not None
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr("dbsp_wcoj.delta_query.accumulate", fail)
        with pytest.raises(MemoryError) as error:
            view.step(delta)
    # A small step, which merges nothing itself.
    monkeypatch.setattr("dbsp_wcoj.execution.bound_terms.MIN_MERGED_ROWS", 10**6)
    small = {"e": ZSet.from_columns(list(rows[:, 9500:9502]))}
    assert view.step(small) == other.step(small)
    assert error.value is not None  # its traceback has the frames of the failed step


def spine_of(*runs: ZSet) -> Spine:
    spine = Spine()
    spine.load([build_run(run, (0, 1)) for run in runs])
    return spine


def rows_from(first: int, count: int, weight: int = 1) -> ZSet:
    numbers = np.arange(first, first + count)
    return ZSet.from_columns([numbers // 7, numbers], np.full(count, weight))


def table_rows(table: np.ndarray, runs: list[Run]) -> list[int]:
    """The rows of the runs of a table, given all runs that may be in it."""
    by_address = {run.address: run.rows for run in runs}
    addresses = table[FIRST_RUN : FIRST_RUN + table[RUN_COUNT]].tolist()
    return [by_address[address] for address in addresses]


@pytest.mark.parametrize(
    ("delta", "old", "new"),
    [
        (rows_from(9900, 300), [9000, 900], [9000, 1200]),
        (rows_from(9100, 500, -1), [9000, 900], [9000, 400]),  # cancels rows of the tail
        (rows_from(9000, 900, -1), [9000, 900], [9000]),  # cancels the tail
        (rows_from(9800, 100, -1), [9000, 800, 100], [9000, 800]),  # 800 rows are too many for it
        (rows_from(0, 300, -1), [9000, 900], None),  # the sum would have weights 1 and -1
    ],
)
def test_a_tail_is_merged_with_a_delta_of_similar_size_if_one_weight_remains(delta, old, new):
    spine = spine_of(rows_from(0, 9000), rows_from(9000, 800), rows_from(9800, 100))
    result = merge_tail(spine, build_run(delta, (0, 1)))
    assert result is not None
    runs = [*spine.runs, *result.runs]
    assert table_rows(result.old, runs) == old
    assert (None if result.new is None else table_rows(result.new, runs)) == new


def test_a_spine_without_a_short_tail_is_read_as_it_is():
    spine = spine_of(rows_from(0, 9000), rows_from(9000, 100))
    assert merge_tail(spine, build_run(rows_from(9900, 12), (0, 1))) is None
    assert merge_tail(Spine(), build_run(rows_from(0, 24), (0, 1))) is None
    # Merged with the only short run, the delta would have weights 1 and -1.
    assert merge_tail(spine, build_run(rows_from(0, 100, -1), (0, 1))) is None


@pytest.mark.parametrize("weight", [1, -1])
def test_a_spine_uses_the_sum_of_its_newest_run_and_the_delta(weight, monkeypatch):
    merged_rows = []
    merge_runs = Run.merged

    def count_rows(older: Run, newer: Run) -> Run:
        merged_rows.append(older.rows + newer.rows)
        return merge_runs(older, newer)

    monkeypatch.setattr(Run, "merged", staticmethod(count_rows))
    spine = spine_of(rows_from(0, 9000), rows_from(9000, 700))
    merged_rows.clear()
    delta = build_run(rows_from(9100, 100, weight), (0, 1))
    if weight > 0:
        delta = build_run(rows_from(9800, 100), (0, 1))
    assert merge_tail(spine, delta) is not None
    spine.append(delta)
    spine._check()
    assert merged_rows == [800]
    assert [run.rows for run in spine.runs] == [9000, 700 + 100 * weight]


def test_runs_of_several_weights_are_merged_to_one_of_several_weights():
    spine = spine_of(rows_from(0, 500) + rows_from(0, 10), rows_from(500, 10, 2))
    result = merge_tail(spine, build_run(rows_from(0, 500, -1), (0, 1)))
    assert result is not None
    assert result.new is not None
    assert table_rows(result.new, [*spine.runs, *result.runs]) == [20]


def test_sums_of_some_runs_that_leave_int64_are_not_computed():
    view = DeltaQuery("q(x, z) :- e(x, y), f(y, z)")

    def rows(first: int, count: int, weight: int) -> ZSet:
        """Return rows that join with nothing, and one row of this weight that does."""
        return rows_from(first, count) + ZSet.from_rows([(-1, -1)], [weight])

    view.step({"e": rows(1, 9000, -(2**62)), "f": ZSet.from_rows([(-1, 5)])})
    view.step({"e": rows(20_000, 500, 2**62 - 1)})
    changes = {"e": rows(30_000, 1100, 2**63 - 1), "f": ZSet.from_rows([(-1, 6)])}
    assert view.step(changes).to_dict() == {(-1, 5): 2**63 - 1, (-1, 6): 2**63 - 2}


def test_an_order_that_is_not_merged_leaves_the_other_orders_merged(monkeypatch):
    """A first load, and a second one, whose delta is merged in one of the two column orders."""
    results = force(monkeypatch)
    rows = edges(np.random.default_rng(2), 3000)
    view = DeltaQuery(TRIANGLES)
    view.step({"e": ZSet.from_columns(list(rows[:, :2000]))})
    late = {"e": ZSet.from_columns(list(rows[:, 2000:]))}
    expected = view.prepare(late).delta
    assert len(results) == 4
    assert None not in results[2:]

    def merge_all_but_first(spine: Spine, delta: Run) -> MergedRelation | None:
        results.append(merge_tail(spine, delta) if len(results) > 4 else None)
        return results[-1]

    monkeypatch.setattr("dbsp_wcoj.execution.bound_terms.merge_tail", merge_all_but_first)
    assert view.step(late) == expected
    assert results[4] is None
    assert results[5] is not None
