"""Says which columns of the result files are plotted, and how; `plots` draws the charts.

A chart of a result file, table or column that does not exist is not drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from benchmarks.result import Cell, Result, Row, find_table, format_cell


class Point(NamedTuple):
    """A point of a line, or a bar; ``open`` if the value is a lower bound."""

    x: Cell
    y: float
    open: bool = False


class Mark(NamedTuple):
    """A horizontal line to compare with, and its label."""

    y: float
    text: str


Lines = dict[str, list[Point]]
Panels = dict[str, Lines]


@dataclass(frozen=True)
class Chart:
    """A plot of one table.

    Args:
        name: The name of its files.
        result: Name of the result file, without its ending.
        table: Title of the table.
        title: Title of the chart.
        x: The column along the horizontal axis, and its label.
        y: Columns that are drawn, with their labels in the legend.
        y_label: Quantity and unit of the vertical axis.
        lines: Columns; each combination of their values is a line, or a kind of bar.
        panel: Columns; each combination of their values is a panel.
        panel_title: Format of the panels' titles.
        where: Columns with the allowed values; other rows are left out.
        legend: Title of the legend.
        log: Which axes are logarithmic.
        kind: Lines, or bars over values of ``x`` that are not numbers.
        marks: Horizontal lines to compare with.
        stopped: A column, and how its text begins in rows whose ``y`` is a lower bound.
        on_page: docs/benchmarks.md shows the chart, too.
    """

    name: str
    result: str
    table: str
    title: str
    x: tuple[str, str]
    y: Mapping[str, str]
    y_label: str
    lines: tuple[str, ...] = ()
    panel: tuple[str, ...] = ()
    panel_title: str = "{}"
    where: Mapping[str, tuple[Cell, ...]] = field(default_factory=dict)
    legend: str | None = None
    log: Literal["", "x", "y", "xy"] = ""
    kind: Literal["lines", "bars"] = "lines"
    marks: tuple[Mark, ...] = ()
    stopped: tuple[str, str] | None = None
    on_page: bool = False

    @property
    def x_label(self) -> str:
        """Quantity and unit along the axis."""
        return self.x[1]

    def panels(self, results: Mapping[str, Result]) -> Panels:
        """Return the points by panel and line; empty if no row has the columns.

        A panel of lines is left out if all its points have one value of ``x``: the table shows
        them better.

        >>> rows = [{"n": n, "kind": k, "ms": 2.0 * n} for n in (1, 2) for k in "ab"]
        >>> results = {"race": Result("race", "Claim", {"Times": rows})}
        >>> chart = Chart("a", "race", "Times", "", ("n", "n"), {"ms": ""}, "ms", lines=("kind",))
        >>> chart.panels(results)[""]["b"]
        [Point(x=1, y=2.0, open=False), Point(x=2, y=4.0, open=False)]
        """
        panels: Panels = {}
        for row in find_table(results, self.result, self.table):
            if all(row.get(name) in values for name, values in self.where.items()):
                self._add(panels, row)
        if self.kind == "bars":
            return panels
        return {title: lines for title, lines in panels.items() if _spans_x(lines)}

    def _add(self, panels: Panels, row: Row) -> None:
        x = row.get(self.x[0])
        for column, y_name in self.y.items():
            y = row.get(column)
            if x is None or not isinstance(y, int | float):
                continue
            line_cells = [format_cell(row.get(name)) for name in self.lines]
            label = ", ".join([*line_cells, y_name]).strip(", ")
            panel = ", ".join(format_cell(row.get(name)) for name in self.panel)
            is_stopped = False
            if self.stopped is not None:
                column_of_note, beginning = self.stopped
                is_stopped = format_cell(row.get(column_of_note)).startswith(beginning)
            lines = panels.setdefault(panel, {})
            lines.setdefault(label, []).append(Point(x, float(y), is_stopped))


def _spans_x(lines: Lines) -> bool:
    """Return whether some line has at least two values of ``x``."""
    return any(len({point.x for point in points}) > 1 for points in lines.values())


CHARTS: tuple[Chart, ...] = (
    Chart(
        "live-rate",
        "live",
        "LIVE",
        "Edges per CPU second that a maintained count of triangles accepts, one thread",
        ("batch", "edges in a step"),
        {
            "edges/CPU s": "dbsp-wcoj",
            "dogsdogsdogs here": "differential dataflow, dogsdogsdogs (published, scaled)",
        },
        "edges per CPU second",
        panel=("graph",),
        where={"change": ("insert",)},
        log="xy",
        on_page=True,
    ),
    Chart(
        "live-latency",
        "live",
        "LIVE",
        "How long a step takes",
        ("batch", "edges in a step"),
        {"p50 ms": "median", "p99 ms": "99 %", "largest ms": "largest"},
        "milliseconds",
        panel=("graph",),
        where={"change": ("insert",)},
        log="xy",
    ),
    Chart(
        "peers-bulk",
        "peers",
        "BULK",
        "One count from scratch, from arrays in memory to the number",
        ("graph", ""),
        {"seconds": ""},
        "seconds",
        lines=("system",),
        panel=("query", "threads"),
        panel_title="{} thread(s)",
        log="y",
        kind="bars",
        stopped=("note", "stopped"),
    ),
    Chart(
        "peers-live",
        "peers",
        "LIVE",
        "Edges per second that a maintained count accepts",
        ("batch", "edges in a step"),
        {"edges/s": ""},
        "edges per second",
        lines=("system",),
        panel=("query", "graph"),
        where={"change": ("insert",)},
        log="xy",
        on_page=True,
    ),
    Chart(
        "peers-lsqb",
        "peers",
        "LSQB",
        "A step of 100 rows of a query over a social network",
        ("query", ""),
        {"step ms": ""},
        "milliseconds",
        lines=("system",),
        log="y",
        kind="bars",
        stopped=("note", "stopped"),
    ),
    Chart(
        "formulas",
        "formulas",
        "Times by atoms",
        "A step in which all relations change, 100 rows, skewed data, by the number of atoms",
        ("n", "atoms"),
        {"ms/step p50": ""},
        "milliseconds",
        lines=("formula",),
        panel=("shape",),
        where={"data": ("skewed",), "stopped": (False,)},
        log="y",
    ),
    Chart(
        "growth-state",
        "growth",
        "State",
        "A step at fixed delta and degree, while the state grows",
        ("rows", "rows of state"),
        {"step ms": ""},
        "milliseconds, median",
        lines=("graph", "batch"),
        legend="graph, rows in a step",
        log="xy",
        on_page=True,
    ),
    Chart(
        "growth-memory",
        "growth",
        "State",
        "Memory of state, both column orders",
        ("rows", "rows of state"),
        {"bytes/row": ""},
        "bytes for a row",
        lines=("graph",),
        where={"batch": (1,)},
        log="x",
        marks=(Mark(32.0, "8 bytes for each column and order"),),
    ),
    Chart(
        "growth-delta",
        "growth",
        "Delta",
        "A row of a step, by the rows of the step",
        ("batch", "rows in a step"),
        {"µs/row": ""},
        "microseconds for a row",
        log="xy",
    ),
    Chart(
        "growth-skew",
        "growth",
        "Skew",
        "A candidate of a step, by skew",
        ("Zipf", "Zipf's exponent"),
        {
            "ns/candidate": "CPU nanoseconds for a candidate",
            "candidates/row": "candidates for a row",
        },
        "nanoseconds; candidates",
        log="y",
    ),
    Chart(
        "growth-views",
        "growth",
        "Views",
        "A step of views that share arrangements",
        ("views", "views over one relation"),
        {"ms/view": ""},
        "milliseconds for a view",
        log="x",
    ),
    Chart(
        "circuits",
        "circuits",
        "SQL views",
        "A step of 100 rows, and DuckDB's query over all rows",
        ("query", "LSQB query"),
        {"step ms": "dbsp-wcoj, step", "DuckDB query ms": "DuckDB, query"},
        "milliseconds",
        kind="bars",
    ),
    Chart(
        "recursion",
        "recursion",
        "Recomputation",
        "The closure of Kafka's imports: a median step, and recomputing it",
        ("until", "commits of Kafka's history"),
        {"CPU s": ""},
        "CPU seconds",
        lines=("system",),
        log="y",
        on_page=True,
    ),
    Chart(
        "recursion-state",
        "recursion",
        "State of the closure",
        "State of the closure of Kafka's imports",
        ("until", "commits of Kafka's history"),
        {"pairs": "pairs", "derivations": "rows that derive them", "rows held": "rows held"},
        "rows",
        log="y",
    ),
    Chart(
        "scale-speed-up",
        "scale",
        "Speed-up, simulated",
        "Work of one engine divided by the work of the busiest cell, counted",
        ("cells", "cells"),
        {
            "speed-up": "heavy values spread",
            "not spread": "all values hashed",
            "cells": "ideal",
        },
        "times faster",
        panel=("query", "graph"),
        log="xy",
        on_page=True,
    ),
    Chart(
        "scale-bytes",
        "scale",
        "Bytes shuffled for a changed row",
        "Bytes shuffled for a changed row",
        ("cells", "cells or workers"),
        {
            "HyperCube": "HyperCube",
            "broadcast": "the delta to all workers, binary joins",
            "partitioned": "binary joins by hash",
        },
        "bytes",
        panel=("query", "graph"),
        log="xy",
    ),
    Chart(
        "sink-overhead",
        "sink",
        "Overhead of a durable sink",
        "A micro-batch through the durable sink",
        ("rows/batch", "rows in a micro-batch"),
        {"sink ms": "durable sink", "bare ms": "rows fetched only", "target ms": "target"},
        "milliseconds",
        panel=("view keeps",),
        panel_title="the view keeps {} of the rows",
        where={"on_delta": (None,), "rows/batch": (1_000, 100_000, 1_000_000)},
        log="xy",
    ),
    Chart(
        "sink-restart",
        "sink",
        "Restart",
        "Time until the first micro-batch after a restart is done",
        ("rows", "rows of state"),
        {"with a first micro-batch s": "restart", "rebuild s": "rebuild from the rows"},
        "seconds",
        where={"columns": ("int64",)},
        log="xy",
    ),
    Chart(
        "latency",
        "latency",
        "The largest of 100 steps",
        "The largest of each 100 steps of 100 rows, after a load of 10 million rows",
        ("steps", "steps so far"),
        {"max CPU ms": "largest of 100", "median CPU ms": "median of all"},
        "CPU milliseconds",
        panel=("state",),
        panel_title="state {}",
        on_page=True,
    ),
    Chart(
        "beyond-memory",
        "beyond_memory",
        "Steps",
        "Steps of 1,000 rows over state that is larger than its memory limit",
        ("steps", "steps so far"),
        {"median CPU ms": ""},
        "CPU milliseconds",
        lines=("mode",),
        on_page=True,
    ),
    Chart(
        "object-store",
        "object_store",
        "Micro-batches",
        "Micro-batches with the state in an object store, and in a directory",
        ("rows of a load", "rows of a load"),
        {"median CPU ms": ""},
        "CPU milliseconds",
        lines=("state",),
        panel=("micro-batches",),
        log="xy",
    ),
    Chart(
        "bounded-state",
        "bounded_state",
        "Rows held",
        "Rows that a query keeps while a stream with lateness goes on",
        ("events", "events so far"),
        {"rows held": ""},
        "rows held",
        lines=("query",),
        log="y",
        on_page=True,
    ),
    Chart(
        "new-strings",
        "new_strings",
        "Stream",
        "The size of the state while a stream brings ever new strings and keeps 200,000 rows",
        ("strings", "new strings so far"),
        {"dictionaries MB": "dictionaries", "rows MB": "rows", "disk MB": "files"},
        "megabytes",
        on_page=True,
    ),
)
