"""Missing rows: how many rows of an input are deleted more often than they are there.

::

    missing = |{x : d[x] < 0 and Z[x] + d[x] < 0}|

An input without rules is a Z-set, in which a weight may be negative: the deletion of a row that was
never inserted waits for its insert, and swallows it. That is right where deltas come out of order,
and otherwise a fault of the source that nobody sees. So such rows are counted.

An example stream, one row ``x``::

    given       -1   +1   +1   -2
    relation     0   -1    0    1
    missing      1    0    0    1

Weights are looked up in traces that are there already, of the input itself (a join reads it as it
is, or it is materialized), else of what is filtered or projected from it, as most joins read it. A
projected row has the sum of the weights of its rows, so if that becomes negative, so does one of
theirs: the count is exact for an input that is held itself, and otherwise a lower bound. Of an
input that only feeds an aggregate or a DISTINCT, say, no trace exists, and nothing is counted.

Cost: O(log N) for each row of negative weight and trace. Nothing is arranged for this.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from circuits.plan.nodes import Filter, Map, Plan, RowIdEncode, Scan
from circuits.runtime.operators.integrate import Integrate
from circuits.runtime.operators.operator import Operator
from dbsp_wcoj import Trace, ZSet
from dbsp_wcoj.zset import to_storable

__all__ = ["DeletionWitnesses", "missing_rows"]


class Node(Protocol):
    """The attributes of `circuits.runtime.graph_node.Node` that this module reads."""

    name: str
    plan: Plan
    inputs: tuple[int, ...]
    operator: Operator | None
    is_arranged: bool
    is_nested: bool


@dataclass(frozen=True)
class DeletionWitnesses:
    """Traces that show rows of inputs that are deleted and not there.

    Attributes:
        size: How many nodes the graph had.
        traces: By input, the nodes whose deltas are looked up, and in which trace.
    """

    size: int
    traces: Mapping[str, Sequence[tuple[int, Trace]]]

    @staticmethod
    def of(
        nodes: Sequence[Node], relations: Mapping[str, Trace], keyed: Collection[str]
    ) -> DeletionWitnesses:
        """Find the traces of a graph.

        Args:
            nodes: Its nodes, in order.
            relations: The traces of the nodes that are arranged, by name.
            keyed: The inputs with keys, to which this does not apply.
        """
        sources: dict[int, str] = {}
        whole: dict[str, list[tuple[int, Trace]]] = {}
        parts: dict[str, list[tuple[int, Trace]]] = {}
        for number, node in enumerate(nodes):
            below = node.inputs[0] if len(node.inputs) == 1 else -1
            if isinstance(node.operator, Integrate):
                if below in sources:
                    found = whole if nodes[below].operator is None else parts
                    found.setdefault(sources[below], []).append((below, node.operator.trace))
                continue
            if node.operator is None and isinstance(node.plan, Scan) and node.name not in keyed:
                sources[number] = node.name
            elif (
                isinstance(node.plan, Filter | Map | RowIdEncode)
                and below in sources
                and not node.is_nested
            ):
                sources[number] = sources[below]
            if number in sources and node.is_arranged and node.name in relations:
                found = whole if node.operator is None else parts
                found.setdefault(sources[number], []).append((number, relations[node.name]))
        return DeletionWitnesses(
            len(nodes), {**parts, **{name: found[:1] for name, found in whole.items()}}
        )

    def missing(self, deltas: Sequence[ZSet]) -> dict[str, int]:
        """Count the missing rows of each input by the deltas of all nodes, before they are applied.

        An input that nothing holds is not in it.
        """
        return {
            name: max(missing_rows(deltas[number], trace) for number, trace in found)
            for name, found in self.traces.items()
        }


def missing_rows(delta: ZSet, trace: Trace) -> int:
    """Return how many rows of a delta would leave a relation with a negative weight.

    >>> trace = Trace(1)
    >>> trace.update(ZSet.from_rows([(7,), (8,)]))
    >>> missing_rows(ZSet.from_rows([(7,), (8,), (9,), (5,)], [-2, -1, -1, 1]), trace)
    2
    """
    if not len(delta):
        return 0
    deleted = np.flatnonzero(delta._weights < 0)
    if not len(deleted) or not trace.orders:
        return 0
    rows = ZSet(np.ascontiguousarray(delta._rows[:, deleted]), delta._weights[deleted])
    had = trace.weights_of(to_storable(rows))
    # Only a weight that is not negative is added to, so that the sum cannot leave int64.
    left = np.maximum(had, 0) + rows._weights
    return int(np.count_nonzero((had < 0) | (left < 0)))
