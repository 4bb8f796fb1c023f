"""The tables of random SQL, and random changes of their rows."""

from __future__ import annotations

import random
from collections import Counter
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

__all__ = ["KINDS_OF_TABLES", "SCHEMAS", "START", "Changes", "random_steps", "table_of_changes"]

START = datetime(2020, 1, 1)
INT, TEXT, STAMP = pa.int64(), pa.string(), pa.timestamp("us")
STRUCT = pa.struct([("i", INT), ("n", TEXT)])
SCHEMAS = {
    "t": pa.schema([("a", INT), ("b", INT), ("s", TEXT), ("ts", STAMP), ("k", pa.bool_())]),
    "u": pa.schema(
        [("a", pa.int32()), ("x", pa.float64()), ("s", TEXT), ("ts", STAMP), ("l", pa.list_(INT))]
    ),
    "v": pa.schema(
        [
            ("b", INT),
            ("d", pa.date32()),
            ("p", pa.decimal128(10, 2)),
            ("o", STRUCT),
            ("m", pa.map_(TEXT, INT)),
            ("j", TEXT),
        ]
    ),
}
KINDS_OF_TABLES = {
    "t": {"a": "int", "b": "int", "s": "text", "ts": "ts", "k": "bool"},
    "u": {"a": "int", "x": "real", "s": "text", "ts": "ts", "l": "list"},
    "v": {"b": "int", "d": "date", "p": "decimal", "o": "struct", "m": "map", "j": "json"},
}
SMALL = [None, 0, 1, 1, 2, 2, 3]
SECONDS = [0, 3, 5, 9, 10, 16, 22, 31, 60]
JSON = [None, "{}", '{"a": 1, "b": [2, 3]}', '{"a": null, "b": []}', "[1]"]
DOMAINS: dict[pa.DataType, list[Any]] = {
    INT: SMALL,
    pa.int32(): SMALL,
    pa.float64(): [None, 0.5, 1.5, 2.0, -1.0],
    TEXT: [None, "", "x", "x", "xy", "y", "Y"],
    pa.bool_(): [None, True, False],
    STAMP: [None, *(START + timedelta(seconds=second) for second in SECONDS)],
    pa.date32(): [None, date(2020, 1, 1), date(2020, 1, 2), date(2019, 12, 31)],
    pa.decimal128(10, 2): [None, Decimal("1.50"), Decimal("2.00"), Decimal("0.25")],
    pa.list_(INT): [None, [], [1, 2], [2], [None, 3]],
    STRUCT: [None, {"i": 1, "n": "x"}, {"i": None, "n": "y"}, {"i": 2, "n": None}],
    pa.map_(TEXT, INT): [None, [], [("k", 1)], [("k", 2), ("l", None)]],
}

#: Changed rows with their weights, by table.
Changes = dict[str, list[tuple[tuple[Any, ...], int]]]


def random_steps(
    rng: random.Random, steps: int, max_rows: int = 4, advance: timedelta = timedelta()
) -> list[Changes]:
    """Draw inserts and deletes; a row is deleted at most as often as it is present.

    The first step has more rows, so that joins find partners. The timestamps of each step are
    later than those of the step before by ``advance``.
    """
    present: dict[str, Counter[str]] = {name: Counter() for name in SCHEMAS}
    rows: dict[str, dict[str, tuple[Any, ...]]] = {name: {} for name in SCHEMAS}
    changes: list[Changes] = []
    for number in range(steps):
        step: Changes = {}
        for name, schema in SCHEMAS.items():
            for _ in range(rng.randint(0, max_rows) + (max_rows + 2 if number == 0 else 0)):
                keys = sorted(present[name])
                if keys and rng.random() < 0.35:
                    key, weight = rng.choice(keys), -1
                else:
                    row = random_row(rng, schema, number * advance)
                    key, weight = repr(row), rng.choice([1, 1, 2])
                    rows[name][key] = row
                present[name][key] += weight
                present[name] += Counter()  # drops rows of weight zero
                step.setdefault(name, []).append((rows[name][key], weight))
        changes.append(step)
    return changes


def random_row(rng: random.Random, schema: pa.Schema, later: timedelta) -> tuple[Any, ...]:
    """Draw a row; its timestamps are later by a duration."""
    values = [rng.choice(JSON if field.name == "j" else DOMAINS[field.type]) for field in schema]
    return tuple(value + later if isinstance(value, datetime) else value for value in values)


def table_of_changes(name: str, changes: list[tuple[tuple[Any, ...], int]]) -> pa.Table:
    """Return changed rows as a table with a column of weights."""
    schema = SCHEMAS[name]
    columns = [
        pa.array([row[index] for row, _ in changes], field.type)
        for index, field in enumerate(schema)
    ]
    weights = pa.array([weight for _, weight in changes], INT)
    return pa.table([*columns, weights], schema=schema.append(pa.field("weight", INT)))
