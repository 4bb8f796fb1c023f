"""The oracle of `InputOptions`: applies one event after the other to dicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

Row = tuple[int | None, ...]
#: A row, its weight, and the sequence of the change.
Event = tuple[Row, int, int]


@dataclass
class NaiveInput:
    """The rows of a relation after each step, and the rows that the step rejected."""

    keys: tuple[int, ...] = ()
    strict: bool = False
    time: int | None = None
    duration: int = 0
    #: With lateness, the duration is the lateness: rows expire so much later, or not at all (None).
    lateness: bool = False
    expire_after: int | None = 0
    rows: Counter[Row] = field(default_factory=Counter)
    horizon: int | None = None

    def step(self, events: Sequence[Event], watermark: int | None = None) -> Counter:
        """Apply a step; return the rejected weight by reason and row."""
        refused: Counter = Counter()
        if self.keys:
            self._upsert(events, refused)
        else:
            self._add(events, refused)
        times = [row[self.time] for row, w, _ in events if w > 0 and self.time_of(row)]
        if watermark is not None:  # with lateness, the source has subtracted its own
            times.append(watermark + (self.duration if self.lateness else 0))
        self._expire(times)
        return Counter({what: weight for what, weight in refused.items() if weight})

    def time_of(self, row: Row) -> bool:
        return self.time is not None and row[self.time] is not None

    def _late(self, row: Row) -> bool:
        return self.time_of(row) and self.horizon is not None and row[self.time] < self.horizon

    def _refusal(self, row: Row) -> str | None:
        if self.time is not None and row[self.time] is None:
            return "untimed"
        return "late" if self._late(row) else None

    def _add(self, events: Iterable[Event], refused: Counter) -> None:
        change: Counter[Row] = Counter()
        for row, weight, _ in events:
            change[row] += weight
        for row, weight in change.items():
            reason = self._refusal(row)
            if reason is not None:
                refused[reason, row] += weight
                continue
            if self.strict and weight + self.rows[row] < 0:
                refused["missing", row] += weight + self.rows[row]
                weight = -self.rows[row]
            self.rows[row] += weight

    def _upsert(self, events: Iterable[Event], refused: Counter) -> None:
        current = {self._key(row): row for row in self.rows}
        # Equal changes of equal sequence are one.
        once = dict.fromkeys((sequence, weight < 0, row) for row, weight, sequence in events)
        for _, gone, row in sorted(once, key=lambda change: change[0]):
            # Of a deletion only the key is shown.
            shown = tuple(v if not gone or i in self.keys else None for i, v in enumerate(row))
            key = self._key(row)
            reason = self._refusal(row) if not gone or self.time in self.keys else None
            if reason is not None:
                refused[reason, shown] += -1 if gone else 1
            elif not gone:
                current[key] = row
            elif key in current:
                del current[key]
            elif self.strict and self.time not in self.keys and self._late(row):
                # But for the time, where that says that it is late.
                shown = tuple(row[i] if i == self.time else v for i, v in enumerate(shown))
                refused["late", shown] -= 1
            elif self.strict:
                shown = tuple(row[i] if i == self.time else v for i, v in enumerate(shown))
                refused["missing", shown] -= 1
        self.rows = Counter(dict.fromkeys(current.values(), 1))

    def _key(self, row: Row) -> Row:
        return tuple(row[key] for key in self.keys)

    def _expire(self, times: Sequence[int]) -> None:
        if self.time is None:
            return
        bounds = [time - self.duration for time in times]
        if self.horizon is not None:
            bounds.append(self.horizon)
        self.horizon = max(bounds, default=None)
        kept = {row: w for row, w in self.rows.items() if w and not self._is_expired(row)}
        self.rows = Counter(kept)

    def _is_expired(self, row: Row) -> bool:
        if self.expire_after is None or self.horizon is None or not self.time_of(row):
            return False
        return row[self.time] < self.horizon - self.expire_after
