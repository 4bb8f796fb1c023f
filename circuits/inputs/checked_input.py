"""Ruled: an input with rules, from the table of a step to the delta of its relation.

::

    table  --read-->  rows given, the horizon they move to
           --prepare-->  delta of the relation, what was refused, the horizon after the step

`read` is the edge, where values get codes; `prepare` works on codes and changes nothing. The rules
go one after the other: rows that are late or have no time are refused; upserts become changes;
what a strict input cannot lose is refused; rows before the new horizon leave or do not come.
Late is what is before the horizon that there was before the step: rows of one step never make each
other late.

Invariant: the relation's trace, which joins share, holds the relation as it was before the step,
arranged in the orders that the rules ask for. It is all their state but the horizon.
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
from circuits.inputs.retention import RetentionBound, late
from circuits.inputs.strict_deletes import shortage
from circuits.inputs.upserts import UpsertInput
from circuits.plan.expressions import Expression
from circuits.schema import WEIGHT, Schema
from circuits.types.codecs.arrow_buffers import NULL, BoolArray
from circuits.types.codecs.codec import Codecs
from dbsp_wcoj import Relations, Trace, ZSet
from dbsp_wcoj.storage.trace import ColumnOrder
from dbsp_wcoj.zset import Int64Array, consolidated_rows

__all__ = ["CheckedDelta", "CheckedInput", "unretained"]


@dataclass(frozen=True)
class CheckedDelta:
    """The result of an input's rules: the change of the relation, and the rejected rows.

    Attributes:
        delta: The change of the relation.
        refused: Rows that were not taken.
        horizon: That after the step; None if there is none yet.
        published: With ``on_expiry="keep"``, the change before rows expire, of which views publish
            their results; None where no row expires.
    """

    delta: ZSet
    refused: tuple[RejectedCodes, ...]
    horizon: int | None
    published: ZSet | None = None


class CheckedInput:
    """An input with rules.

    Args:
        schema: The columns.
        rules: At least one rule.
        codecs: The codes of values.
        relations: Where the relation's trace is; it is arranged as the rules need.
        groups: Functions of the event time that views group by (`circuits.inputs.finality`).

    Raises:
        InputOptionsError: The rules do not go with the schema.
    """

    def __init__(
        self,
        schema: Schema,
        rules: InputOptions,
        codecs: Codecs,
        relations: Relations,
        groups: Sequence[Expression] = (),
    ) -> None:
        self.options = rules
        self._schema = schema
        self._codecs = codecs
        self._keyed = UpsertInput(schema, rules, codecs) if rules.keys else None
        self._retained = None
        if rules.retain is not None:
            self._retained = RetentionBound(schema, rules.retain, codecs, groups)
        self.trace: Trace = relations.declare(schema.relation, schema.arity, keep_rows=False)
        orders: list[ColumnOrder] = []
        if self._keyed is not None:
            orders.append(self._keyed.order)
        if self._retained is not None:
            orders.append(self._retained.order(self.trace.arity))
        # Weights are found in any order.
        orders = orders or list(self.trace.orders[:1]) or [tuple(range(self.trace.arity))]
        for order in orders:
            self.trace.arrange(order)
        relations.add_reader(lambda: {schema.relation: orders})

    def read(self, table: pa.Table) -> tuple[ZSet, int | None]:
        """The rows of a table, or their events, and the horizon that they move to.

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
            inserted = ~keyed.gone(events.row_array)
            return events, retained.bound_of(self._times(events.row_array)[inserted])
        if retained is None:
            return self._schema.to_zset(table, self._codecs), None
        codes, weights = self._schema.to_codes(table, self._codecs)
        times = codes[retained.place]
        horizon = retained.bound_of(times if weights is None else times[weights > 0])
        return ZSet.from_columns(codes, weights), horizon

    def watermark(self, value: Any) -> int:
        """The horizon that a watermark moves to.

        Raises:
            InputOptionsError: Rows of this input are kept for ever, or the value is of another
            type.
        """
        if self._retained is None:
            raise unretained(self._schema.relation)
        return self._retained.watermark(value)

    def prepare(self, given: ZSet | None, horizon: int | None, moved: int | None) -> CheckedDelta:
        """What a step makes of the relation; nothing changes.

        Args:
            given: As `read` gives it; None for no rows.
            horizon: The horizon before the step, None if there is none yet.
            moved: The horizon that rows and watermark move to, if it is later.

        Raises:
            UpsertError: It is not known which change of a key is the last.
        """
        refused: list[RejectedCodes] = []
        changes = ZSet.empty(self._schema.arity)
        if given is not None and len(given):
            timely = self._timely(given, horizon, refused)
            if self._keyed is None:
                changes = self._weighted(timely, refused)
            else:
                changes = self._upserted(self._keyed, timely.row_array, horizon, refused)
        if self._retained is None:
            return CheckedDelta(changes, tuple(refused), None)
        retained = self._retained
        after = horizon if moved is None else moved if horizon is None else max(horizon, moved)
        if after is None or after == horizon:
            return CheckedDelta(changes, tuple(refused), after)
        before, limit = horizon, after
        if retained.keeps:
            before = None if horizon is None else retained.expired_before(horizon)
            limit = retained.expired_before(after)
        delta = _kept(changes, ~late(changes.row_array[retained.place], limit))
        expired = retained.expired(self.trace, before, limit)
        if len(expired):
            delta = delta - expired
        published = changes if retained.keeps and delta is not changes else None
        return CheckedDelta(delta, tuple(refused), after, published)

    def told(self, refused: RejectedCodes, horizon: int | None) -> RejectedRows:
        """What was refused, for those who gave it.

        Args:
            refused: In codes.
            horizon: The horizon before the step.
        """
        fields = [pa.field(f.name, f.type) for f in self._schema.fields]
        table = self._schema.to_table(refused.rows, self._codecs)
        table = table.cast(pa.schema([*fields, (WEIGHT, pa.int64())]))
        first = first_row(table)
        asked = int(table.column(WEIGHT)[0].as_py())
        del first[WEIGHT]
        relation, retain = self._schema.relation, self.options.retain
        many = f"{len(table)} rows" if len(table) > 1 else "a row"
        if refused.reason == MISSING and self._keyed is not None:
            key = {name: first[name] for name in self.options.keys}
            many = f"{len(table)} keys, the first is" if len(table) > 1 else "key"
            message = f"delete {many} {key}, and strict: no row has it"
            message += " (any more)" if retain is not None else ""
        elif refused.reason == MISSING:
            had = int(refused.had[0]) if refused.had is not None else 0
            message = f"row {first} has weight {had} and is to lose {had - asked}, and strict"
            message += f" ({len(table)} such rows)" if len(table) > 1 else ""
        elif refused.reason == UNTIMED:
            assert retain is not None
            message = f"{many} without {retain.column!r}, which says how long to keep it: {first}"
        else:
            assert self._retained is not None and retain is not None and horizon is not None
            message = (
                f"{many} with {retain.column!r} before {self._retained.shown(horizon)}, the "
                f"greatest time or watermark of earlier steps less {retain.shown}: {first}; retain "
                "longer to take later ones"
            )
        return RejectedRows(refused.reason, f"input {relation!r}: {message}", table)

    def _times(self, rows: Int64Array) -> Int64Array:
        """The times of rows or events."""
        assert self._retained is not None
        place = self._retained.place
        times: Int64Array = rows[place if self._keyed is None else self._keyed.places[place]]
        return times

    def _timely(self, given: ZSet, horizon: int | None, refused: list[RejectedCodes]) -> ZSet:
        """The rows or events that are neither late nor without time."""
        retained, keyed = self._retained, self._keyed
        if retained is None:
            return given
        times = self._times(given.row_array)
        judged = np.ones(len(times), np.bool_)
        if keyed is not None and retained.place not in keyed.keys:
            judged = ~keyed.gone(given.row_array)  # only the key of a deletion is looked at
        expired, untimed = late(times, horizon) & judged, (times == NULL) & judged
        for reason, wrong in ((LATE, expired), (UNTIMED, untimed)):
            if wrong.any():
                self._refuse(_kept(given, wrong), reason, refused)
        return _kept(given, ~(expired | untimed))

    def _refuse(self, rows: ZSet, reason: str, refused: list[RejectedCodes]) -> None:
        """Put rows or events aside."""
        keyed = self._keyed
        if keyed is not None:
            weights = np.where(keyed.gone(rows.row_array), -1, 1)
            rows = consolidated_rows(keyed.rows(rows.row_array), weights)
        if len(rows):
            refused.append(RejectedCodes(reason, rows))

    def _weighted(self, given: ZSet, refused: list[RejectedCodes]) -> ZSet:
        """The rows that a Z-set gets or loses."""
        if not self.options.strict:
            return given
        short, had = shortage(given, self.trace)
        if not len(short):
            return given
        refused.append(RejectedCodes(MISSING, short, had))
        return given - short

    def _upserted(
        self,
        keyed: UpsertInput,
        events: Int64Array,
        horizon: int | None,
        refused: list[RejectedCodes],
    ) -> ZSet:
        """The rows that keys get or lose."""
        if not events.shape[1]:
            return ZSet.empty(self._schema.arity)
        changes = keyed.changes(events, self.trace)
        if self.options.strict and len(changes.unknown):
            unknown = events[:, changes.unknown]
            expired = np.zeros(unknown.shape[1], np.bool_)
            if self._retained is not None:
                expired = late(self._times(unknown), horizon)
            for reason, wrong in ((LATE, expired), (MISSING, ~expired)):
                if wrong.any():
                    rows = keyed.rows(unknown[:, wrong])
                    refused.append(
                        RejectedCodes(reason, consolidated_rows(rows, np.full(rows.shape[1], -1)))
                    )
        return changes.rows


def unretained(relation: str) -> InputOptionsError:
    """The error for a watermark of an input whose rows are kept for ever."""
    return InputOptionsError(
        f"input {relation!r}: a watermark, and its rows are kept for ever: give it "
        "InputOptions(retain=Retention(column, '7 days')), or no watermark"
    )


def _kept(zset: ZSet, which: BoolArray) -> ZSet:
    """Some rows of a Z-set."""
    if which.all():
        return zset
    return ZSet(np.ascontiguousarray(zset.row_array[:, which]), zset.weight_array[which])
