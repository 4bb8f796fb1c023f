"""RANGE frames whose bounds are beyond the integers of 64 bits, against integers of Python."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from circuits import compile_sql

LIMIT = 2**63 - 1
VALUES = st.sampled_from(
    [sign * (LIMIT - distance) for sign in (1, -1) for distance in range(4)] + [0, 1]
)
OFFSETS = st.sampled_from([0, 1, 2, 3, 5, LIMIT - 1, LIMIT])
BOUNDS = st.tuples(OFFSETS, st.sampled_from(["PRECEDING", "FOLLOWING"]))


def signed(bound):
    offset, direction = bound
    return -offset if direction == "PRECEDING" else offset


@given(
    st.tuples(BOUNDS, BOUNDS).filter(lambda bounds: signed(bounds[0]) <= signed(bounds[1])),
    st.booleans(),
    st.lists(st.lists(VALUES, max_size=5), min_size=1, max_size=3),
)
@settings(max_examples=150, deadline=None)
def test_a_frame_has_the_rows_between_its_exact_bounds(bounds, descending, batches):
    start, end = (f"{offset} {direction}" for offset, direction in bounds)
    circuit = compile_sql(
        f"SELECT x, count(*) OVER (ORDER BY x {'DESC' if descending else ''} "
        f"RANGE BETWEEN {start} AND {end}) AS n FROM t",
        {"t": "x bigint not null"},
    )
    actual: Counter = Counter()
    for batch in batches:
        delta = circuit.step({"t": pa.table({"x": pa.array(batch, pa.int64())})})["view"]
        for row in delta.to_pylist():
            actual[row["x"], row["n"]] += row["weight"]

    rows = [x for batch in batches for x in batch]
    low, high = map(signed, bounds)
    if descending:
        low, high = -high, -low
    expected = Counter((x, sum(low <= y - x <= high for y in rows)) for x in rows)
    assert +actual == expected
