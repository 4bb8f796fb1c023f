"""Rows that `add_view` gives are read in slices; the new views then equal a fresh load."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pyarrow as pa
import pytest

from circuits import InputOptions, Lateness, ProgramChangeError, SchemaError, compile_sql
from streaming import ChangeOptions, ViewSink
from streaming.engine.engine import StagedBatch
from streaming.sink.given_inputs import GivenInputs
from tests.streaming.sink.test_view_sink import Frame
from tests.support.changing_sink import (
    COUNTS,
    PATHS,
    E,
    ReplacingTarget,
    Target,
    feed,
    feed_more,
    more_rows,
    table_of,
)
from tests.support.tables import bag_of

NAMES = "CREATE VIEW names AS SELECT name, max(src) AS m FROM e GROUP BY name;"


class GivingFrame:
    """Stands for a batch DataFrame; ``before`` is called when it is read."""

    def __init__(self, table, before=lambda: None) -> None:
        self._table = table
        self._before = before
        self.reads = 0

    def toArrow(self):  # Spark's name
        self._before()
        self.reads += 1
        return self._table


@pytest.fixture(params=["memory", "disk"])
def state_dir(request, tmp_path):
    return None if request.param == "memory" else tmp_path / "state"


def make_sink(state_dir, target=None, text=COUNTS) -> ViewSink:
    """Return a sink that does not keep the columns ``src`` and ``dst``."""
    return ViewSink(compile_sql(text, E), target, state_dir=state_dir)


def sliced(table, rows_per_batch=2) -> ChangeOptions:
    return ChangeOptions(backfill={"e": table}, rows_per_batch=rows_per_batch)


def check_rows(targets, text, *tables) -> None:
    circuit = compile_sql(text, E, materialize=True)
    for rows in tables:
        circuit.step({"e": rows})
    for view, table in circuit.views.items():
        if view == "e":
            continue
        assert targets[view].rows == bag_of(table), view


def feed_until(done, sink, number, rows=more_rows) -> list[pa.Table]:
    fed = []
    while not done():
        assert number < 60
        fed.append(rows(number))
        sink(Frame(fed[-1]), number)
        number += 1
    return fed


def test_each_micro_batch_reads_a_slice_of_the_given_rows(state_dir):
    targets = {"counts": Target(), "paths": ReplacingTarget(), "names": ReplacingTarget()}
    sink = make_sink(state_dir, targets["counts"])
    feed(sink, *range(5))
    frame = GivingFrame(table_of(*range(5)))
    future = sink.add_view(PATHS, targets["paths"], change=sliced(frame))
    assert (sink.backfill.rows_read, sink.backfill.rows) == (0, 14)
    read = [0]
    fed = []
    while not future.done():
        number = 5 + len(fed)
        assert number < 40
        # The second micro-batch deletes a row that no slice has read yet.
        rows = more_rows(number)
        if number == 6:
            (row,) = table_of(4).to_pylist()
            rows = pa.Table.from_pylist([{**row, "weight": -1}])
        fed.append(rows)
        sink(Frame(rows), number)
        if sink.backfill is not None:
            read.append(sink.backfill.rows_read)
    assert frame.reads == 1
    assert all(0 <= after - before <= 2 for before, after in pairwise(read))
    assert len(read) > 7
    assert all(bag.total() <= 4 for bag in targets["paths"].batches.values())
    check_rows(targets, COUNTS + PATHS, table_of(*range(5)), *fed)
    sink.close()


def test_the_slices_go_on_with_the_given_rows_if_the_state_is_loaded_again(tmp_path):
    targets = {"counts": Target(), "paths": ReplacingTarget()}
    sink = make_sink(tmp_path, targets["counts"])
    feed(sink, *range(5))
    future = sink.add_view(PATHS, targets["paths"], change=sliced(table_of(*range(5))))
    fed = [more_rows(5), more_rows(6)]
    feed_more(sink, 5)
    targets["counts"].fails = 1
    with pytest.raises(OSError, match="no answer"):
        feed_more(sink, 6)  # is committed, and its slice is done
    feed_more(sink, 6)
    feed_more(sink, 7)
    sink.close()
    fed += [more_rows(7), *feed_until(future.done, sink, 8)]
    check_rows(targets, COUNTS + PATHS, table_of(*range(5)), *fed)


@pytest.mark.parametrize("commits", [False, True])
def test_a_change_that_is_made_but_not_committed_begins_again(tmp_path, commits):
    targets = {"counts": Target(), "paths": ReplacingTarget()}
    sink = make_sink(tmp_path, targets["counts"])
    feed(sink, *range(5))
    future = sink.add_view(PATHS, targets["paths"], change=sliced(table_of(*range(5)), 4))
    fed = feed_until(lambda: sink.backfill is None, sink, 5)
    assert not future.done()
    if commits:
        sink(Frame(table_of()), 5 + len(fed))
        fed.append(table_of())
        assert future.done()
    sink.close()
    fed += feed_until(future.done, sink, 5 + len(fed), rows=lambda number: table_of())
    check_rows(targets, COUNTS + PATHS, table_of(*range(5)), *fed)


def test_a_change_that_waits_has_the_rows_of_the_micro_batches_in_between(state_dir):
    targets = {"counts": Target(), "paths": ReplacingTarget(), "names": Target()}
    sink = make_sink(state_dir, targets["counts"])
    feed(sink, *range(5))
    rows = table_of(*range(5))
    first = sink.add_view(PATHS, targets["paths"], change=sliced(rows))
    second = sink.add_view(NAMES, targets["names"], change=ChangeOptions(backfill={"e": rows}))
    fed = feed_until(lambda: first.done() and second.done(), sink, 5)
    assert len(fed) > 3
    check_rows(targets, COUNTS + PATHS + NAMES, rows, *fed)


def test_a_change_that_is_cancelled_while_it_waits_can_be_requested_again(monkeypatch):
    targets = {"counts": Target(), "paths": ReplacingTarget(), "names": ReplacingTarget()}
    sink = make_sink(None, targets["counts"])
    feed(sink, *range(3))
    sums = "CREATE VIEW sums AS SELECT dst, sum(src) AS n FROM e GROUP BY dst;"
    targets["sums"] = ReplacingTarget()
    rows = table_of(*range(3))
    futures = [
        sink.add_view(text, targets[view], change=sliced(rows, 4))
        for text, view in ((PATHS, "paths"), (sums, "sums"), (NAMES, "names"))
    ]
    assert futures.pop().cancel()  # it is not the next one
    add, added = GivenInputs.add, []

    def count(given, *arguments):
        added.append(given)
        return add(given, *arguments)

    monkeypatch.setattr(GivenInputs, "add", count)
    feed_more(sink, 3)
    assert len(added) == 2  # of the two changes that are left
    again = pa.concat_tables([rows, more_rows(3)])
    futures.append(sink.add_view(NAMES, targets["names"], change=sliced(again, 4)))
    fed = feed_until(lambda: all(future.done() for future in futures), sink, 4)
    check_rows(targets, COUNTS + PATHS + sums + NAMES, again, *fed)


def test_rows_that_are_given_before_the_state_is_loaded_are_those_of_the_last_version(tmp_path):
    targets = {"counts": Target(), "paths": ReplacingTarget()}
    sink = make_sink(tmp_path, targets["counts"])
    feed(sink, *range(5))
    sink.close()
    sink = make_sink(tmp_path, targets["counts"])
    future = sink.add_view(PATHS, targets["paths"], change=sliced(table_of(*range(5))))
    fed = feed_until(future.done, sink, 5)
    check_rows(targets, COUNTS + PATHS, table_of(*range(5)), *fed)


@pytest.mark.parametrize("is_interrupted", [False, True])
def test_changes_that_wait_before_the_state_is_loaded_miss_no_micro_batch(
    tmp_path, monkeypatch, is_interrupted
):
    sink = make_sink(tmp_path)
    feed(sink, *range(3))
    sink.close()
    targets = {"counts": Target(), "paths": ReplacingTarget(), "names": ReplacingTarget()}
    sink = make_sink(tmp_path, targets["counts"])
    rows = table_of(*range(3))
    first = sink.add_view(PATHS, targets["paths"], change=sliced(rows, 100))
    sums = NAMES.replace("max", "sum")
    second = sink.add_view(sums, targets["names"], change=sliced(rows, 100))

    def interrupt(*arguments):
        raise KeyboardInterrupt

    if is_interrupted:
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(GivenInputs, "add", interrupt)
            feed_more(sink, 3)  # is committed, and the given rows do not have it
        feed_more(sink, 3)
        feed_more(sink, 4)
        for lost in (first, second):
            with pytest.raises(ProgramChangeError, match=r"after micro-batch 2.* micro-batch 3"):
                lost.result(0)
        return
    fed = feed_until(lambda: first.done() and second.done(), sink, 3)
    check_rows(targets, PATHS + sums, rows, *fed)


def test_given_rows_of_another_micro_batch_are_refused(tmp_path, monkeypatch):
    paths = ReplacingTarget()
    sink = make_sink(tmp_path)
    feed(sink, *range(4))
    frame = GivingFrame(table_of(*range(4)), before=lambda: feed(sink, 4))
    with pytest.raises(ProgramChangeError, match=r"after micro-batch 3.* after micro-batch 4"):
        sink.add_view(PATHS, paths, change=sliced(frame))
    assert sink.backfill is None

    def interrupt(*arguments):
        raise KeyboardInterrupt

    future = sink.add_view(PATHS, paths, change=sliced(table_of(*range(5))))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(GivenInputs, "add", interrupt)
        feed_more(sink, 5)  # is committed, and the given rows do not have it
    feed_more(sink, 5)
    feed_more(sink, 6)
    with pytest.raises(ProgramChangeError, match=r"after micro-batch 4.* after micro-batch 5"):
        future.result(0)
    feed_more(sink, 7)
    assert list(sink.circuit.plans) == ["counts"]
    assert not paths.batches


def test_rows_that_are_read_while_the_state_is_loaded_are_refused(tmp_path):
    sink = make_sink(tmp_path)
    feed(sink, *range(3))
    sink.close()
    sink = make_sink(tmp_path)
    frame = GivingFrame(table_of(*range(3)), before=lambda: feed(sink, 3))
    with pytest.raises(ProgramChangeError, match=r"while the rows were read.* pause the stream"):
        sink.add_view(PATHS, change=sliced(frame))
    assert sink.backfill is None


def test_rows_that_do_not_fit_end_the_change_only(state_dir, monkeypatch):
    counts = Target()
    sink = make_sink(state_dir, counts)
    feed(sink, 0, 1)
    text_rows = pa.table({"src": ["x"] * 3, "dst": [1, 2, 3], "name": ["a", "a", "c"]})
    future = sink.add_view(PATHS, change=sliced(text_rows))
    feed_more(sink, 2)
    with pytest.raises(SchemaError, match="src"):
        future.result(0)
    waiting = sink.add_view(PATHS, change=sliced(pa.concat_tables([table_of(0, 1), more_rows(2)])))
    queued = sink.add_view(NAMES, change=ChangeOptions(backfill={"e": table_of(0, 1)}))
    with monkeypatch.context() as patch:
        patch.setattr(StagedBatch, "accepted_rows", lambda staged, name: text_rows)
        feed_more(sink, 3)
    for failed in (waiting, queued):
        with pytest.raises(SchemaError, match="src"):
            failed.result(0)
    feed_more(sink, 4)
    check_rows({"counts": counts}, COUNTS, table_of(0, 1), *map(more_rows, range(2, 5)))


def test_late_rows_are_not_among_the_given_rows(state_dir):
    options = {"e": InputOptions(lateness=Lateness("dst", 3))}
    text = "CREATE VIEW counts AS SELECT dst, count(*) AS n FROM e GROUP BY dst;"
    ends = "CREATE VIEW ends AS SELECT src, max(dst) AS m FROM e GROUP BY src;"
    target = ReplacingTarget()
    sink = ViewSink(compile_sql(text, E, input_options=options), state_dir=state_dir)
    accepted: list[tuple[int, int]] = []
    future, number = None, 0
    while future is None or not future.done():
        assert number < 60
        rows = [(number % 3, number), (number % 2, number - 6)]  # the second one is late
        accepted += rows[:1] if number else rows
        sink(Frame(edges_of(rows)), number)
        if number == 6:
            future = sink.add_view(ends, target, change=sliced(edges_of(accepted)))
        number += 1
    latest: dict[int, int] = {}
    for src, dst in accepted:
        latest[src] = max(dst, latest.get(src, dst))
    assert target.rows == Counter(latest.items())


def edges_of(rows: list[tuple[int, int]]) -> pa.Table:
    """Return edges without names."""
    src, dst = zip(*rows, strict=True)
    return pa.table({"src": src, "dst": dst, "name": pa.nulls(len(rows), pa.string())})


@pytest.mark.parametrize("rows_per_batch", [None, 2])
def test_rows_that_name_another_micro_batch_are_refused(state_dir, rows_per_batch):
    counts, names = Target(), Target()
    sink = make_sink(state_dir, counts)
    feed(sink, 0, 1)
    for number in (0, 2):
        options = ChangeOptions(
            backfill={"e": table_of(0, 1)}, backfill_batch_id=number, rows_per_batch=rows_per_batch
        )
        with pytest.raises(
            ProgramChangeError, match=f"after micro-batch {number}, and .* micro-batch 1:"
        ):
            sink.add_view(NAMES, names, change=options)
    options = ChangeOptions(
        backfill={"e": table_of(0, 1)}, backfill_batch_id=1, rows_per_batch=rows_per_batch
    )
    done = sink.add_view(NAMES, names, change=options).done
    fed = feed_until(done, sink, 2)
    check_rows({"counts": counts, "names": names}, COUNTS + NAMES, table_of(0, 1), *fed)
    sink.close()
