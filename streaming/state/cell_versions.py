"""Cells: the state of a distributed circuit beside that of its driver, in one version's manifest.

Each cell of each stage has a manifest of its own, sealed by the task that wrote its files. They are
kept as they came: tasks compare them byte by byte with what they have in memory. A cell that had no
rows keeps the one it had. How rows found their cells is kept with them, in the words of
`streaming.distributed.planning.grid_layout`, because rows that come later must find the same ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from streaming.state.checksums import count, items, text

__all__ = ["CellVersions"]

MAX_CELLS: Final = 1 << 20


@dataclass(frozen=True)
class CellVersions:
    """The cells of one version.

    Attributes:
        count: How many were asked for.
        layout: How rows find them, as JSON has it.
        manifests: By the numbers of stage and cell.

    >>> cells = CellVersions(2, [], {(0, 1): b"sealed"})
    >>> CellVersions.of(cells.body) == cells
    True
    """

    count: int
    layout: Any
    manifests: Mapping[tuple[int, int], bytes]

    def of_stage(self, number: int) -> dict[int, bytes]:
        """The manifests of the cells of one stage."""
        return {cell: one for (stage, cell), one in self.manifests.items() if stage == number}

    @property
    def body(self) -> dict[str, Any]:
        """All of it as JSON has it."""
        manifests = {f"{s}.{c}": sealed.decode() for (s, c), sealed in self.manifests.items()}
        return {"count": self.count, "layout": self.layout, "manifests": manifests}

    @staticmethod
    def of(body: Mapping[str, Any]) -> CellVersions:
        """What ``body`` says.

        Raises:
            KeyError, TypeError, ValueError: It is of nothing like it.
        """
        manifests = {}
        for name, sealed in items(body["manifests"]):
            stage, cell = (count(int(number)) for number in name.split("."))
            manifests[stage, cell] = text(sealed).encode()
        cells = count(body["count"])
        if not 1 <= cells <= MAX_CELLS:
            raise ValueError(f"{cells} cells, at most {MAX_CELLS} are possible")
        return CellVersions(cells, body["layout"], manifests)
