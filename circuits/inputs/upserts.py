"""Keyed: rows are upserts, the last row of a key is its row.

::

    R           at most one row per key
    R^Δ         = {new row of k: +1, old row of k: -1  for each key k given}

A row with a positive weight, or none, says what the key's row is from now on; one with a negative
weight that the key is gone, and only its key is looked at. What a key was is found in the relation
itself, arranged by (key, others): there is no before-image to be given.

A step may have several changes of one key. A column of sequences says which is the last: the
greatest. Equal changes are one. Where several different ones could be the last, and where one of
several has NULL for a sequence, there is no right answer, so it is an error. Sequences order the
changes of one step only: a change of a later step wins, whatever its sequence, so a source must not
give the changes of a key out of order over steps (a partition of Kafka and a log of a database do
not). Way not taken: the sequence of every key as state, also of those that are gone, for ever.

Changes are one Z-set, an *event* per row, sorted by key and sequence by being one::

    key columns | sequence | 1 if gone else 0 | other columns, NULL where gone

An example stream, rows ``(key, value, sequence)``, a minus for gone::

    given     (1, a, 5)    (1, b, 7) (1, c, 6)    -(1, 9)    -(1, 10)
    delta     +(1, a)      -(1, a) +(1, b)        -(1, b)    nothing

NULL in a key is a value like any other. Cost: sorting the changes, O(log N) per key.
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
from circuits.types.safe_cast import lossless
from dbsp_wcoj import Trace, ZSet
from dbsp_wcoj.storage.prefix_lookup import prefix_lookup
from dbsp_wcoj.storage.trace import ColumnOrder
from dbsp_wcoj.zset import Int64Array, consolidated_rows

__all__ = ["UpsertChanges", "UpsertInput"]

_SEQUENCE: Final = "sequence"


@dataclass(frozen=True)
class UpsertChanges:
    """What some events make of the rows of their keys.

    Attributes:
        rows: The old rows of the keys, with -1, and the new ones.
        unknown: The places of events that delete a key that is not there.
    """

    rows: ZSet
    unknown: Int64Array


class UpsertInput:
    """The keys of an input: upserts to events, events to changes of the relation.

    Args:
        schema: The input's columns.
        rules: With keys.
        codecs: The codes of values.

    Raises:
        InputOptionsError: A key is no column, or the sequence is one that has no order.
    """

    def __init__(self, schema: Schema, rules: InputOptions, codecs: Codecs) -> None:
        relation, columns = schema.relation, schema.columns
        unknown = [key for key in rules.keys if key not in columns]
        if unknown:
            raise InputOptionsError(
                f"input {relation!r}: no column {unknown[0]!r} among {list(columns)}"
            )
        self.keys = tuple(columns.index(key) for key in rules.keys)
        others = tuple(c for c in range(len(columns)) if c not in self.keys)
        self.order: ColumnOrder = (*self.keys, *others)
        # Where each column of the schema stands in an event.
        self.places = [0] * len(columns)
        for place, column in enumerate(self.order):
            self.places[column] = place if place < len(self.keys) else place + 2
        self._schema = schema
        self._deleted = Schema(relation, tuple(schema.fields[key] for key in self.keys))
        self._codecs = codecs
        self._sequence = rules.sequence
        if rules.sequence is None and _SEQUENCE not in columns:
            self._sequence = _SEQUENCE
        if rules.sequence in columns:
            field = schema.fields[columns.index(rules.sequence)]
            if not codecs.codec(field.type).ordered:
                raise InputOptionsError(
                    f"input {relation!r}: the sequence {rules.sequence!r} is of type {field.type}, "
                    "whose codes have no order; take a number or a time"
                )

    def events(self, table: pa.Table, also: int | None = None) -> ZSet:
        """The changes of a table.

        Args:
            table: All columns but for rows of negative weight, which need those of the key; with
                a weight, a sequence, or without.
            also: A column that deletions keep as well, if they have it.

        Raises:
            SchemaError: As `Schema.to_zset`, or the sequence has no order.
        """
        schema = self._schema
        schema.check_columns(table, () if self._sequence is None else (self._sequence,))
        weights = schema.weights(table)
        if weights is None or (weights > 0).all():
            return _events([self._upserts(table)])
        pieces = [self._deletes(table.filter(pa.array(weights < 0)), also)]
        upserts = table.filter(pa.array(weights > 0))
        if upserts.num_rows:
            pieces.append(self._upserts(upserts))
        return _events(pieces)

    def rows(self, events: Int64Array) -> Int64Array:
        """The columns of the schema of some events."""
        return np.ascontiguousarray(events[self.places])

    def gone(self, events: Int64Array) -> BoolArray:
        """Which events are deletions."""
        found: BoolArray = events[len(self.keys) + 1] == 1
        return found

    def changes(self, events: Int64Array, trace: Trace) -> UpsertChanges:
        """What events make of the relation as it is.

        Args:
            events: As `events` gives them, or some of these in their order.
            trace: The relation, arranged in ``order``.

        Raises:
            UpsertError: It is not known which change of a key is the last.
        """
        k, n = len(self.keys), events.shape[1]
        gone = self.gone(events)
        # Whether an event is of the same key as the one before it.
        same = np.concatenate(([False], (events[:k, 1:] == events[:k, :-1]).all(axis=0)))[:n]
        starts = np.flatnonzero(~same)
        last = np.append(starts[1:], n)[: len(starts)] - 1
        group = np.cumsum(~same) - 1
        if len(starts) < n:
            self._check_order(events, same, starts[group], last[group])
        places, old = self._old(np.ascontiguousarray(events[:k, last]), trace)
        new = last[~gone[last]]
        rows = np.concatenate((old, self.rows(events[:, new])), axis=1)
        weights = np.repeat([-1, 1], [len(places), len(new)])
        there = np.zeros(len(starts), np.bool_)
        there[places] = True
        # As each event finds the key, one after the other; equal ones are one.
        before = np.append(True, ~gone[:-1])[:n]
        if n:
            before = before | np.append(False, events[k, 1:] == events[k, :-1])
        unknown = np.flatnonzero(gone & ~np.where(same, before, there[group]))
        return UpsertChanges(consolidated_rows(rows, weights), unknown)

    def _check_order(
        self, events: Int64Array, same: BoolArray, first: Int64Array, last: Int64Array
    ) -> None:
        """Refuse different changes of a key of which each could be the last."""
        k = len(self.keys)
        sequence, gone = events[k], self.gone(events)
        equal = (events[k + 1 :, 1:] == events[k + 1 :, :-1]).all(axis=0) | (gone[1:] & gone[:-1])
        # NULL is the least code, so it comes first.
        tied = (sequence[1:] == sequence[last[1:]]) & (sequence[:-1] == sequence[1:])
        wrong = same[1:] & ~equal & (tied | (sequence[first[1:]] == NULL))
        if not wrong.any():
            return
        place = int(wrong.argmax()) + 1
        key = events[:k, place : place + 1]
        shown = first_row(self._deleted.to_table(ZSet(key, np.ones(1, np.int64)), self._codecs))
        del shown["weight"]
        changes = int(last[place] - first[place]) + 1
        two = " and ".join(self._shown(events[:, at : at + 1]) for at in (place - 1, place))
        name = self._sequence
        if name is None:
            way_out = "name the column that orders them, InputOptions(keys=..., sequence=...)"
        else:
            way_out = f"give each another value in a column {name!r}, an integer or a time"
        raise UpsertError(
            f"input {self._schema.relation!r}: {changes} different changes of the key "
            f"{excerpt(shown)} in one step, {two}, and nothing says which is the last: {way_out}, "
            "or one change per key"
        )

    def _shown(self, event: Int64Array) -> str:
        """One event for a message: the row that it says, or a deletion."""
        if self.gone(event)[0]:
            return "a deletion"
        row = ZSet(self.rows(event), np.ones(1, np.int64))
        shown = first_row(self._schema.to_table(row, self._codecs))
        del shown["weight"]
        return f"the row {excerpt(shown, MAX_MESSAGE_CHARACTERS)}"

    def _old(self, keys: Int64Array, trace: Trace) -> tuple[Int64Array, Int64Array]:
        """The rows of sorted keys in the relation: which key each is of, and its columns."""
        order = list(self.order)
        if trace.arity == len(keys):
            rows = np.empty_like(keys)
            rows[order] = keys
            places = np.flatnonzero(trace.weights_of(ZSet(rows, np.ones(keys.shape[1], np.int64))))
            return places, rows[:, places]
        found = prefix_lookup(trace, keys, limit=1, order=self.order)
        rows = np.empty((trace.arity, len(found.places)), np.int64)
        rows[order] = np.concatenate((keys[:, found.places], found.rows))
        return found.places, rows

    def _upserts(self, table: pa.Table) -> Int64Array:
        """Events of rows that keys have from now on."""
        sequence = self._sequences(table)
        names = [name for name in table.column_names if name in self._schema.columns]
        codes, _ = self._schema.to_codes(table.select(names), self._codecs)
        k = len(self.keys)
        ordered = [codes[column] for column in self.order]
        flags = np.zeros(table.num_rows, np.int64)
        return np.array([*ordered[:k], sequence, flags, *ordered[k:]])

    def _deletes(self, table: pa.Table, also: int | None) -> Int64Array:
        """Events of keys that are gone."""
        sequence = self._sequences(table)
        names = [name for name in table.column_names if name in self._deleted.columns]
        codes, _ = self._deleted.to_codes(table.select(names), self._codecs)
        events = np.full((len(self.order) + 2, table.num_rows), NULL)
        events[: len(codes)] = codes
        events[len(codes)] = sequence
        events[len(codes) + 1] = 1
        if also is not None and also not in self.keys:
            field = self._schema.fields[also]
            if field.name in table.column_names:
                kept = Schema(self._schema.relation, (Field(field.name, field.type),))
                (times,), _ = kept.to_codes(table.select([field.name]), self._codecs)
                events[self.places[also]] = times
        return events

    def _sequences(self, table: pa.Table) -> Int64Array:
        """The sequence of each row, NULL where there is none."""
        name = self._sequence
        if name is None or name not in table.column_names:
            return np.full(table.num_rows, NULL)
        column = table.column(name)
        relation = self._schema.relation
        try:
            if name in self._schema.columns:
                type = self._schema.fields[self._schema.columns.index(name)].type
                return self._codecs.codec(type).encode(lossless(column, type))
            codec = self._codecs.codec(column.type)
            if codec.ordered:
                return codec.encode(column)
        except SchemaError as error:
            raise SchemaError(f"relation {relation!r}: column {name!r}: {error}") from error
        raise SchemaError(
            f"relation {relation!r}: column {name!r} is of type {column.type} and orders the "
            "changes of a key: cast it to an integer"
        )


def _events(pieces: list[Int64Array]) -> ZSet:
    """Events of several tables, sorted; equal ones are one."""
    rows = np.concatenate(pieces, axis=1)
    found = consolidated_rows(rows, np.ones(rows.shape[1], np.int64))
    return ZSet(found.row_array, np.ones(len(found), np.int64))
