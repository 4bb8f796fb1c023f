"""Routing: find the relation that an event of Canal or Maxwell changes, by its table and type."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping

from streaming.sources.change_feeds.canal import CanalFeed
from streaming.sources.change_feeds.compiled.images import RelationImages, group_events
from streaming.sources.change_feeds.compiled.scanner import Integers, Mask, ScannedEvents
from streaming.sources.change_feeds.maxwell import MaxwellFeed

__all__ = ["route_events"]


def route_events(
    events: ScannedEvents,
    feed: CanalFeed | MaxwellFeed,
    relations: Mapping[str, RelationImages],
    row_types: Container[str | None],
    refused: Mask,
) -> Iterator[tuple[str, RelationImages, Integers]]:
    """Yield the groups of events with the same type and table: type, relation, event numbers.

    Args:
        events: The events of a slice.
        feed: Its options map tables to relations.
        relations: The relations whose events can be decoded here.
        row_types: The types of events that change rows.
        refused: The refused events. Added to it are events of another type, and those of a table
            that has no relation in ``relations``. If the feed has ``ignore_unknown_tables``, events
            that change rows of an unknown table are skipped instead.
    """
    for first, numbers in group_events(events, ("type", "database", "table"), refused):
        try:
            kind = events.text(first, "type")
            database, table = events.text(first, "database"), events.text(first, "table")
        except ValueError:
            refused[numbers] = True
            continue
        name = feed.relation or _find_relation(feed.tables, database, table)
        is_row = kind is not None and kind in row_types
        if is_row and name is None and feed.ignore_unknown_tables:
            continue
        relation = relations.get(name or "")
        if kind is None or not is_row or relation is None:
            refused[numbers] = True
            continue
        yield kind, relation, numbers


def _find_relation(
    tables: Mapping[str, str], database: str | None, table: str | None
) -> str | None:
    """Return the relation of ``database.table``, or else of ``table``; None without either."""
    if table is None:
        return None
    full_name = None if database is None else f"{database}.{table}"
    return tables.get(full_name or table, tables.get(table))
