"""Steps that several threads share: the same results, state and errors as with one thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import circuits.circuit
import circuits.inputs.encoded_inputs
import circuits.runtime.graph
import circuits.runtime.linear_stage
import circuits.runtime.operators.aggregates.linear_aggregate
import circuits.runtime.threads
import circuits.schema
import dbsp_wcoj.delta_query
import dbsp_wcoj.execution.physical_term
import dbsp_wcoj.storage.relations
import dbsp_wcoj.storage.trace
from circuits import (
    Circuit,
    CircuitError,
    EvaluationError,
    StepLimitError,
    StepLimits,
    compile_datalog,
    compile_sql,
    udf,
)
from circuits.runtime.nested_circuit import NestedCircuit
from circuits.runtime.threads import available_threads
from dbsp_wcoj.errors import ArgumentTypeError, DbspWcojError, LimitError
from dbsp_wcoj.execution import term_division
from dbsp_wcoj.limits import Budget
from dbsp_wcoj.workers import Workers, count_shares, current_workers
from tests.support.random_sql import Case, compile_case, deltas, draw_case

LAW = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
EDGE = {"e": "src bigint not null, dst bigint not null"}


@contextmanager
def divided_steps(*, slices: bool = True) -> Iterator[None]:
    """Divide the work of steps of any size among threads.

    Args:
        slices: True to divide the rows of linear stages by slices, False by branches.
    """
    modules: list[Any] = [
        circuits.circuit,
        circuits.runtime.graph,
        circuits.runtime.operators.aggregates.linear_aggregate,
        circuits.schema,
        dbsp_wcoj.delta_query,
        dbsp_wcoj.storage.relations,
        dbsp_wcoj.storage.trace,
    ]
    with ExitStack() as stack:
        for module in modules:
            stack.enter_context(patch.object(module, "MIN_PARALLEL_ROWS", 1))
        stack.enter_context(patch.object(term_division, "MIN_DIVIDED_ROWS", 1))
        stack.enter_context(patch.object(term_division, "MIN_PART_ROWS", 1))
        stack.enter_context(patch.object(circuits.runtime.graph, "MIN_DIVIDED_ROWS", 1))
        stack.enter_context(patch.object(circuits.runtime.graph, "MIN_TASK_ROWS", 2))
        stack.enter_context(patch.object(circuits.inputs.encoded_inputs, "MIN_UNSORTED_ROWS", 1))
        stage = circuits.runtime.linear_stage
        stack.enter_context(patch.object(stage, "MIN_DIVIDED_ROWS", 1))
        if slices:
            stack.enter_context(patch.object(stage, "MIN_SLICED_STAGE_ROWS", 1))
            stack.enter_context(patch.object(stage, "SLICE_ROWS", 2))
        yield


@contextmanager
def no_second_run() -> Iterator[None]:
    """Fail if a step is computed again by one thread although it has no error."""
    with patch.object(Budget, "restart", side_effect=AssertionError("computed again")):
        yield


def state_of(circuit: Circuit) -> tuple[Any, ...]:
    """Return all state, with the codes of all values."""
    snapshot = circuit.snapshot()
    return (
        {name: (rows.tolist(), ws.tolist()) for name, (rows, ws) in snapshot.traces.items()},
        {name: [part.tolist() for part in v] for name, v in snapshot.dictionaries.items()},
        snapshot.watermarks,
    )


def outcome(circuit: Circuit, tables: dict[str, pa.Table], **options: Any) -> Any:
    """Return the outputs of a step as texts, or the type and the text of its error.

    Tables with NaN are not equal to themselves.
    """
    try:
        outputs = circuit.step(tables, **options)
        return {name: f"{table.schema}{table.to_pylist()}" for name, table in outputs.items()}
    except CircuitError as error:
        return type(error), str(error)


def check_random_sql(case: Case, *, slices: bool) -> None:
    by_threads = {n: compile_case(case, materialize=True, threads=n) for n in (1, 2, 3)}
    for changes, now in zip(case.steps, case.times, strict=True):
        with divided_steps(slices=slices):
            found = [outcome(by_threads[1], deltas(changes), now=now)]
            with no_second_run() if isinstance(found[0], dict) else nullcontext():
                found += [outcome(by_threads[n], deltas(changes), now=now) for n in (2, 3)]
        assert found[1:] == found[:1] * 2
        alone, *others = map(state_of, by_threads.values())
        assert others == [alone, alone]


@LAW
@given(st.integers(0, 2**40), st.booleans())
def test_random_sql_gives_the_same_with_one_two_and_three_threads(seed, slices):
    check_random_sql(draw_case(seed), slices=slices)


@pytest.mark.slow
@settings(LAW, max_examples=1000)
@given(st.integers(0, 2**40), st.booleans())
def test_much_random_sql_gives_the_same_with_one_two_and_three_threads(seed, slices):
    check_random_sql(draw_case(seed), slices=slices)


VIEWS = """
    CREATE VIEW triangles AS
        SELECT count(*) AS n FROM e x JOIN e y ON y.src = x.dst JOIN e z
        ON z.src = x.src AND z.dst = y.dst;
    CREATE VIEW pairs AS SELECT x.src, y.dst FROM e x JOIN e y ON y.src = x.dst;
    CREATE VIEW names AS SELECT 'n' || src AS name, count(*) AS n FROM e GROUP BY 1;
    CREATE VIEW others AS SELECT 'm' || dst AS name, max('n' || src) AS m FROM e GROUP BY 1;
    CREATE VIEW degrees AS
        SELECT names.name, names.n, others.m FROM names JOIN others ON names.n = length(others.m);
    CREATE VIEW best AS SELECT src, dst FROM e ORDER BY src DESC, dst LIMIT 9;
