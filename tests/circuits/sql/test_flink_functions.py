"""Functions and operators of Flink in dialect spark; the values are those of its documentation."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from circuits import EvaluationError, compile_sql
from circuits.errors import SqlError, UnsupportedSqlError

SCHEMA = pa.schema([("s", pa.string()), ("x", pa.float64()), ("l", pa.list_(pa.int64()))])


def value_of(expression: str, **row: object) -> object:
    circuit = compile_sql(f"SELECT {expression} AS v FROM t", {"t": SCHEMA}, dialect="spark")
    (result,) = circuit.step({"t": [row]})["view"].to_pylist()
    return result["v"]


@pytest.mark.parametrize(
    ("expression", "row", "value"),
    [
        ("SPLIT_INDEX(s, ',', 0)", {"s": "a,b,,c"}, "a"),
        ("SPLIT_INDEX(s, ',', 2)", {"s": "a,b,,c"}, ""),
        ("SPLIT_INDEX(s, 'xx', 1)", {"s": "axxbxc"}, "bxc"),
        ("SPLIT_INDEX(s, ',', 4)", {"s": "a,b,,c"}, None),
        ("SPLIT_INDEX(s, ',', -1)", {"s": "a,b,,c"}, None),
        ("SPLIT_INDEX(s, ',', 0)", {"s": ""}, None),
        ("SPLIT_INDEX(s, ',', 0)", {}, None),
        ("TRUNCATE(x, 2)", {"x": 42.324}, 42.32),
        ("TRUNCATE(x)", {"x": -42.9}, -42.0),
        ("TRUNCATE(x, 1)", {"x": 0.3}, 0.3),
        ("TRUNCATE(42.329, 2)", {}, Decimal("42.32")),
        ("TRUNCATE(-1299, -2)", {}, -1200),
        ("ARRAY_REVERSE(l)", {"l": [7, 8]}, [8, 7]),
        ("IS_ALPHA(s)", {"s": "aé"}, True),
        ("IS_ALPHA(s)", {"s": "a1"}, False),
        ("IS_ALPHA(s)", {}, False),
        ("IS_DECIMAL(s)", {"s": "-1.5"}, True),
        ("IS_DECIMAL(s)", {"s": "1x"}, False),
        ("IS_DIGIT(s)", {"s": "012"}, True),
        ("IS_DIGIT(s)", {"s": ""}, False),
        ("ELEMENT(l)", {"l": [7]}, 7),
        ("ELEMENT(l)", {"l": []}, None),
        ("ELEMENT(l)", {}, None),
        (
            "CONVERT_TZ('1970-01-01 00:00:00', 'UTC', 'America/Los_Angeles')",
            *({}, "1969-12-31 16:00:00"),
        ),
        ("CONVERT_TZ(s, 'UTC', 'Asia/Tokyo')", {"s": "no time"}, None),
    ],
)
def test_a_function_has_the_value_of_flink(expression, row, value):
    assert value_of(expression, **row) == value


def test_a_function_refuses_what_it_cannot_compute():
    with pytest.raises(EvaluationError, match="more than one element"):
        value_of("ELEMENT(l)", l=[1, 2])
    with pytest.raises(SqlError, match="an empty separator"):
        value_of("SPLIT_INDEX(s, '', 1)")


NOON = datetime(2024, 2, 29, 12)
OVERLAPS = compile_sql(
    "SELECT (a, b) OVERLAPS (c, d) AS v, (a, INTERVAL '1' HOUR) OVERLAPS (c, d) AS w FROM t",
    {"t": pa.schema([(name, pa.timestamp("us")) for name in "abcd"])},
    dialect="spark",
)
times = st.none() | st.integers(0, 3)


@given(times, times, times, times)
def test_periods_overlap_if_they_have_a_time_in_common(a, b, c, d):
    hours = {"a": a, "b": b, "c": c, "d": d}
    row = {k: None if h is None else NOON + timedelta(hours=h) for k, h in hours.items()}
    step = OVERLAPS.prepare({"t": [row]})
    (result,) = step.outputs["view"].to_pylist()
    step.abandon()

    def common(first: tuple, second: tuple) -> bool:
        (s, e), (t, f) = sorted(first), sorted(second)
        return any(s <= time <= e and t <= time <= f for time in range(6))

    if None not in (a, b, c, d):
        assert result["v"] == common((a, b), (c, d))
    if None not in (a, c, d):
        assert result["w"] == common((a, a + 1), (c, d))
    else:
        assert result["w"] is not True


def test_overlaps_compares_pairs():
    with pytest.raises(SqlError, match="two pairs"):
        compile_sql("SELECT (1, 2, 3) OVERLAPS (2, 3) AS v", dialect="spark")


def test_localtimestamp_is_the_time_of_the_step_unless_there_is_such_a_column():
    schema = {"t": pa.schema([("ts", pa.timestamp("us"))])}
    text = "SELECT ts FROM t WHERE ts > LOCALTIMESTAMP - INTERVAL '1' HOUR"
    circuit = compile_sql(text, schema, dialect="spark")
    rows = [{"ts": NOON}, {"ts": NOON - timedelta(hours=2)}]
    assert circuit.step({"t": rows}, now=NOON)["view"].to_pylist() == [{"ts": NOON, "weight": 1}]
    circuit = compile_sql("SELECT LOCALTIMESTAMP AS v FROM t", schema, dialect="spark")
    assert circuit.step({"t": rows[:1]}, now=NOON)["view"].to_pylist() == [{"v": NOON, "weight": 1}]
    columns = {"t": "ts int, localtimestamp int"}
    circuit = compile_sql("SELECT ts FROM t WHERE ts > LOCALTIMESTAMP", columns, dialect="spark")
    rows = [{"ts": 2, "localtimestamp": 1}, {"ts": 2, "localtimestamp": 2}]
    assert circuit.step({"t": rows})["view"].to_pylist() == [{"ts": 2, "weight": 1}]


# The values are those of Flink's documentation; a row has s = 'x"y', another one NULL.
CONSTRUCTORS = {
    "JSON_OBJECT()": ("{}", "{}"),
    "JSON_OBJECT('a' VALUE a, KEY 's' VALUE s)": (
        '{"a":1,"s":"x\\"y"}',
        '{"a":2,"s":null}',
    ),
    "JSON_OBJECT('a' VALUE a, 's' VALUE s ABSENT ON NULL)": (
        '{"a":1,"s":"x\\"y"}',
        '{"a":2}',
    ),
    "JSON_ARRAY()": ("[]", "[]"),
    "JSON_ARRAY(a, s)": ('[1,"x\\"y"]', "[2]"),
    "JSON_ARRAY(a, s NULL ON NULL)": ('[1,"x\\"y"]', "[2,null]"),
    "JSON_STRING(s)": ('"x\\"y"', None),
    "JSON_OBJECT('k' VALUE JSON_ARRAY(JSON_OBJECT('x' VALUE 1.50), true))": (
        '{"k":[{"x":1.50},true]}',
        '{"k":[{"x":1.50},true]}',
    ),
}


@pytest.mark.parametrize("expression", CONSTRUCTORS)
def test_json_is_built_as_in_flink(expression):
    text = f"SELECT a, {expression} AS r FROM t"
    circuit = compile_sql(text, {"t": "a INT, s STRING"}, dialect="spark")
    rows = [{"a": 1, "s": 'x"y'}, {"a": 2, "s": None}]
    table = circuit.step({"t": rows})["view"].sort_by("a")
    assert tuple(table.column("r").to_pylist()) == CONSTRUCTORS[expression]


def test_a_key_of_json_object_is_constant():
    with pytest.raises(UnsupportedSqlError, match="column 20: a key of JSON_OBJECT"):
        compile_sql("SELECT JSON_OBJECT(s VALUE 1) AS r FROM t", {"t": "s STRING"}, dialect="spark")


@pytest.mark.parametrize("kind", ["TIMESTAMP_LTZ({})", "TIMESTAMP({}) WITH LOCAL TIME ZONE"])
@pytest.mark.parametrize(("digits", "micros"), [(0, 0), (3, 123_000), (6, 123_456), (9, 123_456)])
def test_a_cast_to_a_timestamp_keeps_its_digits_of_a_second(kind, digits, micros):
    moment = datetime(1969, 12, 31, 23, 59, 59, 123_456)
    for word in ("CAST", "TRY_CAST"):
        text = f"{word}(TIMESTAMP '{moment}' AS {kind.format(digits)})"
        assert value_of(text).replace(tzinfo=None) == moment.replace(microsecond=micros)


def test_a_cast_to_a_timestamp_with_other_digits_is_refused():
    with pytest.raises(UnsupportedSqlError, match=r"2 digits of a second .*write 0, 3, 6"):
        value_of("CAST(TIMESTAMP '2024-01-01 00:00:00' AS TIMESTAMP_NTZ(2))")
