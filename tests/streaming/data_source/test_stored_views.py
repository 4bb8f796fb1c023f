"""The rows and the changes of a view, read from the state directory beside its writer."""

from __future__ import annotations

import random
from collections import Counter
from itertools import combinations

import pyarrow as pa
import pytest

from circuits import InputOptions, UnknownViewError, compile_sql
from streaming import (
    ChangeOptions,
    MemoryTarget,
    Output,
    StateDamagedError,
    StateError,
    ViewSink,
)
from streaming.data_source.stored_views import StoredViews
from tests.streaming.sink.test_view_sink import Frame
from tests.support.compacted_files import CompactedFiles
from tests.support.tables import bag_of

E = {"e": "src bigint, dst bigint, name string"}
SCHEMA = pa.schema({"src": pa.int64(), "dst": pa.int64(), "name": pa.string()})
COUNTS = "CREATE VIEW counts AS SELECT name, count(*) AS n FROM e GROUP BY name;"
PATHS = "CREATE VIEW paths AS SELECT x.src, y.dst FROM e x JOIN e y ON x.dst = y.src;"
VIEWS = COUNTS + PATHS
KEEP_ALL = {"e": InputOptions(keep="all")}


def views(text=VIEWS):
    return compile_sql(text, E, materialize=True, input_options=KEEP_ALL)


def batch(rows, weight=1):
    names = SCHEMA.names
    table = pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows], SCHEMA)
    return table.append_column("weight", pa.array([weight] * len(rows), pa.int64()))


def random_batches(seed, number):
    """Return micro-batches that insert rows, and delete some that are present."""
    rng, present, batches = random.Random(seed), [], []
    for _ in range(number):
        deleted = [present.pop(rng.randrange(len(present))) for _ in range(min(2, len(present)))]
        rows = [(rng.randrange(3), rng.randrange(3), rng.choice("ab")) for _ in range(3)]
        present += rows
        parts = [batch(rows)] + ([batch(deleted, -1)] if deleted else [])
        batches.append(pa.concat_tables(parts) if rng.random() < 0.8 else batch(rows).slice(3))
        if batches[-1].num_rows == 0:
            present = present[: -len(rows)] + deleted
    return batches


def sink_of(state, text=VIEWS, outputs=None, **options):
    return ViewSink(views(text), outputs or MemoryTarget(), state_dir=state, **options)


def sum_of(stored, versions):
    total = Counter()
    for batch_id, view in versions:
        for row, weight in bag_of(stored.changes(view, batch_id)).items():
            total[row] += weight
    return total


def without_zeros(bag):
    return {row: weight for row, weight in bag.items() if weight}


@pytest.mark.parametrize("seed", range(4))
def test_the_rows_of_a_version_and_the_later_changes_are_the_rows_of_a_later_version(
    seed, tmp_path
):
    sink = sink_of(tmp_path, keep=100)
    for number, rows in enumerate(random_batches(seed, 6)):
        sink(Frame(rows), number)
    stored = StoredViews(tmp_path)  # the sink is not closed
    assert stored.newest() == 5
    for view in ("counts", "paths"):
        for first, last in combinations(range(6), 2):
            versions = stored.changed_versions(view, stored.position(view, first), last)
            before, after = stored.rows(view, first), stored.rows(view, last)
            total = Counter(bag_of(before))
            total.update(sum_of(stored, versions))
            assert without_zeros(total) == without_zeros(bag_of(after)), (view, first, last)
            assert stored.position_before(view, first + 1) == stored.position(view, first)
        assert bag_of(stored.rows(view, 5)) == bag_of(sink.table(view))


def test_only_versions_with_changes_of_the_view_are_read(tmp_path):
    sink = sink_of(tmp_path, keep=100)
    for number, rows in enumerate([[(1, 2, "a")], [], [(2, 3, "a")], []]):
        sink(Frame(batch(rows) if rows else batch([(0, 0, "")]).slice(1)), number)
    stored = StoredViews(tmp_path)
    start = stored.position_before("paths", 0)
    assert start.last_change == -1
    assert stored.changed_versions("paths", start, 3) == [(2, "paths")]
    assert stored.changed_versions("counts", start, 3) == [(0, "counts"), (2, "counts")]


def test_a_version_that_is_no_longer_kept_is_named_with_those_that_are(tmp_path):
    sink = sink_of(tmp_path, keep=2)
    for number in range(5):
        sink(Frame(batch([(number, number, "a")])), number)
    stored = StoredViews(tmp_path)
    message = r"does not keep version 1, it keeps versions 3 to 4: .* larger keep="
    with pytest.raises(StateError, match=message):
        stored.rows("counts", 1)
    position = stored.position("counts", 3)._replace(batch_id=0)
    with pytest.raises(StateError, match="does not keep version 2"):
        stored.changed_versions("counts", position, 4)


