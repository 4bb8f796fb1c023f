"""Layout: the grids of all stages, and the same in the words of a manifest.

Rows that come later must find the cells where the earlier ones are, so the grids that a state was
made with are part of it, and what this version would choose counts only for a new one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from streaming.errors import StateMismatchError
from streaming.hypercube.grid import Grid
from streaming.hypercube.shares import Atom, Shares, shares_of
from streaming.hypercube.stages import Stage, Stages

__all__ = ["Layout", "atoms_of"]


@dataclass(frozen=True)
class Layout:
    """How rows find their cells.

    Attributes:
        cells: How many a stage may have.
        grids: Of each stage.
    """

    cells: int
    grids: tuple[Grid, ...]

    @staticmethod
    def chosen(stages: Stages, cells: int) -> Layout:
        """The grids with the least load.

        Raises:
            StreamingError: ``cells`` is less than 1, or a join has too many variables for them.
        """
        grids = [Grid(shares_of(atoms_of(stage), cells)) for stage in stages.stages]
        return Layout(cells, tuple(grids))

    @property
    def body(self) -> list[Any]:
        """The grids as JSON has them."""
        return [{"parts": dict(grid.shares.parts)} for grid in self.grids]

    @staticmethod
    def of(body: Any, stages: Stages, cells: int) -> Layout:
        """What ``body`` says.

        Raises:
            StateMismatchError: It is of other stages.
        """
        try:
            grids = []
            for stage, said in zip(stages.stages, body, strict=True):
                atoms = atoms_of(stage)
                known = {name for atom in atoms for name in atom.columns}
                if known != said["parts"].keys():
                    raise ValueError(f"stage {stage.number} has variables {sorted(known)}")
                grids.append(Grid(Shares(tuple(atoms), said["parts"])))
        except (KeyError, TypeError, ValueError) as error:
            raise StateMismatchError(
                f"the cells of the state are those of other stages ({error}): use the version that "
                "wrote it, or delete the state directory together with the checkpoint to begin anew"
            ) from error
        return Layout(cells, tuple(grids))


def atoms_of(stage: Stage) -> tuple[Atom, ...]:
    """What makes rows meet in a stage: a join's atoms, or the keys that rows are grouped by."""
    if stage.atoms:
        return stage.atoms
    (relation,) = stage.relations
    assert relation.keys is not None
    return (Atom(relation.name, {f"k{key}": key for key in relation.keys}),)
