"""Texts parsed as times: by the patterns of C as in DuckDB, and by those of Java as in Spark 4."""

from __future__ import annotations

from datetime import datetime
from itertools import permutations

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circuits.errors import EvaluationError
from circuits.plan.expressions import Column, Literal
from circuits.runtime.evaluation import evaluate
from circuits.types.functions import call

TEXT = Column(0, pa.string())
DATABASE = duckdb.connect(config={"threads": 1})
DATABASE.execute("SET TimeZone = 'UTC'")


def parse(function: str, texts: list[str], pattern: str) -> list[datetime | None]:
    parsed = call(function, TEXT, Literal(pattern, pa.string()))
    return evaluate(parsed, [pa.array(texts)], len(texts)).to_pylist()


def in_duckdb(text: str, pattern: str) -> datetime | None:
    query = "SELECT try_strptime(?, ?)"
    try:
        (value,) = DATABASE.execute(query, [text, pattern]).fetchone()
    except duckdb.Error:  # two fields that exclude each other
        return None
    return value


# The letters of a pattern of C, and numbers within and beyond their ranges.
NUMBERS = {
    **{"Y": ("2020", "2021", "1"), "y": ("68", "69", "5"), "G": ("2020", "2017")},
    **{"m": ("1", "12", "0", "13"), "d": ("1", "31", "0", "32"), "j": ("1", "366", "0", "367")},
    **{"U": ("0", "1", "53", "54"), "W": ("0", "1", "53", "54"), "V": ("1", "53", "0", "54")},
    **{"u": ("1", "7", "0", "8"), "w": ("0", "6", "7"), "a": ("Mon", "xyz"), "A": ("Sunday",)},
    **{"H": ("0", "12", "13", "23", "24"), "I": ("1", "12", "0", "13"), "p": ("AM", "pm", "x")},
    **{"M": ("0", "59", "60"), "S": ("0", "59", "60"), "b": ("Jan", "dec", "x"), "B": ("March",)},
    **{"f": ("5", "123456", "1234567"), "g": ("5", "123", "1234"), "n": ("5", "123456000")},
}


@settings(max_examples=400)
@given(st.lists(st.sampled_from(sorted(NUMBERS)), min_size=1, max_size=5, unique=True), st.data())
def test_fields_of_c_are_parsed_as_in_duckdb(letters, data):
    blanks = data.draw(st.sampled_from([" ", "-", "  ", ", "]))
    text = blanks.join(data.draw(st.sampled_from(NUMBERS[letter])) for letter in letters)
    pattern = blanks.join(f"%{letter}" for letter in letters)
    assert parse("try_strptime", [text], pattern) == [in_duckdb(text, pattern)]


def test_pairs_of_fields_of_a_day_are_those_of_duckdb():
    for letters in permutations("YymdjUWGVbuw", 2):
        pattern = " ".join(f"%{letter}" for letter in letters)
        text = " ".join(NUMBERS[letter][0] for letter in letters)
        assert parse("try_strptime", [text], pattern) == [in_duckdb(text, pattern)], pattern


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        *(("%Y%m", "202012"), ("%d%m", "12"), ("%d%m", "111"), ("%Y", "+2020"), ("%Y", "２０20")),
        *(("%Y %m", "2020   1"), (" %Y ", " 2020 "), ("%Y", "\t2020\n"), ("%Y", "\u30002020")),
        *(("%Y-%m-%d %Z", "2020-01-01 America"), ("%Y %Y", "2020 2021")),
    ],
)
def test_digits_and_blanks_are_those_of_duckdb(pattern, text):
    assert parse("try_strptime", [text], pattern) == [in_duckdb(text, pattern)]


FAILS = None
# Spark 4 computed the times: of a pattern, texts and their times as ISO 8601.
OF_SPARK = {
    "yyyy-MM-dd[ HH:mm]": {
        "2020-01-01": "2020-01-01",
        "2020-01-01 10:30": "2020-01-01T10:30",
        "2020-01-01 10": FAILS,
        "2020-01-01:30": FAILS,
    },
    "yyyy-MM-dd[ HH:mm[:ss]]": {
        "2020-01-01 10:30": "2020-01-01T10:30",
        "2020-01-01 10:30:20": "2020-01-01T10:30:20",
        "2020-01-01:20": FAILS,
    },
    "yyyy-MM-dd[[ HH]:mm": {"2020-01-01 10:30": "2020-01-01T10:30", "2020-01-01 10": FAILS},
    "[yyyy-MM-dd][yyyy/MM/dd]": {"2020/03/01": "2020-03-01", "2020-03-01": "2020-03-01"},
    "[d]MM": {"12": FAILS},
    "yyyy-MM-DD": {"2020-03-60": FAILS, "2020-02-60": "2020-02-29"},
    "yyyy-MM-dd DDD": {"2020-02-29 060": "2020-02-29", "2020-02-29 061": FAILS},
    "yyyy-DDD": {"2020-366": "2020-12-31", "2021-366": FAILS, "2021-000": FAILS},
    "yyyy kk": {"2020 30": FAILS, "2020 00": FAILS, "2020 24": "2020-01-01"},
    "yyyy HH": {"2020 24": FAILS, "2020 23": "2020-01-01T23:00"},
    "yyyy hh": {"2020 00": FAILS, "2020 13": FAILS, "2020 12": "2020-01-01"},
    "yyyy KK": {"2020 12": FAILS, "2020 11": "2020-01-01T11:00"},
    "yyyy hh a": {"2020 12 AM": "2020-01-01", "2020 12 pm": "2020-01-01T12:00"},
    "yyyy HH a": {"2020 13 PM": "2020-01-01T13:00", "2020 13 AM": FAILS, "2020 01 PM": FAILS},
    "yyyy HH hh": {"2020 13 01": "2020-01-01T13:00", "2020 13 02": FAILS},
    "yyyy a": {"2020 PM": "2020-01-01T12:00"},
    "yyyy-MM MMM": {"2020-03 Mar": "2020-03-01", "2020-03 Feb": FAILS},
    "yyyy yyyy": {"2020 2020": "2020-01-01", "2020 2021": FAILS},
    "yyyy yy": {"2020 20": "2020-01-01", "2020 21": FAILS},
    "yyyy": {"２０20": FAILS},
    "yyyy G": {"2020 AD": "2020-01-01"},
    "yyyy VV": {"2020 America": FAILS},
}


@pytest.mark.parametrize("pattern", OF_SPARK)
def test_fields_of_java_are_parsed_as_in_spark(pattern):
    times = OF_SPARK[pattern]
    expected = [time and datetime.fromisoformat(time) for time in times.values()]
    assert parse("try_date_parse", list(times), pattern) == expected


@pytest.mark.parametrize("function", ["date_parse", "try_date_parse", "date_parse_local"])
@pytest.mark.parametrize("pattern", ["yyyy q", "yyyy Q", "yyyy F", "yyyy E", "yyyy EEEE", "yyyy]"])
def test_formats_that_spark_does_not_parse_are_errors(function, pattern):
    with pytest.raises(EvaluationError, match="the date format 'yyyy"):
        parse(function, ["2020 1"], pattern)


def test_a_year_before_christ_is_an_error_that_names_it():
    with pytest.raises(EvaluationError, match="is a year before 1"):
        parse("date_parse", ["2020 BC"], "yyyy G")
