"""The views of the demo: triangles and cycles of a changing directed graph, as one circuit.

A circuit is a compiled set of views that are maintained together. A row of the input ``link`` is a
message from node ``src`` to node ``dst``, with a weight. A loop is a link from a node to itself.
These views select links and pairs of nodes:

=================== ===========================================================================
loop_free_link      the links that are not loops, with their weights
pair                the distinct pairs (src, dst) of links, with loops
loop_free_pair      the distinct pairs that are not loops
undirected_pair     each two connected nodes once, as (smaller node, larger node)
=================== ===========================================================================

These views count, and are the outputs of the circuit:

=================== ===========================================================================
links               the number of links: the live messages
edges               the number of rows of ``pair``
triangles           the number of directed triangles: pairs (a, b), (b, c) and (a, c) of
                    ``loop_free_pair``
weighted            the number of ways to choose three messages that form a directed triangle:
                    the same join over ``loop_free_link``
cycles              the number of directed cycles of three nodes: pairs (a, b), (b, c) and (c, a)
                    of ``loop_free_pair``. The join finds each cycle three times, once from each
                    node, so `CurrentViews` divides the number by three
undirected          the number of undirected triangles: (a, b), (b, c) and (a, c) of
                    ``undirected_pair``
corners             for each node, the number of directed triangles that contain it
cycle_corners       for each node, the number of cycles of three nodes that contain it
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

__all__ = ["ROWS_PER_CYCLE", "VIEWS", "CurrentViews", "GraphCounts", "triangle_circuit"]

VIEWS: Final = """
CREATE VIEW pair AS SELECT DISTINCT src, dst FROM link;
CREATE VIEW loop_free_pair AS SELECT src, dst FROM pair WHERE src <> dst;
CREATE VIEW loop_free_link AS SELECT src, dst FROM link WHERE src <> dst;
CREATE VIEW undirected_pair AS
    SELECT src, dst FROM pair WHERE src < dst
    UNION
    SELECT dst, src FROM pair WHERE dst < src;

CREATE VIEW links AS SELECT count(*) AS n FROM link;
CREATE VIEW edges AS SELECT count(*) AS n FROM pair;
CREATE VIEW triangles AS
    SELECT count(*) AS n
    FROM loop_free_pair ab
    JOIN loop_free_pair bc ON bc.src = ab.dst
    JOIN loop_free_pair ac ON ac.src = ab.src AND ac.dst = bc.dst;
CREATE VIEW weighted AS
    SELECT count(*) AS n
    FROM loop_free_link ab
    JOIN loop_free_link bc ON bc.src = ab.dst
    JOIN loop_free_link ac ON ac.src = ab.src AND ac.dst = bc.dst;
CREATE VIEW undirected AS
    SELECT count(*) AS n
    FROM undirected_pair ab
    JOIN undirected_pair bc ON bc.src = ab.dst
    JOIN undirected_pair ac ON ac.src = ab.src AND ac.dst = bc.dst;
CREATE VIEW cycles AS
    SELECT count(*) AS n
    FROM loop_free_pair ab
    JOIN loop_free_pair bc ON bc.src = ab.dst
    JOIN loop_free_pair ca ON ca.src = bc.dst AND ca.dst = ab.src;

CREATE VIEW corners AS
    SELECT node, count(*) AS n
    FROM (
        SELECT ab.src AS node
        FROM loop_free_pair ab
        JOIN loop_free_pair bc ON bc.src = ab.dst
        JOIN loop_free_pair ac ON ac.src = ab.src AND ac.dst = bc.dst
        UNION ALL
        SELECT ab.dst
        FROM loop_free_pair ab
        JOIN loop_free_pair bc ON bc.src = ab.dst
        JOIN loop_free_pair ac ON ac.src = ab.src AND ac.dst = bc.dst
        UNION ALL
        SELECT bc.dst
        FROM loop_free_pair ab
        JOIN loop_free_pair bc ON bc.src = ab.dst
        JOIN loop_free_pair ac ON ac.src = ab.src AND ac.dst = bc.dst
    ) AS corner
    GROUP BY node;
CREATE VIEW cycle_corners AS
    SELECT ab.src AS node, count(*) AS n
    FROM loop_free_pair ab
    JOIN loop_free_pair bc ON bc.src = ab.dst
    JOIN loop_free_pair ca ON ca.src = bc.dst AND ca.dst = ab.src
    GROUP BY ab.src;
"""
# For the drawing on the live page: each 3-cycle once, from its smallest corner.
DRAWN: Final = """
CREATE VIEW cycle AS
    SELECT ab.src AS a, bc.src AS b, ca.src AS c
    FROM loop_free_pair ab
    JOIN loop_free_pair bc ON bc.src = ab.dst
    JOIN loop_free_pair ca ON ca.src = bc.dst AND ca.dst = ab.src
    WHERE ab.src < bc.src AND ab.src < ca.src;
"""
ROWS_PER_CYCLE: Final = 3  # `cycles` joins one cycle three times, once from each of its nodes
LINK: Final = pa.schema(
    [pa.field("src", pa.int64(), nullable=False), pa.field("dst", pa.int64(), nullable=False)]
)


@dataclass(frozen=True)
class GraphCounts:
    """The totals of the graph after a micro-batch; ``cycles`` has each cycle once."""

    links: int = 0
    edges: int = 0
    triangles: int = 0
    weighted: int = 0
    cycles: int = 0
    undirected: int = 0


PER_NODE: Final = ("corners", "cycle_corners")


def triangle_circuit(formula: str = "collapsed", *, is_drawn: bool = False) -> Circuit:
    """Compile all views over the input ``link``; ``is_drawn`` adds the view of the drawn cycles."""
    outputs = [*(field.name for field in fields(GraphCounts)), *PER_NODE, *(["cycle"] * is_drawn)]
    views = VIEWS + DRAWN if is_drawn else VIEWS
    return compile_sql(views, {"link": LINK}, outputs=outputs, formula=formula)


class CurrentViews:
    """The current contents of the counting views: the sums of their deltas."""

    def __init__(self) -> None:
        self._sums = {field.name: 0 for field in fields(GraphCounts)}
        # For each view a Z-set of nodes, in which the weight of a node is its count.
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
    def counts(self) -> GraphCounts:
        """The totals of the graph."""
        cycles, remainder = divmod(self._sums["cycles"], ROWS_PER_CYCLE)
        assert remainder == 0, (
            f"{self._sums['cycles']} rows of 3-cycles are not a multiple of three"
        )
        return GraphCounts(**{**self._sums, "cycles": cycles})

    def per_node(self, view: str) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the nodes, ascending, and their counts in a view, without zeros."""
        return self._nodes[view].columns[0], self._nodes[view].weights

    def top(self, view: str, length: int) -> list[tuple[int, int]]:
        """Return the nodes with the highest counts; of equal counts, the smaller node first."""
        nodes, counts = self.per_node(view)
        best = np.lexsort((nodes, -counts))[:length]
        return [(int(nodes[i]), int(counts[i])) for i in best]
