"""Texts and numbers of JSON events are converted to the types of columns exactly or not at all."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from circuits.schema import Schema
from streaming import FeedError
from streaming.sources.change_feeds import DebeziumFeed, Encoding, MaxwellFeed
from streaming.sources.envelope import decode_batch
from tests.generators.feeds import reader_of, to_json

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def reader(spark):
    return reader_of(spark)


TIMES = pa.schema(
    [
        ("ms", pa.timestamp("ms")),
        ("us", pa.timestamp("us", "Europe/Paris")),
        ("ns", pa.timestamp("ns")),
        ("clock", pa.time64("ns")),
        ("span", pa.duration("ms")),
        ("bytes", pa.binary()),
        ("big", pa.uint64()),
        ("wide", pa.decimal256(50, 2)),
        ("round", pa.decimal128(5, -2)),
        ("word", pa.dictionary(pa.int32(), pa.string())),
    ]
)


@pytest.mark.parametrize(
    ("column", "value", "expected"),
    [
        ("ms", "2024-01-02 03:04:05.678", "2024-01-02 03:04:05.678000"),
        ("ms", "2024-01-02T03:04:05.678901", None),
        ("ms", "2024-01-02T03:04:05Z", None),
        ("ms", 1704164645678000, "2024-01-02 03:04:05.678000"),
        ("ms", 1704164645678901, None),
        ("ms", "2024-02-30 00:00:00", None),
        ("ms", "+2024-02-29", "2024-02-29 00:00:00"),
        ("ms", "02024-02-29 01:02", "2024-02-29 01:02:00"),
        ("ms", "2024-02-29 01:02 -03", None),
        ("ns", "02024-02-29", "2024-02-29 00:00:00"),
        ("us", "+2024-02-29", "2024-02-29 01:00:00+01:00"),
        ("us", "2024-02-29 01:02:03.5-03", "2024-02-29 05:02:03.500000+01:00"),
        ("ms", "12:30:00", None),
        ("us", "2024-01-02 03:04:05", "2024-01-02 04:04:05+01:00"),
        ("us", "2024-01-02T03:04:05+01:00", "2024-01-02 03:04:05+01:00"),
        ("us", 1704164645000, None),
        ("ns", "2024-01-02 03:04:05.000001", "2024-01-02 03:04:05.000001"),
        ("ns", 1704164645000000, "2024-01-02 03:04:05"),
        ("clock", "23:59:59.000001", "23:59:59.000001"),
        ("clock", "24:00:00", None),
        ("clock", "-00:00:01", None),
        ("span", "-838:59:59", "-35 days, 1:00:01"),
        ("span", "00:00:00.0001", None),
        ("bytes", "AAH/", "b'\\x00\\x01\\xff'"),
        ("bytes", "?", None),
        ("bytes", 5, None),
        ("big", 2**64 - 2, str(2**64 - 2)),
        ("big", 2**64 - 1, None),
        ("big", -1, None),
        ("wide", "1" * 48 + ".25", "1" * 48 + ".25"),
        ("wide", "1" * 49, None),
        ("round", "12300", "1.23E+4"),
        ("round", "12345", None),
        ("word", "ann", "ann"),
    ],
)
def test_texts_and_numbers_are_read_as_types_or_refused(decoded_cases, column, value, expected):
    actual, reason = decoded_cases(column, value)
    if expected is None:
        assert reason.startswith(f"column {column!r}: {value} is not a valid ")
    else:
        assert (str(actual), reason) == (expected, None)


@pytest.fixture(scope="module")
def decoded_cases(reader, request):
    """Return a function from a case to its decoded value and error, all from one micro-batch."""
    function = test_texts_and_numbers_are_read_as_types_or_refused
    (mark,) = [m for m in function.pytestmark if m.name == "parametrize"]
    texts = [to_json({"type": "insert", "table": "t", "data": {c: v}}) for c, v, _ in mark.args[1]]
    feed = MaxwellFeed(encoding=Encoding(time_unit={"ns": "us", "ms": "us"}))
    schemas = {"t": TIMES}
    table = reader(feed, texts, schemas=schemas)
    result = {}
    for (column, value, _), text in zip(mark.args[1], texts, strict=True):
        rejected = [row for row in table.to_pylist() if row["raw"] == text]
        result[column, value] = (None, rejected[0]["error"]) if rejected else None
    changes = decode_batch(table, {"t": Schema.of("t", TIMES)})
    assert len(changes.dead_letters) == sum(v is not None for v in result.values())
    rows = iter(changes.tables["t"].to_pylist())
    for (column, value), known in result.items():
        if known is None:
            result[column, value] = (next(rows)[column], None)
    return lambda column, value: result[column, value]


@pytest.mark.parametrize("type", [pa.float16(), pa.list_(pa.int8()), pa.month_day_nano_interval()])
def test_types_that_no_feed_can_carry_are_refused(reader, type):
    with pytest.raises(FeedError, match="cannot carry values of type"):
        reader(MaxwellFeed(relation="t"), ["{}"], schemas={"t": pa.schema([("x", type)])})


NUMBERS = pa.schema(
    [
        ("n", pa.int64()),
        ("d", pa.decimal128(38, 17)),
        ("t", pa.string()),
        ("day", pa.date32()),
    ]
)
DECIMAL = "org.apache.kafka.connect.data.Decimal"


def debezium_event(after, *columns):
    """Return an event of Debezium, with a schema if ``columns`` describe it."""
    payload = {"after": after, "op": "c", "source": {"table": "t"}}
    if not columns:
        return to_json(payload)
    return to_json(
        {"schema": {"fields": [{"field": "after", "fields": list(columns)}]}, "payload": payload}
    )


def column(name, type, logical=None, **parameters):
    return {"field": name, "type": type, "name": logical, "parameters": parameters}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (debezium_event({"d": "1234.50"}), "1234.5"),
        (debezium_event({"d": "12345"}), "12345"),
        (debezium_event({"d": "12"}), "12"),
        (debezium_event({"d": "AMg="}), "200E-17"),
        (debezium_event({"d": "1234"}), "1234, a number and the base64 of another"),
        (debezium_event({"n": "12345678"}), "12345678, a number and the base64 of another"),
        (debezium_event({"n": "AMg="}), "200"),
        (debezium_event({"n": "AMg"}), "base64 AMg is not a valid int64"),
        (debezium_event({"d": "1234"}, column("d", "string")), "1234"),
        (debezium_event({"d": "1234"}, column("d", "bytes", DECIMAL, scale="0")), "-2658824"),
        (debezium_event({"d": "AMg="}, column("d", "bytes", DECIMAL, scale="-2")), "20000"),
        (debezium_event({"d": {"scale": 1, "value": "AMg="}}), "20"),
        (debezium_event({"d": {"scale": -1, "value": "AMg="}}), "2000"),
        (debezium_event({"n": {"scale": 0, "value": "1234"}}), "-2658824"),
        (
            debezium_event({"n": "AQA="}, column("n", "bytes", "io.debezium.data.Bits")),
            "AQA= is not a valid int64",
        ),
        (debezium_event({"day": 5}), "1970-01-06"),
        (debezium_event({"day": 5}, column("day", "int32", "io.debezium.time.Date")), "1970-01-06"),
        (
            debezium_event({"day": 5}, column("day", "int64", "io.debezium.time.Timestamp")),
            "5 is not a valid date32",
        ),
        (
            to_json({"after": {"d": 0}}).replace("0", f"1.{'1' * 45}")[:-1]
            + ', "op": "c", "source": {"table": "t"}}',
            "rounded from more than 38 digits, is not a valid decimal128",
        ),
        (debezium_event({"t": "x"}).replace('"x"', "1" * 45), "is not a valid string"),
        (debezium_event({"t": "x"}).replace('"x"', "1E2"), "100.0 is not a valid string"),
        (debezium_event({"t": "x"}).replace('"x"', "1.10"), "1.1"),
        (debezium_event({"t": "1.1E5"}), "1.1E5"),
    ],
)
def test_numbers_of_debezium_are_exact_or_refused_in_every_encoding(numbers, text, expected):
    value, error = numbers(text)
    if error is not None:
        assert expected in error and " is not a valid " in error
    elif isinstance(value, Decimal):
        assert value == Decimal(expected)
    else:
        assert str(value) == expected


@pytest.fixture(scope="module")
def numbers(reader):
    """Return a function from an event to its value and error, all from one micro-batch."""
    function = test_numbers_of_debezium_are_exact_or_refused_in_every_encoding
    (mark,) = [m for m in function.pytestmark if m.name == "parametrize"]
    texts = [text for text, _ in mark.args[1]]
    table = reader(DebeziumFeed(), texts, schemas={"t": NUMBERS})
    rows = zip(table["row_t"].to_pylist(), table["error"].to_pylist(), strict=True)
    result = dict(zip(texts, rows, strict=True))

    def value(text):
        row, error = result[text]
        values = [value for value in (row or {}).values() if value is not None]
        return (values[0] if values else None), error

    return value
