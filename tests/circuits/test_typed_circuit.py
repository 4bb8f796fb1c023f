"""Views over columns of all common types, step by step against DuckDB on the same rows."""

from __future__ import annotations

import datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from circuits import compile_sql
from dbsp_wcoj import Formula
from tests.oracles.duckdb_mirror import Mirror
from tests.oracles.naive_plan import bag
from tests.support.tables import Totals, table_of

DAYS = [None, datetime.date(1969, 12, 31), datetime.date(2024, 2, 29), datetime.date(2024, 3, 1)]
TIMES = [None, datetime.datetime(1969, 12, 31, 23), datetime.datetime(2024, 2, 29, 12, 0, 0, 1)]
PRICES = [None, Decimal("-1.50"), Decimal("0.00"), Decimal("2.25"), Decimal("7.00")]
WIDE = [None, Decimal("-0.01"), Decimal(10) ** 25, Decimal("7.00")]
FLOATS = [None, float("nan"), -0.0, 0.0, 0.1, float("-inf"), 1e300]
TEXTS = [None, "", "ann", "bob", "a longer text 1", "a longer text 2", "ä"]
BYTES = [None, b"", b"\xff\x00", b"ann"]
COLUMNS = {
    "t": ("string", TEXTS),
    "b": (pa.bool_(), [None, False, True]),
    "d": (pa.date32(), DAYS),
    "ts": (pa.timestamp("us"), TIMES),
    "p": (pa.decimal128(9, 2), PRICES),
    "w": (pa.decimal128(38, 2), WIDE),
    "x": (pa.float64(), FLOATS),
    "i": (pa.int32(), [None, -1, 0, 2]),
    "raw": (pa.binary(), BYTES),
}
KEYS = list(COLUMNS)
ROW = pa.schema([("id", pa.int64()), *((name, type_) for name, (type_, _) in COLUMNS.items())])
RELATIONS = {"l": ROW, "r": ROW}
QUERIES = {
    **{f"join_{key}": f"SELECT l.id, r.id AS o FROM l JOIN r ON l.{key} = r.{key}" for key in KEYS},
    **{
        f"same_{key}": f"SELECT l.id FROM l JOIN r ON l.{key} IS NOT DISTINCT FROM r.{key}"
        for key in KEYS
    },
    **{f"set_{key}": f"SELECT DISTINCT {key} FROM l" for key in KEYS},
    **{f"count_{key}": f"SELECT {key}, count(*) AS n FROM l GROUP BY {key}" for key in KEYS},
    **{
        f"min_max_{key}": f"SELECT b, min({key}) AS lo, max({key}) AS hi, count({key}) AS n "
        "FROM l GROUP BY b"
        for key in KEYS
        if key not in ("raw", "b")
    },
    **{
        f"not_in_{key}": f"SELECT id FROM l WHERE {key} NOT IN (SELECT {key} FROM r WHERE id < 2)"
        for key in KEYS
    },
    **{
        f"first_{key}": f"SELECT id, {key} FROM l ORDER BY {key} DESC NULLS LAST, id LIMIT 3"
        for key in KEYS
        if key != "raw"
    },
    "wide_rows": "SELECT l.*, r.t AS rt, r.w AS rw, r.ts AS rts FROM l LEFT JOIN r ON r.i = l.i",
    "sums": "SELECT t, sum(p) AS p, sum(w) AS w, sum(i) AS i FROM l GROUP BY t",
    "spent": "SELECT l.d, sum(r.p) AS p, count(*) AS n FROM l JOIN r ON r.t = l.t GROUP BY l.d",
    "cheaper": "SELECT l.id, r.id AS o FROM l JOIN r ON l.b = r.b AND l.p < r.p AND l.ts >= r.ts",
    "text_order": "SELECT l.id, r.id AS o FROM l JOIN r ON l.i = r.i AND l.t < r.t",
    "any_of": "SELECT id FROM l WHERE x > 0.05 OR d >= DATE '2024-03-01' AND t LIKE 'a%' OR NOT b",
    "early": "SELECT id FROM l WHERE ts < TIMESTAMP '2000-01-01' OR p = 2.25 OR w > 1",
    "decimal_widths": "SELECT l.id, r.id AS o FROM l JOIN r ON l.p = r.w",
}


def rows(rng, count):
    domains = [values for _, values in COLUMNS.values()]
    return [
        (int(rng.integers(6)), *(values[rng.integers(len(values))] for values in domains))
        for _ in range(count)
    ]


def changes(rng, mirror):
    """Insert some absent rows and delete some present ones, in one relation or both."""
    row_numbers = {}
    for name in RELATIONS:
        if rng.random() < 0.8:
            present = mirror.present[name]
            random = rng.random(len(present))
            row_numbers[name] = (
                np.flatnonzero(~present & (random < 0.35)),
                np.flatnonzero(present & (random < 0.3)),
            )
    return mirror.change(row_numbers)


@pytest.mark.parametrize("seed", range(3))
def test_views_of_all_types_are_what_duckdb_answers_after_every_step(seed):
    rng = np.random.default_rng(seed)
    mirror = Mirror({name: table_of(ROW, rows(rng, 25)) for name in RELATIONS})
    views = "".join(f"CREATE VIEW {name} AS {query};" for name, query in QUERIES.items())
    formula = list(Formula)[seed * 2]
    totals = Totals(compile_sql(views, RELATIONS, formula=formula))
    for _ in range(5):
        totals.step(changes(rng, mirror))
        for name, query in QUERIES.items():
            assert totals.bags[name] == bag(mirror.answer(query)), name


def test_views_are_empty_after_all_rows_are_deleted():
    rng = np.random.default_rng(8)
    table = table_of(ROW, rows(rng, 40))
    views = "".join(f"CREATE VIEW {name} AS {query};" for name, query in QUERIES.items())
    totals = Totals(compile_sql(views, RELATIONS))
    totals.step({"l": table, "r": table})
    assert all(bag for name, bag in totals.bags.items() if not name.startswith("not_in"))
    deleted = table.append_column("weight", pa.array([-1] * 40, pa.int64()))
    totals.step({"r": deleted})
    totals.step({"l": deleted})
    assert not any(totals.bags.values())
