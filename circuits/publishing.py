"""Publishing: the deltas of views before rows expire whose published results are kept.

A step with inputs that have ``on_expiry="keep"`` is computed twice from the same state, if rows
expire in it (`circuits.inputs.retain`)::

    committed   Q(R') - Q(R)        the change of the state: new rows come, expired ones leave
    published   Q(R + d) - Q(R)     the change that views publish: expired rows are still there

Only the traces of the first are committed. The second is computed for the operators above those
inputs, whose delta differs, and its traces are dropped, but for the integrals of materialized
views: a view holds what it has published. Which plans may do so is for `circuits.inputs.finality`.

Alternatives considered: a second step that deletes the expired rows would have to see the first
before that is committed, and durable state would have to write two deltas per trace.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from circuits.operators.integrate import Integrate
from circuits.operators.operator import Moment, Prepared
from dbsp_wcoj import ZSet

if TYPE_CHECKING:
    from circuits.graph import Graph

__all__ = ["Publication", "published"]


@dataclass(frozen=True)
class Publication:
    """What views publish in a step in which rows expire unseen.

    Attributes:
        deltas: The delta of each node, in the order of the nodes.
        integrals: The integrals of materialized views, by node; None where one does not change.
        spent: The seconds that each node took.
    """

    deltas: Sequence[ZSet]
    integrals: Mapping[int, Prepared | None]
    spent: Sequence[float]


def published(
    graph: Graph, committed: Sequence[ZSet], given: Mapping[int, ZSet], moment: Moment
) -> Publication:
    """The deltas of all nodes if no row of some inputs expired.

    Args:
        graph: The operators; nothing of them changes.
        committed: The delta of each node, with the rows that expire.
        given: The deltas of inputs without them, by node.
        moment: The step, with what ``committed`` has staged.

    Complexity:
        A step of the operators above those inputs.
    """
    shared = graph.relations.stage({})
    moment = replace(moment, shared=shared)
    clock: Callable[[], float] = graph.clock
    differs = [False] * len(graph.nodes)
    deltas: list[ZSet] = []
    integrals: dict[int, Prepared | None] = {}
    spent = [0.0] * len(graph.nodes)
    for number, node in enumerate(graph.nodes):
        start = clock()
        if number in given:
            delta, differs[number] = given[number], True
        elif node.operator is None or not any(differs[below] for below in node.inputs):
            delta = committed[number]
        elif number in graph.retained:
            delta = committed[number]  # of an input: the rows that are retained
        else:
            differs[number] = True
            delta, state = node.nothing, None
            if moment.first or any(len(deltas[below]) for below in node.inputs):
                delta, state = node.operator.prepare([deltas[i] for i in node.inputs], moment)
            if isinstance(node.operator, Integrate):
                integrals[number] = state
        if node.arranged and len(delta):
            shared.add(node.name, delta)
        deltas.append(delta)
        spent[number] = clock() - start
    return Publication(deltas, integrals, spent)
