"""A distributed sink starts with other views, or changes its views; nothing grows in its cells.

The cells run in this process, without Spark. To repeat a random history, run
`python -m tests.support.program_schedules SEED cells`.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from unittest.mock import Mock, patch

import pyarrow as pa
import pytest

from circuits import InputOptions, ProgramChangeError, compile_sql
from circuits.state import dictionary_sweep
from dbsp_wcoj.errors import DbspWcojError
from streaming import (
    ChangeOptions,
    Output,
    StateDamagedError,
    StateMismatchError,
    StreamingError,
    TargetError,
    ViewSink,
    stored_circuit,
)
from streaming.distributed import engine
from streaming.distributed.cell_state import divide_circuit
from streaming.distributed.execution.executor_cache import CACHE
from streaming.distributed.rescaling import rescale_state
from streaming.distributed.stage_cells import StageCells
from streaming.state.local_files import LocalFiles
from streaming.state.manifest import read_cell_manifest, read_manifest
from streaming.state.offline_compaction import compact_state
from streaming.state.store import Store
from streaming.state.writer import Writer
from tests.support.local_cells import LocalFrame, local_cells
from tests.support.program_schedules import play
from tests.support.tables import bag_of

SCHEMA = pa.schema([("src", pa.string()), ("dst", pa.string())])
PATHS = "CREATE VIEW paths AS SELECT x.src, y.dst FROM e x JOIN e y ON x.dst = y.src;"
COUNTS = "CREATE VIEW counts AS SELECT src, count(*) AS n FROM e GROUP BY src;"
EDGES = [("a", "b"), ("b", "c"), ("c", "a"), ("b", "d")]


@pytest.fixture(autouse=True)
def cells():
    with local_cells():
        yield


@pytest.mark.parametrize("seed", range(8))
def test_a_history_of_changes_crashes_and_steps_equals_a_fresh_load(seed):
    play(seed, is_distributed=True)


@pytest.mark.slow
def test_many_histories():
    for seed in range(100, 300):
        play(seed, is_distributed=True)


class Rows(Counter):
    """The rows of a view, as its target has them."""

    def write(self, delta):
        self.update(bag_of(delta.table))


def sink_of(place, text, *, strict=True, keep=None, mode="distributed", cells=3, **options):
    input_options = {"e": InputOptions(strict=True)} if strict else {}
    if keep is not None:
        input_options = {"e": keep}
    circuit = compile_sql(text, {"e": SCHEMA}, input_options=input_options)
    targets = {view: Rows() for view in circuit.outputs}
    outputs = [Output(view, target) for view, target in targets.items()]
    cell_options = {"cells": cells} if mode == "distributed" else {}
    sink = ViewSink(
        circuit,
        outputs,
        state_dir=place,
        mode=mode,
        change=ChangeOptions(**options),
        **cell_options,
    )
    return sink, targets


def feed(sink, number, *rows, weight=1):
    table = pa.Table.from_pylist([{"src": a, "dst": b, "weight": weight} for a, b in rows])
    sink(LocalFrame(table.select(["src", "dst", "weight"])), number)


def files_of(place):
    return {path.relative_to(place): path.read_bytes() for path in place.rglob("*/*")}


@pytest.fixture
def state(tmp_path):
    sink, _ = sink_of(tmp_path, PATHS)
    feed(sink, 0, *EDGES[:2])
    feed(sink, 1, *EDGES[2:])
    sink.close()
    return tmp_path


def test_a_new_view_is_computed_from_kept_rows_and_published_once(state):
    sink, targets = sink_of(state, PATHS + COUNTS)
    feed(sink, 2, ("d", "a"))
    assert targets["counts"] == {("a", 1): 1, ("b", 2): 1, ("c", 1): 1, ("d", 1): 1}
    assert targets["paths"] == {("d", "b"): 1, ("b", "a"): 1}  # only those of the micro-batch
    sink.close()
    names = {name for n in (0, 1, 2) for name in read_manifest(LocalFiles(state), n).all_files}
    kept = {str(name) for name in files_of(state) if name.parts[0] in ("data", "outputs")}
    assert names == kept


def test_rows_that_are_not_kept_are_named_and_can_be_given(tmp_path):
    sink, _ = sink_of(tmp_path, COUNTS, strict=False)
    feed(sink, 0, *EDGES)
    sink.close()
    before = files_of(tmp_path)
    sink, _ = sink_of(tmp_path, COUNTS + PATHS, strict=False)
    with pytest.raises(ProgramChangeError, match=r"'e'.*backfill"):
        feed(sink, 1, ("d", "a"))
    sink.close()
    assert files_of(tmp_path).keys() == before.keys()
    rows = pa.Table.from_pylist([{"src": a, "dst": b} for a, b in EDGES], SCHEMA)
    sink, targets = sink_of(tmp_path, COUNTS + PATHS, strict=False, backfill={"e": rows})
    feed(sink, 1, ("d", "a"))
    edges = [*EDGES, ("d", "a")]
    assert targets["paths"] == Counter((a, d) for a, b in edges for c, d in edges if b == c)


@pytest.mark.parametrize(
    "options",
    [
        InputOptions(keep="all"),
        InputOptions(keep="all", strict=True),
        InputOptions(keep="all", keys=("src", "dst")),
    ],
)
def test_keep_all_keeps_the_rows_that_new_views_need_through_changes_of_the_cells(
    tmp_path, options
):
    sink, _ = sink_of(tmp_path, COUNTS, keep=options)
    feed(sink, 0, *EDGES)
    feed(sink, 1, EDGES[3], weight=-1)
    sink.close()
    files = LocalFiles(tmp_path)
    for cells in (None, 2, 3):
        rescale_state(files, cells=cells)
    compact_state(files, divide=divide_circuit)
    sink, targets = sink_of(tmp_path, COUNTS + PATHS, keep=options)
    feed(sink, 2, ("d", "a"))
    edges = [*EDGES[:3], ("d", "a")]
    assert targets["paths"] == Counter((a, d) for a, b in edges for c, d in edges if b == c)
    sink.close()
    sink, targets = sink_of(
        tmp_path, PATHS + "CREATE VIEW copy AS SELECT * FROM e;", keep=options, allow_drop=True
    )
    feed(sink, 3, ("e", "a"))
    assert targets["copy"] == Counter([*edges, ("e", "a")])


def bags(text, *rows):
    circuit = compile_sql(text, {"e": SCHEMA})
    tables = circuit.step({"e": [{"src": a, "dst": b} for a, b in rows]})
    return {view: bag_of(table) for view, table in tables.items()}


def test_views_are_added_and_dropped_while_the_sink_runs(state):
    sink, targets = sink_of(state, PATHS)
    feed(sink, 2, ("d", "a"))
    targets["counts"] = Rows()
    committed = sink.add_view(COUNTS, targets["counts"])
    assert not committed.done()
    feed(sink, 3, ("d", "b"))
    assert committed.result(0) == 3
    edges = [*EDGES, ("d", "a"), ("d", "b")]
    assert targets["counts"] == bags(COUNTS, *edges)["counts"]
    feed(sink, 4, ("a", "a"))
    edges.append(("a", "a"))
    assert +targets["counts"] == bags(COUNTS, *edges)["counts"]
    dropped = sink.drop_view("paths", change=ChangeOptions(allow_drop=True))
    ends = Rows()
    added = sink.add_view("CREATE VIEW ends AS SELECT dst FROM e", ends)
    feed(sink, 5, ("b", "a"))
    edges.append(("b", "a"))
    assert dropped.result(0) == added.result(0) == 5
    assert list(sink.last.outputs) == ["counts", "ends"]
    assert ends == Counter((b,) for _, b in edges)
    sink.close()
    circuit = stored_circuit(state)
    assert list(circuit.plans) == ["counts", "ends"]
    outputs = [Output("counts", targets["counts"]), Output("ends", ends)]
    again = ViewSink(circuit, outputs, state_dir=state, mode="distributed", cells=3)
    feed(again, 6, ("c", "c"))
    edges.append(("c", "c"))
    assert +targets["counts"] == bags(COUNTS, *edges)["counts"]
    assert ends == Counter((b,) for _, b in edges)
    names = {name for n in (4, 5, 6) for name in read_manifest(LocalFiles(state), n).all_files}
    kept = {str(name) for name in files_of(state) if name.parts[0] in ("data", "outputs")}
    assert names == kept


def test_a_change_that_is_not_possible_leaves_the_running_views_as_they_are(state):
    sink, _targets = sink_of(state, PATHS)
    lists = "SELECT [src, dst] AS s FROM e"
    waiting = sink.add_view(lists, name="lists", materialize=["lists"])
    feed(sink, 2, ("d", "a"))
    with pytest.raises(StreamingError, match="view 'lists' is materialized, and its column 's'"):
        waiting.result(0)
    before = files_of(state)
    with pytest.raises(StreamingError, match="view 'lists' is materialized, and its column 's'"):
        sink.add_view(lists, name="lists", materialize=["lists"])
    with pytest.raises(TargetError, match="needs the whole view"):
        sink.add_view(COUNTS, [Output("counts", mode="complete")])
    text = "CREATE VIEW reach AS SELECT src, dst FROM e UNION SELECT r.src, e.dst FROM reach r, e"
    with pytest.raises(DbspWcojError):
        sink.add_view(f"{text} WHERE r.dst = e.src")
    dropped = sink.add_view(COUNTS)
    sink.drop_view("counts")
    with pytest.raises(StreamingError, match="was dropped, and this is not committed yet"):
        sink.add_view(COUNTS)
    feed(sink, 3, ("a", "d"))
    assert dropped.result(0) == 3
    assert list(sink.last.outputs) == ["paths"]
    assert {k: v for k, v in before.items() if k not in files_of(state)}.keys() <= before.keys()
    sink.close()


def test_a_change_that_fails_half_way_leaves_the_running_views_as_they_are(state, monkeypatch):
    sink, targets = sink_of(state, PATHS)
    feed(sink, 2, ("d", "a"))
    with monkeypatch.context() as patches, pytest.raises(OSError, match="stopped"):
        patches.setattr(Store, "_continue_with", Mock(side_effect=OSError("stopped")))
        sink.add_view(COUNTS)
    feed(sink, 3, ("d", "b"))
    assert list(sink.last.outputs) == ["paths"]
    edges = [*EDGES, ("d", "a"), ("d", "b")]
    assert targets["paths"] == bags(PATHS, *edges)["paths"] - bags(PATHS, *EDGES)["paths"]
    sink.close()
    assert list(stored_circuit(state).plans) == ["paths"]
    sink, _ = sink_of(state, PATHS)
    feed(sink, 4, ("a", "d"))
    assert read_manifest(LocalFiles(state), 4).fingerprint == sink.circuit.fingerprint
    assert read_manifest(LocalFiles(state), 4).link is None
    sink.close()


def test_a_change_that_waits_keeps_the_options_of_the_start(state):
    text = PATHS.replace("VIEW paths", "VIEW ways")
    sink, _targets = sink_of(state, text, renames={"ways": "paths"})
    committed = sink.add_view(COUNTS, Rows())
    feed(sink, 2, ("d", "a"))
    assert committed.result(0) == 2
    assert bag_of(sink.last.outputs["ways"]) == {("d", "b"): 1, ("b", "a"): 1}
    sink.close()
    sink, targets = sink_of(state, "CREATE VIEW ends AS SELECT dst FROM e", allow_drop=True)
    ends = Rows()
    committed = sink.add_view("CREATE VIEW starts AS SELECT src FROM e", ends)
    feed(sink, 3, ("d", "b"))
    assert committed.result(0) == 3
    assert ends.total() == targets["ends"].total() == len(EDGES) + 2
    sink.close()


def test_a_change_that_is_cancelled_while_it_is_computed_leaves_no_file(state):
    sink, _ = sink_of(state, PATHS)
    committed = sink.add_view(COUNTS, Rows())
    compute = engine.change_cells

    def cancel(*arguments, **options):
        pending = compute(*arguments, **options)
        assert committed.cancel()
        return pending

    with patch.object(engine, "change_cells", cancel):
        feed(sink, 2, ("d", "a"))
    assert committed.cancelled()
    names = {name for n in (0, 1, 2) for name in read_manifest(LocalFiles(state), n).all_files}
    assert {str(n) for n in files_of(state) if n.parts[0] in ("data", "outputs")} == names
    sink.close()


def test_rows_that_a_running_sink_does_not_keep_are_named_and_can_be_given(tmp_path):
    sink, targets = sink_of(tmp_path, COUNTS, strict=False)
    feed(sink, 0, *EDGES)
    with pytest.raises(ProgramChangeError, match=r"'e'.*backfill"):
        sink.add_view(PATHS)
    rows = pa.Table.from_pylist([{"src": a, "dst": b} for a, b in EDGES], SCHEMA)
    paths = Rows()
    sink.add_view(PATHS, paths, change=ChangeOptions(backfill={"e": rows}))
    feed(sink, 1, ("d", "a"))
    assert paths == bags(PATHS, *EDGES, ("d", "a"))["paths"]
    feed(sink, 2, ("e", "a"))
    assert +targets["counts"] == bags(COUNTS, *EDGES, ("d", "a"), ("e", "a"))["counts"]
    sink.close()


@pytest.mark.parametrize("mode", ["distributed", "embedded"])
def test_rows_of_an_earlier_version_that_the_start_ignores_are_not_used_later(tmp_path, mode):
    ends = "CREATE VIEW ends AS SELECT dst, count(*) AS n FROM e GROUP BY dst;"
    sink, _ = sink_of(tmp_path, COUNTS + ends, strict=False, mode=mode)
    feed(sink, 0, *EDGES[:2])
    feed(sink, 1, *EDGES[2:])
    sink.close()
    rows = pa.Table.from_pylist([{"src": a, "dst": b} for a, b in EDGES[:2]], SCHEMA)
    options = {"backfill": {"e": rows}, "backfill_batch_id": 0, "allow_drop": True}
    sink, _ = sink_of(tmp_path, COUNTS, strict=False, mode=mode, **options)
    committed = sink.add_view(PATHS, Rows())
    feed(sink, 2, ("d", "a"))
    with pytest.raises(ProgramChangeError, match=r"'e'.*backfill"):
        committed.result(0)
    sink.close()


def test_a_new_view_of_a_running_sink_is_written_once_to_the_cells_of_its_keys(tmp_path):
    schema = {"e": "src string not null, dst string not null"}
    circuit = compile_sql(PATHS + COUNTS, schema, materialize=True)
    sink = ViewSink(circuit, state_dir=tmp_path, mode="distributed", cells=3)
    feed(sink, 0, *EDGES)
    text = "CREATE VIEW ends AS SELECT dst, max(src) AS src FROM e GROUP BY dst"
    sink.add_view(text, [Output("ends", Rows(), mode="upsert", keys=["dst"])], materialize=["ends"])
    with patch.object(StageCells, "repartition") as repartition:
        feed(sink, 1, ("d", "a"))
    assert not repartition.called
    sink.close()


def test_dropping_a_view_of_a_running_sink_that_alone_keeps_rows_must_be_allowed(tmp_path):
    schema = {"e": "src string not null, dst string not null"}
    circuit = compile_sql(PATHS + COUNTS, schema)
    sink = ViewSink(circuit, state_dir=tmp_path, mode="distributed", cells=3)
    feed(sink, 0, *EDGES)
    sink.add_view("SELECT min(src) AS s FROM e", name="least")
    with pytest.raises(StateMismatchError, match=r"would drop .*rows of input 'e'"):
        sink.drop_view("paths")
    dropped = sink.drop_view("paths", change=ChangeOptions(allow_drop=True))
    feed(sink, 1, ("d", "a"))
    assert dropped.result(0) == 1
    assert list(sink.last.outputs) == ["counts", "least"]
    sink.close()


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_change_is_made_again_if_its_micro_batch_fails(state, is_closed, monkeypatch):
    sink, _targets = sink_of(state, PATHS)
    feed(sink, 2, ("d", "a"))
    counts = Rows()
    committed = sink.add_view(COUNTS, counts)
    sink.drop_view("paths", change=ChangeOptions(allow_drop=True))
    with monkeypatch.context() as patch_files, pytest.raises(StreamingError, match="outcome"):
        patch_files.setattr(LocalFiles, "rename_new", Mock(side_effect=OSError(28, "full")))
        feed(sink, 3, ("d", "b"))
    if is_closed:
        sink.close()
    CACHE.clear()
    feed(sink, 3, ("d", "b"))
    assert committed.result(0) == 3
    assert list(sink.last.outputs) == ["counts"]
    assert counts == bags(COUNTS, *EDGES, ("d", "a"), ("d", "b"))["counts"]
    feed(sink, 4, ("a", "a"))
    assert +counts == bags(COUNTS, *EDGES, ("d", "a"), ("d", "b"), ("a", "a"))["counts"]
    sink.close()


def test_a_job_that_stops_before_the_commit_has_the_old_views_in_its_cells(state):
    sink, _ = sink_of(state, PATHS)
    feed(sink, 2, ("d", "a"))
    sink.add_view(COUNTS, Rows())
    sink.close()
    CACHE.clear()
    assert list(stored_circuit(state).plans) == ["paths"]
    sink, targets = sink_of(state, PATHS)
    feed(sink, 3, ("d", "b"))
    assert list(sink.last.outputs) == ["paths"]
    edges = [*EDGES, ("d", "a")]
    total = bags(PATHS, *edges, ("d", "b"))["paths"]
    assert targets["paths"] == total - bags(PATHS, *edges)["paths"]
    sink.close()


def test_a_change_that_drops_something_must_be_allowed(state):
    sink, _ = sink_of(state, COUNTS)
    with pytest.raises(StateMismatchError, match="allow_drop"):
        feed(sink, 2, ("d", "a"))
    sink.close()
    sink, targets = sink_of(state, COUNTS, allow_drop=True)
    feed(sink, 2, ("d", "a"))
    assert targets["counts"][("b", 2)] == 1


def test_other_numbers_of_cells_are_refused_also_with_other_views(state):
    for options in ({"cells": 2}, {"mode": "embedded"}):
        sink, _ = sink_of(state, PATHS + COUNTS, **options)
        with pytest.raises(StateMismatchError, match="rescale"):
            feed(sink, 2, ("d", "a"))
        sink.close()


def test_a_missing_file_of_a_cell_is_noticed_before_the_next_commit(state):
    CACHE.clear()
    sink, _ = sink_of(state, PATHS)
    feed(sink, 2, ("d", "a"))  # from now on, this process has the circuits of the cells
    manifest = read_manifest(LocalFiles(state), 2)
    name = min(manifest.all_files.keys() - manifest.files.keys())
    (state / name).unlink()
    with pytest.raises(StateDamagedError, match=f"{name} is missing"):
        feed(sink, 3, ("d", "b"))
    sink.close()


def test_an_error_while_the_cells_are_written_leaves_no_file(state):
    before = files_of(state)
    sink, targets = sink_of(state, PATHS + COUNTS)
    with (
        patch.object(Writer, "make_manifest", side_effect=OSError(28, "No space left on device")),
        pytest.raises(Exception, match="No space left"),
    ):
        feed(sink, 2, ("d", "a"))
    assert {k: v for k, v in files_of(state).items() if k.parts[0] == "data"} == {
        k: v for k, v in before.items() if k.parts[0] == "data"
    }
    feed(sink, 2, ("d", "a"))
    assert targets["counts"][("b", 2)] == 1


@pytest.mark.parametrize("function", ["sum_tables", "read_state"])
def test_an_error_after_the_cells_are_written_leaves_no_file(state, function):
    sink, _ = sink_of(state, PATHS)
    feed(sink, 2, ("d", "a"))
    before = {name for name in files_of(state) if name.parts[0] == "data"}
    with (
        patch.object(engine, function, side_effect=OSError("stopped")),
        pytest.raises(OSError, match="stopped"),
    ):
        if function == "sum_tables":
            feed(sink, 3, ("d", "b"))
        else:
            sink.add_view(COUNTS)
    assert {name for name in files_of(state) if name.parts[0] == "data"} == before
    feed(sink, 3, ("d", "b"))
    sink.close()


@pytest.mark.parametrize("is_cached", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_neither_values_nor_files_grow_in_cells(tmp_path, is_cached):
    """200 steps replace all rows and values about 65 times."""
    random, live = Random(0), []
    sizes = []
    text = PATHS + "CREATE VIEW least AS SELECT src, min(dst) AS d FROM e GROUP BY src;"
    with patch.object(dictionary_sweep, "MIN_NEW_VALUES", 20):
        sink, _ = sink_of(tmp_path, text, strict=False)
        for number in range(200):
            if not is_cached:
                CACHE.clear()  # each step is made by another worker
            expired, live = live[:-20], live[-20:]
            rows = [(f"{number} {random.randrange(9)}", f"{number} {n}") for n in range(10)]
            live += rows
            weights = [-1] * len(expired) + [1] * len(rows)
            table = pa.table(columns_of(expired + rows, weights))
            sink(LocalFrame(table), number)
            if number % 20 == 19:
                sizes.append(size_of(tmp_path, number))
        sink.close()
    for name in sizes[0]:
        early, late = (max(size[name] for size in part) for part in (sizes[:5], sizes[5:]))
        assert late <= 1.5 * early, (name, sizes)


def columns_of(rows, weights):
    sources, targets = zip(*rows, strict=True)
    return {"src": pa.array(sources), "dst": pa.array(targets), "weight": pa.array(weights)}


def size_of(place, number):
    """Measure the state of cells, on disk and in the memory of the workers."""
    manifest = read_manifest(LocalFiles(place), number)
    cells = [read_cell_manifest(data) for data in manifest.cells.manifests.values()]
    circuits = [cell.circuit for cell in CACHE._cells.values()]
    return {
        "bytes on disk": sum(map(len, files_of(place).values())),
        "files": len(files_of(place)),
        "values on disk": sum(
            part.rows
            for stored in (manifest, *cells)
            for parts in stored.dictionaries.values()
            for part in parts
        ),
        "rows on disk": sum(
            part.rows
            for cell in cells
            for o in cell.traces.values()
            for p in o.values()
            for part in p
        ),
        "values in memory": sum(
            dictionary.string_count
            for circuit in circuits
            for dictionary in circuit.graph.registry.dictionaries.values()
        ),
        "rows in memory": sum(
            rows for circuit in circuits for rows in circuit.committed.rows_in_runs().values()
        ),
    }
