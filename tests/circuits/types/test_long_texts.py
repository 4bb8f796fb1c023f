"""A function fails for a row with a too long result before it allocates memory for it."""

from __future__ import annotations

import decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import circuits.types.functions.argument_rows as rows_module
import circuits.types.functions.length_limits as limits
import circuits.types.functions.texts.text_functions as text_module
from circuits import EvaluationError, compile_sql
from circuits.excerpt import excerpt
from circuits.plan.expressions import Column, Literal
from circuits.runtime.evaluation import evaluate
from circuits.types.functions import call
from circuits.types.functions.length_limits import MAX_COLUMN_BYTES, MAX_STRING_BYTES, check_lengths

S, N, T = Column(0, pa.string()), Column(1, pa.int64()), Column(2, pa.string())
EDGES = [0, 1, -1, 2**31 - 1, 2**31, 3 * 10**9, 2**40, 2**63 - 1, 1 - 2**63, -(2**63)]
SCHEMA = {"r": pa.schema([("k", pa.int64()), ("s", pa.string()), ("n", pa.int64())])}


@pytest.mark.parametrize("dialect", ["spark", "postgres", "duckdb"])
def test_texts_are_padded_with_blanks_by_default(dialect):
    sql = "SELECT k, lpad(s, 4) AS a, rpad(s, 4) AS b FROM r"
    circuit = compile_sql(sql, SCHEMA, dialect=dialect)
    out = circuit.step({"r": pa.table({"k": [1], "s": ["ab"], "n": [0]}, schema=SCHEMA["r"])})
    assert out["view"].select(["a", "b"]).to_pylist() == [{"a": "  ab", "b": "ab  "}]


def expressions():
    x = Literal("é,", pa.string())
    return {
        "repeat": call("repeat", S, N),
        "lpad": call("lpad", S, N, x),
        "rpad": call("rpad", S, N, T),
        "left": call("left", S, N),
        "right": call("right", S, N),
        "substring": call("substring", S, N),
        "substring to": call("substring", S, N, Column(3, pa.int64())),
        "split_part": call("split_part", S, T, N),
    }


@pytest.mark.parametrize("name", expressions())
@pytest.mark.parametrize("n", EDGES)
def test_numbers_at_the_ends_of_int64_have_a_value_or_a_typed_error(name, n):
    for other in EDGES:
        columns = [pa.array(["aé,b"]), pa.array([n]), pa.array(["é"]), pa.array([other])]
        try:
            evaluate(expressions()[name], columns, 1)
        except EvaluationError as error:
            assert len(str(error)) < 600


@pytest.mark.parametrize("name", ["repeat", "rpad"])
def test_a_text_of_the_maximal_length_is_returned_and_a_longer_one_refused(name):
    longest, longer = (
        [pa.array(["x"]), pa.array([n]), pa.array(["x"])]
        for n in (MAX_STRING_BYTES, MAX_STRING_BYTES + 1)
    )
    assert len(evaluate(expressions()[name], longest, 1)[0].as_py()) == MAX_STRING_BYTES
    with pytest.raises(EvaluationError, match=f"{MAX_STRING_BYTES:,} bytes"):
        evaluate(expressions()[name], longer, 1)


def test_texts_of_many_rows_that_do_not_fit_a_column_have_an_error_of_their_own(monkeypatch):
    with pytest.raises(pa.ArrowCapacityError, match="a column has up to"):
        check_lengths(limits.np.full(200, MAX_STRING_BYTES))
    assert 100 * MAX_STRING_BYTES < MAX_COLUMN_BYTES
    monkeypatch.setattr(limits, "MAX_COLUMN_BYTES", 1000)
    monkeypatch.setattr(rows_module, "MAX_COLUMN_BYTES", 1000)
    pads = pa.array(["x", "y"] * 20)
    columns = [pa.array(["a"] * 40), pa.array(range(100, 140)), pads]
    for name in ("repeat", "lpad", "rpad"):
        with pytest.raises(EvaluationError, match=r"do not fit one column.*smaller micro-batches"):
            evaluate(expressions()[name], columns, 40)


