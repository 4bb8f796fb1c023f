"""Limits: errors of a step that uses too many rows, bytes or seconds, or too much memory.

The operators of a graph share one budget per step, and `dbsp_wcoj.limits` counts what they use.
This module turns an exceeded limit, or a lack of memory, into an error with names that the user
knows: the view, and the operator as `Circuit.explain` shows it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pyarrow as pa

from circuits.errors import StepLimitError, StepMemoryError
from circuits.runtime.graph import Graph
from circuits.runtime.state_names import node_label
from dbsp_wcoj.errors import LimitError
from dbsp_wcoj.limits import Budget

__all__ = ["name_limit_errors"]

_HOW_TO_FIX: Final = (
    "nothing was changed: take fewer rows in a step, filter earlier, add a condition to the join, "
)


@contextmanager
def name_limit_errors(graph: Graph, budget: Budget) -> Iterator[None]:
    """Run a step, or a part of it; let errors of limits name the view and the operator.

    Raises:
        StepLimitError: A limit was exceeded.
        StepMemoryError: The process ran out of memory.
    """
    try:
        yield
    except StepLimitError:
        raise
    except LimitError as error:
        view, operator = _find_names(graph, budget.operator)
        raise StepLimitError(
            f"{_format_names(view, operator)}{error}; {_HOW_TO_FIX}or raise the limit "
            f"{error.limit} of the circuit (None switches it off)",
            view,
            operator,
            error.limit,
            error.allowed,
            error.reached,
        ) from error
    except (MemoryError, pa.ArrowCapacityError) as error:
        view, operator = _find_names(graph, budget.operator)
        raise StepMemoryError(
            f"{_format_names(view, operator)}out of memory ({error or type(error).__name__}); "
            f"{_HOW_TO_FIX}or give the process more memory; lower limits (max_step_rows, "
            "max_step_bytes) refuse such a step sooner",
            view,
            operator,
            "memory",
        ) from error


def _format_names(view: str | None, operator: str | None) -> str:
    if operator is None:
        return ""
    return f"view {view!r}: {operator}: " if view is not None else f"{operator}: "


def _find_names(graph: Graph, position: int | None) -> tuple[str | None, str | None]:
    """Return the first view that depends on a node, and the node as `explain` shows it."""
    if position is None:
        return None, None
    node = graph.nodes[position]
    dependents = {position}
    while True:  # in a recursion, a node may be listed before its inputs
        readers = {
            reader_position
            for reader_position, reader in enumerate(graph.nodes)
            if not dependents.isdisjoint(reader.inputs)
        }
        if readers <= dependents:
            break
        dependents |= readers
    view = next((name for name, root in graph.views.items() if root in dependents), None)
    return view, f"{node.name} {node_label(graph, node)}"
