"""Feeds, against random histories of tables that are written in each format."""

from __future__ import annotations

import base64
from collections import Counter
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streaming.sources.change_feeds import (
    CanalFeed,
    CompactedFeed,
    DebeziumFeed,
    Encoding,
    MaxwellFeed,
)
from streaming.sources.envelope import decode_batch
from tests.generators.feeds import INPUTS, KEYS, RULES, SCHEMAS, bag, reader_of, to_json

pytestmark = pytest.mark.spark

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
PRICES = st.decimals(allow_nan=False, places=9, min_value=-(10**20), max_value=10**20)
ROWS = {
    "r": st.fixed_dictionaries(
        {
            "id": st.integers(0, 4),
            "name": st.none() | TEXTS,
            "price": st.none() | PRICES,
            "rate": st.none() | st.floats(allow_nan=False, allow_infinity=False),
            "sold": st.none() | st.booleans(),
        }
    ),
    "s": st.fixed_dictionaries(
        {"id": st.sampled_from(["a", "b", "é"]), "n": st.none() | st.integers(-128, 127)}
    ),
}


@st.composite
def histories(draw):
    """Steps (relation, row before, row after); a key has one row or none."""
    tables = {"r": {}, "s": {}}
    steps = []
    for _ in range(draw(st.integers(1, 12))):
        relation = draw(st.sampled_from("rs"))
        table = tables[relation]
        drawn = draw(ROWS[relation])
        row = {name: drawn[name] for name in SCHEMAS[relation].names}
        before = table.get(row["id"])
        if before is not None and draw(st.booleans()):
            after = None
            del table[row["id"]]
        else:
            after = table[row["id"]] = row
        steps.append((relation, before, after))
    return steps


def unscaled(value):
    if value is None:
        return None
    number = int(Fraction(value) * 10**9)  # a Decimal rounds to 28 digits
    size = (number.bit_length() + 8) // 8
    return base64.b64encode(number.to_bytes(size, "big", signed=True)).decode()


def changed(before, after):
    return {name: before[name] for name in before if before[name] != after[name]}


def debezium(relation, before, after, place):
    def image(row):
        return row and ({**row, "price": unscaled(row["price"])} if relation == "r" else row)

    op = "c" if before is None else "d" if after is None else "u"
    source = {"db": "shop", "table": relation, "lsn": place}
    return to_json({"before": image(before), "after": image(after), "op": op, "source": source})


def maxwell(relation, before, after, place):
    kind = "insert" if before is None else "delete" if after is None else "update"
    event = {"database": "shop", "table": relation, "type": kind, "data": after or before}
    if kind == "update":
        event["old"] = changed(before, after)
    return to_json(event | {"xid": place, "xoffset": 0})


def as_texts(row):
    def text(value):
        if value is None or isinstance(value, str):
            return value
        return f"{value:f}" if isinstance(value, Decimal) else str(value).lower()

    return {name: text(value) for name, value in row.items()}


def canal(relation, before, after, place):
    kind = "INSERT" if before is None else "DELETE" if after is None else "UPDATE"
    event = {"database": "shop", "table": relation, "type": kind, "isDdl": False, "id": place}
    event |= {"data": [as_texts(after or before)], "old": None, "es": 1684770072000}
    if kind == "UPDATE":
        event["old"] = [as_texts(changed(before, after))]
    return to_json(event)


FORMATS = {
    "debezium": (DebeziumFeed(encoding=Encoding(decimals="base64")), debezium),
    "maxwell": (MaxwellFeed(), maxwell),
    "canal": (CanalFeed(), canal),
}


@pytest.fixture(scope="module")
def reader(spark):
    return reader_of(spark)


@settings(max_examples=4, suppress_health_check=list(HealthCheck))
@given(histories_drawn=st.lists(histories(), min_size=30, max_size=30))
@pytest.mark.parametrize("format", list(FORMATS))
def test_the_decoded_events_of_a_history_add_up_to_its_tables(reader, format, histories_drawn):
    """The deltas of a history sum up to its tables; one batch has the events of many histories."""
    feed, write_event = FORMATS[format]
    texts, owners = [], []
    for number, steps in enumerate(histories_drawn):
        for position, step in enumerate(steps):
            texts.append(write_event(*step, position))
            owners.append((number, step))
    changes = decode_batch(reader(feed, texts), INPUTS)
    assert not len(changes.dead_letters), changes.dead_letters.table.to_pylist()[:3]
    expected = {"r": Counter(), "s": Counter()}
    for _, (relation, before, after) in owners:
        if before is not None:
            expected[relation][tuple(before.values())] -= 1
        if after is not None:
            expected[relation][tuple(after.values())] += 1
    for relation, table in changes.tables.items():
        assert bag(table) == {row: n for row, n in expected[relation].items() if n}


def last_rows(table, key):
    """Return the last row of each key by sequence, without deleted keys."""
    result = {}
    for row in sorted(table.to_pylist(), key=lambda row: row["sequence"]):
        row.pop("sequence")
        weight = row.pop("weight")
        result[row[key]] = tuple(row.values()) if weight > 0 else None
    return {key: row for key, row in result.items() if row is not None}


@settings(max_examples=2, suppress_health_check=list(HealthCheck))
@given(histories_drawn=st.lists(histories(), min_size=25, max_size=25))
@pytest.mark.parametrize("format", [*FORMATS, "compacted"])
def test_events_by_key_leave_the_last_row_of_each_key(reader, format, histories_drawn):
    texts, expected = [], {"r": {}, "s": {}}
    for number, steps in enumerate(histories_drawn):
        for relation, before, after in steps:
            if relation == "s" and format == "compacted":
                continue
            images = [dict(row) if row else None for row in (before, after)]
            for row in images:
                if row is not None:  # make the keys of the histories distinct
                    row["id"] = (
                        row["id"] + 10 * number if relation == "r" else f"{row['id']}{number}"
                    )
            before, after = images
            key = (after or before)["id"]
            expected[relation][key] = after and tuple(after.values())
            place = len(texts)
            if format == "compacted":
                texts.append((to_json({"id": key}), after and to_json(after)))
            else:
                text = FORMATS[format][1](relation, before, after, place)
                # Without the before image, as of a table that does not log it.
                texts.append(text.replace('"before": {', '"unlogged": {') if after else text)
    feed = CompactedFeed("r", sequence="seq") if format == "compacted" else FORMATS[format][0]
    changes = decode_batch(reader(feed, texts, keys=KEYS), INPUTS, input_options=RULES)
    assert not len(changes.dead_letters), changes.dead_letters.table.to_pylist()[:3]
    for relation, table in changes.tables.items():
        left = {key: row for key, row in expected[relation].items() if row is not None}
        assert last_rows(table, "id") == left
