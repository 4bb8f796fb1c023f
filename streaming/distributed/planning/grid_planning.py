"""Choose the grid of a stage from the known statistics of its relations.

Without statistics, all relations count as equally large and all values as equally frequent. Sizes
and rates decide the shares (`shares.weigh_atoms`); counts of values decide which values are spread
(`streaming.distributed.planning.skew`). Counts come from tables (`count_in_tables`) or from the
arrangements of cells, which store them in their first level (`count_in_cells`). A few rows are a
poor sample (`grid_from_counts`): sizes count only if all relations have enough rows, and the values
of a relation with too few rows count as equally frequent.

A stage that groups by keys has one coordinate, the hash of all keys. Its groups cannot be spread,
because each group has one result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from circuits.circuit_spec import CircuitSpec
from circuits.runtime.incrementalize import incrementalize
from circuits.schema import Schema
from circuits.state.circuit_state import State, load_codecs
from circuits.state.registry import relation_trace
from dbsp_wcoj.storage.run import Run, first_values
from streaming.distributed.planning.grid import Grid
from streaming.distributed.planning.shares import JoinInput, Shares, choose_shares, weigh_atoms
from streaming.distributed.planning.skew import (
    MAX_COUNTED_VALUES,
    Counts,
    add_counts,
    count_values,
    heavy_values,
)
from streaming.distributed.planning.stages import Stage

__all__ = [
    "MIN_KNOWN_ROWS",
    "KnownCounts",
    "atoms_of",
    "count_in_cells",
    "count_in_tables",
    "grid_from_counts",
    "stage_grid",
]

#: Rows of a relation from which its statistics are used.
MIN_KNOWN_ROWS: Final = 1000

#: Counts of values by the number of an atom and the name of a variable.
KnownCounts = Mapping[tuple[int, str], Counts]


def atoms_of(stage: Stage) -> tuple[JoinInput, ...]:
    """Return the atoms for the routing: those of a join, or the one relation with its keys."""
    if stage.atoms:
        return stage.atoms
    (relation,) = stage.relations
    assert relation.keys is not None
    return (JoinInput(relation.name, {f"k{key}": key for key in relation.keys}),)


def stage_grid(
    stage: Stage,
    cells: int,
    *,
    sizes: Mapping[str, float] | None = None,
    rates: Mapping[str, float] | None = None,
    counts: KnownCounts | None = None,
) -> Grid:
    """Choose the grid of a stage.

    Args:
        stage: The stage.
        cells: The maximum number of cells.
        sizes: Rows of the stage's relations, by name, if known; else those of ``counts``.
        rates: Rows of them that change in a step, if known.
        counts: Counts of values, if known; without them no value is spread.
    """
    atoms = atoms_of(stage)
    if sizes is None and counts:
        sizes = {atoms[place].relation: float(one.total) for (place, _), one in counts.items()}
    shares = choose_shares(weigh_atoms(atoms, sizes=sizes, rates=rates), cells)
    if not stage.atoms or not counts:
        return Grid(shares)
    # One count for the variables that are hashed together, under the name of the first.
    return Grid(shares, heavy_values(shares, counts))


def grid_from_counts(
    stage: Stage, cells: int, counts: KnownCounts, *, rates: Mapping[str, float] | None = None
) -> Grid:
    """Choose the grid of a stage from the counts of the rows so far.

    A relation that is small now may grow later. As long as there is one, all relations count as
    equally large; heavy values of the others are spread nevertheless.

    Args:
        stage: The stage.
        cells: The maximum number of cells.
        counts: The counts of the rows, as `count_in_tables` returns them.
        rates: The number of changed rows of each relation in a step, if known.
    """
    atoms = atoms_of(stage)
    large = {key: one for key, one in counts.items() if one.total >= MIN_KNOWN_ROWS}
    if len({place for place, _ in large}) == len({p for p, a in enumerate(atoms) if a.columns}):
        return stage_grid(stage, cells, rates=rates, counts=large)
    equal_sizes = dict.fromkeys((atom.relation for atom in atoms), 1.0)
    return stage_grid(stage, cells, sizes=equal_sizes, rates=rates, counts=large)


def count_in_tables(stage: Stage, tables: Mapping[str, pa.Table]) -> dict[tuple[int, str], Counts]:
    """Count the values of a join in the tables of its relations.

    Args:
        stage: A join; other stages have no values to count.
        tables: Rows by relation, each row once; further columns are ignored.
    """
    shares = Shares(stage.atoms, dict.fromkeys(_names(stage.atoms), 1))
    wanted = {
        (place, name): (atom.relation, shares.columns(atom, name))
        for place, atom in enumerate(stage.atoms)
        for name in atom.columns
        if atom.relation in tables
    }
    found = {
        (relation, columns): count_values([tables[relation].column(column) for column in columns])
        for relation, columns in dict.fromkeys(wanted.values())
    }
    return {key: found[counted] for key, counted in wanted.items()}


def count_in_cells(
    stage: Stage, spec: CircuitSpec, states: Iterable[State], grid: Grid
) -> dict[tuple[int, str], Counts]:
    """Count the values of a join in the arrangements of its cells.

    A row counts once for each run that has it, also if it has been deleted and not merged yet. Rows
    that several cells keep are counted once on average.

    Args:
        stage: A join; other stages have no values to count.
        spec: The circuit of its cells.
        states: The states of all of its cells.
        grid: The grid of the cells.

    Complexity:
        O(values) for a column that an arrangement begins with, else O(rows).
    """
    inputs = {name: Schema.of(name, one).fields for name, one in spec.schemas.items()}
    graph = incrementalize(spec.plans, inputs)
    plans = stage.plan.inputs if stage.atoms else ()
    names = [relation_trace(graph.nodes[graph.add(plan)].state_name) for plan in plans]
    fields = {relation.name: relation.fields for relation in stage.relations}
    found: dict[tuple[int, str], list[Counts]] = {}
    for state in states:
        codecs = load_codecs(state)
        for place, atom in enumerate(stage.atoms):
            runs = state.traces.get(names[place], {})
            for name in atom.columns:
                columns = grid.shares.columns(atom, name)
                codes, rows, total = _codes(runs, columns)
                types = [fields[atom.relation][column].type for column in columns]
                values = tuple(
                    codecs.codec(type).decode(np.ascontiguousarray(one))
                    for type, one in zip(types, codes, strict=True)
                )
                found.setdefault((place, name), []).append(Counts(values, rows, total))
    return {key: _once(add_counts(parts), *key, grid) for key, parts in found.items()}


def _once(counts: Counts, place: int, name: str, grid: Grid) -> Counts:
    """Divide the counts over all cells by the number of cells that keep a row."""
    copies = grid.shares.replication(grid.shares.atoms[place])
    return replace(counts, rows=-(-counts.rows // copies), total=-(-counts.total // copies))


def _codes(
    arrangements: Mapping[tuple[int, ...], Sequence[Run]], columns: tuple[int, ...]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], int]:
    """Return the codes of the most frequent values, their row counts, and the total row count."""
    begun = [order for order in arrangements if order[:1] == columns]
    order = next(iter(begun or arrangements), None)
    runs = [] if order is None else arrangements[order]
    values: list[npt.NDArray[np.int64]] = [np.empty((len(columns), 0), np.int64)]
    rows: list[npt.NDArray[np.int64]] = [np.empty(0, np.int64)]
    for run in runs:
        if begun:
            first, starts = first_values(run)
            values.append(first[None])
            rows.append(np.diff(starts))
        else:
            assert order is not None
            read, _ = run.read()
            values.append(read[[order.index(column) for column in columns]])
            rows.append(np.ones(run.rows, np.int64))
    merged, inverse = np.unique(np.hstack(values), axis=1, return_inverse=True)
    summed = np.bincount(inverse.ravel(), np.concatenate(rows), merged.shape[1]).astype(np.int64)
    most = np.argsort(-summed, kind="stable")[:MAX_COUNTED_VALUES]
    return merged[:, most], summed[most], int(summed.sum())


def _names(atoms: Sequence[JoinInput]) -> list[str]:
    return list(dict.fromkeys(name for atom in atoms for name in atom.columns))
