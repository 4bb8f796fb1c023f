"""A step that exceeds a limit raises a typed error, and the circuit stays as it was."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circuits import (
    Circuit,
    CircuitSpec,
    InputOptions,
    IterationError,
    Retention,
    StepLimitError,
    StepLimits,
    StepMemoryError,
    compile_datalog,
    compile_sql,
)
from circuits.options import CircuitOptions
from circuits.runtime import code_evaluation
from circuits.runtime.operators import recursive_min_max as settle_best
from dbsp_wcoj import Budget, LimitError, ZSet, generic_join
from dbsp_wcoj.kernels.join import join_layout
from dbsp_wcoj.storage.prefix_lookup import PrefixRows, prefix_lookup

PAIRS = pa.schema([("a", pa.int64()), ("b", pa.int64())])
SCHEMAS = {"e": PAIRS, "f": PAIRS}


def table(rows: list[tuple[int, int]], weights: list[int] | None = None) -> pa.Table:
    columns = {"a": [a for a, _ in rows], "b": [b for _, b in rows]}
    found = pa.table({n: pa.array(values, pa.int64()) for n, values in columns.items()})
    return (
        found if weights is None else found.append_column("weight", pa.array(weights, pa.int64()))
    )


def many(rows: int, key: int | None = None) -> pa.Table:
    numbers = np.arange(rows)
    keys = numbers if key is None else np.full(rows, key)
    return pa.table({"a": keys, "b": numbers})


def sizes(circuit: Circuit) -> tuple[object, ...]:
    """All that a refused step must leave as it was."""
    lengths = {name: (trace.rows, trace.orders) for name, trace in circuit.graph.traces.items()}
    return lengths, circuit.graph.registry.lengths(), circuit._version


of_limits = pytest.mark.parametrize(
    "limits",
    [StepLimits(max_step_rows=2_000_000), pytest.param(StepLimits(), marks=pytest.mark.slow)],
    ids=["small", "default"],
)


@of_limits
def test_a_cross_join_of_100_000_by_100_000_rows_is_refused(limits: StepLimits) -> None:
    circuit = compile_sql("SELECT e.a, f.b FROM e, f", SCHEMAS, name="pairs", limits=limits)
    before = sizes(circuit)

    with pytest.raises(StepLimitError) as caught:
        circuit.step({"e": many(100_000), "f": many(100_000)})

    error = caught.value
    assert (error.view, error.limit) == ("pairs", "max_step_rows")
    assert error.allowed == limits.max_step_rows
    assert error.operator is not None and "join(" in error.operator
    assert error.operator in circuit.explain()
    assert error.reached is not None and error.allowed is not None
    assert error.allowed < error.reached < error.allowed + 300_000
    message = str(error)
    for part in ("'pairs'", "max_step_rows", "nothing was changed", "condition", error.operator):
        assert part in message
    assert sizes(circuit) == before
    found = circuit.step({"e": many(2), "f": many(3)})["pairs"]
    assert found.num_rows == 6


@of_limits
def test_one_row_that_makes_100_000_000_rows_is_refused(limits: StepLimits) -> None:
    circuit = compile_sql(
        "SELECT x.b AS x, y.b AS y FROM e JOIN f x ON x.a = e.a JOIN f y ON y.a = e.a",
        SCHEMAS,
        materialize=["f"],
        limits=limits,
    )
    circuit.step({"f": many(10_000, key=7)})
    before = sizes(circuit)

    with pytest.raises(StepLimitError, match=r"view 'view': .* max_step_rows="):
        circuit.step({"e": table([(7, 0)])})

    assert sizes(circuit) == before
    assert circuit.step({"e": table([(8, 0)])})["view"].num_rows == 0
    assert circuit.views["f"].num_rows == 10_000


IN_LITTLE_MEMORY = """
import resource, sys
import numpy as np, pyarrow as pa
from circuits import StepLimitError, StepLimits, compile_sql

