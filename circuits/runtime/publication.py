"""Publishing: the deltas that views publish when rows of an ``on_expiry="keep"`` input expire.

In such a step the state loses the expired rows, but the results that views have published stay.
So the step is computed twice from the same state. With the view ``Q``, the input ``R`` before the
step and ``R'`` after it, and the change ``d`` of the input without late rows
(`circuits.inputs.retention`)::

    committed   Q(R') - Q(R)        changes the state: inserts new rows, deletes expired ones
    published   Q(R + d) - Q(R)     what views publish: expired rows are not deleted

The traces of the first computation are committed. The second computation evaluates only the
operators above those inputs, because the deltas of all others are the same. Its traces are
discarded, except for the integrals of materialized views: a view contains the results that it has
published. `circuits.inputs.finality` checks which plans may read such an input.

Alternatives considered: a second step that deletes the expired rows. It would have to read the
first step before that is committed, and durable state would have to write two deltas per trace.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from circuits.runtime.operators.integrate import Integrate
from circuits.runtime.operators.operator import Prepared, StepContext
from dbsp_wcoj import ZSet

if TYPE_CHECKING:
    from circuits.runtime.graph import Graph

__all__ = ["Publication", "published"]


@dataclass(frozen=True)
class Publication:
    """The deltas that views publish in a step in which rows expire without a retraction.

    Attributes:
        deltas: The delta of each node, in the order of the nodes.
        integrals: The changes of the integrals of materialized views, by node; None for an integral
            that does not change.
        spent: The seconds that each node took in the second computation.
    """

    deltas: Sequence[ZSet]
    integrals: Mapping[int, Prepared | None]
    spent: Sequence[float]


def published(
    graph: Graph, committed: Sequence[ZSet], given: Mapping[int, ZSet], context: StepContext
) -> Publication:
    """Compute the deltas of all nodes as if no row of the ``given`` inputs expired.

    Args:
        graph: The operators; they do not change.
        committed: The delta of each node, including the deletions of expired rows.
        given: The deltas of some inputs, without the deletions of expired rows, by node.
        context: The context of the step, in which ``committed`` was computed.

    Raises:
        LimitError: The published deltas exceed the limits of the step.

    Complexity:
        That of one step of the operators above the ``given`` inputs.
    """
    shared = graph.relations.stage({})
    context = replace(context, shared=shared)
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
            delta = committed[number]  # the integral of an input has the retained rows only
        else:
            differs[number] = True
            delta, state = node.nothing, None
            if context.first or any(len(deltas[below]) for below in node.inputs):
                context.budget.start_operator(number)
                delta, state = node.operator.prepare([deltas[i] for i in node.inputs], context)
                context.budget.finish_operator(len(delta), delta.arity)
            if isinstance(node.operator, Integrate):
                integrals[number] = state
        if node.arranged and len(delta):
            shared.add(node.name, delta)
        deltas.append(delta)
        spent[number] = clock() - start
    return Publication(deltas, integrals, spent)
