"""What a step of a circuit consists of, for `dbsp_wcoj.execution.profiler.Profiler`.

The phases of the core, and around them: values to codes (``encode``), codes to values
(``decode``), each kind of operator by its name, and what lies between operators (``graph``). A join
as an operator is planning and gathering; its terms are the core's ``join``.
"""

from __future__ import annotations

from typing import Any, Final

from circuits.circuit import Circuit, CircuitStep
from circuits.runtime.graph import Graph
from circuits.runtime.operators.integrate import Integrate
from circuits.runtime.operators.join import JoinOperator
from circuits.schema import Schema
from dbsp_wcoj import DeltaQuery
from dbsp_wcoj.execution.profiler import COLLECT, HOOKS, PLAN, Hook

__all__ = ["hooks_of", "joins_of"]

_AROUND: Final = (
    Hook(Circuit, "_encode", "encode", lambda arguments, _: _rows(arguments[1])),
    Hook(Schema, "to_table", "decode", lambda arguments, _: len(arguments[1])),
    Hook(Graph, "prepare", "graph"),
    Hook(CircuitStep, "commit", "commit"),
    Hook(JoinOperator, "prepare", PLAN),
)


def hooks_of(circuit: Circuit) -> tuple[Hook, ...]:
    """The phases of a circuit's steps."""
    kinds = {type(node.operator) for node in circuit.graph.nodes if node.operator is not None}
    operators = [
        Hook(kind, "prepare", _name(kind), within=((COLLECT, COLLECT),))
        for kind in sorted(kinds - {JoinOperator, Integrate}, key=lambda kind: kind.__name__)
        if "prepare" in vars(kind)
    ]
    return (*HOOKS, *_AROUND, *operators)


def joins_of(circuit: Circuit) -> dict[str, DeltaQuery]:
    """The maintained joins of a circuit, by the names that `Circuit.explain` gives them."""
    return {
        node.name: node.operator.delta_query
        for node in circuit.graph.nodes
        if isinstance(node.operator, JoinOperator)
    }


def _name(kind: type[Any]) -> str:
    return kind.__name__.removesuffix("Rows").lower()


def _rows(tables: Any) -> int:
    return sum(table.num_rows for table in tables.values())