pair = pa.schema([("a", pa.int64()), ("b", pa.int64())])
circuit = compile_sql(
    "SELECT e.a, f.b FROM e, f", {"e": pair, "f": pair}, name="pairs",
    limits=StepLimits(max_step_rows=2_000_000),
)
numbers = np.arange(100_000)
rows = pa.table({"a": numbers, "b": numbers})
circuit.step({"e": rows.slice(0, 3), "f": rows.slice(0, 3)})
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    circuit.step({"e": rows, "f": rows})
except StepLimitError as error:
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(grown // 1024, error)
else:
    sys.exit("the step was made")
print(circuit.step({"e": rows.slice(3, 1)})["pairs"].num_rows)
"""


def test_a_refused_step_takes_memory_by_its_limit_and_not_by_its_result() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IN_LITTLE_MEMORY], capture_output=True, text=True, timeout=300
    )

    assert done.returncode == 0, done.stderr
    first, last = done.stdout.splitlines()
    # 2,000,000 rows of 24 bytes are 48 MB; the result would take 240 GB.
    assert int(first.split()[0]) < 300
    assert last == "3"


OUT_OF_MEMORY = """
import resource, sys
import numpy as np, pyarrow as pa
from circuits import StepLimits, StepMemoryError, compile_sql

pair = pa.schema([("a", pa.int64()), ("b", pa.int64())])
circuit = compile_sql(
    "SELECT e.a, f.b FROM e, f", {"e": pair, "f": pair}, name="pairs", limits=StepLimits.off()
)
numbers = np.arange(100_000)
rows = pa.table({"a": numbers, "b": numbers})
circuit.step({"e": rows.slice(0, 3), "f": rows.slice(0, 3)})
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (400 << 20), used + (400 << 20)))
try:
    circuit.step({"e": rows, "f": rows})
except StepMemoryError as error:
    assert isinstance(error, MemoryError) and isinstance(error.__cause__, MemoryError)
    print(error.view, "|", error)
else:
    sys.exit("the step was made")
