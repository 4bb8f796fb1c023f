"""Choose the grid of a stage from the statistics of its relations.

Three statistics can be available; any of them may be missing:

- the size of a relation: its number of rows;
- the changed rows of a relation: how many rows changed in recent steps. Sizes and changed rows
  decide the shares (`shares.weigh_atoms`);
- the counts of values: how many rows of an atom have each value of a variable. Counts decide which
  values are heavy, so that their rows are spread (`streaming.distributed.planning.skew`). Counts
  are computed from tables (`count_in_tables`).

Without statistics, all relations are planned as equally large and all values as equally frequent.
A few rows are a poor sample (`grid_from_counts`): sizes are used only if all relations have enough
rows, and the values of a relation with too few rows are planned as equally frequent.

The grid of a join has one coordinate per variable of the join. A stage that groups by keys has one
coordinate, the hash of all keys. A final stage cannot spread a group over cells, because each group
has one result; its partial stages do.
The stage of a materialized view has one coordinate as well, the hash of some or all of its columns.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa

from streaming.distributed.execution.transport import decode_column, encode_column
from streaming.distributed.planning.grid import Grid
from streaming.distributed.planning.shares import JoinAtom, Shares, choose_shares, weigh_atoms
from streaming.distributed.planning.skew import (
    Counts,
    count_values,
    heavy_values,
)
from streaming.distributed.planning.stages import Stage

__all__ = [
    "MIN_KNOWN_ROWS",
    "KnownCounts",
    "atoms_of",
    "count_in_tables",
    "grid_from_counts",
    "stage_grid",
    "view_grid",
]

#: The number of rows of a relation from which on its statistics are used.
MIN_KNOWN_ROWS: Final = 1000

#: Counts of values by the position of an atom and the name of a variable.
KnownCounts = Mapping[tuple[int, str], Counts]


def atoms_of(stage: Stage) -> tuple[JoinAtom, ...]:
    """Return the atoms that assign rows to cells.

    These are the atoms of a join. A stage that groups has one atom for each relation, whose
    variables are the keys. The variables of a recursion are its carried columns. An atom without
    variables is sent to all cells; a recursion that is not divided has only such atoms, and one
    cell.
    """
    if stage.atoms:
        return stage.atoms
    # The keys of several relations are equal by position, so they have the same variables.
    is_by_position = stage.is_recursive or len(stage.relations) > 1
    return tuple(
        JoinAtom(
            relation.name,
            {
                f"c{number}" if is_by_position else f"k{key}": key
                for number, key in enumerate(relation.keys or ())
            },
        )
        for relation in stage.relations
    )


def stage_grid(
    stage: Stage,
    cells: int,
    *,
    sizes: Mapping[str, float] | None = None,
    changed_rows: Mapping[str, float] | None = None,
    counts: KnownCounts | None = None,
) -> Grid:
    """Choose the grid of a stage.

    Args:
        stage: The stage.
        cells: The maximum number of cells.
        sizes: The number of rows of each relation of the stage. If None, the totals of ``counts``.
        changed_rows: How many rows of each relation changed in recent steps, if available.
        counts: Counts of values, if available; without them no value is spread.
    """
    atoms = atoms_of(stage)
    if not atoms:  # a recursion that reads constants only
        return Grid(Shares((), {}))
    if sizes is None and counts:
        sizes = {
            atoms[position].relation: float(atom_counts.total)
            for (position, _), atom_counts in counts.items()
        }
    shares = choose_shares(weigh_atoms(atoms, sizes=sizes, changed_rows=changed_rows), cells)
    if not stage.atoms or not counts:
        return Grid(shares)
    return Grid(shares, heavy_values(shares, _decode_counts(stage, shares, counts)))


def _decode_counts(stage: Stage, shares: Shares, counts: KnownCounts) -> KnownCounts:
    """Return counts with the values of columns instead of their transport encoding, for explain."""
    fields = {relation.name: relation.fields for relation in stage.relations}
    result = {}
    for (position, name), of_atom in counts.items():
        atom = stage.atoms[position]
        types = [fields[atom.relation][column].type for column in shares.columns(atom, name)]
        values = tuple(
            decode_column(encode_column(column), type).combine_chunks()
            for column, type in zip(of_atom.values, types, strict=True)
        )
        result[position, name] = replace(of_atom, values=values)
    return result


def view_grid(stage: Stage, cells: int, columns: Collection[int]) -> Grid:
    """Return the grid of the stage of a view, whose rows are assigned to cells by some columns.

    Args:
        stage: The stage of a materialized view.
        cells: The number of cells.
        columns: The columns; without columns there is one cell.
    """
    (atom,) = atoms_of(stage)
    used = {name: column for name, column in atom.columns.items() if column in columns}
    return Grid(choose_shares([replace(atom, columns=used)], cells))


def grid_from_counts(
    stage: Stage,
    cells: int,
    counts: KnownCounts,
    *,
    changed_rows: Mapping[str, float] | None = None,
) -> Grid:
    """Choose the grid of a stage from the counts of the rows so far.

    A relation that is small now may grow later. As long as one relation has fewer than
    `MIN_KNOWN_ROWS` rows, all relations are planned as equally large; the heavy values of the large
    relations are spread nevertheless.

    Args:
        stage: The stage.
        cells: The maximum number of cells.
        counts: The counts of the rows, as `count_in_tables` returns them.
        changed_rows: How many rows of each relation changed in recent steps, if available.
    """
    atoms = atoms_of(stage)
    large = {
        key: atom_counts
        for key, atom_counts in counts.items()
        if atom_counts.total >= MIN_KNOWN_ROWS
    }
    large_positions = {position for position, _ in large}
    all_are_large = len(large_positions) == sum(1 for atom in atoms if atom.columns)
    if all_are_large:
        return stage_grid(stage, cells, changed_rows=changed_rows, counts=large)
    equal_sizes = dict.fromkeys((atom.relation for atom in atoms), 1.0)
    return stage_grid(stage, cells, sizes=equal_sizes, changed_rows=changed_rows, counts=large)


def count_in_tables(stage: Stage, tables: Mapping[str, pa.Table]) -> dict[tuple[int, str], Counts]:
    """Count the values of a join in the tables of its relations.

    Args:
        stage: A join; other stages have no values to count.
        tables: Rows by relation, each row once; further columns are ignored.
    """
    # `Shares.columns` returns the columns that are hashed together for a variable. It depends on
    # the atoms only, so all shares can be 1 here.
    shares = Shares(stage.atoms, dict.fromkeys(_variables(stage.atoms), 1))
    counted_columns = {
        (position, name): (atom.relation, shares.columns(atom, name))
        for position, atom in enumerate(stage.atoms)
        for name in atom.columns
        if atom.relation in tables
    }
    # Several atoms may need the counts of the same columns: these are counted once.
    counts_by_columns = {
        (relation, columns): count_values([tables[relation].column(column) for column in columns])
        for relation, columns in dict.fromkeys(counted_columns.values())
    }
    return {key: counts_by_columns[columns] for key, columns in counted_columns.items()}


def _variables(atoms: Sequence[JoinAtom]) -> list[str]:
    return list(dict.fromkeys(name for atom in atoms for name in atom.columns))
