"""Done: what a version says to those who publish it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from streaming.errors import ReplayError

__all__ = ["VersionSummary"]


@dataclass(frozen=True)
class VersionSummary:
    """A micro-batch that is part of the state.

    Attributes:
        batch_id: The micro-batch.
        outputs: What each view gives out.
        files: The files of it, for Spark, where there are any.
        digests: A checksum of the rows of each input; empty if there is none.
        dead_letters: Dead letters up to this micro-batch.
        sizes: Rows and bytes of each arrangement and table, where they are on disk.
    """

    batch_id: int
    outputs: Mapping[str, pa.Table]
    files: Mapping[str, tuple[str, ...]]
    digests: Mapping[str, int]
    dead_letters: int
    sizes: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def check_same(self, digests: Mapping[str, int]) -> None:
        """Compare the rows of the micro-batch, which came again, with those that were taken.

        Args:
            digests: As the attribute, of the rows that came again.

        Raises:
            ReplayError: They are others.
        """
        for name in {*digests, *self.digests}:
            if digests.get(name, 0) != self.digests.get(name, 0):
                raise ReplayError(
                    f"micro-batch {self.batch_id} came again with other rows of relation "
                    f"{name!r} than those in the state: the source cannot be replayed, or the "
                    "stream before the sink is not deterministic (current time, random numbers, "
                    "files that were replaced). The state is that of the first rows; to begin "
                    "anew delete the state directory and the checkpoint"
                )
