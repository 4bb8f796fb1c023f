"""User-defined functions: deletions delete the results of the insertions; calls are counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circuits import (
    Circuit,
    CircuitError,
    EvaluationError,
    FunctionError,
    SchemaError,
    SqlError,
    UnsupportedSqlError,
    UserFunctionError,
    compile_datalog,
    compile_sql,
    udf,
)
from circuits.sql import find_obstacles
from dbsp_wcoj import ArgumentTypeError

LAW = settings(max_examples=40)
SCHEMAS = {"t": "k bigint, x bigint", "u": "k bigint, y bigint"}
VALUES = st.one_of(st.none(), st.integers(0, 2))
ROWS = st.dictionaries(st.tuples(VALUES, VALUES), st.integers(-2, 2).filter(bool), max_size=4)
STEPS = st.lists(st.fixed_dictionaries({"t": ROWS, "u": ROWS}), min_size=1, max_size=5)


def table(names: str, rows: dict[tuple[Any, ...], int]) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else [() for _ in names]
    arrays = [pa.array(column, pa.int64()) for column in [*columns, list(rows.values())]]
    return pa.table(dict(zip([*names, "weight"], arrays, strict=True)))


def tables(step: dict[str, dict[tuple[Any, ...], int]]) -> dict[str, pa.Table]:
    return {"t": table("kx", step["t"]), "u": table("ky", step["u"])}


def zset(delta: pa.Table) -> Counter[tuple[Any, ...]]:
    weights: Counter[tuple[Any, ...]] = Counter()
    for row in delta.to_pylist():
        weights[tuple(row.values())[:-1]] += row["weight"]
    return weights


def add(total: Counter[tuple[Any, ...]], delta: Iterable[tuple[tuple[Any, ...], int]]) -> None:
    for row, weight in delta:
        total[row] += weight
        if not total[row]:
            del total[row]


def double(x: int) -> int:
    return 2 * x


def double_array(x: pa.Array) -> pa.Array:
    return pc.multiply(x, 2)


DOUBLE = udf(double, returns="bigint")
ODD = udf(lambda x: x % 2 == 1, returns="boolean")
DETERMINISTIC = [
    # The query with the function, and the same one without it.
    ("SELECT k, f(x) AS v FROM t", "SELECT k, 2 * x AS v FROM t"),
    ("SELECT k FROM t WHERE f(x) > k", "SELECT k FROM t WHERE 2 * x > k"),
    (
        "SELECT f(x) AS v, count(*) AS n FROM t GROUP BY f(x)",
        "SELECT 2 * x, count(*) FROM t GROUP BY 1",
    ),
    (
        "SELECT k, f(sum(x)) AS v FROM t GROUP BY k HAVING f(count(*)) > 2",
        "SELECT k, 2 * sum(x) FROM t GROUP BY k HAVING 2 * count(*) > 2",
    ),
    (
        "SELECT t.k, y FROM t JOIN u ON f(t.x) = u.y WHERE f(f(u.k)) < 7",
        "SELECT t.k, y FROM t JOIN u ON 2 * t.x = u.y WHERE 4 * u.k < 7",
    ),
    (
        "SELECT t.k, x, y FROM t, u WHERE f(t.x + u.y) > 3 AND t.k = u.k",
        "SELECT t.k, x, y FROM t, u WHERE 2 * (t.x + u.y) > 3 AND t.k = u.k",
    ),
    (
        "SELECT t.k, f(y) AS v FROM t LEFT JOIN u ON f(t.k) = f(u.k) AND f(u.y) < 3",
        "SELECT t.k, 2 * y FROM t LEFT JOIN u ON 2 * t.k = 2 * u.k AND 2 * u.y < 3",
    ),
    (
        "SELECT k FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.k = f(t.x) AND f(u.y) > 0)",
        "SELECT k FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.k = 2 * t.x AND 2 * u.y > 0)",
    ),
    (
        "SELECT k FROM t WHERE f(x) NOT IN (SELECT f(y) FROM u)",
        "SELECT k FROM t WHERE 2 * x NOT IN (SELECT 2 * y FROM u)",
    ),
    (
        "SELECT k, f(x) AS v FROM t WHERE f(x) > 1 OR EXISTS (SELECT 1 FROM u WHERE u.k = t.k)",
        "SELECT k, 2 * x FROM t WHERE 2 * x > 1 OR EXISTS (SELECT 1 FROM u WHERE u.k = t.k)",
    ),
    (
        "SELECT k, sum(f(x)) OVER (PARTITION BY k) AS v FROM t UNION ALL SELECT f(k), y FROM u",
        "SELECT k, sum(2 * x) OVER (PARTITION BY k) AS v FROM t UNION ALL SELECT 2 * k, y FROM u",
    ),
    (
        "SELECT k, (SELECT max(f(y)) FROM u WHERE u.k = f(t.k)) AS v FROM t",
        "SELECT k, (SELECT max(2 * y) FROM u WHERE u.k = 2 * t.k) AS v FROM t",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("query", "plain"), DETERMINISTIC)
@settings(max_examples=10)
@given(steps=STEPS, vectorized=st.booleans())
def test_deltas_equal_those_of_the_expression_that_the_function_computes(
    query: str, plain: str, steps: list[Any], vectorized: bool
) -> None:
    function = udf(double_array if vectorized else double, returns="bigint", vectorized=vectorized)
    circuit = compile_sql(query, SCHEMAS, functions={"f": function})
    expected = compile_sql(plain, SCHEMAS)
    for step in steps:
        delta = zset(circuit.step(tables(step))["view"])
        assert delta == zset(expected.step(tables(step))["view"])


def check_results(outputs: Counter[tuple[Any, ...]], rows: Counter[tuple[Any, ...]]) -> None:
    """Check that each row has one result, the same for equal arguments, with its weight."""
    results: dict[Any, Any] = {}
    remaining = Counter(rows)
    for (k, x, value), weight in outputs.items():
        assert remaining.pop((k, x)) == weight
        assert results.setdefault(x, value) == value
        assert (x is None) == (value is None)
    assert not remaining


@LAW
@given(steps=STEPS, restart=st.integers(0, 5))
def test_each_deletion_takes_back_the_result_of_the_insertion(
    steps: list[Any], restart: int
) -> None:
    numbers = count()
    arguments: list[int] = []

    def number(x: int) -> int:
        arguments.append(x)
        return next(numbers)

    def build() -> Circuit:
        functions = {"f": udf(number, returns=pa.int64())}
        return compile_sql("SELECT k, x, f(x) AS v FROM t", SCHEMAS, functions=functions)

    circuit = build()
    rows: Counter[tuple[Any, ...]] = Counter()
    outputs: Counter[tuple[Any, ...]] = Counter()
    for place, step in enumerate(steps):
        if place == restart:
            snapshot = circuit.snapshot()
            circuit = build()
            circuit.restore(snapshot)
        arguments.clear()
        present = {x for _, x in rows}
        add(outputs, zset(circuit.step({"t": table("kx", step["t"])})["view"]).items())
        add(rows, step["t"].items())
        new = {x for _, x in step["t"] if x is not None} - present
        assert sorted(arguments) == sorted(new)  # once per combination of arguments
        check_results(outputs, rows)


@LAW
@given(steps=STEPS)
def test_all_uses_of_one_call_see_the_same_result(steps: list[Any]) -> None:
    """A common table is read with a condition and without, and joined with itself."""
    numbers = count()
    functions = {"f": udf(lambda x: next(numbers) % 2, returns="bigint")}
    circuit = compile_sql(
        """
        CREATE VIEW c AS WITH s AS (SELECT k, x, f(x) AS v FROM t)
            SELECT a.k, a.x, a.v, b.v AS w
            FROM s a JOIN s b ON a.k = b.k AND a.x = b.x WHERE a.x > 0;
        CREATE VIEW d AS SELECT k, v FROM (SELECT k, x, f(x) AS v FROM t) WHERE v = 1;
        CREATE VIEW e AS SELECT k, f(x) AS v FROM t
            WHERE f(x) = 1 OR EXISTS (SELECT 1 FROM u WHERE u.k = t.k);
        """,
        SCHEMAS,
        functions=functions,
    )
    totals: dict[str, Counter[tuple[Any, ...]]] = {name: Counter() for name in "cde"}
    keys_of_u: Counter[tuple[Any, ...]] = Counter()
    for step in steps:
        # Inputs without negative weights: EXISTS and DISTINCT have no meaning for others.
        positive = {name: {r: w for r, w in rows.items() if w > 0} for name, rows in step.items()}
        for name, delta in circuit.step(tables(positive)).items():
            add(totals[name], zset(delta).items())
        add(keys_of_u, (((k,), w) for (k, _), w in positive["u"].items()))
        assert all(v == w for _, _, v, w in totals["c"])
        assert all(v == 1 for _, v in totals["d"])
        assert all(v == 1 or (k,) in keys_of_u for k, v in totals["e"])


def test_a_result_is_kept_while_its_arguments_exist_and_then_dropped() -> None:
    arguments: list[int] = []
    function = udf(lambda x: arguments.append(x), returns=pa.int64())
    circuit = compile_sql("SELECT f(x) AS v FROM t", SCHEMAS, functions={"f": function})
    circuit.step({"t": table("kx", {(k, k % 3): 1 for k in range(3000)})})
    assert sorted(arguments) == [0, 1, 2]
    circuit.step({"t": table("kx", {(k, 0): 1 for k in range(3000, 3100)})})
    assert len(arguments) == 3
    circuit.step({"t": table("kx", {(k, k % 3): -1 for k in range(3000) if k % 3 == 1})})
    assert len(arguments) == 3
    circuit.step({"t": table("kx", {(1, 1): 1, (2, 2): 1})})
    assert arguments[3:] == [1]


def test_the_state_has_the_columns_that_are_read_of_the_rows_that_exist() -> None:
    wide = {"t": ", ".join(f"c{i} bigint" for i in range(20))}
    circuit = compile_sql(
        "SELECT c3, f(c7) AS v FROM t WHERE c9 > 0", wide, functions={"f": DOUBLE}
    )
    (line,) = (line for line in circuit.explain().splitlines() if "call user-defined" in line)
    row = {f"c{i}": 1 for i in range(20)}
    circuit.step({"t": [row]})
    (operator,) = (
        node.operator
        for node in circuit.graph.nodes
        if type(node.operator).__name__ == "UserCallOperator"
    )
    assert operator.trace.arity == 3, line
    assert operator.trace.rows == 1
    circuit.step({"t": [{**row, "weight": -1}]})
    for _ in range(20):
        circuit.step({"t": [{**row, "c9": 0}]})
    assert operator.trace.rows == 0


def test_a_function_is_not_called_for_rows_that_earlier_conditions_remove() -> None:
    arguments: list[int] = []

    def inverse(x: int) -> float:
        arguments.append(x)
        return 1 / x

    functions = {"inverse": udf(inverse, returns="double")}
    for where in ("x > 0 AND inverse(x) < 1", "inverse(x) < 1 AND x > 0"):
        circuit = compile_sql(f"SELECT k FROM t WHERE {where}", SCHEMAS, functions=functions)
        circuit.step({"t": table("kx", {(1, 0): 1, (1, 2): 1})})
    circuit = compile_sql(
        "SELECT t.k FROM u JOIN t ON u.k = t.k WHERE inverse(x) < 1 AND x > 0 AND y = 1",
        SCHEMAS,
        functions=functions,
    )
    circuit.step({"t": table("kx", {(1, 0): 1, (1, 2): 1}), "u": table("ky", {(1, 1): 1})})
    assert arguments == [2, 2, 2]


def test_a_null_argument_gives_null_without_a_call_unless_the_option_is_set() -> None:
    rows = [{"k": 1, "x": None}, {"k": 2, "x": 3}]
    query = "SELECT k, f(x, k) AS v FROM t"
    for option, expected in ((False, [None, 5]), (True, [-1, 5])):
        function = udf(
            lambda x, k: -1 if x is None else x + k, returns="bigint", call_on_null=option
        )
        circuit = compile_sql(query, SCHEMAS, functions={"f": function})
        delta = circuit.step({"t": rows})["view"]
        assert delta["v"].to_pylist() == expected
        assert circuit.step({"t": [{**row, "weight": -1} for row in rows]})["view"].num_rows == 2
    vector = udf(lambda x: pc.fill_null(x, 7), returns="bigint", vectorized=True, call_on_null=True)
    circuit = compile_sql("SELECT f(x) AS v FROM t", SCHEMAS, functions={"f": vector})
    assert sorted(circuit.step({"t": rows})["view"]["v"].to_pylist()) == [3, 7]


def raise_for_two(x: int) -> int:
    if x == 2:
        raise ValueError("two is bad")
    return x


@pytest.mark.parametrize(
    ("function", "options", "words"),
    [
        (raise_for_two, {}, ["f(2)", "ValueError: two is bad", "x = 2, k = 7"]),
        (lambda x: "text" if x == 2 else x, {}, ["f(2)", "'text'", "int64", "k = 7"]),
        (lambda x: 0.5 if x == 2 else x, {}, ["f(2)", "0.5", "int64"]),
        (lambda x: 2**70 if x == 2 else x, {}, ["f(2)", "int64"]),
        (lambda x: object() if x == 2 else x, {}, ["f(2)", "object", "int64"]),
        (lambda x: pa.array([raise_for_two(v.as_py()) for v in x], pa.int64()),
         {"vectorized": True}, ["f(2)", "ValueError: two is bad", "k = 7"]),
        (lambda x: x[:1], {"vectorized": True}, ["1 values for 3 rows"]),
        (lambda x: pa.array(["a"] * len(x)), {"vectorized": True}, ["int64", "'a'"]),
        (lambda x: pc.add(pc.cast(x, pa.float64()), 0.5), {"vectorized": True}, ["int64", "f(1)"]),
        (lambda x: None, {"vectorized": True}, ["NoneType", "pyarrow.Array"]),
        (lambda x: 5, {"vectorized": True}, ["int", "pyarrow.Array"]),
        (lambda x: np.zeros((2, 2)), {"vectorized": True}, ["ndarray", "int64"]),
    ],
)  # fmt: skip
def test_a_failing_function_is_an_error_that_names_it_and_the_row(
    function: Callable[..., Any], options: dict[str, Any], words: list[str]
) -> None:
    functions = {"f": udf(function, returns=pa.int64(), **options)}
    circuit = compile_sql(
        "CREATE VIEW scores AS SELECT k, f(x) AS v FROM t", SCHEMAS, functions=functions
    )
    with pytest.raises(UserFunctionError) as caught:
        circuit.step({"t": table("kx", {(5, 1): 1, (7, 2): 1, (8, 3): 1})})
    message = str(caught.value)
    for word in ["view 'scores'", "f(", *words]:
        assert all(part in message for part in word.split(", ")), message
    assert isinstance(caught.value, EvaluationError)
    assert circuit.snapshot().steps == 0
    assert all(not len(weights) for _, weights in circuit.snapshot().traces.values())


def test_the_error_of_python_is_the_cause() -> None:
    circuit = compile_sql(
        "SELECT f(x) AS v FROM t", SCHEMAS, functions={"f": udf(raise_for_two, returns="bigint")}
    )
    with pytest.raises(UserFunctionError) as caught:
        circuit.step({"t": [{"k": 1, "x": 2}]})
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_function_that_changes_its_arguments_or_results_changes_nothing_else() -> None:
    shared: list[int] = []

    def append(values: list[int]) -> list[int]:
        values.append(99)
        shared[:] = values
        return shared

    circuit = compile_sql(
        "SELECT a, f(a) AS v FROM r",
        {"r": "a array<bigint>"},
        functions={"f": udf(append, returns="array<bigint>")},
    )
    delta = circuit.step({"r": [{"a": [1]}, {"a": [2, 3]}]})["view"]
    assert sorted(map(str, delta.select(["a", "v"]).to_pylist())) == [
        "{'a': [1], 'v': [1, 99]}",
        "{'a': [2, 3], 'v': [2, 3, 99]}",
    ]


def test_arguments_have_the_types_of_the_parameters() -> None:
    arguments: list[Any] = []
    function = udf(lambda x: arguments.append(x), returns="bigint", parameters=[pa.float64()])
    query = "SELECT f(1.5) AS v, f(x) AS w FROM t"
    circuit = compile_sql(query, SCHEMAS, functions={"f": function})
    circuit.step({"t": [{"k": 1, "x": 2}]})
    assert sorted(arguments) == [1.5, 2.0]
    assert all(isinstance(value, float) for value in arguments)
    with pytest.raises(SqlError, match=r"column 8: f.*type double, and the argument of type bool"):
        compile_sql("SELECT f(x > 1) AS v FROM t WHERE k > 0", SCHEMAS, functions={"f": function})
    with pytest.raises(SqlError, match="takes 1 arguments, not 2"):
        compile_sql("SELECT f(x, k) AS v FROM t", SCHEMAS, functions={"f": function})


def test_invalid_declarations_are_refused() -> None:
    function = DOUBLE
    for name in ("abs", "SUM", "row_number", "substring", "case", "list_transform"):
        with pytest.raises(FunctionError, match="choose another name"):
            compile_sql("SELECT k FROM t", SCHEMAS, functions={name: function})
    with pytest.raises(FunctionError, match="choose another name"):
        compile_datalog("p(x) :- t(x, _).", SCHEMAS, functions={"add": function})
    with pytest.raises(FunctionError, match="compared without case"):
        compile_sql("SELECT k FROM t", SCHEMAS, functions={"f": function, "F": function})
    with pytest.raises(FunctionError, match="letters"):
        compile_sql("SELECT k FROM t", SCHEMAS, functions={"my f": function})
    with pytest.raises(ArgumentTypeError, match="udf"):
        compile_sql("SELECT k FROM t", SCHEMAS, functions={"f": double})  # type: ignore[dict-item]
    with pytest.raises(ArgumentTypeError, match="function of Python"):
        udf(5, returns="bigint")  # type: ignore[arg-type]
    with pytest.raises(SchemaError, match="NULL"):
        udf(double, returns=pa.null())
    with pytest.raises(SchemaError):
        udf(double, returns="nosuchtype")


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT f() AS v FROM t", "needs an argument"),
        ("SELECT f(x, k, 1) AS v FROM t", "does not take 3 arguments"),
        ("SELECT g(x) AS v FROM t", "did you mean|function g"),
        ("SELECT list_transform([x], y -> f(y)) AS v FROM t", "in a lambda"),
    ],
)
def test_the_error_of_an_invalid_call_has_its_place(query: str, message: str) -> None:
    functions = {"f": DOUBLE}
    with pytest.raises(SqlError, match=message) as caught:
        compile_sql(query, SCHEMAS, functions=functions)
    assert caught.value.line == 1
    assert caught.value.column > 1
    assert find_obstacles(query, {}, functions=functions)


def test_a_call_over_both_sides_of_an_outer_join_or_in_a_recursion_is_refused() -> None:
    functions = {"f": udf(lambda *values: sum(values), returns="bigint")}
    for query in (
        "SELECT t.k FROM t LEFT JOIN u ON f(t.x, u.y) > 1",
        "SELECT k FROM t WHERE EXISTS (SELECT 1 FROM u WHERE f(t.x, u.y) > 1)",
    ):
        with pytest.raises(CircuitError, match=r"f\(.*\).*both of its sides"):
            compile_sql(query, SCHEMAS, functions=functions)
    recursion = (
        "WITH RECURSIVE r(k) AS (SELECT k FROM t UNION SELECT f(r.k) FROM r JOIN u ON r.k = u.k) "
        "SELECT k FROM r"
    )
    with pytest.raises(CircuitError, match=r"recursion.*not supported"):
        compile_sql(recursion, SCHEMAS, functions=functions)
    base = recursion.replace("SELECT k FROM t", "SELECT f(k) FROM t").replace("f(r.k)", "u.y")
    circuit = compile_sql(base, SCHEMAS, functions=functions)
    delta = circuit.step({"t": [{"k": 1, "x": 1}], "u": [{"k": 1, "y": 2}]})["view"]
    assert sorted(delta["k"].to_pylist()) == [1, 2]


def test_datalog_rules_call_functions() -> None:
    functions = {"f": DOUBLE, "odd": ODD}
    circuit = compile_datalog(
        "p(k, y) :- t(k, x), y = f(x), not u(y, _), odd(x). q(f(k), count()) :- t(k, x).",
        SCHEMAS,
        functions=functions,
    )
    deltas = circuit.step({
        "t": table("kx", {(1, 1): 1, (1, 2): 1, (2, 3): 1}),
        "u": table("ky", {(6, 0): 1}),
    })  # fmt: skip
    assert zset(deltas["p"]) == {(1, 2): 1}
    assert zset(deltas["q"]) == {(2, 2): 1, (4, 1): 1}
    deltas = circuit.step({"u": table("ky", {(6, 0): -1})})
    assert zset(deltas["p"]) == {(2, 6): 1}


def test_a_query_of_the_state_calls_the_functions_of_the_views_and_its_own() -> None:
    circuit = compile_sql(
        "CREATE VIEW v AS SELECT k, f(x) AS y FROM t",
        SCHEMAS,
        functions={"f": DOUBLE},
        materialize=True,
    )
    circuit.step({"t": [{"k": 1, "x": 4}]})
    negate = udf(lambda y: -y, returns="bigint")
    query = "SELECT y, f(y) AS a, h(y) AS b FROM v"
    assert circuit.query(query, functions={"h": negate}).to_pylist() == [
        {"y": 8, "a": 16, "b": -8, "weight": 1}
    ]


def test_another_declaration_of_a_function_has_other_fingerprints() -> None:
    def fingerprint(**options: Any) -> str:
        function = udf(double, **{"returns": "bigint", **options})
        return compile_sql(
            "SELECT f(x) AS v FROM t", SCHEMAS, functions={"f": function}
        ).fingerprint

    changed = [
        fingerprint(returns="double"),
        fingerprint(parameters=["bigint"]),
        fingerprint(call_on_null=True),
        fingerprint(version="2"),
    ]
    assert len({fingerprint(), *changed}) == 5
    assert fingerprint() == fingerprint()


def test_functions_work_in_dialect_spark() -> None:
    functions = {"f": DOUBLE}
    circuit = compile_sql(
        "SELECT k, F(x) AS v FROM t", SCHEMAS, dialect="spark", functions=functions
    )
    assert circuit.step({"t": [{"k": 1, "x": 2}]})["view"].to_pylist() == [
        {"k": 1, "v": 4, "weight": 1}
    ]


def test_a_call_in_a_lambda_is_refused() -> None:
    with pytest.raises(UnsupportedSqlError, match=r"f\(\) in a lambda"):
        compile_sql(
            "SELECT list_filter([x], y -> f(y) > 1) AS v FROM t",
            SCHEMAS,
            functions={"f": DOUBLE},
        )
