"""Recomputation: views that Spark computes as a whole, because the circuit cannot maintain them.

Such a view is an input of the circuit. Its changes are the difference between the rows that Spark
has computed and those that the state has. So other views read it as they read any view, its target
receives the changed rows only, and a refresh that computes the same rows writes nothing.

::

    sources ──► circuit ──► rows of the relations that the view reads ──► Spark ──► new rows
                   ▲                                                                   │
                   └────────────── new rows - rows in the state ◄──────────────────────┘

The columns of the view are those that Spark finds for the query. They are part of the program, so
they are stored beside the state: Spark starts only if a view has to be computed, or its query or
the columns below it are new.

A name in the query of such a view that is the name of a relation counts as read. This may find too
many relations, never too few: the text need not be SQL that this package can parse.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final, Literal, Protocol, get_args

import pyarrow as pa

from circuits.sql import Obstacle, ViewStatement

__all__ = [
    "POLICIES",
    "Policy",
    "RecomputedView",
    "ViewComputer",
    "blank_statements",
    "dependents_of",
    "is_of_spark",
    "key_of",
    "obstacles_of",
    "relations_read",
    "views_below",
]

#: Which views Spark computes as a whole: those that the circuit cannot maintain, none,
#: or all that are not temporary.
Policy = Literal["auto", "incremental", "full"]
POLICIES: tuple[str, ...] = get_args(Policy)
_BY_NAME: Final = re.compile(r"\bUNION\s+(ALL\s+|DISTINCT\s+)?BY\s+NAME\b", re.IGNORECASE)


class ViewComputer(Protocol):
    """Computes whole views; `streaming.pipeline.spark_views.SparkViews` does."""

    def schema_of(self, view: ViewStatement, relations: Mapping[str, pa.Schema]) -> pa.Schema:
        """Return the columns of a view.

        Args:
            view: The view.
            relations: The columns of the relations that it reads.

        Raises:
            RecomputationError: The query is not valid.
        """
        ...

    def rows_of(self, view: ViewStatement, relations: Mapping[str, pa.Table]) -> pa.Table:
        """Return the rows of a view.

        Args:
            view: The view.
            relations: The rows of the relations that it reads, with ``weight``.

        Raises:
            RecomputationError: The query failed.
        """
        ...


@dataclass(frozen=True)
class RecomputedView:
    """A view that is computed as a whole.

    Attributes:
        statement: The statement of the view.
        reason: Why it is not maintained.
        reads: The relations that it reads, by the names that they have in the pipeline.
        schema: Its columns.
        key: Identifies the query, the queries of the views below it, and their columns.
        tables: The source tables below it.
    """

    statement: ViewStatement
    reason: str
    reads: tuple[str, ...]
    schema: pa.Schema
    key: str
    tables: frozenset[str] = field(default_factory=frozenset)

    @property
    def input(self) -> str:
        """The name of its input in the circuit."""
        return f"{self.statement.name}__recomputed"


def is_of_spark(view: ViewStatement) -> bool:
    """Return False if Spark cannot read the query of a view: it lacks UNION BY NAME.

    A table with flows has such a query (`circuits.sql.flows`).
    """
    return _BY_NAME.search(view.query) is None


def relations_read(view: ViewStatement, relations: Iterable[str]) -> tuple[str, ...]:
    """Return those of some relations that a view names, without itself."""
    own = view.name.casefold()
    return tuple(
        name for name in relations if name.casefold() in view.words and name.casefold() != own
    )


def dependents_of(names: Collection[str], views: Iterable[ViewStatement]) -> set[str]:
    """Return the views that read some relations, directly or by other views; in lower case."""
    views = list(views)
    roots = {name.casefold() for name in names}
    found: set[str] = set()
    while True:
        more = {
            view.name.casefold()
            for view in views
            if not ((roots | found) - {view.name.casefold()}).isdisjoint(view.words)
        } - found
        if not more:
            return found
        found |= more


def blank_statements(text: str, views: Iterable[ViewStatement]) -> str:
    """Return a text with blanks in place of some statements, so that all positions stay."""
    for view in views:
        blanks = "".join(
            character if character == "\n" else " " for character in text[view.start : view.end]
        )
        text = text[: view.start] + blanks + text[view.end :]
    return text


def obstacles_of(view: ViewStatement, text: str, obstacles: Iterable[Obstacle]) -> list[Obstacle]:
    """Return the obstacles inside the statement of a view."""
    starts = [0]
    for line in text.split("\n"):
        starts.append(starts[-1] + len(line) + 1)
    return [
        obstacle
        for obstacle in obstacles
        if view.start <= starts[obstacle.line - 1] + obstacle.column - 1 < view.end
    ]


def views_below(view: ViewStatement, views: Iterable[ViewStatement]) -> list[ViewStatement]:
    """Return the views that a view reads, directly or by other views, in the order given."""
    views = list(views)
    name = view.name.casefold()
    return [
        other
        for other in views
        if other.name != view.name
        and (other.name.casefold() in view.words or name in dependents_of([other.name], views))
    ]


def key_of(
    view: ViewStatement, relations: Mapping[str, pa.Schema], below: Iterable[ViewStatement] = ()
) -> str:
    """Return a text that identifies what a view computes.

    Args:
        view: The view.
        relations: The columns of the relations that it reads.
        below: The views that it reads, directly or by other views: if the query of one of them
            changes, the rows of this view may change.
    """
    columns = [(name, str(schema)) for name, schema in sorted(relations.items())]
    queries = sorted((other.name, other.columns, other.query) for other in below)
    text = repr((view.columns, view.query, columns, queries))
    return sha256(text.encode()).hexdigest()[:32]
