"""Routing: from rows to cells, in Spark's own expressions; no row is seen by Python.

::

    row of relation e   ->   (row, cell, roles) for each cell that wants it

``roles`` has a bit for each atom of the join that reads e, in the order of the atoms. A value is
hashed by Spark's xxhash64 together with the number of its variable, after a cast to the one type of
all columns that may be equal to it: an INT column meets a BIGINT column in the same cell, and -0.0
meets 0.0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import add

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t

from streaming.hypercube.grid import Grid
from streaming.hypercube.shares import Atom

__all__ = ["CELL", "RELATION", "ROLES", "coordinate", "routed"]

RELATION = "__relation"
CELL = "__cell"
ROLES = "__roles"


def routed(rows: DataFrame, relations: Mapping[str, Sequence[str]], grid: Grid) -> DataFrame:
    """The rows of the relations of a stage, once for each cell that wants them.

    Args:
        rows: Rows of all relations; the column `RELATION` has the number of each one's.
        relations: By the names that atoms have, in the order of the numbers: the names of the
            columns, as atoms number them.
        grid: The cells.

    Returns:
        ``rows`` with `CELL` and `ROLES`.
    """
    arrays: list[Column] = []
    bits: list[Column] = []
    for number, (relation, columns) in enumerate(relations.items()):
        atoms = [atom for atom in grid.shares.atoms if atom.relation == relation]
        wanted = [_cells(rows, atom, columns, grid) for atom in atoms]
        cells = wanted[0] if len(wanted) == 1 else f.array_distinct(f.concat(*wanted))
        roles = reduce(
            add,
            [
                f.array_contains(one, f.col(CELL)).cast("int") * (1 << n)
                for n, one in enumerate(wanted)
            ],
        )
        own = f.col(RELATION) == number
        arrays.append(f.when(own, cells))
        bits.append(f.when(own, roles))
    sent = rows.withColumn(CELL, f.explode(f.coalesce(*arrays)))
    return sent.withColumn(ROLES, f.coalesce(*bits))


def coordinate(value: Column, type: t.DataType, variable: int, parts: int) -> Column:
    """The coordinate of a value along a variable.

    Args:
        value: The column.
        type: Its type.
        variable: The variable's number, which makes its hash function.
        parts: Its share.
    """
    if parts == 1:
        return f.lit(0)
    return f.pmod(f.xxhash64(_comparable(value, type), f.lit(variable)), f.lit(parts)).cast("int")


def _cells(rows: DataFrame, atom: Atom, columns: Sequence[str], grid: Grid) -> Column:
    """The cells that want a row for an atom."""
    numbers = {name: number for number, name in enumerate(grid.shares.parts)}
    coordinates = {
        name: coordinate(
            f.col(columns[place]),
            rows.schema[columns[place]].dataType,
            numbers[name],
            grid.shares.parts[name],
        )
        for name, place in atom.columns.items()
    }
    home = grid.home(atom, coordinates)
    home = home if isinstance(home, Column) else f.lit(home)
    return f.array(*[(home + offset).cast("int") for offset in grid.offsets(atom)])


def _comparable(value: Column, type: t.DataType) -> Column:
    """The value as the type of all values that it may be equal to."""
    if isinstance(type, t.IntegralType):
        return value.cast("bigint")
    if isinstance(type, t.FractionalType) and not isinstance(type, t.DecimalType):
        return value.cast("double") + f.lit(0.0)
    return value
