"""Evenness: how full the cells of a stage are, and another grid for a join that has become uneven.

::

    load of a cell    the rows that it keeps, by its manifest
    uneven            the fullest cell has more than UNEVEN times the mean
    evened            values counted in the cells' arrangements -> another grid -> the rows move

A grid is chosen by what came first (`streaming.distributed.planning.grid_planning.known_grid`), and
what comes later may have other heavy values. So before a micro-batch the loads are looked at, which
the driver knows anyway, and where a join is uneven the values of its arrangements are counted; rows
that have changed since weigh as much as all that are kept. If that gives another grid, the rows of
the stage move to it (`streaming.distributed.stage_cells`), new files beside the old ones, and grid
and cells become the state with the micro-batch's commit; a crash before that has changed nothing.
That costs what the stage keeps, so it is looked at again when rows have doubled, and beyond
`MOST_MOVED` bytes it is left to who can stop the query (`streaming.distributed.rescaling`).

The way not taken is to move only the rows of values that became heavy: it needs a second kind of
exchange between cells, and saves little where looking doubles in distance.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from circuits.state.migration import OperatorState
from streaming.distributed.execution.routing import RELATION
from streaming.distributed.migration import relations_of
from streaming.distributed.planning.grid import Grid
from streaming.distributed.planning.grid_planning import (
    counts_of_cells,
    counts_of_tables,
    known_grid,
)
from streaming.distributed.planning.stages import Stage
from streaming.distributed.stage_cells import StageCells
from streaming.state.manifest import read_cell_manifest
from streaming.state.verified_files import read_state

__all__ = ["LoadBalance", "loads_of"]

#: Of the mean, the load of the fullest cell from which on another grid is looked for.
UNEVEN: Final = 1.3
#: Rows of the mean cell below which nothing is uneven but by chance.
LEAST: Final = 100
#: Bytes of state up to which a stage is moved while the query runs.
MOST_MOVED: Final = 1 << 30

log = logging.getLogger(__name__)

Manifests = Mapping[int, bytes]


def loads_of(stage: Stage, manifests: Manifests) -> list[int]:
    """The rows that each cell of a stage keeps, in one column order each, by the cells' numbers.

    Of a join those of its atoms. Rows that were deleted and are not merged away yet count, too.
    """
    return [
        sum(
            max(sum(placed.rows for placed in run) for run in orders.values())
            for name, orders in read_cell_manifest(manifests[cell]).traces.items()
            if orders and (not stage.atoms or name.startswith("relation "))
        )
        for cell in sorted(manifests)
    ]


@dataclass
class LoadBalance:
    """Looks after the joins of one circuit.

    Attributes:
        changed: By relation how many rows have come since the state began or was taken up.
        looked: By stage how many rows its cells kept when their values were last counted.
    """

    changed: Counter[str] = field(default_factory=Counter)
    looked: dict[int, int] = field(default_factory=dict)

    def note(self, stage: Stage, rows: pa.Table) -> None:
        """Record the rows of a micro-batch, in the form of `stage_rows.wide`."""
        numbers = np.bincount(rows.column(RELATION).to_numpy(), minlength=len(stage.relations))
        for relation, number in zip(stage.relations, numbers.tolist(), strict=True):
            self.changed[relation.name] += number

    def is_due(self, stage: Stage, manifests: Manifests) -> bool:
        """Whether a stage's cells are uneven, and were not looked at when they had half as much."""
        if not stage.atoms or len(manifests) < 2:
            return False
        loads = loads_of(stage, manifests)
        rows = sum(loads)
        if rows < max(LEAST * len(loads), 2 * self.looked.get(stage.number, 0)):
            return False
        return max(loads) * len(loads) > UNEVEN * rows

    def evened(
        self, cells: StageCells, grid: Grid, manifests: Manifests, *, most: int, batch_id: int
    ) -> tuple[Grid, dict[int, bytes]]:
        """Another grid for a join whose cells are uneven, and its cells; or what there is.

        Args:
            cells: The stage's, in the state directory; they take note of the files they write.
            grid: The grid that they have.
            manifests: Of each cell.
            most: How many cells there may be.
            batch_id: The micro-batch before which they move.

        Raises:
            StateError: As `StageCells.regridded`.
        """
        stage = cells.stage
        found = {cell: read_cell_manifest(manifests[cell]) for cell in sorted(manifests)}
        self.looked[stage.number] = sum(loads_of(stage, manifests))
        size = sum(mark.size for one in found.values() for mark in one.files.values())
        if size > MOST_MOVED:
            log.warning(
                "the cells of stage %d are uneven, and %d bytes are too many to move while the "
                "query runs: stop it some time, and call python -m streaming rescale %s --cells %d",
                stage.number,
                size,
                cells.files.location,
                most,
            )
            return grid, dict(manifests)
        states = (read_state(cells.files, one) for one in found.values())
        counts = counts_of_cells(stage, cells.definition, states, grid)
        if _is_alike(known_grid(stage, most, counts, rates=self.changed), grid):
            return grid, dict(manifests)

        def chosen(whole: OperatorState) -> Grid:
            counts = counts_of_tables(stage, relations_of(stage, whole))
            other = known_grid(stage, most, counts, rates=self.changed)
            return grid if _is_alike(other, grid) else other

        new, moved = cells.regridded(
            grid,
            chosen,
            manifests,
            batch_id=batch_id,
            steps=max(one.steps for one in found.values()),
        )
        log.info("stage %d has moved to another grid of %d cells", stage.number, new.cells)
        return new, moved


def _is_alike(one: Grid, other: Grid) -> bool:
    """Whether rows find the same cells, whatever is told of how many there are."""
    spread = [
        {(h.variable, h.parts, value) for h in grid.heavy for value in h.hashes}
        for grid in (one, other)
    ]
    return one.shares.parts == other.shares.parts and spread[0] == spread[1]
