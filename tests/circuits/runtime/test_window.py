"""Window functions: the law of the operator, frames against a naive reading, and counted work."""

from __future__ import annotations

from collections import Counter
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from circuits.plan.nodes import Field, Scan
from circuits.plan.window import Window
from circuits.runtime.operators import window as window_module
from circuits.runtime.operators.operator import StepContext
from circuits.runtime.operators.window import WindowOperator
from circuits.types.codecs.codec import NULL, Codecs
from dbsp_wcoj import Relations, ZSet
from dbsp_wcoj.values.bitcast import values_of
from tests.generators.plans import encoded, windows
from tests.oracles.naive_plan import bag, evaluate_plan

INT = pa.int64()
ROWS = Scan("r", (Field("k", INT), Field("t", INT), Field("x", INT)))
LAW = settings(
    max_examples=200,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
# A cost of a segment that makes the operator read segments, or whole partitions, in every step.
ALWAYS_SEGMENTS, NEVER_SEGMENTS = -(10**9), 10**9
SMALL = st.sampled_from([None, 0, 1, 2, 3, 5])
TIMES = st.one_of(st.none(), st.integers(0, 12))
CONTEXT = StepContext(False, Relations().stage({}))


def rows_of(plan: Window, zset: ZSet) -> Counter[tuple[object, ...]]:
    """The rows of a result as Python values."""
    columns = []
    for field, codes in zip(plan.fields, zset.row_array, strict=True):
        if pa.types.is_floating(field.type):
            values = values_of(codes, np.dtype(np.float64)).tolist()
        else:
            values = codes.tolist()
        pairs = zip(codes.tolist(), values, strict=True)
        columns.append([None if code == NULL else value for code, value in pairs])
    rows = zip(*columns, strict=True)
    return bag(dict(zip(rows, zset.weight_array.tolist(), strict=True)))


def step(operator: WindowOperator, delta: ZSet) -> ZSet:
    change, staged = operator.prepare([delta], CONTEXT)
    if staged is not None:
        staged.commit()
    return change


def check_law(data: st.DataObject, overhead: int, *, least_weight: int) -> None:
    """Σ prepare(d_t) = evaluate(Σ d_t) = the oracle, after every step."""
    plan = data.draw(windows(ROWS, fractions=True))
    operator = WindowOperator(plan, Codecs())
    inputs, output = ZSet.empty(3), ZSet.empty(len(plan.fields))
    total: Counter[tuple[object, ...]] = Counter()
    row = st.tuples(st.sampled_from([None, 1]), TIMES, SMALL)
    # A load, then small changes of it, some of which delete rows of the load.
    for number in range(data.draw(st.integers(1, 5))):
        present = st.sampled_from(sorted(total, key=repr)) if total else row
        most = 3 if number else 16
        rows = data.draw(st.lists(st.one_of(row, present), min_size=1, max_size=most))
        amounts = []
        for changed in rows:
            least = max(-2, least_weight - total[changed])
            amounts.append(data.draw(st.integers(least, 2).filter(bool)))
            total[changed] += amounts[-1]
        delta = encoded(rows, amounts)
        inputs += delta
        with mock.patch.object(window_module, "SEGMENT_OVERHEAD_ROWS", overhead):
            output += step(operator, delta)
        assert output == operator.evaluate([inputs])
        expected = evaluate_plan(plan, {"r": {each: w for each, w in total.items() if w}})
        assert rows_of(plan, output) == expected


segments_or_partitions = given(st.data(), st.sampled_from([ALWAYS_SEGMENTS, NEVER_SEGMENTS]))


@LAW
@segments_or_partitions
def test_summed_deltas_are_the_window_of_the_summed_input(data, overhead):
    check_law(data, overhead, least_weight=0)


@LAW
@segments_or_partitions
def test_rows_of_negative_weight_are_ignored_until_they_are_positive(data, overhead):
    check_law(data, overhead, least_weight=-2)


@pytest.mark.slow
@settings(LAW, max_examples=5000)
@given(st.data(), st.sampled_from([0, 0, -1]))
def test_many_windows_keep_the_law(data, least_weight):
    check_law(data, ALWAYS_SEGMENTS, least_weight=least_weight)
