"""A sink that starts with other views than its state directory computes them in slices."""

from __future__ import annotations

import pyarrow as pa
import pytest

from circuits import EvaluationError, InputOptions, ProgramChangeError, compile_sql
from streaming import ChangeOptions, Output, StateMismatchError, ViewSink, stored_circuit
from tests.support.changing_sink import (
    COUNTS,
    KEEP,
    PATHS,
    E,
    ReplacingTarget,
    Target,
    expected,
    feed,
    feed_more,
    make_sink,
    more_rows,
    table_of,
)
from tests.support.tables import bag_of

LIMIT = ChangeOptions(rows_per_batch=2)
OF_BOTH = PATHS + COUNTS


@pytest.fixture
def state_dir(tmp_path):
    """A state directory of the view paths, with two micro-batches."""
    sink = make_sink(state_dir=tmp_path / "state")
    feed(sink, 0, 1)
    sink.close()
    return tmp_path / "state"


def start(state_dir, text=OF_BOTH, change=LIMIT, inputs=E, options=KEEP, **targets) -> ViewSink:
    circuit = compile_sql(text, inputs, input_options=options)
    outputs = [Output(view, target) for view, target in targets.items()]
    return ViewSink(circuit, outputs, state_dir=state_dir, change=change)


def feed_to_the_end(sink: ViewSink, number: int) -> int:
    """Feed micro-batches until the change is committed; return the number of the next one."""
    while tuple(sink.circuit.outputs) != ("paths", "counts") or sink.backfill is not None:
        feed_more(sink, number)
        number += 1
    feed_more(sink, number)
    return number + 1


def check_all(state_dir, end: int, paths: Target, counts: Target) -> None:
    """Check the state and the targets after all micro-batches before ``end``."""
    circuit = compile_sql(OF_BOTH, E, input_options=KEEP)
    assert stored_circuit(state_dir).fingerprint == circuit.fingerprint
    tables = [table_of(0, 1), *map(more_rows, range(2, end))]
    deltas = [circuit.step({"e": table}) for table in tables]
    assert counts.rows == bag_of(pa.concat_tables(delta["counts"] for delta in deltas))
    assert paths.rows == bag_of(pa.concat_tables(delta["paths"] for delta in deltas[1:]))


def test_the_earlier_views_go_on_until_the_new_ones_have_all_rows(state_dir):
    paths, counts = Target(), Target()
    sink = start(state_dir, paths=paths, counts=counts)
    assert tuple(sink.circuit.outputs) == ("paths",)
    feed_more(sink, 2)
    assert sink.backfill.views == ("counts",) and sink.backfill.rows_read == 2
    assert sink.last.outputs.keys() == {"paths"} and not counts.batches
    end = feed_to_the_end(sink, 3)
    sink.close()
    check_all(state_dir, end, paths, counts)


def test_a_start_that_is_killed_begins_again(state_dir):
    paths, counts = Target(), ReplacingTarget()
    sink = start(state_dir, paths=paths, counts=counts)
    for number in (2, 3, 4):
        feed_more(sink, number)
    assert sink.backfill is not None
    sink.close()  # the change is lost with the process
    sink = start(state_dir, paths=paths, counts=counts)
    end = feed_to_the_end(sink, 5)
    sink.close()
    check_all(state_dir, end, paths, counts)


def test_a_limit_has_no_effect_on_a_new_directory_and_on_the_same_views(state_dir, tmp_path):
    counts = Target()
    sink = start(tmp_path / "new", counts=counts)
    feed(sink, 0)
    assert counts.rows == expected(COUNTS, 0)["counts"]
    sink.close()
    for text in (PATHS, PATHS.replace("SELECT x.src", "SELECT  x.src")):
        sink = start(state_dir, text)
        assert not sink._changes.is_pending
        sink.close()
    sink = ViewSink(compile_sql(OF_BOTH, E), change=LIMIT)
    feed(sink, 0)


