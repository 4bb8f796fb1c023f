"""The views of the demo: triangles and cycles of a changing directed graph, as one circuit.

A circuit is a compiled set of views that are maintained together. The input ``link`` contains the
rows of the stream with their weights. These are the views:

=================== ===========================================================================
linked              the distinct pairs (src, dst), with loops (links from a node to itself)
e                   the distinct pairs without loops
u                   every connected pair once, as (smaller node, larger node)
w                   all links without loops, with their weights
links               the number of rows: the live messages
edges               the number of pairs in ``linked``
triangles           the number of directed triangles: ``e(a,b), e(b,c), e(a,c)``
weighted            the number of ways to choose three messages that form a directed triangle:
                    the same join over ``w``
cycles              the number of 3-cycles ``e(a,b), e(b,c), e(c,a)``; the join finds each three
                    times, once from each node, so the total is divided by three
undirected          the number of undirected triangles: ``u(a,b), u(b,c), u(a,c)``
corners             for each node, the number of directed triangles that contain it
cycle_corners       for each node, the number of 3-cycles that contain it
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

__all__ = ["ROWS_PER_CYCLE", "VIEWS", "Counts", "Totals", "triangle_circuit"]

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
CREATE VIEW undirected AS
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
CREATE VIEW cycle_corners AS
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
ROWS_PER_CYCLE: Final = 3  # rows of the ordered join for one 3-cycle
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
    undirected: int = 0


PER_NODE: Final = ("corners", "cycle_corners")


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
            count, weight = (column.to_numpy() for column in outputs[name].columns)
            # The old count is deleted (weight -1), and the new count is inserted (weight 1).
            self._sums[name] += int(count @ weight)
        for name, nodes in self._nodes.items():
            node, count, weight = (column.to_numpy() for column in outputs[name].columns)
            self._nodes[name] = nodes + ZSet.from_columns([node], count * weight)

    @property
    def counts(self) -> Counts:
        cycles, remainder = divmod(self._sums["cycles"], ROWS_PER_CYCLE)
        assert remainder == 0, (
            f"{self._sums['cycles']} rows of 3-cycles are not a multiple of three"
        )
        return Counts(**{**self._sums, "cycles": cycles})

    def per_node(self, view: str) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the nodes, ascending, and their counts in a view, without zeros."""
        return self._nodes[view].columns[0], self._nodes[view].weights

    def top(self, view: str, length: int) -> list[tuple[int, int]]:
        """Return the nodes with the highest counts; of equal counts, the smaller node first."""
        nodes, counts = self.per_node(view)
        best = np.lexsort((nodes, -counts))[:length]
        return [(int(nodes[i]), int(counts[i])) for i in best]
