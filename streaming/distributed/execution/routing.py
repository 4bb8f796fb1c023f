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
Heavy values (`streaming.distributed.planning.grid.HeavyGroup`) are recognized by their hashes; all
other values are light. A light value has one coordinate. A heavy value has the coordinates that
contain the digit of the row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add, and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t

from dbsp_wcoj.cached_property import cached_property
from streaming.distributed.execution.placement import DIGIT_SEED
from streaming.distributed.planning.grid import Grid, HeavyGroup
from streaming.distributed.planning.shares import JoinAtom

__all__ = ["CELL", "RELATION", "ROLES", "route_rows"]

RELATION = "__relation"
CELL = "__cell"
ROLES = "__roles"

# The helper columns of a variable, by the suffixes of their names: the hash of the row's value; its
# coordinate if it is light; the number of its group if it is heavy, else 0; the digit of the row if
# the value is heavy. They are computed in three projections, and each reads those before it.
_HELPER_SUFFIXES = (("hash",), ("coordinate", "group"), ("digit",))


def route_rows(rows: DataFrame, relations: Mapping[str, Sequence[str]], grid: Grid) -> DataFrame:
    """Repeat each row of the relations of a stage, once for each cell that needs it.

    Args:
        rows: Rows of all relations; the column `RELATION` has the number of the row's relation.
        relations: The column names of each relation, by its name in the atoms. The relations are
            in the order of their numbers, and the columns in the order of their positions.
        grid: The cells.

    Returns:
        ``rows`` with `CELL` and `ROLES`.
    """
    types = {field.name: field.dataType for field in rows.schema.fields}
    helpers: dict[str, Column] = {}
    cells_of_relations: list[Column] = []
    roles_of_relations: list[Column] = []
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
        cells_of_atoms = [routing.cells for routing in routings]
        if len(routings) == 1:
            cells, roles = cells_of_atoms[0], f.lit(1)
        else:
            cells = f.array_distinct(f.concat(*cells_of_atoms))
            roles = reduce(add, [routing.role(bit) for bit, routing in enumerate(routings)])
        cells_of_relations.append(f.when(is_relation, cells))
        roles_of_relations.append(f.when(is_relation, roles))
    routed = rows
    for suffixes in _HELPER_SUFFIXES:
        columns = {name: helpers[name] for name in helpers if name.endswith(suffixes)}
        routed = routed.withColumns(columns) if columns else routed
    routed = routed.withColumn(CELL, f.explode(f.coalesce(*cells_of_relations)))
    columns_and_cell = [f.col(name) for name in (*rows.columns, CELL)]
    return routed.select(*columns_and_cell, f.coalesce(*roles_of_relations).alias(ROLES))


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
        return [name for name in self.atom.columns if self.grid.shares.by_variable[name] > 1]

    @cached_property
    def helpers(self) -> dict[str, Column]:
        """The columns that are computed once per row (`_HELPER_SUFFIXES`), by name.

        Atoms that bind a variable to the same columns share its helper columns, except the digits.
        """
        helpers: dict[str, Column] = {}
        for variable in self.split_variables:
            variable_number = self.grid.variable_numbers[variable]
            columns = [self.values[k] for k in self.grid.shares.columns(self.atom, variable)]
            hash_name = self._helper_name(variable, "hash")
            helpers[hash_name] = f.xxhash64(*columns, f.lit(variable_number))
            share = self.grid.shares.by_variable[variable]
            light_coordinate = f.pmod(f.col(hash_name), f.lit(share)).cast("int")
            helpers[self._helper_name(variable, "coordinate")] = light_coordinate
            groups = self.grid.groups(variable)
            if groups:
                helpers[self._helper_name(variable, "group")] = self._group(variable, groups)
                digits = [self._digit_of(variable_number, heavy) for heavy in groups]
                helpers[self._digit_name(variable)] = self._by_group(variable, digits, f.lit(0))
        return helpers

    @cached_property
    def cells(self) -> Column:
        """The cells that need a row, as an array."""
        # A cell is `home` plus one offset of each array in `offsets`.
        home, offsets = f.lit(0), [_constant_array(self.grid.offsets(self.atom))]
        for variable in self.split_variables:
            stride, groups = self.grid.strides[variable], self.grid.groups(variable)
            light_coordinate = f.col(self._helper_name(variable, "coordinate"))
            if not groups:
                home = home + light_coordinate * stride
                continue
            digit = f.col(self._digit_name(variable))
            heavy_homes = [digit * (heavy.stride(self.position) * stride) for heavy in groups]
            home = home + self._by_group(variable, heavy_homes, light_coordinate * stride)
            heavy_offsets = [
                _constant_array([stride * k for k in heavy.coordinates_of_digit_0(self.position)])
                for heavy in groups
            ]
            offsets.append(self._by_group(variable, heavy_offsets, _constant_array([0])))
        if len(offsets) == 1:
            return f.array(*[home + offset for offset in self.grid.offsets(self.atom)])
        summed_offsets = reduce(
            lambda left, right: f.flatten(
                f.transform(left, lambda a: f.transform(right, lambda b: a + b))
            ),
            offsets,
        )
        return f.transform(summed_offsets, lambda offset: offset + home)

    def role(self, bit: int) -> Column:
        """Return the bit of the atom if the cell needs the row for it, else 0."""
        conditions = [f.lit(True)]
        for variable in self.split_variables:
            share, groups = self.grid.shares.by_variable[variable], self.grid.groups(variable)
            cell_coordinate = (f.col(CELL) / self.grid.strides[variable]).cast("int") % share
            matches = cell_coordinate == f.col(self._helper_name(variable, "coordinate"))
            if groups:
                digit = f.col(self._digit_name(variable))
                heavy_matches = [
                    (
                        (cell_coordinate / heavy.stride(self.position)).cast("int")
                        % heavy.splits[self.position]
                        == digit
                    )
                    & (cell_coordinate < heavy.coordinates)
                    for heavy in groups
                ]
                matches = self._by_group(variable, heavy_matches, matches)
            conditions.append(matches)
        return f.when(reduce(and_, conditions), 1 << bit).otherwise(0)

    def _group(self, variable: str, groups: Sequence[HeavyGroup]) -> Column:
        """Return the number of the group that contains the row's value: 0 for light values."""
        hash = self._helper_name(variable, "hash")
        tests = [
            f"WHEN {hash} IN ({', '.join(f'{value}L' for value in heavy.hashes)}) THEN {number}"
            for number, heavy in enumerate(groups, 1)
        ]
        return f.expr(f"CASE {' '.join(tests)} ELSE 0 END")

    def _digit_of(self, variable_number: int, heavy: HeavyGroup) -> Column:
        count = heavy.splits[self.position]
        if count == 1:
            return f.lit(0)
        salts = f.lit(variable_number + DIGIT_SEED), f.lit(self.position)
        return f.pmod(f.xxhash64(*self.values, *salts), f.lit(count)).cast("int")

    def _by_group(self, variable: str, cases: Sequence[Column], light: Column) -> Column:
        """Select the case of the row's group; ``light`` if its value of the variable is light."""
        group = f.col(self._helper_name(variable, "group"))
        selected = f.when(group == 1, cases[0])
        for number, case in enumerate(cases[1:], 2):
            selected = selected.when(group == number, case)
        return selected.otherwise(light)

    def _helper_name(self, variable: str, suffix: str) -> str:
        """Return the name of a helper column."""
        columns = self.grid.shares.columns(self.atom, variable)
        columns_text = "_".join(map(str, columns))
        return f"{self.prefix}{self.grid.variable_numbers[variable]}_{columns_text}_{suffix}"

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
