"""Remove row ids: keep the columns of the rows instead of one code for all of them.

::

    RowIdDecode(Join(RowIdEncode(a(k, x, y)), b(k)))   becomes   Join(a(k, x, y), b(k))

`RowIdEncode` keeps its first columns, here k, and replaces the others, x and y, by a row id.

The dictionary of row ids keeps every row that was ever encoded. So the views of a circuit that
drops old rows must not use row ids: their state would grow for ever.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count

from circuits.plan.nodes import PlanNode
from circuits.plan.physical_nodes import Join, RowIdDecode, RowIdEncode

__all__ = ["remove_row_ids"]


def remove_row_ids(plan: PlanNode) -> PlanNode:
    """Return a physical plan with the same rows and without row ids; O(nodes)."""
    return _remove(plan, {})


def _remove(plan: PlanNode, visited: dict[int, tuple[PlanNode, PlanNode]]) -> PlanNode:
    # By the ``id`` of a node, which stays unique as long as the node is referenced here.
    if id(plan) not in visited:
        match plan:
            case RowIdDecode(input):
                result = _remove(input, visited)
            case Join(inputs):
                plain_inputs = tuple(
                    _remove(input.input if isinstance(input, RowIdEncode) else input, visited)
                    for input in inputs
                )
                result = replace(_with_columns(plan), inputs=plain_inputs)
            case _ if plan.inputs:
                result = plan.with_inputs([_remove(input, visited) for input in plan.inputs])
            case _:
                result = plan
        visited[id(plan)] = result, plan
    return visited[id(plan)][0]


def _with_columns(join: Join) -> Join:
    """Return the join in which each column of a row id has a variable, instead of the row id."""
    unused_variables = count(1 + max((v for row in join.variables for v in row), default=-1))
    columns: dict[int, tuple[int, ...]] = {}
    for input, variables in zip(join.inputs, join.variables, strict=True):
        if isinstance(input, RowIdEncode):
            row_id = variables[input.kept_count]  # the column after the kept ones
            columns[row_id] = tuple(next(unused_variables) for _ in input.encoded)

    def expand(variables: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(new for v in variables for new in columns.get(v, (v,)))

    return replace(join, variables=tuple(map(expand, join.variables)), head=expand(join.head))
