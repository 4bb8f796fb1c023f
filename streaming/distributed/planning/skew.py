"""Skew: choose the heavy values of a join's variables, and how their rows are spread.

A variable v is hashed into s_v coordinates (its share). All rows with one value of v have the same
coordinate, so a frequent value overloads the cells of this coordinate. Such a heavy value is
spread: the rows of each atom A with the value are split into f_A parts (see
`streaming.distributed.planning.grid`)::

    N_A(h)  the number of rows of A with value h, from the arrangements
    x_h     the load that h adds to each cell of its coordinate, if it is not spread
    y_h     the load that h adds to every cell, if it is spread

    x_h = Σ_A N_A(h) / Π s_w,     y_h = Σ_A N_A(h) / (f_A Π s_w),     w: the other variables of A

Spreading a value takes x_h from the cells of one coordinate and adds y_h <= x_h to all cells. This
helps only if that coordinate is fuller than the others. A fixed threshold for N_A(h) cannot tell: a
value with 1000 rows is a hub in one graph and ordinary in another. Therefore the values of a
variable are tried from the heaviest on, and the number of spread values is the one for which the
fullest coordinate has the least load. All combinations of parts ``f`` are tried for each value, and
the one with the least y_h is used; if there are too many, only powers of two are tried. Beame,
Koutris, Suciu ("Skew in Parallel Query Processing", PODS 2014) and Afrati, Ullman et al.
(SharesSkew) solve the same problem by linear programs over logarithms; here shares are small
integers.

Only the most frequent values are counted; all other values are planned as equally frequent. An atom
without a row of a heavy value is planned as if it had one. Such a row may be inserted later, and is
then sent to the cells of all parts of the other atoms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streaming.distributed.execution.placement import hash_values
from streaming.distributed.execution.transport import encode_column
from streaming.distributed.planning.grid import Grid, HeavyGroup
from streaming.distributed.planning.shares import Shares, find_combinations

__all__ = [
    "MAX_COUNTED_VALUES",
    "Counts",
    "add_counts",
    "count_values",
    "heavy_values",
    "skew_grid",
]

#: The number of most frequent values of a column whose rows are counted.
MAX_COUNTED_VALUES = 1 << 14
#: More values are spread only if the fullest coordinate loses this fraction of the mean load.
MIN_GAIN = 0.005
#: The number of loads, by value and combination of parts, that are computed at a time: 32 MB.
MAX_LOADS = 1 << 22
#: The most combinations of parts that are all tried.
MAX_COMBINATIONS = 1 << 15

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Counts:
    """The number of rows of an atom with each of the most frequent values of a variable.

    Attributes:
        values: The values, a column for each variable that is hashed together.
        rows: The number of rows with each value, in the order of ``values``.
        total: The number of all rows of the atom.
    """

    values: tuple[pa.Array, ...]
    rows: npt.NDArray[np.int64]
    total: int

    def to_table(self) -> pa.Table:
        """Return the counts as a table, with the total in the metadata of its schema.

        >>> counts = count_values([pa.array([7, 7, 9])], max_values=1)
        >>> Counts.of_table(counts.to_table()).total
        3
        """
        names = [f"c{position}" for position in range(len(self.values))]
        table = pa.table([*self.values, pa.array(self.rows, pa.int64())], [*names, "rows"])
        return table.replace_schema_metadata({"total": str(self.total)})

    @staticmethod
    def of_table(table: pa.Table) -> Counts:
        """Return the counts of the table that `to_table` returned."""
        *values, rows = (_combine_chunks(column) for column in table.columns)
        return Counts(tuple(values), rows.to_numpy(), int(table.schema.metadata[b"total"]))


def count_values(
    columns: Sequence[pa.Array | pa.ChunkedArray], *, max_values: int = MAX_COUNTED_VALUES
) -> Counts:
    """Count the rows with each value of some columns, NULL included.

    >>> counts = count_values([pa.array([7, 7, 9, None])], max_values=1)
    >>> counts.values[0].to_pylist(), counts.rows.tolist(), counts.total
    ([7], [2], 4)
    """
    names = [f"c{position}" for position in range(len(columns))]
    table = pa.table(list(columns), names)
    groups = table.group_by(names).aggregate([([], "count_all")])
    groups = groups.take(pc.sort_indices(groups, [("count_all", "descending")])[:max_values])
    values = tuple(_combine_chunks(groups.column(name)) for name in names)
    return Counts(values, groups.column("count_all").to_numpy(), table.num_rows)


def add_counts(parts: Sequence[Counts], *, max_values: int = MAX_COUNTED_VALUES) -> Counts:
    """Add up the counts of disjoint rows.

    >>> counts = [count_values([pa.array([7, 7])]), count_values([pa.array([7, 8])])]
    >>> add_counts(counts).rows.tolist()
    [3, 1]
    """
    names = [f"c{position}" for position in range(len(parts[0].values))]
    tables = [
        pa.table([*part.values, pa.array(part.rows, pa.int64())], [*names, "rows"])
        for part in parts
    ]
    groups = pa.concat_tables(tables).group_by(names).aggregate([("rows", "sum")])
    groups = groups.take(pc.sort_indices(groups, [("rows_sum", "descending")])[:max_values])
    values = tuple(_combine_chunks(groups.column(name)) for name in names)
    rows = groups.column("rows_sum").to_numpy()
    return Counts(values, rows, sum(part.total for part in parts))


def skew_grid(shares: Shares, counts: Mapping[tuple[int, str], Counts]) -> Grid:
    """Return a grid that spreads the heavy values; see `heavy_values` for the arguments."""
    return Grid(shares, heavy_values(shares, counts))


def heavy_values(
    shares: Shares, counts: Mapping[tuple[int, str], Counts]
) -> tuple[HeavyGroup, ...]:
    """Choose the values to spread, and their parts.

    Args:
        shares: The shares.
        counts: The counts of values, by the position of an atom and one of its variables. Values
            without counts are planned as equally frequent.

    Complexity:
        O(k log k + k · (s + a · c)) for k counted values of a variable with share s, a atoms, and c
        combinations of parts.

    >>> from streaming.distributed.planning.shares import JoinAtom, choose_shares
    >>> atoms = [JoinAtom("fact", {"k": 0}, 1000.0), JoinAtom("dim", {"k": 0}, 100.0)]
    >>> shares = choose_shares(atoms, 8)
    >>> fact = count_values([pa.array([7] * 500 + [*range(500)])])
    >>> dim = count_values([pa.array(range(100))])
    >>> groups = heavy_values(shares, {(0, "k"): fact, (1, "k"): dim})
    >>> [(group.variable, group.splits, group.texts) for group in groups]
    [('k', (8, 1), ('7',))]
    """
    atoms = shares.atoms
    total_of_atom = {atom: counts[atom, name].total for atom, name in counts}
    totals = [float(total_of_atom.get(atom, 0.0)) for atom in range(len(atoms))]
    sent_rows = sum(
        total * shares.replication(atom) for total, atom in zip(totals, atoms, strict=True)
    )
    mean = sent_rows / shares.cells
    heavy: list[HeavyGroup] = []
    for name, share in shares.by_variable.items():
        counts_of_atom = {
            atom: atom_counts
            for (atom, variable), atom_counts in counts.items()
            if variable == name and len(atom_counts.rows)
        }
        if share > 1 and counts_of_atom and mean:
            heavy += _heavy_values_of(shares, name, counts_of_atom, totals, mean)
    return tuple(heavy)


def _heavy_values_of(
    shares: Shares, name: str, counts: Mapping[int, Counts], totals: Sequence[float], mean: float
) -> list[HeavyGroup]:
    """Return the heavy values of one variable, in a group for each combination of parts.

    Args:
        shares: The shares.
        name: The variable.
        counts: The counts of its values, by the position of an atom.
        totals: The number of rows of each atom of the join.
        mean: The mean load of a cell.
    """
    share = shares.by_variable[name]
    atoms = [k for k, atom in enumerate(shares.atoms) if name in atom.columns]
    values = _merge_counts(counts, atoms, shares, name)
    # For each atom, the number of cells of one coordinate over which its rows are divided: Π s_w.
    cells_per_coordinate = np.array(
        [
            prod(p for w, p in shares.by_variable.items() if w in shares.atoms[a].columns)
            for a in atoms
        ]
    ) / float(share)
    loads = np.maximum(values.rows, 1.0) / cells_per_coordinate  # by value and atom
    # For each value h: x_h of the module docstring, the least y_h, and its combination of parts.
    unspread_load = loads.sum(axis=1)
    combinations, best, spread_load = _choose_combinations(loads, share)
    heaviest_first = np.argsort(-unspread_load, kind="stable")
    all_rows = np.array([totals[atom] for atom in atoms])
    load_of_other_values = float((all_rows / cells_per_coordinate).sum() - unspread_load.sum())
    spread_count = _count_worth_spreading(
        unspread_load[heaviest_first],
        spread_load[heaviest_first],
        values.hashes[heaviest_first] % share,
        np.full(share, max(load_of_other_values, 0.0) / share),
        mean,
    )
    spread_values = heaviest_first[:spread_count]  # positions in ``values``
    groups = []
    for combination in np.unique(best[spread_values]):
        members = spread_values[best[spread_values] == combination]
        parts = dict(zip(atoms, combinations[combination].tolist(), strict=True))
        group = HeavyGroup(
            name,
            tuple(parts.get(atom, 1) for atom in range(len(shares.atoms))),
            tuple(values.hashes[members].tolist()),
            tuple(values.format(int(member)) for member in members),
            _row_fractions(values.rows[members], atoms, totals),
        )
        groups.append(group)
    return groups


def _choose_combinations(
    loads: Numbers, share: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], Numbers]:
    """Choose the parts f_A of each value.

    All combinations are tried, if there are at most `MAX_COMBINATIONS`. Otherwise only powers of
    two are: the part of the atom with the largest load is doubled as often as the share allows.
    Each doubling halves the load of one atom, so no other powers of two have less load.

    Args:
        loads: The load of each value by atom, if it is not spread.
        share: The share of the variable.

    Returns:
        The combinations of parts, a row for each, and a column for each atom; for each value, the
        number of its combination, and its load if it is spread.

    Complexity:
        O(k · a · c) for k values, a atoms and c combinations, or O(k · a · log share).
    """
    atoms = loads.shape[1]
    integers = np.arange(1, share + 1)
    combinations = find_combinations(integers, atoms, share, MAX_COMBINATIONS)
    if combinations is not None:
        # If one of the parts can be doubled, another combination has less load.
        combinations = combinations[2 * combinations.prod(axis=1) > share]
        return combinations, *_least_loads(loads, combinations)
    parts, rest, values = np.ones(loads.shape, np.int64), loads.copy(), np.arange(len(loads))
    for _ in range(share.bit_length() - 1):
        largest = rest.argmax(axis=1)
        parts[values, largest] *= 2
        rest[values, largest] /= 2
    combinations, best = np.unique(parts, axis=0, return_inverse=True)
    return combinations, best.ravel(), rest.sum(axis=1)


def _least_loads(
    loads: Numbers, combinations: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], Numbers]:
    """Return, for each value, the combination of parts with the least load, and this load.

    Args:
        loads: The load of each value by atom, if it is not spread.
        combinations: A row for each combination, a column for each atom.
    """
    fractions = (1.0 / combinations).T
    best, least = np.empty(len(loads), np.int64), np.empty(len(loads))
    size = max(MAX_LOADS // len(combinations), 1)
    for first in range(0, len(loads), size):
        loads_if_spread = loads[first : first + size] @ fractions  # by value and combination
        best[first : first + size] = loads_if_spread.argmin(axis=1)
        least[first : first + size] = loads_if_spread.min(axis=1)
    return best, least


def _row_fractions(
    rows: Numbers, atoms: Sequence[int], totals: Sequence[float]
) -> tuple[float, ...]:
    """Return, for each atom of the join, the fraction of its rows that have the values."""
    sums = dict(zip(atoms, rows.sum(axis=0).tolist(), strict=True))
    return tuple(
        round(sums.get(atom, 0.0) / total, 9) if total else 0.0 for atom, total in enumerate(totals)
    )


def _count_worth_spreading(
    unspread_load: Numbers,
    spread_load: Numbers,
    coordinates: npt.NDArray[np.int64],
    load_of_coordinate: Numbers,
    mean: float,
) -> int:
    """Return how many of the heaviest values to spread, so that no coordinate is too full.

    Args:
        unspread_load: The load of each value on its coordinate if it is not spread, heaviest first.
        spread_load: The load of each value on every coordinate if it is spread.
        coordinates: The coordinate of each value if it is not spread.
        load_of_coordinate: The load of each coordinate without these values; changed in place.
        mean: The mean load of a cell.
    """
    np.add.at(load_of_coordinate, coordinates, unspread_load)
    # max_loads[n] is the load of the fullest coordinate if the n heaviest values are spread.
    max_loads = np.empty(len(unspread_load) + 1)
    max_loads[0] = load_of_coordinate.max()
    load_of_all_coordinates = 0.0
    for k, coordinate in enumerate(coordinates.tolist()):
        load_of_coordinate[coordinate] -= unspread_load[k]
        load_of_all_coordinates += spread_load[k]
        max_loads[k + 1] = load_of_coordinate.max() + load_of_all_coordinates
    near_minimum = np.flatnonzero(max_loads <= max_loads.min() + MIN_GAIN * mean)
    return int(near_minimum[0])


class _ValueCounts(NamedTuple):
    """The counted values of one variable: their hashes, rows and texts.

    Attributes:
        hashes: The hash of each value.
        rows: The number of rows, by value and atom.
        format: Returns a value as text, given its position in ``hashes``.
    """

    hashes: npt.NDArray[np.int64]
    rows: Numbers
    format: Callable[[int], str]


def _merge_counts(
    counts: Mapping[int, Counts], atoms: Sequence[int], shares: Shares, name: str
) -> _ValueCounts:
    """Merge the counts of all atoms that contain a variable, by the hashes of the values."""
    variable = list(shares.by_variable).index(name)  # seeds the hash function
    counts_of_atoms = list(counts.values())
    hashes_of_atoms = [
        hash_values([*map(encode_column, atom_counts.values)], variable)
        for atom_counts in counts_of_atoms
    ]
    hashes, first_positions, inverse = np.unique(
        np.concatenate(hashes_of_atoms), return_index=True, return_inverse=True
    )
    rows = np.zeros((len(hashes), len(atoms)))
    starts = np.cumsum([0, *map(len, hashes_of_atoms)])
    for k, (atom, atom_counts) in enumerate(counts.items()):
        np.add.at(rows[:, atoms.index(atom)], inverse[starts[k] : starts[k + 1]], atom_counts.rows)

    def format_value(index: int) -> str:
        position = first_positions[index]  # in the concatenated hashes of all atoms
        k = int(np.searchsorted(starts, position, side="right")) - 1
        row = int(position - starts[k])
        return ", ".join(_text_of(column, row) for column in counts_of_atoms[k].values)

    return _ValueCounts(hashes, rows, format_value)


def _text_of(column: pa.Array, row: int) -> str:
    """Return a value as a text for messages."""
    try:
        value = column[row].as_py()
    except (OverflowError, ValueError):  # a time that Python cannot represent, such as infinity
        value = column.slice(row, 1).cast(pa.string())[0].as_py()
    return "NULL" if value is None else str(value)


def _combine_chunks(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return combined.chunk(0) if isinstance(combined, pa.ChunkedArray) else combined
