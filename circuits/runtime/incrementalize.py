"""Incrementalize: from the queries of views to the operators that maintain the views.

::

    Q^Δ = D ∘ Q ∘ I                      the incremental form of a query, by definition
    (Q₁ ∘ Q₂)^Δ = Q₁^Δ ∘ Q₂^Δ            the chain rule

By the chain rule a plan is made incremental operator by operator. A linear operator is its own
incremental form (`circuits.runtime.operators.linear`). A join has a delta formula
(`circuits.runtime.operators.join`). Distinct, aggregates and top-k store the state that they need.
The result is a `Graph`, which computes deltas of the views from deltas of the inputs. The sum of
the deltas of a view is the view of the summed deltas of the inputs.

Reference: Budiu, Chajed, McSherry, Ryzhyk, Tannen. DBSP. PVLDB 16(7), 2023, sections 3 and 4.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from circuits.plan.nodes import Fields, PlanNode
from circuits.plan.rewrite.pipeline import rewrite_plan
from circuits.plan.rewrite.row_ids import remove_row_ids
from circuits.plan.traversal import read_relations
from circuits.runtime.graph import Clock, Graph
from circuits.runtime.operators.join import JoinOptions
from circuits.runtime.operators.registry import OperatorRegistry, builtin_operators
from circuits.types.codecs.codec import Codecs

__all__ = ["incrementalize"]


def incrementalize(
    plans: Mapping[str, PlanNode],
    inputs: Mapping[str, Fields],
    *,
    codecs: Codecs | None = None,
    join_options: JoinOptions | None = None,
    clock: Clock = lambda: 0.0,
    operators: OperatorRegistry | None = None,
    bounded_inputs: Collection[str] = (),
) -> Graph:
    """Build the graph of incremental operators of some views.

    Args:
        plans: The plan of each view; each view comes after the views that it reads.
        inputs: The columns of each input relation.
        codecs: Encode values as int64 codes; new codecs by default.
        join_options: The options of joins.
        clock: Returns the current time in seconds; measures the time of each node.
        operators: The operator of each class of plan nodes; the built-in operators by default.
        bounded_inputs: The inputs whose old rows may leave the state. Views that read them are
            planned without late materialization: a dictionary of row ids keeps all rows for ever.

    >>> import pyarrow as pa
    >>> from circuits.plan.nodes import Distinct, Field, Scan
    >>> from dbsp_wcoj import ZSet
    >>> r = Scan("r", (Field("x", pa.int64()),))
    >>> graph = incrementalize({"v": Distinct(r)}, {"r": r.fields})
    >>> for weight in (1, 1, -2):
    ...     step = graph.prepare({"r": ZSet.from_rows([(7,)], [weight])})
    ...     step.commit()
    ...     print(step.deltas[graph.views["v"]])
    ZSet({(7,): 1})
    ZSet({})
    ZSet({(7,): -1})
    """
    graph = Graph(
        codecs or Codecs(),
        join_options or JoinOptions(),
        clock,
        operators or builtin_operators(),
    )
    for name, fields in inputs.items():
        graph.add_input(name, fields)
    bounded = set(bounded_inputs)
    for name, plan in plans.items():
        physical = rewrite_plan(plan)
        if bounded and not bounded.isdisjoint(read_relations(plan)):
            bounded.add(name)
            physical = remove_row_ids(physical)
        graph.add_view(name, physical)
    return graph