print(circuit.step({"e": rows.slice(3, 1)})["pairs"].num_rows)
"""


def test_a_step_that_runs_out_of_memory_is_refused_and_the_circuit_continues() -> None:
    done = subprocess.run(
        [sys.executable, "-c", OUT_OF_MEMORY], capture_output=True, text=True, timeout=300
    )

    assert done.returncode == 0, done.stderr
    first, last = done.stdout.splitlines()
    assert first.startswith("pairs | view 'pairs': ") and "out of memory" in first
    assert last == "3"


@pytest.mark.parametrize("error", [MemoryError(), pa.ArrowMemoryError("x"), pa.ArrowCapacityError])
def test_the_end_of_memory_in_any_operator_becomes_one_typed_error(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    circuit = compile_sql("SELECT a + b AS c FROM e", SCHEMAS, name="sums")
    before = sizes(circuit)
    with monkeypatch.context() as patched:

        def no_memory(*arguments: object) -> object:
            raise error

        patched.setattr(code_evaluation, "evaluate", no_memory)
        with pytest.raises(StepMemoryError, match=r"'sums': #\d+ map add\(a, b\): out of memory"):
            circuit.step({"e": table([(1, 2)])})

    assert sizes(circuit) == before
    assert circuit.step({"e": table([(1, 2)])})["sums"].to_pylist() == [{"c": 3, "weight": 1}]


WITHOUT_END = "d(x, min(k)) :- e(x, y), k = 0.\nd(y, min(k - 1)) :- d(x, k), e(x, y)."


@pytest.mark.parametrize("iterations", [500, pytest.param(10_000, marks=pytest.mark.slow)])
def test_a_recursion_that_has_no_end_is_refused_in_seconds(
    iterations: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    circuit = compile_datalog(WITHOUT_END, {"e": PAIRS}, max_iterations=iterations)
    before = sizes(circuit)
    read = 0

    def counted(*arguments: Any, **options: Any) -> PrefixRows:
        nonlocal read
        found = prefix_lookup(*arguments, **options)
        read += len(found.prefix_index)
        return found

    monkeypatch.setattr(settle_best, "prefix_lookup", counted)
    with pytest.raises(IterationError, match=rf"the recursion of 'd' .* {iterations:,} iterations"):
        circuit.step({"e": table([(1, 2), (2, 3), (3, 1)])})

    # The last iteration reads what the first does, not all values that there were.
    assert read < 25 * iterations
    assert sizes(circuit) == before
    assert circuit.step({"e": table([(1, 2)])})["d"].num_rows == 2


def test_the_rows_of_all_iterations_of_a_recursion_count_together() -> None:
    text = "r(x, y) :- e(x, y).\nr(x, z) :- r(x, y), e(y, z)."
    chain = table([(n, n + 1) for n in range(200)])
    circuit = compile_datalog(text, {"e": PAIRS}, limits=StepLimits(max_step_rows=5000))
    before = sizes(circuit)

    with pytest.raises(StepLimitError, match=r"view 'r': #\d+ .*max_step_rows=5000") as caught:
        circuit.step({"e": chain})

    assert caught.value.reached is not None and caught.value.reached < 6000
    assert sizes(circuit) == before
    assert circuit.step({"e": chain.slice(0, 20)})["r"].num_rows == 210


def test_rows_that_are_given_are_not_counted() -> None:
    circuit = compile_sql(
        "SELECT a + 1 AS a FROM e WHERE b >= 0", SCHEMAS, limits=StepLimits(max_step_rows=1)
    )

    assert circuit.step({"e": many(100_000)})["view"].num_rows == 100_000


def test_bytes_are_those_of_all_operators_together() -> None:
    text = "SELECT a + 1 AS a FROM (SELECT DISTINCT a FROM e)"
    refused = compile_sql(text, SCHEMAS, limits=StepLimits(max_step_bytes=1))
    passed = compile_sql(text, SCHEMAS, limits=StepLimits(max_step_bytes=10_000))
    rows = many(1000)

    with pytest.raises(StepLimitError, match="max_step_bytes=1 ") as caught:
        refused.step({"e": rows})

    assert caught.value.limit == "max_step_bytes"
    # 24,000 bytes are given; three operators give 16,000 each at most.
    with pytest.raises(StepLimitError):
        passed.step({"e": rows})
    assert passed.step({"e": many(100)})["view"].num_rows == 100


def test_texts_that_a_function_makes_count_by_their_bytes() -> None:
    circuit = compile_sql(
        "SELECT repeat(s, 1000) AS s FROM t",
        {"t": pa.schema([("s", pa.string())])},
        limits=StepLimits(max_step_bytes=100_000),
    )
    before = sizes(circuit)

    with pytest.raises(StepLimitError, match=r"#\d+ map repeat\(s, 1000\): .*max_step_bytes"):
        circuit.step({"t": pa.table({"s": [str(n) for n in range(1000)]})})

    assert sizes(circuit) == before
    assert circuit.step({"t": pa.table({"s": ["x"]})})["view"].num_rows == 1


class Clock:
    """Each look takes a second."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def of_time(text: str, executor: Executor | None = None, **options: object) -> Circuit:
    given = compile_sql(text, SCHEMAS)
    limited = CircuitOptions(**options)  # type: ignore[arg-type]
    return Circuit(CircuitSpec(given.plans, SCHEMAS, limited), executor=executor, clock=Clock())


@pytest.mark.parametrize("parts", [1, 2])
def test_work_without_rows_is_bounded_by_time(parts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_layout, "MAX_WORK_PER_CALL", 50)
    text = (
        "SELECT e.a, x.b FROM e JOIN f x ON x.a = e.b JOIN f y ON y.a = x.b JOIN e z ON z.a = y.b"
    )
    numbers = range(1, 5000)
    first = {
        "e": table([(2 * n + 100_001, -1) for n in numbers]),
        "f": table([(0, n) for n in numbers] + [(n, 2 * n + 100_000) for n in numbers]),
    }
    row = {"e": table([(-2, 0)])}
    with ThreadPoolExecutor(2) as executor:
        pool = executor if parts > 1 else None
        circuit = of_time(text, limits=StepLimits.off(), executor=pool, parts=parts)
        circuit.step(first)
        before = sizes(circuit)
        circuit.limits = StepLimits(max_seconds=40)

        with pytest.raises(StepLimitError, match="max_seconds=40") as caught:
            circuit.step(row)

        assert caught.value.limit == "max_seconds"
        assert sizes(circuit) == before
        circuit.limits = StepLimits(max_seconds=1e9)
        assert circuit.step(row)["view"].num_rows == 0


