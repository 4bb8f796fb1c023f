"""Draws charts as SVG files, one for light pages and one for dark pages.

`styles` chooses how each line and bar looks. The same data gives the same bytes: the
files have no date and fixed ids. Each SVG contains a digest of its data, so `is_drawn`
tells if it is up to date without drawing it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from textwrap import fill
from typing import Final

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from benchmarks.report.charts import Chart, Lines, Panels
from benchmarks.report.styles import LINE_COLOUR, Style, styles_of
from benchmarks.result import Cell, Result, format_cell

# Increase it when the drawing changes; then all plots are drawn again.
EDITION: Final = 3

_MAX_PANELS_PER_ROW = 4
_MAX_BARS_PER_ROW = 24
_BAR_WIDTH = 0.36  # inches
_MAX_WIDTH = 13.0  # inches
_MAX_RANGE_WITH_INNER_TICKS = 300  # a larger range has a tick for each power of ten only
LOWER_BOUND_HATCH: Final = "///"
_TITLE_LETTERS_PER_INCH = 10.5
_LEGEND_LETTERS_PER_INCH = 11.5  # with the line or box before each label


@dataclass(frozen=True)
class _Theme:
    """The colours of text and axes, of grid lines, and of the background."""

    text: str
    grid: str
    background: str


_LIGHT = _Theme("#1f2328", "#d8dee4", "#ffffff")
_DARK = _Theme("#e6edf3", "#30363d", "#0d1117")


def file_names(chart: Chart) -> tuple[str, str]:
    """Return the file names of a chart: for light pages, for dark pages."""
    return f"{chart.name}.svg", f"{chart.name}-dark.svg"


def is_drawn(chart: Chart, results: Mapping[str, Result], folder: Path) -> bool:
    """Return whether the files exist and show these results."""
    digest = _digest(chart, chart.panels(results))
    files = [folder / name for name in file_names(chart)]
    if not all(path.is_file() for path in files):
        return False
    return all(digest in path.read_text() for path in files)


def draw(chart: Chart, results: Mapping[str, Result], folder: Path) -> None:
    """Write the files of a chart."""
    folder.mkdir(parents=True, exist_ok=True)
    panels = chart.panels(results)
    digest = _digest(chart, panels)
    for name, theme in zip(file_names(chart), (_LIGHT, _DARK), strict=True):
        path = folder / name
        with rc_context(_settings(theme, digest)):
            metadata = {"Description": digest, "Date": None, "Creator": None}
            _figure(chart, panels).savefig(path, metadata=metadata)
        path.write_text("\n".join(line.rstrip() for line in path.read_text().splitlines()) + "\n")


def _digest(chart: Chart, panels: Panels) -> str:
    styles = styles_of(_labels(panels))
    return sha256(repr((EDITION, chart, panels, styles)).encode()).hexdigest()[:20]


def _labels(panels: Panels) -> list[str]:
    return list(dict.fromkeys(label for lines in panels.values() for label in lines))


def _settings(theme: _Theme, digest: str) -> dict[str, object]:
    """Return settings for matplotlib, which replace those of the user."""
    return {
        "svg.hashsalt": digest,
        "svg.fonttype": "none",  # paths for letters would make the files ten times as long
        "font.family": "sans-serif",
        "font.sans-serif": ["DejaVu Sans", "Arial", "sans-serif"],
        "font.size": 9,
        "text.color": theme.text,
        "axes.labelcolor": theme.text,
        "axes.edgecolor": theme.text,
        "axes.facecolor": theme.background,
        "figure.facecolor": theme.background,
        "savefig.facecolor": theme.background,
        "xtick.color": theme.text,
        "ytick.color": theme.text,
        "grid.color": theme.grid,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "legend.frameon": False,
        "legend.title_fontsize": 8,
        "legend.labelcolor": theme.text,
        "lines.linewidth": 1.6,
        "lines.markersize": 4.5,
        "hatch.linewidth": 0.8,
    }


def _figure(chart: Chart, panels: Panels) -> Figure:
    columns = min(len(panels), _MAX_PANELS_PER_ROW)
    if chart.kind == "bars":
        max_bars = max(sum(map(len, lines.values())) for lines in panels.values())
        columns = min(columns, max(_MAX_BARS_PER_ROW // max_bars, 1))
        panel_width = min(max(4.2, _BAR_WIDTH * max_bars), _MAX_WIDTH / columns)
    else:
        panel_width = 3.2
    rows = -(-len(panels) // columns)
    width = max(panel_width * columns, 6.4)
    figure = Figure(figsize=(width, 2.7 * rows + 1.0), layout="constrained")
    FigureCanvasAgg(figure)
    title = fill(chart.title, int(width * _TITLE_LETTERS_PER_INCH))
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
    labels = _labels(panels)
    styles = styles_of(labels)
    grid = figure.subplots(rows, columns, squeeze=False, sharey=True)
    all_axes = list(grid.flat)
    for axes, (panel, lines) in zip(all_axes, panels.items(), strict=False):
        axes.set_title(chart.panel_title.format(panel), loc="left", fontsize=9)
        (_draw_bars if chart.kind == "bars" else _draw_lines)(axes, lines, styles)
        _set_scales(axes, chart, lines)
        axes.set_xlabel(chart.x_label)
    for axes in all_axes[len(panels) :]:
        axes.set_visible(False)
    for row in grid:
        row[0].set_ylabel(chart.y_label)
    handle_by_label = {
        label: handle
        for axes in all_axes
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    if len(handle_by_label) > 1:
        order = sorted(
            handle_by_label, key=lambda label: labels.index(label) if label in labels else 99
        )
        handles = [handle_by_label[label] for label in order]
        legend_columns = max(int(width * _LEGEND_LETTERS_PER_INCH / max(map(len, order))), 1)
        figure.legend(
            handles,
            order,
            loc="outside lower left",
            title=chart.legend,
            ncols=min(legend_columns, len(order)),
            fontsize=8,
            handlelength=3.2,
        )
    return figure


def _draw_lines(axes: Axes, lines: Lines, styles: Mapping[str, Style]) -> None:
    for label, points in lines.items():
        style = styles[label]
        axes.plot(
            [point.x for point in points],
            [point.y for point in points],
            label=label,
            color=style.colour,
            marker=style.marker,
            linestyle=style.dash,
        )


def _draw_bars(axes: Axes, lines: Lines, styles: Mapping[str, Style]) -> None:
    """Draw groups of bars; a lower bound is hatched, and its label begins with ">"."""
    groups = list(dict.fromkeys(point.x for points in lines.values() for point in points))
    width = 0.8 / max(len(lines), 1)
    for position, (label, points) in enumerate(lines.items()):
        style = styles[label]
        shift = (position - (len(lines) - 1) / 2) * width
        bars = axes.bar(
            [groups.index(point.x) + shift for point in points],
            [point.y for point in points],
            width * 0.92,
            label=label,
            color=style.colour,
            hatch=style.hatch,
            edgecolor=axes.get_facecolor(),
            linewidth=0.5,
        )
        for bar, point in zip(bars, points, strict=True):
            if point.open:
                bar.set_hatch(LOWER_BOUND_HATCH)
            label_text = f"> {format_cell(point.y)}" if point.open else format_cell(point.y)
            axes.annotate(
                label_text,
                (bar.get_x() + bar.get_width() / 2, point.y),
                xytext=(0, 2),
                textcoords="offset points",
                ha="center",
                fontsize=7,
            )
    axes.set_xticks(range(len(groups)), [_tick(group) for group in groups])
    axes.grid(axis="x", visible=False)


def _set_scales(axes: Axes, chart: Chart, lines: Lines) -> None:
    for axis in chart.log:
        (axes.set_xscale if axis == "x" else axes.set_yscale)("log")
    tick_format = FuncFormatter(lambda value, _: _tick(value))
    if chart.kind == "lines":
        values = sorted({point.x for points in lines.values() for point in points})
        axes.xaxis.set_major_formatter(tick_format)
        if len(values) <= 8:
            axes.set_xticks(values)
        axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(tick_format)
    if "y" in chart.log:
        axes.margins(y=0.12)
        low, high = axes.get_ylim()
        subs = (1.0,) if high / low > _MAX_RANGE_WITH_INNER_TICKS else (1.0, 2.0, 5.0)
        axes.yaxis.set_major_locator(LogLocator(subs=subs, numticks=12))
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        axes.yaxis.set_major_locator(MaxNLocator(6))
        highest = max([axes.get_ylim()[1], *(1.12 * mark.y for mark in chart.marks)])
        axes.set_ylim(0, highest)
    for mark in chart.marks:
        axes.axhline(mark.y, color=LINE_COLOUR, linewidth=1.2, linestyle=(0, (2, 2)))
        axes.annotate(
            mark.text,
            (1.0, mark.y),
            xycoords=("axes fraction", "data"),
            xytext=(0, 2),
            textcoords="offset points",
            ha="right",
            fontsize=7,
        )


def _tick(value: Cell) -> str:
    """Format the number of a tick, with a letter for thousands, millions and more.

    >>> [_tick(value) for value in (0.01, 1.0, 25.0, 100000, 8e6, 2e8, "a")]
    ['0.01', '1', '25', '100k', '8M', '200M', 'a']
    """
    if isinstance(value, str | bool) or value is None:
        return format_cell(value)
    for letter, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"
