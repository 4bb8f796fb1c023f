"""Selections of the result tables for readers: the README's five rows, and two pages of tables.

``benchmarks/README.md`` has all rows, ``docs/benchmarks.md`` the tables of `PAGE_TABLES`,
``docs/comparison.md`` those of `COMPARISON_TABLES` and `OTHERS_FASTER`, and README.md the chart
`README_CHART` and one row for each of `HEADLINES`. A selection of a result file, table or column
that does not exist is left out, so it can be written before its benchmark has run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from benchmarks.result import Cell, Result, Row, find_table, format_cell


@dataclass(frozen=True)
class Selection:
    """A selection of one table.

    Args:
        result: Name of the result file, without its ending.
        table: Title of the table.
        caption: The sentence before the table.
        columns: The columns to show, in this order; a mapping renames them; empty for all.
        where: The accepted values of some columns; other rows are left out.
        across: A column whose values become the names of new columns (a pivot); None for no pivot.
        value: The column whose cells fill the new columns; a missing cell is replaced by the note
            of its row.
        below_one: Columns; rows in which none of them has a number below 1 are left out.
    """

    result: str
    table: str
    caption: str
    columns: Mapping[str, str] | tuple[str, ...]
    where: Mapping[str, tuple[Cell, ...]] = field(default_factory=dict)
    across: str | None = None
    value: str | None = None
    below_one: tuple[str, ...] = ()

    def rows(self, results: Mapping[str, Result]) -> list[Row]:
        """Return the rows to show; none if the result does not exist.

        >>> table = [{"n": n, "system": system, "ms": 5 * n} for n in (1, 2) for system in "ab"]
        >>> results = {"race": Result("race", "Claim", {"Times": table})}
        >>> Selection("race", "Times", "", ("n",), across="system", value="ms").rows(results)
        [{'n': 1, 'a': 5, 'b': 5}, {'n': 2, 'a': 10, 'b': 10}]
        """
        table = find_table(results, self.result, self.table)
        rows = [row for row in table if _matches(row, self.where) and self._is_below_one(row)]
        columns = self.columns or tuple(dict.fromkeys(name for row in rows for name in row))
        titles = columns if isinstance(columns, Mapping) else {n: n for n in columns}
        titles = {name: title for name, title in titles.items() if any(name in r for r in rows)}
        if self.across is None:
            return [{title: row.get(name) for name, title in titles.items()} for row in rows]
        return self._pivot(rows, titles)

    def _is_below_one(self, row: Row) -> bool:
        values = [row.get(column) for column in self.below_one]
        return not values or any(isinstance(v, int | float) and v < 1 for v in values)

    def _pivot(self, rows: list[Row], titles: Mapping[str, str]) -> list[Row]:
        """Return one row for each combination of values in the columns of ``titles``."""
        across, value = self.across or "", self.value or ""
        if not any(across in row and value in row for row in rows):
            return []
        names = list(dict.fromkeys(format_cell(row[across]) for row in rows))
        rows_by_key: dict[tuple[Cell, ...], Row] = {}
        for row in rows:
            key = tuple(row.get(name) for name in titles)
            empty = {**dict(zip(titles.values(), key, strict=True)), **dict.fromkeys(names)}
            rows_by_key.setdefault(key, empty)[format_cell(row[across])] = _cell_or_note(row, value)
        return list(rows_by_key.values())


def _cell_or_note(row: Row, value: str) -> Cell:
    """Return a cell, a lower bound if the system was stopped, or the note if there is no value.

    >>> _cell_or_note({"times": 20.0, "note": "stopped after 9 s"}, "times")
    '> 20'
    """
    note = row.get("note")
    if row.get(value) is None:
        return note
    stopped = isinstance(note, str) and note.startswith("stopped")
    return f"> {format_cell(row[value])}" if stopped else row[value]


def _matches(row: Row, where: Mapping[str, tuple[Cell, ...]]) -> bool:
    return all(row.get(name) in values for name, values in where.items())


@dataclass(frozen=True)
class Headline:
    """A row of the README's table: one measurement compared with one other system.

    Args:
        task: The work that both systems did.
        result: Name of the result file, without its ending.
        table: Title of the table.
        where: Column values that select exactly one row.
        against: The other system, and how it did the work.
    """

    task: str
    result: str
    table: str
    where: Mapping[str, Cell]
    against: str

    def rows(self, results: Mapping[str, Result]) -> list[Row]:
        """Return the row in a list; an empty list if the table has no such row.

        >>> results = {"race": Result("race", "", {"Times": [{"n": 1, "times faster": 12.34}]})}
        >>> Headline("a race", "race", "Times", {"n": 1}, "the other").rows(results)
        [{'task': 'a race', 'compared with': 'the other', 'times faster': 12.34}]
        """
        table = find_table(results, self.result, self.table)
        rows = [row for row in table if self.where.items() <= row.items()]
        return [
            {
                "task": self.task,
                "compared with": self.against,
                "times faster": _cell_or_note(row, "times faster"),
            }
            for row in rows
        ]


README_CHART = "peers-live"

_EMAIL_INSERTS: Mapping[str, Cell] = {
    "query": "triangles",
    "graph": "email-Eu-core",
    "change": "insert",
    "batch": 100,
}
HEADLINES: tuple[Headline, ...] = (
    Headline(
        "triangles of the graph email-Eu-core, kept up to date: a step of 100 new edges",
        "peers",
        "LIVE",
        {**_EMAIL_INSERTS, "system": "spark-streams"},
        "stream-stream joins of Spark",
    ),
    Headline(
        "the same",
        "peers",
        "LIVE",
        {**_EMAIL_INSERTS, "system": "pathway"},
        "Pathway",
    ),
    Headline(
        "triangles of a web graph of 3 million edges, kept up to date: a step of 1,000 new edges",
        "live",
        "LIVE",
        {"graph": "uk-2007-05-100000", "change": "insert", "batch": 1_000},
        "differential dataflow's delta query (Rust), published figures",
    ),
    Headline(
        "triangles of the same web graph, counted once, 2 threads",
        "peers",
        "BULK",
        {
            "query": "triangles",
            "graph": "uk-2007-05-100000",
            "threads": 2,
            "system": "kuzu",
        },
        "Kùzu's worst-case-optimal plan",
    ),
    Headline(
        "the transitive imports in the source code of Apache Kafka: one commit of git",
        "recursion",
        "Median step against recomputation",
        {"system": "DuckDB"},
        "WITH RECURSIVE in DuckDB, recomputed",
    ),
)

# The order of the sections in benchmarks/README.md; files that are not named come last.
SECTIONS: Mapping[str, str] = {
    "live": "Live: a count maintained under inserts and deletes",
    "peers": "Against other systems",
    "growth": "Cost by size of state, delta, skew, views and threads",
    "threads": "Threads: the work of a step that they share",
    "patterns": "Patterns in labelled graphs",
    "formulas": "The six delta formulas",
    "circuits": "SQL views",
    "recursion": "A recursive view",
    "datalog": "Datalog programs",
    "nexmark": "Nexmark: streaming queries",
    "tpch": "TPC-H: loading and small steps",
    "feeds": "Change feeds",
    "windows": "Window functions",
    "bounded_state": "State of a long stream",
    "new_strings": "A stream of new strings",
    "program_change": "A change of the views",
    "latency": "The largest step",
    "object_store": "State in an object store",
    "sink": "The durable sink",
    "medallion": "Refreshes of a medallion pipeline",
    "tpch_refresh": "Refreshes of the views of TPC-H",
    "tpcdi_refresh": "Refreshes of views in the manner of TPC-DI",
    "policies": "Maintain or recompute a view of a pipeline",
    "beyond_memory": "State larger than memory",
    "scale": "Scale: HyperCube on Spark executors",
    "work": "Counted work",
}

PAGE_TABLES: tuple[Selection, ...] = (
    Selection(
        "live",
        "LIVE",
        "Times faster than dogsdogsdogs (delta queries of differential dataflow, in Rust), by rows "
        "in a step",
        ("graph", "change"),
        across="batch",
        value="times faster",
    ),
    Selection(
        "live",
        "Backfill and state",
        "Loading 90 % of the edges in one step; and a later step of one edge, between two nodes of "
        "low degree and between the two largest hubs",
        (
            "graph",
            "loaded",
            "seconds",
            "times faster",
            "ns/candidate",
            "bytes/edge",
            "low degree us",
            "hubs us",
            "hubs met",
        ),
    ),
    Selection(
        "peers",
        "BULK",
        "One count from scratch: times faster than each system, by wall time with as many threads",
        ("query", "graph", "edges", "threads"),
        across="system",
        value="times faster",
    ),
    Selection(
        "peers",
        "LIVE",
        "The count maintained under inserts: times faster than each system, by rows in a step",
        ("query", "graph", "batch"),
        where={"change": ("insert",), "batch": (1, 100, 1_000)},
        across="system",
        value="times faster",
    ),
    Selection(
        "peers",
        "LSQB",
        "Milliseconds for a step of 100 rows of an LSQB query, one thread",
        ("query", "rows loaded"),
        across="system",
        value="step ms",
    ),
    Selection(
        "growth",
        "State",
        "Steps at fixed delta and degree while the state grows",
        ("graph", "rows", "batch", "step ms", "growth", "target", "met", "bytes/row"),
        where={"batch": (1_000,)},
    ),
    Selection(
        "patterns",
        "Named patterns",
        "Edges per CPU second of a maintained pattern; the best of Graphflow, TurboFlux and SymBi "
        "(measured in another run on a busy machine, one edge at a time)",
        {
            "pattern": "pattern",
            "batch": "edges in a step",
            "edges/CPU s": "edges/CPU s",
            "candidates/match": "candidates/match",
            "best C++ engine": "best C++ engine",
            "its edges/s": "its edges/s",
            "target edges/s": "target edges/s",
            "times faster": "times faster",
            "met": "target met",
        },
    ),
    Selection(
        "formulas",
        "Verdict",
        "Claims about recursive formulas, and the measurements that test them",
        ("claim", "measured"),
    ),
    Selection(
        "formulas",
        "Choice",
        "Time of a step relative to the fastest of the six formulas, over all cases",
        {
            "formula": "formula",
            "cases": "cases",
            "stopped": "stopped",
            "within 10 %": "within 10 % of the fastest",
            "mean ratio to the fastest": "mean ratio to the fastest",
            "worst": "worst ratio",
        },
    ),
    Selection(
        "formulas",
        "Crossover",
        "The number n of relations from which on a recursive formula has fewer joins than "
        "`collapsed`, and from which on it is faster, by rows in a step",
        (
            *("shape", "changed", "batch"),
            *("fewer joins from n", "faster from n, uniform", "faster from n, skewed"),
        ),
        where={"batch": (1_000,), "changed": ("one", "all")},
    ),
    Selection(
        "circuits",
        "SQL views",
        "A step of 100 rows against DuckDB's query, without changing DuckDB's tables",
        ("query", "rows loaded", "step ms", "DuckDB query ms", "times faster"),
    ),
    Selection(
        "recursion",
        "Median step against recomputation",
        "A commit of Kafka's history: the closure of its imports kept up to date, and recomputed",
        ("system", "recompute CPU s", "step CPU ms", "times faster", "target", "met"),
    ),
    Selection(
        "recursion",
        "Maintained by another system",
        "The same view in pydbsp, for as many commits as pydbsp processes in a minute",
        {
            "transactions": "commits",
            "pairs": "pairs",
            "step CPU ms": "step CPU ms",
            "pydbsp step CPU ms": "pydbsp step CPU ms",
            "pydbsp last steps CPU ms": "pydbsp last steps CPU ms",
            "times faster": "times faster",
        },
    ),
    Selection(
        "datalog",
        "From scratch",
        "Datalog programs on generated facts and on cnr-2000, from scratch, one thread",
        (
            *("program", "facts", "rows", "CPU s", "first run CPU s", "peak MB", "DuckDB CPU s"),
            "DuckDB first run CPU s",
            *("times faster than DuckDB", "times faster than clingo"),
        ),
    ),
    Selection(
        "datalog",
        "Changes of 1 %",
        "The same programs while 1 % of the facts change in each step; the others recompute",
        (
            *("program", "rows", "median CPU s of a step", "first change CPU s", "DuckDB CPU s"),
            *("times faster than DuckDB", "times faster than clingo"),
        ),
    ),
    Selection(
        "sink",
        "Overhead of a durable sink",
        "A micro-batch through the durable sink, and through a function that only fetches the rows",
        ("rows/batch", "view keeps", "bare ms", "sink ms", "target ms", "met"),
        where={"on_delta": (None,)},
    ),
    Selection(
        "medallion",
        "Refreshes of a medallion pipeline",
        "Five tables of change events, 15 views in three layers, Delta tables; Spark computes the "
        "same views from all events. Published for such a pipeline elsewhere: a vendor's "
        "incremental pipeline 86 s, Feldera 0.37 s",
        (),
    ),
    Selection(
        "tpch",
        "SMALL STEPS",
        "One order with its lineitems through the 22 views of TPC-H in one circuit",
        (
            *("step", "operators", "operators run", "Python calls", "median CPU ms"),
            *("target ms", "idle operator us", "target us", "met"),
        ),
    ),
    Selection(
        "tpch",
        "OPENIVM",
        "Views of OpenIVM's benchmark after 6,000 changed lineitems, and DuckDB's recomputation",
        (
            *("query", "lineitems", "median CPU ms", "target ms", "met", "OpenIVM, published ms"),
            *("DuckDB recomputes, CPU ms", "times DuckDB"),
        ),
    ),
    Selection(
        "latency",
        "The largest step against the median",
        "Micro-batches of one stream: ten loads, then small steps",
        (
            *("state", "rows/step", "steps", "median CPU ms", "p99 CPU ms", "max CPU ms"),
            *("max/median", "target", "met", "max ms"),
        ),
    ),
    Selection(
        "scale",
        "Cells",
        "Load of 8 cells, and copies of a row compared with theory",
        (
            *("query", "graph", "heavy values", "values spread", "max/mean", "target", "met"),
            *("copies", "theory"),
        ),
        where={"cells": (8,), "graph": ("uk-2007-05-100000", "hub-17-60000")},
    ),
    Selection(
        "scale",
        "Micro-batches on two cores",
        "A micro-batch of new edges, of one row and of none (`idle`), embedded (without cells) "
        "and in cells on the same two cores",
        (
            *("query", "cells", "stages", "max/mean", "rows/batch", "batch s", "one row s"),
            *("idle s", "target s", "met"),
        ),
        where={"query": ("triangles",)},
    ),
)

# Nexmark's queries for which Feldera publishes a rate.
_FELDERA_QUERIES = (*("q3", "q4", "q5", "q7", "q8", "q9"), *("q15", "q16", "q18", "q19", "q20"))

COMPARISON_TABLES: tuple[Selection, ...] = (
    Selection(
        "nexmark",
        "NEXMARK",
        "**Feldera.** Events per CPU second here, by events in a micro-batch; and the events per "
        "second and core that Feldera publishes for another machine, from which no ratio follows",
        {"query": "query", "Feldera, published": "Feldera, published"},
        where={"query": _FELDERA_QUERIES},
        across="events in a micro-batch",
        value="events per CPU second",
    ),
    Selection(
        "policies",
        "A step against recomputation, by the size of the change",
        "**Spark's declarative pipelines**, which compute a materialized view as a whole in each "
        "run. A view after a change of 1 % of its rows: a step, and recomputation by Spark",
        {
            "view": "view",
            "changed rows": "changed rows",
            "rows below": "rows of the tables and views that it reads",
            "step s": "step s",
            "recomputation s": "recomputation s",
            "times faster": "times faster",
        },
        where={"changed %": (1.0,)},
    ),
    Selection(
        "medallion",
        "Refreshes of a medallion pipeline",
        "The same for a pipeline of 15 views in three layers, from Delta tables to Delta tables",
        (),
    ),
    Selection(
        "tpch_refresh",
        "Refreshes of the 22 views of TPC-H",
        "The same for the queries of TPC-H as 22 views, after its refresh functions: 0.1 % of the "
        "orders with their lineitems are inserted (RF1) or deleted (RF2)",
        (),
    ),
    Selection(
        "tpcdi_refresh",
        "Refreshes of views in the manner of TPC-DI",
        "The same for eight views of a broker: all versions of customers and accounts, running "
        "balances, the extremes of 52 weeks. The rows are generated, not the data of TPC-DI",
        (),
    ),
    Selection(
        "tpch",
        "OPENIVM",
        "**OpenIVM and DuckDB.** Views of OpenIVM's benchmark after 6,000 changed lineitems. "
        "OpenIVM's times are published ones of another machine; DuckDB computes the query again",
        (
            *("query", "lineitems", "median CPU ms", "OpenIVM, published ms"),
            *("DuckDB recomputes, CPU ms", "times DuckDB"),
        ),
    ),
    Selection(
        "live",
        "LIVE",
        "**Differential dataflow.** Times faster than its delta query `dogsdogsdogs` (Rust): a "
        "count of triangles while edges are inserted, by edges in a step. Its figures were "
        "measured on another machine and scaled. `rmat-18-2000000` is the graph on which `--place` "
        "measures the scale",
        ("graph",),
        where={"change": ("insert",)},
        across="batch",
        value="times faster",
    ),
    Selection(
        "peers",
        "LIVE",
        "**Spark, Pathway, pydbsp, DuckDB**, side by side. Times faster in steps of 100 new edges",
        ("query", "graph"),
        where={"change": ("insert",), "batch": (100,)},
        across="system",
        value="times faster",
    ),
)

# A number below 1 says that the other system is faster.
OTHERS_FASTER: tuple[Selection, ...] = (
    Selection(
        "patterns",
        "Named patterns",
        "The best of three C++ engines of subgraph matching (Graphflow, TurboFlux, SymBi), which "
        "take one edge at a time",
        {
            "pattern": "pattern",
            "batch": "edges in a step",
            "edges/CPU s": "edges/CPU s",
            "best C++ engine": "best C++ engine",
            "its edges/s": "its edges/s",
            "times faster": "times faster",
        },
        below_one=("times faster",),
    ),
    *(
        Selection(
            "datalog",
            table,
            caption,
            (
                *("program", "facts", "rows", ours, "DuckDB CPU s", "times faster than DuckDB"),
                "times faster than clingo",
            ),
            below_one=("times faster than DuckDB", "times faster than clingo"),
        )
        for table, ours, caption in (
            ("From scratch", "CPU s", "Datalog programs, from scratch"),
            (
                "Changes of 1 %",
                "median CPU s of a step",
                "The same programs, 1 % of the facts change",
            ),
        )
    ),
)
