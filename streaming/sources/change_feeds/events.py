"""Events: what the feeds of JSON have in common, up to the rows that an event says come and go.

A feed of JSON (`debezium`, `maxwell`, `canal`, `upsert`) reads an event into columns::

    raw        the text                     relation   the input, NULL when it is none of them
    skip       nothing to do                error      why it cannot be taken
    sequence   its order                    images     the rows that come and go
    fields     what the event says of its own columns, NULL where it does not

An image is a row as two JSON objects: ``top``, and ``base`` for the columns that ``top`` does not
have; so "the row before" is what an update says of old columns over what it says of new ones.
`streaming.sources.change_feeds.row_images` reads them as rows of the envelope.

All are expressions of Spark SQL (`streaming.sources.change_feeds.sql_expressions`). An event is
parsed once, into a VARIANT: strict JSON in UTF-8, one object, no member twice. Spark reads none
that is larger than 20 million characters, has a number of more than 1,000 digits, or is nested
deeper than 1,000 levels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame

from streaming.errors import FeedError
from streaming.sources.change_feeds.feed import Keys, check_inputs, held, needs, sequence_of
from streaming.sources.change_feeds.sql_expressions import bound, case, literal, quoted, row, shown

__all__ = [
    "NO_FIELDS",
    "UNREADABLE",
    "Names",
    "image",
    "member",
    "opened",
    "parsed",
    "routed",
    "text",
    "update_of",
]

NO_FIELDS = "CAST(NULL AS ARRAY<STRUCT<field: STRING, bytes: BOOLEAN, scale: INT, unit: BIGINT>>)"
UNREADABLE = (
    "the text is no JSON object in UTF-8, or repeats a member, or is too long or nested too deep"
)


def parsed(text: str) -> str:
    """One JSON object as VARIANT; NULL for all else, also for two of them."""
    first, second = (f"try_variant_get(listed, '$[{place}]', 'variant')" for place in (0, 1))
    begins = literal(r"^\s*\{")
    one = f"CASE WHEN {second} IS NULL AND {text} RLIKE {begins} THEN {first} END"
    return bound("listed", f"try_parse_json(concat('[', {text}, ']'))", one)


def member(value: str, *names: str) -> str:
    """The member of a JSON object as VARIANT; NULL when there is none, not when it is null."""
    return f"try_variant_get({value}, {literal(_path(*names))}, 'variant')"


def text(value: str, *names: str) -> str:
    """The member of a JSON object as text; NULL when there is none or it is null."""
    return f"try_variant_get({value}, {literal(_path(*names))}, 'string')"


def number(value: str, *names: str) -> str:
    """The member of a JSON object as an integer; NULL when it is none."""
    return f"try_variant_get({value}, {literal(_path(*names))}, 'bigint')"


def present(value: str, *names: str) -> str:
    """The member of a JSON object as VARIANT; NULL also when it is null."""
    return bound("found", member(value, *names), "if(is_variant_null(found), NULL, found)")


def _path(*names: str) -> str:
    """The JSON path of a member.

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
class Names:
    """How the columns of inputs are called in events.

    Args:
        rename: Names in events that are columns of another name: ``{"weight": "mass"}``, or
            ``{"product.weight": "mass"}`` for one relation.
        match_case: Whether ``ID`` is no ``id``.
    """

    rename: Mapping[str, str]
    match_case: bool

    def name(self, relation: str, column: str) -> str:
        """The name in events of a column."""
        for name, renamed in self.rename.items():
            table, _, short = name.rpartition(".")
            if renamed == column and table == relation:
                return short
        for name, renamed in self.rename.items():
            if renamed == column and "." not in name:
                return name
        return column

    def member(self, value: str, relation: str, column: str) -> str:
        """The member of a row of an event that is the column, as VARIANT."""
        name = self.name(relation, column)
        if self.match_case:
            return member(value, name)
        members = f"map_entries(try_variant_get({value}, '$', 'map<string, variant>'))"
        return f"get(filter({members}, m -> lower(m.key) = {literal(name.lower())}), 0).value"

    def cell(self, image: str, relation: str, column: str) -> str:
        """The member of an image that is the column, as VARIANT."""
        top, base = (self.member(f"{image}.{side}", relation, column) for side in ("top", "base"))
        return f"coalesce({top}, {base})"


def image(weight: int, top: str, base: str = "CAST(NULL AS VARIANT)") -> str:
    """A row that comes (1) or goes (-1)."""
    return row({"weight": str(weight), "top": top, "base": base})


def update_of(before: str, after: str, keys: Keys, names: Names) -> str:
    """The images of an update, given the images of weight -1 and 1.

    Of an input with keys the new row alone, and the old key only if it is another one.
    """

    def moved(relation: str) -> str:
        tests = (
            "NOT ({} <=> {})".format(
                *(f"CAST({names.cell(i, relation, column)} AS STRING)" for i in ("old", "new"))
            )
            for column in keys[relation]
        )
        return " OR ".join(tests)

    keyed = [name for name, columns in keys.items() if columns]
    if not keyed:
        return f"array({before}, {after})"
    both = case("relation", keyed, moved, "true")
    images = f"if({both}, array(old, new), array(new))"
    return bound("new", after, bound("old", before, images))


def is_keyed(keys: Keys) -> str:
    """Whether the event is of an input with keys."""
    known = ", ".join(literal(name) for name, columns in keys.items() if columns)
    return f"coalesce(relation IN ({known}), false)" if known else "false"


def routed(candidates: Sequence[str], tables: Mapping[str, str]) -> str:
    """The input of an event, by the first of its names that is known."""
    routes = (case(name, list(tables), lambda t: literal(tables[t]), "NULL") for name in candidates)
    return f"coalesce({', '.join(routes)})"


def unknown_table(table: str) -> str:
    """The reason not to take an event of no input."""
    return (
        f"concat('the event is of ', coalesce({shown(table)}, 'no table'), ', which is no input')"
    )


def first_of(reasons: Mapping[str, str]) -> str:
    """The reason of the first test that is true, both in SQL; NULL without any."""
    arms = " ".join(f"WHEN {test} THEN {reason}" for test, reason in reasons.items())
    return f"CASE {arms} END"


def opened(
    feed: object,
    df: DataFrame,
    inputs: Mapping[str, pa.Schema],
    *,
    value: str,
    sequence: str | None,
    relations: Sequence[str | None],
) -> DataFrame:
    """The events of a stream, parsed: ``raw``, ``event``, and ``given``, the order from outside.

    Raises:
        FeedError: The stream lacks a column, or the feed names what is no input.
    """
    needs(feed, df, value, sequence)
    for name in relations:
        check_inputs(feed, inputs, name)
    check_inputs(feed, inputs, None)
    text = f"CAST({quoted(value)} AS STRING)"
    order = sequence_of(feed, df, sequence)
    rows = df.filter(f"{quoted(value)} IS NOT NULL")
    rows = held(
        rows,
        {
            "raw": f"make_valid_utf8({text})",
            "is_text": f"is_valid_utf8({text})",
            "given": order,
        },
    )
    event = f"CASE WHEN is_text THEN {parsed('raw')} END"
    return held(rows, {"event": event}, keep=("raw", "given"))
