"""Structural hashes: equal for sub-plans that compute the same, and only for these."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from circuits import Circuit, compile_datalog, compile_sql
from circuits.plan.expressions import Literal
from circuits.plan.fixpoint import DistinctMode, Fixpoint
from circuits.plan.node import PlanNode
from circuits.plan.nodes import CrossJoin, Field, Filter, Map, Scan, Union, Values, columns
from circuits.plan.structural_hash import PlanHasher, hash_values
from circuits.types.enum_type import EnumType
from circuits.types.functions import call
from tests.generators.plans import plans
from tests.support.tables import EDGE, bag_of, edges

INT, FLOAT = pa.int64(), pa.float64()
E = Scan("e", (Field("x", FLOAT), Field("y", FLOAT)))
LINK = {"link": EDGE}
VIEWS = {
    "reached": "SELECT DISTINCT b.dst FROM link a JOIN link b ON a.dst = b.src",
    "hops": "SELECT a.src, count(*) AS n FROM link a JOIN link b ON a.dst = b.src GROUP BY a.src",
    "tops": "SELECT src, dst FROM link ORDER BY dst DESC LIMIT 2",
    "closure": (
        "WITH RECURSIVE r AS (SELECT src, dst FROM link UNION SELECT r.src, link.dst FROM r "
        "JOIN link ON r.dst = link.src) SELECT * FROM r"
    ),
}


def hash_of(plan: PlanNode) -> str:
    return PlanHasher().hash(plan)


def circuit_of(*names: str) -> Circuit:
    text = "".join(f"CREATE VIEW {name} AS {VIEWS[name]};" for name in names)
    return compile_sql(text, LINK, materialize=True)


VALUES = [
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        2**70,
        0.0,
        -0.0,
        1.0,
        float("inf"),
        float("nan"),
        "",
        "1",
        b"1",
    ),
    *("0.0", "None", Decimal("1"), Decimal("1.0"), date(2020, 1, 1), datetime(2020, 1, 1)),
    *(datetime(2020, 1, 1, tzinfo=UTC), time(1), timedelta(1), timedelta(0, 1), (), ((),), (1, 2)),
    *(((1,), 2), (1, (2,)), ("a", "bc"), ("ab", "c"), INT, FLOAT, "int64", pa.timestamp("us")),
    *(pa.timestamp("us", "UTC"), pa.decimal128(9, 2), pa.decimal128(9, 3), columns(E)[0]),
    *(columns(E)[1], Literal(0, INT), Literal(0, FLOAT), Literal(None, INT), ("column", 0, FLOAT)),
    *(EnumType(["a"]), EnumType(["b"]), EnumType(["a", "b"]), EnumType([])),
    *(pa.list_(EnumType(["a"])), pa.list_(EnumType(["b"])), pa.list_(pa.string())),
    *(pa.struct([("x", EnumType(["a"]))]), pa.struct([("x", EnumType(["b"]))])),
    *(call("add", *columns(E)), call("multiply", *columns(E)), {"a": 1}, {"b": 1}),
]


def test_different_values_have_different_hashes():
    # Two values are written alike on purpose: an expression, and the tuple that it is written as.
    hashes = {hash_values(value) for value in VALUES}
    assert len(hashes) == len(VALUES) - 1
    assert hash_values(float("nan")) == hash_values(float("nan"))


def test_a_value_of_an_unknown_class_is_refused():
    with pytest.raises(TypeError, match="a object cannot be part of a structural hash"):
        hash_values(object())


def test_a_zero_and_a_negative_zero_are_two_expressions():
    def plus(zero: float) -> PlanNode:
        return Map(E, (call("add", columns(E)[0], Literal(zero, FLOAT)),), ("x",))

    assert plus(0.0) != plus(-0.0)
    assert hash_of(plus(0.0)) != hash_of(plus(-0.0))


def test_names_of_columns_do_not_matter_and_inputs_do():
    assert hash_of(Map(E, columns(E), ("a", "b"))) == hash_of(Map(E, columns(E), ("c", "d")))
    other = Scan("f", E.fields)
    assert hash_of(Union((E, other))) == hash_of(Union((other, E)))
    assert hash_of(CrossJoin((E, other))) != hash_of(CrossJoin((other, E)))
    assert hash_of(Union((E,))) != hash_of(Union((E, E)))
    rows = ((1,),)
    one, two = (Values((Field("x", type),), rows) for type in (INT, pa.int32()))
    assert hash_of(one) != hash_of(two)
    present = call("not", call("is_null", columns(E)[0]))
    assert hash_of(Filter(E, present)) != hash_of(Filter(E, call("is_null", columns(E)[0])))


@given(st.data())
def test_a_copy_of_a_plan_has_the_same_hash(data):
    plan = data.draw(plans())
    copy = plan.with_inputs(plan.inputs)
    assert copy == plan
    assert hash_of(copy) == hash_of(plan)
    assert len(hash_of(plan)) == 64


def state_names(circuit: Circuit) -> set[str]:
    return {*circuit.graph.registry.traces, *circuit.graph.registry.dictionaries}


def test_state_names_depend_on_what_is_computed_and_not_on_positions():
    all_names = state_names(circuit_of(*VIEWS))
    assert state_names(circuit_of(*reversed(VIEWS))) == all_names
    for name in VIEWS:
        assert state_names(circuit_of(name)) <= all_names, name


def test_a_state_continues_under_the_same_views_in_another_order():
    one, other = circuit_of(*VIEWS), circuit_of(*reversed(VIEWS))
    one.step({"link": edges((1, 2), (2, 3), (3, 1), (3, 4))})
    assert one.fingerprint == other.fingerprint
    other.restore(one.snapshot())
    for rows in (edges((4, 5), (1, 2)), edges((2, 3), weights=[-1])):
        outputs = other.step({"link": rows})
        for name, delta in one.step({"link": rows}).items():
            assert bag_of(outputs[name]) == bag_of(delta), name
    assert {n: bag_of(other.views[n]) for n in VIEWS} == {n: bag_of(one.views[n]) for n in VIEWS}


def test_recursions_with_equal_equations_are_one_and_others_are_not():
    rules = "{0}(x, z) :- link(x, z). {0}(x, z) :- link(x, y), {0}(y, z)."
    both = compile_datalog(f"{rules.format('t')} {rules.format('u')}", LINK)
    assert len(both.recursions) == 2
    both.step({"link": edges((1, 2), (2, 3))})
    deltas = both.step({"link": edges((3, 4))})
    assert bag_of(deltas["t"]) == bag_of(deltas["u"]) == {(3, 4): 1, (2, 4): 1, (1, 4): 1}
    text = f"CREATE VIEW a AS {VIEWS['closure']}; CREATE VIEW b AS {VIEWS['closure']};"
    twice = compile_sql(text, LINK)
    assert len(twice.recursions) == 1
    twice.step({"link": edges((1, 2), (2, 3))})
    deltas = twice.step({"link": edges((2, 3), weights=[-1])})
    assert bag_of(deltas["a"]) == bag_of(deltas["b"]) == {(2, 3): -1, (1, 3): -1}


def test_mutually_recursive_heads_in_another_order_keep_the_state():
    rules = [
        "even(x) :- zero(x).",
        "odd(y) :- even(x), link(x, y).",
        "even(y) :- odd(x), link(x, y).",
    ]
    inputs = {"link": EDGE, "zero": pa.schema([("x", INT)])}
    one = compile_datalog(" ".join(rules), inputs, materialize=True)
    other = compile_datalog(" ".join([rules[1], rules[0], rules[2]]), inputs, materialize=True)
    assert (list(one.plans), list(other.plans)) == (["even", "odd"], ["odd", "even"])
    assert state_names(one) == state_names(other)


SCRIPT = """
from tests.circuits.plan.test_structural_hash import VIEWS, circuit_of, state_names
print(sorted(state_names(circuit_of(*VIEWS))))
"""


@pytest.mark.thorough
def test_state_names_are_the_same_in_every_process():
    outputs = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert outputs == {f"{sorted(state_names(circuit_of(*VIEWS)))}\n"}


def test_recursions_that_differ_in_rows_with_null_have_different_hashes():
    def hash_of_recursion(mode: DistinctMode) -> str:
        return PlanHasher().hash_recursion(Fixpoint(("e",), (E,), (mode,)))

    modes = [DistinctMode("min", 1), DistinctMode("min", 1, keeps_null=True), DistinctMode("set")]
    assert len(set(map(hash_of_recursion, modes))) == 3
