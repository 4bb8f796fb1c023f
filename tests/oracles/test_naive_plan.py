"""Compares the oracle of plans with answers computed by hand, and with DuckDB on a few plans."""

from __future__ import annotations

import math
from collections import Counter
from decimal import Decimal

import pyarrow as pa

from circuits.plan.expressions import Column, Literal
from circuits.plan.nodes import (
    Aggregate,
    AggregateCall,
    CrossJoin,
    Distinct,
    Field,
    Filter,
    Map,
    Negate,
    Order,
    OuterJoin,
    Positive,
    Scan,
    Semijoin,
    TopK,
    Union,
    Values,
)
from circuits.types.functions import aggregate_type, call
from tests.oracles.naive_plan import bag, evaluate_plan

INT = pa.int64()
R = Scan("r", (Field("a", INT), Field("b", INT)))
S = Scan("s", (Field("c", INT),))
DATA = {"r": [(1, 2), (1, 2), (2, None), (3, 4)], "s": [(2,), (2,), (None,), (9,)]}
B_IS_C = call("eq", Column(1, INT), Column(2, INT))


def test_a_join_multiplies_weights_and_null_meets_nothing():
    plan = Filter(CrossJoin((R, S)), B_IS_C)
    assert evaluate_plan(plan, DATA) == {(1, 2, 2): 4}


def test_semi_and_anti_joins_divide_the_left_rows():
    assert evaluate_plan(Semijoin(R, S, B_IS_C), DATA) == {(1, 2): 2}
    assert evaluate_plan(Semijoin(R, S, B_IS_C, anti=True), DATA) == {(2, None): 1, (3, 4): 1}


def test_outer_joins_keep_the_rows_without_partner():
    left = {(1, 2, 2): 4, (2, None, None): 1, (3, 4, None): 1}
    assert evaluate_plan(OuterJoin(R, S, B_IS_C), DATA) == left
    right = {(None, None, None): 1, (None, None, 9): 1}
    assert evaluate_plan(OuterJoin(R, S, B_IS_C, "full"), DATA) == left | right


def test_union_negate_positive_make_except_all():
    subtracted = Values((Field("c", INT),), ((2,), (7,)))
    assert evaluate_plan(Union((S, Negate(subtracted))), DATA) == {
        (2,): 1,
        (None,): 1,
        (9,): 1,
        (7,): -1,
    }
    plan = Positive(Union((S, Negate(subtracted))))
    assert evaluate_plan(plan, DATA) == {(2,): 1, (None,): 1, (9,): 1}


def test_distinct_takes_null_for_the_same_as_null():
    assert evaluate_plan(Distinct(S), {"s": [(None,), (None,), (1,)]}) == {(None,): 1, (1,): 1}


def test_map_adds_up_equal_results():
    plan = Map(R, (call("is_null", Column(1, INT)),), ("x",))
    assert evaluate_plan(plan, DATA) == {(False,): 3, (True,): 1}
    assert evaluate_plan(Map(R, (), ()), DATA) == {(): 4}


def aggregate_of(function: str, data_type: pa.DataType, distinct: bool = False) -> AggregateCall:
    return AggregateCall(function, 1, aggregate_type(function, data_type), function, distinct)  # type: ignore[arg-type]


def test_aggregates_leave_out_nulls_and_count_weights():
    functions = ("count", "sum", "avg", "min", "max")
    calls = tuple(aggregate_of(f, INT) for f in functions)
    plan = Aggregate(R, (0,), (AggregateCall("count", None, INT, "n"), *calls))
    assert evaluate_plan(plan, DATA) == {
        (1, 2, 2, 4, 2.0, 2, 2): 1,
        (2, 1, 0, None, None, None, None): 1,
        (3, 1, 1, 4, 4.0, 4, 4): 1,
    }


def test_without_keys_there_is_always_one_row():
    plan = Aggregate(R, (), (AggregateCall("count", None, INT, "n"), aggregate_of("sum", INT)))
    assert evaluate_plan(plan, {"r": []}) == {(0, None): 1}


def test_sums_are_exact():
    data_type = pa.decimal128(15, 2)
    scan = Scan("r", (Field("a", INT), Field("b", data_type)))
    rows = [(1, Decimal("0.10")), (1, Decimal("9999999999999.99"))] * 3
    plan = Aggregate(
        scan, (0,), (aggregate_of("sum", data_type), aggregate_of("sum", data_type, distinct=True))
    )
    total = Decimal("10000000000000.09")
    assert evaluate_plan(plan, {"r": rows}) == {(1, 3 * total, total): 1}


def test_floats_have_one_nan_and_one_zero():
    scan = Scan("r", (Field("a", pa.float64()), Field("b", pa.float64())))
    rows = [(float("nan"), 1.0), (math.nan, 1e16), (math.nan, -1e16), (-0.0, 1.0), (0.0, math.inf)]
    plan = Aggregate(scan, (0,), (aggregate_of("sum", pa.float64()),))
    assert evaluate_plan(plan, {"r": rows}) == bag([(math.nan, 1.0), (0.0, math.inf)])


def test_top_k_counts_a_row_as_often_as_its_weight():
    order = (Order(1, descending=True, nulls_first=True),)
    assert evaluate_plan(TopK(R, (), order, 3), DATA) == {(2, None): 1, (3, 4): 1, (1, 2): 1}
    assert evaluate_plan(TopK(R, (), order, 2, 2), DATA) == {(1, 2): 2}
    assert evaluate_plan(TopK(R, (0,), order, 1), DATA) == {(2, None): 1, (3, 4): 1, (1, 2): 1}
    assert evaluate_plan(TopK(R, (), order, None, 3), DATA) == {(1, 2): 1}


def test_top_k_decides_ties_by_the_other_columns_nulls_last():
    rows = [(1, None), (1, 5), (0, 7)]
    plan = TopK(R, (), (Order(0, descending=True),), 1)
    assert evaluate_plan(plan, {"r": rows}) == {(1, 5): 1}


def test_relations_may_be_given_with_weights():
    plan = Filter(S, call("gt", Column(0, INT), Literal(1, INT)))
    assert evaluate_plan(plan, {"s": Counter({(2,): -3, (1,): 1})}) == {(2,): -3}
