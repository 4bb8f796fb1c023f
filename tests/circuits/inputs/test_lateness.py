"""Lateness: late rows, watermarks of sources, the kept state, and combinations of options."""

from __future__ import annotations

import pickle
from datetime import datetime, timedelta

import pyarrow as pa
import pytest

from circuits import Circuit, InputOptions, InputOptionsError, Lateness, Retention, compile_sql
from tests.support.tables import INT, bag_of

NOON = datetime(2024, 2, 29, 12)
MINUTE = timedelta(minutes=1)
STAMPED = pa.schema([("n", INT), ("t", pa.timestamp("us"))])


def circuit_of(options: InputOptions, schema: pa.Schema = STAMPED) -> Circuit:
    return compile_sql("SELECT * FROM r", {"r": schema}, input_options={"r": options})


def rows(*minutes: int) -> list[dict]:
    return [{"n": minute, "t": NOON + minute * MINUTE} for minute in minutes]


def rejected(step) -> list:
    """Return the reason and the number of each rejected row."""
    return [
        (rejection.reason, n)
        for rejection in step.rejected.get("r", ())
        for n in rejection.table["n"].to_pylist()
    ]


def test_a_row_is_late_if_it_is_before_the_watermark_at_the_start_of_its_step():
    circuit = circuit_of(InputOptions(lateness=Lateness("t", "5 minutes")))
    circuit.step({"r": rows(0, 60, -60)})  # rows of one step do not make each other late
    step = circuit.prepare({"r": rows(54, 55, 56)})
    assert rejected(step) == [("late", 54)]
    assert "increase the lateness" in step.rejected["r"][0].message
    step.commit()
    assert sorted(step.outputs["view"]["n"].to_pylist()) == [55, 56]


def test_a_late_upsert_and_a_late_deletion_of_one_row_do_not_cancel():
    options = InputOptions(keys=("n", "t"), sequence="s", lateness=Lateness("t", "5 minutes"))
    circuit = circuit_of(options)
    circuit.step({"r": [dict(row, s=0) for row in rows(60)]})
    late = [dict(row, s=s, weight=1 - 2 * s) for s in (0, 1) for row in rows(1)]
    step = circuit.prepare({"r": [*late, *(dict(row, s=0, weight=1) for row in rows(2))]})
    found = [
        (row["n"], row["weight"])
        for rejection in step.rejected["r"]
        for row in rejection.table.to_pylist()
    ]
    assert sorted(found) == [(1, -1), (1, 1), (2, 1)]
    assert {rejection.reason for rejection in step.rejected["r"]} == {"late"}


def test_the_watermark_of_the_source_is_taken_as_it_is_and_never_goes_back():
    circuit = circuit_of(InputOptions(lateness=Lateness("t", "5 minutes")))
    circuit.step({}, {"r": NOON})
    circuit.step({"r": rows(1)}, {"r": NOON - 10 * MINUTE})
    assert rejected(circuit.prepare({"r": rows(-1, 0)})) == [("late", -1)]


def test_rows_that_nothing_reads_again_are_not_kept():
    circuit = circuit_of(InputOptions(lateness=Lateness("t", "5 minutes")))
    circuit.step({"r": rows(*range(100))})
    assert sum(trace.rows for trace in circuit.graph.traces.values()) == 0


def test_a_restored_circuit_rejects_the_same_late_rows():
    circuit = circuit_of(InputOptions(lateness=Lateness("t", "5 minutes")))
    circuit.step({"r": rows(60)})
    other = Circuit(pickle.loads(pickle.dumps(circuit.spec)))
    other.restore(pickle.loads(pickle.dumps(circuit.snapshot())))
    assert rejected(other.prepare({"r": rows(54, 55)})) == [("late", 54)]


def test_rows_expire_by_their_retention_and_are_late_by_their_lateness():
    lateness, retain = Lateness("t", "5 minutes"), Retention("t", "10 minutes")
    circuit = circuit_of(InputOptions(lateness=lateness, retain=retain))
    circuit.step({"r": rows(0)})
    first = circuit.prepare({"r": rows(-6, -5, 8)})
    assert rejected(first) == [("late", -6)]
    first.commit()
    # The row of -5 is on time, but expires in the same step: it is 13 minutes older than 8.
    assert bag_of(first.outputs["view"]) == {(8, NOON + 8 * MINUTE): 1}
    second = circuit.step({"r": rows(11)})
    assert bag_of(second["view"]) == {(0, NOON): -1, (11, NOON + 11 * MINUTE): 1}


def test_unsigned_times_near_their_least_value_do_not_wrap():
    schema = pa.schema([("n", INT), ("t", pa.uint64())])
    options = InputOptions(lateness=Lateness("t", 5), retain=Retention("t", 7))
    circuit = circuit_of(options, schema)
    circuit.step({"r": pa.table({"n": [1], "t": pa.array([6], pa.uint64())})})
    table = pa.table({"n": [0, 1], "t": pa.array([0, 1], pa.uint64())})
    assert rejected(circuit.prepare({"r": table})) == [("late", 0)]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: InputOptions(lateness="5 minutes"), "must be a Lateness"),
        (lambda: Lateness("t", None), "the duration is missing; write Lateness"),
        (lambda: Lateness("t", "-5 minutes"), "invalid duration"),
        (lambda: Lateness("t", -5), "negative"),
        (
            lambda: InputOptions(lateness=Lateness("t", 5), retain=Retention("u", 7)),
            "one event time: give both the same column",
        ),
        (
            lambda: InputOptions(lateness=Lateness("t", 5), retain=Retention("t", "7 days")),
            "one duration is an integer",
        ),
        (
            lambda: InputOptions(lateness=Lateness("t", 5), retain=Retention("t", 4)),
            "rows may be 5 late but are kept for 4 only",
        ),
        (lambda: circuit_of(InputOptions(lateness=Lateness("x", 5))), "unknown lateness column"),
        (lambda: circuit_of(InputOptions(lateness=Lateness("t", 5))), "lateness 't': .* a unit"),
    ],
)
def test_an_option_that_does_not_fit_is_refused(build, message):
    with pytest.raises(InputOptionsError, match=message):
        build()


def test_options_without_lateness_print_as_before():
    """The fingerprint of a state covers this text."""
    assert repr(InputOptions(strict=True)) == (
        "InputOptions(keys=(), strict=True, retain=None, sequence=None)"
    )
    assert "lateness=Lateness(column='t', duration=5)" in repr(
        InputOptions(lateness=Lateness("t", 5))
    )
