"""Routing by Spark's expressions: who has to meet meets once, and copies are what theory says."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as f
from pyspark.sql import types as t

from streaming.hypercube.grid import Grid
from streaming.hypercube.routing import CELL, RELATION, ROLES, coordinate, routed
from streaming.hypercube.shares import Atom, shares_of

pytestmark = pytest.mark.spark

TRIANGLE = [Atom("e", {x: 0, y: 1}) for x, y in ("ab", "bc", "ac")]


def sent(spark, table, relation, columns, grid):
    """Rows with their cell and roles, in plain Python."""
    rows = spark.createDataFrame(table).withColumn(RELATION, f.lit(0))
    found = routed(rows, {relation: columns}, grid).toArrow()
    values = [found.column(name).to_pylist() for name in (*columns, CELL, ROLES)]
    return list(zip(*values, strict=True))


@pytest.mark.parametrize("cells", [1, 2, 3, 8, 12, 27])
def test_the_edges_of_a_triangle_meet_in_one_cell_in_their_roles(spark, cells):
    grid = Grid(shares_of(TRIANGLE, cells))
    edges = [(a, b) for a in range(9) for b in range(9) if (a * b + a) % 3]
    table = pa.table({"src": [a for a, _ in edges], "dst": [b for _, b in edges]})
    rows = sent(spark, table, "e", ["src", "dst"], grid)
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
def test_copies_and_loads_are_what_theory_says(spark, cells):
    grid = Grid(shares_of(TRIANGLE, cells))
    rng = np.random.default_rng(3)
    table = pa.table({"src": rng.integers(0, 1 << 40, 6000), "dst": rng.integers(0, 1 << 40, 6000)})
    rows = sent(spark, table, "e", ["src", "dst"], grid)
    assert len(rows) / 6000 == pytest.approx(grid.shares.copies("e"), rel=0.05)
    loads = Counter(cell for *_, cell, _ in rows)
    assert len(loads) == grid.cells
    assert max(loads.values()) <= 1.3 * len(rows) / grid.cells


def test_a_relation_that_no_variable_splits_goes_to_all_cells(spark):
    atoms = (Atom("big", {"a": 0}, 1000.0), Atom("small", {}, 1.0))
    grid = Grid(shares_of(atoms, 4))
    rows = sent(spark, pa.table({"x": [7]}), "small", ["x"], grid)
    assert rows == [(7, cell, 1) for cell in range(4)]


@pytest.mark.parametrize(
    ("values", "types"),
    [
        ([3, -1, None], [t.ByteType(), t.ShortType(), t.IntegerType(), t.LongType()]),
        ([0.0, -0.0, 1.5, float("nan"), None], [t.FloatType(), t.DoubleType()]),
    ],
)
def test_equal_values_of_different_types_have_one_coordinate(spark, values, types):
    found = []
    for type in types:
        frame = spark.createDataFrame([(value,) for value in values], t.StructType().add("x", type))
        column = frame.select(coordinate(f.col("x"), type, 2, 1 << 20).alias("k"))
        found.append(column.toArrow().column("k").to_pylist())
    assert all(one == found[0] for one in found)
    if 0.0 in values:
        assert found[0][0] == found[0][1]
    assert len(set(found[0])) >= 3
