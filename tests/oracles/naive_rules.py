"""The oracle of `InputOptions`: applies the changes one by one to a dict of rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

Row = tuple[int | None, ...]
#: A row, its weight, and the sequence of the change.
Event = tuple[Row, int, int]


@dataclass
class NaiveInput:
    """The rows of a relation after each step, and the rows that the step rejected.

    Attributes:
        keys: The columns of the key; empty without one.
        strict: True if deletions of rows that do not exist are rejected.
        time: The column of the event time, if rows expire.
        duration: The duration of a retention, or the lateness.
        has_lateness: True if ``duration`` is a lateness.
        expire_after: With a lateness, a row expires when it is older than the watermark by more
            than this; None: never.
        rows: The current rows.
        watermark: The latest time minus the duration; older rows are late.
    """

    keys: tuple[int, ...] = ()
    strict: bool = False
    time: int | None = None
    duration: int = 0
    has_lateness: bool = False
    expire_after: int | None = 0
    rows: Counter[Row] = field(default_factory=Counter)
    watermark: int | None = None

    def step(self, events: Sequence[Event], source_watermark: int | None = None) -> Counter:
        """Apply a step; return the rejected weight by reason and row."""
        rejected: Counter = Counter()
        if self.keys:
            self._upsert(events, rejected)
        else:
            self._add(events, rejected)
        times = [row[self.time] for row, w, _ in events if w > 0 and self._is_timed(row)]
        if source_watermark is not None:
            # It is an event time minus the lateness.
            times.append(source_watermark + (self.duration if self.has_lateness else 0))
        self._expire(times)
        return Counter({key: weight for key, weight in rejected.items() if weight})

    def _is_timed(self, row: Row) -> bool:
        return self.time is not None and row[self.time] is not None

    def _is_late(self, row: Row) -> bool:
        return (
            self._is_timed(row) and self.watermark is not None and row[self.time] < self.watermark
        )

    def _rejection_reason(self, row: Row) -> str | None:
        if self.time is not None and row[self.time] is None:
            return "untimed"
        return "late" if self._is_late(row) else None

    def _add(self, events: Iterable[Event], rejected: Counter) -> None:
        change: Counter[Row] = Counter()
        for row, weight, _ in events:
            change[row] += weight
        for row, weight in change.items():
            reason = self._rejection_reason(row)
            if reason is not None:
                rejected[reason, row] += weight
                continue
            if self.strict and weight + self.rows[row] < 0:
                rejected["missing", row] += weight + self.rows[row]
                weight = -self.rows[row]
            self.rows[row] += weight

    def _upsert(self, events: Iterable[Event], rejected: Counter) -> None:
        current = {self._key(row): row for row in self.rows}
        # Equal changes with the same sequence count once.
        distinct = dict.fromkeys((sequence, weight < 0, row) for row, weight, sequence in events)
        for _, is_delete, row in sorted(distinct, key=lambda change: change[0]):
            # A rejected deletion is reported with its key only.
            reported = tuple(
                v if not is_delete or i in self.keys else None for i, v in enumerate(row)
            )
            key = self._key(row)
            reason = (
                self._rejection_reason(row) if not is_delete or self.time in self.keys else None
            )
            if reason is not None:
                rejected[reason, reported] += -1 if is_delete else 1
            elif not is_delete:
                current[key] = row
            elif key in current:
                del current[key]
            elif self.strict and self.time not in self.keys and self._is_late(row):
                # It is also reported with its time, which is why it is late.
                reported = tuple(row[i] if i == self.time else v for i, v in enumerate(reported))
                rejected["late", reported] -= 1
            elif self.strict:
                reported = tuple(row[i] if i == self.time else v for i, v in enumerate(reported))
                rejected["missing", reported] -= 1
        self.rows = Counter(dict.fromkeys(current.values(), 1))

    def _key(self, row: Row) -> Row:
        return tuple(row[key] for key in self.keys)

    def _expire(self, times: Sequence[int]) -> None:
        if self.time is None:
            return
        bounds = [time - self.duration for time in times]
        if self.watermark is not None:
            bounds.append(self.watermark)
        self.watermark = max(bounds, default=None)
        kept = {row: w for row, w in self.rows.items() if w and not self._is_expired(row)}
        self.rows = Counter(kept)

    def _is_expired(self, row: Row) -> bool:
        if self.expire_after is None or self.watermark is None or not self._is_timed(row):
            return False
        return row[self.time] < self.watermark - self.expire_after
