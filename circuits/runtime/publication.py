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

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from circuits.runtime.graph_node import Node, prepare_node
from circuits.runtime.operators.integrate import Integrate
from circuits.runtime.operators.operator import StepContext
from dbsp_wcoj import ZSet
from dbsp_wcoj.storage.trace import Staged

__all__ = ["Publication", "publish"]


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
    integrals: Mapping[int, Staged | None]
    seconds: Sequence[float]


def publish(
    nodes: Sequence[Node],
    retained: Collection[int],
    committed: Sequence[ZSet],
    unexpired: Mapping[int, ZSet],
    context: StepContext,
    clock: Callable[[], float],
) -> Publication:
    """Compute the deltas of all nodes as if no row of the ``unexpired`` inputs expired.

    Args:
        nodes: The nodes of the graph; they do not change.
        retained: The integrals of inputs that contain the retained rows only.
        committed: The delta of each node, including the deletions of expired rows.
        unexpired: The deltas of some inputs, without the deletions of expired rows, by node.
        context: The context of the step, with no relation staged.
        clock: Seconds.

    Raises:
        LimitError: The published deltas exceed the limits of the step.

    Complexity:
        That of one step of the operators above the ``unexpired`` inputs.
    """
    differs = [False] * len(nodes)
    deltas: list[ZSet] = []
    integrals: dict[int, Staged | None] = {}
    seconds = [0.0] * len(nodes)
    for number, node in enumerate(nodes):
        start = clock()
        inputs_differ = any(differs[below] for below in node.inputs)
        if node.operator is not None and inputs_differ and number not in retained:
            differs[number] = True
            delta, staged = node.empty, None
            if context.first or any(len(deltas[below]) for below in node.inputs):
                inputs = [deltas[below] for below in node.inputs]
                delta, staged = prepare_node(number, node, inputs, context)
            if isinstance(node.operator, Integrate):
                integrals[number] = staged
        else:
            differs[number] = number in unexpired
            delta = unexpired[number] if differs[number] else committed[number]
            if node.is_arranged and len(delta):
                context.shared.add(node.name, delta)
        deltas.append(delta)
        seconds[number] = clock() - start
    return Publication(deltas, integrals, seconds)
