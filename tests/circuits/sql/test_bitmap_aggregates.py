"""Aggregates of Spark's bitmaps against sets of numbers, under inserts and deletes."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from circuits import compile_sql

SCHEMA = pa.schema([("k", pa.int64()), ("n", pa.int64()), ("b", pa.binary())])
TEXT = """
SELECT k, bitmap_count(bitmap_construct_agg(bitmap_bit_position(n))) AS numbers,
    hex(substring(bitmap_or_agg(b), 1, 2)) AS some, hex(substring(bitmap_and_agg(b), 1, 2)) AS every
FROM t GROUP BY k
"""
ROWS = st.tuples(
    st.integers(0, 1),
    st.sampled_from([None, -1, 1, 2, 32_768]),
    st.sampled_from([None, b"", b"\x01", b"\x03\x80", b"\x01\xff"]),
)
Row = tuple[int, int | None, bytes | None]


def expected(rows: Counter[Row]) -> list[tuple[int, int, str, str]]:
    groups = []
    for key in sorted({row[0] for row in rows}):
        group = [row for row in rows if row[0] == key]
        positions = {(n - 1 if n > 0 else -n) % 32_768 for _, n, _ in group if n is not None}
        some, every = 0, 0xFFFF
        for _, _, bitmap in group:
            if bitmap is not None:
                number = int.from_bytes(bitmap.ljust(2, b"\0"), "big")
                some, every = some | number, every & number
        groups.append((key, len(positions), f"{some:04X}", f"{every:04X}"))
    return groups


@settings(max_examples=30)
@given(st.lists(st.tuples(ROWS, st.booleans()), max_size=8), st.integers(0, 8))
def test_bitmaps_of_a_group_follow_its_rows(changes, cut):
    circuit = compile_sql(TEXT, {"t": SCHEMA}, dialect="spark")
    rows: Counter[Row] = Counter()
    view: Counter[tuple[int, int, str, str]] = Counter()
    for part in (changes[:cut], changes[cut:]):
        weighted = []
        for row, is_insert in part:
            weight = 1 if is_insert or not rows[row] else -1
            rows[row] += weight
            weighted.append((*row, weight))
        columns = [list(column) for column in zip(*weighted, strict=True)] or [[], [], [], []]
        types = (*SCHEMA.types, pa.int64())
        arrays = [pa.array(column, type_) for column, type_ in zip(columns, types, strict=True)]
        delta = circuit.step({"t": pa.table(arrays, names=[*SCHEMA.names, "weight"])})["view"]
        for row in delta.to_pylist():
            weight = row.pop("weight")
            view[tuple(row.values())] += weight
    assert sorted(row for row, weight in view.items() if weight) == expected(+rows)


def test_an_input_without_rows_has_a_bitmap_without_bits():
    text = "SELECT bitmap_count(bitmap_construct_agg(n)) AS c FROM t"
    circuit = compile_sql(text, {"t": SCHEMA}, dialect="spark")
    assert circuit.step({})["view"]["c"].to_pylist() == [0]
