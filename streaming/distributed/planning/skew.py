"""Skew: which values of a join's variables are heavy, and how their rows are spread.

::

    value h of v adds to each cell of its coordinate    x_h = Σ_A N_A(h) / Π s_w, w in A but v
    spread, it adds to every cell                       y_h = Σ_A N_A(h) / (f_A Π s_w)

``N_A(h)`` is the number of A's rows with the value, as arrangements know it. Spreading a value
takes x_h from the cells of one coordinate and gives y_h <= x_h to all, so it pays only where that
coordinate is ahead of the others: a value that is heavy in one graph is one of many alike in
another. So there is no threshold. The values of a variable are tried heaviest first, and as many
are spread as make the fullest coordinate least full, by the hashes that they have. The digits'
parts ``f`` of each value are those with the least y_h, found by trying all (BKS 2014 and SharesSkew
solve the same by linear programs over logarithms; here shares are small integers).

Values that are not counted one by one are taken to be even, and of every atom one row with a value
is reckoned with even if there is none: it may come, and then goes to all parts of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streaming.distributed.execution.placement import hashed
from streaming.distributed.execution.transport import to_wire
from streaming.distributed.planning.grid import Grid, Heavy
from streaming.distributed.planning.shares import Shares, products

__all__ = ["COUNTED", "Counts", "added", "counts_of", "grid_of", "heavy_values"]

#: So many values of a column are counted one by one.
COUNTED = 1 << 14
#: What spreading more values must win, of the fullest cell.
WORTH = 0.005

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Counts:
    """How many rows of an atom have each of the most frequent values of a variable.

    Attributes:
        values: The values, a column for each variable that is hashed together.
        rows: By value, in the order of ``values``.
        total: All rows of the atom.
    """

    values: tuple[pa.Array, ...]
    rows: npt.NDArray[np.int64]
    total: int


def counts_of(columns: Sequence[pa.Array | pa.ChunkedArray], *, most: int = COUNTED) -> Counts:
    """The counts of the values of columns; NULL is one, for its rows have a cell, too.

    >>> counts = counts_of([pa.array([7, 7, 9, None])], most=1)
    >>> counts.values[0].to_pylist(), counts.rows.tolist(), counts.total
    ([7], [2], 4)
    """
    names = [f"c{place}" for place in range(len(columns))]
    table = pa.table(list(columns), names)
    found = table.group_by(names).aggregate([([], "count_all")])
    found = found.take(pc.sort_indices(found, [("count_all", "descending")])[:most])
    values = tuple(_whole(found.column(name)) for name in names)
    return Counts(values, found.column("count_all").to_numpy(), table.num_rows)


def added(parts: Sequence[Counts], *, most: int = COUNTED) -> Counts:
    """The sum of counts of disjoint rows.

    >>> one, two = counts_of([pa.array([7, 7])]), counts_of([pa.array([7, 8])])
    >>> added([one, two]).rows.tolist()
    [3, 1]
    """
    names = [f"c{place}" for place in range(len(parts[0].values))]
    tables = [
        pa.table([*one.values, pa.array(one.rows, pa.int64())], [*names, "rows"]) for one in parts
    ]
    found = pa.concat_tables(tables).group_by(names).aggregate([("rows", "sum")])
    found = found.take(pc.sort_indices(found, [("rows_sum", "descending")])[:most])
    values = tuple(_whole(found.column(name)) for name in names)
    rows = found.column("rows_sum").to_numpy()
    return Counts(values, rows, sum(one.total for one in parts))


def grid_of(shares: Shares, counts: Mapping[tuple[int, str], Counts]) -> Grid:
    """The grid of shares, with the values spread that are heavy; see `heavy_values`."""
    return Grid(shares, heavy_values(shares, counts))


def heavy_values(shares: Shares, counts: Mapping[tuple[int, str], Counts]) -> tuple[Heavy, ...]:
    """The values to spread, and how.

    Args:
        shares: The shares.
        counts: By the number of an atom and a variable of it; others are taken to be even.

    Complexity:
        O(k log k + k · s) for k counted values of a variable with share s.

    >>> from streaming.distributed.planning.shares import Atom, shares_of
    >>> atoms = [Atom("fact", {"k": 0}, 1000.0), Atom("dim", {"k": 0}, 100.0)]
    >>> shares = shares_of(atoms, 8)
    >>> fact = counts_of([pa.array([7] * 500 + [*range(500)])])
    >>> dim = counts_of([pa.array(range(100))])
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
    # Cells of a coordinate among which a row of an atom with the value is shared out.
    among = np.array(
        [prod(p for w, p in shares.parts.items() if w in shares.atoms[a].columns) for a in atoms]
    ) / float(share)
    choices = products(len(atoms), share)
    weights = np.maximum(rows, 1.0) / among
    costs = weights @ (1.0 / choices).T
    best = costs.argmin(axis=1)
    alone, spread = weights.sum(axis=1), costs[np.arange(len(best)), best]
    heavier = np.argsort(-alone, kind="stable")
    rest = float((np.array([totals[a] for a in atoms]) / among).sum() - alone.sum())
    slices = np.full(share, max(rest, 0.0) / share)
    number = _most_worth(alone[heavier], spread[heavier], hashes[heavier] % share, slices, mean)
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
    """Of each atom the part of its rows that has the values."""
    sums = dict(zip(atoms, rows.sum(axis=0).tolist(), strict=True))
    return tuple(
        round(sums.get(place, 0.0) / total, 9) if total else 0.0
        for place, total in enumerate(totals)
    )


def _most_worth(
    alone: Numbers,
    spread: Numbers,
    coordinates: npt.NDArray[np.int64],
    slices: Numbers,
    mean: float,
) -> int:
    """How many of the heaviest values to spread, so that the fullest coordinate has least."""
    np.add.at(slices, coordinates, alone)
    fullest = np.empty(len(alone) + 1)
    given = 0.0
    fullest[0] = slices.max()
    for place, coordinate in enumerate(coordinates.tolist()):
        slices[coordinate] -= alone[place]
        given += spread[place]
        fullest[place + 1] = slices.max() + given
    worth = np.flatnonzero(fullest <= fullest.min() + WORTH * mean)
    return int(worth[0])


def _by_value(
    counts: Mapping[int, Counts], atoms: Sequence[int], shares: Shares, name: str
) -> tuple[npt.NDArray[np.int64], Numbers, Callable[[int], str]]:
    """Hashes of all counted values, their rows by value and atom, and their texts."""
    number = list(shares.parts).index(name)
    parts = [hashed([*map(to_wire, one.values)], number) for one in counts.values()]
    hashes, first, inverse = np.unique(
        np.concatenate(parts), return_index=True, return_inverse=True
    )
    rows = np.zeros((len(hashes), len(atoms)))
    ends = np.cumsum([0, *map(len, parts)])
    for at, (place, one) in enumerate(counts.items()):
        np.add.at(rows[:, atoms.index(place)], inverse[ends[at] : ends[at + 1]], one.rows)
    given = list(counts.values())

    def text(member: int) -> str:
        at = int(np.searchsorted(ends, first[member], side="right")) - 1
        row = int(first[member] - ends[at])
        values = [column[row].as_py() for column in given[at].values]
        return ", ".join("NULL" if value is None else str(value) for value in values)

    return hashes, rows, text


def _whole(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    return found.chunk(0) if isinstance(found, pa.ChunkedArray) else found
