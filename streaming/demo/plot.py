"""Plot the counts over time, one panel for each scale, as a PNG.

A dot marks each comparison of the counts with a recount from scratch.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from streaming.demo.display import MIN_EPOCH_S
from streaming.demo.run import History

__all__ = ["plot"]

#: For each panel its title, and its totals with label and colour.
PANELS: Final = (
    (
        "Triangles over distinct edges",
        (("triangles", "directed", "#1f5fa8"), ("undirected", "undirected", "#d1792a")),
    ),
    ("Directed triangles by weights (choices of three messages)", (("weighted", "", "#1f5fa8"),)),
    ("3-cycles over distinct edges, each once", (("cycles", "", "#2f8a57"),)),
    (
        "Live links and distinct pairs",
        (("links", "links", "#555555"), ("edges", "distinct pairs", "#b0478a")),
    ),
)


def plot(history: History, path: Path, title: str) -> None:
    """Draw the counts after each micro-batch.

    Raises:
        OSError: The file cannot be written.
    """
    times = _times(history)
    checked = [
        i for i, cut in enumerate(history.cuts) if int(cut) in history.checks.recount_positions
    ]
    figure = Figure(figsize=(10, 11), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title, x=0.01, ha="left", fontsize=13)
    for axes, (heading, lines) in zip(
        figure.subplots(len(PANELS), 1, sharex=True), PANELS, strict=True
    ):
        for total, label, colour in lines:
            values = [getattr(counts, total) for counts in history.counts]
            axes.plot(times, values, color=colour, linewidth=1.4, label=label or None)
            marks = [values[i] for i in checked]
            axes.plot([times[i] for i in checked], marks, "o", color=colour, markersize=3.5)
        axes.set_title(heading, loc="left", fontsize=10)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axes.set_ylim(bottom=0)
        axes.grid(axis="y", color="#dddddd", linewidth=0.7)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        if len(lines) > 1:
            axes.legend(loc="best", frameon=False, fontsize=9)
    axes.set_xlabel(
        "time in the stream; dots: compared with a recount from scratch", loc="left", fontsize=9
    )
    figure.savefig(path)


def _times(history: History) -> list[Any]:
    times: list[Any] = history.stream.time[history.cuts - 1].tolist()
    if min(times) < MIN_EPOCH_S:
        return times
    return [datetime.fromtimestamp(time, UTC) for time in times]
