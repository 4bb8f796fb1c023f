"""Random streams of typed rows, each a list of steps; runs operators and their oracle on them.

A step is a list of changes, which are pairs of a row and a weight. The oracle is
`tests.oracles.naive_plan`.
"""

from __future__ import annotations

import datetime
import math
from collections import Counter
from decimal import Decimal

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from circuits.runtime.operators.operator import StepContext
from circuits.types.codecs.codec import Codecs
from dbsp_wcoj import Relations, ZSet
from tests.oracles.naive_plan import bag, evaluate_plan

# Tiny domains: the ends of the order, values that tie in their first bytes, odd floats.
DOMAINS = {
    pa.int64(): [-(2**50), -1, 0, 1, 5, 2**50],
    pa.int8(): [-128, 0, 127],
    pa.uint64(): [0, 1, 2**50],
    pa.float64(): [-1.5, 0.0, 0.1, 0.2, 1e16, 1e300, 5e-324, math.inf, -math.inf, math.nan],
    pa.float32(): [-1.5, 0.25, 3.0],
    pa.bool_(): [False, True],
    pa.string(): ["", "b", "prefixes", "prefixes\0", "prefixes are long", "prefixes are", "é"],
    pa.binary(): [b"", b"\xff" * 8, b"\xff" * 9, b"a"],
    pa.string_view(): ["tied prefix 1", "tied prefix 2", "z"],
    pa.dictionary(pa.int32(), pa.string()): ["tied prefix 1", "tied prefix 2", "z"],
    pa.date32(): [datetime.date(1969, 12, 31), datetime.date(2024, 2, 29)],
    pa.decimal64(9, 2): [Decimal("-1.50"), Decimal("0.00"), Decimal("9999999.99")],
    pa.decimal128(38, 3): [Decimal("-1.500"), Decimal("0.001"), Decimal(10) ** 30, -(10**30)],
    pa.null(): [],
}
NUMBERS = [
    type_
    for type_ in DOMAINS
    if pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_)
]


def rows_of(types):
    values = [st.none() | st.sampled_from(DOMAINS[t]) if DOMAINS[t] else st.none() for t in types]
    return st.tuples(*values)


def streams(types, *, lowest=-2, steps=6, size=8):
    change = st.tuples(rows_of(types), st.integers(lowest, 3))
    return st.lists(st.lists(change, max_size=size), min_size=1, max_size=steps)


def encode(changes, types, codecs):
    weights = [weight for _, weight in changes]
    if not types:
        return ZSet.scalar(sum(weights))
    columns = [
        codecs.codec(t).encode(array_of([row[i] for row, _ in changes], t))
        for i, t in enumerate(types)
    ]
    return ZSet.from_columns(columns, weights)


def array_of(values, type_):
    if pa.types.is_dictionary(type_):
        return pa.array(values, type_.value_type).dictionary_encode().cast(type_)
    return pa.array(values, type_)


def decode(zset, types, codecs):
    columns = [
        codecs.codec(t).decode(column).to_pylist()
        for t, column in zip(types, zset.columns, strict=True)
    ]
    rows = list(zip(*columns, strict=True)) if types else [()] * len(zset)
    return bag(dict(zip(map(canonical, rows), zset.weights.tolist(), strict=True)))


def canonical(row):
    """Replace each NaN by one object, so that a dict finds it."""
    return tuple(math.nan if isinstance(v, float) and v != v else v for v in row)


def run_stream(make_operator, plan, stream):
    """Run an operator over a stream; compare its summed deltas with the oracle after each step."""
    codecs = Codecs()
    operator = make_operator(plan, codecs)
    types = [field.type for field in plan.input.fields]
    out_types = [field.type for field in plan.fields]
    total = ZSet.empty(len(types))
    output = ZSet.empty(len(out_types))
    for number, changes in enumerate(stream):
        delta = encode(changes, types, codecs)
        total = total + delta
        context = StepContext(number == 0, Relations().stage({}))
        change, prepared = operator.prepare([delta], context)
        repeated, _ = operator.prepare([delta], context)
        assert change == repeated
        change._check()
        if prepared is not None:
            prepared.commit()
        output = output + change
        assert output == operator.evaluate([total])
        current = decode(total, types, codecs)
        expected = evaluate_plan(plan, {plan.input.relation: current})
        assert decode(output, out_types, codecs) == Counter(expected)


def run_sliding_window(make_operator, plan, *, steps=24, size=3000, groups=40):
    """Run an operator over rows that are inserted and deleted; compare the sums with `evaluate`."""
    rng = np.random.default_rng(7)
    operator = make_operator(plan, Codecs())
    total = ZSet.empty(3)
    output = ZSet.empty(len(plan.fields))
    for number in range(steps):
        columns = [
            rng.integers(0, groups, size),
            np.arange(size) + number * size,  # older rows first
            rng.integers(-5, 5, size),
        ]
        inserted = ZSet.from_columns(columns)
        order = np.argsort(total.columns[1])[: size // 2 if number > 4 else 0]
        deleted = ZSet.from_columns([c[order] for c in total.columns], -total.weights[order])
        delta = inserted + deleted
        total = total + delta
        change, prepared = operator.prepare(
            [delta], StepContext(number == 0, Relations().stage({}))
        )
        prepared.commit()
        output = output + change
        assert output == operator.evaluate([total])
