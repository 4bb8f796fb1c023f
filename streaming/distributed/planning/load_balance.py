"""Load balance: detect joins whose cells have become uneven, and repartition them.

A cell is one part of the grid over which a join is distributed; it runs on one executor at a time.

::

    load of a cell    the number of rows that it stores, from its manifest
    uneven            the fullest cell has more than MAX_LOAD_RATIO times the mean
    rebalance         count the values in the cells -> new grid -> move the rows

A grid is chosen from the first rows (`grid_planning.grid_from_counts`), and later rows may have
other heavy values. Before each micro-batch the driver compares the loads; it has the manifests
anyway. If a join is uneven, tasks count the most frequent values of its cells, and the driver plans
a grid from the stored rows and the rows that changed since the query started
(`shares.weigh_atoms`). If that grid differs from the current one, tasks move the rows of the stage
into new files beside the old ones (`streaming.distributed.stage_move`). The new grid and cells
become the state with the commit of the micro-batch; a crash before the commit changes nothing.

Counting and moving cost time in proportion to the rows of the stage, divided by the tasks that run
at the same time. Therefore a stage is examined again only when its rows have doubled, and a stage
with more than `MAX_MOVED_BYTES` for each of these tasks is left to
`streaming.distributed.rescaling`, which needs a stopped query.

Alternatives considered: moving only the rows of the values that became heavy. This needs a second
kind of exchange between cells, and saves little, because a growing stage is examined less and less
often.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from circuits.state.registry import relation_trace
from streaming.distributed.planning.grid import Grid
from streaming.distributed.planning.grid_planning import KnownCounts, grid_from_counts
from streaming.distributed.planning.stages import Stage
from streaming.distributed.stage_cells import StageCells
from streaming.state.manifest import read_cell_manifest

__all__ = ["LoadBalance", "count_loads"]

#: The load of the fullest cell, relative to the mean, above which a new grid is planned.
MAX_LOAD_RATIO: Final = 1.3
#: Below this mean number of rows in a cell, differences are considered random.
MIN_MEAN_ROWS: Final = 100
#: The largest state of a stage that is repartitioned while the query runs, for each task that can
#: run at the same time.
MAX_MOVED_BYTES: Final = 1 << 30

log = logging.getLogger(__name__)

Manifests = Mapping[int, bytes]


def count_loads(stage: Stage, manifests: Manifests) -> list[int]:
    """Count the rows of each cell of a stage, by cell number.

    A row that is stored in several column orders counts once. For a join only the rows of its atoms
    count. A deleted row counts until its runs are merged.
    """
    loads = []
    for cell in sorted(manifests):
        load = 0
        for name, orders in read_cell_manifest(manifests[cell]).traces.items():
            is_counted = not stage.atoms or name.startswith(relation_trace(""))
            if orders and is_counted:
                load += max(sum(run.rows for run in runs) for runs in orders.values())
        loads.append(load)
    return loads


@dataclass
class LoadBalance:
    """Balances the load of the joins of one circuit.

    Attributes:
        changed_rows: For each relation, the number of changed rows since the state was opened.
        examined_rows: For each stage, the number of its rows when it was last examined.
    """

    changed_rows: Counter[str] = field(default_factory=Counter)
    examined_rows: dict[int, int] = field(default_factory=dict)

    def record(self, changed_rows: Mapping[str, int]) -> None:
        """Add the numbers of rows of relations that a micro-batch has changed."""
        self.changed_rows.update(changed_rows)

    def should_rebalance(self, stage: Stage, manifests: Manifests) -> bool:
        """Return whether a join is uneven, and its rows have doubled since it was last examined."""
        if not stage.atoms or len(manifests) < 2:
            return False
        loads = count_loads(stage, manifests)
        rows = sum(loads)
        if rows < max(MIN_MEAN_ROWS * len(loads), 2 * self.examined_rows.get(stage.number, 0)):
            return False
        return max(loads) * len(loads) > MAX_LOAD_RATIO * rows

    def rebalance(
        self, cells: StageCells, grid: Grid, manifests: Manifests, *, max_cells: int, batch_id: int
    ) -> tuple[Grid, dict[int, bytes]]:
        """Repartition a join whose cells are uneven, if another grid is better.

        Args:
            cells: The cells of the stage. If this method fails, the caller removes the files that
                they have written.
            grid: Their grid.
            manifests: The manifest of each cell.
            max_cells: The maximum number of cells.
            batch_id: The next micro-batch, whose commit contains the new grid and cells.

        Returns:
            The new grid and manifests, or the given ones.

        Raises:
            StateError: As `StageCells.repartition`.
        """
        stage = cells.stage
        manifest_of_cell = {cell: read_cell_manifest(manifests[cell]) for cell in sorted(manifests)}
        self.examined_rows[stage.number] = sum(count_loads(stage, manifests))
        size = sum(
            file.size for manifest in manifest_of_cell.values() for file in manifest.files.values()
        )
        limit = MAX_MOVED_BYTES * min(len(manifests), cells.runner.parallelism)
        if size > limit:
            log.warning(
                "the cells of stage %d are uneven, and its %d bytes exceed the limit of %d bytes "
                "for moving rows while the query runs: to balance them, stop the query and run "
                "python -m streaming rescale %s --cells %d",
                stage.number,
                size,
                limit,
                cells.files.location,
                max_cells,
            )
            return grid, dict(manifests)

        def choose_grid(counts: KnownCounts | None) -> Grid:
            new_grid = grid_from_counts(
                stage, max_cells, counts or {}, changed_rows=self.changed_rows
            )
            return grid if new_grid.is_same_placement(grid) else new_grid

        new_grid, new_manifests = cells.repartition(
            grid,
            choose_grid,
            manifests,
            batch_id=batch_id,
            steps=max(manifest.steps for manifest in manifest_of_cell.values()),
        )
        if new_grid == grid:
            return grid, dict(manifests)
        log.info(
            "stage %d was repartitioned to a new grid of %d cells", stage.number, new_grid.cells
        )
        return new_grid, new_manifests