def test_the_newest_rows_are_those_of_a_version_that_is_there(tmp_path, monkeypatch):
    sink = sink_of(tmp_path, keep=2)
    sink(Frame(batch([(0, 1, "a")])), 0)
    stored, read = StoredViews(tmp_path), StoredViews._rows

    def write_before_reading(self, view, version):
        if version == 0:
            for number in range(1, 4):
                sink(Frame(batch([(0, 1, "a")])), number)
        return read(self, view, version)

    monkeypatch.setattr(StoredViews, "_rows", write_before_reading)
    assert bag_of(stored.newest_rows("counts")) == {("a", 4): 1}
    with pytest.raises(UnknownViewError):
        stored.newest_rows("none")


@pytest.mark.parametrize("version", [None, 3])
def test_a_version_that_is_compacted_offline_while_it_is_read_is_read_again(version, tmp_path):
    sink = sink_of(tmp_path)
    for number in range(4):
        sink(Frame(batch([(0, 1, "a")])), number)
    sink.close()
    files = CompactedFiles(tmp_path)
    stored = StoredViews(files)
    rows = stored.newest_rows("counts") if version is None else stored.rows("counts", version)
    assert bag_of(rows) == {("a", 4): 1}
    assert files.is_compacted


def test_a_directory_without_versions_is_an_error(tmp_path):
    with pytest.raises(StateError, match="has no version of a state"):
        StoredViews(tmp_path / "nothing").newest()


def test_views_that_cannot_be_read_are_errors(tmp_path):
    circuit = compile_sql(VIEWS, E, materialize=["counts"])
    outputs = [Output("counts", MemoryTarget(), "complete")]
    sink = ViewSink(circuit, outputs, state_dir=tmp_path)
    sink(Frame(batch([(1, 2, "a")])), 0)
    stored = StoredViews(tmp_path)
    with pytest.raises(UnknownViewError, match="'paths' is not materialized"):
        stored.rows("paths", 0)
    with pytest.raises(UnknownViewError, match="unknown view 'none'"):
        stored.rows("none", 0)
    with pytest.raises(UnknownViewError, match="'none' is no input or view"):
        stored.schema("none", 0)
    with pytest.raises(StateError, match="no changes of a view 'none'; it has those of c"):
        stored.position("none", 0)
    with pytest.raises(StateError, match="'counts' is published as a whole"):
        stored.changes("counts", 0)


def test_a_damaged_file_is_an_error(tmp_path):
    sink = sink_of(tmp_path)
    sink(Frame(batch([(1, 2, "a")])), 0)
    sink.close()
    for file in (tmp_path / "data").iterdir():
        file.write_bytes(file.read_bytes()[:-1])
    for file in (tmp_path / "outputs").iterdir():
        file.unlink()
    stored = StoredViews(tmp_path)
    with pytest.raises(StateDamagedError, match="bytes, it was written with"):
        stored.rows("counts", 0)
    with pytest.raises(StateDamagedError, match="is missing"):
        stored.changes("counts", 0)


def test_changes_continue_through_a_new_name_of_the_view(tmp_path):
    sink = sink_of(tmp_path, COUNTS, keep=100)
    sink(Frame(batch([(1, 2, "a")])), 0)
    sink.close()
    stored = StoredViews(tmp_path)
    position = stored.position("counts", 0)
    renamed = sink_of(
        tmp_path,
        COUNTS.replace("counts", "numbers"),
        keep=100,
        change=ChangeOptions(renames={"numbers": "counts"}),
    )
    renamed(Frame(batch([(1, 2, "a")])), 1)
    assert stored.changed_versions("numbers", position, 1) == [(1, "numbers")]
    whole = stored.changed_versions("numbers", stored.position_before("counts", 0), 1)
    assert whole == [(0, "counts"), (1, "numbers")]
    assert without_zeros(sum_of(stored, whole)) == {("a", 2): 1}