def test_a_count_is_bounded_by_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_layout, "MAX_WORK_PER_CALL", 50)
    edges = pa.table({"a": np.arange(400) // 20, "b": np.arange(400) % 20})
    text = (
        "SELECT count(*) AS n FROM e w JOIN e x ON x.a = w.b JOIN e y ON y.a = x.b "
        "JOIN e z ON z.a = y.b AND z.b = w.a"
    )
    circuit = of_time(text, limits=StepLimits(max_seconds=40))
    before = sizes(circuit)

    with pytest.raises(StepLimitError, match="max_seconds=40"):
        circuit.step({"e": edges})

    assert sizes(circuit) == before
    circuit.limits = StepLimits(max_seconds=1e9)
    assert circuit.step({"e": edges})["view"].to_pylist() == [{"n": 20**4, "weight": 1}]


@pytest.mark.parametrize("head", ["a, b, c", "", "a"])
def test_a_join_that_pauses_often_gives_what_one_gives_that_does_not(
    head: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(7)
    edges = ZSet.from_columns(list(rng.integers(0, 40, (2, 400))))
    query = f"q({head}) :- e(a, b), e(b, c), e(a, c)"
    expected = generic_join(query, {"e": edges})

    monkeypatch.setattr(join_layout, "MAX_WORK_PER_CALL", 3)
    budget = Budget(StepLimits())

    assert generic_join(query, {"e": edges}) == expected
    assert generic_join(query, {"e": edges}, budget=budget) == expected


def test_the_core_has_an_error_of_its_own() -> None:
    rows = ZSet.from_columns([range(1000)])

    with pytest.raises(LimitError, match="max_step_rows=1000") as caught:
        generic_join(
            "q(a, b) :- r(a), r(b)", {"r": rows}, budget=Budget(StepLimits(max_step_rows=1000))
        )

    assert (caught.value.limit, caught.value.allowed) == ("max_step_rows", 1000)


@pytest.mark.parametrize("executor", [None, ThreadPoolExecutor])
def test_parts_that_run_at_once_share_one_budget(
    executor: Callable[[int], ThreadPoolExecutor] | None,
) -> None:
    pool = None if executor is None else executor(2)
    limits = StepLimits(max_step_rows=1_000_000)
    circuit = compile_sql(
        "SELECT e.a, f.b FROM e JOIN f ON e.b = f.a",
        SCHEMAS,
        executor=pool,
        parts=4,
        limits=limits,
    )
    circuit.step({"f": many(1000, key=0)})

    with pytest.raises(StepLimitError) as caught:
        circuit.step({"e": pa.table({"a": np.arange(20_000), "b": np.zeros(20_000, np.int64)})})

    assert caught.value.reached is not None and caught.value.reached < 1_400_000
    if pool is not None:
        pool.shutdown()


def test_a_query_has_the_limits_of_a_step() -> None:
    circuit = compile_sql(
        "SELECT a FROM e", SCHEMAS, materialize=["e"], limits=StepLimits(max_step_rows=100_000)
    )
    circuit.step({"e": many(1000)})
    lengths = circuit.graph.registry.lengths()

    with pytest.raises(StepLimitError, match=r"join.*max_step_rows=100000"):
        circuit.query("SELECT x.a, y.b FROM e x, e y")

    assert circuit.graph.registry.lengths() == lengths
    assert circuit.query("SELECT count(*) AS n FROM e x, e y").to_pylist()[0]["n"] == 1_000_000


def test_a_query_that_recurs_without_end_is_refused() -> None:
    circuit = compile_sql("SELECT a FROM e", SCHEMAS, materialize=["e"], max_iterations=100)
    circuit.step({"e": table([(1, 2), (2, 1)])})

    with pytest.raises(IterationError):
        circuit.query(WITHOUT_END)


def test_the_errors_keep_all_they_say_when_pickled() -> None:
    for kind in (StepLimitError, StepMemoryError):
        error = kind("said", "v", "#1 join", "max_step_rows", 10, 11)
        found = pickle.loads(pickle.dumps(error))
        assert type(found) is kind
        assert str(found) == "said"
        assert vars(found) == vars(error)
        assert (found.view, found.operator, found.reached) == ("v", "#1 join", 11)


@pytest.mark.parametrize(
    "options",
    [
        {"max_step_rows": 0},
        {"max_step_rows": -1},
        {"max_step_rows": 1.5},
        {"max_step_rows": True},
        {"max_step_bytes": "8G"},
        {"max_seconds": 0},
        {"max_seconds": float("nan")},
    ],
)
def test_a_limit_that_is_none_is_refused(options: dict[str, object]) -> None:
    (name,) = options
    with pytest.raises(LimitError, match=f"{name}=.*positive.*or None for no limit"):
        StepLimits(**options)  # type: ignore[arg-type]


def test_the_limits_of_a_circuit_are_part_of_its_definition_and_not_of_its_fingerprint() -> None:
    limits = StepLimits(max_step_rows=5)
    circuit = compile_sql("SELECT a FROM e", SCHEMAS, limits=limits)

    assert Circuit(circuit.spec).limits == limits
    assert circuit.fingerprint == compile_sql("SELECT a FROM e", SCHEMAS).fingerprint


VIEWS = {
    "join": "SELECT e.a, f.b FROM e JOIN f ON e.b = f.a",
    "groups": "SELECT e.a, count(*) AS n, min(f.b) AS b FROM e JOIN f ON e.b = f.a GROUP BY e.a",
    "distinct": "SELECT DISTINCT b + 1 AS b FROM e",
    "first": "SELECT a, b FROM e ORDER BY b, a LIMIT 3",
    "paths": "WITH RECURSIVE d AS (SELECT DISTINCT a, b FROM e), p(a, b) AS (SELECT a, b FROM d "
    "UNION SELECT p.a, d.b FROM p JOIN d ON p.b = d.a) SELECT a, b FROM p",
    "window": "SELECT a, sum(b) OVER (ORDER BY a) AS n, rank() OVER (ORDER BY a) AS r FROM e",
    "outer": "SELECT e.a, f.b FROM e LEFT JOIN f ON e.a = f.a",
}


@cache
def definition_of(view: str) -> CircuitSpec:
    return compile_sql(
        VIEWS[view], SCHEMAS, name=view, materialize=True, limits=StepLimits.off()
    ).spec


small = st.integers(0, 3)
deltas = st.lists(st.tuples(small, small, st.sampled_from([1, 1, 1, -1])), max_size=6).map(
    lambda rows: table([row[:2] for row in rows], [row[2] for row in rows])
)
limit = st.one_of(st.none(), st.integers(1, 8))
size_limit = st.one_of(st.none(), st.integers(1, 600))


@settings(max_examples=25)
@given(
    view=st.sampled_from(sorted(VIEWS)),
    steps=st.lists(
        st.tuples(deltas, deltas, limit, st.one_of(st.none(), st.integers(1, 600))), max_size=5
    ),
)
def test_a_step_within_limits_is_the_unlimited_step_or_is_refused_and_changes_nothing(
    view: str, steps: list[tuple[pa.Table, pa.Table, int | None, int | None]]
) -> None:
    free, bound = Circuit(definition_of(view)), Circuit(definition_of(view))
    for e, f, rows, size in steps:
        given_tables = {"e": e, "f": f}
        expected = free.step(given_tables)
        bound.limits = StepLimits(max_step_rows=rows, max_step_bytes=size)
        before = sizes(bound)
        try:
            found = bound.step(given_tables)
        except StepLimitError as error:
            # An input that is kept whole is of no view.
            assert error.operator is not None and error.view in (view, None)
            assert sizes(bound) == before
            bound.limits = StepLimits.off()
            found = bound.step(given_tables)
        assert found == expected
    assert dict(bound.views) == dict(free.views)


def test_a_row_of_large_weight_under_a_window_is_refused_before_it_is_repeated():
    text = "SELECT a, row_number() OVER (ORDER BY b) AS n FROM e"
    circuit = compile_sql(text, SCHEMAS, name="numbered")
    circuit.step({"e": table([(1, 1), (1, 2)])})
    before = sizes(circuit)

    with pytest.raises(StepLimitError, match="max_step_rows") as caught:
        circuit.step({"e": table([(2, 2)], [10**15])})

    assert caught.value.operator is not None and "row_number" in caught.value.operator
    assert sizes(circuit) == before


@pytest.mark.parametrize("function", ["string_agg(s, ',')", "list(s)"])
def test_a_row_of_large_weight_in_a_text_or_list_is_refused_before_it_is_repeated(function):
    schema = pa.schema({"s": pa.string()})
    circuit = compile_sql(f"SELECT {function} AS x FROM e", {"e": schema}, name="joined")
    rows = pa.table({"s": ["x"], "weight": [2 * 10**9]})

    with pytest.raises(StepLimitError, match="max_step_bytes") as caught:
        circuit.step({"e": rows})

    assert caught.value.view == "joined"
    assert not any(circuit.graph.registry.lengths().values())


WIDE = {
    "e": pa.schema({"a": pa.int64(), "b": pa.int64(), "t": pa.timestamp("us"), "s": pa.string()})
}


@pytest.mark.parametrize(
    ("text", "operator"),
    [
        ("SELECT u.x FROM e, unnest(range(b)) AS u(x)", "map"),
        ("SELECT unnest(string_split(repeat(s, b), 'x')) AS x FROM e", "unnest"),
        (
            "SELECT count(*) AS n FROM e GROUP BY a, HOP(t, INTERVAL 1 SECOND, INTERVAL 99 DAY)",
            "hop",
        ),
        (
            "SELECT list(v) OVER (ORDER BY v) AS x FROM (SELECT unnest(range(3000)) AS v FROM e)",
            "list",
        ),
        (
            "SELECT stddev(v) OVER (ORDER BY v) AS x FROM (SELECT unnest(range(3000)) AS v FROM e)",
            "comoment",
        ),
        ("SELECT list_transform(range(1000), x -> range(1000)) AS x FROM e", "map"),
        (
            "SELECT string_agg(s, ',') OVER (ORDER BY v) AS x "
            "FROM (SELECT repeat(s, 10000) AS s, unnest(range(50)) AS v FROM e)",
            "string_agg",
        ),
    ],
)
def test_a_row_that_becomes_many_rows_or_values_is_refused_in_a_step_and_in_a_query(text, operator):
    row = pa.table({"a": [1], "b": [10**6], "t": [0], "s": ["x"]}).cast(WIDE["e"])
    limits = StepLimits(max_step_bytes=4_000_000)
    circuit = compile_sql(text, WIDE, limits=limits)
    with pytest.raises(StepLimitError, match="max_step_bytes") as caught:
        circuit.step({"e": row})
    assert operator in str(caught.value.operator)
    assert not any(circuit.graph.registry.lengths().values())

    other = compile_sql("SELECT a FROM e", WIDE, limits=limits, materialize=True)
    other.step({"e": row})
    with pytest.raises(StepLimitError, match="max_step_bytes") as caught:
        other.query(text)
    assert operator in str(caught.value.operator)


def test_results_that_are_published_before_their_rows_expire_count():
    # Of the first hundred rows none stays in the state, so only what is published is large.
    circuit = compile_sql(
        "SELECT a.v + b.v AS x, a.v AS y FROM e a JOIN e b"
        " ON a.k = b.k AND a.at >= b.at - 50 AND b.at >= a.at - 50",
        {"e": pa.schema({"k": pa.int64(), "v": pa.int64(), "at": pa.int64()})},
        input_options={"e": InputOptions(retain=Retention("at", 1, on_expiry="keep"))},
        limits=StepLimits(max_step_rows=1000),
    )
    rows = {"k": [1] * 100 + [2], "v": [*range(101)], "at": [0] * 100 + [1000]}
    with pytest.raises(StepLimitError, match="max_step_rows") as raised:
        circuit.step({"e": pa.table(rows)})
    assert (raised.value.view, "join(" in str(raised.value.operator)) == ("view", True)
    few = {name: values[60:] for name, values in rows.items() if name != "k"}
    few["k"] = list(range(41))
    assert circuit.step({"e": pa.table(few).select(["k", "v", "at"])})["view"].num_rows == 41
