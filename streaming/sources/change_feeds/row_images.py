"""Row images: decode the images of events to rows of the envelope.

An image is one row of an event: the before image (the deleted row) or the after image (the inserted
row). It consists of two JSON objects: ``top``, and ``base`` for the columns that ``top`` lacks. The
envelope is the common result of all change feeds: a DataFrame of inserted and deleted rows
(`streaming.sources.change_feeds.feed`).

The decoder looks up every column of a relation in the image, converts it to the type of the column
(`streaming.sources.change_feeds.text_values`) and checks it. One invalid cell makes the whole event
an error row. The rules for columns are:

- A column of the relation that is missing in the event is NULL, because the column may have been
  added to the table later.
- But if the event has a column whose name differs in case only, the event is an error.
- A column of the event that is not in the relation is ignored.
- In a deletion from an input with keys, only the key columns are checked.
- A row without any column of the relation is invalid: it is not an object, it belongs to another
  table, or its columns have other names.

Decoding has three stages: cells (texts, and for some types the JSON kind of the text), values, and
error reasons. Each stage is computed once (`compute_once`), so each cell is looked up once and
converted once. A cell is the value of one column; the struct of all cells of an image is named
``image_cells`` in SQL, and the struct of all values ``image_values``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
from pyarrow import types
from pyspark.sql import DataFrame

from streaming.sources.change_feeds.events import ColumnNames
from streaming.sources.change_feeds.feed import (
    ERROR,
    RAW,
    RELATION,
    SEQUENCE,
    WEIGHT,
    Keys,
    compute_once,
    struct_column,
)
from streaming.sources.change_feeds.physical_types import MAX_DECIMAL_DIGITS, physical_type
from streaming.sources.change_feeds.sql_expressions import (
    case,
    excerpt_of,
    literal,
    quote_name,
    row,
    shorten_text,
    with_binding,
)
from streaming.sources.change_feeds.text_values import (
    Encoding,
    json_kind,
    mark_rounded,
    max_text_bytes,
    needs_json_kind,
    value_expression,
)
from streaming.sources.change_feeds.unscaled_decimals import (
    NumberCell,
    may_be_bytes,
    number_texts,
)

__all__ = ["build_envelope"]

#: The SQL variable that is true if the event has a number with more digits than Spark keeps.
LONG_NUMBER = "has_long_number"


def build_envelope(
    events: DataFrame,
    inputs: Mapping[str, pa.Schema],
    *,
    keys: Keys,
    names: ColumnNames,
    encoding: Encoding,
    unavailable: Sequence[str] = (),
    numbered: bool = False,
    described: bool = False,
) -> DataFrame:
    """Return the envelope of events.

    Args:
        events: Has the columns that `streaming.sources.change_feeds.events` defines.
        inputs: The schema of each input.
        keys: The key columns of inputs with keys.
        names: Maps columns to their names in events.
        encoding: The encodings that the events do not define.
        unavailable: Texts that the database writes in ``top`` in place of a value that it did not
            log; the value is then taken from ``base``.
        numbered: True if the rows of an event are in order. The position of each row becomes the
            last 12 bits of its sequence. The sequence is NULL if it has no room for them.
        described: True if an event may describe the types of its columns, in ``column_types``.
    """
    decoder = _Decoder(inputs, keys, names, encoding, unavailable, described)
    event_columns = ("raw", "sequence", "relation")
    cells = f"CASE WHEN error IS NULL THEN transform(images, image -> {decoder.cells()}) END"
    events = events.filter("NOT skip")
    # The whole event is searched once, because a search for each of its numbers would be quadratic.
    cells = with_binding(LONG_NUMBER, f"raw RLIKE '[0-9.]{{{MAX_DECIMAL_DIGITS + 1}}}'", cells)
    events = compute_once(events, {"cells": cells}, keep=(*event_columns, "error", "column_types"))
    values = f"transform(cells, image_cells -> {decoder.values()})"
    events = compute_once(events, {"values": values}, keep=(*event_columns, "error", "cells"))
    reasons = f"zip_with(cells, values, (image_cells, image_values) -> {decoder.reason()})"
    error = f"coalesce(error, get(array_compact({reasons}), 0))"
    events = compute_once(events, {"reason": error}, keep=(*event_columns, "values"))
    null_structs = {
        struct_column(name): f"CAST(NULL AS {_struct_type(schema)})"
        for name, schema in inputs.items()
    }
    rows = f"if(reason IS NULL, values, array({row({'weight': '1', **null_structs})}))"
    exploded = events.selectExpr(
        *event_columns, "reason", f"posexplode({rows}) AS (position, decoded)"
    )
    order = "sequence"
    if numbered:
        fits = f"sequence BETWEEN {-(2**51)} AND {2**51 - 1}"
        order = f"CASE WHEN {fits} THEN shiftleft(sequence, 12) | least(position, 4095) END"
    structs = (
        f"decoded.{quote_name(struct_column(name))} AS {quote_name(struct_column(name))}"
        for name in inputs
    )
    return exploded.selectExpr(
        f"relation AS {RELATION}",
        f"CAST(decoded.weight AS BIGINT) AS {WEIGHT}",
        f"CAST({order} AS BIGINT) AS {SEQUENCE}",
        f"reason AS {ERROR}",
        f"CASE WHEN reason IS NOT NULL THEN raw END AS {RAW}",
        *structs,
    )


def _struct_type(schema: pa.Schema) -> str:
    members = (f"{quote_name(f.name)}: {physical_type(f.type).simpleString()}" for f in schema)
    return f"STRUCT<{', '.join(members)}>"


class _Decoder:
    """Builds the SQL expressions of the three stages: cells, values and error reasons."""

    def __init__(
        self,
        inputs: Mapping[str, pa.Schema],
        keys: Keys,
        names: ColumnNames,
        encoding: Encoding,
        unavailable: Sequence[str],
        described: bool,
    ) -> None:
        self.inputs = inputs
        self.keys = keys
        self.names = names
        self.encoding = encoding
        self.unavailable = unavailable
        self.described = described

    def cells(self) -> str:
        """Return the expression of the cells of an ``image``.

        They are the texts ``c0``, ``c1``, … and, for the types that need them, the JSON kinds
        ``k0``, ``k1``, ….
        """
        return self._rows("image", self._cells)

    def values(self) -> str:
        """Return the expression of the row of values of ``image_cells``."""
        return self._rows("image_cells", self._values)

    def reason(self) -> str:
        """Return the expression of the reason why an image is invalid; NULL if it is valid."""
        return case("relation", list(self.inputs), self._reason, "NULL")

    def _rows(self, struct: str, build_row: Callable[[str], str]) -> str:
        structs = {
            struct_column(name): f"CASE WHEN relation = {literal(name)} THEN {build_row(name)} END"
            for name in self.inputs
        }
        return row({"weight": f"{struct}.weight", **structs})

    def _cells(self, relation: str) -> str:
        schema = self.inputs[relation]
        members = {}  # v0, v1, …: the values of the columns in the event, as VARIANT
        for i, field in enumerate(schema):
            top, base = (
                self.names.member(f"image.{side}", relation, field.name) for side in ("top", "base")
            )
            top_or_base = f"coalesce({top}, {base})"
            if self.unavailable:
                unlogged = f"CAST(sent AS STRING) IN ({', '.join(map(literal, self.unavailable))})"
                logged = f"CASE WHEN NOT coalesce({unlogged}, false) THEN sent END"
                top_or_base = f"coalesce({with_binding('sent', top, logged)}, {base})"
            members[f"v{i}"] = f"if(image.base IS NULL, {top}, {top_or_base})"
        numbers: list[NumberCell] = []
        all_members = ", ".join(f"members.{name}" for name in members)
        cells = {"is_row": f"coalesce({all_members}, NULL) IS NOT NULL"}
        for i, field in enumerate(schema):
            variant = f"members.v{i}"
            text = f"CAST({variant} AS STRING)"
            limit = max_text_bytes(field.type)
            if limit is not None:
                text = shorten_text(text, limit)
            cells[f"c{i}"] = text
            if may_be_bytes(field.type) and (self.described or self.encoding.decimals != "text"):
                scale = max(field.type.scale, 0) if types.is_decimal(field.type) else 0
                cells[f"c{i}"] = f"numbers[{len(numbers)}]"
                description = self._description(relation, field.name)
                numbers.append(NumberCell(variant, description, str(scale)))
            elif types.is_decimal(field.type):
                cells[f"c{i}"] = mark_rounded(variant, text, LONG_NUMBER)
            if needs_json_kind(field.type):
                cells[f"k{i}"] = json_kind(variant, text, field.type)
        cells["miscased"] = self._miscased_name(relation)
        body = row(cells)
        if numbers:
            body = with_binding("numbers", number_texts(numbers, self.encoding, LONG_NUMBER), body)
        return with_binding("members", row(members), body)

    def _miscased_name(self, relation: str) -> str:
        """Return the expression of a name that differs from that of a missing column in case only.

        It is NULL if the image has no such name.
        """
        names = [self.names.name(relation, column) for column in self.inputs[relation].names]
        if self.names.match_case:
            any_missing = " OR ".join(f"members.v{i} IS NULL" for i in range(len(names)))
            missing_names = ", ".join(
                f"CASE WHEN members.v{i} IS NULL THEN {literal(name.lower())} END"
                for i, name in enumerate(names)
            )
            names_in_image = "map_keys(try_variant_get(image.top, '$', 'map<string, variant>'))"
            is_missing = f"array_contains(array({missing_names}), lower(k))"
            miscased = f"get(filter({names_in_image}, k -> {is_missing}), 0)"
            return f"CASE WHEN {any_missing} THEN {miscased} END"
        return "CAST(NULL AS STRING)"

    def _description(self, relation: str, column: str) -> str:
        """Return the expression of the event's description of a column."""
        name = literal(self.names.name(relation, column))
        return f"get(filter(column_types, f -> f.field = {name}), 0)"

    def _values(self, relation: str) -> str:
        values = {}
        for i, field in enumerate(self.inputs[relation]):
            cells = f"image_cells.{quote_name(struct_column(relation))}"
            nanoseconds = None if types.is_date(field.type) else self.encoding.unit(field.name)
            unit = "NULL" if nanoseconds is None else f"{nanoseconds}L"
            if self.described:
                unit = f"coalesce({self._description(relation, field.name)}.unit, {unit})"
            values[field.name] = with_binding(
                "text",
                f"{cells}.c{i}",
                value_expression("text", f"{cells}.k{i}", unit, field.type, self.encoding),
            )
        return row(values)

    def _reason(self, relation: str) -> str:
        key = tuple(self.keys.get(relation, ()))
        reasons = []
        struct = quote_name(struct_column(relation))
        cells, values = f"image_cells.{struct}", f"image_values.{struct}"
        for i, field in enumerate(self.inputs[relation]):
            cell, value = f"{cells}.c{i}", f"{values}.{quote_name(field.name)}"
            uncastable = (
                f"concat({literal(f'column {field.name!r}: ')}, {excerpt_of(cell)}, "
                f"{literal(f' is not a valid {field.type}')})"
            )
            missing = literal(f"column {field.name!r} is NULL or missing and must not be")
            is_required = not field.nullable or field.name in key
            arms = f"WHEN {cell} IS NOT NULL THEN {uncastable}"
            arms += f" ELSE {missing}" if is_required else ""
            is_null = f"{value} IS NULL"
            is_null += " AND image_cells.weight > 0" if key and field.name not in key else ""
            reasons.append(f"CASE WHEN {is_null} THEN CASE {arms} END END")
        no_columns = literal(
            f"the row has none of the columns {', '.join(self.inputs[relation].names)}"
        )
        miscased = (
            f"concat('the row has a column ', {cells}.miscased, ', and names of columns are "
            "matched with their case: rename it, or give match_case=False')"
        )
        first = f"CASE WHEN NOT {cells}.is_row THEN {no_columns} END, {miscased}"
        return f"coalesce({first}, {', '.join(reasons)})"
