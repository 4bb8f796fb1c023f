"""CheckedInput: an input with options, from the table of a step to the delta of its relation.

::

    table  --read-->     encoded rows, the watermark after them
           --prepare-->  delta of the relation, rejected rows, the watermark after the step

`read` encodes values; `prepare` works on codes and changes nothing. The options apply in this
order: rows that are late or have no event time are rejected; upserts become deletions and
insertions; deletions that a strict input does not allow are rejected; rows before the new watermark
are deleted, or are not inserted at all. A row is late if it is before the watermark that the input
had before the step, so rows of one step never make each other late.

Invariant: the trace of the relation, which joins share, contains the relation as it was before the
step, arranged in the orders that the options need. Apart from the watermark, the options have no
other state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from circuits.errors import InputOptionsError
from circuits.inputs.input_options import InputOptions
from circuits.inputs.rejected_rows import (
    LATE,
    MISSING,
    UNTIMED,
    RejectedCodes,
    RejectedRows,
    first_row,
)
from circuits.inputs.retention import RetentionBound, late_mask
from circuits.inputs.strict_deletes import shortage
from circuits.inputs.upserts import UpsertInput
from circuits.plan.expressions import Expression
from circuits.schema import WEIGHT, Schema
from circuits.types.codecs.arrow_buffers import NULL, BoolArray
from circuits.types.codecs.codec import Codecs
from dbsp_wcoj import Relations, Trace, ZSet
from dbsp_wcoj.storage.trace import ColumnOrder
from dbsp_wcoj.zset import Int64Array, consolidated_rows

__all__ = ["CheckedDelta", "CheckedInput", "no_retention_error"]


@dataclass(frozen=True)
class CheckedDelta:
    """The delta of an input after its options, and the rejected rows.

    Attributes:
        delta: The delta of the relation.
        rejected: The rows that were left out.
        watermark: The watermark after the step; None if there is none yet.
        published: With ``on_expiry="keep"``, the delta before rows expire: views publish the
            results of this one. None if no row expires.
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
        groups: Functions of the event time that views group by (`circuits.inputs.finality`).

    Raises:
        InputOptionsError: The options do not fit the schema.
    """

    def __init__(
        self,
        schema: Schema,
        options: InputOptions,
        codecs: Codecs,
        relations: Relations,
        groups: Sequence[Expression] = (),
    ) -> None:
        self.options = options
        self._schema = schema
        self._codecs = codecs
        self._keyed = UpsertInput(schema, options, codecs) if options.keys else None
        self._retained = None
        if options.retain is not None:
            self._retained = RetentionBound(schema, options.retain, codecs, groups)
        self.trace: Trace = relations.declare(schema.relation, schema.arity, keep_rows=False)
        orders: list[ColumnOrder] = []
        if self._keyed is not None:
            orders.append(self._keyed.order)
        if self._retained is not None:
            orders.append(self._retained.order(self.trace.arity))
        # Without an order of its own, the input can look up weights in any order.
        orders = orders or list(self.trace.orders[:1]) or [tuple(range(self.trace.arity))]
        for order in orders:
            self.trace.arrange(order)
        relations.add_reader(lambda: {schema.relation: orders})

    def read(self, table: pa.Table) -> tuple[ZSet, int | None]:
        """Encode a table; with keys, as events (`circuits.inputs.upserts`).

        Returns:
            The rows or events, and the watermark after them; None if they have no event time.

        Raises:
            SchemaError: The table does not fit the schema.
            WeightError, WeightOverflowError: A weight, or a sum of them, leaves int64.
        """
        retained, keyed = self._retained, self._keyed
        if keyed is not None:
            also = retained.place if retained is not None and self.options.strict else None
            events = keyed.events(table, also)
            if retained is None:
                return events, None
            inserted = ~keyed.deletion_mask(events.row_array)
            return events, retained.watermark_after_all(self._times(events.row_array)[inserted])
        if retained is None:
            return self._schema.to_zset(table, self._codecs), None
        codes, weights = self._schema.to_codes(table, self._codecs)
        times = codes[retained.place]
        watermark = retained.watermark_after_all(times if weights is None else times[weights > 0])
        return ZSet.from_columns(codes, weights), watermark

    def decode_watermark(self, value: Any) -> int:
        """Return the watermark of the input, in codes, for a watermark of its source.

        Raises:
            InputOptionsError: The input has no retention, or the value is of another type.
        """
        if self._retained is None:
            raise no_retention_error(self._schema.relation)
        return self._retained.decode_watermark(value)

    def prepare(
        self, given: ZSet | None, watermark: int | None, advanced: int | None
    ) -> CheckedDelta:
        """Compute the delta of the relation; nothing changes.

        Args:
            given: The rows or events that `read` returned; None for no rows.
            watermark: The watermark before the step; None if there is none yet.
            advanced: The watermark after the rows and the watermark of the source; it counts if it
                is later.

        Raises:
            UpsertError: Nothing says which change of a key is the last.
        """
        rejected: list[RejectedCodes] = []
        changes = ZSet.empty(self._schema.arity)
        if given is not None and len(given):
            timely = self._reject_untimely(given, watermark, rejected)
            if self._keyed is None:
                changes = self._delta_of_rows(timely, rejected)
            else:
                changes = self._delta_of_events(self._keyed, timely.row_array, watermark, rejected)
        if self._retained is None:
            return CheckedDelta(changes, tuple(rejected), None)
        retained = self._retained
        after = (
            watermark
            if advanced is None
            else advanced
            if watermark is None
            else max(watermark, advanced)
        )
        if after is None or after == watermark:
            return CheckedDelta(changes, tuple(rejected), after)
        before, limit = watermark, after
        if retained.keeps_results:
            before = None if watermark is None else retained.expired_before(watermark)
            limit = retained.expired_before(after)
        delta = _select_rows(changes, ~late_mask(changes.row_array[retained.place], limit))
        expired = retained.expired(self.trace, before, limit)
        if len(expired):
            delta = delta - expired
        published = changes if retained.keeps_results and delta is not changes else None
        return CheckedDelta(delta, tuple(rejected), after, published)

    def decode_rejected(self, rejected: RejectedCodes, watermark: int | None) -> RejectedRows:
        """Decode rejected rows, with a message.

        Args:
            rejected: The rows in codes.
            watermark: The watermark before the step.
        """
        fields = [pa.field(f.name, f.type) for f in self._schema.fields]
        table = self._schema.to_table(rejected.rows, self._codecs)
        table = table.cast(pa.schema([*fields, (WEIGHT, pa.int64())]))
        first = first_row(table)
        asked = int(table.column(WEIGHT)[0].as_py())
        del first[WEIGHT]
        relation, retain = self._schema.relation, self.options.retain
        many = f"{len(table)} rows" if len(table) > 1 else "a row"
        if rejected.reason == MISSING and self._keyed is not None:
            key = {name: first[name] for name in self.options.keys}
            many = f"{len(table)} keys, the first is" if len(table) > 1 else "key"
            message = f"delete {many} {key}, and strict: no row has it"
            message += " (any more)" if retain is not None else ""
        elif rejected.reason == MISSING:
            existing = int(rejected.existing[0]) if rejected.existing is not None else 0
            message = (
                f"row {first} has weight {existing} and is to lose {existing - asked}, and strict"
            )
            message += f" ({len(table)} such rows)" if len(table) > 1 else ""
        elif rejected.reason == UNTIMED:
            assert retain is not None
            message = f"{many} without {retain.column!r}, which says how long to keep it: {first}"
        else:
            assert self._retained is not None and retain is not None and watermark is not None
            message = (
                f"{many} with {retain.column!r} before {self._retained.format_time(watermark)}, "
                f"the greatest time or watermark of earlier steps less {retain.duration_text}: "
                f"{first}; retain longer to take later ones"
            )
        return RejectedRows(rejected.reason, f"input {relation!r}: {message}", table)

    def _times(self, rows: Int64Array) -> Int64Array:
        """The event times of rows or events."""
        assert self._retained is not None
        place = self._retained.place
        times: Int64Array = rows[place if self._keyed is None else self._keyed.places[place]]
        return times

    def _reject_untimely(
        self, given: ZSet, watermark: int | None, rejected: list[RejectedCodes]
    ) -> ZSet:
        """Return the rows or events with an event time that is not late; reject the others."""
        retained, keyed = self._retained, self._keyed
        if retained is None:
            return given
        times = self._times(given.row_array)
        checked = np.ones(len(times), np.bool_)
        if keyed is not None and retained.place not in keyed.keys:
            checked = ~keyed.deletion_mask(given.row_array)  # a deletion is checked by its key only
        expired, untimed = late_mask(times, watermark) & checked, (times == NULL) & checked
        for reason, wrong in ((LATE, expired), (UNTIMED, untimed)):
            if wrong.any():
                self._reject(_select_rows(given, wrong), reason, rejected)
        return _select_rows(given, ~(expired | untimed))

    def _reject(self, rows: ZSet, reason: str, rejected: list[RejectedCodes]) -> None:
        """Add rows or events to the rejected ones."""
        keyed = self._keyed
        if keyed is not None:
            weights = np.where(keyed.deletion_mask(rows.row_array), -1, 1)
            rows = consolidated_rows(keyed.rows(rows.row_array), weights)
        if len(rows):
            rejected.append(RejectedCodes(reason, rows))

    def _delta_of_rows(self, given: ZSet, rejected: list[RejectedCodes]) -> ZSet:
        """Return the delta of an input without keys; reject deletions that are not allowed."""
        if not self.options.strict:
            return given
        short, existing = shortage(given, self.trace)
        if not len(short):
            return given
        rejected.append(RejectedCodes(MISSING, short, existing))
        return given - short

    def _delta_of_events(
        self,
        keyed: UpsertInput,
        events: Int64Array,
        watermark: int | None,
        rejected: list[RejectedCodes],
    ) -> ZSet:
        """Return the delta of an input with keys; reject deletions that are not allowed."""
        if not events.shape[1]:
            return ZSet.empty(self._schema.arity)
        changes = keyed.changes(events, self.trace)
        if self.options.strict and len(changes.unknown):
            unknown = events[:, changes.unknown]
            expired = np.zeros(unknown.shape[1], np.bool_)
            if self._retained is not None:
                expired = late_mask(self._times(unknown), watermark)
            for reason, wrong in ((LATE, expired), (MISSING, ~expired)):
                if wrong.any():
                    rows = keyed.rows(unknown[:, wrong])
                    rejected.append(
                        RejectedCodes(reason, consolidated_rows(rows, np.full(rows.shape[1], -1)))
                    )
        return changes.rows


def no_retention_error(relation: str) -> InputOptionsError:
    """Return the error for a watermark of an input without retention."""
    return InputOptionsError(
        f"input {relation!r}: a watermark, and its rows are kept for ever: give it "
        "InputOptions(retain=Retention(column, '7 days')), or no watermark"
    )


def _select_rows(zset: ZSet, which: BoolArray) -> ZSet:
    """Return the rows of a Z-set that a mask selects."""
    if which.all():
        return zset
    return ZSet(np.ascontiguousarray(zset.row_array[:, which]), zset.weight_array[which])
