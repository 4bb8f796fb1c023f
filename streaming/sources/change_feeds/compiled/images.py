"""Images: convert the before and after images in events to rows of their relations.

An image is a row before or after a change. It is composed of up to two *rows of events*, which are
the JSON objects with a value per column: the second one has the values that the first one lacks
(`streaming.sources.change_feeds.compiled.cells.Images`).

The decoder of a format (`EventDecoder`) groups the events of a slice by relation and kind of
change, and yields for each group the images that are inserted and deleted. `RowReader` reads the
columns of these images. An event with a refused value is refused as a whole: Spark then decodes it
(`streaming.sources.change_feeds.compiled`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa

from circuits.schema import WEIGHT, Schema
from dbsp_wcoj.kernels.json.scan import MISSING
from dbsp_wcoj.kernels.json.values import AS_TEXT, compare_cells, group_texts, read_integers
from streaming.sources.change_feeds.compiled.cells import (
    NO_DESCRIPTION,
    CellReader,
    Description,
    Images,
    is_readable,
)
from streaming.sources.change_feeds.compiled.scanner import (
    EventShape,
    Integers,
    Mask,
    ScannedEvents,
)
from streaming.sources.change_feeds.events import ColumnNames
from streaming.sources.change_feeds.physical_types import physical_type
from streaming.sources.change_feeds.text_values import Encoding
from streaming.sources.change_feeds.uncastable_rows import safe_cast

__all__ = [
    "EventDecoder",
    "ImageGroup",
    "RelationImages",
    "RowReader",
    "group_events",
    "read_number",
    "relations_of",
    "row_columns",
]

MAX_GROUPS: Final = 256  # in a slice; the events of further groups are refused


@dataclass(frozen=True)
class ImageGroup:
    """Images of one relation that were encoded in the same way.

    Attributes:
        relation: The relation.
        events: The number of the event of each image.
        images: The images.
        weights: 1 for an inserted row, -1 for a deleted one.
        sequences: A number per image that orders the images of a key; used only for inputs with
            keys.
        descriptions: How the events encode columns, by the name that a column has in events.
    """

    relation: str
    events: Integers
    images: Images
    weights: Integers
    sequences: pa.Array | None = None
    descriptions: Mapping[str, Description] = field(default_factory=dict)


class EventDecoder(Protocol):
    """Finds the images of events of one format."""

    @property
    def shape(self) -> EventShape:
        """The JSON members that the decoder reads."""

    def groups(
        self, events: ScannedEvents, orders: pa.ChunkedArray, refused: Mask
    ) -> Iterator[ImageGroup]:
        """Yield the images of a slice of events.

        Args:
            events: The events.
            orders: The sequence number of each event in the stream; NULL if it has none.
            refused: The refused events; the decoder adds those that it cannot decode.
        """


@dataclass(frozen=True)
class RelationImages:
    """Where the columns of a relation are in the rows of events.

    Attributes:
        name: The relation.
        columns: For each column, its number in `ScannedEvents.cells`.
        key: Those of the key columns; empty for an input without keys.
        names: The name of each column in events.
    """

    name: str
    columns: Integers
    key: Integers
    names: Sequence[str]

    @property
    def is_keyed(self) -> bool:
        """Whether the input has keys."""
        return len(self.key) > 0

    def missing(self, events: ScannedEvents, rows: Integers) -> Mask:
        """Return a mask per row of the columns that it lacks: all for row -1, which is no row."""
        if not len(events.rows):
            return np.ones((len(rows), len(self.columns)), np.bool_)
        kinds = events.cells[np.maximum(rows, 0)[:, None], self.columns[None, :], 0]
        return np.asarray((kinds == MISSING) | (rows < 0)[:, None], np.bool_)

    def key_changes(self, events: ScannedEvents, old: Images, new: Integers, refused: Mask) -> Mask:
        """Return for each update whether a key column differs between its old and new image.

        Args:
            events: The events.
            old: The before images.
            new: The rows of the after images.
            refused: A mask of the updates; those whose values cannot be compared are added.
        """
        differs = np.zeros(len(new), np.bool_)
        compare_cells(
            events.address,
            events.cells,
            self.key,
            old.rows,
            old.fallback_rows,
            new,
            differs,
            refused,
        )
        return differs


def relations_of(
    inputs: Mapping[str, pa.Schema], keys: Mapping[str, Sequence[str]], names: ColumnNames
) -> tuple[dict[str, int], dict[str, RelationImages]]:
    """Number the column names in events; return the numbers by name, and those of each relation.

    Columns of several relations with the same name in events have the same number. A relation is
    left out, so that all its events are refused, if the name of one of its columns differs from
    that of another column only in case, or if the decoder cannot read the type of a column.

    Raises:
        FeedError: No feed can carry the type of a column, or its name cannot be found in events.
    """
    columns: dict[str, int] = {}
    exact: dict[str, str] = {}
    clashing = set()
    for relation, schema in inputs.items():
        for name in schema.names:
            physical_type(schema.field(name).type)
            names.member("event", relation, name)
            in_event = names.name(relation, name)
            lower = in_event.lower()
            if exact.setdefault(lower, in_event) != in_event:
                clashing.add(lower)
            columns.setdefault(lower, len(columns))
    relations = {}
    for relation, schema in inputs.items():
        in_events = [names.name(relation, name) for name in schema.names]
        lower_names = [name.lower() for name in in_events]
        is_clear = not clashing & set(lower_names) and len({*lower_names}) == len(lower_names)
        if not is_clear or not all(is_readable(column.type) for column in schema):
            continue
        key = [columns[names.name(relation, name).lower()] for name in keys.get(relation, ())]
        relations[relation] = RelationImages(
            relation,
            np.array([columns[name] for name in lower_names], np.int64),
            np.array(key, np.int64),
            in_events,
        )
    return row_columns(columns, exact, names.match_case), relations


def row_columns(
    columns: Mapping[str, int], exact: Mapping[str, str], match_case: bool
) -> dict[str, int]:
    """Return the number of the column of each name in events.

    Unless ``match_case``, ASCII names are also found in all lower or all upper case.

    Args:
        columns: The number of each column, by its name in lower case.
        exact: The name in events of each column, by its name in lower case.
        match_case: Whether names must have the same case.
    """
    result = {exact[lower]: number for lower, number in columns.items()}
    if not match_case:
        for lower, number in columns.items():
            if lower.isascii():
                result |= {lower: number, lower.upper(): number, exact[lower]: number}
    return result


class RowReader:
    """Reads the images of one relation.

    Args:
        relation: The columns of the relation in events.
        schema: The relation.
        sequence: The column that orders the rows of a key; None if there is none. It is added to
            the rows if the relation does not have it.
        encoding: The encodings of values that events do not describe.
        hidden: The placeholders that stand for values that the database did not log.
    """

    def __init__(
        self,
        relation: RelationImages,
        schema: Schema,
        sequence: str | None,
        encoding: Encoding,
        hidden: Sequence[str],
    ) -> None:
        self._relation = relation
        self._sequence = sequence if sequence not in schema.columns else None
        self._fields = schema.fields
        self._readers = [
            CellReader(int(column), field, encoding, hidden)
            for column, field in zip(relation.columns, schema.fields, strict=True)
        ]

    def read(self, events: ScannedEvents, group: ImageGroup, refused: Mask) -> pa.Table:
        """Return the rows of a group, except those of refused events.

        Events with a value that cannot be read are added to ``refused``.
        """
        relation, images = self._relation, group.images
        bad = refused[group.events]
        has_row = images.rows >= 0
        # A row with a column name in another case is refused.
        bad |= has_row & (events.rows[np.maximum(images.rows, 0), 2] != 0)
        few = events.rows[np.maximum(images.rows, 0), 3] < len(relation.columns)
        if (few | ~has_row).any() or len(relation.columns) < events.cells.shape[1]:
            missing = relation.missing(events, images.rows)
            missing &= relation.missing(events, images.fallback_rows)
            bad |= missing.all(axis=1)  # a row without any of the columns
        is_inserted = group.weights > 0
        columns: dict[str, Any] = {}
        for reader, name in zip(self._readers, relation.names, strict=True):
            field = reader.field
            description = group.descriptions.get(name, NO_DESCRIPTION)
            values, invalid = reader.read(events, images, description)
            bad |= invalid
            is_key = reader.column in relation.key
            if (not field.nullable or is_key) and values.null_count:
                nulls = values.is_null().to_numpy(zero_copy_only=False)
                # A deletion by key needs no values in the other columns.
                bad |= nulls & (is_inserted | is_key | (not relation.is_keyed))
            column = pa.chunked_array([values])
            if values.type != field.type:
                column, invalid = safe_cast(column, field.type)
                bad |= invalid
            columns[field.name] = column
        columns[WEIGHT] = pa.array(group.weights)
        if relation.is_keyed and self._sequence is not None:
            columns[self._sequence] = (
                pa.nulls(len(bad), pa.int64()) if group.sequences is None else group.sequences
            )
        table = pa.table(columns)
        if not bad.any():
            return table
        refused[group.events[bad]] = True
        return table.filter(pa.array(~refused[group.events]))


def group_events(
    events: ScannedEvents, slots: Sequence[str], refused: Mask
) -> Iterator[tuple[int, Integers]]:
    """Group events by the texts in some slots; yield the first event and all events of each group.

    Events beyond the first `MAX_GROUPS` groups are added to ``refused``.
    """
    numbers = np.array([events.slot_numbers[slot] for slot in slots], np.int64)
    firsts, groups = np.empty(MAX_GROUPS, np.int64), np.empty(len(events), np.int64)
    count = group_texts(events.address, events.slots, numbers, ~refused, firsts, groups)
    refused |= groups < 0
    for group in range(count):
        yield int(firsts[group]), np.flatnonzero(groups == group)


def read_number(
    events: ScannedEvents, slot: str, numbers: Integers, refused: Mask
) -> tuple[Integers, Mask]:
    """Return the integers in a slot of some events, and a mask of the events that have one.

    Events with another value in the slot are added to ``refused``.
    """
    size = len(numbers)
    values, is_valid = np.empty(size, np.int64), np.empty(size, np.bool_)
    bad = np.zeros(size, np.bool_)
    fallback_rows = np.full(size, -1, np.int64)
    read_integers(
        events.address,
        events.slots,
        events.slot_numbers[slot],
        numbers,
        fallback_rows,
        AS_TEXT,
        -(2**63) + 1,
        2**63 - 1,
        values,
        is_valid,
        bad,
    )
    refused[numbers[bad]] = True
    return values, is_valid & ~bad
