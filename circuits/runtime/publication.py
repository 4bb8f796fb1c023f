"""Publication: the deltas that views publish when rows of an ``on_expiry="keep"`` input expire.

A row expires when it is older than the retention of its input (`circuits.inputs.retention`). With
``on_expiry="keep"``, expired rows are deleted from the state, but results that views have published
from them remain. So a step in which rows expire is computed twice from the same state. With the
view ``Q``, the input ``R`` before the step and ``R'`` after it, and the change ``d`` of the input
without late rows::

    committed   Q(R') - Q(R)        changes the state: inserts new rows, deletes expired ones
    published   Q(R + d) - Q(R)     what views publish: expired rows are not deleted

The first computation changes the state. The second computation runs only the operators that depend
on those inputs, because the deltas of all others are the same. Its changes of the state are
discarded, except for the integrals of materialized views, because a view contains the results that
it has published. `circuits.inputs.finality` checks which plans may read such an input.

Alternatives considered: a second step that deletes the expired rows. It would have to read the
first step before that is committed, and durable state would have to write two deltas per trace.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from circuits.runtime.graph_node import Node, prepare_node
from circuits.runtime.operators.integrate import Integrate
from circuits.runtime.operators.operator import StepContext
from circuits.runtime.operators.user_call import UserCallOperator
from dbsp_wcoj import ZSet
from dbsp_wcoj.storage.trace import Staged

__all__ = ["Publication", "publish"]


@dataclass(frozen=True)
class Publication:
    """The deltas that views publish in a step in which rows expire but their results remain.

    Attributes:
        deltas: The delta of each node, by position.
        integrals: The changes of the integrals of materialized views, by position; None for an
            integral that does not change.
        seconds: The seconds that each node took in the second computation.
    """

    deltas: Sequence[ZSet]
    integrals: Mapping[int, Staged | None]
    seconds: Sequence[float]


def publish(
    nodes: Sequence[Node],
    retained: Collection[int],
    committed: Sequence[ZSet],
    as_if_kept: Mapping[int, ZSet],
    context: StepContext,
    clock: Callable[[], float],
) -> Publication:
    """Compute the deltas of all nodes as if no row of the inputs in ``as_if_kept`` expired.

    Args:
        nodes: The nodes of the graph; they do not change.
        retained: The positions of the `Integrate` nodes that store the unexpired rows of an input.
            They take the committed deltas, which delete expired rows.
        committed: The delta of each node, including the deletions of expired rows.
        as_if_kept: The deltas of these inputs without the deletions of expired rows, by position.
        context: The context of the step, with no relation staged.
        clock: Returns the current time in seconds.

    Raises:
        LimitError: The published deltas exceed the limits of the step.

    Complexity:
        That of one step of the operators that depend on the inputs in ``as_if_kept``.
    """
    # By position: True if the published delta of the node may differ from the committed one.
    may_differ = [False] * len(nodes)
    deltas: list[ZSet] = []
    integrals: dict[int, Staged | None] = {}
    seconds = [0.0] * len(nodes)
    for position, node in enumerate(nodes):
        start = clock()
        inputs_may_differ = any(may_differ[i] for i in node.inputs)
        if node.operator is not None and inputs_may_differ and position not in retained:
            may_differ[position] = True
            delta, staged = node.empty, None
            if context.first or any(len(deltas[i]) for i in node.inputs):
                inputs = [deltas[i] for i in node.inputs]
                if isinstance(node.operator, UserCallOperator):
                    # A function is called once for each row, and the state stores this result.
                    node.operator.use_results_of(committed[position])
                try:
                    delta, staged = prepare_node(position, node, inputs, context)
                finally:
                    if isinstance(node.operator, UserCallOperator):
                        node.operator.known_results = None
            if isinstance(node.operator, Integrate):
                integrals[position] = staged
        else:
            may_differ[position] = position in as_if_kept
            delta = as_if_kept[position] if may_differ[position] else committed[position]
            if node.is_arranged and len(delta):
                context.shared.add(node.name, delta)
        deltas.append(delta)
        seconds[position] = clock() - start
    return Publication(deltas, integrals, seconds)
