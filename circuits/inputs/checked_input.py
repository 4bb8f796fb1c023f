"""CheckedInput: an input with options, from the table of a step to the delta of its relation.

::

    table  --read-->     encoded rows, the watermark after them
           --prepare-->  delta of the relation, rejected rows, the watermark after the step

`read` encodes values; `prepare` works on codes and changes nothing. The options apply in this
order: rows that are late or have no event time are rejected; upserts become deletions and
insertions; deletions that a strict input does not allow are rejected; rows that expire at the new
watermark are deleted, or are not inserted at all. A row is late if it is before the watermark that
the input had before the step, so rows of one step never make each other late.

Invariant: the trace of the relation, which joins share, is the relation before the step, sorted in
each column order that the options need. The watermark is the only other state of the options.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from circuits.errors import InputOptionsError
from circuits.inputs.input_options import InputOptions, Lateness
from circuits.inputs.rejected_rows import (
    LATE,
    MISSING,
    UNTIMED,
    RejectedCodes,
    RejectedRows,
    first_row,
)
from circuits.inputs.retention import EventTimeBound, late_mask
from circuits.inputs.strict_deletes import shortage
from circuits.inputs.upserts import UpsertInput
from circuits.plan.event_time import EventTime
from circuits.plan.expressions import Expression
from circuits.schema import WEIGHT, Schema
from circuits.types.codecs.arrow_buffers import NULL, BoolArray
from circuits.types.codecs.codec import Codec, Codecs, dictionary_columns
from dbsp_wcoj import Relations, Trace, ZSet
from dbsp_wcoj.storage.trace import ColumnOrder
from dbsp_wcoj.zset import Int64Array, consolidated_rows

__all__ = ["CheckedDelta", "CheckedInput", "no_event_time_error"]


@dataclass(frozen=True)
class CheckedDelta:
    """The delta of an input after its options are applied, and the rejected rows.

    Attributes:
        delta: The delta of the relation.
        rejected: The rows that were left out.
        watermark: The watermark after the step; None if there is none yet.
        published: With ``on_expiry="keep"``, the delta as if no row expired: the published results
            are computed from it. None if it equals ``delta``.
    """

    delta: ZSet
    rejected: tuple[RejectedCodes, ...]
    watermark: int | None
    published: ZSet | None = None


class CheckedInput:
    """An input with options.

    Args:
        schema: The columns.
        options: At least one option.
        codecs: The codes of values.
        relations: Contains the relation's trace, which is arranged as the options need.
        groups: Functions of the event time, by which views group (`circuits.inputs.finality`).
        event_time: The event time, if the declaration of the input has an expression for it.

    Raises:
        InputOptionsError: The options do not fit the schema.

    Attributes:
        options: The options.
        reads_rows: True if the options need the rows of the relation, in ``trace``.
        trace: The rows of the relation; only if ``reads_rows``.
        orders: The column orders of ``trace`` that the options need; empty unless ``reads_rows``.
    """

    def __init__(
        self,
        schema: Schema,
        options: InputOptions,
        codecs: Codecs,
        relations: Relations,
        groups: Sequence[Expression] = (),
        event_time: EventTime | None = None,
    ) -> None:
        self.options = options
        self._schema = schema
        self._codecs = codecs
        self._upserts = UpsertInput(schema, options, codecs) if options.keys else None
        self._event_time = None
        if options.time_column is not None:
            self._event_time = EventTimeBound(schema, options, codecs, groups, event_time)
        self.reads_rows = bool(options.keys or options.strict or options.retain)
        self.orders: Sequence[ColumnOrder] = ()
        if not self.reads_rows:
            return
        self.trace: Trace = relations.declare(schema.relation, schema.arity, keep_rows=False)
        orders: list[ColumnOrder] = []
        if self._upserts is not None:
            orders.append(self._upserts.order)
        if self._event_time is not None and self._event_time.has_expiry:
            orders.append(self._event_time.order(self.trace.arity))
        if not orders:  # strict only: weights can be looked up in any order
            orders = list(self.trace.orders[:1]) or [tuple(range(self.trace.arity))]
        for order in orders:
            self.trace.arrange(order)
        self.orders = orders
        relations.add_reader(lambda: {schema.relation: orders})

    @property
    def coded_columns(self) -> dict[int, Codec]:
        """The dictionary-encoded columns of the rows that `read` returns, by index."""
        fields = self._schema.fields
        columns = dictionary_columns([self._codecs.codec(field.type) for field in fields])
        if self._upserts is None:
            return columns
        indices = self._upserts.event_indices
        return {indices[column]: codec for column, codec in columns.items()}

    @property
    def bounded_column(self) -> int | None:
        """The time column, if no later step changes a row whose time is before `frontier`.

        It is None if the time is not among the keys of the input, because an event then deletes the
        row of its key, however old that row is.
        """
        time = self._event_time
        if time is None or time.keeps_results:
            return None
        if self._upserts is not None and time.time_column not in self._upserts.keys:
            return None
        return time.time_column

    @property
    def bounds_computed_time(self) -> bool:
        """True if no later step changes a row whose computed event time is before `frontier`."""
        time = self._event_time
        return time is not None and time.time_column is None and self._upserts is None

    @property
    def reads_only_after_frontier(self) -> bool:
        """True if the options read only rows of the relation that are not before `frontier`."""
        return self.bounded_column is not None and self.options.retain is None

    @property
    def keeps_results(self) -> bool:
        """True if published results stay when their rows expire."""
        return self._event_time is not None and self._event_time.keeps_results

    @property
    def expiry_delay(self) -> int | None:
        """The time between the watermark and the limit of expiry; None if rows do not expire."""
        time = self._event_time
        return time.expiry_delay if time is not None and time.has_expiry else None

    def unexpired(self, rows: ZSet, watermark: int | None) -> ZSet:
        """Return the rows that do not expire at a watermark."""
        time = self._event_time
        if time is None or watermark is None or not time.has_expiry:
            return rows
        expired = late_mask(time.times(rows.row_array), time.expiry_limit(watermark))
        return _select_rows(rows, ~expired)

    def duplicate_keys(self, rows: ZSet) -> int:
        """Return how many rows have the key of another row, or a weight other than 1."""
        if self._upserts is None or not len(rows):
            return 0
        order = list(self._upserts.order)[: len(self.options.keys)]
        keys: int = np.unique(rows.row_array[order], axis=1).shape[1]
        return len(rows) - keys + int((rows.weight_array != 1).sum())

    @property
    def expiry_text(self) -> str:
        """The duration between the watermark and `frontier`, for messages."""
        time = self._event_time
        return "" if time is None else time.expiry_text

    def frontier(self, watermark: int) -> int:
        """Return the time before which no step changes a row any more.

        It is the watermark, or an earlier time if rows are kept longer than they may be late.

        Args:
            watermark: The watermark after a step.
        """
        assert self._event_time is not None
        time = self._event_time
        return time.expiry_limit(watermark) if time.has_expiry else watermark

    def read(self, table: pa.Table) -> tuple[ZSet, int | None]:
        """Encode a table; with keys, as events (`circuits.inputs.upserts`).

        Returns:
            The rows or events, and the watermark after them; None if they have no event time.

        Raises:
            SchemaError: The table does not fit the schema.
            WeightError, WeightOverflowError: A weight, or a sum of them, leaves int64.
        """
        event_time, upserts = self._event_time, self._upserts
        if upserts is not None:
            if event_time is None:
                return upserts.events(table), None
            events = upserts.events(table, event_time.time_column if self.options.strict else None)
            inserted = ~upserts.deletion_mask(events.row_array)
            return events, event_time.watermark_after_all(self._times(events.row_array)[inserted])
        if event_time is None:
            return self._schema.encode_table(table, self._codecs), None
        codes, weights = self._schema.to_codes(table, self._codecs)
        times = event_time.times(codes)
        watermark = event_time.watermark_after_all(times if weights is None else times[weights > 0])
        return ZSet.from_columns(codes, weights), watermark

    def encode_watermark(self, value: Any) -> int:
        """Return the watermark of the input, as a code, for a watermark of its source.

        Raises:
            InputOptionsError: The input has no event time, or the value is of another type.
        """
        if self._event_time is None:
            raise no_event_time_error(self._schema.relation)
        return self._event_time.encode_watermark(value)

    def decode_watermark(self, watermark: int) -> pa.Scalar:
        """Return a watermark, given as a code, as a value of the type of the event time."""
        assert self._event_time is not None
        return self._event_time.decode_time(watermark)

    def prepare(
        self, rows: ZSet | None, watermark: int | None, proposed: int | None
    ) -> CheckedDelta:
        """Compute the delta of the relation; nothing changes.

        Args:
            rows: The rows or events that `read` returned; None for no rows.
            watermark: The watermark before the step; None if there is none yet.
            proposed: The watermark that the rows and the source give. It is ignored if it is
                earlier than ``watermark``.

        Raises:
            UpsertError: Several different changes of a key could be the last.
        """
        rejected: list[RejectedCodes] = []
        changes = ZSet.empty(self._schema.arity)
        if rows is not None and len(rows):
            on_time = self._reject_untimely(rows, watermark, rejected)
            if self._upserts is None:
                changes = self._delta_of_rows(on_time, rejected)
            else:
                changes = self._delta_of_events(
                    self._upserts, on_time.row_array, watermark, rejected
                )
        if self._event_time is None:
            return CheckedDelta(changes, tuple(rejected), None)
        event_time = self._event_time
        new_watermark = max((w for w in (watermark, proposed) if w is not None), default=None)
        if new_watermark is None or new_watermark == watermark:
            return CheckedDelta(changes, tuple(rejected), new_watermark)
        if not event_time.has_expiry:
            return CheckedDelta(changes, tuple(rejected), new_watermark)
        previous_limit = None if watermark is None else event_time.expiry_limit(watermark)
        limit = event_time.expiry_limit(new_watermark)
        delta = _select_rows(changes, ~late_mask(event_time.times(changes.row_array), limit))
        expired = event_time.expired(self.trace, previous_limit, limit)
        if len(expired):
            delta = delta - expired
        # ``delta`` is ``changes`` itself if no row expires.
        published = changes if event_time.keeps_results and delta is not changes else None
        return CheckedDelta(delta, tuple(rejected), new_watermark, published)

    def decode_rejected(self, rejected: RejectedCodes, watermark: int | None) -> RejectedRows:
        """Decode rejected rows, with a message.

        Args:
            rejected: The rows in codes.
            watermark: The watermark before the step.
        """
        fields = [pa.field(f.name, f.type) for f in self._schema.fields]
        table = self._schema.to_table(rejected.rows, self._codecs)
        table = table.cast(pa.schema([*fields, (WEIGHT, pa.int64())]))
        message = self._message(rejected, table, watermark)
        return RejectedRows(rejected.reason, f"input {self._schema.relation!r}: {message}", table)

    def _message(self, rejected: RejectedCodes, table: pa.Table, watermark: int | None) -> str:
        """Return the number of rejected rows, the first of them, and how to fix it."""
        if rejected.reason == MISSING:
            return self._missing_message(rejected, table)
        first = first_row(table.drop_columns([WEIGHT]))
        count = "a row" if len(table) == 1 else f"{len(table)} rows"
        assert self._event_time is not None
        span = self._event_time.span
        if rejected.reason == UNTIMED:
            return f"{count} without the event time {span.column!r}: {first}"
        assert watermark is not None
        fix = "increase the lateness" if isinstance(span, Lateness) else "retain rows longer"
        return (
            f"{count} with {span.column!r} before {self._event_time.format_time(watermark)}, "
            f"the greatest time or watermark of earlier steps minus {span.duration_text}: "
            f"{first}; {fix} to accept later ones"
        )

    def _missing_message(self, rejected: RejectedCodes, table: pa.Table) -> str:
        """Return the message for deletions of rows or keys that do not exist."""
        first = first_row(table.drop_columns([WEIGHT]))
        if self._upserts is not None:
            key = {name: first[name] for name in self.options.keys}
            keys = f"key {key}" if len(table) == 1 else f"{len(table)} keys, the first is {key}"
            message = f"cannot delete {keys}, because the input is strict and has no such row"
            return message if self.options.retain is None else f"{message}, or it has expired"
        existing = int(rejected.existing[0]) if rejected.existing is not None else 0
        shortage_of_first = -int(table.column(WEIGHT)[0].as_py())
        message = (
            f"cannot delete row {first} {existing + shortage_of_first} times, because the input is "
            f"strict and the row's weight is {existing}"
        )
        return message if len(table) == 1 else f"{message} ({len(table)} such rows)"

    def _times(self, rows: Int64Array) -> Int64Array:
        """The event times of rows or events."""
        assert self._event_time is not None
        if self._upserts is None:
            return self._event_time.times(rows)
        column = self._event_time.time_column
        if column is None:
            return self._event_time.times(self._upserts.rows(rows))
        times: Int64Array = rows[self._upserts.event_indices[column]]
        return times

    def _reject_untimely(
        self, rows: ZSet, watermark: int | None, rejected: list[RejectedCodes]
    ) -> ZSet:
        """Return the rows or events with an event time that is not late; reject the others."""
        event_time, upserts = self._event_time, self._upserts
        if event_time is None:
            return rows
        times = self._times(rows.row_array)
        needs_time = np.ones(len(times), np.bool_)
        if upserts is not None and event_time.time_column not in upserts.keys:
            # A deletion by a key without the time needs no time.
            needs_time = ~upserts.deletion_mask(rows.row_array)
        late = late_mask(times, watermark) & needs_time
        untimed = (times == NULL) & needs_time
        for reason, mask in ((LATE, late), (UNTIMED, untimed)):
            if mask.any():
                self._reject(_select_rows(rows, mask), reason, rejected)
        return _select_rows(rows, ~(late | untimed))

    def _reject(self, rows: ZSet, reason: str, rejected: list[RejectedCodes]) -> None:
        """Add rows or events to the rejected ones."""
        upserts = self._upserts
        if upserts is None:
            rejected.append(RejectedCodes(reason, rows))
            return
        # A deletion and an upsert can be of one row; they are different events, and must not
        # cancel. So each kind is a Z-set of its own.
        is_deletion = upserts.deletion_mask(rows.row_array)
        for mask, weight in ((~is_deletion, 1), (is_deletion, -1)):
            if mask.any():
                events = upserts.rows(rows.row_array[:, mask])
                weights = np.full(events.shape[1], weight)
                rejected.append(RejectedCodes(reason, consolidated_rows(events, weights)))

    def _delta_of_rows(self, rows: ZSet, rejected: list[RejectedCodes]) -> ZSet:
        """Return the delta of an input without keys; reject deletions that are not allowed."""
        if not self.options.strict:
            return rows
        missing, existing = shortage(rows, self.trace)
        if not len(missing):
            return rows
        rejected.append(RejectedCodes(MISSING, missing, existing))
        return rows - missing

    def _delta_of_events(
        self,
        upserts: UpsertInput,
        events: Int64Array,
        watermark: int | None,
        rejected: list[RejectedCodes],
    ) -> ZSet:
        """Return the delta of an input with keys; reject deletions that are not allowed."""
        if not events.shape[1]:
            return ZSet.empty(self._schema.arity)
        changes = upserts.changes(events, self.trace)
        if self.options.strict and len(changes.unknown):
            unknown = events[:, changes.unknown]
            late = np.zeros(unknown.shape[1], np.bool_)
            if self._event_time is not None:
                # The row of a late deletion may have expired, so its absence is no error.
                late = late_mask(self._times(unknown), watermark)
            for reason, mask in ((LATE, late), (MISSING, ~late)):
                if mask.any():
                    rows = upserts.rows(unknown[:, mask])
                    rejected.append(
                        RejectedCodes(reason, consolidated_rows(rows, np.full(rows.shape[1], -1)))
                    )
        return changes.rows


def no_event_time_error(relation: str) -> InputOptionsError:
    """Return the error for a watermark of an input without lateness and retention."""
    return InputOptionsError(
        f"input {relation!r} got a watermark but has no retention: give it "
        "InputOptions(retain=Retention(column, '7 days')), or lateness=Lateness(column, "
        "'5 minutes'), or omit the watermark"
    )


def _select_rows(zset: ZSet, mask: BoolArray) -> ZSet:
    """Return the rows of a Z-set that a mask selects."""
    if mask.all():
        return zset
    return ZSet(np.ascontiguousarray(zset.row_array[:, mask]), zset.weight_array[mask])
