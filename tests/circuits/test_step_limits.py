"""A step that exceeds a limit raises a typed error and does not change the circuit."""

from __future__ import annotations

import pickle
import subprocess
import sys
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
from circuits.runtime.operators import recursive_min_max
from dbsp_wcoj import Budget, LimitError, ZSet, generic_join
from dbsp_wcoj.kernels.join import join_layout
from dbsp_wcoj.storage.prefix_lookup import PrefixRows, prefix_lookup

PAIRS = pa.schema([("a", pa.int64()), ("b", pa.int64())])
SCHEMAS = {"e": PAIRS, "f": PAIRS}


def table(rows: list[tuple[int, int]], weights: list[int] | None = None) -> pa.Table:
    columns = {"a": [a for a, _ in rows], "b": [b for _, b in rows]}
    rows_alone = pa.table({n: pa.array(values, pa.int64()) for n, values in columns.items()})
    if weights is None:
        return rows_alone
    return rows_alone.append_column("weight", pa.array(weights, pa.int64()))


def numbered_rows(rows: int, key: int | None = None) -> pa.Table:
    numbers = np.arange(rows)
    keys = numbers if key is None else np.full(rows, key)
    return pa.table({"a": keys, "b": numbers})


def sizes(circuit: Circuit) -> tuple[object, ...]:
    """Return all that a refused step must not change."""
    lengths = {name: (trace.rows, trace.orders) for name, trace in circuit.graph.traces.items()}
    return lengths, circuit.graph.registry.lengths(), circuit._state.version


with_small_and_default_limits = pytest.mark.parametrize(
    "limits",
    [StepLimits(max_step_rows=2_000_000), pytest.param(StepLimits(), marks=pytest.mark.slow)],
    ids=["small", "default"],
)


@with_small_and_default_limits
def test_a_cross_join_of_100_000_by_100_000_rows_is_refused(limits: StepLimits) -> None:
    circuit = compile_sql("SELECT e.a, f.b FROM e, f", SCHEMAS, name="pairs", limits=limits)
    before = sizes(circuit)

    with pytest.raises(StepLimitError) as caught:
        circuit.step({"e": numbered_rows(100_000), "f": numbered_rows(100_000)})

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
    delta = circuit.step({"e": numbered_rows(2), "f": numbered_rows(3)})["pairs"]
    assert delta.num_rows == 6


@with_small_and_default_limits
def test_one_row_that_makes_100_000_000_rows_is_refused(limits: StepLimits) -> None:
    circuit = compile_sql(
        "SELECT x.b AS x, y.b AS y FROM e JOIN f x ON x.a = e.a JOIN f y ON y.a = e.a",
        SCHEMAS,
        materialize=["f"],
        limits=limits,
    )
    circuit.step({"f": numbered_rows(10_000, key=7)})
    before = sizes(circuit)

    with pytest.raises(StepLimitError, match=r"view 'view': .* max_step_rows="):
        circuit.step({"e": table([(7, 0)])})

    assert sizes(circuit) == before
    assert circuit.step({"e": table([(8, 0)])})["view"].num_rows == 0
    assert circuit.views["f"].num_rows == 10_000


REFUSED_STEP_PROGRAM = """
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
    sys.exit("the step was not refused")
print(circuit.step({"e": rows.slice(3, 1)})["pairs"].num_rows)
"""


def test_a_refused_step_takes_memory_by_its_limit_and_not_by_its_result() -> None:
    process = subprocess.run(
        [sys.executable, "-c", REFUSED_STEP_PROGRAM], capture_output=True, text=True, timeout=300
    )

    assert process.returncode == 0, process.stderr
    first, last = process.stdout.splitlines()
    # 2,000,000 rows of 24 bytes are 48 MB; the result would take 240 GB.
    assert int(first.split()[0]) < 300
    assert last == "3"


