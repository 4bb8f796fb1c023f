"""One-shot queries over what a circuit keeps: plans evaluated as they mean, nothing registered.

Relations are read from their traces as they are: a join reads the arrangements that exist, and
sorts only what is arranged in no order that it needs (`dbsp_wcoj.generic_join`). What is kept is
what is materialized, and inputs that a join of the circuit reads whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter

from circuits.codec import Codecs
from circuits.graph import Graph, Joining
from circuits.lowering import lowered
from circuits.operators.join import JoinRows
from circuits.relational import Fields, Plan
from dbsp_wcoj import Trace, ZSet, generic_join
from dbsp_wcoj.generic_join import plain

__all__ = ["answered"]


def answered(
    plans: Mapping[str, Plan],
    kept: Mapping[str, tuple[Fields, Trace]],
    codecs: Codecs,
) -> ZSet:
    """The last of the plans, over kept relations.

    Args:
        plans: Views in an order in which they come after those they read.
        kept: Columns and rows of each relation.
        codecs: The codes of values; the query's constants and results may add some.
    """
    graph = Graph(codecs, Joining(), perf_counter)
    for name, (fields, _) in kept.items():
        graph.add_input(name, fields)
    for name, plan in plans.items():
        graph.add_view(name, lowered(plan))
    values: list[ZSet | Trace] = []
    for node in graph.nodes:
        if node.operator is None:
            values.append(kept[node.name][1])
        elif isinstance(node.operator, JoinRows):
            values.append(generic_join(node.operator.query, [values[i] for i in node.inputs]))
        else:
            inputs = [plain(values[i], len(graph.nodes[i].plan.fields)) for i in node.inputs]
            values.append(node.operator.meaning(inputs))
    last = graph.views[list(plans)[-1]]
    return plain(values[last], len(graph.nodes[last].plan.fields))
