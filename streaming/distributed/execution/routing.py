"""Routing: from rows to cells, in Spark's own expressions; no row is seen by Python.

::

    row of relation e   ->   (row, cell, roles) for each cell that wants it

``roles`` has a bit for each atom of the join that reads e, in the order of the atoms. A value is
hashed by Spark's xxhash64 together with the number of its variable, after a cast to the one type of
all columns that may be equal to it: an INT column meets a BIGINT column in the same cell, and -0.0
meets 0.0.

Three projections: hashes and coordinates, once for a row; then a row for each cell; then roles,
by comparing the cell's coordinates with the row's, which is cheaper than to look for the cell in a
list for each atom. Heavy values (`streaming.distributed.planning.grid.Heavy`) are told by their
hashes; they change which list of offsets a row has, and its coordinates are digits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import add, and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t

from streaming.distributed.execution.placement import DIGIT_SEED
from streaming.distributed.planning.grid import Grid, Heavy
from streaming.distributed.planning.shares import JoinInput

__all__ = ["CELL", "RELATION", "ROLES", "coordinate", "route_rows"]

RELATION = "__relation"
CELL = "__cell"
ROLES = "__roles"

# What is computed once for a row, each of what comes before it.
_ORDER = (("hash",), ("light", "group"), ("digit",))


def route_rows(rows: DataFrame, relations: Mapping[str, Sequence[str]], grid: Grid) -> DataFrame:
    """The rows of the relations of a stage, once for each cell that wants them.

    Args:
        rows: Rows of all relations; the column `RELATION` has the number of each one's.
        relations: By the names that atoms have, in the order of the numbers: the names of the
            columns, as atoms number them.
        grid: The cells.

    Returns:
        ``rows`` with `CELL` and `ROLES`.
    """
    types = {field.name: field.dataType for field in rows.schema.fields}
    found: dict[str, Column] = {}
    arrays: list[Column] = []
    bits: list[Column] = []
    for number, (relation, names) in enumerate(relations.items()):
        values = [_to_comparable(f.col(name), types[name]) for name in names]
        ways = [
            _AtomRouting(grid, place, atom, values, f"__{number}_")
            for place, atom in enumerate(grid.shares.atoms)
            if atom.relation == relation
        ]
        for way in ways:
            found |= way.helpers
        own = f.col(RELATION) == number
        cells = [way.cells for way in ways]
        merged = cells[0] if len(cells) == 1 else f.array_distinct(f.concat(*cells))
        arrays.append(f.when(own, merged))
        one = len(ways) == 1
        bits.append(
            f.when(own, f.lit(1) if one else reduce(add, [w.role(n) for n, w in enumerate(ways)]))
        )
    made = rows
    for kinds in _ORDER:
        columns = {name: found[name] for name in found if name.endswith(kinds)}
        made = made.withColumns(columns) if columns else made
    made = made.withColumn(CELL, f.explode(f.coalesce(*arrays)))
    kept = [f.col(name) for name in (*rows.columns, CELL)]
    return made.select(*kept, f.coalesce(*bits).alias(ROLES))


def coordinate(value: Column, type: t.DataType, variable: int, parts: int) -> Column:
    """The coordinate of a value, without heavy ones, along a variable.

    Args:
        value: The column.
        type: Its type.
        variable: The variable's number, which makes its hash function.
        parts: Its share.
    """
    if parts == 1:
        return f.lit(0)
    return f.pmod(f.xxhash64(_to_comparable(value, type), f.lit(variable)), f.lit(parts)).cast(
        "int"
    )


@dataclass(frozen=True)
class _AtomRouting:
    """The way of a relation's rows to the cells that want them for one atom.

    Attributes:
        grid: The cells.
        place: The atom's number.
        atom: The atom.
        values: The relation's columns.
        prefix: Of the columns that hold what is computed once for a row.
    """

    grid: Grid
    place: int
    atom: JoinInput
    values: Sequence[Column]
    prefix: str

    @cached_property
    def split(self) -> list[str]:
        """The variables that decide the cell."""
        return [name for name in self.atom.columns if self.grid.shares.parts[name] > 1]

    @cached_property
    def helpers(self) -> dict[str, Column]:
        """What is computed once for a row: hashes, then numbers of groups and coordinates.

        Atoms that bind a variable to the same columns share the first two.
        """
        found: dict[str, Column] = {}
        for name in self.split:
            number = self.grid.numbers[name]
            columns = [self.values[k] for k in self.grid.shares.columns(self.atom, name)]
            found[self._name(name, "hash")] = f.xxhash64(*columns, f.lit(number))
            groups = self.grid.groups(name)
            share = self.grid.shares.parts[name]
            light = f.pmod(f.col(self._name(name, "hash")), f.lit(share)).cast("int")
            found[self._name(name, "light")] = light
            if groups:
                found[self._name(name, "group")] = self._group(name, groups)
                found[self._digit(name)] = self._chosen(
                    name, [self._digit_of(number, heavy) for heavy in groups], f.lit(0)
                )
        return found

    @cached_property
    def cells(self) -> Column:
        """The cells that want a row, as an array."""
        home, lists = f.lit(0), [_numbers(self.grid.offsets(self.atom))]
        for name in self.split:
            stride, groups = self.grid.strides[name], self.grid.groups(name)
            light = f.col(self._name(name, "light"))
            if not groups:
                home = home + light * stride
                continue
            digit = f.col(self._digit(name))
            terms = [digit * (heavy.stride(self.place) * stride) for heavy in groups]
            home = home + self._chosen(name, terms, light * stride)
            others = [_numbers([stride * k for k in h.others(self.place)]) for h in groups]
            lists.append(self._chosen(name, others, _numbers([0])))
        if len(lists) == 1:
            return f.array(*[home + offset for offset in self.grid.offsets(self.atom)])
        summed = reduce(
            lambda some, more: f.flatten(
                f.transform(some, lambda a: f.transform(more, lambda b: a + b))
            ),
            lists,
        )
        return f.transform(summed, lambda offset: offset + home)

    def role(self, bit: int) -> Column:
        """The bit of the atom if the cell wants the row for it, else 0."""
        fits = [f.lit(True)]
        for name in self.split:
            share, groups = self.grid.shares.parts[name], self.grid.groups(name)
            at = (f.col(CELL) / self.grid.strides[name]).cast("int") % share
            same = at == f.col(self._name(name, "light"))
            if groups:
                digit = f.col(self._digit(name))
                spread = [
                    ((at / h.stride(self.place)).cast("int") % h.parts[self.place] == digit)
                    & (at < h.coordinates)
                    for h in groups
                ]
                same = self._chosen(name, spread, same)
            fits.append(same)
        return f.when(reduce(and_, fits), 1 << bit).otherwise(0)

    def _group(self, name: str, groups: Sequence[Heavy]) -> Column:
        """The number of the group that the row's value is in, from 1 on; 0 for light values."""
        hash = self._name(name, "hash")
        tests = [
            f"WHEN {hash} IN ({', '.join(f'{value}L' for value in heavy.hashes)}) THEN {number}"
            for number, heavy in enumerate(groups, 1)
        ]
        return f.expr(f"CASE {' '.join(tests)} ELSE 0 END")

    def _digit_of(self, number: int, heavy: Heavy) -> Column:
        parts = heavy.parts[self.place]
        if parts == 1:
            return f.lit(0)
        salts = f.lit(number + DIGIT_SEED), f.lit(self.place)
        return f.pmod(f.xxhash64(*self.values, *salts), f.lit(parts)).cast("int")

    def _chosen(self, name: str, cases: Sequence[Column], light: Column) -> Column:
        """By the number of the group."""
        group = f.col(self._name(name, "group"))
        chosen = f.when(group == 1, cases[0])
        for number, case in enumerate(cases[1:], 2):
            chosen = chosen.when(group == number, case)
        return chosen.otherwise(light)

    def _name(self, variable: str, what: str) -> str:
        columns = self.grid.shares.columns(self.atom, variable)
        place = "_".join(map(str, columns))
        return f"{self.prefix}{self.grid.numbers[variable]}_{place}_{what}"

    def _digit(self, variable: str) -> str:
        return f"{self.prefix}{self.grid.numbers[variable]}_of_{self.place}_digit"


def _numbers(values: Sequence[int]) -> Column:
    """An array of constants, by one call whatever its length."""
    return f.expr(f"array({', '.join(map(str, values))})")


def _to_comparable(value: Column, type: t.DataType) -> Column:
    """The value as the type of all values that it may be equal to."""
    if isinstance(type, t.IntegralType):
        return value.cast("bigint")
    if isinstance(type, t.FractionalType) and not isinstance(type, t.DecimalType):
        return value.cast("double") + f.lit(0.0)
    return value
