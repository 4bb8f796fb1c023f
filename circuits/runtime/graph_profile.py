"""The phases of a step of a circuit, for `dbsp_wcoj.execution.profiler.Profiler`.

These are the phases of the core and the phases around them: values to codes (``encode``), codes to
values (``decode``), each kind of operator by its name, and the work between operators (``graph``).
The phase of a join operator covers planning and gathering. Its terms are the core's phase ``join``.
"""

from __future__ import annotations

import re
from typing import Any, Final

from circuits.circuit import Circuit, CircuitStep
from circuits.runtime.graph import Graph
from circuits.runtime.operators.integrate import Integrate
from circuits.runtime.operators.join import JoinOperator
from circuits.schema import Schema
from dbsp_wcoj import DeltaQuery
from dbsp_wcoj.execution.profiler import COLLECT, HOOKS, PLAN, Hook

__all__ = ["hooks_of", "joins_of"]

_CIRCUIT_HOOKS: Final = (
    Hook(Circuit, "_encode", "encode", lambda arguments, _: _count_rows(arguments[1])),
    Hook(Schema, "to_table", "decode", lambda arguments, _: len(arguments[1])),
    Hook(Graph, "prepare", "graph"),
    Hook(CircuitStep, "commit", "commit"),
    Hook(JoinOperator, "prepare", PLAN),
)


def hooks_of(circuit: Circuit) -> tuple[Hook, ...]:
    """The profiler hooks of a circuit's steps, one per phase."""
    kinds = {type(node.operator) for node in circuit.graph.nodes if node.operator is not None}
    operators = [
        Hook(kind, "prepare", _phase_name(kind), within=((COLLECT, COLLECT),))
        for kind in sorted(kinds - {JoinOperator, Integrate}, key=lambda kind: kind.__name__)
        if "prepare" in vars(kind)
    ]
    return (*HOOKS, *_CIRCUIT_HOOKS, *operators)


def joins_of(circuit: Circuit) -> dict[str, DeltaQuery]:
    """The maintained joins of a circuit, by their names in `Circuit.explain`."""
    return {
        node.name: node.operator.delta_query
        for node in circuit.graph.nodes
        if isinstance(node.operator, JoinOperator)
    }


def _phase_name(kind: type[Any]) -> str:
    """The words of the class without ``Operator``, for example ``partial aggregate``."""
    return " ".join(re.findall("[A-Z][a-z]*", kind.__name__.removesuffix("Operator"))).lower()


def _count_rows(tables: Any) -> int:
    return sum(table.num_rows for table in tables.values())
