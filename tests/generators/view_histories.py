"""Histories of one view for tests of targets: deltas, upserts and whole views, and their oracle.

Rows are tuples of Python values over tiny domains with NULL and NaN. The oracle, a Counter, writes
NaN as the text `NAN`, because NaN is not equal to itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
from hypothesis import strategies as st

from streaming.targets.output_mode import Mode
from streaming.targets.target import NO_BATCH, ViewDelta

NAN = "nan!"
SCHEMA = pa.schema({"k": pa.int64(), "s": pa.string(), "x": pa.float64()})
KEYS = ("k", "s")
ROWS = st.tuples(
    st.sampled_from([None, 1, 2]),
    st.sampled_from([None, "a", ""]),
    st.sampled_from([None, NAN, 0.5]),
)
Row = tuple


@dataclass(frozen=True)
class History:
    """Micro-batches of one mode, and the rows of a target after each, with their numbers."""

    mode: Mode
    deltas: tuple[ViewDelta, ...]
    contents: tuple[Counter, ...]

    @property
    def contents_by_batch(self) -> Counter:
        """All rows of the deltas with their batch ids: the contents of a log at the end."""
        return Counter(
            {(d.batch_id, *row): n for d in self.deltas for row, n in counted(d.table).items()}
        )


def table_of(rows: Iterable[tuple[Row, int]]) -> pa.Table:
    rows = list(rows)
    columns = [
        pa.array([float("nan") if row[i] == NAN else row[i] for row, _ in rows], field.type)
        for i, field in enumerate(SCHEMA)
    ]
    weights = pa.array([weight for _, weight in rows], pa.int64())
    return pa.table([*columns, weights], SCHEMA.append(pa.field("weight", pa.int64())))


def canonical(row: Iterable[object]) -> Row:
    return tuple(NAN if value != value else value for value in row)


def counted(table: pa.Table, weight: str | None = "weight") -> Counter:
    """Count the rows of a table by their weights; without a weight column, each row once."""
    names = [name for name in table.column_names if name != weight]
    counts: Counter = Counter()
    for row in table.to_pylist():
        counts[canonical(row[name] for name in names)] += row[weight] if weight else 1
    return Counter({row: n for row, n in counts.items() if n})


@st.composite
def histories(draw: st.DrawFn, mode: Mode, view: str = "v", state_id: str = "s") -> History:
    bags = draw(st.lists(st.dictionaries(ROWS, st.integers(1, 3), max_size=5), max_size=5))
    if mode == "upsert":  # one row of each key, once
        bags = [{row: 1 for row in {row[:2]: row for row in bag}.values()} for bag in bags]
    before: dict[Row, int] = {}
    deltas, contents = [], []
    previous = draw(st.sampled_from([NO_BATCH, None]))
    for batch_id, after in enumerate(bags):
        changes = {
            row: after.get(row, 0) - before.get(row, 0)
            for row in {**before, **after}
            if after.get(row, 0) != before.get(row, 0)
        }
        if mode == "complete":
            changes = after
        if mode == "upsert":
            present = {row[:2] for row, weight in changes.items() if weight > 0}
            changes = {r: w for r, w in changes.items() if w > 0 or r[:2] not in present}
        keys = KEYS if mode == "upsert" else ()
        table = table_of(changes.items())
        deltas.append(
            ViewDelta(view, batch_id, table, mode, keys, state_id=state_id, previous=previous)
        )
        if table.num_rows:
            previous = batch_id
        contents.append(Counter(after))
        before = after
    return History(mode, tuple(deltas), tuple(contents))
