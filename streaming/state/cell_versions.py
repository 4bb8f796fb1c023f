"""Cell versions: the state of a distributed circuit's cells, in the manifest of one version.

Each cell of each stage has a manifest with a checksum, written by the task that wrote its files.
The manifests are kept as bytes: tasks compare them byte by byte with the version that they have in
memory. A cell without rows keeps its manifest. The grid layout, in the form of
`streaming.distributed.planning.grid_layout`, is kept with them, because later rows must find the
same cells.
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
        """The cells as JSON values."""
        manifests = {
            f"{s}.{c}": manifest_bytes.decode() for (s, c), manifest_bytes in self.manifests.items()
        }
        return {"count": self.count, "layout": self.layout, "manifests": manifests}

    @staticmethod
    def of(body: Mapping[str, Any]) -> CellVersions:
        """Read the cells from JSON values.

        Raises:
            KeyError, TypeError, ValueError: They are not those of cells.
        """
        manifests = {}
        for name, manifest_bytes in parse_items(body["manifests"]):
            stage, cell = (parse_count(int(number)) for number in name.split("."))
            manifests[stage, cell] = parse_text(manifest_bytes).encode()
        cells = parse_count(body["count"])
        if not 1 <= cells <= MAX_CELLS:
            raise ValueError(f"{cells} cells, at most {MAX_CELLS} are possible")
        return CellVersions(cells, body["layout"], manifests)
