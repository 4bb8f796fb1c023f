"""Envelope: split the rows of a micro-batch into one table per relation, and dead letters.

A micro-batch is one Arrow table in one of three forms:

1.  the envelope of a change feed or of `streaming.merge`: the columns ``relation``, ``weight``,
    ``sequence``, ``error`` (why the event could not be decoded, else NULL), ``raw`` (the text of
    such an event), and for each relation a struct ``row_<relation>`` with its columns
    (`streaming.sources.change_feeds.feed`);
2.  tagged: a column ``relation``, and the columns of all relations;
3.  flat: the columns of one relation.

The last two may have a column ``weight`` (default 1) and a column ``sequence``, which orders the
rows of a key for inputs with keys. The options of an input may name another column for this order.
If the struct of an envelope has the column that orders the rows, its values are used in place of
the envelope's ``sequence``.

An invalid row becomes a dead letter with the reason (`streaming.sources.dead_letters`), and the
other rows are processed. A row is invalid if

- the feed could not decode its event;
- its relation is NULL or not an input;
- its weight is not an integer of 64 bits;
- it has NULL in a column that must not be NULL;
- a value does not fit the type of its column.

A missing column, or one whose type has no lossless cast, is an error of the whole micro-batch.

For a deletion from an input with keys only the key is checked: any other value that does not fit
becomes NULL. All checks are masks over whole columns, and most run only after the cast of the whole
column has failed. So a micro-batch without bad rows costs little more than the casts that the
circuit needs anyway. Memory: the table, the tables of the relations, and a byte per row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from circuits import SchemaError
from circuits.excerpt import MAX_EXCERPT_CHARACTERS
from circuits.schema import WEIGHT, Schema
from streaming.errors import UntaggedBatchError
from streaming.sources.change_feeds.feed import (
    ERROR,
    RAW,
    RELATION,
    SEQUENCE,
    is_envelope,
    struct_column,
)
from streaming.sources.change_feeds.uncastable_rows import safe_cast
from streaming.sources.change_feeds.weights import parse_weights
from streaming.sources.dead_letters import DeadLetters, rows_as_json

__all__ = ["Changes", "KeyOptions", "decode_batch"]

Mask = npt.NDArray[np.bool_]


class KeyOptions(Protocol):
    """The options of an input that decoding needs: its key columns.

    The options may also have ``sequence``, the column that orders the rows of a key.
    """

    @property
    def keys(self) -> tuple[str, ...]: ...


@dataclass(frozen=True)
class Changes:
    """The changes of a micro-batch: a table per relation, and the invalid rows."""

    tables: Mapping[str, pa.Table]
    dead_letters: DeadLetters

    def __add__(self, other: Changes) -> Changes:
        tables = dict(self.tables)
        for name, table in other.tables.items():
            tables[name] = pa.concat_tables([tables[name], table]) if name in tables else table
        return Changes(tables, self.dead_letters + other.dead_letters)


def decode_batch(
    table: pa.Table,
    inputs: Mapping[str, Schema],
    *,
    relation: str | None = None,
    input_options: Mapping[str, KeyOptions] | None = None,
) -> Changes:
    """Split a micro-batch into its relations.

    Args:
        table: The micro-batch.
        inputs: The inputs of the circuit.
        relation: The input of rows without a tag; not needed if there is one input. If this input
            has a column ``relation``, the column is a value of the row, not a tag.
        input_options: The options of the inputs of the circuit.

    Raises:
        UntaggedBatchError: The rows do not name their relation.
        SchemaError: A column of a relation is missing, or of a type that cannot be cast.

    Complexity:
        O(bytes).

    >>> inputs = {"r": Schema.of("r", pa.schema([("n", pa.int8())]))}
    >>> changes = decode_batch(pa.table({"n": [1, 300], "weight": [1, -1]}), inputs)
    >>> changes.tables["r"].to_pylist()
    [{'n': 1, 'weight': 1}]
    >>> changes.dead_letters.table.select(["row", "reason"]).to_pylist()
    [{'row': '{"n": 300}', 'reason': "column 'n' has a value that is not a valid int8"}]
    """
    options_by_name = (input_options or {}).items()
    keys = {name: tuple(options.keys or ()) for name, options in options_by_name}
    sequences = {name: getattr(options, "sequence", None) for name, options in options_by_name}
    if relation is None and len(inputs) == 1:
        relation = next(iter(inputs))
    names = table.column_names
    if len(set(names)) != len(names):
        raise SchemaError(f"a column name occurs twice in {names}: rename one of them")
    has_envelope = is_envelope(names)
    is_data = relation is not None and RELATION in inputs[relation].arrow_columns.names
    if RELATION not in names or (is_data and not has_envelope):
        if relation is None:
            raise UntaggedBatchError(
                f"the circuit reads {', '.join(inputs)} and the rows have columns {names}: add a "
                f"column {RELATION!r} that names the relation of a row, or name the relation"
            )
        sequence = sequences.get(relation) or SEQUENCE
        rows = _RelationRows(relation, inputs[relation], keys.get(relation, ()), sequence, table)
        valid, letters = rows.split(drop_other_columns=False)
        return Changes({relation: valid}, letters)
    tags = table.column(RELATION)
    if not (types.is_string(tags.type) or types.is_large_string(tags.type)):
        raise UntaggedBatchError(
            f"column {RELATION!r} is of type {tags.type}; it must hold names of relations: "
            f"{', '.join(inputs)}"
        )
    letters = DeadLetters.empty()
    if has_envelope and table.column(ERROR).null_count < table.num_rows:
        failed = table.filter(pc.is_valid(table.column(ERROR)))
        letters += DeadLetters.from_texts(
            _shorten(failed.column(RELATION)),
            failed.column(RAW),
            failed.column(ERROR),
            _dead_letter_weights(failed),
        )
        table = table.filter(pc.is_null(table.column(ERROR)))
        tags = table.column(RELATION)
    is_known = pc.fill_null(pc.is_in(tags, pa.array(list(inputs), tags.type)), False)
    if not pc.all(is_known).as_py() and table.num_rows:
        letters += _unknown_relations(table.filter(pc.invert(is_known)), inputs, has_envelope)
    tables = {}
    all_names = pc.unique(tags).to_pylist()
    for name in all_names:
        if name not in inputs:
            continue
        own_rows = table if len(all_names) == 1 else table.filter(pc.equal(tags, name))
        sequence = sequences.get(name) or SEQUENCE
        if has_envelope:
            own_rows, missing = _expand_rows(own_rows, name, sequence)
            letters += missing
        rows = _RelationRows(name, inputs[name], keys.get(name, ()), sequence, own_rows)
        tables[name], invalid = rows.split(drop_other_columns=True)
        letters += invalid
    return Changes(tables, letters)


def _unknown_relations(
    table: pa.Table, inputs: Mapping[str, Schema], has_envelope: bool
) -> DeadLetters:
    """Return dead letters for the rows whose relation is NULL or not an input."""
    tags = _shorten(table.column(RELATION))
    reasons = pc.fill_null(
        pc.binary_join_element_wise(
            "unknown relation ", tags, f"; inputs are {', '.join(inputs)}", ""
        ),
        f"relation is NULL; inputs are {', '.join(inputs)}",
    )
    added_columns = (RELATION, WEIGHT, SEQUENCE, ERROR, RAW) if has_envelope else (RELATION, WEIGHT)
    columns = [name for name in table.column_names if name not in added_columns]
    return DeadLetters.from_rows(tags, table.select(columns), reasons, _dead_letter_weights(table))


def _expand_rows(table: pa.Table, name: str, sequence: str) -> tuple[pa.Table, DeadLetters]:
    """Return the struct of a relation as columns, and dead letters for rows without the struct."""
    struct = struct_column(name)
    if struct not in table.column_names:
        raise SchemaError(
            f"relation {name!r}: the envelope lacks the column {struct!r}; columns: "
            f"{table.column_names}. An envelope has one struct per relation"
        )
    rows = table.column(struct)
    if not types.is_struct(rows.type):
        raise SchemaError(
            f"relation {name!r}: the column {struct!r} of the envelope is of type {rows.type}, and "
            "must be a struct of the relation's columns"
        )
    letters = DeadLetters.empty()
    if rows.null_count:
        missing = table.filter(pc.is_null(rows))
        letters = DeadLetters.from_texts(
            name,
            pa.nulls(missing.num_rows, pa.string()),
            "the row is missing",
            _dead_letter_weights(missing),
        )
        table = table.filter(pc.is_valid(rows))
        rows = table.column(struct)
    columns: dict[str, Any] = {
        rows.type.field(i).name: pc.struct_field(rows, [i]) for i in range(rows.type.num_fields)
    }
    if sequence not in columns:  # else the relation's own column orders the rows
        columns[sequence] = table.column(SEQUENCE)
    columns[WEIGHT] = table.column(WEIGHT)
    return pa.table(columns), letters


@dataclass(frozen=True)
class _RelationRows:
    """The rows of one relation in a micro-batch.

    Attributes:
        name: The relation.
        schema: Its schema.
        key: Its key columns, if it has keys.
        sequence: The column that orders the rows of a key.
        table: The rows.
    """

    name: str
    schema: Schema
    key: tuple[str, ...]
    sequence: str
    table: pa.Table

    def split(self, *, drop_other_columns: bool) -> tuple[pa.Table, DeadLetters]:
        """Return the valid rows, cast to the types of the relation, and the dead letters.

        Args:
            drop_other_columns: True to drop columns that are not in the schema, because they belong
                to other relations. If they are kept, the circuit rejects them.
        """
        table, size = self.table, self.table.num_rows
        reasons: list[tuple[Mask, str]] = []
        weights, invalid = self._weights()
        if invalid.any():
            reasons.append(
                (invalid, f"column {WEIGHT!r} has a value that is not an integer of 64 bits")
            )
        deleted = weights < 0 if self.key else np.zeros(size, np.bool_)
        columns: dict[str, Any] = {}
        for field in self.schema.fields:
            # Of a deleted key only the key columns are checked.
            is_checked = ~deleted if field.name not in self.key else np.ones(size, np.bool_)
            if field.name not in table.column_names:
                # Only a micro-batch that consists of deleted keys may lack a column.
                if is_checked.any() or not size:
                    raise self._missing_column_error(field.name)
                columns[field.name] = pa.nulls(size, field.type)
                continue
            try:
                column, invalid = safe_cast(table.column(field.name), field.type)
            except SchemaError as error:
                raise SchemaError(
                    f"relation {self.name!r}: column {field.name!r}: {error}"
                ) from error
            if (invalid & is_checked).any():
                reason = f"column {field.name!r} has a value that is not a valid {field.type}"
                reasons.append((invalid & is_checked, reason))
            if (not field.nullable or field.name in self.key) and column.null_count:
                nulls = np.asarray(pc.is_null(column).to_numpy(), np.bool_) & is_checked & ~invalid
                if nulls.any():
                    reasons.append((nulls, f"column {field.name!r} is NULL and must not be"))
            columns[field.name] = column
        if not drop_other_columns:
            for name in table.column_names:
                if name not in columns and name not in (WEIGHT, self.sequence):
                    columns[name] = table.column(name)
        columns[WEIGHT] = pa.array(weights)
        # Without keys nothing reads the sequence: it is dropped or kept like the other columns.
        if self.sequence in table.column_names and (self.key or not drop_other_columns):
            columns.setdefault(self.sequence, table.column(self.sequence))
        rows = pa.table(columns)
        if not reasons:
            return rows, DeadLetters.empty()
        bad = np.logical_or.reduce([mask for mask, _ in reasons])
        return rows.filter(pa.array(~bad)), self._dead_letters(bad, reasons)

    def _dead_letters(self, bad: Mask, reasons: list[tuple[Mask, str]]) -> DeadLetters:
        """Return one dead letter for each bad row, with its first reason."""
        first_reason = np.full(len(bad), -1, np.int64)
        for i in reversed(range(len(reasons))):
            mask, _ = reasons[i]
            first_reason[mask] = i
        reason_texts = pa.array([reason for _, reason in reasons])
        rows = self.table.filter(pa.array(bad))
        columns = [name for name in rows.column_names if name in self.schema.columns]
        return DeadLetters.from_texts(
            self.name,
            rows_as_json(rows.select(columns)),
            pc.take(reason_texts, pa.array(first_reason[bad])),
            _dead_letter_weights(rows),
        )

    def _missing_column_error(self, column: str) -> SchemaError:
        return SchemaError(
            f"relation {self.name!r}: column {column!r} is missing; the rows have "
            f"{self.table.column_names}, the relation has {', '.join(self.schema.columns)} and "
            f"optionally {WEIGHT}"
        )

    def _weights(self) -> tuple[npt.NDArray[np.int64], Mask]:
        """Return the weights, and the mask of the invalid ones."""
        size = self.table.num_rows
        if WEIGHT not in self.table.column_names:
            return np.ones(size, np.int64), np.zeros(size, np.bool_)
        column = self.table.column(WEIGHT)
        numbers = parse_weights(column)
        if numbers is None:
            raise SchemaError(
                f"relation {self.name!r}: column {WEIGHT!r} is of type {column.type}, weights are "
                "integers: cast it"
            )
        return (
            np.asarray(pc.fill_null(numbers, 1).to_numpy(), np.int64),
            np.asarray(numbers.is_null().to_numpy(), np.bool_),
        )


def _shorten(names: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return names of relations, cut to a maximum length, because the stream is untrusted."""
    return pc.utf8_slice_codeunits(names, 0, MAX_EXCERPT_CHARACTERS)


def _dead_letter_weights(table: pa.Table) -> pa.ChunkedArray | None:
    """Return the weights for dead letters: NULL for an invalid weight; None without weights."""
    return parse_weights(table.column(WEIGHT)) if WEIGHT in table.column_names else None
