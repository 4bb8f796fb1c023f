"""Layout: the grids of all stages, and the same in the words of a manifest.

Rows that come later must find the cells where the earlier ones are, so the grids that a state was
made with are part of it, and what this version would choose counts only for a new one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from streaming.distributed.planning.grid import Grid
from streaming.distributed.planning.grid_planning import atoms_of, stage_grid
from streaming.distributed.planning.stages import Stages
from streaming.errors import StateMismatchError

__all__ = ["GridLayout"]


@dataclass(frozen=True)
class GridLayout:
    """How rows find their cells.

    Attributes:
        cells: How many a stage may have.
        grids: Of each stage.
    """

    cells: int
    grids: tuple[Grid, ...]

    @staticmethod
    def chosen(stages: Stages, cells: int) -> GridLayout:
        """The grids for relations of which nothing is known.

        Raises:
            StreamingError: ``cells`` is less than 1, or a join has too many variables for them.
        """
        return GridLayout(cells, tuple(stage_grid(stage, cells) for stage in stages.stages))

    @cached_property
    def body(self) -> list[Any]:
        """The grids as JSON has them."""
        return [grid.to_json() for grid in self.grids]

    @staticmethod
    def of(body: Any, stages: Stages, cells: int) -> GridLayout:
        """What ``body`` says.

        Raises:
            StateMismatchError: It is of other stages.
        """
        try:
            grids = []
            for stage, said in zip(stages.stages, body, strict=True):
                grid = Grid.of_json(said)
                found = [(atom.relation, atom.columns) for atom in grid.shares.atoms]
                if found != [(atom.relation, atom.columns) for atom in atoms_of(stage)]:
                    raise ValueError(f"stage {stage.number} has other atoms")
                grids.append(grid)
        except (KeyError, TypeError, ValueError) as error:
            raise StateMismatchError(
                f"the cells of the state are those of other stages ({error}): use the version that "
                "wrote it, or delete the state directory together with the checkpoint to start "
                "again"
            ) from error
        return GridLayout(cells, tuple(grids))
