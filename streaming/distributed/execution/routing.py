"""Routing: assign rows to cells with Spark expressions, so that no row passes through Python.

A cell is one part of the grid over which a join is distributed; the equations are in
`streaming.distributed.planning.grid`. ::


    row of relation e   ->   (row, cell, roles) for each cell that needs the row

``roles`` has a bit for each atom of the join that reads e, in the order of the atoms: the cell
needs the row for this atom. Spark's xxhash64 hashes a value together with the number of its
variable, after a cast to the common type of all columns that may be equal to it. So equal values of
an INT column and a BIGINT column are sent to the same cell, and so are -0.0 and 0.0.

The routing is three projections. The first computes hashes and coordinates, once per row. The
second creates a row for each cell. The third computes the roles: it compares the coordinates of the
cell with those of the row, which is cheaper than searching for the cell in a list for each atom.
Heavy values (`streaming.distributed.planning.grid.HeavyGroup`) are recognized by their hashes. A
row with a heavy value has another list of offsets, and its digits are its coordinates.
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
from streaming.distributed.planning.grid import Grid, HeavyGroup
from streaming.distributed.planning.shares import JoinAtom

__all__ = ["CELL", "RELATION", "ROLES", "coordinate", "route_rows"]

RELATION = "__relation"
CELL = "__cell"
ROLES = "__roles"

# Suffixes of the helper columns, in the order of computation: each reads those before it.
_HELPER_SUFFIXES = (("hash",), ("light", "group"), ("digit",))


def route_rows(rows: DataFrame, relations: Mapping[str, Sequence[str]], grid: Grid) -> DataFrame:
    """Repeat each row of the relations of a stage, once for each cell that needs it.

    Args:
        rows: Rows of all relations; the column `RELATION` has the number of the row's relation.
        relations: The column names of each relation, in the order in which atoms number them. The
            keys are the relation names of the atoms, in the order of the relation numbers.
        grid: The cells.

    Returns:
        ``rows`` with `CELL` and `ROLES`.
    """
    types = {field.name: field.dataType for field in rows.schema.fields}
    helpers: dict[str, Column] = {}
    arrays: list[Column] = []
    bits: list[Column] = []
    for number, (relation, names) in enumerate(relations.items()):
        values = [_to_comparable(f.col(name), types[name]) for name in names]
        routings = [
            _AtomRouting(grid, position, atom, values, f"__{number}_")
            for position, atom in enumerate(grid.shares.atoms)
            if atom.relation == relation
        ]
        for routing in routings:
            helpers |= routing.helpers
        is_relation = f.col(RELATION) == number
        cells = [routing.cells for routing in routings]
        merged = cells[0] if len(cells) == 1 else f.array_distinct(f.concat(*cells))
        arrays.append(f.when(is_relation, merged))
        roles = [routing.role(bit) for bit, routing in enumerate(routings)]
        role = f.lit(1) if len(routings) == 1 else reduce(add, roles)
        bits.append(f.when(is_relation, role))
    routed = rows
    for suffixes in _HELPER_SUFFIXES:
        columns = {name: helpers[name] for name in helpers if name.endswith(suffixes)}
        routed = routed.withColumns(columns) if columns else routed
    routed = routed.withColumn(CELL, f.explode(f.coalesce(*arrays)))
    columns_and_cell = [f.col(name) for name in (*rows.columns, CELL)]
    return routed.select(*columns_and_cell, f.coalesce(*bits).alias(ROLES))


def coordinate(value: Column, type: t.DataType, variable: int, parts: int) -> Column:
    """Return the coordinate of a value along a variable; the variable has no heavy values.

    Args:
        value: The column with the value.
        type: The type of the column.
        variable: The number of the variable, which determines its hash function.
        parts: The share of the variable.
    """
    if parts == 1:
        return f.lit(0)
    return f.pmod(f.xxhash64(_to_comparable(value, type), f.lit(variable)), f.lit(parts)).cast(
        "int"
    )


@dataclass(frozen=True)
class _AtomRouting:
    """The assignment of a relation's rows to the cells that need them for one atom.

    Attributes:
        grid: The cells.
        position: The position of the atom in the join.
        atom: The atom.
        values: The columns of the relation.
        prefix: The prefix of the names of helper columns, which are computed once per row.
    """

    grid: Grid
    position: int
    atom: JoinAtom
    values: Sequence[Column]
    prefix: str

    @cached_property
    def split_variables(self) -> list[str]:
        """The variables that determine the cell: those with a share above 1."""
        return [name for name in self.atom.columns if self.grid.shares.parts[name] > 1]

    @cached_property
    def helpers(self) -> dict[str, Column]:
        """The columns that are computed once per row: hashes, group numbers and coordinates.

        Atoms that bind a variable to the same columns share the hashes and the group numbers.
        """
        helpers: dict[str, Column] = {}
        for name in self.split_variables:
            number = self.grid.variable_numbers[name]
            columns = [self.values[k] for k in self.grid.shares.columns(self.atom, name)]
            helpers[self._helper_name(name, "hash")] = f.xxhash64(*columns, f.lit(number))
            groups = self.grid.groups(name)
            share = self.grid.shares.parts[name]
            light = f.pmod(f.col(self._helper_name(name, "hash")), f.lit(share)).cast("int")
            helpers[self._helper_name(name, "light")] = light
            if groups:
                helpers[self._helper_name(name, "group")] = self._group(name, groups)
                helpers[self._digit_name(name)] = self._by_group(
                    name, [self._digit_of(number, heavy) for heavy in groups], f.lit(0)
                )
        return helpers

    @cached_property
    def cells(self) -> Column:
        """The cells that need a row, as an array."""
        home, lists = f.lit(0), [_constant_array(self.grid.offsets(self.atom))]
        for name in self.split_variables:
            stride, groups = self.grid.strides[name], self.grid.groups(name)
            light = f.col(self._helper_name(name, "light"))
            if not groups:
                home = home + light * stride
                continue
            digit = f.col(self._digit_name(name))
            terms = [digit * (heavy.stride(self.position) * stride) for heavy in groups]
            home = home + self._by_group(name, terms, light * stride)
            digit_0_offsets = [
                _constant_array([stride * k for k in h.coordinates_of_digit_0(self.position)])
                for h in groups
            ]
            lists.append(self._by_group(name, digit_0_offsets, _constant_array([0])))
        if len(lists) == 1:
            return f.array(*[home + offset for offset in self.grid.offsets(self.atom)])
        summed = reduce(
            lambda left, right: f.flatten(
                f.transform(left, lambda a: f.transform(right, lambda b: a + b))
            ),
            lists,
        )
        return f.transform(summed, lambda offset: offset + home)

    def role(self, bit: int) -> Column:
        """Return the bit of the atom if the cell needs the row for it, else 0."""
        conditions = [f.lit(True)]
        for name in self.split_variables:
            share, groups = self.grid.shares.parts[name], self.grid.groups(name)
            cell_coordinate = (f.col(CELL) / self.grid.strides[name]).cast("int") % share
            is_equal = cell_coordinate == f.col(self._helper_name(name, "light"))
            if groups:
                digit = f.col(self._digit_name(name))
                has_digit = [
                    (
                        (cell_coordinate / h.stride(self.position)).cast("int")
                        % h.parts[self.position]
                        == digit
                    )
                    & (cell_coordinate < h.coordinates)
                    for h in groups
                ]
                is_equal = self._by_group(name, has_digit, is_equal)
            conditions.append(is_equal)
        return f.when(reduce(and_, conditions), 1 << bit).otherwise(0)

    def _group(self, name: str, groups: Sequence[HeavyGroup]) -> Column:
        """Return the number of the group that contains the row's value: 0 for light values."""
        hash = self._helper_name(name, "hash")
        tests = [
            f"WHEN {hash} IN ({', '.join(f'{value}L' for value in heavy.hashes)}) THEN {number}"
            for number, heavy in enumerate(groups, 1)
        ]
        return f.expr(f"CASE {' '.join(tests)} ELSE 0 END")

    def _digit_of(self, number: int, heavy: HeavyGroup) -> Column:
        parts = heavy.parts[self.position]
        if parts == 1:
            return f.lit(0)
        salts = f.lit(number + DIGIT_SEED), f.lit(self.position)
        return f.pmod(f.xxhash64(*self.values, *salts), f.lit(parts)).cast("int")

    def _by_group(self, name: str, cases: Sequence[Column], light: Column) -> Column:
        """Select a case by the row's group number, and ``light`` if the value is not heavy."""
        group = f.col(self._helper_name(name, "group"))
        selected = f.when(group == 1, cases[0])
        for number, case in enumerate(cases[1:], 2):
            selected = selected.when(group == number, case)
        return selected.otherwise(light)

    def _helper_name(self, variable: str, kind: str) -> str:
        """Return the name of a helper column."""
        columns = self.grid.shares.columns(self.atom, variable)
        columns_text = "_".join(map(str, columns))
        return f"{self.prefix}{self.grid.variable_numbers[variable]}_{columns_text}_{kind}"

    def _digit_name(self, variable: str) -> str:
        return f"{self.prefix}{self.grid.variable_numbers[variable]}_of_{self.position}_digit"


def _constant_array(values: Sequence[int]) -> Column:
    """Return an array of constants; one call of Spark, independent of the array's length."""
    return f.expr(f"array({', '.join(map(str, values))})")


def _to_comparable(value: Column, type: t.DataType) -> Column:
    """Cast a value to the common type of all values that it may be equal to."""
    if isinstance(type, t.IntegralType):
        return value.cast("bigint")
    if isinstance(type, t.FractionalType) and not isinstance(type, t.DecimalType):
        return value.cast("double") + f.lit(0.0)
    return value
