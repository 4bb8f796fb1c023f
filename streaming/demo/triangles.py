"""The views of the demo: triangles and cycles of a changing directed graph, as one circuit.

What each counts, where ``link`` holds the rows of the stream with their weights:

=================== ===========================================================================
links               rows: the live messages
linked, edges       distinct pairs (src, dst), loops included, and their number
e                   distinct pairs without loops: all triangles below are over these ...
triangles           directed: ``e(a,b), e(b,c), e(a,c)``
cycles              3-cycles ``e(a,b), e(b,c), e(c,a)``; the join finds each three times, once
                    from each corner, so the total is divided by three
simple              undirected triangles: over ``u``, which holds every connected pair once as
                    (smaller, larger), ``u(a,b), u(b,c), u(a,c)`` finds each exactly once
corners             for each node the directed triangles that it is part of
turning             for each node the 3-cycles that it is part of
weighted            ... but this one: directed triangles over ``w``, all links without loops: the
                    number of ways to choose three messages that form one
=================== ===========================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from circuits import Circuit, compile_sql
from dbsp_wcoj import ZSet

__all__ = ["CYCLE_CORNERS", "VIEWS", "Counts", "Totals", "triangle_circuit"]

VIEWS: Final = """
CREATE VIEW linked AS SELECT DISTINCT src, dst FROM link;
CREATE VIEW e AS SELECT src, dst FROM linked WHERE src <> dst;
CREATE VIEW w AS SELECT src, dst FROM link WHERE src <> dst;
CREATE VIEW u AS
    SELECT src, dst FROM linked WHERE src < dst
    UNION
    SELECT dst, src FROM linked WHERE dst < src;

CREATE VIEW links AS SELECT count(*) AS n FROM link;
CREATE VIEW edges AS SELECT count(*) AS n FROM linked;
CREATE VIEW triangles AS
    SELECT count(*) AS n
    FROM e ab JOIN e bc ON bc.src = ab.dst JOIN e ac ON ac.src = ab.src AND ac.dst = bc.dst;
CREATE VIEW weighted AS
    SELECT count(*) AS n
    FROM w ab JOIN w bc ON bc.src = ab.dst JOIN w ac ON ac.src = ab.src AND ac.dst = bc.dst;
CREATE VIEW simple AS
    SELECT count(*) AS n
    FROM u ab JOIN u bc ON bc.src = ab.dst JOIN u ac ON ac.src = ab.src AND ac.dst = bc.dst;
CREATE VIEW cycles AS
    SELECT count(*) AS n
    FROM e ab JOIN e bc ON bc.src = ab.dst JOIN e ca ON ca.src = bc.dst AND ca.dst = ab.src;

CREATE VIEW corners AS
    SELECT node, count(*) AS n
    FROM (
        SELECT ab.src AS node
        FROM e ab JOIN e bc ON bc.src = ab.dst JOIN e ac ON ac.src = ab.src AND ac.dst = bc.dst
        UNION ALL
        SELECT ab.dst
        FROM e ab JOIN e bc ON bc.src = ab.dst JOIN e ac ON ac.src = ab.src AND ac.dst = bc.dst
        UNION ALL
        SELECT bc.dst
        FROM e ab JOIN e bc ON bc.src = ab.dst JOIN e ac ON ac.src = ab.src AND ac.dst = bc.dst
    ) AS corner
    GROUP BY node;
CREATE VIEW turning AS
    SELECT ab.src AS node, count(*) AS n
    FROM e ab JOIN e bc ON bc.src = ab.dst JOIN e ca ON ca.src = bc.dst AND ca.dst = ab.src
    GROUP BY ab.src;
"""
# For the drawing: each 3-cycle once, from its smallest corner.
DRAWN: Final = """
CREATE VIEW cycle AS
    SELECT ab.src AS a, bc.src AS b, ca.src AS c
    FROM e ab JOIN e bc ON bc.src = ab.dst JOIN e ca ON ca.src = bc.dst AND ca.dst = ab.src
    WHERE ab.src < bc.src AND ab.src < ca.src;
"""
CYCLE_CORNERS: Final = 3  # rows of the ordered join for one 3-cycle
LINK: Final = pa.schema(
    [pa.field("src", pa.int64(), nullable=False), pa.field("dst", pa.int64(), nullable=False)]
)


@dataclass(frozen=True)
class Counts:
    """The totals of the graph after a micro-batch."""

    links: int = 0
    edges: int = 0
    triangles: int = 0
    weighted: int = 0
    cycles: int = 0
    simple: int = 0


PER_NODE: Final = ("corners", "turning")


def triangle_circuit(formula: str = "collapsed", *, is_drawn: bool = False) -> Circuit:
    """Compile all views over the input ``link``; ``is_drawn`` adds a view of 3-cycles."""
    outputs = [*(field.name for field in fields(Counts)), *PER_NODE, *(["cycle"] * is_drawn)]
    views = VIEWS + DRAWN if is_drawn else VIEWS
    return compile_sql(views, {"link": LINK}, outputs=outputs, formula=formula)


class Totals:
    """The views, integrated from their deltas."""

    def __init__(self) -> None:
        self._sums = {field.name: 0 for field in fields(Counts)}
        self._nodes = {name: ZSet.empty(1) for name in PER_NODE}

    def add(self, outputs: Mapping[str, pa.Table]) -> None:
        """Add the deltas of one micro-batch."""
        for name in self._sums:
            counted, weight = (column.to_numpy() for column in outputs[name].columns)
            self._sums[name] += int(
                counted @ weight
            )  # the old count is deleted, the new one inserted
        for name, nodes in self._nodes.items():
            node, counted, weight = (column.to_numpy() for column in outputs[name].columns)
            self._nodes[name] = nodes + ZSet.from_columns([node], counted * weight)

    @property
    def counts(self) -> Counts:
        cycles, rest = divmod(self._sums["cycles"], CYCLE_CORNERS)
        assert rest == 0, f"{self._sums['cycles']} rows of 3-cycles are no multiple of three"
        return Counts(**{**self._sums, "cycles": cycles})

    def per_node(self, view: str) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Nodes, ascending, and their counts in ``corners`` or ``turning``, without zeros."""
        return self._nodes[view].columns[0], self._nodes[view].weights

    def top(self, view: str, length: int) -> list[tuple[int, int]]:
        """The nodes with the highest counts; among equals the smaller node first."""
        nodes, counts = self.per_node(view)
        best = np.lexsort((nodes, -counts))[:length]
        return [(int(nodes[i]), int(counts[i])) for i in best]
