"""The recipe for a new operator: a node class, an operator class, one registration.

`Shift`, which adds a number to every integer column, is defined here. Nothing else of the library
knows it. Rewriting, the graph and explain work as for the built-in operators. A recursion through
it is refused until a rule says how it treats iterations (`circuits.plan.rewrite.iterated_rows`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from circuits.errors import CircuitError
from circuits.plan.expressions import Literal
from circuits.plan.fixpoint import SET, Fixpoint, RecursiveReference
from circuits.plan.node import PlanNode, UnaryNode
from circuits.plan.nodes import Distinct, Field, Filter, Negate, Scan, Union, columns
from circuits.runtime.circuit_version import CircuitVersion
from circuits.runtime.graph import Graph
from circuits.runtime.incrementalize import incrementalize
from circuits.runtime.operators.operator import Result, StepContext
from circuits.runtime.operators.registry import OperatorContext, builtin_operators
from circuits.runtime.plan_drawing import draw_mermaid, draw_tree
from circuits.types.functions import call
from dbsp_wcoj import ZSet
from dbsp_wcoj.zset import consolidated_rows

INT = pa.int64()
E = Scan("e", (Field("x", INT, nullable=False),))
ZERO = Literal(0, INT)


# Step 1: the node.
@dataclass(frozen=True)
class Shift(UnaryNode):
    """Every column of the input plus ``by``."""

    by: int

    is_linear: ClassVar[bool] = True

    def key(self) -> tuple[object, ...]:
        return (self.by,)

    def label(self) -> str:
        return f"shift by {self.by}"


# Step 2: the operator.
class ShiftOperator:
    """shift(Z)[x + by] = Z[x]; linear, so it is its own incremental form."""

    def __init__(self, plan: Shift, context: OperatorContext) -> None:
        self._by = np.int64(plan.by)

    def evaluate(self, inputs: Sequence[ZSet]) -> ZSet:
        (zset,) = inputs
        return consolidated_rows(zset.row_array + self._by, zset.weight_array.copy())

    def prepare(self, deltas: Sequence[ZSet], context: StepContext) -> Result:
        return self.evaluate(deltas), None


# Step 3: the registration.
OPERATORS = builtin_operators().with_operator(Shift, ShiftOperator)


def graph_of(**plans: PlanNode) -> Graph:
    return incrementalize(plans, {"e": E.fields}, operators=OPERATORS)


DELTAS = st.lists(
    st.dictionaries(st.tuples(st.integers(0, 4)), st.sampled_from([-1, 1, 2]), max_size=4),
    max_size=5,
)


@given(DELTAS)
def test_the_sum_of_its_deltas_is_its_value_for_the_summed_inputs(deltas):
    below = Filter(E, call("lt", columns(E)[0], Literal(3, INT)))
    graph = graph_of(shifted=Shift(E, 2), both=Distinct(Union((Shift(E, 1), Negate(below)))))
    total = ZSet.empty(1)
    sums = {name: ZSet.empty(1) for name in graph.views}
    for rows in deltas:
        delta = ZSet.from_rows(rows.keys(), rows.values(), arity=1)
        step = graph.prepare({"e": delta})
        step.commit()
        total += delta
        for name, number in graph.views.items():
            sums[name] += step.deltas[number]
        assert sums == graph.evaluate({"e": total})
        assert sums["shifted"].to_dict() == {(x + 2,): w for (x,), w in total}


def test_equal_nodes_are_one_operator_and_others_are_not():
    graph = graph_of(one=Shift(E, 1), same=Shift(E, 1), other=Shift(E, 2))
    assert graph.views["one"] == graph.views["same"] != graph.views["other"]


def test_it_reads_a_recursion_and_a_recursion_through_it_is_refused():
    x = RecursiveReference("r", E.fields)
    recursion = Fixpoint(("r",), (Union((E, Filter(x, call("lt", columns(x)[0], ZERO)))),), (SET,))
    graph = graph_of(view=Shift(recursion, 10))
    step = graph.prepare({"e": ZSet.from_rows([(1,), (1,)])})
    assert step.deltas[graph.views["view"]].to_dict() == {(11,): 1}
    with pytest.raises(CircuitError, match="recursion through shift is not supported"):
        graph_of(view=Fixpoint(("r",), (Shift(x, 1),), (SET,)))


def test_explain_shows_its_label():
    version = CircuitVersion.of(graph_of(view=Shift(E, 3)))
    assert "shift by 3" in draw_tree(version)
    assert "shift by 3" in draw_mermaid(version)


def test_a_node_without_a_key_or_a_label_cannot_be_instantiated():
    @dataclass(frozen=True)
    class Unfinished(UnaryNode):
        pass

    with pytest.raises(TypeError, match=r"abstract methods? '?key'?, '?label'?"):
        Unfinished(E)  # type: ignore[abstract]


def test_a_node_without_an_operator_is_refused_by_name():
    with pytest.raises(CircuitError, match="no operator executes a plan node Shift"):
        incrementalize({"view": Shift(E, 1)}, {"e": E.fields})


def test_two_node_classes_of_one_name_cannot_be_registered():
    with pytest.raises(CircuitError, match="a plan node Shift is registered already"):
        OPERATORS.with_operator(Shift, ShiftOperator)
