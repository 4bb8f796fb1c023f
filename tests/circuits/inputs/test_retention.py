"""Retention by event time: types of times, watermarks, the rows that are read, slices of traces."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dbsp_wcoj.storage.range_scan
from circuits import (
    Circuit,
    InputOptions,
    InputOptionsError,
    Retention,
    UnknownInputError,
    compile_sql,
)
from dbsp_wcoj import Trace, ZSet
from dbsp_wcoj.storage.range_scan import range_scan
from tests.support.tables import INT, bag_of

DAY = timedelta(days=1)
NOON = datetime(2024, 2, 29, 12)


def circuit_of(type: pa.DataType, retain: Retention, **more) -> Circuit:
    schema = pa.schema([("n", INT), ("t", type)])
    rules = {"r": InputOptions(retain=retain, **more)}
    return compile_sql("SELECT * FROM r", {"r": schema}, input_options=rules, materialize=["r"])


def table_of(type: pa.DataType, *times: object) -> pa.Table:
    return pa.table({"n": list(range(len(times))), "t": pa.array(times, type)})


TIMES = [
    (pa.timestamp("s"), NOON, DAY),
    (pa.timestamp("ms"), NOON, DAY),
    (pa.timestamp("us"), NOON, DAY),
    (pa.timestamp("ns"), NOON, DAY),
    (pa.timestamp("us", tz="UTC"), NOON.replace(tzinfo=UTC), DAY),
    (pa.timestamp("ms", tz="Europe/Rome"), NOON.replace(tzinfo=UTC), DAY),
    (pa.date32(), NOON.date(), DAY),
    (pa.date64(), NOON.date(), DAY),
    (pa.int32(), 86_400, 10),
    (pa.uint64(), 2**63 + 5, 10),
]
for_each_type = pytest.mark.parametrize(("type", "start", "unit"), TIMES, ids=lambda v: str(v)[:20])


@for_each_type
def test_rows_expire_when_they_are_older_than_the_newest_by_the_duration(type, start, unit):
    circuit = circuit_of(type, Retention("t", 2 * unit))
    circuit.step({"r": table_of(type, start, start + unit)})
    delta = circuit.step({"r": table_of(type, start + 3 * unit)})["view"]
    assert delta.column("n").to_pylist() == [0, 0]
    assert delta.column("weight").to_pylist() == [-1, 1]
    assert circuit.views["r"].num_rows == 2


@for_each_type
def test_a_watermark_expires_rows_in_a_step_without_rows(type, start, unit):
    circuit = circuit_of(type, Retention("t", 2 * unit))
    circuit.step({"r": table_of(type, start, start + unit)})
    unchanged = circuit.step({}, {"r": start + 2 * unit})
    assert unchanged["view"].num_rows == 0
    deleted = circuit.step({}, {"r": pa.scalar(start + 3 * unit, type)})
    assert deleted["view"].column("n").to_pylist() == [0]
    assert circuit.step({}, {"r": start})["view"].num_rows == 0
    step = circuit.prepare({"r": table_of(type, start)})
    assert [rejection.reason for rejection in step.rejected["r"]] == ["late"]


@pytest.mark.parametrize(
    ("type", "value"),
    [
        (pa.timestamp("us"), NOON.replace(tzinfo=UTC)),
        (pa.timestamp("us", tz="UTC"), NOON),
        (pa.timestamp("us"), 5),
        (pa.timestamp("us"), NOON.date()),
        (pa.timestamp("us"), pa.scalar(None, pa.timestamp("us"))),
        (pa.timestamp("us"), pa.scalar(NOON, pa.timestamp("us", tz="UTC"))),
        (pa.date32(), 5),
        (pa.int64(), NOON),
        (pa.int64(), True),
        (pa.int64(), None),
        (pa.int8(), 300),
    ],
    ids=str,
)
def test_a_watermark_of_another_type_is_refused(type, value):
    retain = Retention("t", 3) if pa.types.is_integer(type) else Retention("t", days=3)
    with pytest.raises(InputOptionsError, match=r"watermark .* but the time column is of type"):
        circuit_of(type, retain).step({}, {"r": value})


def test_a_finer_watermark_counts_as_the_last_time_before_it():
    circuit = circuit_of(pa.date32(), Retention("t", timedelta()))
    circuit.step({"r": table_of(pa.date32(), date(2024, 2, 29))})
    assert circuit.step({}, {"r": NOON})["view"].num_rows == 0
    assert circuit.step({}, {"r": NOON + DAY})["view"].num_rows == 1
    seconds = circuit_of(pa.timestamp("s"), Retention("t", timedelta()))
    seconds.step({"r": table_of(pa.timestamp("s"), NOON)})
    assert seconds.step({}, {"r": NOON + timedelta(microseconds=5)})["view"].num_rows == 0


def test_a_watermark_of_another_zone_is_the_same_instant():
    type = pa.timestamp("us", tz="UTC")
    circuit = circuit_of(type, Retention("t", "1 hour"))
    circuit.step({"r": table_of(type, NOON.replace(tzinfo=UTC))})
    east = timezone(timedelta(hours=5))
    at_noon = NOON.replace(hour=18, tzinfo=east)  # 13:00 in UTC
    assert circuit.step({}, {"r": at_noon})["view"].num_rows == 0
    assert circuit.step({}, {"r": at_noon + timedelta(seconds=1)})["view"].num_rows == 1


def test_a_watermark_for_an_input_without_retention_is_an_error():
    circuit = circuit_of(pa.int64(), Retention("t", 3))
    with pytest.raises(UnknownInputError, match="'x' is not an input"):
        circuit.step({}, {"x": 5})
    plain = compile_sql("SELECT * FROM r", {"r": pa.schema([("t", INT)])})
    with pytest.raises(InputOptionsError, match="has no retention"):
        plain.step({}, {"r": 5})


def test_rows_may_be_inserted_and_expire_in_one_step():
    circuit = circuit_of(pa.int64(), Retention("t", 3))
    step = circuit.prepare({"r": table_of(pa.int64(), 1, 100)})
    assert not step.rejected
    assert bag_of(step.outputs["view"]) == {(1, 100): 1}


def test_late_and_untimed_rows_are_rejected_with_the_reason():
    type = pa.timestamp("s")
    circuit = circuit_of(type, Retention("t", "7 days"))
    circuit.step({"r": table_of(type, NOON)})
    step = circuit.prepare({"r": table_of(type, NOON - 9 * DAY, None, NOON)})
    late, untimed = step.rejected["r"]
    assert (late.reason, bag_of(late.table)) == ("late", {(0, NOON - 9 * DAY): 1})
    assert "with 't' before 2024-02-22 12:00:00, the greatest time or watermark of" in late.message
    assert "of earlier steps minus 7 days" in late.message
    assert "retain rows longer to accept later ones" in late.message
    assert (untimed.reason, bag_of(untimed.table)) == ("untimed", {(1, None): 1})
    assert bag_of(step.outputs["view"]) == {(2, NOON): 1}


def test_a_strict_deletion_of_an_expired_row_is_late_and_not_missing():
    circuit = circuit_of(pa.int64(), Retention("t", 3), strict=True)
    circuit.step({"r": table_of(pa.int64(), 1)})
    circuit.step({"r": table_of(pa.int64(), 100)})
    table = pa.table({"n": [0, 7], "t": [1, 100], "weight": [-1, -1]})
    reasons = {
        rejection.reason: bag_of(rejection.table)
        for rejection in circuit.prepare({"r": table}).rejected["r"]
    }
    assert reasons == {"late": {(0, 1): -1}, "missing": {(7, 100): -1}}


def test_deletions_of_a_key_count_once_whatever_their_time():
    circuit = circuit_of(pa.int64(), Retention("t", 3), keys=("n",), strict=True)
    circuit.step({"r": table_of(pa.int64(), 5)})
    twice = pa.table({"n": [0, 0], "t": [5, 6], "weight": [-1, -1]})
    step = circuit.prepare({"r": twice})
    assert not step.rejected
    assert bag_of(step.outputs["view"]) == {(0, 5): -1}


def test_the_time_of_a_deletion_does_not_advance_the_watermark():
    for keys in ((), ("n",), ("n", "t")):
        circuit = circuit_of(pa.int64(), Retention("t", 3), keys=keys, strict=True)
        circuit.step({"r": table_of(pa.int64(), 5)})
        deleted = pa.table({"n": [7], "t": [100], "weight": [-1]})
        circuit.prepare({"r": deleted}).commit()
        assert bag_of(circuit.views["r"]) == {(0, 5): 1}


def test_a_key_expires_with_its_last_row_and_lives_with_a_later_one():
    circuit = circuit_of(pa.int64(), Retention("t", 3), keys=("n",))
    circuit.step({"r": table_of(pa.int64(), 1, 1)})
    circuit.step({"r": pa.table({"n": [0], "t": [4]})})
    deleted = circuit.step({"r": pa.table({"n": [9], "t": [5]})})["view"]
    assert bag_of(deleted) == {(1, 1): -1, (9, 5): 1}
    assert bag_of(circuit.step({"r": pa.table({"n": [1], "t": [5]})})["view"]) == {(1, 5): 1}


def test_the_watermark_stays_within_the_type_of_the_column():
    circuit = circuit_of(pa.int64(), Retention("t", 2**63))
    circuit.step({"r": table_of(pa.int64(), -(2**63) + 1, 0)})
    assert circuit.views["r"].num_rows == 2


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("7 days", 7 * DAY),
        ("1 day 12 hours", 1.5 * DAY),
        ("90 s", timedelta(seconds=90)),
        ("1.5 hours", timedelta(hours=1.5)),
        ("2 Weeks", 14 * DAY),
        ("500 ms", timedelta(milliseconds=500)),
        ("10 minutes, 5 seconds", timedelta(minutes=10, seconds=5)),
    ],
)
def test_durations_are_read(text, duration):
    assert Retention("t", text).duration == duration


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Retention("t", "7"), "invalid duration '7'"),
        (lambda: Retention("t", "7 moons"), r"invalid duration .*; give numbers with units"),
        (lambda: Retention("t", "-7 days"), "invalid duration"),
        (lambda: Retention("t"), "duration is missing"),
        (lambda: Retention("t", -1), "is negative"),
        (lambda: Retention("t", True), "invalid duration"),
        (lambda: Retention("t", "7 days", days=1), "two durations"),
        (lambda: circuit_of(pa.string(), Retention("t", "7 days")), "must contain timestamps"),
        (lambda: circuit_of(pa.timestamp("us"), Retention("t", 7)), "needs a unit"),
        (lambda: circuit_of(pa.date32(), Retention("t", hours=36)), "must be a multiple of 1 day"),
    ],
)
def test_durations_that_do_not_fit_are_refused(make, words):
    with pytest.raises(InputOptionsError, match=words):
        make()


def test_a_circuit_of_the_same_spec_has_the_same_input_options():
    circuit = circuit_of(pa.int64(), Retention("t", 3), keys=("n",), strict=True)
    rebuilt = Circuit(circuit.spec)
    assert (
        rebuilt.input_options
        == circuit.input_options
        == {"r": InputOptions(keys=("n",), strict=True, retain=Retention("t", 3))}
    )


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.lists(
            st.tuples(st.integers(0, 3), st.integers(-4, 4), st.integers(0, 1)),
            min_size=1,
            max_size=9,
        ),
        max_size=5,
    ),
    st.permutations(range(3)),
    st.integers(-5, 5),
    st.integers(-5, 5),
    st.data(),
)
def test_rows_between_two_values_are_those_that_a_scan_finds(batches, order, low, high, data):
    trace = Trace(3)
    for rows in batches:
        weights = data.draw(
            st.lists(st.sampled_from([-1, 1, 2]), min_size=len(rows), max_size=len(rows))
        )
        trace.update(ZSet.from_rows(rows, weights))
    expected = {row: w for row, w in trace.to_zset() if low <= row[order[0]] <= high}
    rows_in_range = range_scan(trace, tuple(order), low, high)
    rows_in_range._check()
    assert rows_in_range.to_dict() == expected


def test_a_range_scan_includes_the_ends_of_int64():
    trace = Trace(1)
    trace.update(ZSet.from_rows([(-(2**63),), (0,), (2**63 - 1,)]))
    assert len(range_scan(trace, (0,), -(2**63), 2**63 - 1)) == 3
    assert range_scan(trace, (0,), 2**63 - 1, 2**63 - 1).to_dict() == {(2**63 - 1,): 1}


@pytest.mark.parametrize("keys", [(), ("n",)], ids=["retained", "keyed"])
def test_a_step_reads_what_expires_and_not_the_state(monkeypatch, keys):
    """By counting: rows read for expiry are those that expire, however many there are."""
    read = []
    slice_of = dbsp_wcoj.storage.range_scan._slice

    def slice_and_count(run, low, high):
        columns, weights = slice_of(run, low, high)
        read.append(len(weights))
        return columns, weights

    monkeypatch.setattr(dbsp_wcoj.storage.range_scan, "_slice", slice_and_count)
    for rows in (1_000, 30_000):
        circuit = circuit_of(pa.int64(), Retention("t", rows), keys=keys)
        numbers = np.arange(rows)
        circuit.step({"r": pa.table({"n": numbers, "t": numbers})})
        for step in range(40):
            read.clear()
            after = rows + 1 + 10 * step + np.arange(10)
            delta = circuit.step({"r": pa.table({"n": after, "t": after})})["view"]
            expired = int((delta.column("weight").to_numpy() < 0).sum())
            assert expired == 10
            assert sum(read) == expired
            assert len(read) <= 16  # runs


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Paris"])
def test_times_outside_of_pythons_range_are_rejected_like_others(zone):
    type = pa.timestamp("us", zone)
    circuit = circuit_of(type, Retention("t", "7 days"), strict=True)

    def table(time, weight=1):
        times = pa.array([time], pa.int64()).cast(type)
        return pa.table({"n": [1], "t": times, "weight": [weight]})

    circuit.step({"r": table(3 * 10**17)})
    (late,) = circuit.prepare({"r": table(-3 * 10**17)}).rejected["r"]
    assert late.reason == "late" and "'-7537-05-18 18:40:00.000000" in late.message
    (missing,) = circuit.prepare({"r": table(3 * 10**17 + 1, -1)}).rejected["r"]
    assert missing.reason == "missing" and "'11476-08-15 05:20:00.000001" in missing.message


@pytest.mark.parametrize("on_expiry", ["retract", "keep"])
@pytest.mark.parametrize(
    ("type", "time", "length"),
    [
        (pa.int8(), -100, 100),
        (pa.int16(), -(2**15), 1),
        (pa.uint32(), 5, 10),
        (pa.date32(), pa.scalar(-(2**31), pa.int32()).cast(pa.date32()), "1 day"),
        (pa.uint64(), 3, 10),
    ],
)
def test_a_watermark_before_the_least_value_of_a_type_is_that_value(type, time, length, on_expiry):
    rules = {"r": InputOptions(retain=Retention("t", length, on_expiry=on_expiry))}
    query = "SELECT t AS tens, count(*) AS many FROM r GROUP BY 1"
    if pa.types.is_integer(type):
        query = "SELECT cast(t / 10 AS bigint) AS tens, count(*) AS many FROM r GROUP BY 1"
    circuit = compile_sql(query, {"r": pa.schema([("t", type)])}, input_options=rules)
    table = pa.table({"t": pa.array([time], type)})
    assert circuit.step({"r": table})["view"].num_rows == 1
    least = 0 if pa.types.is_unsigned_integer(type) else -(2 ** (type.bit_width - 1))
    integer = pa.int32() if type == pa.date32() else type
    assert circuit.watermarks["r"].cast(integer) == pa.scalar(least, integer)
    assert circuit.step({"r": table})["view"]["many"].to_pylist() == [1, 2]


@pytest.mark.parametrize("rows", [{}, {"r": table_of(pa.timestamp("ns"), NOON)}])
def test_a_watermark_after_the_last_time_of_a_type_is_refused(rows):
    circuit = circuit_of(pa.timestamp("ns"), Retention("t", "1 day"))
    with pytest.raises(
        InputOptionsError, match=r"after the last time of type .*: give at most 2262"
    ):
        circuit.step(rows, {"r": datetime(2500, 1, 1)})
    circuit.step(rows, {"r": datetime(1, 1, 1)})