"""


def random_edges(seed: int, size: int, nodes: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    source, target = rng.integers(0, nodes, (2, size))
    source[: size // 6] = 3  # a hub
    return pa.table({"src": source, "dst": target, "weight": rng.integers(1, 3, size)})


def test_large_steps_give_the_same_tables_and_codes_with_any_number_of_threads():
    by_threads = {n: compile_sql(VIEWS, EDGE, materialize=True, threads=n) for n in (1, 2, 3)}
    for number, size in enumerate((20_000, 6_000, 10, 5_000)):
        tables = {"e": random_edges(number, size, 4_000)}
        with no_second_run():
            found = [circuit.step(tables) for circuit in by_threads.values()]
        assert found[1:] == found[:1] * 2
    alone, *others = map(state_of, by_threads.values())
    assert others == [alone, alone]


def test_a_load_in_slices_gives_the_same_with_any_number_of_threads():
    rows = pa.table({"k": np.arange(200_000) % 7, "x": np.arange(200_000) * 0.1})
    text = "SELECT k, sum(x) AS s, count(*) AS n FROM t WHERE x > 5 GROUP BY k"
    found = [
        compile_sql(text, {"t": "k bigint, x double"}, threads=threads).step({"t": rows})
        for threads in (1, 2, 3)
    ]
    assert found[1:] == found[:1] * 2


def test_a_recursion_gives_the_same_with_any_number_of_threads():
    text = "path(x, y) :- e(x, y). path(x, z) :- path(x, y), e(y, z). n(x) :- e(x, y), e(y, x)."
    schemas = {"e": "src bigint not null, dst bigint not null"}
    by_threads = [compile_datalog(text, schemas, materialize=True, threads=n) for n in (1, 2, 3)]
    with divided_steps():
        for seed in range(4):
            tables = {"e": random_edges(seed, 60, 40)}
            with no_second_run():
                found = [circuit.step(tables) for circuit in by_threads]
            assert found[1:] == found[:1] * 2
    alone, *others = map(state_of, by_threads)
    assert others == [alone, alone]


def test_an_error_is_the_one_of_a_single_thread_and_changes_nothing():
    text = """
        CREATE VIEW a AS SELECT count(*) AS n FROM e x JOIN e y ON y.src = x.dst;
        CREATE VIEW b AS SELECT CAST('x' || src AS BIGINT) AS n FROM e WHERE dst < 0;
        CREATE VIEW c AS SELECT CAST('y' || dst AS BIGINT) AS n FROM e WHERE dst < 0;
        CREATE VIEW d AS SELECT 'z' || src AS name FROM e;
    """
    by_threads = [compile_sql(text, EDGE, materialize=True, threads=n) for n in (1, 2, 3)]
    good = {"e": random_edges(1, 5_000, 3_000)}
    bad = {"e": pa.concat_tables([good["e"], pa.table({"src": [1], "dst": [-1], "weight": [1]})])}
    for circuit in by_threads:
        circuit.step(good)
    before = state_of(by_threads[0])
    for _ in range(5):
        errors = [outcome(circuit, bad) for circuit in by_threads]
        assert errors[0][0] is EvaluationError
        assert errors[1:] == errors[:1] * 2
        assert [state_of(circuit) for circuit in by_threads] == [before] * 3
    found = [circuit.step(good) for circuit in by_threads]
    assert found[1:] == found[:1] * 2


@pytest.mark.parametrize(
    "limits",
    [
        StepLimits(max_step_rows=20_000),
        StepLimits(max_step_bytes=400_000),
        StepLimits(max_step_bytes=3_000_000),
    ],
    ids=str,
)
def test_limits_refuse_the_same_steps_with_the_same_error(limits):
    by_threads = [compile_sql(VIEWS, EDGE, limits=limits, threads=n) for n in (1, 2, 3)]
    kinds = set()
    for number, size in enumerate((5_000, 10, 6_000, 15_000)):
        tables = {"e": random_edges(number, size, 4_000)}
        found = [outcome(circuit, tables) for circuit in by_threads]
        assert found[1:] == found[:1] * 2
        kinds.add(found[0][0] if isinstance(found[0], tuple) else dict)
    assert StepLimitError in kinds


PATHS = """
    tiny(x) :- e(x, y), x < 3.
    twice(x, z) :- e(x, y), e(y, z).
    path(x, y) :- e(x, y).
    path(x, z) :- path(x, y), e(y, z).
