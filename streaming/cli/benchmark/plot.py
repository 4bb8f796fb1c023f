"""Bench plot: draw the times of a comparison, one panel for each step size.

Each row of a panel is a formula. A bar shows the quartiles, a dark mark with its value the median,
and pale dots the single steps: all of them, or about `MAX_DOTS` at equal distances in the sorted
times. The plot needs matplotlib, which the extra `demo` installs.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any, Final

from streaming.cli.benchmark.report import check_writable
from streaming.cli.terminal.display import milliseconds, plural
from streaming.errors import EventsError, FailedError

__all__ = ["check_plot", "draw"]

FORMATS: Final = (".png", ".svg")
_STEP: Final = "#56b4e9"
_QUARTILES: Final = "#0072b2"
_MEDIAN: Final = "#1f2328"
#: Dots of a row: with more of them the file grows and the picture does not change.
MAX_DOTS: Final = 150
#: A logarithmic axis with a smaller range has too few ticks.
MIN_LOG_RATIO: Final = 10
_DPI: Final = 140


def check_plot(path: Path) -> None:
    """Check that a plot can be drawn and written, before anything is measured.

    Raises:
        EventsError: matplotlib is not installed, or the file cannot be written.
    """
    check_writable("--plot", path, FORMATS)
    if find_spec("matplotlib") is None:
        raise EventsError(
            "--plot needs the package matplotlib, which is not installed: "
            "run pip install 'dbsp-wcoj[demo]'"
        )


def draw(document: Mapping[str, Any], path: Path) -> None:
    """Draw the results of a document to a file.

    Raises:
        FailedError: The file cannot be written.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    results = document["results"]
    sizes = list(dict.fromkeys(result["rows_per_step"] for result in results))
    rows = len({result["formula"] for result in results})
    with rc_context({"svg.hashsalt": "dbsp-wcoj bench", "svg.fonttype": "none"}):
        figure = Figure(figsize=(7.5, (0.9 + 0.33 * rows) * len(sizes) + 0.9), layout="constrained")
        figure.suptitle(
            "Milliseconds of a step: median, quartiles, single steps", x=0.01, ha="left"
        )
        for axes, size in zip(figure.subplots(len(sizes), squeeze=False).flat, sizes, strict=True):
            _draw_panel(axes, [result for result in results if result["rows_per_step"] == size])
            axes.set_title(f"{plural(size, 'row')} in a step", loc="left", fontsize=9)
        axes.set_xlabel("milliseconds")
        try:
            figure.savefig(path, dpi=_DPI)
        except OSError as error:
            raise FailedError(f"--plot {path}: {error.strerror or error}") from None


def _draw_panel(axes: Any, results: list[dict[str, Any]]) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    for row, result in enumerate(results):
        dots = sorted(chain.from_iterable(result["times_ms"]))
        dots = dots[:: -(-len(dots) // MAX_DOTS)]
        axes.plot(dots, [row] * len(dots), "o", color=_STEP, alpha=0.35, markersize=3, mew=0)
        quartiles = [result["lower_quartile_ms"], result["upper_quartile_ms"]]
        axes.plot(quartiles, [row, row], color=_QUARTILES, linewidth=5, solid_capstyle="butt")
        axes.plot(result["median_ms"], row, "|", color=_MEDIAN, markersize=13, mew=2)
        axes.annotate(
            milliseconds(result["median_ms"] / 1000),
            (1.0, row),
            xycoords=("axes fraction", "data"),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
        )
    times = list(chain.from_iterable(chain.from_iterable(result["times_ms"] for result in results)))
    low, high = min(times), max(times)
    if low > 0 and high > MIN_LOG_RATIO * low:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=12))
    else:
        axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_yticks(range(len(results)), [result["formula"] for result in results])
    axes.set_ylim(len(results) - 0.4, -0.6)
    axes.tick_params(labelsize=8, left=False)
    axes.grid(axis="x", color="#d8dee4")
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
