"""Scanner: find the members of the events of a micro-batch (`dbsp_wcoj.kernels.json.scan`).

An `EventShape` names the members that a feed reads, and the columns of rows. The scanner reads a
column of texts in slices of limited size, so that the result of a slice stays in the cache of the
processor, and its memory does not grow with the micro-batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

from dbsp_wcoj.kernels.json.scan import (
    ENTER,
    MAX_NAME_BYTES,
    MISSING,
    NULL,
    ROW,
    ROW_ARRAY,
    SCALAR,
    STRING,
    hash_names,
    scan_objects,
)

__all__ = ["EventShape", "ScannedEvents", "Scanner", "enter", "row", "row_array", "scalar"]

MAX_EVENTS: Final = 8192  # of a slice
MAX_SLICE_BYTES: Final = 2**25
MAX_EVENT_BYTES: Final = 2**22  # a longer event is refused
MAX_ROWS: Final = 3 * MAX_EVENTS  # of a slice; an event with more rows is refused

Integers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Member:
    """A member that a feed reads: its slot, and what its value is."""

    slot: str
    action: int = SCALAR
    argument: str | int = 0


def scalar(slot: str) -> Member:
    """Return a member of which the value is read."""
    return Member(slot)


def enter(slot: str, context: str) -> Member:
    """Return a member whose value is an object with members of another context."""
    return Member(slot, ENTER, context)


def row(slot: str, role: int) -> Member:
    """Return a member whose value is a row."""
    return Member(slot, ROW, role)


def row_array(slot: str, role: int) -> Member:
    """Return a member whose value is an array of rows."""
    return Member(slot, ROW_ARRAY, role)


@dataclass(frozen=True)
class EventShape:
    """The members that a feed reads.

    Args:
        contexts: The members of each object, by name; the first context is that of the event.
        columns: The number of the column of each name in a row.
        root_role: The role of the whole event, if it is a row, else -1.
    """

    contexts: Mapping[str, Mapping[str, Member]]
    columns: Mapping[str, int]
    root_role: int = -1


@dataclass(frozen=True)
class ScannedEvents:
    """The members of the events of a slice.

    Attributes:
        address: The address of the bytes; ``owner`` keeps them in memory.
        owner: The Arrow array of the events.
        first: The number of the first event in the micro-batch.
        slot_numbers: The number of each slot.
        slots: Kind, start and end of the values: [event, slot, 3].
        rows: Event, role, whether it has a name in another case, and number of columns, by row.
        cells: Kind, start and end of the values of rows: [row, column, 3].
        accepted: Whether each event is accepted.
    """

    address: int
    owner: pa.Array
    first: int
    slot_numbers: Mapping[str, int]
    slots: npt.NDArray[np.int32]
    rows: npt.NDArray[np.int32]
    cells: npt.NDArray[np.int32]
    accepted: Mask

    def __len__(self) -> int:
        return len(self.accepted)

    def kinds(self, slot: str) -> npt.NDArray[np.int32]:
        """Return the kind of the value of each event in a slot."""
        return self.slots[:, self.slot_numbers[slot], 0]

    def is_absent(self, slot: str) -> Mask:
        """Return whether each event lacks a value, or has null."""
        kinds = self.kinds(slot)
        return np.asarray((kinds == MISSING) | (kinds == NULL), np.bool_)

    def is_within(self, slot: str, outer: str) -> Mask:
        """Return whether each event lacks a member, or has it inside the value of an outer slot."""
        kinds, starts, _ = self.slots[:, self.slot_numbers[slot]].T
        _, first, last = self.slots[:, self.slot_numbers[outer]].T
        return np.asarray((kinds == MISSING) | ((first < starts) & (starts < last)), np.bool_)

    def text(self, event: int, slot: str) -> str | None:
        """Return a value of an event as JSON, a string without its quotes; None if absent.

        Raises:
            ValueError: The value is a string with escapes, or not a string.
        """
        kind, start, end = self.slots[event, self.slot_numbers[slot]].tolist()
        if kind in (MISSING, NULL):
            return None
        if kind != STRING:
            raise ValueError
        return self.bytes_at(start, end).decode()

    def json(self, event: int, slot: str) -> bytes | None:
        """Return the JSON of an object or array of an event; None if absent."""
        kind, start, end = self.slots[event, self.slot_numbers[slot]].tolist()
        return None if kind in (MISSING, NULL) else self.bytes_at(start, end)

    def bytes_at(self, start: int, end: int) -> bytes:
        """Return bytes of the events."""
        data = self.owner.buffers()[2]
        begin = self.address - data.address
        return bytes(memoryview(data)[begin + start : begin + end])

    def row_of(self, role: int) -> Integers:
        """Return the row of each event in a role, -1 if there is none; at most one per event."""
        result = np.full(len(self), -1, np.int64)
        numbers = np.flatnonzero(self.rows[:, 1] == role)
        result[self.rows[numbers, 0]] = numbers
        return result


class Scanner:
    """Scans events of one shape. It learns the order of the members of the events."""

    def __init__(self, shape: EventShape) -> None:
        names: list[bytes] = []
        members: list[tuple[int, int, int, int]] = []
        spans = []
        slots: dict[str, int] = {}
        contexts = list(shape.contexts)
        for context in contexts:
            first = len(names)
            for name, member in shape.contexts[context].items():
                slot = slots.setdefault(member.slot, len(slots))
                argument = member.argument
                if isinstance(argument, str):
                    argument = contexts.index(argument)
                names.append(name.encode())
                members.append((slot, member.action, argument, -1))
            spans.append((first, len(names)))
        first = len(names)
        for name, column in shape.columns.items():
            names.append(name.encode())
            members.append((column, SCALAR, 0, -1))
        spans.append((first, len(names)))
        self._slots = slots
        self._column_count = max(shape.columns.values(), default=-1) + 1
        self._root_role = shape.root_role
        self._members = np.array(members, np.int64).reshape(-1, 4)
        self._contexts = np.array(spans, np.int64)
        self._guesses = np.full(len(spans), -1, np.int64)
        self._names, self._ends, self._hashes = _hash_all(names)
        lower_names = {name.lower().encode() for name in shape.columns}
        self._lower_hashes = _hash_all(sorted(lower_names))[2]
        self._rows = np.empty((MAX_ROWS, 4), np.int32)
        self._cells = np.empty((MAX_ROWS, max(self._column_count, 1), 3), np.int32)

    def scan(self, texts: pa.ChunkedArray) -> Iterator[ScannedEvents]:
        """Yield the events of a column of strings or binaries without NULL, slice by slice.

        A slice is valid until the next one is read.
        """
        first = 0
        for chunk in texts.chunks:
            wide = types.is_large_string(chunk.type) or types.is_large_binary(chunk.type)
            _, offset_buffer, data = chunk.buffers()
            if not len(chunk):
                continue
            offset_type = np.int64 if wide else np.int32
            offsets = np.frombuffer(offset_buffer, offset_type)
            offsets = offsets[chunk.offset : chunk.offset + len(chunk) + 1].astype(np.int64)
            address = 0 if data is None else data.address
            done = 0
            while done < len(chunk):
                limit = np.searchsorted(offsets, offsets[done] + MAX_SLICE_BYTES, "right") - 1
                stop = min(max(int(limit), done + 1), done + MAX_EVENTS, len(chunk))
                part = offsets[done : stop + 1] - offsets[done]
                events = self._scan_slice(address + int(offsets[done]), part, chunk, first + done)
                yield events
                done += len(events)
            first += len(chunk)

    def _scan_slice(
        self, address: int, offsets: Integers, owner: pa.Array, first: int
    ) -> ScannedEvents:
        count = len(offsets) - 1
        accepted = np.zeros(count, np.bool_)
        slots = np.empty((count, max(len(self._slots), 1), 3), np.int32)
        row_count = 0
        if count > 1 or offsets[1] <= MAX_EVENT_BYTES:
            count, row_count = scan_objects(
                address,
                offsets,
                0,
                self._names,
                self._ends,
                self._hashes,
                self._lower_hashes,
                self._members,
                self._contexts,
                self._guesses,
                len(self._contexts) - 1,
                self._root_role,
                np.empty(MAX_NAME_BYTES, np.uint8),
                slots,
                self._rows,
                self._cells,
                accepted,
            )
            is_long = np.diff(offsets[: count + 1]) > MAX_EVENT_BYTES
            accepted[:count] &= ~is_long
        return ScannedEvents(
            address,
            owner,
            first,
            self._slots,
            slots[:count],
            self._rows[:row_count],
            self._cells[:row_count],
            accepted[:count],
        )


def _hash_all(names: Sequence[bytes]) -> tuple[Any, Any, Any]:
    """Return the bytes of names, their ends, and their hashes."""
    data = np.frombuffer(bytearray(b"".join(names) + bytes(8)), np.uint8)
    ends = np.cumsum([len(name) for name in names]).astype(np.int64)
    hashes = np.empty(len(names), np.int64)
    hash_names(data, ends, hashes)
    return data, ends, hashes
