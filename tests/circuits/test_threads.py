"""One writer at a time, and readers that see the last committed version, step by step.

A step is stopped in the middle, by the clock that measures the operators or by a part with a slow
commit; meanwhile other threads read the circuit.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from decimal import Decimal
from linecache import getline
from typing import Any

import pyarrow as pa
import pytest

from circuits import (
    BrokenCircuitError,
    BusyCircuitError,
    Circuit,
    CircuitError,
    InputOptions,
    Retention,
    StaleStepError,
    compile_datalog,
    compile_sql,
)
from circuits.runtime import nested_circuit
from circuits.state.program_change import ProgramChange
from dbsp_wcoj.storage.spine import Spine
from tests.support.tables import bag_of

TIMEOUT = 60.0  # seconds after which a thread counts as hanging
VIEWS = """
    CREATE VIEW paths AS SELECT x.a, y.b FROM e x JOIN e y ON y.a = x.b;
    CREATE VIEW counts AS SELECT a, count(*) AS n FROM e GROUP BY a;
"""
EDGE = {"e": pa.schema([("a", pa.string()), ("b", pa.string())])}


def edges(*pairs: str) -> pa.Table:
    """Return one edge for each pair of letters."""
    return pa.table({"a": [p[0] for p in pairs], "b": [p[1] for p in pairs]}, EDGE["e"])


class Gate:
    """Stops a thread until another one has read the circuit; serves as the clock of a circuit."""

    def __init__(self) -> None:
        self.is_closed = False
        self._reached, self._opened = threading.Event(), threading.Event()

    def __call__(self) -> float:
        """Return the time; if the gate is closed, wait first until it is opened."""
        if self.is_closed:
            self.is_closed = False
            self._reached.set()
            assert self._opened.wait(TIMEOUT), "the gate was not opened"
        return 0.0

    @contextmanager
    def holding(self, pool: ThreadPoolExecutor, work: Callable[[], Any]) -> Iterator[Future[Any]]:
        """Run ``work`` in another thread; it waits at the gate until the end of the block."""
        self._reached.clear()
        self._opened.clear()
        self.is_closed = True
        future = pool.submit(work)
        try:
            assert self._reached.wait(TIMEOUT), "the gate was not reached"
            yield future
        finally:
            self._opened.set()
        future.result(TIMEOUT)


class SlowCommit:
    """A part of a step whose commit waits at a gate."""

    changes = ()

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def commit(self) -> None:
        self._gate()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def circuit(gate: Gate) -> Circuit:
    circuit = compile_sql(VIEWS, EDGE, materialize=True)
    circuit._clock = circuit.graph.clock = gate
    circuit.step({"e": edges("pq", "qr")})
    return circuit


def read_all(circuit: Circuit) -> tuple[Any, ...]:
    """Return all that a reader can see."""
    views = circuit.views
    snapshot = circuit.snapshot()
    return (
        {name: bag_of(table) for name, table in views.items()},
        bag_of(circuit.query("SELECT a || b AS s FROM e")),
        bag_of(circuit.query("s(x, z) :- e(x, y), e(y, z).")),
        snapshot.steps,
        {name: (rows.tolist(), ws.tolist()) for name, (rows, ws) in snapshot.traces.items()},
        {name: [p.tolist() for p in strings] for name, strings in snapshot.dictionaries.items()},
        circuit.digests({"e": edges("pz", "zz", "qr")}),
        circuit.explain("mermaid"),
        circuit.schema("paths"),
    )


def test_readers_see_the_state_before_a_step_while_it_is_computed(circuit, gate, pool):
    before = read_all(circuit)
    with gate.holding(pool, lambda: circuit.step({"e": edges("xy", "rp")})) as step:
        assert not step.done()
        assert read_all(circuit) == before
    after = read_all(circuit)
    assert after[0]["e"] == Counter(map(tuple, ("pq", "qr", "xy", "rp")))
    assert after[3] == before[3] + 1


def test_readers_see_the_state_before_a_step_while_it_is_committed(circuit, gate, pool):
    before = read_all(circuit)
    step = circuit.prepare({"e": edges("xy", "rp")})
    for parts in (
        [SlowCommit(gate), *step.graph_step.staged],
        [*step.graph_step.staged, SlowCommit(gate)],
    ):
        copy = replace(step, graph_step=replace(step.graph_step, staged=parts))
        # A commit that has changed all traces already is not seen before it is over.
        with gate.holding(pool, copy.commit):
            assert read_all(circuit) == before
        assert circuit.query("SELECT * FROM e").num_rows == 4
        break
    step = circuit.prepare({"e": edges("zz")})
    copy = replace(
        step,
        graph_step=replace(step.graph_step, staged=[*step.graph_step.staged, SlowCommit(gate)]),
    )
    with gate.holding(pool, copy.commit):
        assert circuit.query("SELECT * FROM e").num_rows == 4
    assert circuit.query("SELECT * FROM e").num_rows == 5


def test_a_commit_does_not_end_the_turn_of_a_step_that_follows_it(circuit, gate, pool):
    first = circuit.prepare({"e": edges("xy")})
    staged = [*first.graph_step.staged, SlowCommit(gate)]
    slow = replace(first, graph_step=replace(first.graph_step, staged=staged))

    def open_gate() -> None:
        """Let the commit go on when the next step has its turn and waits for the commit."""
        while circuit._state.turns.open_turns < 2:
            time.sleep(0.001)
        gate._opened.set()

    with ThreadPoolExecutor(1) as other:
        with gate.holding(pool, slow.commit):
            opened = other.submit(open_gate)
            second = circuit.prepare({"e": edges("pp")})
            opened.result(TIMEOUT)
        with pytest.raises(BusyCircuitError):
            other.submit(circuit.prepare, {"e": edges("qq")}, timeout=0).result(TIMEOUT)
    second.commit()
    assert bag_of(circuit.views["e"]) == Counter(map(tuple, ("pq", "qr", "xy", "pp")))


def test_a_change_of_the_program_waits_while_another_thread_computes_a_step(circuit, gate, pool):
    new = compile_sql(VIEWS + "CREATE VIEW names AS SELECT a || '!' AS name FROM e", EDGE)
    with gate.holding(pool, lambda: circuit.step({"e": edges("xy")})):
        change = ProgramChange(circuit, new)
        computed = pool.submit(change.compute)
        with pytest.raises(TimeoutError):
            computed.result(0.2)
    computed.result(TIMEOUT)  # before or after the commit; `finish` checks which
    assert bag_of(circuit.views["e"]) == Counter(map(tuple, ("pq", "qr", "xy")))
    rows = ProgramChange(circuit, new).apply()["names"]
    assert set(rows["name"].to_pylist()) == {"p!", "q!", "x!"}


def test_views_that_were_read_do_not_change_with_later_steps(circuit):
    views = circuit.views
    before = {name: bag_of(table) for name, table in views.items()}
    for k in range(40):
        circuit.step({"e": edges("ab", "bc", f"a{k % 7}")})
    assert {name: bag_of(table) for name, table in views.items()} == before
    assert bag_of(circuit.views["e"]) != before["e"]


def test_a_second_writer_waits_for_its_turn(circuit, gate, pool):
    with gate.holding(pool, lambda: circuit.step({"e": edges("xy")})) as first:
        second = pool.submit(circuit.step, {"e": edges("yx")})
        with pytest.raises(TimeoutError):
            second.result(0.2)
        assert not first.done()
    second.result(TIMEOUT)
    assert bag_of(circuit.views["e"]) == Counter(map(tuple, ("pq", "qr", "xy", "yx")))


def test_a_second_writer_may_give_up_at_once_or_after_a_while(circuit, gate, pool):
    snapshot = circuit.snapshot()
    with gate.holding(pool, lambda: circuit.step({"e": edges("xy")})):
        for timeout in (0, 0.05):
            for write in (
                lambda t=timeout: circuit.step({}, timeout=t),
                lambda t=timeout: circuit.prepare({}, timeout=t),
                lambda t=timeout: circuit.restore(snapshot, timeout=t),
                lambda t=timeout: circuit.load(snapshot.state(), timeout=t),
            ):
                with pytest.raises(BusyCircuitError, match=r"is making a step.*timeout="):
                    write()
    circuit.step({"e": edges("yx")}, timeout=0)
    assert bag_of(circuit.views["e"]) == Counter(map(tuple, ("pq", "qr", "xy", "yx")))


@pytest.mark.parametrize("timeout", [-1, float("nan")])
def test_a_timeout_is_a_number_of_seconds(circuit, timeout):
    with pytest.raises(CircuitError, match="give seconds"):
        circuit.step({}, timeout=timeout)


@pytest.mark.parametrize("end", ["commit", "abandon"])
def test_a_prepared_step_has_the_turn_until_it_is_over(circuit, pool, end):
    step = circuit.prepare({"e": edges("xy")})
    second = pool.submit(circuit.step, {"e": edges("yx")})
    with pytest.raises(TimeoutError):
        second.result(0.2)
    getattr(step, end)()
    second.result(TIMEOUT)
    expected = ("pq", "qr", "yx", *(["xy"] if end == "commit" else []))
    assert bag_of(circuit.views["e"]) == Counter(map(tuple, expected))


def test_a_step_that_is_dropped_blocks_no_other_step_and_leaves_no_codes(circuit, pool):
    lengths = circuit.committed.lengths
    step = circuit.prepare({"e": edges("xy", "uv")})
    second = pool.submit(circuit.prepare, {})
    with pytest.raises(TimeoutError):
        second.result(0.2)
    del step
    gc.collect()
    second.result(TIMEOUT).abandon()
    assert circuit.graph.registry.lengths() == lengths
    circuit.prepare({"e": edges("xy")})
    circuit.step({"e": edges("zz")})
    assert circuit.committed.lengths["text"] == lengths["text"] + 1


def test_a_step_of_a_thread_that_has_ended_blocks_no_other_step(circuit):
    prepared = []
    thread = threading.Thread(target=lambda: prepared.append(circuit.prepare({"e": edges("xy")})))
    thread.start()
    thread.join(TIMEOUT)
    circuit.step({"e": edges("yx")}, timeout=TIMEOUT)
    with pytest.raises(StaleStepError):
        prepared[0].commit()
    assert bag_of(circuit.views["e"]) == Counter(map(tuple, ("pq", "qr", "yx")))


def test_a_step_may_be_committed_by_another_thread(circuit, pool):
    step = circuit.prepare({"e": edges("xy")})
    pool.submit(step.commit).result(TIMEOUT)
    circuit.step({"e": edges("yx")}, timeout=0)
    assert circuit.views["e"].num_rows == 4


def test_a_commit_waits_for_a_step_that_another_thread_is_computing(circuit, gate, pool):
    with ThreadPoolExecutor(1) as owner:  # the thread that has the turn
        first = owner.submit(circuit.prepare, {"e": edges("xy")}).result(TIMEOUT)
        with gate.holding(owner, lambda: circuit.prepare({"e": edges("uv")})) as second:
            commit = pool.submit(first.commit)
            with pytest.raises(TimeoutError):
                commit.result(0.2)
        commit.result(TIMEOUT)
    with pytest.raises(StaleStepError):
        second.result(TIMEOUT).commit()
    assert bag_of(circuit.views["e"]) == Counter(map(tuple, ("pq", "qr", "xy")))


def test_of_several_prepared_steps_of_a_thread_one_can_be_committed(circuit, pool):
    first, second = circuit.prepare({"e": edges("xy")}), circuit.prepare({"e": edges("uv")})
    assert not pool.submit(lambda: can_step(circuit)).result(TIMEOUT)
    first.abandon()
    assert not pool.submit(lambda: can_step(circuit)).result(TIMEOUT)
    second.commit()
    assert pool.submit(lambda: can_step(circuit)).result(TIMEOUT)
    with pytest.raises(StaleStepError):
        first.commit()
    circuit.step({"e": edges("xu")})
    assert bag_of(circuit.views["e"]) == Counter(map(tuple, ("pq", "qr", "uv", "xu")))


def can_step(circuit: Circuit) -> bool:
    """Return whether a step can begin at once."""
    try:
        circuit.prepare({}, timeout=0).abandon()
    except BusyCircuitError:
        return False
    return True


def test_a_step_within_a_step_is_refused_and_changes_nothing(circuit):
    def clock() -> float:
        circuit._clock = lambda: 0.0
        for write in (lambda: circuit.step({}), lambda: circuit.load(circuit.snapshot().state())):
            with pytest.raises(BusyCircuitError, match="steps do not nest"):
                write()
        return 0.0

    circuit._clock = clock
    circuit.step({"e": edges("xy")})
    assert circuit.views["e"].num_rows == 3
    assert can_step(circuit)


def test_a_load_waits_for_no_step_and_ends_the_steps_before_it(circuit, pool):
    snapshot = circuit.snapshot()
    step = circuit.prepare({"e": edges("xy")})
    with pytest.raises(BusyCircuitError):
        pool.submit(circuit.restore, snapshot, timeout=0).result(TIMEOUT)
    circuit.restore(snapshot)
    with pytest.raises(StaleStepError):
        step.commit()
    assert pool.submit(lambda: can_step(circuit)).result(TIMEOUT)


def test_a_step_that_fails_gives_its_turn_back(circuit, pool):
    with pytest.raises(CircuitError) as error:  # the error keeps the frames of the step
        circuit.step({"e": pa.table({"a": ["x"]})})
    assert pool.submit(lambda: can_step(circuit)).result(TIMEOUT)
    assert "no column" in str(error.value)


def test_a_commit_that_fails_closes_the_circuit_for_readers_and_writers(circuit, pool):
    class Failing:
        changes = ()

        def commit(self) -> None:
            raise MemoryError

    before = circuit.views
    snapshot = circuit.snapshot()
    step = circuit.prepare({"e": edges("xy")})
    broken = replace(
        step, graph_step=replace(step.graph_step, staged=[*step.graph_step.staged, Failing()])
    )
    with pytest.raises(MemoryError):
        broken.commit()
    for use in (lambda: circuit.views, lambda: circuit.step({}), circuit.snapshot):
        for run in (use, lambda use=use: pool.submit(use).result(TIMEOUT)):
            with pytest.raises(BrokenCircuitError):
                run()
    assert before["e"].num_rows == 2  # an earlier read does not change
    pool.submit(circuit.restore, snapshot, timeout=TIMEOUT).result(TIMEOUT)
    circuit.step({"e": edges("xy")})
    assert circuit.views["e"].num_rows == 3


class Interrupted(KeyboardInterrupt):
    pass


FILES = tuple(f"circuits/{name}.py" for name in ("circuit", "step", "turns", "committed"))


@contextmanager
def interrupted(line: int | None) -> Iterator[list[int]]:
    """Count the lines of `FILES` that run, and raise before the one of this number; yield the
    count.

    The lines of ``with`` statements are left out: a trace function runs there, a signal handler
    does not.
    """
    count = [0]

    def place(frame):
        return frame.f_code.co_filename, frame.f_lineno

    def trace_call(frame, event, argument):
        return trace_line if frame.f_code.co_filename.endswith(FILES) else None

    def trace_line(frame, event, argument):
        if event == "line" and not getline(*place(frame)).lstrip().startswith("with "):
            count[0] += 1
            if count[0] == line:
                raise Interrupted
        return trace_line

    before = sys.gettrace()
    sys.settrace(trace_call)
    try:
        yield count
    except Interrupted:
        pass
    finally:
        sys.settrace(before)


def test_after_an_interrupt_anywhere_in_a_step_other_threads_can_step(pool):
    def sample() -> Circuit:
        circuit = compile_sql("SELECT a, count(*) AS n FROM e GROUP BY a", EDGE, materialize=True)
        circuit.step({"e": edges("pq")})
        return circuit

    circuit = sample()
    with interrupted(None) as count:
        circuit.step({"e": edges("xy")})
    for line in range(1, count[0] + 1):
        circuit = sample()
        snapshot = circuit.snapshot()
        with interrupted(line):
            circuit.step({"e": edges("xy")})

        def read_and_step(circuit=circuit, snapshot=snapshot) -> tuple[int, Counter]:
            try:
                rows = circuit.query("SELECT * FROM e").num_rows
                circuit.step({"e": edges("zz")}, timeout=TIMEOUT)
            except BrokenCircuitError:
                circuit.restore(snapshot, timeout=TIMEOUT)
                rows = 1
                circuit.step({"e": edges("zz")}, timeout=TIMEOUT)
            bag = bag_of(circuit.views["e"])
            return rows, bag

        rows, bag = pool.submit(read_and_step).result(TIMEOUT)
        assert rows + 1 == bag.total(), line
        assert bag - Counter([("x", "y")]) == Counter(map(tuple, ("pq", "zz"))), line


NUMBERS = pa.schema([("s", pa.string()), ("d", pa.decimal128(30, 2)), ("b", pa.binary())])
ROWS = [(f"r{i}", Decimal(10**26 + i), b"%d" % i) for i in range(100)]
QUERIES = [
    "SELECT s || '!' AS t, d + 1 AS e FROM r WHERE s LIKE 'r1%'",
    "SELECT DISTINCT substr(s, 1, 2) || 'x' AS p FROM r",
    "SELECT substr(s, 1, 2) || 'y' AS p, count(*) AS n, max(s || 'z') AS m FROM r GROUP BY 1",
    "SELECT s, d FROM r WHERE s = 'nobody' OR s = 'r5'",
    "SELECT s || 'a' AS t FROM r ORDER BY t DESC LIMIT 3",
    "SELECT x.s || y.s AS t FROM r x JOIN r y ON x.d = y.d WHERE x.s < 'r12'",
    "SELECT 'one' AS t UNION ALL SELECT s FROM r WHERE s = 'r7'",
    "SELECT s || 'u' AS t FROM r EXCEPT SELECT 'r1' || 'u'",
    "SELECT min(s || 'q') AS t, min(d * 3) AS u FROM r",
]


@pytest.mark.parametrize("query", QUERIES)
def test_queries_and_digests_leave_no_codes_and_no_arrangements(query):
    circuit = compile_sql(
        "SELECT x.s FROM r x JOIN r y ON x.s = y.s", {"r": NUMBERS}, materialize=["r"]
    )
    s, d, b = zip(*ROWS, strict=True)
    circuit.step({"r": pa.table({"s": s, "d": d, "b": b}, NUMBERS)})
    lengths = circuit.graph.registry.lengths()
    orders = {name: trace.orders for name, trace in circuit.graph.traces.items()}
    first = bag_of(circuit.query(query))
    assert bag_of(circuit.query(query)) == first
    circuit.digests({"r": pa.table({"s": ["new"], "d": [Decimal(10**27)], "b": [b"n"]}, NUMBERS)})
    assert circuit.graph.registry.lengths() == lengths
    assert {name: trace.orders for name, trace in circuit.graph.traces.items()} == orders
    # A circuit that has the query as a view has codes for all its strings, and the same rows.
    with_view = compile_sql(query, {"r": NUMBERS}, materialize=True)
    with_view.step({"r": pa.table({"s": s, "d": d, "b": b}, NUMBERS)})
    (view,) = with_view.outputs
    assert bag_of(with_view.views[view]) == first


def test_digests_are_those_of_the_step_also_for_inputs_with_rules():
    rules = {
        "e": InputOptions(keys=["a"], strict=True),
        "t": InputOptions(retain=Retention("at", "10 seconds")),
    }
    schemas = {**EDGE, "t": pa.schema([("at", pa.timestamp("s")), ("s", pa.string())])}
    circuit = compile_sql(
        "SELECT e.a FROM e JOIN t ON e.a = t.s",
        schemas,
        input_options=rules,
    )
    times = pa.table({"at": pa.array([50, 61], pa.timestamp("s")), "s": ["x", "new"]}, schemas["t"])
    for tables in ({"e": edges("xy", "uv")}, {"t": times}, {"e": edges("xz", "wv"), "t": times}):
        digests = circuit.digests(tables)
        lengths = circuit.graph.registry.lengths()
        step = circuit.prepare(tables)
        assert step.digests == digests
        assert lengths == circuit.committed.lengths
        step.commit()


def test_a_recursive_query_beside_a_step_reads_one_version(gate, pool):
    circuit = compile_datalog("v(x, y) :- e(x, y).", EDGE, materialize=True)
    circuit._clock = circuit.graph.clock = gate
    circuit.step({"e": edges("ab", "bc", "cd")})
    query = "t(x, y) :- e(x, y). t(x, z) :- t(x, y), e(y, z)."
    before = bag_of(circuit.query(query))
    with gate.holding(pool, lambda: circuit.step({"e": edges("da")})):
        assert bag_of(circuit.query(query)) == before
    assert len(bag_of(circuit.query(query))) == 16


def test_coroutines_read_and_write_in_threads(circuit):
    async def run() -> None:
        steps = [
            asyncio.to_thread(circuit.step, {"e": edges(f"a{k % 10}", f"b{k % 10}")})
            for k in range(40)
        ]
        reads = [asyncio.to_thread(lambda: circuit.views["e"].num_rows) for _ in range(40)]
        queries = [
            asyncio.to_thread(circuit.query, "SELECT count(*) AS n FROM e") for _ in range(20)
        ]
        results = await asyncio.gather(*steps, *reads, *queries)
        for table in results[80:]:
            assert (table["n"][0].as_py() - 2) % 2 == 0

    asyncio.run(run())
    assert bag_of(circuit.views["e"]).total() == 82


def test_a_coroutine_that_prepares_in_the_thread_of_the_loop_does_not_lock_it(circuit):
    async def run() -> list[BaseException | None]:
        async def write(pair: str) -> None:
            step = circuit.prepare({"e": edges(pair)})
            await asyncio.sleep(0.01)
            step.commit()

        return await asyncio.gather(write("xy"), write("uv"), return_exceptions=True)

    first, second = asyncio.run(run())
    assert first is None and isinstance(second, StaleStepError)
    assert bag_of(circuit.views["e"]) == Counter(map(tuple, ("pq", "qr", "xy")))


def test_an_interrupt_while_a_recursion_restores_its_traces_changes_nothing(monkeypatch):
    rules = "p(a, b) :- e(a, b). p(a, c) :- p(a, b), e(b, c)."
    schemas = {"e": "a bigint, b bigint"}
    edges = [{"a": n, "b": n + 1} for n in range(6)]
    circuit = compile_datalog(rules, schemas, materialize=True)
    circuit.step({"e": edges})
    pop_overlay = Spine.pop_overlay
    calls = interrupts = 0

    def pop_or_interrupt(spine):
        nonlocal calls
        calls += 1
        if calls == interrupts + 1:
            raise KeyboardInterrupt
        return pop_overlay(spine)

    more = {"e": [{"a": 6, "b": 0, "weight": 1}, {"a": 2, "b": 3, "weight": -1}]}
    expected = bag_of(circuit.prepare(more).outputs["p"])
    while calls >= interrupts:  # an interrupt at each call of a step
        calls = 0
        with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
            patch.setattr(Spine, "pop_overlay", pop_or_interrupt)
            circuit.prepare({"e": [{"a": 6, "b": 0}]}).abandon()
        interrupts += 1
        step = circuit.prepare(more)
        assert bag_of(step.outputs["p"]) == expected, interrupts
        step.abandon()
    assert interrupts > 2


OVERLAY_FILES = (
    "circuits/runtime/nested_circuit.py",
    "dbsp_wcoj/storage/trace.py",
    "dbsp_wcoj/storage/spine.py",
)


def test_a_second_interrupt_while_a_recursion_is_rolled_back_changes_nothing(monkeypatch):
    """The first interrupt comes in an iteration; the second one before any line after that."""
    rules = "p(a, b) :- e(a, b). p(a, c) :- p(a, b), e(b, c)."
    circuit = compile_datalog(rules, {"e": "a bigint, b bigint"}, materialize=True)
    circuit.step({"e": [{"a": n, "b": n + 1} for n in range(6)]})
    more = {"e": [{"a": 6, "b": 0, "weight": 1}, {"a": 2, "b": 3, "weight": -1}]}
    waiting = circuit.prepare(more)
    expected = bag_of(waiting.outputs["p"])
    prepare_node = nested_circuit.prepare_node

    def interrupt_twice(call: int, line: int) -> int:
        """Interrupt a step in this call, and before this line; return the lines after the call."""
        calls = lines = 0

        def trace_call(frame, event, argument):
            return trace_line if frame.f_code.co_filename.endswith(OVERLAY_FILES) else None

        def trace_line(frame, event, argument):
            nonlocal lines
            if event == "line" and calls == call:
                lines += 1
                if lines == line:
                    raise Interrupted
            return trace_line

        def prepare_or_interrupt(*arguments):
            nonlocal calls
            calls += 1
            if calls == call:
                raise KeyboardInterrupt
            return prepare_node(*arguments)

        before = sys.gettrace()
        with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
            patch.setattr(nested_circuit, "prepare_node", prepare_or_interrupt)
            sys.settrace(trace_call)
            try:
                circuit.prepare({"e": [{"a": 6, "b": 0}]}).abandon()
            finally:
                sys.settrace(before)
        return lines

    for call in (1, 4, 9):
        line, lines = 1, interrupt_twice(call, 0)
        assert lines > 10
        while line <= lines:
            interrupt_twice(call, line)
            step = circuit.prepare(more)
            assert bag_of(step.outputs["p"]) == expected, (call, line)
            step.abandon()
            line += 1
    interrupt_twice(4, 5)
    waiting.commit()
    assert circuit.views["p"].num_rows == 21 + expected.total()
