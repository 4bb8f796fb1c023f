"""Face: which rows and columns of which result the README shows, one table for each promise.

All rows are in ``benchmarks/README.md``; the README has those that decide. A face of a result file,
table or column that is not there is left out, so faces can be written before what they show.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from benchmarks.result import Cell, Result, Row, text


@dataclass(frozen=True)
class Face:
    """A selection of one table.

    Args:
        result: Name of the result file, without its ending.
        table: Title of the table.
        caption: What is to be seen, before the table.
        columns: Those to show, in this order, by name; under a name of their own if they need one.
            All, if none is named.
        where: For some columns the values that a row must have one of.
        across: A column whose values become columns, ...
        value: ... with the cells of this one; where there is none, the row's note on why.
    """

    result: str
    table: str
    caption: str
    columns: Mapping[str, str] | tuple[str, ...]
    where: Mapping[str, tuple[Cell, ...]] = field(default_factory=dict)
    across: str | None = None
    value: str | None = None

    def rows(self, results: Mapping[str, Result]) -> list[Row]:
        """The rows to show; none if the result is not there.

        >>> table = [{"n": n, "system": s, "ms": n * t} for n in (1, 2) for s, t in ("a2", "b3")]
        >>> found = {"race": Result("race", "Claim", {"Times": table})}
        >>> Face("race", "Times", "", ("n",), across="system", value="ms").rows(found)
        [{'n': 1, 'a': '2', 'b': '3'}, {'n': 2, 'a': '22', 'b': '33'}]
        """
        result = results.get(self.result)
        table = [] if result is None else result.tables.get(self.table, [])
        chosen = [row for row in table if _matches(row, self.where)]
        columns = self.columns or tuple(dict.fromkeys(name for row in chosen for name in row))
        named = columns if isinstance(columns, Mapping) else {n: n for n in columns}
        present = {name: shown for name, shown in named.items() if any(name in r for r in chosen)}
        if self.across is None:
            return [{shown: row.get(name) for name, shown in present.items()} for row in chosen]
        return self._turned(chosen, present)

    def _turned(self, rows: list[Row], kept: Mapping[str, str]) -> list[Row]:
        """One row for each value of the kept columns."""
        across, value = self.across or "", self.value or ""
        if not any(across in row and value in row for row in rows):
            return []
        names = list(dict.fromkeys(text(row[across]) for row in rows))
        turned: dict[tuple[Cell, ...], Row] = {}
        for row in rows:
            key = tuple(row.get(name) for name in kept)
            empty = {**dict(zip(kept.values(), key, strict=True)), **dict.fromkeys(names)}
            turned.setdefault(key, empty)[text(row[across])] = _noted(row, value)
        return list(turned.values())


def _noted(row: Row, value: str) -> Cell:
    """A cell; of a system that was stopped it is a lower bound, and one without says why.

    >>> _noted({"times": 20.0, "note": "stopped after 9 s"}, "times")
    '> 20'
    """
    note = row.get("note")
    if row.get(value) is None:
        return note
    stopped = isinstance(note, str) and note.startswith("stopped")
    return f"> {text(row[value])}" if stopped else row[value]


def _matches(row: Row, where: Mapping[str, tuple[Cell, ...]]) -> bool:
    return all(row.get(name) in values for name, values in where.items())


# The order of the sections in benchmarks/README.md; files that are not named come last.
SECTIONS: Mapping[str, str] = {
    "live": "Live: a count maintained under inserts and deletes",
    "peers": "Against other systems",
    "growth": "Growth: cost by size of state, delta, skew, views and threads",
    "formulas": "The six delta formulas",
    "circuits": "Circuits: SQL views",
    "recursion": "Recursion: a closure kept live",
    "sink": "The durable sink",
    "scale": "Scale: HyperCube on Spark executors",
    "work": "Counted work",
}

FACES: tuple[Face, ...] = (
    Face(
        "live",
        "LIVE",
        "Times faster than differential dataflow's delta query (Rust), by rows in a step",
        ("graph", "change"),
        across="batch",
        value="times faster",
    ),
    Face(
        "live",
        "Backfill and state",
        "Loading 90 % of the edges in one step",
        ("graph", "loaded", "seconds", "times faster", "bytes/edge"),
    ),
    Face(
        "peers",
        "BULK",
        "One count from scratch: times faster than each system, by wall time with as many threads",
        ("query", "graph", "edges", "threads"),
        across="system",
        value="times faster",
    ),
    Face(
        "peers",
        "LIVE",
        "The count maintained while edges come: times faster than each system, by rows in a step",
        ("query", "graph", "batch"),
        where={"change": ("insert",), "batch": (1, 100, 1_000)},
        across="system",
        value="times faster",
    ),
    Face(
        "peers",
        "LSQB",
        "Milliseconds for a step of 100 rows of an LSQB query, one thread",
        ("query", "rows loaded"),
        across="system",
        value="step ms",
    ),
    Face(
        "growth",
        "State",
        "Steps at fixed delta and degree while the state grows",
        ("graph", "rows", "batch", "step ms", "growth", "bar", "within", "bytes/row"),
        where={"batch": (1_000,)},
    ),
    Face(
        "formulas",
        "Verdict",
        "What is said of the recursive formula, and what is measured",
        ("claim", "measured"),
    ),
    Face(
        "formulas",
        "Choice",
        "A step of each formula by the fastest of the six, over all cases",
        ("formula", "cases", "stopped", "within 10 %", "by the fastest, mean", "worst"),
    ),
    Face(
        "formulas",
        "Crossover",
        "From how many relations on a recursion is faster than `collapsed`, by rows in a step",
        (
            *("shape", "changed", "batch"),
            *("fewer joins from n", "faster from n, uniform", "faster from n, skewed"),
        ),
        where={"batch": (1, 1_000, 100_000), "changed": ("one", "all")},
    ),
    Face(
        "circuits",
        "SQL views",
        "A step of 100 rows against DuckDB's query alone",
        ("query", "rows loaded", "step ms", "DuckDB query ms", "times faster"),
    ),
    Face(
        "recursion",
        "Median step against asking again",
        "A commit of Kafka's history, which class depends on which, against the closure anew",
        ("system", "asked again CPU s", "step CPU ms", "times faster", "bar", "within"),
    ),
    Face(
        "recursion",
        "Kept live by another system",
        "Kept live by pydbsp, as many of the first commits as it takes in a minute",
        {
            "transactions": "commits",
            "pairs": "pairs",
            "step CPU ms": "step CPU ms",
            "its step CPU ms": "its step",
            "its last steps CPU ms": "its last steps",
            "times faster": "times faster",
        },
    ),
    Face(
        "sink",
        "Overhead of a durable sink",
        "A micro-batch through the durable sink, and through a function that only fetches the rows",
        ("rows/batch", "view keeps", "bare ms", "sink ms", "bar ms", "within"),
        where={"on_delta": (None,)},
    ),
    Face(
        "sink",
        "Restart",
        "Restart from the state directory",
        {"rows": "rows", "columns": "columns", "with a first micro-batch s": "restart s"}
        | {"bar s": "bar s", "within": "within", "rebuild s": "rebuild from the rows s"},
    ),
    Face(
        "scale",
        "Cells",
        "How even 8 cells are, and copies of a row against theory",
        (
            *("query", "graph", "heavy values", "values spread", "max/mean", "bar", "within"),
            *("copies", "theory"),
        ),
        where={"cells": (8,)},
    ),
    Face(
        "scale",
        "Micro-batches on two cores",
        "A micro-batch of new edges, embedded (without cells) and in cells on the same two cores",
        (
            *("query", "cells", "stages", "max/mean", "rows/batch", "batch s", "one row s"),
            *("idle s", "bar s", "within"),
        ),
    ),
)
