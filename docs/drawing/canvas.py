"""Writes an SVG of boxes, texts and arrows, for light and dark pages.

Colours are CSS classes: a style sheet inside the picture gives them one value on light and another
on dark pages. The picture loads nothing; its fonts are those of the reader.
"""

from __future__ import annotations

from html import escape

__all__ = ["Canvas"]

STYLE = """
text { font: 14px system-ui, sans-serif; fill: #1f2328; }
.small { font-size: 12px; } .large { font-size: 17px; font-weight: 600; }
.mono { font-family: ui-monospace, monospace; }
.muted { fill: #656d76; } .bold { font-weight: 600; }
.line { stroke: #8c959f; fill: none; } .box { fill: #f6f8fa; stroke: #8c959f; }
.old { fill: #cfe3fb; stroke: #2f6fbf; } .delta { fill: #ffd9b3; stroke: #c2570c; }
.new { fill: #cdeccf; stroke: #2b8a3e; } .partial { fill: #e5d8f7; stroke: #7048c6; }
.off { fill: none; stroke: #d0d7de; } .arrow { stroke: #57606a; fill: none; }
.tip { fill: #57606a; stroke: none; }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3; } .muted { fill: #9198a1; }
.line { stroke: #6e7681; } .box { fill: #21262d; stroke: #6e7681; }
.old { fill: #173a63; stroke: #6cb0ff; } .delta { fill: #5c3310; stroke: #ff9d4d; }
.new { fill: #17482a; stroke: #57c26f; } .partial { fill: #3c2a63; stroke: #b392f0; }
.off { stroke: #3d444d; } .arrow { stroke: #9198a1; } .tip { fill: #9198a1; }
}
"""


class Canvas:
    """A picture of a width and a height.

    Args:
        width: In pixels.
        height: In pixels.
        title: A description for screen readers.
    """

    def __init__(self, width: int, height: int, title: str) -> None:
        self._head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img">\n'
            f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n"
        )
        self._parts: list[str] = []

    def box(
        self, x: float, y: float, width: float, height: float, kind: str = "box", radius: float = 3
    ) -> None:
        """A rectangle of a kind: box, old, delta, new, partial, off."""
        self._parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius:g}" '
            f'class="{kind}"/>'
        )

    def text(self, x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> None:
        """A text; ``y`` is its base line."""
        self._parts.append(
            f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" class="{kind}">{escape(text)}</text>'
        )

    def cell(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        text: str,
        kind: str = "box",
        words: str = "",
    ) -> None:
        """A box with a text in its middle."""
        self.box(x, y, width, height, kind)
        self.text(x + width / 2, y + height / 2 + 5, text, words, "middle")

    def shape(self, points: list[tuple[float, float]], kind: str) -> None:
        """A closed shape."""
        coordinates = " ".join(f"{x:g},{y:g}" for x, y in points)
        self._parts.append(f'<polygon points="{coordinates}" class="{kind}"/>')

    def line(self, x: float, y: float, to_x: float, to_y: float, kind: str = "line") -> None:
        """A straight line."""
        self._parts.append(
            f'<line x1="{x:g}" y1="{y:g}" x2="{to_x:g}" y2="{to_y:g}" class="{kind}"/>'
        )

    def arrow(self, x: float, y: float, to_x: float, to_y: float) -> None:
        """A straight arrow."""
        length = ((to_x - x) ** 2 + (to_y - y) ** 2) ** 0.5
        u, v = (to_x - x) / length, (to_y - y) / length
        self.line(x, y, to_x - 7 * u, to_y - 7 * v, "arrow")
        back_x, back_y = to_x - 9 * u, to_y - 9 * v
        self.shape(
            [(to_x, to_y), (back_x - 4 * v, back_y + 4 * u), (back_x + 4 * v, back_y - 4 * u)],
            "tip",
        )

    def svg(self) -> str:
        """The picture as the text of a file."""
        return self._head + "\n".join(self._parts) + "\n</svg>\n"
