"""Skew: choose the heavy values of a join's variables, and how their rows are spread.

::

    value h of v adds to each cell of its coordinate    x_h = Σ_A N_A(h) / Π s_w, w in A but v
    spread, it adds to every cell                       y_h = Σ_A N_A(h) / (f_A Π s_w)

``N_A(h)`` is the number of A's rows with the value, from the arrangements. Spreading a value takes
x_h from the cells of one coordinate and adds y_h <= x_h to all cells. It pays only if that
coordinate is fuller than the others: a value that is heavy in one graph is one of many similar ones
in another. Therefore there is no threshold. The values of a variable are tried from the heaviest
on, and the number that is spread is the one that makes the fullest coordinate least full, given the
hashes of the values. The digits' parts ``f`` of each value are those with the least y_h, found by
trying all (BKS 2014 and SharesSkew solve the same by linear programs over logarithms; here shares
are small integers).

Values that are not counted one by one count as equally frequent. Every atom counts as having at
least one row with a value, because such a row may be inserted later, and then it is replicated to
all parts of the other atoms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streaming.distributed.execution.placement import hash_values
from streaming.distributed.execution.transport import encode_column
from streaming.distributed.planning.grid import Grid, Heavy
from streaming.distributed.planning.shares import Shares, enumerate_shares

__all__ = [
    "MAX_COUNTED_VALUES",
    "Counts",
    "add_counts",
    "count_values",
    "heavy_values",
    "skew_grid",
]

#: The most frequent values of a column that are counted one by one.
MAX_COUNTED_VALUES = 1 << 14
#: The least gain for which more values are spread, relative to the mean load.
MIN_GAIN = 0.005

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Counts:
    """The number of rows of an atom with each of the most frequent values of a variable.

    Attributes:
        values: The values, a column for each variable that is hashed together.
        rows: By value, in the order of ``values``.
        total: All rows of the atom.
    """

    values: tuple[pa.Array, ...]
    rows: npt.NDArray[np.int64]
    total: int


def count_values(
    columns: Sequence[pa.Array | pa.ChunkedArray], *, most: int = MAX_COUNTED_VALUES
) -> Counts:
    """Count the values of columns; NULL is a value, because its rows have a cell, too.

    >>> counts = count_values([pa.array([7, 7, 9, None])], most=1)
    >>> counts.values[0].to_pylist(), counts.rows.tolist(), counts.total
    ([7], [2], 4)
    """
    names = [f"c{place}" for place in range(len(columns))]
    table = pa.table(list(columns), names)
    found = table.group_by(names).aggregate([([], "count_all")])
    found = found.take(pc.sort_indices(found, [("count_all", "descending")])[:most])
    values = tuple(_combine_chunks(found.column(name)) for name in names)
    return Counts(values, found.column("count_all").to_numpy(), table.num_rows)


def add_counts(parts: Sequence[Counts], *, most: int = MAX_COUNTED_VALUES) -> Counts:
    """Add up the counts of disjoint rows.

    >>> one, two = count_values([pa.array([7, 7])]), count_values([pa.array([7, 8])])
    >>> add_counts([one, two]).rows.tolist()
    [3, 1]
    """
    names = [f"c{place}" for place in range(len(parts[0].values))]
    tables = [
        pa.table([*one.values, pa.array(one.rows, pa.int64())], [*names, "rows"]) for one in parts
    ]
    found = pa.concat_tables(tables).group_by(names).aggregate([("rows", "sum")])
    found = found.take(pc.sort_indices(found, [("rows_sum", "descending")])[:most])
    values = tuple(_combine_chunks(found.column(name)) for name in names)
    rows = found.column("rows_sum").to_numpy()
    return Counts(values, rows, sum(one.total for one in parts))


def skew_grid(shares: Shares, counts: Mapping[tuple[int, str], Counts]) -> Grid:
    """Return the grid of shares, with the heavy values spread; see `heavy_values`."""
    return Grid(shares, heavy_values(shares, counts))


def heavy_values(shares: Shares, counts: Mapping[tuple[int, str], Counts]) -> tuple[Heavy, ...]:
    """Choose the values to spread, and their parts.

    Args:
        shares: The shares.
        counts: By the number of an atom and one of its variables; others count as even.

    Complexity:
        O(k log k + k · s) for k counted values of a variable with share s.

    >>> from streaming.distributed.planning.shares import JoinInput, choose_shares
    >>> atoms = [JoinInput("fact", {"k": 0}, 1000.0), JoinInput("dim", {"k": 0}, 100.0)]
    >>> shares = choose_shares(atoms, 8)
    >>> fact = count_values([pa.array([7] * 500 + [*range(500)])])
    >>> dim = count_values([pa.array(range(100))])
    >>> found = heavy_values(shares, {(0, "k"): fact, (1, "k"): dim})
    >>> [(heavy.variable, heavy.parts, heavy.names) for heavy in found]
    [('k', (8, 1), ('7',))]
    """
    atoms = shares.atoms
    totals = {place: counts[place, name].total for place, name in counts}
    known = [float(totals.get(place, 0.0)) for place in range(len(atoms))]
    loads = [rows * shares.replication(a) for rows, a in zip(known, atoms, strict=True)]
    mean = sum(loads) / shares.cells
    found: list[Heavy] = []
    for name, share in shares.parts.items():
        mine = {place: one for (place, of), one in counts.items() if of == name and len(one.rows)}
        if share > 1 and mine and mean:
            found += _spread(shares, name, mine, known, mean)
    return tuple(found)


def _spread(
    shares: Shares, name: str, counts: Mapping[int, Counts], totals: Sequence[float], mean: float
) -> list[Heavy]:
    """The heavy values of one variable."""
    share = shares.parts[name]
    atoms = [place for place, atom in enumerate(shares.atoms) if name in atom.columns]
    hashes, rows, texts = _by_value(counts, atoms, shares, name)
    # The number of cells of a coordinate among which the rows of an atom are divided.
    among = np.array(
        [prod(p for w, p in shares.parts.items() if w in shares.atoms[a].columns) for a in atoms]
    ) / float(share)
    choices = enumerate_shares(len(atoms), share)
    weights = np.maximum(rows, 1.0) / among
    costs = weights @ (1.0 / choices).T
    best = costs.argmin(axis=1)
    alone, spread = weights.sum(axis=1), costs[np.arange(len(best)), best]
    heavier = np.argsort(-alone, kind="stable")
    rest = float((np.array([totals[a] for a in atoms]) / among).sum() - alone.sum())
    slices = np.full(share, max(rest, 0.0) / share)
    number = _count_worth_spreading(
        alone[heavier], spread[heavier], hashes[heavier] % share, slices, mean
    )
    chosen = heavier[:number]
    groups = {}
    for way in np.unique(best[chosen]):
        members = chosen[best[chosen] == way]
        parts = dict(zip(atoms, choices[way].tolist(), strict=True))
        groups[int(way)] = Heavy(
            name,
            tuple(parts.get(place, 1) for place in range(len(shares.atoms))),
            tuple(hashes[members].tolist()),
            tuple(texts(int(member)) for member in members),
            _parts_of(rows[members], atoms, totals),
        )
    return list(groups.values())


def _parts_of(rows: Numbers, atoms: Sequence[int], totals: Sequence[float]) -> tuple[float, ...]:
    """For each atom the fraction of its rows that have the values."""
    sums = dict(zip(atoms, rows.sum(axis=0).tolist(), strict=True))
    return tuple(
        round(sums.get(place, 0.0) / total, 9) if total else 0.0
        for place, total in enumerate(totals)
    )


def _count_worth_spreading(
    alone: Numbers,
    spread: Numbers,
    coordinates: npt.NDArray[np.int64],
    slices: Numbers,
    mean: float,
) -> int:
    """Return the number of heaviest values to spread that minimizes the fullest coordinate."""
    np.add.at(slices, coordinates, alone)
    fullest = np.empty(len(alone) + 1)
    added = 0.0
    fullest[0] = slices.max()
    for place, coordinate in enumerate(coordinates.tolist()):
        slices[coordinate] -= alone[place]
        added += spread[place]
        fullest[place + 1] = slices.max() + added
    worth = np.flatnonzero(fullest <= fullest.min() + MIN_GAIN * mean)
    return int(worth[0])


def _by_value(
    counts: Mapping[int, Counts], atoms: Sequence[int], shares: Shares, name: str
) -> tuple[npt.NDArray[np.int64], Numbers, Callable[[int], str]]:
    """Return the hashes of all counted values, their rows by value and atom, and their texts."""
    number = list(shares.parts).index(name)
    parts = [hash_values([*map(encode_column, one.values)], number) for one in counts.values()]
    hashes, first, inverse = np.unique(
        np.concatenate(parts), return_index=True, return_inverse=True
    )
    rows = np.zeros((len(hashes), len(atoms)))
    ends = np.cumsum([0, *map(len, parts)])
    for at, (place, one) in enumerate(counts.items()):
        np.add.at(rows[:, atoms.index(place)], inverse[ends[at] : ends[at + 1]], one.rows)
    counts_of_atoms = list(counts.values())

    def text(member: int) -> str:
        at = int(np.searchsorted(ends, first[member], side="right")) - 1
        row = int(first[member] - ends[at])
        values = [column[row].as_py() for column in counts_of_atoms[at].values]
        return ", ".join("NULL" if value is None else str(value) for value in values)

    return hashes, rows, text


def _combine_chunks(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    return found.chunk(0) if isinstance(found, pa.ChunkedArray) else found