"""


@pytest.mark.parametrize("kind", ["with a function of the user", "with a recursion"])
def test_any_limit_refuses_the_same_steps_with_the_same_error(kind):
    def compile_with(limits: StepLimits, threads: int) -> Circuit:
        if kind == "with a recursion":
            return compile_datalog(PATHS, EDGE, limits=limits, threads=threads)
        text = "SELECT f(x.src) AS a, count(*) AS n FROM e x JOIN e y ON y.src = x.dst GROUP BY 1"
        functions = {"f": udf(lambda n: n % 2, returns="bigint")}
        return compile_sql(text, EDGE, functions=functions, limits=limits, threads=threads)

    edges = random_edges(1, 300, 150)
    kinds = set()
    for number in range(40):
        size = int(100 * 1.25**number)
        for limits in (StepLimits(max_step_rows=size), StepLimits(max_step_bytes=8 * size)):
            found = []
            for threads in (1, 2, 3):
                circuit = compile_with(limits, threads)
                circuit.step({"e": edges.slice(0, 1)})
                with divided_steps():
                    found.append(outcome(circuit, {"e": edges}))
            assert found[1:] == found[:1] * 2
            kinds.add(type(found[0]))
    assert kinds == {tuple, dict}


def test_an_error_that_one_thread_does_not_have_is_logged(monkeypatch, caplog):
    def fail(*arguments: Any) -> None:
        if current_workers() is not None and arguments[1]:  # the input comes first, alone
            raise ValueError("only with others")
        run(*arguments)

    run = circuits.runtime.graph._GraphStepExecution._run_node
    monkeypatch.setattr(circuits.runtime.graph._GraphStepExecution, "_run_node", fail)
    one, two = (compile_sql(VIEWS, EDGE, threads=threads) for threads in (1, 2))
    tables = {"e": random_edges(1, 60, 40)}
    with divided_steps():
        assert two.step(tables) == one.step(tables)
    (record,) = caplog.records
    assert (record.levelname, str(record.exc_info[1])) == ("WARNING", "only with others")


@pytest.mark.parametrize("place", ["step", "decode"])
@pytest.mark.parametrize("threads", [1, 2])
def test_an_interrupt_that_a_kernel_turns_into_another_error_is_not_lost(
    place, threads, monkeypatch
):
    def interrupt(*arguments: Any) -> Any:
        if not remaining:
            return function(*arguments)
        remaining.pop()
        error = SystemError("returned a result with an exception set")
        error.__cause__ = KeyboardInterrupt()
        raise SystemError("returned a result with an exception set") from error

    kind, name = {
        "step": (circuits.runtime.graph._GraphStepExecution, "_run_node"),
        "decode": (circuits.schema.Schema, "to_table"),
    }[place]
    function = getattr(kind, name)
    remaining: list[int] = []
    monkeypatch.setattr(kind, name, interrupt)
    text = "CREATE VIEW a AS SELECT src, dst FROM e; CREATE VIEW b AS SELECT dst FROM e;"
    circuit = compile_sql(text, EDGE, threads=threads)
    with divided_steps():
        circuit.step({"e": random_edges(1, 60, 40)})
        before = state_of(circuit)
        remaining.append(1)
        with pytest.raises(KeyboardInterrupt):
            circuit.step({"e": random_edges(2, 60, 40)})
    assert state_of(circuit) == before


def test_a_join_that_fails_only_with_several_threads_is_computed_by_one(monkeypatch):
    """The operators run one after the other, because there is a function of the user."""

    def fail(tasks: Any) -> Any:
        results = run_tasks(tasks)
        if current_workers() is not None:
            failures.append(1)
            raise LimitError("rows counted twice", "max_step_rows")
        return results

    failures: list[int] = []
    run_tasks = dbsp_wcoj.execution.physical_term.run_tasks
    monkeypatch.setattr(dbsp_wcoj.execution.physical_term, "run_tasks", fail)
    text = "SELECT f(x.src) AS a, y.dst FROM e x JOIN e y ON y.src = x.dst"
    functions = {"f": udf(lambda n: n % 2, returns="bigint")}
    one, two = (compile_sql(text, EDGE, functions=functions, threads=n) for n in (1, 2))
    with divided_steps():
        assert two.step({"e": random_edges(1, 60, 40)}) == one.step({"e": random_edges(1, 60, 40)})
    assert failures == [1]


def test_the_budget_of_a_recursion_has_counted_the_operators_before_it(monkeypatch):
    def note(circuit: NestedCircuit, *arguments: Any) -> Any:
        found.append(arguments[4]._bytes)
        return prepare(circuit, *arguments)

    found: list[int] = []
    prepare = NestedCircuit.prepare
    monkeypatch.setattr(NestedCircuit, "prepare", note)
    for threads in (1, 2, 3) * 5:
        circuit = compile_datalog(PATHS, EDGE, threads=threads)
        with divided_steps(), no_second_run():
            circuit.step({"e": random_edges(1, 60, 40)})
    assert found[0] > 0
    assert found == found[:1] * 15


def test_a_commit_with_several_threads_changes_nothing_if_a_trace_has_changed():
    circuit = compile_sql(VIEWS, EDGE, materialize=True, threads=3)
    with divided_steps():
        circuit.step({"e": random_edges(1, 60, 40)})
        before = state_of(circuit)
        step = circuit.prepare({"e": random_edges(2, 60, 40)})
        *others, last = step.graph_step.changes
        last.trace.version += 1
        with pytest.raises(DbspWcojError, match="prepared at version"):
            step.graph_step.commit()
        last.trace.version -= 1
        assert [change.trace.version for change in others] == [change._version for change in others]
        step.abandon()
    assert state_of(circuit) == before


def test_an_error_while_several_views_are_decoded_names_the_view(monkeypatch):
    def fail(schema: Any, *arguments: Any) -> pa.Table:
        if len(schema.fields) == 1:
            raise MemoryError
        return to_table(schema, *arguments)

    to_table = circuits.schema.Schema.to_table
    text = """
        CREATE VIEW a AS SELECT src, dst FROM e;
        CREATE VIEW b AS SELECT src FROM e;
        CREATE VIEW c AS SELECT dst, src FROM e;
    """
    by_threads = [compile_sql(text, EDGE, threads=threads) for threads in (1, 2)]
    monkeypatch.setattr(circuits.schema.Schema, "to_table", fail)
    with divided_steps():
        alone, shared = (outcome(c, {"e": random_edges(1, 60, 40)}) for c in by_threads)
    assert "view 'b'" in alone[1]
    assert shared == alone


def test_an_interrupt_of_a_step_leaves_nothing_half_done(monkeypatch):
    """An interrupt of the calling thread, at each of the first readings of its clock."""
    main = threading.get_ident()
    remaining = [0]

    def clock() -> float:
        if threading.get_ident() == main and remaining[0]:
            remaining[0] -= 1
            if not remaining[0]:
                raise KeyboardInterrupt
        return 0.0

    circuit = compile_sql(VIEWS, EDGE, materialize=True, threads=3)
    reference = compile_sql(VIEWS, EDGE, materialize=True, threads=1)
    circuit._clock = circuit.graph.clock = clock
    threads_before = threading.active_count()
    tables = {"e": random_edges(1, 6_000, 4_000)}
    for reading in range(1, 1000):
        before = state_of(circuit)
        remaining[0] = reading
        try:
            circuit.step(tables)
        except KeyboardInterrupt:
            assert state_of(circuit) == before
            assert threading.active_count() <= threads_before + 2
        else:
            break  # the thread has read the clock less often
    assert reading > 9
    reference.step(tables)
    remaining[0] = 0
    assert circuit.step(tables) == reference.step(tables)
    assert state_of(circuit) == state_of(reference)


def test_functions_of_the_user_are_called_by_the_calling_thread():
    threads = set()

    def note(number: int) -> int:
        threads.add(threading.get_ident())
        return number

    text = "CREATE VIEW v AS SELECT note(src) AS a FROM e; CREATE VIEW w AS SELECT dst FROM e;"
    circuit = compile_sql(text, EDGE, functions={"note": udf(note, returns="bigint")}, threads=3)
    circuit.step({"e": random_edges(1, 6_000, 4_000)})
    assert threads == {threading.get_ident()}


def test_small_steps_wake_no_thread(monkeypatch):
    text = "SELECT x.src, count(*) AS n FROM e x JOIN e y ON y.src = x.dst GROUP BY x.src"
    circuit = compile_sql(text, EDGE, materialize=True, threads=3)
    rng = np.random.default_rng(1)
    edges = pa.table(dict(zip(("src", "dst"), rng.integers(0, 4_000, (2, 21_000)), strict=True)))
    circuit.step({"e": edges.slice(0, 20_000)})
    monkeypatch.setattr(Workers, "run_job", pytest.fail)
    for first, size in ((20_000, 1), (20_001, 10), (20_011, 200)):
        circuit.step({"e": edges.slice(first, size)})


def test_a_step_without_two_large_operators_wakes_no_thread(monkeypatch):
    text = "SELECT src, count(*) AS n FROM e WHERE dst < 4000 GROUP BY src"
    circuit = compile_sql(text, EDGE, threads=3)
    monkeypatch.setattr(circuits.runtime.threads._LazyPool, "submit", pytest.fail)
    for seed in range(3):
        circuit.step({"e": random_edges(seed, 6_000, 4_000)})


def test_independent_large_operators_of_a_step_are_different_tasks(monkeypatch):
    def note(workers: Workers, job: Any, task: Any) -> None:
        tasks.append(task)
        add(workers, job, task)

    tasks: list[Any] = []
    add = Workers.add
    monkeypatch.setattr(Workers, "add", note)
    text = "".join(
        f"CREATE VIEW v{k} AS SELECT src, count(*) AS n FROM e WHERE dst <> {k} GROUP BY src;"
        for k in range(5)
    )
    one, two = (compile_sql(text, EDGE, threads=threads) for threads in (1, 2))
    for seed in range(3):
        tasks.clear()
        tables = {"e": random_edges(seed, 6_000, 4_000)}
        assert two.step(tables) == one.step(tables)
        assert len(tasks) >= 5
    assert state_of(one) == state_of(two)


def test_threads_are_checked_and_default_to_the_cores_of_the_process():
    assert compile_sql("SELECT src FROM e", EDGE).threads == available_threads() >= 1
    circuit = compile_sql("SELECT src FROM e", EDGE, threads=5)
    assert circuit.threads == circuit.with_spec(circuit.spec).threads == 5
    for wrong in (0, -1):
        with pytest.raises(CircuitError, match="1 or more"):
            compile_sql("SELECT src FROM e", EDGE, threads=wrong)
    with pytest.raises(ArgumentTypeError):
        compile_sql("SELECT src FROM e", EDGE, threads="two")


class CountedWorkers(Workers):
    """Workers that note the candidates of each part of a term, and use no threads."""

    def __init__(self, threads: int) -> None:
        super().__init__(ThreadPoolExecutor(1), threads)
        self.costs: list[int] = []

    def run(self, tasks):
        results = [task() for task in tasks]
        self.costs += [int(r[1].sum()) for r in results if isinstance(r, tuple) and len(r) == 2]
        return results


@pytest.mark.parametrize("threads", [2, 4, 8, 16])
def test_the_work_at_a_hub_is_shared_evenly(threads):
    """All edges of the step have one source, whose edges no range of values could divide."""
    text = "SELECT count(*) AS n FROM e x JOIN f y ON y.src = x.dst JOIN f z ON z.src = y.dst"
    edge = "src bigint not null, dst bigint not null"
    circuit = compile_sql(text, {"e": edge, "f": edge}, threads=1)
    rng = np.random.default_rng(1)
    circuit.step({"f": pa.table({"src": rng.integers(0, 2_000, 50_000), "dst": np.arange(50_000)})})
    workers = CountedWorkers(threads)
    with patch.object(circuit, "_workers", workers):
        circuit.step({"e": pa.table({"src": np.zeros(40_000, np.int64), "dst": range(40_000)})})
    shares = count_shares(workers.costs, threads)
    assert sum(shares) > 40_000
    assert max(shares) < 1.2 * sum(shares) / threads
    assert current_workers() is None
