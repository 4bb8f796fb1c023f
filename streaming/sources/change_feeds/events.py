"""Events: the common part of the JSON change feeds, from an event to its row images.

A JSON feed (`debezium`, `maxwell`, `canal`, `compacted`) converts each event to one row::

    raw           the text of the event
    skip          true if the event has no effect
    error         why the event cannot be decoded; NULL if it can
    relation      the input; NULL if unknown
    sequence      an integer that orders the events of a key
    images        the inserted and deleted rows
    column_types  how the event encodes the columns of its table, if the event says it; else NULL

An image is a row with a weight, as two JSON objects: ``top``, and ``base`` for the columns that
``top`` lacks. For example, Maxwell sends only the changed columns of the row before an update: they
are ``top``, and the row after the update is ``base``.
`streaming.sources.change_feeds.row_images` converts images to rows of the envelope.

The functions return Spark SQL expressions (`streaming.sources.change_feeds.sql_expressions`). An
event is parsed once, into a VARIANT: strict JSON in UTF-8, one object, no duplicate members. Spark
does not parse an event of more than 20 million characters, with a number of more than 1,000 digits,
or nested deeper than 1,000 levels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame

from streaming.errors import FeedError
from streaming.sources.change_feeds.feed import (
    Keys,
    check_columns,
    check_inputs,
    compute_once,
    sequence_expression,
)
from streaming.sources.change_feeds.sql_expressions import (
    case,
    excerpt_of,
    literal,
    quote_name,
    row,
    with_binding,
)

__all__ = [
    "NO_COLUMN_TYPES",
    "UNREADABLE",
    "ColumnNames",
    "check_events",
    "deleted_image",
    "first_reason",
    "inserted_image",
    "is_keyed",
    "member",
    "nonnull_member",
    "number",
    "open_events",
    "parse_object",
    "route_relation",
    "text",
    "unknown_table",
    "update_images",
]

#: The column ``column_types`` of a feed whose events do not describe the columns of their table.
NO_COLUMN_TYPES = (
    "CAST(NULL AS ARRAY<STRUCT<field: STRING, bytes: BOOLEAN, scale: INT, unit: BIGINT>>)"
)
UNREADABLE = (
    "the text is not a JSON object in UTF-8, or repeats a member, or is too long or nested too deep"
)


def parse_object(json_text: str) -> str:
    """Parse one JSON object as VARIANT; NULL for anything else, also for two objects."""
    first, second = (f"try_variant_get(elements, '$[{i}]', 'variant')" for i in (0, 1))
    object_start = literal(r"^\s*\{")
    only_object = (
        f"CASE WHEN {second} IS NULL AND {json_text} RLIKE {object_start} THEN {first} END"
    )
    return with_binding("elements", f"try_parse_json(concat('[', {json_text}, ']'))", only_object)


def member(value: str, *names: str) -> str:
    """Return the member of a JSON object as VARIANT; NULL if it is missing, not if it is null."""
    return f"try_variant_get({value}, {literal(_path(*names))}, 'variant')"


def text(value: str, *names: str) -> str:
    """Return the member of a JSON object as text; NULL if it is missing or null."""
    return f"try_variant_get({value}, {literal(_path(*names))}, 'string')"


def number(value: str, *names: str) -> str:
    """Return the member of a JSON object as an integer; NULL if it is not one."""
    return f"try_variant_get({value}, {literal(_path(*names))}, 'bigint')"


def nonnull_member(value: str, *names: str) -> str:
    """Return the member of a JSON object as VARIANT; NULL if it is missing or null."""
    nonnull = "if(is_variant_null(member), NULL, member)"
    return with_binding("member", member(value, *names), nonnull)


def _path(*names: str) -> str:
    """Return the JSON path of a member.

    Raises:
        FeedError: The name cannot be written in a path.
    """
    for name in names:
        if '"' in name and "'" in name:
            raise FeedError(
                f"the column {name!r} has both kinds of quotes: rename it in the source"
            )
    return "$" + "".join(f"['{n}']" if '"' in n else f'["{n}"]' for n in names)


@dataclass(frozen=True)
class ColumnNames:
    """Maps the columns of inputs to their names in events.

    Args:
        rename: The column of the input for each name in events that differs from it:
            ``{"weight": "mass"}``, or ``{"product.weight": "mass"}`` for the relation ``product``.
        match_case: True if ``ID`` and ``id`` are different names.
        inputs: The schema of each input.

    Raises:
        FeedError: No input has a column of ``rename``.
    """

    rename: Mapping[str, str]
    match_case: bool
    inputs: Mapping[str, pa.Schema]

    def __post_init__(self) -> None:
        for name, column in self.rename.items():
            relation = name.rpartition(".")[0]
            relations = [relation] if relation in self.inputs else list(self.inputs)
            if not any(column in self.inputs[relation].names for relation in relations):
                raise FeedError(
                    f"rename={{{name!r}: {column!r}}}: there is no column {column!r} in "
                    f"{', '.join(relations)}; the column of the input is after the name in events"
                )

    def name(self, relation: str, column: str) -> str:
        """Return the name of a column in events."""
        for name, renamed_column in self.rename.items():
            name_relation, _, name_in_event = name.rpartition(".")
            if renamed_column == column and name_relation == relation:
                return name_in_event
        for name, renamed_column in self.rename.items():
            # Before a dot that is a part of the name, there is no relation.
            if renamed_column == column and name.rpartition(".")[0] not in self.inputs:
                return name
        return column

    def member(self, value: str, relation: str, column: str) -> str:
        """Return the value of a column in a row of an event, as VARIANT."""
        name = self.name(relation, column)
        if self.match_case:
            return member(value, name)
        members = f"map_entries(try_variant_get({value}, '$', 'map<string, variant>'))"
        return f"get(filter({members}, m -> lower(m.key) = {literal(name.lower())}), 0).value"

    def cell(self, image: str, relation: str, column: str) -> str:
        """Return the value of a column in an image, as VARIANT."""
        top, base = (self.member(f"{image}.{side}", relation, column) for side in ("top", "base"))
        return f"coalesce({top}, {base})"


def inserted_image(top: str, *, base: str = "CAST(NULL AS VARIANT)") -> str:
    """Return the image of an inserted row: a column that ``top`` lacks is read from ``base``."""
    return row({"weight": "1", "top": top, "base": base})


def deleted_image(top: str, *, base: str = "CAST(NULL AS VARIANT)") -> str:
    """Return the image of a deleted row: a column that ``top`` lacks is read from ``base``."""
    return row({"weight": "-1", "top": top, "base": base})


def update_images(before: str, after: str, keys: Keys, names: ColumnNames) -> str:
    """Return the images of an update, given its before image and after image.

    For an input with keys, the before image is needed only if the key changed.
    """

    def has_new_key(relation: str) -> str:
        tests = []
        for column in keys[relation]:
            old, new = (
                f"CAST({names.cell(image, relation, column)} AS STRING)" for image in ("old", "new")
            )
            tests.append(f"NOT ({old} <=> {new})")
        return " OR ".join(tests)

    relations_with_keys = [name for name, columns in keys.items() if columns]
    if not relations_with_keys:
        return f"array({before}, {after})"
    # An input without keys always needs both images.
    needs_both = case("relation", relations_with_keys, has_new_key, "true")
    images = f"if({needs_both}, array(old, new), array(new))"
    return with_binding("new", after, with_binding("old", before, images))


def is_keyed(keys: Keys) -> str:
    """Return the SQL condition that the event belongs to an input with keys."""
    relations = ", ".join(literal(name) for name, columns in keys.items() if columns)
    return f"coalesce(relation IN ({relations}), false)" if relations else "false"


def route_relation(candidates: Sequence[str], tables: Mapping[str, str]) -> str:
    """Return the input of an event: the input of the first candidate name in ``tables``."""
    relations = (
        case(name, list(tables), lambda table: literal(tables[table]), "NULL")
        for name in candidates
    )
    return f"coalesce({', '.join(relations)})"


def unknown_table(table: str) -> str:
    """Return the error of an event whose table is not an input."""
    error_with_name = f"concat('the table ', {excerpt_of(table)}, ' of the event is not an input')"
    return f"coalesce({error_with_name}, 'the event does not name a table')"


def first_reason(reasons: Mapping[str, str]) -> str:
    """Return the SQL expression of the reason of the first true test; NULL if no test is true."""
    arms = " ".join(f"WHEN {test} THEN {reason}" for test, reason in reasons.items())
    return f"CASE {arms} END"


def check_events(
    feed: object,
    df: DataFrame,
    inputs: Mapping[str, pa.Schema],
    value: str,
    sequence: str | None,
    relations: Sequence[str | None],
) -> None:
    """Check that a stream has the columns that a feed reads, and that its relations are inputs.

    Raises:
        FeedError: The stream lacks a column, or the feed names a relation that is not an input.
    """
    check_columns(feed, df.columns, value, sequence)
    for name in relations:
        check_inputs(feed, inputs, name)
    check_inputs(feed, inputs, None)


def open_events(
    feed: object,
    df: DataFrame,
    inputs: Mapping[str, pa.Schema],
    *,
    value: str,
    sequence: str | None,
    relations: Sequence[str | None],
) -> DataFrame:
    """Return the parsed events of a stream.

    The columns are ``raw`` (the text), ``event`` (the parsed text) and ``stream_order`` (the order
    of the event by a column of the stream).

    Raises:
        FeedError: The stream lacks a column, or the feed names a relation that is not an input.
    """
    check_events(feed, df, inputs, value, sequence, relations)
    event_text = f"CAST({quote_name(value)} AS STRING)"
    order = sequence_expression(feed, df, sequence)
    rows = df.filter(f"{quote_name(value)} IS NOT NULL")
    rows = compute_once(
        rows,
        {
            "raw": f"make_valid_utf8({event_text})",
            "is_utf8": f"is_valid_utf8({event_text})",
            "stream_order": order,
        },
    )
    event = f"CASE WHEN is_utf8 THEN {parse_object('raw')} END"
    return compute_once(rows, {"event": event}, keep=("raw", "stream_order"))
