"""User-defined functions in cells and sinks: restarts, repeated tasks, dead letters."""

from __future__ import annotations

from collections import Counter
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from circuits import Circuit, compile_sql, udf
from streaming import RowError, StateMismatchError, ViewSink
from streaming.distributed.rescaling import rescale_state
from streaming.state.local_files import LocalFiles
from tests.streaming.distributed.test_attempts import Context, EngineRun
from tests.streaming.distributed.test_engine import Frame

SCHEMAS = {"t": "k bigint, x string", "u": "k bigint, y bigint"}
VIEWS = """
    CREATE VIEW numbered AS SELECT k, x, ticket(x) AS nr FROM t;
    CREATE VIEW groups AS SELECT y, count(*) AS n, min(ticket(x)) AS least
        FROM t JOIN u ON t.k = u.k AND ticket(x) >= 0 GROUP BY y
"""
NUMBERS = count()


def next_number(x: str) -> int:
    return next(NUMBERS)


def fail_for_b(x: str) -> str:
    if x == "b":
        raise ValueError("no b, please")
    return x.upper()


def minus_one(x: str) -> int:
    return -1


def minus_two(x: str) -> int:
    return -2


FUNCTIONS = {"ticket": udf(next_number, returns="bigint")}


def circuit() -> Circuit:
    return compile_sql(VIEWS, SCHEMAS, functions=FUNCTIONS)


def rows(numbers: range, weight: int) -> dict[str, pa.Table]:
    t = [{"k": n % 5, "x": f"x{n % 7}", "weight": weight} for n in numbers]
    u = [{"k": n % 5, "y": n % 3, "weight": weight} for n in numbers]
    return {"t": pa.Table.from_pylist(t), "u": pa.Table.from_pylist(u)}


def add(total: Counter[Any], delta: Counter[Any]) -> None:
    for row, weight in delta.items():
        total[row] += weight
        if not total[row]:
            del total[row]


def check_tickets(numbered: Counter[Any]) -> None:
    """Check that equal texts have equal numbers, and others different ones."""
    tickets = {(x, nr) for _, x, nr in numbered}
    assert len(tickets) == len({x for x, _ in tickets}) == len({nr for _, nr in tickets})
    assert all(weight > 0 for weight in numbered.values())


def test_deletions_remove_all_inserted_rows_over_restarts_and_repeated_tasks(
    tmp_path: Path,
) -> None:
    totals: dict[str, Counter[Any]] = {"numbered": Counter(), "groups": Counter()}
    context = Context(seed=3)
    run = EngineRun(circuit(), LocalFiles(tmp_path), 3)
    steps = [rows(range(20), 1), rows(range(10, 30), 1), rows(range(15), -1)]
    steps += [rows(range(15, 20), -1), rows(range(10, 30), -1)]
    for number, step in enumerate(steps):
        if number in (1, 3):
            run.engine.versions.close()
            run = EngineRun(circuit(), LocalFiles(tmp_path), 3)
        for name, delta in run.step(step, number, context).items():
            add(totals[name], delta)
        check_tickets(totals["numbered"])
    run.engine.versions.close()
    assert not totals["numbered"] and not totals["groups"]


def tagged(tables: dict[str, pa.Table]) -> pa.Table:
    parts = [
        table.append_column("relation", pa.array([name] * table.num_rows))
        for name, table in tables.items()
    ]
    return pa.concat_tables(parts, promote_options="default")


def test_a_rescaled_state_deletes_rows_that_were_inserted_before(tmp_path: Path) -> None:
    sink = ViewSink(circuit(), state_dir=tmp_path)
    sink(Frame(None, tagged(rows(range(20), 1))), 0)
    total = Counter(counted(sink, "numbered"))
    sink.close()
    with pytest.raises(StateMismatchError, match="ticket"):
        rescale_state(LocalFiles(tmp_path), cells=3)
    rescale_state(LocalFiles(tmp_path), cells=3, functions=FUNCTIONS)
    run = EngineRun(circuit(), LocalFiles(tmp_path), 3)
    add(total, run.step(rows(range(12), -1), 1, Context(seed=1))["numbered"])
    check_tickets(total)
    run.engine.versions.close()
    rescale_state(LocalFiles(tmp_path), cells=None, functions=FUNCTIONS)
    sink = ViewSink(circuit(), state_dir=tmp_path)
    sink(Frame(None, tagged(rows(range(12, 20), -1))), 2)
    add(total, counted(sink, "numbered"))
    assert not total


def counted(sink: ViewSink, view: str) -> Counter[Any]:
    assert sink.last is not None
    weights: Counter[Any] = Counter()
    for row in sink.last.outputs[view].to_pylist():
        weights[tuple(row.values())[:-1]] += row["weight"]
    return weights


def test_a_worker_runs_the_code_of_the_sink_that_runs_now(tmp_path: Path) -> None:
    text = (
        "SELECT y, min(ticket(x)) AS least FROM t JOIN u ON t.k = u.k AND ticket(x) < 0 GROUP BY y"
    )
    context = Context(0)
    context.attempts = (1,)
    context.workers = context.workers[:1]
    results = []
    for number, function in enumerate((minus_one, minus_two)):
        functions = {"ticket": udf(function, returns="bigint")}
        views = compile_sql(text, SCHEMAS, functions=functions)
        run = EngineRun(views, LocalFiles(tmp_path), 1)
        table = pa.table({"k": [number], "x": [f"text {number}"]})
        others = pa.table({"k": [number], "y": [number]})
        results.append(run.step({"t": table, "u": others}, number, context))
        run.engine.versions.close()
    assert results == [{"view": {(0, -1): 1}}, {"view": {(1, -2): 1}}]


def test_a_row_for_which_a_function_fails_is_a_dead_letter(tmp_path: Path) -> None:
    functions = {"shout": udf(fail_for_b, returns="string")}
    views = compile_sql("SELECT shout(x) AS s FROM t", {"t": SCHEMAS["t"]}, functions=functions)
    table = pa.table({"k": [1, 2, 3], "x": ["a", "b", "c"]})
    with pytest.raises(RowError, match=r"shout\('b'\) failed: it raised ValueError: no b, please"):
        ViewSink(views, state_dir=tmp_path / "fail")(Frame(None, table), 0)
    sink = ViewSink(Circuit(views.spec), state_dir=tmp_path / "dead", bad_rows="dead_letter")
    sink(Frame(None, table), 0)
    assert counted(sink, "view") == {("A",): 1, ("C",): 1}
    assert sink.metrics[-1].dead_letters == 1
