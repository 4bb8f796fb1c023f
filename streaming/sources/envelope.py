"""Envelope: from the rows of a micro-batch to one table per relation, and the rows put aside.

A micro-batch arrives as one Arrow table in one of three shapes:

1.  the envelope of a change feed or of `streaming.merge` (`streaming.sources.change_feeds.feed`);
2.  tagged: a column ``relation`` and the columns of all relations side by side;
3.  flat: the columns of one relation.

The last two may have ``weight``, without which every row comes once, and ``sequence``, which orders
the rows of a key for inputs with keys. What is wrong with a row puts that row aside with the reason
(`streaming.sources.dead_letters`), and no other: an event that the feed could not read; a relation
that is NULL or no input; a weight that is no integer of 64 bits; NULL where the input forbids it; a
value that the type of its column does not have. What is wrong with a column is an error of the
whole micro-batch: it is not there, or is of a type from which nothing can be cast without loss.

Of a deletion from an input with keys only the key is looked at: all else becomes NULL when it does
not fit. All tests are masks over whole columns, and most are made only when the cast of the whole
column has failed, so a micro-batch without bad rows pays for little more than the casts that the
circuit would make anyway. Memory: the table, its parts, and a byte per row.
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
from streaming.sources.change_feeds.feed import ERROR, RAW, RELATION, SEQUENCE, is_envelope, name_of
from streaming.sources.change_feeds.uncastable_rows import safe_cast
from streaming.sources.dead_letters import DeadLetters, rows_as_json

__all__ = ["Changes", "Keyed", "changes_of"]

Mask = npt.NDArray[np.bool_]


class Keyed(Protocol):
    """What is asked of the rules of an input: the columns of its key, none without.

    A ``sequence`` that they may name is the column that orders the rows of a key.
    """

    @property
    def keys(self) -> tuple[str, ...]: ...


@dataclass(frozen=True)
class Changes:
    """What a micro-batch changes: a table per relation, and the rows that cannot be taken."""

    tables: Mapping[str, pa.Table]
    dead_letters: DeadLetters


def changes_of(
    table: pa.Table,
    inputs: Mapping[str, Schema],
    *,
    relation: str | None = None,
    input_options: Mapping[str, Keyed] | None = None,
) -> Changes:
    """Take a micro-batch apart.

    Args:
        table: The micro-batch.
        inputs: The inputs of the circuit.
        relation: The input that rows without a tag belong to; not needed when there is one.
        input_options: The options of inputs, as the circuit has them.

    Raises:
        UntaggedBatchError: The rows do not say to which relation they belong.
        SchemaError: A column of a relation is missing, or of a type that cannot be cast.

    Complexity:
        O(bytes).

    >>> inputs = {"r": Schema.of("r", pa.schema([("n", pa.int8())]))}
    >>> changes = changes_of(pa.table({"n": [1, 300], "weight": [1, -1]}), inputs)
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
        tables, letters = part.taken(drop=False)
        return Changes({relation: tables}, letters)
    tags = table.column(RELATION)
    if not (types.is_string(tags.type) or types.is_large_string(tags.type)):
        raise UntaggedBatchError(
            f"column {RELATION!r} is of type {tags.type}; it must hold names of relations: "
            f"{', '.join(inputs)}"
        )
    enveloped = is_envelope(names)
    letters = DeadLetters.none()
    if enveloped and table.column(ERROR).null_count < table.num_rows:
        failed = table.filter(pc.is_valid(table.column(ERROR)))
        letters += DeadLetters.of_texts(
            _shown(failed.column(RELATION)),
            failed.column(RAW),
            failed.column(ERROR),
            _plain_weights(failed),
        )
        table = table.filter(pc.is_null(table.column(ERROR)))
        tags = table.column(RELATION)
    known = pc.fill_null(pc.is_in(tags, pa.array(list(inputs), tags.type)), False)
    if not pc.all(known).as_py() and table.num_rows:
        letters += _strangers(table.filter(pc.invert(known)), inputs, enveloped)
    found = {}
    for name in pc.unique(tags).to_pylist():
        if name not in inputs:
            continue
        mine = table.filter(pc.equal(tags, name))
        order = orders.get(name) or SEQUENCE
        if enveloped:
            mine, empty = _unfolded(mine, name, order)
            letters += empty
        part = _Part(name, inputs[name], keys.get(name, ()), order, mine)
        found[name], aside = part.taken(drop=True)
        letters += aside
    return Changes(found, letters)


