"""Semijoins and antijoins with alternatives, one of which is always true, or always false."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

from circuits.plan.expressions import Column, Literal
from circuits.plan.nodes import Scan, Semijoin
from circuits.plan.rewrite.pipeline import rewrite_plan
from circuits.runtime.graph import Graph
from circuits.runtime.operators.join import JoinOptions
from circuits.types.codecs.codec import Codecs
from circuits.types.functions import call
from dbsp_wcoj import ZSet
from tests.generators.plans import INT, RELATIONS, decode
from tests.oracles.naive_plan import evaluate_plan

R, S = (Scan(name, fields) for name, fields in RELATIONS.items())
ROWS = {"r": [(0, 1), (1, 1), (None, 2)], "s": [(1, 0, 0), (2, 2, None)]}


@pytest.mark.parametrize("anti", [False, True])
@pytest.mark.parametrize("constant", [True, False, None])
@pytest.mark.parametrize("partners", [0, 1, 2])
def test_a_constant_alternative_is_one_like_others(
    anti: bool, constant: bool | None, partners: int
) -> None:
    predicate = call(
        "or", call("eq", Column(0, INT), Column(2, INT)), Literal(constant, pa.bool_())
    )
    plan = Semijoin(R, S, predicate, anti)
    rows = {"r": ROWS["r"], "s": ROWS["s"][:partners]}
    graph = Graph(Codecs(), JoinOptions("collapsed"), lambda: 0.0)
    for name, fields in RELATIONS.items():
        graph.add_input(name, fields)
    graph.add_view("view", rewrite_plan(plan))

    codes = {
        name: ZSet.from_rows(
            [tuple(-(2**63) if v is None else v for v in row) for row in relation_rows],
            arity=len(RELATIONS[name]),
        )
        for name, relation_rows in rows.items()
    }
    step = graph.prepare(codes)

    assert decode(step.deltas[graph.views["view"]]) == Counter(evaluate_plan(plan, rows))
