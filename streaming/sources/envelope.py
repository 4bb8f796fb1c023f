"""Envelope: split the rows of a micro-batch into one table per relation and dead letters.

A micro-batch arrives as one Arrow table in one of three forms:

1.  the envelope of a change feed or of `streaming.merge` (`streaming.sources.change_feeds.feed`);
2.  tagged: a column ``relation`` and the columns of all relations side by side;
3.  flat: the columns of one relation.

The last two may have a column ``weight`` (default 1) and a column ``sequence``, which orders the
rows of a key for inputs with keys. An invalid row becomes a dead letter with the reason
(`streaming.sources.dead_letters`); the other rows continue. A row is invalid if the feed could not
decode its event; if its relation is NULL or not an input; if its weight is not an integer of 64
bits; if it is NULL where the input forbids it; if a value does not fit the type of its column. An
invalid column is an error of the whole micro-batch: the column is missing, or its type has no
lossless cast.

Of a deletion from an input with keys only the key is checked: any other value that does not fit
becomes NULL. All checks are masks over whole columns, and most run only after the cast of the whole
column has failed, so a micro-batch without bad rows costs little more than the casts that the
circuit needs anyway. Memory: the table, its parts, and a byte per row.
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
from streaming.sources.dead_letters import DeadLetters, rows_as_json

__all__ = ["Changes", "Keyed", "decode_batch"]

Mask = npt.NDArray[np.bool_]


class Keyed(Protocol):
    """The part of the options of an input that decoding needs: its key columns.

    The options may name a ``sequence``, the column that orders the rows of a key.
    """

    @property
    def keys(self) -> tuple[str, ...]: ...


@dataclass(frozen=True)
class Changes:
    """The changes of a micro-batch: a table per relation, and the invalid rows."""

    tables: Mapping[str, pa.Table]
    dead_letters: DeadLetters


def decode_batch(
    table: pa.Table,
    inputs: Mapping[str, Schema],
    *,
    relation: str | None = None,
    input_options: Mapping[str, Keyed] | None = None,
) -> Changes:
    """Split a micro-batch into its relations.

    Args:
        table: The micro-batch.
        inputs: The inputs of the circuit.
        relation: The input of rows without a tag; not needed if there is one input.
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
    [{'row': '{"n": 300}', 'reason': "column 'n' holds a value that is no int8"}]
    """
    keys = {name: tuple(rule.keys or ()) for name, rule in (input_options or {}).items()}
    orders = {name: getattr(rule, "sequence", None) for name, rule in (input_options or {}).items()}
    if relation is None and len(inputs) == 1:
        relation = next(iter(inputs))
    names = table.column_names
    if len(set(names)) != len(names):
        raise SchemaError(f"a column name occurs twice in {names}: rename one of them")
    if RELATION not in names:
        if relation is None:
            raise UntaggedBatchError(
                f"the circuit reads {', '.join(inputs)} and the rows have columns {names}: add a "
                f"column {RELATION!r} that names the relation of a row, or name the relation"
            )
        order = orders.get(relation) or SEQUENCE
        part = _Part(relation, inputs[relation], keys.get(relation, ()), order, table)
        tables, letters = part.split(drop=False)
        return Changes({relation: tables}, letters)
    tags = table.column(RELATION)
    if not (types.is_string(tags.type) or types.is_large_string(tags.type)):
        raise UntaggedBatchError(
            f"column {RELATION!r} is of type {tags.type}; it must hold names of relations: "
            f"{', '.join(inputs)}"
        )
    enveloped = is_envelope(names)
    letters = DeadLetters.empty()
    if enveloped and table.column(ERROR).null_count < table.num_rows:
        failed = table.filter(pc.is_valid(table.column(ERROR)))
        letters += DeadLetters.from_texts(
            _shorten(failed.column(RELATION)),
            failed.column(RAW),
            failed.column(ERROR),
            _plain_weights(failed),
        )
        table = table.filter(pc.is_null(table.column(ERROR)))
        tags = table.column(RELATION)
    known = pc.fill_null(pc.is_in(tags, pa.array(list(inputs), tags.type)), False)
    if not pc.all(known).as_py() and table.num_rows:
        letters += _unknown_relations(table.filter(pc.invert(known)), inputs, enveloped)
    found = {}
    for name in pc.unique(tags).to_pylist():
        if name not in inputs:
            continue
        mine = table.filter(pc.equal(tags, name))
        order = orders.get(name) or SEQUENCE
        if enveloped:
            mine, empty = _expand_rows(mine, name, order)
            letters += empty
        part = _Part(name, inputs[name], keys.get(name, ()), order, mine)
        found[name], rejected = part.split(drop=True)
        letters += rejected
    return Changes(found, letters)


def _unknown_relations(
    table: pa.Table, inputs: Mapping[str, Schema], enveloped: bool
) -> DeadLetters:
    """Return dead letters for the rows whose relation is NULL or not an input."""
    tags = _shorten(table.column(RELATION))
    known = f" is no input; inputs are {', '.join(inputs)}"
    reasons = pc.fill_null(
        pc.binary_join_element_wise("relation ", tags, known, ""),
        f"relation is NULL; inputs are {', '.join(inputs)}",
    )
    rest = [name for name in table.column_names if name not in (RELATION, WEIGHT)]
    if enveloped:
        rest = [name for name in rest if name not in (SEQUENCE, ERROR, RAW)]
    return DeadLetters.from_rows(tags, table.select(rest), reasons, _plain_weights(table))


def _expand_rows(table: pa.Table, name: str, order: str) -> tuple[pa.Table, DeadLetters]:
    """Return the struct of a relation as columns, with the weight and the sequence."""
    struct = struct_column(name)
    if struct not in table.column_names:
        raise SchemaError(
            f"relation {name!r}: the envelope has no column {struct!r} among {table.column_names}: "
            "rows of a feed come as one struct per relation"
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
            "there is no row",
            _plain_weights(missing),
        )
        table = table.filter(pc.is_valid(rows))
        rows = table.column(struct)
    columns: dict[str, Any] = {
        rows.type.field(place).name: pc.struct_field(rows, [place])
        for place in range(rows.type.num_fields)
    }
    columns.setdefault(order, table.column(SEQUENCE))
    columns[WEIGHT] = table.column(WEIGHT)
    return pa.table(columns), letters


@dataclass(frozen=True)
class _Part:
    """The rows of one relation."""

    name: str
    schema: Schema
    key: tuple[str, ...]
    order: str
    table: pa.Table

    def split(self, *, drop: bool) -> tuple[pa.Table, DeadLetters]:
        """Return the valid rows, cast to the types of the relation, and the dead letters.

        ``drop`` removes columns of other relations; otherwise the circuit rejects them.
        """
        table, size = self.table, self.table.num_rows
        reasons: list[tuple[Mask, str]] = []
        weights, wrong, why = self._weights()
        if wrong.any():
            reasons.append((wrong, why))
        deleted = weights < 0 if self.key else np.zeros(size, np.bool_)
        columns: dict[str, Any] = {}
        for field in self.schema.fields:
            # Of a deleted key only the key columns are checked.
            checked = ~deleted if field.name not in self.key else np.ones(size, np.bool_)
            if field.name not in table.column_names:
                if checked.any() or not self.key or not size:
                    self._missing(field.name)
                columns[field.name] = pa.nulls(size, field.type)
                continue
            try:
                column, wrong = safe_cast(table.column(field.name), field.type)
            except SchemaError as error:
                raise SchemaError(
                    f"relation {self.name!r}: column {field.name!r}: {error}"
                ) from error
            if (wrong & checked).any():
                reasons.append(
                    (
                        wrong & checked,
                        f"column {field.name!r} holds a value that is no {field.type}",
                    )
                )
            if (not field.nullable or field.name in self.key) and column.null_count:
                nulls = np.asarray(pc.is_null(column).to_numpy(), np.bool_) & checked & ~wrong
                if nulls.any():
                    reasons.append((nulls, f"column {field.name!r} is NULL and must not be"))
            columns[field.name] = column
        if not drop:
            for name in table.column_names:
                if name not in columns and name not in (WEIGHT, self.order):
                    columns[name] = table.column(name)
        columns[WEIGHT] = pa.array(weights)
        if self.order in table.column_names and (self.key or not drop):
            columns.setdefault(self.order, table.column(self.order))
        rows = pa.table(columns)
        if not reasons:
            return rows, DeadLetters.empty()
        bad = np.logical_or.reduce([mask for mask, _ in reasons])
        return rows.filter(pa.array(~bad)), self._dead_letters(bad, reasons)

    def _dead_letters(self, bad: Mask, reasons: list[tuple[Mask, str]]) -> DeadLetters:
        """Return one dead letter for each bad row, with its first reason."""
        chosen = np.full(len(bad), -1, np.int64)
        for place in reversed(range(len(reasons))):
            chosen[reasons[place][0]] = place
        texts = pa.array([why for _, why in reasons])
        rejected = self.table.filter(pa.array(bad))
        mine = [name for name in rejected.column_names if name in self.schema.columns]
        text = rows_as_json(rejected.select(mine))
        return DeadLetters.from_texts(
            self.name, text, pc.take(texts, pa.array(chosen[bad])), _plain_weights(rejected)
        )

    def _missing(self, column: str) -> None:
        needs = ", ".join(self.schema.columns) or "no column"
        raise SchemaError(
            f"relation {self.name!r}: no column {column!r} among {self.table.column_names}; it "
            f"needs {needs} and may have {WEIGHT}"
        )

    def _weights(self) -> tuple[npt.NDArray[np.int64], Mask, str]:
        """Return the weights, the mask of the invalid ones, and the reason."""
        size = self.table.num_rows
        why = f"column {WEIGHT!r} holds no integer of 64 bits"
        if WEIGHT not in self.table.column_names:
            return np.ones(size, np.int64), np.zeros(size, np.bool_), why
        column = self.table.column(WEIGHT)
        numbers = _numbers(column)
        if numbers is None:
            raise SchemaError(
                f"relation {self.name!r}: column {WEIGHT!r} is of type {column.type}, weights are "
                "integers: cast it"
            )
        return (
            np.asarray(pc.fill_null(numbers, 1).to_numpy(), np.int64),
            np.asarray(numbers.is_null().to_numpy(), np.bool_),
            why,
        )


def _numbers(column: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Return weights as int64, NULL if invalid; None if the type cannot hold weights."""
    type = column.type
    if types.is_null(type):
        return column.cast(pa.int64())
    if types.is_integer(type):
        return safe_cast(column, pa.int64())[0]
    if types.is_floating(type):
        wide = column.cast(pa.float64())
        whole = pc.and_(pc.equal(pc.floor(wide), wide), pc.less(pc.abs(wide), 2.0**63))
        kept = pc.if_else(pc.fill_null(whole, False), wide, pa.scalar(None, pa.float64()))
        return kept.cast(pa.int64())
    if types.is_decimal(type):
        whole, _ = safe_cast(column, pa.decimal128(19, 0))
        return _narrow(whole)
    if types.is_string(type) or types.is_large_string(type):
        digits = pc.match_substring_regex(column, r"^[+-]?[0-9]{1,19}$")
        text = pc.if_else(pc.fill_null(digits, False), column, pa.scalar(None, type))
        plain = pc.replace_substring_regex(text.cast(pa.string()), r"^\+", "")
        return _narrow(plain.cast(pa.decimal128(19, 0)))
    return None


def _narrow(whole: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return decimals without fraction as int64, NULL if out of range."""
    lowest, highest = (pa.scalar(str(n)).cast(pa.decimal128(19, 0)) for n in (1 - 2**63, 2**63 - 1))
    inside = pc.and_(pc.greater_equal(whole, lowest), pc.less_equal(whole, highest))
    kept = pc.if_else(pc.fill_null(inside, False), whole, pa.scalar(None, whole.type))
    return kept.cast(pa.int64())


def _shorten(names: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return names of relations from the stream, cut to a maximal length."""
    return pc.utf8_slice_codeunits(names, 0, MAX_EXCERPT_CHARACTERS)


def _plain_weights(table: pa.Table) -> pa.ChunkedArray | None:
    """Return the weights for dead letters; NULL if invalid."""
    return _numbers(table.column(WEIGHT)) if WEIGHT in table.column_names else None
