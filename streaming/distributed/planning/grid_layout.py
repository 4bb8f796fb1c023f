"""GridLayout: the grids of all stages, and their JSON form in a manifest.

A stage is a part of the circuit between two exchanges of rows; its grid assigns rows to cells.
Later rows must reach the cells that hold the earlier rows. Therefore the state stores the grids
that it was created with. The grids that this version of the library would choose are used only for
a new state.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from dbsp_wcoj.cached_property import cached_property
from streaming.distributed.planning.grid import Grid
from streaming.distributed.planning.grid_planning import atoms_of, stage_grid
from streaming.distributed.planning.stages import Stages
from streaming.errors import StateMismatchError

__all__ = ["GridLayout"]


@dataclass(frozen=True)
class GridLayout:
    """The assignment of rows to cells.

    Attributes:
        max_cells: The maximum number of cells of a stage.
        grids: The grid of each stage.
    """

    max_cells: int
    grids: tuple[Grid, ...]

    @staticmethod
    def default(stages: Stages, cells: int) -> GridLayout:
        """Return the layout for relations without statistics.

        Raises:
            StreamingError: ``cells`` is less than 1, or a join has too many variables to search for
                its grid with this number of cells.
        """
        return GridLayout(cells, tuple(stage_grid(stage, cells) for stage in stages.stages))

    @cached_property
    def json_values(self) -> list[Any]:
        """The grids as JSON values."""
        return [grid.to_json() for grid in self.grids]

    @staticmethod
    def of_json(values: Any, stages: Stages, cells: int) -> GridLayout:
        """Return the layout of `json_values`.

        Raises:
            StateMismatchError: The layout belongs to other stages.
        """
        try:
            grids = []
            for stage, grid_values in zip(stages.stages, values, strict=True):
                grid = Grid.of_json(grid_values)
                stored, expected = grid.shares.atoms, atoms_of(stage)
                if stage.view:  # the grid of a view may use only some of its columns
                    expected = tuple(
                        replace(atom, columns={n: atom.columns[n] for n in used.columns})
                        for atom, used in zip(expected, stored, strict=True)
                    )
                if [(atom.relation, atom.columns) for atom in stored] != [
                    (atom.relation, atom.columns) for atom in expected
                ]:
                    raise ValueError(f"stage {stage.number} has other atoms")
                grids.append(grid)
        except (KeyError, TypeError, ValueError) as error:
            raise StateMismatchError(
                f"the cells of the state belong to other stages ({error}): use the version that "
                "wrote it, or delete the state directory together with the checkpoint to start "
                "again"
            ) from error
        return GridLayout(cells, tuple(grids))
