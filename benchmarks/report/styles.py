"""Chooses the colour, marker, dash and hatch of each line or bar; no two in a plot are the same.

A system has the same style in every plot. Systems of one family share a colour and differ in
marker, dash and hatch. Other labels take the first styles that are free, in their order, so no two
labels of a plot have the same style.

Most colours are those of Okabe and Ito, which people with any colour vision tell apart; two more
are needed for the peers. The hatch ``///`` is not used here: it marks a bar that is a lower bound.
Hatches are lines: an SVG describes each dot or circle of a hatch by itself, which makes it large.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

__all__ = ["LINE_COLOUR", "SYSTEMS", "Style", "styles_of"]

Dash = str | tuple[int, tuple[int, ...]]

_BLUE: Final = "#0072b2"
_VERMILION: Final = "#d55e00"
_GREEN: Final = "#009e73"
_PINK: Final = "#cc79a7"
_ORANGE: Final = "#e69f00"
_SKY: Final = "#56b4e9"
_GREY: Final = "#999999"
_VIOLET: Final = "#8a63d2"
_BROWN: Final = "#a0703c"

#: The colour of a horizontal line to compare with, such as a target.
LINE_COLOUR: Final = _GREY

_SOLID: Final = "-"
_DASHED: Final = "--"
_DASH_DOT: Final = "-."
_DOTTED: Final = ":"
_LONG: Final = (0, (5, 1))
_TWO_DOTS: Final = (0, (3, 1, 1, 1))
_FINE: Final = (0, (1, 1))


class Style(NamedTuple):
    """How a line (colour, marker, dash) or a bar (colour, hatch) looks; matplotlib's names."""

    colour: str
    marker: str
    dash: Dash
    hatch: str = ""


_OURS: Final = Style(_BLUE, "o", _SOLID)
_DUCKDB: Final = Style(_VERMILION, "v", _DASHED, "---")
_IGRAPH: Final = Style(_SKY, "P", _DASHED)
_KUZU: Final = Style(_GREEN, "^", _SOLID)
_LADYBUG: Final = Style(_PINK, "<", _DASHED)
_NETWORKX: Final = Style(_GREY, "X", _DOTTED)

#: The style of each system, by every label it has in a plot.
SYSTEMS: Final[dict[str, Style]] = {
    "dbsp_wcoj": _OURS,
    "dbsp-wcoj": _OURS,
    "dbsp-wcoj, step": _OURS,
    "this engine, maintained: a step": _OURS,
    "dbsp_wcoj-binary": Style(_BLUE, "p", _DOTTED, "---"),
    "this engine, a new view": Style(_BLUE, "d", _DASHED, "xxx"),
    "this engine, a query": Style(_BLUE, "h", _DASH_DOT, "+++"),
    "duckdb": _DUCKDB,
    "duckdb-recompute": _DUCKDB,
    "DuckDB": _DUCKDB,
    "DuckDB, query": _DUCKDB,
    "duckdb-delta": Style(_VERMILION, "s", _SOLID),
    "kuzu": _KUZU,
    "kuzu-recompute": _KUZU,
    "kuzu-binary": Style(_GREEN, ">", _DOTTED, "---"),
    "ladybug": _LADYBUG,
    "ladybug-recompute": _LADYBUG,
    "ladybug-binary": Style(_PINK, "H", _DOTTED, "---"),
    "pathway": Style(_VIOLET, "D", _DASH_DOT),
    "pydbsp": Style(_BROWN, "*", _TWO_DOTS),
    "spark-delta": Style(_ORANGE, "^", _SOLID),
    "spark-recompute": Style(_ORANGE, "v", _DOTTED, "---"),
    "spark-streams": Style(_ORANGE, "<", _DASH_DOT, "xxx"),
    "igraph": _IGRAPH,
    "igraph-live": _IGRAPH,
    "networkx": _NETWORKX,
    "networkx-live": _NETWORKX,
    "clingo": Style(_GREEN, "D", _FINE),
    "differential dataflow, dogsdogsdogs (published, scaled)": Style(_VERMILION, "D", _DASHED),
}

_COLOURS: Final = (_BLUE, _VERMILION, _GREEN, _PINK, _ORANGE, _SKY, _GREY)
_MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X")
_DASHES: Final = (_SOLID, _DASHED, _DASH_DOT, _DOTTED, _LONG, _TWO_DOTS, _FINE)
_HATCHES: Final = ("", "---", "xxx", "+++", "|||")


def styles_of(labels: Iterable[str]) -> dict[str, Style]:
    """Return the style of each label of a plot, all different as lines and as bars.

    Raises:
        ValueError: Two labels name the same system, or there are more labels than styles.

    >>> styles_of(["duckdb", "median"])["duckdb"] == SYSTEMS["DuckDB"]
    True
    >>> styles_of(["DuckDB", "duckdb"])
    Traceback (most recent call last):
        ...
    ValueError: 'DuckDB' and 'duckdb' have one style in benchmarks.report.styles: separate them
    """
    labels = list(dict.fromkeys(labels))
    styles = {label: SYSTEMS[label] for label in labels if label in SYSTEMS}
    label_by_style: dict[tuple[str, str], str] = {}
    for label, style in styles.items():
        other = label_by_style.setdefault((style.colour, style.hatch), label)
        if other != label and style == styles[other]:
            raise ValueError(
                f"{other!r} and {label!r} have one style in benchmarks.report.styles: separate them"
            )
    free = (style for style in _more_styles() if (style.colour, style.hatch) not in label_by_style)
    for label in labels:
        if label not in styles:
            style = next(free, None)
            if style is None:
                raise ValueError(
                    f"{len(labels)} labels and {len(_COLOURS) * len(_HATCHES)} styles: "
                    "show fewer lines in a plot"
                )
            styles[label] = style
    return {label: styles[label] for label in labels}


def _more_styles() -> Iterable[Style]:
    """Yield styles for other labels: all colours without a hatch, then with each hatch."""
    for hatch_number, hatch in enumerate(_HATCHES):
        for number, colour in enumerate(_COLOURS):
            # Another hatch shifts the markers and dashes, so that lines of one colour differ.
            shifted = (number + hatch_number) % len(_COLOURS)
            yield Style(colour, _MARKERS[shifted], _DASHES[shifted], hatch)