def test_an_error_names_a_too_long_row_among_rows_that_do_not_fit_a_column(monkeypatch):
    monkeypatch.setattr(limits, "MAX_COLUMN_BYTES", 100)
    monkeypatch.setattr(limits, "MAX_STRING_BYTES", 50)
    monkeypatch.setattr(text_module, "MAX_STRING_BYTES", 50)
    columns = [pa.array(["a"] * 9), pa.array([40] * 8 + [51]), pa.array(["x"] * 9)]
    with pytest.raises(EvaluationError, match=r"has no value .* for #0 = 'a', #1 = 51: "):
        evaluate(expressions()["repeat"], columns, 9)


TEXTS = st.text("aé🙂", max_size=4)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(TEXTS, st.integers(-1, 9), TEXTS), min_size=1, max_size=5), st.data())
def test_a_text_is_refused_exactly_when_it_is_longer_than_the_limit(rows, data):
    limit = data.draw(st.integers(0, 30))
    columns = [pa.array(column) for column in zip(*rows, strict=True)]
    cases = {
        "repeat": (call("repeat", S, N), lambda s, n, t: s * max(n, 0)),
        "concat": (call("concat", S, T, S), lambda s, n, t: s + t + s),
        "replace": (call("replace", S, Literal("a", S.type), T), lambda s, n, t: s.replace("a", t)),
        "rpad": (
            call("rpad", S, N, Literal("é", S.type)),
            lambda s, n, t: s[: max(n, 0)].ljust(n, "é"),
        ),
    }
    expression, model = cases[data.draw(st.sampled_from(sorted(cases)))]
    expected = [model(*row) for row in rows]
    with pytest.MonkeyPatch.context() as patch:
        for module in (limits, text_module):
            patch.setattr(module, "MAX_STRING_BYTES", limit)
        longer = [e for e, (s, n, t) in zip(expected, rows, strict=True) if len(e) > len(s)]
        if any(len(text.encode()) > limit for text in longer):
            with pytest.raises(EvaluationError):
                evaluate(expression, columns, len(rows))
        elif all(len(text.encode()) <= limit for text in expected):
            assert evaluate(expression, columns, len(rows)).to_pylist() == expected


def test_an_excerpt_is_short_however_long_the_value_is():
    assert excerpt("a'b") == repr("a'b")
    assert excerpt(b"ab") == "b'ab'"
    assert excerpt("x" * 10**7) == f"'{'x' * 200}'… (10000000 characters)"
    assert excerpt(b"x" * 300).endswith("… (300 bytes)")
    assert len(excerpt(["x" * 10**6])) < 300


N_LONG = 10**7
LONG_TEXTS = {
    "digits": "1" * N_LONG,
    "zeros": "0" * N_LONG + "1",
    "fraction": "0." + "1" * N_LONG,
    "fraction of zeros": "1." + "0" * N_LONG,
    "exponent": "1e" + "9" * N_LONG,
    "exponent of zeros": "1e" + "0" * N_LONG,
    "points": "1." * (N_LONG // 2),
    "letters": "x" * N_LONG,
    "signs": "-" * N_LONG,
    "zero bytes": "\0" * N_LONG,
    "date": "2020-01-01 " + "1" * N_LONG,
    "time": "2020-01-01 00:00:00." + "0" * N_LONG,
}
TARGETS = [
    pa.bool_(), pa.int8(), pa.int64(), pa.uint64(), pa.float32(), pa.float64(),
    pa.decimal128(20, 2), pa.decimal256(60, 5), pa.date32(), pa.time64("us"),
    pa.timestamp("us"), pa.timestamp("us", "UTC"),
]  # fmt: skip


@pytest.mark.parametrize("target", TARGETS, ids=str)
@pytest.mark.parametrize("name", LONG_TEXTS)
def test_a_text_of_ten_megabytes_cannot_be_cast_to_another_type(name, target):
    column = [pa.array([LONG_TEXTS[name], "x", None])]
    with pytest.raises(
        EvaluationError, match=r"cannot be parsed as .*: it has more than 1000 bytes"
    ) as caught:
        evaluate(call("cast", S, type=target), column, 3)
    assert len(str(caught.value)) < 1500
    assert evaluate(call("try_cast", S, type=target), column, 3).null_count == 3


def test_blanks_around_a_value_do_not_count():
    text = pa.array([" " * 10**6 + "12" + " " * 10**6])
    assert evaluate(call("cast", S, type=pa.int64()), [text], 1).to_pylist() == [12]


DIGITS = st.text("0159", max_size=60)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["", "-", "+"]), DIGITS, DIGITS, st.integers(-90, 90) | st.none()
        ),
        min_size=1,
        max_size=3,
    ),
    st.sampled_from([pa.decimal128(20, 2), pa.decimal128(38, 0), pa.decimal256(60, 9)]),
)
def test_a_decimal_of_any_number_of_digits_is_read_exactly(parts, target):
    texts = [
        f"{sign}{whole}.{part}0" + ("" if power is None else f"e{power}")
        for sign, whole, part, power in parts
    ]
    exact = decimal.Context(prec=999, rounding=decimal.ROUND_HALF_UP)
    step = decimal.Decimal((0, (1,), -target.scale))
    expected = [exact.create_decimal(text).quantize(step, context=exact) for text in texts]
    cast = call("try_cast", S, type=target)
    for value, actual in zip(expected, evaluate(cast, [pa.array(texts)], len(texts)), strict=True):
        fits = len(value.as_tuple().digits) <= target.precision
        assert actual.as_py() == (value if fits else None)


