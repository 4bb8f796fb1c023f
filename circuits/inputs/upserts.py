"""Upserts: an input with keys, where the last row of each key replaces earlier ones.

::

    R           at most one row per key
    R^Δ         = {new row of k: +1, old row of k: -1  for each key k of the step}

A row with a positive weight, or without a weight, is the new row of its key. A row with a negative
weight deletes the key; of its other columns, only the event time is read, if there is one. The old
row of a key is looked up in the relation itself, arranged by (key, other columns), so a source need
not send before images.

A step may have several changes of one key. The sequence column orders them: the change with the
greatest value is the last one. Equal changes count as one. If several different changes could be
the last, or one of several changes has NULL as its sequence, the step raises an error, because no
answer is right. Sequences order the changes of one step only: a change of a later step wins,
whatever its sequence. So a source must send the changes of a key in order over steps, as a
partition of Kafka and the log of a database do. Alternative considered: keep the sequence of every
key as state. This state would grow without limit, because it must include deleted keys.

The changes of a step are encoded as *events*, the rows of one Z-set. A Z-set is sorted, so events
are in the order of key and sequence::

    key columns | sequence | 1 for a deletion, else 0 | other columns, NULL in a deletion

An example stream of rows ``(key, value, sequence)``; a deletion is ``-(key, sequence)``::

    input     (1, a, 5)    (1, b, 7) (1, c, 6)    -(1, 9)    -(1, 10)
    delta     +(1, a)      -(1, a) +(1, b)        -(1, b)    nothing

NULL in a key is a value like any other here. A sink rejects such rows before, as invalid rows.

Cost: sorting the changes, and O(log N) per key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from circuits.errors import InputOptionsError, SchemaError, UpsertError
from circuits.excerpt import MAX_MESSAGE_CHARACTERS, excerpt
from circuits.inputs.input_options import InputOptions
from circuits.inputs.rejected_rows import first_row
from circuits.plan.nodes import Field
from circuits.schema import Schema
from circuits.types.codecs.arrow_buffers import NULL, BoolArray
from circuits.types.codecs.codec import Codecs
from circuits.types.safe_cast import cast_lossless
from dbsp_wcoj import Trace, ZSet
from dbsp_wcoj.storage.prefix_lookup import prefix_lookup
from dbsp_wcoj.storage.trace import ColumnOrder
from dbsp_wcoj.zset import Int64Array, consolidated_rows

__all__ = ["UpsertChanges", "UpsertInput"]

#: If the option ``sequence`` is not given, a column of this name that the schema does not declare
#: is the sequence. If the schema declares it, it is data.
_DEFAULT_SEQUENCE: Final = "sequence"


@dataclass(frozen=True)
class UpsertChanges:
    """The effect of events on the relation.

    Attributes:
        rows: The old rows of the keys, with weight -1, and the new ones.
        unknown: The positions of events that delete a key that does not exist.
    """

    rows: ZSet
    unknown: Int64Array


class UpsertInput:
    """An input with keys: encodes tables as events, and turns events into deltas of the relation.

    Args:
        schema: The input's columns.
        options: Options with keys.
        codecs: The codes of values.

    Raises:
        InputOptionsError: A key is not a column, or the codes of the sequence have no order.
    """

    def __init__(self, schema: Schema, options: InputOptions, codecs: Codecs) -> None:
        relation, columns = schema.relation, schema.columns
        unknown = [key for key in options.keys if key not in columns]
        if unknown:
            raise InputOptionsError(
                f"input {relation!r}: unknown key column {unknown[0]!r}; columns: "
                f"{', '.join(columns)}"
            )
        self.keys = tuple(columns.index(key) for key in options.keys)
        others = tuple(c for c in range(len(columns)) if c not in self.keys)
        self.order: ColumnOrder = (*self.keys, *others)
        # The position of each column of the schema in an event: after the keys are the sequence and
        # the deletion flag.
        self.event_indices = [0] * len(columns)
        for position, column in enumerate(self.order):
            is_key = position < len(self.keys)
            self.event_indices[column] = position if is_key else position + 2
        self._schema = schema
        self._key_schema = Schema(relation, tuple(schema.fields[key] for key in self.keys))
        self._codecs = codecs
        self._sequence = options.sequence
        if options.sequence is None and _DEFAULT_SEQUENCE not in columns:
            self._sequence = _DEFAULT_SEQUENCE
        if options.sequence in columns:
            field = schema.fields[columns.index(options.sequence)]
            if not codecs.codec(field.type).ordered:
                raise InputOptionsError(
                    f"input {relation!r}: the sequence {options.sequence!r} is of type "
                    f"{field.type}, whose codes have no order; use a number or a time"
                )

    def events(self, table: pa.Table, time_column: int | None = None) -> ZSet:
        """Encode a table as events.

        Args:
            table: The columns of the schema, and optionally a weight and a sequence. Rows with a
                negative weight need the columns of the key only.
            time_column: The position of the event time. It is read from deletions, too, if they
                have it.

        Raises:
            SchemaError: As `Schema.to_zset`, or the sequence has no order.
        """
        schema = self._schema
        schema.check_columns(table, () if self._sequence is None else (self._sequence,))
        weights = schema.weights(table)
        if weights is None or (weights > 0).all():
            return _merge_events([self._encode_upserts(table)])
        encoded_parts = [self._encode_deletions(table.filter(pa.array(weights < 0)), time_column)]
        upserts = table.filter(pa.array(weights > 0))
        if upserts.num_rows:
            encoded_parts.append(self._encode_upserts(upserts))
        return _merge_events(encoded_parts)

    def rows(self, events: Int64Array) -> Int64Array:
        """Return the rows of events, in the columns of the schema."""
        return np.ascontiguousarray(events[self.event_indices])

    def deletion_mask(self, events: Int64Array) -> BoolArray:
        """Return a mask of the events that are deletions."""
        mask: BoolArray = events[len(self.keys) + 1] == 1
        return mask

    def changes(self, events: Int64Array, trace: Trace) -> UpsertChanges:
        """Compute the effect of events on the current relation.

        Args:
            events: Events that `events` returned, or some of them in their order.
            trace: The relation, arranged in ``order``.

        Raises:
            UpsertError: Several different changes of a key could be the last.
        """
        key_count, event_count = len(self.keys), events.shape[1]
        keys, sequence = events[:key_count], events[key_count]
        deleted = self.deletion_mask(events)
        # True for an event with the same key as the previous event.
        same_key = np.append(False, (keys[:, 1:] == keys[:, :-1]).all(axis=0))[:event_count]
        # A group is the events of one key. For each group, the positions of its first and last
        # event; for each event, its group.
        group_starts = np.flatnonzero(~same_key)
        group_ends = np.append(group_starts[1:], event_count)[: len(group_starts)] - 1
        group_of_event = np.cumsum(~same_key) - 1
        if len(group_starts) < event_count:
            self._check_order(
                events, same_key, group_starts[group_of_event], group_ends[group_of_event]
            )
        existing_groups, old_rows = self._look_up(np.ascontiguousarray(keys[:, group_ends]), trace)
        upserts = group_ends[~deleted[group_ends]]
        rows = np.concatenate((old_rows, self.rows(events[:, upserts])), axis=1)
        weights = np.repeat([-1, 1], [len(existing_groups), len(upserts)])
        exists_before_step = np.zeros(len(group_starts), np.bool_)
        exists_before_step[existing_groups] = True
        # True if the key may exist after the previous event: that event is an upsert, or it has the
        # same sequence, so that either of the two may be the first.
        exists_after_previous = np.append(True, ~deleted[:-1])[:event_count]
        if event_count:
            exists_after_previous |= np.append(False, sequence[1:] == sequence[:-1])
        exists = np.where(same_key, exists_after_previous, exists_before_step[group_of_event])
        unknown = np.flatnonzero(deleted & ~exists)
        return UpsertChanges(consolidated_rows(rows, weights), unknown)

    def _check_order(
        self,
        events: Int64Array,
        same_key: BoolArray,
        first_of_key: Int64Array,
        last_of_key: Int64Array,
    ) -> None:
        """Raise an error if several different changes of a key could be the last.

        Args:
            events: The events, sorted by key and sequence.
            same_key: True for an event with the same key as the previous event.
            first_of_key: For each event, the position of the first event with its key.
            last_of_key: For each event, the position of the last event with its key.

        Raises:
            UpsertError: As `changes`.
        """
        key_count = len(self.keys)
        sequence, content = events[key_count], events[key_count + 1 :]
        deleted = self.deletion_mask(events)
        is_same_change = (content[:, 1:] == content[:, :-1]).all(axis=0)
        is_same_change |= deleted[1:] & deleted[:-1]
        # NULL is the least code, so it comes first.
        shares_last_sequence = (sequence[1:] == sequence[last_of_key[1:]]) & (
            sequence[:-1] == sequence[1:]
        )
        is_ambiguous = (
            same_key[1:]
            & ~is_same_change
            & (shares_last_sequence | (sequence[first_of_key[1:]] == NULL))
        )
        if not is_ambiguous.any():
            return
        index = int(is_ambiguous.argmax()) + 1
        key = events[:key_count, index : index + 1]
        values = first_row(self._key_schema.to_table(ZSet(key, np.ones(1, np.int64)), self._codecs))
        del values["weight"]
        changes = int(last_of_key[index] - first_of_key[index]) + 1
        previous = self._format_event(events[:, index - 1 : index])
        event = self._format_event(events[:, index : index + 1])
        name = self._sequence
        if name is None:
            fix = "name the column that orders them, InputOptions(keys=..., sequence=...)"
        else:
            fix = f"give each a different value in a column {name!r}, an integer or a time"
        raise UpsertError(
            f"input {self._schema.relation!r}: {changes} different changes of the key "
            f"{excerpt(values)} in one step, {previous} and {event}, and their order is unknown: "
            f"{fix}, or give one change per key"
        )

    def _format_event(self, event: Int64Array) -> str:
        """Return an event as a text for a message: its row, or a deletion."""
        if self.deletion_mask(event)[0]:
            return "a deletion"
        row = ZSet(self.rows(event), np.ones(1, np.int64))
        values = first_row(self._schema.to_table(row, self._codecs))
        del values["weight"]
        return f"the row {excerpt(values, MAX_MESSAGE_CHARACTERS)}"

    def _look_up(self, keys: Int64Array, trace: Trace) -> tuple[Int64Array, Int64Array]:
        """Look up the existing rows of sorted keys.

        Returns:
            For each existing row, the position of its key in ``keys``; and the rows.
        """
        order = list(self.order)
        if trace.arity == len(keys):  # all columns are keys: look up whole rows
            rows = np.empty_like(keys)
            rows[order] = keys
            weights = trace.weights_of(ZSet(rows, np.ones(keys.shape[1], np.int64)))
            positions = np.flatnonzero(weights)
            return positions, rows[:, positions]
        existing = prefix_lookup(trace, keys, limit=1, order=self.order)
        rows = np.empty((trace.arity, len(existing.prefix_index)), np.int64)
        rows[order] = np.concatenate((keys[:, existing.prefix_index], existing.rows))
        return existing.prefix_index, rows

    def _encode_upserts(self, table: pa.Table) -> Int64Array:
        """Encode rows with a positive weight as events."""
        sequence = self._encode_sequences(table)
        names = [name for name in table.column_names if name in self._schema.columns]
        codes, _ = self._schema.to_codes(table.select(names), self._codecs)
        key_count = len(self.keys)
        ordered = [codes[column] for column in self.order]
        flags = np.zeros(table.num_rows, np.int64)
        return np.array([*ordered[:key_count], sequence, flags, *ordered[key_count:]])

    def _encode_deletions(self, table: pa.Table, time_column: int | None) -> Int64Array:
        """Encode rows with a negative weight as events."""
        sequence = self._encode_sequences(table)
        names = [name for name in table.column_names if name in self._key_schema.columns]
        codes, _ = self._key_schema.to_codes(table.select(names), self._codecs)
        events = np.full((len(self.order) + 2, table.num_rows), NULL)
        events[: len(codes)] = codes
        events[len(codes)] = sequence
        events[len(codes) + 1] = 1
        if time_column is not None and time_column not in self.keys:
            field = self._schema.fields[time_column]
            if field.name in table.column_names:
                schema = Schema(self._schema.relation, (Field(field.name, field.type),))
                (time_codes,), _ = schema.to_codes(table.select([field.name]), self._codecs)
                events[self.event_indices[time_column]] = time_codes
        return events

    def _encode_sequences(self, table: pa.Table) -> Int64Array:
        """Return the sequence of each row in codes; NULL for a row without one."""
        name = self._sequence
        if name is None or name not in table.column_names:
            return np.full(table.num_rows, NULL)
        column = table.column(name)
        relation = self._schema.relation
        try:
            if name in self._schema.columns:
                type = self._schema.fields[self._schema.columns.index(name)].type
                return self._codecs.codec(type).encode(cast_lossless(column, type))
            codec = self._codecs.codec(column.type)
            if codec.ordered:
                return codec.encode(column)
        except SchemaError as error:
            raise SchemaError(f"relation {relation!r}: column {name!r}: {error}") from error
        raise SchemaError(
            f"relation {relation!r}: column {name!r} orders the changes of a key, but codes of its "
            f"type {column.type} have no order: cast it to an integer"
        )


def _merge_events(encoded_parts: list[Int64Array]) -> ZSet:
    """Concatenate events of several tables; sort them, and merge equal ones."""
    rows = np.concatenate(encoded_parts, axis=1)
    distinct = consolidated_rows(rows, np.ones(rows.shape[1], np.int64))
    return ZSet(distinct.row_array, np.ones(len(distinct), np.int64))
