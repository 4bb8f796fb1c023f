"""Done: what a version says to those who publish it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

__all__ = ["Done"]


@dataclass(frozen=True)
class Done:
    """A micro-batch that is part of the state.

    Attributes:
        batch_id: The micro-batch.
        outputs: What each view gives out.
        files: The files of it, for Spark, where there are any.
        digests: A checksum of the rows of each input; empty if there is none.
        letters: Dead letters up to this micro-batch.
        sizes: Rows and bytes of each arrangement and table, where they are on disk.
    """

    batch_id: int
    outputs: Mapping[str, pa.Table]
    files: Mapping[str, tuple[str, ...]]
    digests: Mapping[str, int]
    letters: int
    sizes: Mapping[str, tuple[int, int]] = field(default_factory=dict)
