"""Cell versions: the part of a distributed circuit's manifest that describes its cells.

A distributed circuit is divided into stages, and each stage into cells, which run on Spark's
executors (`streaming.distributed`). Each cell has a manifest, written by the task that wrote the
cell's files. The manifests are kept as bytes: an executor that still has the cell in memory loads
nothing if the bytes are the same. A step without rows for a cell leaves its manifest unchanged. The
grid layout (`streaming.distributed.planning.grid_layout`) is kept with the manifests, because later
rows must go to the same cells.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from streaming.state.checksums import parse_count, parse_items, parse_text

__all__ = ["CellVersions"]

MAX_CELLS: Final = 1 << 20


@dataclass(frozen=True)
class CellVersions:
    """The cells of one version.

    Attributes:
        count: The requested number of cells.
        layout: The grid layout, as JSON values.
        manifests: The manifest of each cell, by the numbers of stage and cell.

    >>> cells = CellVersions(2, [], {(0, 1): b"manifest"})
    >>> CellVersions.from_json(cells.to_json()) == cells
    True
    """

    count: int
    layout: Any
    manifests: Mapping[tuple[int, int], bytes]

    def stage_manifests(self, number: int) -> dict[int, bytes]:
        """Return the manifests of the cells of one stage, by the number of the cell."""
        return {
            cell: manifest for (stage, cell), manifest in self.manifests.items() if stage == number
        }

    def to_json(self) -> dict[str, Any]:
        """Return the cells as JSON values."""
        manifests = {
            f"{stage}.{cell}": manifest_bytes.decode()
            for (stage, cell), manifest_bytes in self.manifests.items()
        }
        return {"count": self.count, "layout": self.layout, "manifests": manifests}

    @staticmethod
    def from_json(body: Mapping[str, Any]) -> CellVersions:
        """Read the cells from JSON values.

        Raises:
            KeyError, TypeError, ValueError: A member is missing or has an invalid value.
        """
        manifests = {}
        for name, text in parse_items(body["manifests"]):
            stage, cell = (parse_count(int(number)) for number in name.split("."))
            manifests[stage, cell] = parse_text(text).encode()
        count = parse_count(body["count"])
        if not 1 <= count <= MAX_CELLS:
            raise ValueError(f"{count} cells; a number from 1 to {MAX_CELLS} is possible")
        return CellVersions(count, body["layout"], manifests)
