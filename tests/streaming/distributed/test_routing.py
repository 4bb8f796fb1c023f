"""Routing by Spark expressions: rows that join meet in one cell; copies are as predicted."""

from __future__ import annotations

import random
from collections import Counter
from datetime import date, datetime, time, timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as f

from streaming.distributed.execution.placement import hash_values, place_rows
from streaming.distributed.execution.routing import CELL, RELATION, ROLES, route_rows
from streaming.distributed.execution.xxhash import xxhash64
from streaming.distributed.planning.grid import Grid, HeavyGroup
from streaming.distributed.planning.shares import JoinAtom, Shares, choose_shares

pytestmark = pytest.mark.spark

TRIANGLE = [JoinAtom("e", {x: 0, y: 1}) for x, y in ("ab", "bc", "ac")]


def routed_rows(spark, table, relation, columns, grid):
    """Return the routed rows, with their cells and roles, as tuples."""
    rows = spark.createDataFrame(table).withColumn(RELATION, f.lit(0))
    result = route_rows(rows, {relation: columns}, grid).toArrow()
    values = [result.column(name).to_pylist() for name in (*columns, CELL, ROLES)]
    return list(zip(*values, strict=True))


@pytest.mark.parametrize("cells", [1, 2, 3, 8, 12, 27])
def test_the_edges_of_a_triangle_are_in_one_common_cell_in_their_roles(spark, cells):
    grid = Grid(choose_shares(TRIANGLE, cells))
    edges = [(a, b) for a in range(9) for b in range(9) if (a * b + a) % 3]
    table = pa.table({"src": [a for a, _ in edges], "dst": [b for _, b in edges]})
    rows = routed_rows(spark, table, "e", ["src", "dst"], grid)
    assert len({(a, b, cell) for a, b, cell, _ in rows}) == len(rows), "once to each cell"
    assert all(0 <= cell < grid.cells and 0 < roles < 8 for *_, cell, roles in rows)
    wanted: dict[tuple[int, int, int], set[int]] = {}
    for a, b, cell, roles in rows:
        for role in range(3):
            if roles >> role & 1:
                wanted.setdefault((a, b, role), set()).add(cell)
    for a, b in edges:
        for c in range(9):
            if (b, c) in edges and (a, c) in edges:
                meet = wanted[a, b, 0] & wanted[b, c, 1] & wanted[a, c, 2]
                assert len(meet) == 1


@pytest.mark.parametrize("cells", [4, 8, 27])
def test_copies_and_loads_are_as_predicted(spark, cells):
    grid = Grid(choose_shares(TRIANGLE, cells))
    rng = np.random.default_rng(3)
    table = pa.table({"src": rng.integers(0, 1 << 40, 6000), "dst": rng.integers(0, 1 << 40, 6000)})
    rows = routed_rows(spark, table, "e", ["src", "dst"], grid)
    assert len(rows) / 6000 == pytest.approx(grid.shares.copies("e"), rel=0.05)
    loads = Counter(cell for *_, cell, _ in rows)
    assert len(loads) == grid.cells
    assert max(loads.values()) <= 1.3 * len(rows) / grid.cells


def test_a_relation_without_a_split_variable_is_sent_to_all_cells(spark):
    atoms = (JoinAtom("big", {"a": 0}, 1000.0), JoinAtom("small", {}, 1.0))
    grid = Grid(choose_shares(atoms, 4))
    rows = routed_rows(spark, pa.table({"x": [7]}), "small", ["x"], grid)
    assert rows == [(7, cell, 1) for cell in range(4)]


@pytest.mark.parametrize(
    ("values", "types"),
    [
        ([3, -1, None, 8], [pa.int8(), pa.int16(), pa.int32(), pa.int64()]),
        ([0.0, -0.0, 1.5, float("nan"), None], [pa.float32(), pa.float64()]),
    ],
)
def test_equal_values_of_different_types_are_sent_to_one_cell(spark, values, types):
    grid = Grid(choose_shares([JoinAtom("r", {"a": 0}), JoinAtom("s", {"a": 0})], 1 << 20))
    cells_of_types = []
    for type in types:
        table = pa.table({"x": pa.array(values, type), "number": range(len(values))})
        rows = routed_rows(spark, table, "r", ["x", "number"], grid)
        cells_of_types.append({number: cell for _, number, cell, _ in rows})
    assert all(cells == cells_of_types[0] for cells in cells_of_types)
    if 0.0 in values:
        assert cells_of_types[0][0] == cells_of_types[0][1]
    assert len({*cells_of_types[0].values()}) >= 3