@pytest.mark.parametrize(
    "expression",
    [
        "printf('%3000000000d', n)",
        "printf('%.3000000000f', n::DOUBLE)",
        "printf('%*d', n * 100000, k)",
        "printf('%9000000d%9000000d', n, n)",
        "array_to_string(list_transform(range(n), x -> s), ', ')",
        "regexp_replace(s, '', s, 'g')",
        "regexp_replace(s, '.*', repeat('\\0', 1000))",
        "replace(s, 'x', s)",
    ],
)
def test_a_function_that_would_return_a_too_long_text_is_refused(expression):
    circuit = compile_sql(f"SELECT length({expression}) AS n FROM r", SCHEMA)
    row = {"k": [1], "s": ["x" * 10**5], "n": [200]}
    with pytest.raises(EvaluationError, match=f"{MAX_STRING_BYTES:,} bytes"):
        circuit.step({"r": pa.table(row, SCHEMA["r"])})


def test_a_result_as_long_as_its_argument_may_be_longer_than_the_limit():
    circuit = compile_sql("SELECT length(lower(s)) AS n FROM r", SCHEMA)
    row = {"k": [1], "s": ["x" * (MAX_STRING_BYTES + 1)], "n": [0]}
    (answer,) = circuit.step({"r": pa.table(row, SCHEMA["r"])})["view"].to_pylist()
    assert answer["n"] == MAX_STRING_BYTES + 1


@pytest.mark.parametrize(
    ("expression", "dialect"),
    [
        ("len(range(n))", "duckdb"),
        ("len(generate_series(1, n))", "duckdb"),
        ("len(generate_series(1, 1000000000))", "duckdb"),
        ("len(range(0, -n, -1))", "duckdb"),
        ("len(list_resize([k], n))", "duckdb"),
        ("size(sequence(1, n))", "spark"),
        ("size(array_repeat(k, n))", "spark"),
    ],
)
def test_a_function_that_would_return_a_too_long_list_is_refused(expression, dialect):
    circuit = compile_sql(f"SELECT k, {expression} AS n FROM r", SCHEMA, dialect=dialect)
    row = {"k": [1], "s": ["x"], "n": [10**9]}
    with pytest.raises(EvaluationError, match=f"{limits.MAX_LIST_ELEMENTS:,} elements"):
        circuit.step({"r": pa.table(row, SCHEMA["r"])})


def test_lists_of_many_rows_that_do_not_fit_a_column_have_an_error_of_their_own(monkeypatch):
    monkeypatch.setattr(limits, "MAX_COLUMN_ELEMENTS", 1000)
    monkeypatch.setattr(rows_module, "MAX_COLUMN_ELEMENTS", 1000)
    rows = pa.table({"k": range(20), "s": ["x"] * 20, "n": [60] * 20}, SCHEMA["r"])
    for expression in ("range(n)", "list_transform(range(n), x -> range(n))", "range(k, 60)"):
        circuit = compile_sql(f"SELECT k, len({expression}) AS n FROM r", SCHEMA)
        with pytest.raises(EvaluationError, match="smaller micro-batches"):
            circuit.step({"r": rows})
    constant = compile_sql("SELECT k, list_transform(range(k), x -> range(60)) AS l FROM r", SCHEMA)
    with pytest.raises(EvaluationError, match="smaller micro-batches"):
        constant.step({"r": rows})