OUT_OF_MEMORY_PROGRAM = """
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
    sys.exit("the step was not refused")
print(circuit.step({"e": rows.slice(3, 1)})["pairs"].num_rows)
"""


def test_a_step_that_runs_out_of_memory_is_refused_and_the_circuit_continues() -> None:
    process = subprocess.run(
        [sys.executable, "-c", OUT_OF_MEMORY_PROGRAM], capture_output=True, text=True, timeout=300
    )

    assert process.returncode == 0, process.stderr
    first, last = process.stdout.splitlines()
    assert first.startswith("pairs | view 'pairs': ") and "out of memory" in first
    assert last == "3"


@pytest.mark.parametrize("error", [MemoryError(), pa.ArrowMemoryError("x"), pa.ArrowCapacityError])
def test_a_memory_error_in_an_operator_becomes_a_typed_error(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    circuit = compile_sql("SELECT a % b AS c FROM e", SCHEMAS, name="sums")
    before = sizes(circuit)
    with monkeypatch.context() as patched:

        def no_memory(*arguments: object) -> object:
            raise error

        patched.setattr(code_evaluation, "evaluate", no_memory)
        with pytest.raises(StepMemoryError, match=r"'sums': #\w+ map a % b: out of memory"):
            circuit.step({"e": table([(1, 2)])})

    assert sizes(circuit) == before
    assert circuit.step({"e": table([(1, 2)])})["sums"].to_pylist() == [{"c": 1, "weight": 1}]


ENDLESS_RECURSION = "d(x, min(k)) :- e(x, y), k = 0.\nd(y, min(k - 1)) :- d(x, k), e(x, y)."


@pytest.mark.parametrize("iterations", [500, pytest.param(10_000, marks=pytest.mark.slow)])
def test_an_endless_recursion_is_refused_with_work_linear_in_the_iterations(
    iterations: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    circuit = compile_datalog(ENDLESS_RECURSION, {"e": PAIRS}, max_iterations=iterations)
    before = sizes(circuit)
    read_rows = 0

    def counting_lookup(*arguments: Any, **options: Any) -> PrefixRows:
        nonlocal read_rows
        prefix_rows = prefix_lookup(*arguments, **options)
        read_rows += len(prefix_rows.prefix_index)
        return prefix_rows

    monkeypatch.setattr(recursive_min_max, "prefix_lookup", counting_lookup)
    with pytest.raises(IterationError, match=rf"the recursion of 'd' .* {iterations:,} iterations"):
        circuit.step({"e": table([(1, 2), (2, 3), (3, 1)])})

    # Each iteration reads as many rows as the first one, not all values of earlier iterations.
    assert read_rows < 25 * iterations
    assert sizes(circuit) == before
    assert circuit.step({"e": table([(1, 2)])})["d"].num_rows == 2


def test_the_rows_of_all_iterations_of_a_recursion_count_together() -> None:
    text = "r(x, y) :- e(x, y).\nr(x, z) :- r(x, y), e(y, z)."
    chain = table([(n, n + 1) for n in range(200)])
    circuit = compile_datalog(text, {"e": PAIRS}, limits=StepLimits(max_step_rows=5000))
    before = sizes(circuit)

    with pytest.raises(StepLimitError, match=r"view 'r': #\w+ .*max_step_rows=5000") as caught:
        circuit.step({"e": chain})

    assert caught.value.reached is not None and caught.value.reached < 6000
    assert sizes(circuit) == before
    assert circuit.step({"e": chain.slice(0, 20)})["r"].num_rows == 210


def test_the_rows_of_the_inputs_are_not_counted() -> None:
    circuit = compile_sql(
        "SELECT a + 1 AS a FROM e WHERE b >= 0", SCHEMAS, limits=StepLimits(max_step_rows=1)
    )

    assert circuit.step({"e": numbered_rows(100_000)})["view"].num_rows == 100_000


def test_the_bytes_of_all_operators_count_together() -> None:
    text = "SELECT a + 1 AS a FROM (SELECT DISTINCT a FROM e)"
    small = compile_sql(text, SCHEMAS, limits=StepLimits(max_step_bytes=1))
    larger = compile_sql(text, SCHEMAS, limits=StepLimits(max_step_bytes=10_000))
    rows = numbered_rows(1000)

    with pytest.raises(StepLimitError, match="max_step_bytes=1 ") as caught:
        small.step({"e": rows})

    assert caught.value.limit == "max_step_bytes"
    # The input has 24,000 bytes; three operators return up to 16,000 bytes each.
    with pytest.raises(StepLimitError):
        larger.step({"e": rows})
    assert larger.step({"e": numbered_rows(100)})["view"].num_rows == 100


def test_the_texts_of_formatted_times_count_by_their_bytes() -> None:
    text = "SELECT strftime(ts, '%Y-%m-%d is a day of the year %Y, which is long') AS day FROM t"
    circuit = compile_sql(text, {"t": "ts timestamp_ntz"}, limits=StepLimits(max_step_bytes=50_000))
    days = np.arange(4_000).astype("datetime64[D]").astype("datetime64[us]")
    with pytest.raises(StepLimitError, match="bytes"):
        circuit.step({"t": pa.table({"ts": days})})
    assert circuit.step({"t": pa.table({"ts": days[:10]})})["view"].num_rows == 10


def test_the_texts_that_a_function_returns_count_by_their_bytes() -> None:
    circuit = compile_sql(
        "SELECT repeat(s, 1000) AS s FROM t",
        {"t": pa.schema([("s", pa.string())])},
        limits=StepLimits(max_step_bytes=100_000),
    )
    before = sizes(circuit)

    with pytest.raises(StepLimitError, match=r"#\w+ map repeat\(s, 1000\): .*max_step_bytes"):
        circuit.step({"t": pa.table({"s": [str(n) for n in range(1000)]})})

    assert sizes(circuit) == before
    assert circuit.step({"t": pa.table({"s": ["x"]})})["view"].num_rows == 1


class Clock:
    """A clock on which each reading is a second after the one before."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def circuit_with_clock(text: str, **options: object) -> Circuit:
    plans = compile_sql(text, SCHEMAS).plans
    spec = CircuitSpec(plans, SCHEMAS, CircuitOptions(**options))  # type: ignore[arg-type]
    return Circuit(spec, clock=Clock())


@pytest.mark.parametrize("threads", [1, 2])
def test_work_without_rows_is_bounded_by_time(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    circuit = circuit_with_clock(text, limits=StepLimits.off(), threads=threads)
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
    circuit = circuit_with_clock(text, limits=StepLimits(max_seconds=40))
    before = sizes(circuit)

    with pytest.raises(StepLimitError, match="max_seconds=40"):
        circuit.step({"e": edges})

    assert sizes(circuit) == before
    circuit.limits = StepLimits(max_seconds=1e9)
    assert circuit.step({"e": edges})["view"].to_pylist() == [{"n": 20**4, "weight": 1}]


@pytest.mark.parametrize("head", ["a, b, c", "", "a"])
def test_a_join_in_many_small_calls_has_the_rows_of_one_in_one_call(
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


def test_a_join_of_the_core_raises_the_limit_error_of_the_core() -> None:
    rows = ZSet.from_columns([range(1000)])

    with pytest.raises(LimitError, match="max_step_rows=1000") as caught:
        generic_join(
            "q(a, b) :- r(a), r(b)", {"r": rows}, budget=Budget(StepLimits(max_step_rows=1000))
        )

    assert (caught.value.limit, caught.value.allowed) == ("max_step_rows", 1000)


@pytest.mark.parametrize("threads", [1, 2])
def test_parts_that_run_at_once_share_one_budget(threads: int) -> None:
    limits = StepLimits(max_step_rows=1_000_000)
    circuit = compile_sql(
        "SELECT e.a, f.b FROM e JOIN f ON e.b = f.a",
        SCHEMAS,
        threads=threads,
        limits=limits,
    )
    circuit.step({"f": numbered_rows(1000, key=0)})

    with pytest.raises(StepLimitError) as caught:
        circuit.step({"e": pa.table({"a": np.arange(20_000), "b": np.zeros(20_000, np.int64)})})

    assert caught.value.reached is not None and caught.value.reached < 1_400_000


def test_a_query_has_the_limits_of_a_step() -> None:
    circuit = compile_sql(
        "SELECT a FROM e", SCHEMAS, materialize=["e"], limits=StepLimits(max_step_rows=100_000)
    )
    circuit.step({"e": numbered_rows(1000)})
    lengths = circuit.graph.registry.lengths()

    with pytest.raises(StepLimitError, match=r"join.*max_step_rows=100000"):
        circuit.query("SELECT x.a, y.b FROM e x, e y")

    assert circuit.graph.registry.lengths() == lengths
    assert circuit.query("SELECT count(*) AS n FROM e x, e y").to_pylist()[0]["n"] == 1_000_000


def test_an_endless_recursion_in_a_query_is_refused() -> None:
    circuit = compile_sql("SELECT a FROM e", SCHEMAS, materialize=["e"], max_iterations=100)
    circuit.step({"e": table([(1, 2), (2, 1)])})

    with pytest.raises(IterationError):
        circuit.query(ENDLESS_RECURSION)


def test_a_pickled_error_has_all_its_fields() -> None:
    for kind in (StepLimitError, StepMemoryError):
        error = kind("message", "v", "#1 join", "max_step_rows", 10, 11)
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is kind
        assert str(copy) == "message"
        assert vars(copy) == vars(error)
        assert (copy.view, copy.operator, copy.reached) == ("v", "#1 join", 11)


def test_an_error_with_another_view_keeps_its_type_cause_and_notes() -> None:
    for kind in (StepLimitError, StepMemoryError):
        error = kind("view 'part': message", "part", "#1 join", "max_step_rows", 10, 11)
        error.__cause__ = cause = ValueError()
        error.add_note("first")
        error.add_note("second")
        other = error.with_view("whole", "cell 3: ")
        assert type(other) is kind
        assert str(other) == "view 'whole': cell 3: message"
        assert (other.view, other.reached) == ("whole", 11)
        assert other.__cause__ is cause
        assert other.__notes__ == ["first", "second"]


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
def test_an_invalid_limit_is_refused(options: dict[str, object]) -> None:
    (name,) = options
    with pytest.raises(LimitError, match=f"{name}=.*positive.*or None for no limit"):
        StepLimits(**options)  # type: ignore[arg-type]


def test_the_limits_of_a_circuit_are_part_of_its_spec_and_not_of_its_fingerprint() -> None:
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
def spec_of(view: str) -> CircuitSpec:
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
    unlimited, limited = Circuit(spec_of(view)), Circuit(spec_of(view))
    for e, f, rows, size in steps:
        tables = {"e": e, "f": f}
        expected = unlimited.step(tables)
        limited.limits = StepLimits(max_step_rows=rows, max_step_bytes=size)
        before = sizes(limited)
        try:
            delta = limited.step(tables)
        except StepLimitError as error:
            # The operator of a materialized input belongs to no view.
            assert error.operator is not None and error.view in (view, None)
            assert sizes(limited) == before
            limited.limits = StepLimits.off()
            delta = limited.step(tables)
        assert delta == expected
    assert dict(limited.views) == dict(unlimited.views)


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


def test_results_of_rows_that_expire_in_the_same_step_are_counted():
    # The first hundred rows expire in the step itself: its delta is large and its state is small.
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
    fewer_rows = {name: values[60:] for name, values in rows.items() if name != "k"}
    fewer_rows["k"] = list(range(41))
    assert circuit.step({"e": pa.table(fewer_rows).select(["k", "v", "at"])})["view"].num_rows == 41
