"""Merged runs: views whose steps merge runs before they join equal recomputation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbsp_wcoj import DeltaQuery, Formula, Query, ZSet
from dbsp_wcoj.kernels.storage.spine import FIRST_RUN, RUN_COUNT
from dbsp_wcoj.storage import merged_runs
from dbsp_wcoj.storage.merged_runs import MergedRelation, MergedRuns, merge_newest_runs
from dbsp_wcoj.storage.relations import Relations
from dbsp_wcoj.storage.run import Merge, Run
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

    def record(spine: Spine, delta: Run) -> MergedRuns:
        merged = merge_newest_runs(spine, delta)
        results.append(merged.relation)
        return merged

    patch.setattr("dbsp_wcoj.storage.trace.merge_newest_runs", record)
    patch.setattr("dbsp_wcoj.execution.bound_terms.MIN_MERGED_ROWS", 1)
    patch.setattr("dbsp_wcoj.execution.bound_terms.MIN_PREPARED_ROWS", 1)
    patch.setattr("dbsp_wcoj.execution.small_steps.MAX_SMALL_ROWS", 0)
    return results


@pytest.mark.parametrize("text", QUERIES)
@LAW
@given(
    formula=st.sampled_from(Formula),
    ratio=st.sampled_from([1, 4, 1000]),
    copied_ratio=st.sampled_from([1, 16]),
    domain=st.sampled_from(DOMAINS),
    data=st.data(),
)
def test_each_step_equals_the_change_of_the_recomputed_view(
    text, formula, ratio, copied_ratio, domain, data
):
    query = Query.parse(text)
    with pytest.MonkeyPatch.context() as patch:
        force(patch)
        patch.setattr(merged_runs, "MAX_ROWS_PER_DELTA_ROW", ratio)
        patch.setattr(merged_runs, "MAX_COPIED_ROWS_PER_DELTA_ROW", copied_ratio)
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


def count_merged_rows(rows: list[int]) -> staticmethod:
    """Return `Run.merged`, but list the rows of the runs that it merges."""
    merge_runs = Run.merged

    def merged(older: Run, newer: Run) -> Run:
        rows.append(older.rows + newer.rows)
        return merge_runs(older, newer)

    return staticmethod(merged)


def table_rows(table: np.ndarray, runs: list[Run]) -> list[int]:
    """The rows of the runs of a table, given all runs that may be in it."""
    by_address = {run.address: run.rows for run in runs}
    addresses = table[FIRST_RUN : FIRST_RUN + table[RUN_COUNT]].tolist()
    return [by_address[address] for address in addresses]


@pytest.mark.parametrize(
    ("delta", "old", "new"),
    [
        (rows_from(9900, 300), [9000, 900], [9000, 1200]),
        (rows_from(9100, 500, -1), [9000, 900], [9000, 400]),  # cancels some of 900 rows
        (rows_from(9000, 500, -1), [9000, 900], [9000, 400]),
        (rows_from(9000, 900, -1), [9900], [9000]),  # all rows are few enough to be copied
        (rows_from(9900, 700), [9900], [10600]),
        (rows_from(9860, 40, -1), [9000, 800, 100], [9000, 800, 60]),  # 800 are too many for it
        (rows_from(0, 300, -1), [9000, 900], None),  # the sum would have weights 1 and -1
    ],
)
def test_new_runs_are_merged_with_a_delta_of_similar_size_if_one_weight_remains(delta, old, new):
    spine = spine_of(rows_from(0, 9000), rows_from(9000, 800), rows_from(9800, 100))
    result = merge_newest_runs(spine, build_run(delta, (0, 1))).relation
    assert result is not None
    runs = [*spine.runs, *result.runs]
    assert table_rows(result.old, runs) == old
    assert (None if result.new is None else table_rows(result.new, runs)) == new


def test_a_spine_without_short_runs_is_read_as_it_is():
    spine = spine_of(rows_from(0, 9000), rows_from(9000, 100))
    assert merge_newest_runs(spine, build_run(rows_from(9900, 6), (0, 1))).relation is None
    assert merge_newest_runs(Spine(), build_run(rows_from(0, 24), (0, 1))).relation is None
    # Merged with the only short run, the delta would have weights 1 and -1.
    assert merge_newest_runs(spine, build_run(rows_from(0, 100, -1), (0, 1))).relation is None


@pytest.mark.parametrize("weight", [1, -1])
@pytest.mark.parametrize("sizes", [[9000, 700], [9000, 600, 100]])
def test_a_spine_uses_the_sum_of_its_newest_runs_and_the_delta(sizes, weight, monkeypatch):
    merged_rows = []
    monkeypatch.setattr(Run, "merged", count_merged_rows(merged_rows))
    starts = np.cumsum([0, *sizes]).tolist()
    spine = spine_of(*map(rows_from, starts, sizes))
    merged_rows.clear()
    first = starts[-1] if weight > 0 else 9100
    delta = build_run(rows_from(first, 200, weight), (0, 1))
    spine.append(delta, offered=merge_newest_runs(spine, delta).offered)
    spine._check()
    assert merged_rows == [900]
    assert [run.rows for run in spine.runs] == [9000, 700 + 200 * weight]


def test_a_spine_does_not_use_a_sum_that_does_not_fit():
    """A sum of other runs, of one that is in an open merge, and one that is too large for it."""
    spine = spine_of(rows_from(0, 9000), rows_from(9000, 700))
    first, delta = (build_run(rows_from(start, 100), (0, 1)) for start in (9700, 9800))
    offered = merge_newest_runs(spine, delta).offered
    assert offered is not None
    spine.append(first)
    spine.append(delta, offered=offered)
    spine._check()
    assert spine.rows == 9900
    delta = build_run(rows_from(9900, 300), (0, 1))
    offered = merge_newest_runs(spine, delta).offered
    assert offered is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spine, "_merges", [Merge(*spine.runs)])
        assert not spine.may_merge(*offered.newest, delta)
    spine.max_merge_rows = 1100
    spine.append(delta, offered=offered)
    spine._check()
    assert [run.rows for run in spine.runs] == [9000, 900, 300]


def test_a_spine_uses_a_sum_without_rows():
    spine = spine_of(rows_from(0, 9000), rows_from(9000, 700))
    delta = build_run(rows_from(9000, 700, -1), (0, 1))
    spine.append(delta, offered=merge_newest_runs(spine, delta).offered)
    spine._check()
    assert [run.rows for run in spine.runs] == [9000]


@pytest.mark.parametrize(
    ("delta", "merged"),
    [
        (rows_from(10_500, 100), 1600),  # copies the rows of the newest run
        (rows_from(10_400, 100, -1), 0),  # deletions may be of rows in any run
        (rows_from(10_400, 700, -1), 11_200),  # all runs are few enough
        (rows_from(10_500, 700), 11_200),
    ],
)
def test_more_rows_are_merged_only_if_that_copies_them(delta, merged, monkeypatch):
    rows = []
    monkeypatch.setattr(Run, "merged", count_merged_rows(rows))
    spine = spine_of(rows_from(0, 9000), rows_from(9000, 1500))
    merge_newest_runs(spine, build_run(delta, (0, 1)))
    assert rows[-1:] == ([merged] if merged else [])


def test_views_that_share_a_relation_merge_its_runs_once(monkeypatch):
    force(monkeypatch)
    relations = Relations()
    queries = (TRIANGLES, "t(a, c) :- e(a, b), e(b, c)")
    views = [DeltaQuery(query, relations=relations) for query in queries]
    rows = edges(np.random.default_rng(5), 3000)
    counts = []
    for part in (rows[:, :2000], rows[:, 2000:2600], rows[:, 2600:]):
        step = relations.stage({"e": ZSet.from_columns(list(part))})
        merged_rows = []
        with monkeypatch.context() as patch:
            patch.setattr(Run, "merged", count_merged_rows(merged_rows))
            for view in views:
                view.evaluate(step)
                counts.append(len(merged_rows))
        step.commit()
    assert counts[2] > 0
    assert counts[2::2] == counts[3::2]


@pytest.mark.parametrize("merge", [Run.merged, lambda *runs: Run.sum_of(runs)])
@pytest.mark.parametrize("rows", [100, 5_000])
def test_a_run_of_one_weight_keeps_it_if_a_smaller_run_cancels_some_of_its_rows(rows, merge):
    larger = build_run(rows_from(0, rows), (0, 1))
    smaller = build_run(rows_from(rows // 2, rows // 4, -1), (0, 1))
    for runs in ((larger, smaller), (smaller, larger)):
        merged = merge(*runs)
        assert (merged.rows, merged.only_weight) == (rows - rows // 4, 1)


def test_runs_of_several_weights_are_merged_to_one_of_several_weights():
    spine = spine_of(rows_from(0, 500) + rows_from(0, 10), rows_from(500, 10, 2))
    result = merge_newest_runs(spine, build_run(rows_from(0, 500, -1), (0, 1))).relation
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

    def merge_all_but_first(spine: Spine, delta: Run) -> MergedRuns:
        merged = MergedRuns(spine.visible_runs, None, None)
        if len(results) > 4:
            merged = merge_newest_runs(spine, delta)
        results.append(merged.relation)
        return merged

    monkeypatch.setattr("dbsp_wcoj.storage.trace.merge_newest_runs", merge_all_but_first)
    assert view.step(late) == expected
    assert results[4] is None
    assert results[5] is not None
