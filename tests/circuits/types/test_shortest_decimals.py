"""The function ``shortest_decimal``, against Python's own decimals."""

import math
from decimal import ROUND_HALF_UP, Context, Decimal

import pyarrow as pa
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from circuits import compile_sql
from circuits.errors import EvaluationError, FunctionError
from circuits.plan.expressions import Column, Literal
from circuits.runtime.evaluation import evaluate
from circuits.types.functions.calls import call

WIDE = Context(prec=800, rounding=ROUND_HALF_UP)

# Texts of few digits are often a half at some scale; all floats are rarely one.
FLOATS = st.one_of(
    st.floats(),
    st.builds(lambda n, e: float(f"{n}e{e}"), st.integers(-(10**6), 10**6), st.integers(-30, 30)),
    st.builds(lambda n, e: float(f"{n}5e{e}"), st.integers(-(10**16), 10**16), st.integers(-40, 5)),
)


def expected(value: float | None, scale: int) -> Decimal | None:
    if value is None:
        return None
    return Decimal(repr(value)).quantize(Decimal((0, (1,), -scale)), context=WIDE)


def shorten(values: list[float | None], scale: int) -> list[Decimal | None]:
    expression = call("shortest_decimal", Column(0, pa.float64()), Literal(scale, pa.int64()))
    return evaluate(expression, (pa.array(values, pa.float64()),), len(values)).to_pylist()


@given(st.lists(st.none() | FLOATS, min_size=1, max_size=20), st.integers(0, 38))
@example([1.005, -1.005, 0.5, -0.5, 2.5, -0.0, 5e-324, None], 2)
@example([562949953421311.5, 562949953421312.5, 4503599627370495.5, 9007199254740993.0], 0)
@example([0.1, 123.45, 1e22, 1e23, 1.7976931348623157e308, math.inf, -math.inf, math.nan], 18)
@example([0.1, 1e-38, 5e-39, 4.9e-39, 0.9999999999999999, 1.0], 38)
def test_a_float_is_the_decimal_of_its_shortest_text(values, scale):
    limit = float(f"1e{38 - scale}")
    in_range = [value for value in values if value is None or abs(value) < limit]
    assume(in_range)
    assert shorten(in_range, scale) == [expected(value, scale) for value in in_range]
    for value in (value for value in values if value not in in_range):
        with pytest.raises(EvaluationError, match="has no decimal of 38 digits"):
            shorten([value], scale)


@pytest.mark.spark
def test_a_cast_to_a_decimal_agrees_with_spark(spark):
    values = [1.005, -1.005, 999.995, 0.1, 123456.785, 1e-7, 1e20, 1e300, math.nan, math.inf, 2 / 3]
    schema = pa.schema([("k", pa.int64()), ("x", pa.float64())])
    keys = range(len(values))
    spark.createDataFrame(
        list(zip(keys, values, strict=True)), "k long, x double"
    ).createOrReplaceTempView("t")
    for type_ in ("decimal(5, 2)", "decimal(38, 18)", "decimal(38, 38)", "decimal(20, 0)"):
        text = f"SELECT k, try_cast(x AS {type_}) AS d FROM t"
        step = compile_sql(text, {"t": schema}, dialect="spark").step(
            {"t": pa.table([pa.array(keys), pa.array(values)], schema)}
        )
        ours = {row["k"]: row["d"] for row in step["view"].to_pylist()}
        assert ours == {row.k: row.d for row in spark.sql(text).collect()}


@pytest.mark.parametrize("scale", [Literal(39, pa.int64()), Column(0, pa.int64())])
def test_the_scale_is_a_literal_from_0_to_38(scale):
    with pytest.raises(FunctionError, match="b is a literal from 0 to 38"):
        call("shortest_decimal", Column(0, pa.float64()), scale)


def test_values_of_few_digits_are_not_formatted_as_text(monkeypatch):
    formatted = []
    monkeypatch.setattr(
        "circuits.types.functions.casting.shortest_decimals.write_text",
        lambda values, target: formatted.extend(values.to_pylist()) or values.cast(target),
    )
    values = [0.1, 1.005, 123456.78, 1e-7, 1e12, 2.0**40 / 3]
    for scale in (2, 18):
        shorten(values, scale)
    assert formatted == [1.005, 2.0**40 / 3]  # a half of scale 2; 17 digits of scale 18