GRIDS = {
    "triangle": Grid(
        Shares(tuple(TRIANGLE), {"a": 4, "b": 3, "c": 2}),
        (
            HeavyGroup("a", (2, 1, 2), (1, 2)),
            HeavyGroup("a", (3, 1, 1), (3,)),
            HeavyGroup("b", (1, 3, 1), (3,)),
            HeavyGroup("c", (1, 1, 2), (1, 3)),
        ),
    ),
    "two by a key, with payloads": Grid(
        Shares((JoinAtom("e", {"k": 1}), JoinAtom("f", {"k": 0})), {"k": 7}),
        (HeavyGroup("k", (2, 3), (1,)), HeavyGroup("k", (7, 1), (2,))),
    ),
    "a pair of keys": Grid(
        Shares(
            (JoinAtom("e", {"k": 0, "l": 1}), JoinAtom("f", {"k": 1, "l": 0})), {"k": 5, "l": 1}
        ),
        (HeavyGroup("k", (2, 2), (2,)),),
    ),
}


def with_hashes(grid):
    """Replace each small value in the grid by its hash; a pair of keys has the value twice."""
    heavy = []
    for one in grid.heavy:
        together = len(grid.shares.together[one.variable])
        values = [pa.array(one.hashes, pa.int64())] * together
        hashes = hash_values(values, grid.variable_numbers[one.variable])
        heavy.append(HeavyGroup(one.variable, one.splits, tuple(hashes.tolist())))
    return Grid(grid.shares, tuple(heavy))


@pytest.mark.parametrize("name", GRIDS)
def test_spark_and_numpy_send_rows_to_the_same_cells_whatever_values_are_heavy(spark, name):
    grid = with_hashes(GRIDS[name])
    rng = random.Random(7)
    rows = [(rng.randrange(5), rng.randrange(5), rng.choice([0.5, -0.0, 0.0])) for _ in range(60)]
    relations = list(dict.fromkeys(atom.relation for atom in grid.shares.atoms))
    number = rng.choices(range(len(relations)), k=60)
    x, y, z = zip(*rows, strict=True)
    table = pa.table(
        {
            **{"x": pa.array(x, pa.int32()), "y": pa.array([*y[:-1], None], pa.int64())},
            **{"z": pa.array(z), RELATION: pa.array(number, pa.int32())},
        }
    )
    columns = {relation: ["x", "y", "z"] for relation in relations}
    actual = route_rows(spark.createDataFrame(table), columns, grid)
    got = Counter(
        map(tuple, zip(*(column.to_pylist() for column in actual.toArrow().columns), strict=True))
    )
    expected: Counter = Counter()
    for position, relation in enumerate(relations):
        relation_rows = table.filter(pa.array([one == position for one in number]))
        sent = place_rows(relation, relation_rows.columns[:3], grid)
        rows = [tuple(row.values()) for row in relation_rows.to_pylist()]
        for row, cell, roles in zip(sent.rows, sent.cells, sent.roles, strict=True):
            expected[(*rows[row], int(cell), int(roles))] += 1
    assert got == expected


@pytest.mark.parametrize(
    ("type", "values"),
    [
        (pa.int64(), [0, 7, -1, 1 << 62]),
        (pa.float64(), [0.0, 1.5, float("nan"), -2e300]),
        (pa.bool_(), [True, False]),
        (pa.string(), ["", "a", "ünïcødé", "x" * 31, "y" * 32, "z" * 101]),
        (pa.binary(), [b"", b"\x00\xff\x01", b"12345678", b"123456789012"]),
        (pa.date32(), [date(1969, 12, 31), date(2026, 1, 2)]),
        (pa.timestamp("us", "UTC"), [datetime(1969, 12, 31, 1), datetime(2026, 1, 2, 3, 4, 5, 6)]),
        (pa.time64("us"), [time(0), time(23, 59, 59, 1)]),
        (pa.duration("us"), [timedelta(0), timedelta(days=-1, microseconds=5)]),
        (pa.decimal128(9, 2), [Decimal("0.00"), Decimal("-12.34")]),
        (pa.decimal128(30, 3), [Decimal(0), Decimal("-1.280"), Decimal(2**60), Decimal("0.127")]),
        (pa.decimal128(38, 0), [Decimal(n) for n in (127, 128, -128, -129, 255, 256, -(2**63))]),
        (pa.decimal128(38, 0), [Decimal(n) for n in (2**63, 2**64, -(2**64), 10**37, -(10**37))]),
    ],
    ids=str,
)
def test_values_are_hashed_as_spark_hashes_them(spark, type, values):
    column = pa.array([*values, None, *values], type).slice(1)
    other = pa.array(range(len(column)))
    frame = spark.createDataFrame(pa.table({"x": column, "y": other}))
    hashes = [f.xxhash64(*names, f.lit(3)).alias("h".join(names)) for names in ("xy", "yx")]
    result = frame.select(*hashes).toArrow()
    assert xxhash64([column, other], 3).tolist() == result["xhy"].to_pylist()
    assert xxhash64([other, column], 3).tolist() == result["yhx"].to_pylist()