def test_a_change_that_is_refused_fails_each_micro_batch(state_dir):
    changed = PATHS.replace("y.dst FROM", "y.dst + 1 AS dst FROM")
    for _ in range(2):
        sink = start(state_dir, changed)
        for _ in range(2):
            with pytest.raises(ProgramChangeError, match="a view that was published before"):
                feed_more(sink, 2)
        sink.close()
    sink = make_sink(target=(paths := Target()), state_dir=state_dir)
    feed_more(sink, 2)
    assert list(paths.batches) == [2]


def test_given_rows_of_another_micro_batch_are_not_used(state_dir, caplog):
    stale = ChangeOptions(rows_per_batch=2, backfill={"e": table_of(0)}, backfill_batch_id=0)
    paths, counts = Target(), Target()
    sink = start(state_dir, change=stale, paths=paths, counts=counts)
    assert "those after micro-batch 0 and are not used; needed are those after micro-batch 1" in (
        caplog.text
    )
    end = feed_to_the_end(sink, 2)
    sink.close()
    check_all(state_dir, end, paths, counts)


def test_an_error_names_the_micro_batch_of_the_rows_that_are_needed(tmp_path):
    text = "CREATE VIEW names AS SELECT name, count(*) AS n FROM e GROUP BY name;"
    sink = ViewSink(compile_sql(PATHS, E), state_dir=tmp_path / "state")
    feed(sink, 0, 1)
    sink.close()
    names = Target()
    for number in (0, 1):
        change = ChangeOptions(
            rows_per_batch=2, backfill={"e": table_of(*range(number + 1))}, backfill_batch_id=number
        )
        sink = start(tmp_path / "state", PATHS + text, change, options=None, names=names)
        for _ in range(2 * (1 - number)):
            with pytest.raises(ProgramChangeError, match="backfill_batch_id=1"):
                feed_more(sink, 2)
        if number:
            for batch in range(2, 20):
                feed_more(sink, batch)
        sink.close()
    tables = [table_of(0, 1), *map(more_rows, range(2, 20))]
    circuit = compile_sql(text, E, materialize=True)
    for table in tables:
        circuit.step({"e": table})
    assert names.rows == bag_of(circuit.views["names"])


def test_outputs_may_be_an_iterator(state_dir):
    paths, counts = Target(), Target()
    circuit = compile_sql(OF_BOTH, E, input_options=KEEP)
    outputs = (Output(v, t) for v, t in (("paths", paths), ("counts", counts)))
    sink = ViewSink(circuit, outputs, state_dir=state_dir, change=LIMIT)
    end = feed_to_the_end(sink, 2)
    sink.close()
    check_all(state_dir, end, paths, counts)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"inputs": E | {"f": "a bigint"}}, "the inputs or their options differ"),
        (
            {"options": {"e": InputOptions(keys=["src", "dst"])}},
            "the inputs or their options differ",
        ),
        (
            {"text": COUNTS, "change": ChangeOptions(allow_drop=True, rows_per_batch=1)},
            "dropped: paths",
        ),
        ({"change": ChangeOptions(renames={"ways": "paths"}, rows_per_batch=1)}, "renamed"),
    ],
)
def test_what_slices_cannot_do_is_refused_at_the_start(state_dir, given, reason):
    with pytest.raises(StateMismatchError, match=f"{reason}.*leave out rows_per_batch"):
        start(state_dir, **given)


def test_a_new_view_that_fails_for_the_rows_fails_the_micro_batches(state_dir):
    paths = Target()
    fails = "CREATE VIEW fails AS SELECT src * 9223372036854775807 AS product FROM e;"
    sink = start(state_dir, PATHS + fails, paths=paths)
    for number in (2, 3):
        with pytest.raises(EvaluationError, match="src \\* 9223372036854775807 has no value"):
            feed_more(sink, number)
        assert number not in paths.batches
        feed_more(sink, number)  # its step was committed; the replay publishes it
    sink.close()
    assert list(paths.batches) == [2, 3]
    sink = make_sink(target=paths, state_dir=state_dir)
    feed_more(sink, 4)
    assert list(paths.batches) == [2, 3, 4]