def _strangers(table: pa.Table, inputs: Mapping[str, Schema], enveloped: bool) -> DeadLetters:
    """The letters of rows whose relation is NULL or no input."""
    tags = _shown(table.column(RELATION))
    known = f" is no input; inputs are {', '.join(inputs)}"
    reasons = pc.fill_null(
        pc.binary_join_element_wise("relation ", tags, known, ""),
        f"relation is NULL; inputs are {', '.join(inputs)}",
    )
    rest = [name for name in table.column_names if name not in (RELATION, WEIGHT)]
    if enveloped:
        rest = [name for name in rest if name not in (SEQUENCE, ERROR, RAW)]
    return DeadLetters.of_rows(tags, table.select(rest), reasons, _plain_weights(table))


def _unfolded(table: pa.Table, name: str, order: str) -> tuple[pa.Table, DeadLetters]:
    """The struct of a relation as columns, with the weight and what orders the rows of a key."""
    struct = name_of(name)
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
    letters = DeadLetters.none()
    if rows.null_count:
        missing = table.filter(pc.is_null(rows))
        letters = DeadLetters.of_texts(
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

    def taken(self, *, drop: bool) -> tuple[pa.Table, DeadLetters]:
        """The rows to take, cast to the types of the relation, and those put aside.

        ``drop`` leaves out columns of other relations; else the circuit refuses them.
        """
        table, size = self.table, self.table.num_rows
        reasons: list[tuple[Mask, str]] = []
        weights, wrong, why = self._weights()
        if wrong.any():
            reasons.append((wrong, why))
        gone = weights < 0 if self.key else np.zeros(size, np.bool_)
        columns: dict[str, Any] = {}
        for field in self.schema.fields:
            # Of a key that goes nothing else is looked at.
            looked = ~gone if field.name not in self.key else np.ones(size, np.bool_)
            if field.name not in table.column_names:
                if looked.any() or not self.key or not size:
                    self._missing(field.name)
                columns[field.name] = pa.nulls(size, field.type)
                continue
            try:
                column, wrong = safe_cast(table.column(field.name), field.type)
            except SchemaError as error:
                raise SchemaError(
                    f"relation {self.name!r}: column {field.name!r}: {error}"
                ) from error
            if (wrong & looked).any():
                reasons.append(
                    (wrong & looked, f"column {field.name!r} holds a value that is no {field.type}")
                )
            if (not field.nullable or field.name in self.key) and column.null_count:
                nulls = np.asarray(pc.is_null(column).to_numpy(), np.bool_) & looked & ~wrong
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
        taken = pa.table(columns)
        if not reasons:
            return taken, DeadLetters.none()
        bad = np.logical_or.reduce([mask for mask, _ in reasons])
        return taken.filter(pa.array(~bad)), self._letters(bad, reasons)

    def _letters(self, bad: Mask, reasons: list[tuple[Mask, str]]) -> DeadLetters:
        """One letter for each bad row, with the first reason."""
        chosen = np.full(len(bad), -1, np.int64)
        for place in reversed(range(len(reasons))):
            chosen[reasons[place][0]] = place
        texts = pa.array([why for _, why in reasons])
        aside = self.table.filter(pa.array(bad))
        mine = [name for name in aside.column_names if name in self.schema.columns]
        text = rows_as_json(aside.select(mine))
        return DeadLetters.of_texts(
            self.name, text, pc.take(texts, pa.array(chosen[bad])), _plain_weights(aside)
        )

    def _missing(self, column: str) -> None:
        needs = ", ".join(self.schema.columns) or "no column"
        raise SchemaError(
            f"relation {self.name!r}: no column {column!r} among {self.table.column_names}; it "
            f"needs {needs} and may have {WEIGHT}"
        )

    def _weights(self) -> tuple[npt.NDArray[np.int64], Mask, str]:
        """The weights, and where there is none."""
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
    """A column of weights as int64, NULL where it is none; None for a type that holds none."""
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
    """Decimals without fraction as int64, NULL where they are outside."""
    lowest, highest = (pa.scalar(str(n)).cast(pa.decimal128(19, 0)) for n in (1 - 2**63, 2**63 - 1))
    inside = pc.and_(pc.greater_equal(whole, lowest), pc.less_equal(whole, highest))
    kept = pc.if_else(pc.fill_null(inside, False), whole, pa.scalar(None, whole.type))
    return kept.cast(pa.int64())


def _shown(names: pa.ChunkedArray) -> pa.ChunkedArray:
    """Names of relations that come from outside, without the end of long ones."""
    return pc.utf8_slice_codeunits(names, 0, MAX_EXCERPT_CHARACTERS)


def _plain_weights(table: pa.Table) -> pa.ChunkedArray | None:
    """The weights for letters; NULL where there is none."""
    return _numbers(table.column(WEIGHT)) if WEIGHT in table.column_names else None
