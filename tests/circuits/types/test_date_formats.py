"""Times formatted as text: each distinct time is formatted once."""

from __future__ import annotations

from datetime import datetime, timedelta

import pyarrow as pa
import pytest

from circuits.plan.expressions import Column, Literal
from circuits.runtime.evaluation import evaluate
from circuits.types.functions import call
from circuits.types.functions.dates import date_formats, date_patterns

AT = Column(0, pa.timestamp("us"))
TIMES = [
    None,
    *(datetime(1969, 12, 31, 23, 59, 58) + timedelta(microseconds=700_001 * i) for i in range(9)),
    *(datetime(2024, 2, 29, 11) + timedelta(minutes=31 * i) for i in range(9)),
    *(datetime(1000, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999)),
]
FORMATS = ["%Y-%m-%d", "%H", "%I %p", "%d %H:%M", "%S", "%j %H:%M:%S.%f", "%U", "in", ""]


@pytest.mark.parametrize("pattern", FORMATS)
def test_a_time_is_formatted_as_in_python(pattern):
    text = call("strftime", AT, Literal(pattern, pa.string()))
    texts = evaluate(text, [pa.array(TIMES, AT.type)], len(TIMES)).to_pylist()
    assert texts == [None if time is None else time.strftime(pattern) for time in TIMES]


@pytest.mark.parametrize(
    ("name", "pattern", "texts"),
    [
        ("strftime", "%Y-%m-%d", 2),
        ("strftime", "%H:%M", 2 * 60),
        ("date_format", "yyyy-MM-dd HH", 2),
    ],
)
def test_a_field_is_formatted_once_per_distinct_time(monkeypatch, name, pattern, texts):
    calls = []
    format_field = date_formats._format_field
    monkeypatch.setattr(
        date_formats,
        "_format_field",
        lambda *arguments: calls.append(1) or format_field(*arguments),
    )
    begin = datetime(2026, 1, 1, 23)
    times = pa.array([begin + timedelta(seconds=i) for i in range(7_200)], AT.type)
    evaluate(call(name, AT, Literal(pattern, pa.string())), [times], len(times))
    fields = len((date_patterns.c_format if "%" in pattern else date_patterns.java_format)(pattern))
    assert len(calls) == texts * fields
