"""A row whose string would be too long becomes a dead letter; the other rows are processed."""

from __future__ import annotations

import pyarrow as pa
import pytest

from circuits import compile_sql
from circuits.types.functions.length_limits import MAX_STRING_BYTES
from streaming import ViewSink
from tests.circuits.types.test_long_texts import SCHEMA
from tests.streaming.sink.test_view_sink import Frame, RecordingTarget

LONG = "x" * 2**20

#: A text of n that would be too long, by the expression that would create it.
TOO_LONG = {
    "repeat(s, n)": ("ab", 3_000_000_000),
    "lpad(s, n, 'x')": ("ab", 3_000_000_000),
    "rpad(s, n, 'xyz')": ("ab", 2**62),
    "lpad(s, n)": ("ab", 2**40),
    "replace(s, 'x', repeat('y', 100))": (LONG, 0),
    "s || s || repeat(s, n)": (LONG, 15),
    "concat(repeat(s, n), s)": (LONG, 16),
    "space(n)": ("ab", 3_000_000_000),
    "array_join(array_repeat(s, n), ',')": (LONG, 16),
    "regexp_replace(s, 'x', repeat('y', 100))": (LONG, 0),
    "regexp_replace(s, '(?<=x)x', repeat('y', 9999))": ("x" * 9999, 0),
    "hex(repeat(s, n))": (LONG, 9),
}


@pytest.mark.parametrize("sql", TOO_LONG)
def test_only_the_row_whose_text_would_be_too_long_becomes_a_dead_letter(tmp_path, sql):
    text, n = TOO_LONG[sql]
    circuit = compile_sql(f"SELECT k, length({sql}) AS n FROM r", SCHEMA, dialect="spark")
    seen = RecordingTarget()
    sink = ViewSink(circuit, seen, state_dir=tmp_path, bad_rows="dead_letter")
    rows = [{"k": 1, "s": "ab", "n": 3}, {"k": 2, "s": text, "n": n}, {"k": 3, "s": "é", "n": 4}]
    sink(Frame(pa.Table.from_pylist(rows, SCHEMA["r"]), "q"), 0)
    assert sink.last.outputs["view"]["k"].to_pylist() == [1, 3]
    assert sink.metrics[-1].dead_letters == 1
    (letter,) = letters_of(tmp_path)
    assert letter["row"].startswith('{"k": 2, ')
    assert f"{MAX_STRING_BYTES:,} bytes" in letter["reason"]
    assert "exclude such rows" in letter["reason"]
    assert len(letter["reason"]) < 2000


def letters_of(state_dir):
    import pyarrow.parquet as pq

    (path,) = (state_dir / "dead_letters").glob("*.parquet")
    return pq.read_table(path).to_pylist()