def test_changes_of_a_view_that_was_made_again_do_not_continue(tmp_path):
    sink = sink_of(tmp_path, VIEWS, keep=100)
    sink(Frame(batch([(1, 2, "a")])), 0)
    stored = StoredViews(tmp_path)
    position = stored.position("counts", 0)
    sink.drop_view("counts", change=ChangeOptions(allow_drop=True))
    sink(Frame(batch([(1, 2, "b")])), 1)
    sink.add_view(COUNTS, MemoryTarget(), materialize=["counts"])
    sink(Frame(batch([(1, 2, "c")])), 2)
    with pytest.raises(StateError, match=r"version 2 .* has the whole view 'counts' again"):
        stored.changed_versions("counts", position, 2)
    versions = stored.changed_versions("counts", stored.position_before("counts", 2), 2)
    assert without_zeros(sum_of(stored, versions)) == without_zeros(
        bag_of(stored.rows("counts", 2))
    )


def test_a_view_that_was_made_again_without_rows_does_not_continue(tmp_path):
    sink = sink_of(tmp_path, VIEWS, keep=100)
    sink(Frame(batch([(1, 2, "a")])), 0)
    stored = StoredViews(tmp_path)
    position = stored.position("counts", 0)
    sink.drop_view("counts", change=ChangeOptions(allow_drop=True))
    empty = COUNTS.replace(" GROUP BY", " WHERE src > 99 GROUP BY")
    assert empty != COUNTS
    sink.add_view(empty, MemoryTarget(), materialize=["counts"])
    sink(Frame(batch([(1, 2, "c")])), 1)
    with pytest.raises(StateError, match=r"version 1 .* has the whole view 'counts' again"):
        stored.changed_versions("counts", position, 1)


def test_a_view_that_is_computed_in_slices_has_rows_when_it_is_complete(tmp_path):
    sink = sink_of(tmp_path, PATHS, keep=100)
    sink(Frame(batch([(1, 2, "a"), (1, 2, "b"), (1, 2, "c")])), 0)
    slow = ChangeOptions(rows_per_batch=3)
    sink.add_view(COUNTS, [Output("counts", MemoryTarget())], materialize=["counts"], change=slow)
    stored, readable = StoredViews(tmp_path), []
    for number in range(1, 12):
        sink(Frame(batch([(number, 2, "d")])), number)
        try:
            rows = stored.rows("counts", number)
        except UnknownViewError:
            continue
        readable.append(number)
        versions = stored.changed_versions("counts", stored.position_before("paths", 0), number)
        assert without_zeros(sum_of(stored, versions)) == without_zeros(bag_of(rows)), number
    assert len(readable) > 2


@pytest.mark.parametrize("has_rows", [True, False])
def test_a_view_that_was_added_later_has_no_changes_before(tmp_path, has_rows):
    rows = [batch([(number, number + 1, "a")]) for number in range(5)]
    first = [part if has_rows else part.slice(1) for part in rows[:2]]
    sink = sink_of(tmp_path, COUNTS, keep=100)
    for number in range(2):
        sink(Frame(first[number]), number)
    sink.close()
    sink = sink_of(tmp_path, keep=100)
    for number in range(2, 4):
        sink(Frame(rows[number]), number)
    sink.close()
    renamed = VIEWS.replace("VIEW paths", "VIEW routes")
    sink = sink_of(tmp_path, renamed, keep=100, change=ChangeOptions(renames={"routes": "paths"}))
    sink(Frame(rows[4]), 4)
    stored = StoredViews(tmp_path)
    for view in ("paths", "routes"):
        added = [(2, "paths"), (3, "paths")] if has_rows else [(3, "paths")]
        if view == "paths":  # the newest version has no such view
            with pytest.raises(StateError, match=r"version 4 .* no changes of a view 'paths'"):
                stored.position_before(view, 0)
            continue
        for start in (0, 1, 2):
            position = stored.position_before(view, start)
            assert position == (start - 1, -1, position.state_id)
            assert stored.changed_versions(view, position, 4) == [*added, (4, "routes")]
            assert stored.changed_versions(view, position, 3) == added
        assert stored.position(view, 1) == (1, -1, position.state_id)
        assert stored.changed_versions(view, stored.position_before(view, 0), 1) == []
        assert stored.position(view, 3).last_change == 3
        total = sum_of(stored, stored.changed_versions(view, stored.position(view, 1), 4))
        assert without_zeros(total) == bag_of(stored.rows(view, 4))


def test_another_state_directory_in_the_same_place_does_not_continue(tmp_path):
    sink = sink_of(tmp_path / "a")
    sink(Frame(batch([(1, 2, "a")])), 0)
    sink.close()
    position = StoredViews(tmp_path / "a").position("counts", 0)
    other = sink_of(tmp_path / "b")
    for number in range(2):
        other(Frame(batch([(1, 2, "a")])), number)
    with pytest.raises(StateError, match="was replaced by another state directory"):
        StoredViews(tmp_path / "b").changed_versions("counts", position, 1)
