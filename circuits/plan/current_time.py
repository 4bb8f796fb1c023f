"""CurrentTime: one row with the time of the step, for ``now()`` outside of comparisons.

``SELECT now(), a FROM t`` is a cross join of ``t`` with this row. If the time of a step is later
than that of the step before, the step changes all rows of such a view: it costs O(rows of ``t``).
So a comparison with ``now()`` is a `circuits.plan.temporal_filter.TemporalFilter` where possible.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

import pyarrow as pa

from circuits.plan.columns import Field, Fields
from circuits.plan.node import LeafNode

__all__ = ["NOW_TYPE", "CurrentTime"]

#: The type of the time of a step: microseconds since 1970 in UTC.
NOW_TYPE: Final = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True)
class CurrentTime(LeafNode):
    """One row: the time of the step."""

    reads_now: ClassVar[bool] = True

    @property
    def fields(self) -> Fields:
        return (Field("now", NOW_TYPE, nullable=False),)

    def key(self) -> tuple[object, ...]:
        return ()

    def label(self) -> str:
        return "the current time"

    def _may_be_null(self, column: int) -> bool:
        return False
