"""Runs a random SQL program step by step, and compares its view with DuckDB's answer.

A failing case prints its seed, texts, schemas and steps; ``draw_case(seed)`` draws it again.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa

from circuits import Circuit, compile_sql
from tests.generators.sql.queries import Program, Writer
from tests.generators.sql.rows import (
    KINDS_OF_TABLES,
    SCHEMAS,
    START,
    Changes,
    random_steps,
    table_of_changes,
)

__all__ = [
    "Case",
    "Database",
    "Rows",
    "add_delta",
    "are_different",
    "case_of",
    "compile_case",
    "deltas",
    "draw_case",
    "drop_late",
    "last_view",
    "rearrange",
    "rows_of",
    "sum_of_deltas",
    "with_time",
]

Rows = Counter[tuple[Any, ...]]


@dataclass(frozen=True)
class Case:
    """A program and the changes of its tables, each with the current time of its step.

    Attributes:
        seed: The seed that `draw_case` made it from.
        program: The views and the query.
        steps: The changes of each step.
        times: The current time of each step.
        used: How often the program uses each construct.
    """

    seed: int
    program: Program
    steps: tuple[Changes, ...]
    times: tuple[datetime, ...]
    used: Counter[str]

    def __str__(self) -> str:
        lines = [f"seed {self.seed}", f"text: {self.program.text}"]
        lines += [f"oracle's view {name}: {text}" for name, text in self.program.views]
        if not self.program.text.endswith(self.program.query):
            lines.append(f"oracle's query: {self.program.query}")
        lines += [
            f"schema {name}: {', '.join(f'{field.name} {field.type}' for field in schema)}"
            for name, schema in SCHEMAS.items()
        ]
        for time, changes in zip(self.times, self.steps, strict=True):
            lines.append(f"step at {time}:")
            lines += [
                f"  {name}: {weight:+} {row}" for name in changes for row, weight in changes[name]
            ]
        return "\n".join(lines)


def draw_case(
    seed: int, dialect: str = "duckdb", steps: int = 4, advance: timedelta = timedelta()
) -> Case:
    """Return the case of a seed, with timestamps that are later in each step by ``advance``."""
    rng = random.Random(seed)
    tables = {name: dict(kinds) for name, kinds in KINDS_OF_TABLES.items()}
    writer = Writer(rng, tables, dialect)
    program = writer.program()
    changes = random_steps(rng, rng.randint(2, steps), advance=advance)
    times, now = [], START
    for _ in changes:
        now += timedelta(seconds=rng.choice([0, 5, 7, 20]))
        times.append(now)
    return Case(seed, program, tuple(changes), tuple(times), writer.used)


# DuckDB 2.0.0 moves filters of a join below DISTINCT ON, which changes the rows that it keeps.
DISABLED_OPTIMIZER = "join_filter_pushdown"


@cache
def _connect() -> duckdb.DuckDBPyConnection:
    """Return a connection, which all cases share: a new one costs as much as a few queries."""
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET TimeZone = 'UTC'; SET error_on_division_by_zero = false")
    connection.execute("SET ieee_floating_point_ops = false")  # x / 0 is NULL
    connection.execute(f"SET disabled_optimizers = '{DISABLED_OPTIMIZER}'")
    return connection


class Database:
    """DuckDB with the rows of the tables after each step.

    Attributes:
        present: How often each row is in each table, by the text of the row.
        rows: The row with each text, because some values cannot be keys.
    """

    def __init__(self, program: Program) -> None:
        self.connection = _connect()
        for name, _ in program.views:
            self.connection.execute(f"DROP VIEW IF EXISTS {name}")
        self.program = program
        self.present: dict[str, Counter[str]] = {name: Counter() for name in SCHEMAS}
        self.rows: dict[str, dict[str, tuple[Any, ...]]] = {name: {} for name in SCHEMAS}
        self.store(SCHEMAS)

    def change(self, changes: Changes) -> None:
        for name, rows in changes.items():
            for row, weight in rows:
                key = repr(row)
                self.rows[name][key] = row
                self.present[name][key] += weight
        self.store(changes)

    def store(self, names: Iterable[str]) -> None:
        for name in names:
            rows = self.rows[name]
            present = [(rows[key], 1) for key in self.present[name].elements()]
            table = table_of_changes(name, present).drop_columns(["weight"])
            self.connection.register("rows_of", table)
            self.connection.execute(f"CREATE OR REPLACE TABLE {name} AS SELECT * FROM rows_of")
            self.connection.unregister("rows_of")

    def answer(self, now: datetime) -> Rows:
        """Return the rows of the query when the current time is ``now``."""
        views = self.program.views
        for name, text in views:
            self.connection.execute(f"CREATE OR REPLACE VIEW {name} AS {with_time(text, now)}")
        try:
            answer = self.connection.sql(with_time(self.program.query, now)).to_arrow_table()
        except duckdb.InternalException:  # a defect of DuckDB, after which it refuses all queries
            _connect.cache_clear()
            raise
        return Counter(rows_of(answer))

    def answer_without_statistics(self, now: datetime) -> Rows:
        """Return the rows without an optimizer that is wrong for EXISTS over a RIGHT JOIN."""
        optimizers = f"{DISABLED_OPTIMIZER},statistics_propagation"
        self.connection.execute(f"SET disabled_optimizers = '{optimizers}'")
        try:
            return self.answer(now)
        finally:
            self.connection.execute(f"SET disabled_optimizers = '{DISABLED_OPTIMIZER}'")


def with_time(text: str, now: datetime) -> str:
    """Write the current time into a text of the oracle."""
    return text.replace("@NOW@", str(now))


def rows_of(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    columns = [[comparable(value) for value in column.to_pylist()] for column in table.columns]
    return zip(*columns, strict=True)


def comparable(value: Any) -> Any:
    """Return a value that is hashable, and equal for equal values of both engines."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else float(f"{round(value, 9):.9g}") + 0.0
    if isinstance(value, pa.MonthDayNano):
        assert value.months == 0
        return timedelta(days=value.days, microseconds=value.nanoseconds // 1000)
    if isinstance(value, dict):
        return tuple((name, comparable(part)) for name, part in value.items())
    if isinstance(value, list | tuple):
        return tuple(map(comparable, value))
    if isinstance(value, datetime):
        return value.replace(tzinfo=None)
    return value


def add_delta(total: Rows, delta: pa.Table) -> None:
    """Add the delta of a view to its rows."""
    for *row, weight in rows_of(delta):
        total[tuple(row)] += weight
        if not total[tuple(row)]:
            del total[tuple(row)]


def are_different(ours: Rows, theirs: Rows) -> bool:
    """Return whether two bags of rows differ by more than the rounding of floats."""
    if ours == theirs:
        return False
    left, right = (sorted(rows.elements(), key=sort_key) for rows in (ours, theirs))
    if len(left) != len(right) or any(weight < 0 for weight in ours.values()):
        return True
    return not all(map(is_close, left, right))


def sort_key(row: tuple[Any, ...]) -> str:
    return repr([f"{v:.5g}" if isinstance(v, float | Decimal | int) else v for v in row])


def is_close(left: Any, right: Any) -> bool:
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and all(map(is_close, left, right))
    numbers = float | Decimal | int
    if isinstance(left, numbers) and isinstance(right, numbers):
        return math.isclose(float(left), float(right), rel_tol=1e-7, abs_tol=1e-8)
    return bool(left == right)


def case_of(text: str, seed: int) -> Case:
    """Return the case of a SELECT that both engines read, with random rows."""
    drawn = draw_case(seed)
    return replace(drawn, program=Program((), text, text))


def compile_case(case: Case, **options: Any) -> Circuit:
    return compile_sql(case.program.text, SCHEMAS, **options)


def deltas(changes: Changes) -> dict[str, pa.Table]:
    return {name: table_of_changes(name, rows) for name, rows in changes.items()}


def last_view(circuit: Circuit) -> str:
    """Return the name of the view of the last SELECT."""
    return "view" if "view" in circuit.outputs else circuit.outputs[-1]


def sum_of_deltas(circuit: Circuit, steps: Sequence[Changes], now: datetime) -> Rows:
    """Return the sum of the view's deltas after steps that all have the same time."""
    total: Rows = Counter()
    for changes in steps:
        add_delta(total, circuit.step(deltas(changes), now=now)[last_view(circuit)])
    return total


def rearrange(steps: Sequence[Changes], rng: random.Random) -> list[Changes]:
    """Return the same changes in another order and other steps.

    Each row is still inserted before it is deleted.
    """
    flat = [
        (name, row, weight)
        for changes in steps
        for name, rows in changes.items()
        for row, weight in rows
    ]
    shuffled = rng.sample(flat, len(flat))
    positions: dict[tuple[str, str], list[int]] = {}
    for position, (name, row, _) in enumerate(shuffled):
        positions.setdefault((name, repr(row)), []).append(position)
    for positions_of_row in positions.values():
        # Insertions (positive weights) first.
        changes_of_row = sorted((shuffled[p] for p in positions_of_row), key=lambda c: -c[2])
        for position, change in zip(positions_of_row, changes_of_row, strict=True):
            shuffled[position] = change
    parts: list[Changes] = [{}]
    for name, row, weight in shuffled:
        if rng.random() < 0.2:
            parts.append({})
        parts[-1].setdefault(name, []).append((row, weight))
    return parts


def drop_late(changes: Changes, newest: dict[str, datetime], lateness: timedelta) -> Changes:
    """Return the changes without late rows, and record in ``newest`` the latest time of each table.

    A row is late if it is older than the newest row of the steps before by more than ``lateness``.
    A row without a time is rejected as well.
    """
    accepted: Changes = {}
    for name, rows in changes.items():
        time_column = SCHEMAS[name].get_field_index("ts")
        if time_column < 0:
            accepted[name] = rows
            continue
        limit = newest[name] - lateness if name in newest else datetime.min
        on_time = [c for c in rows if c[0][time_column] is not None and c[0][time_column] >= limit]
        times = [row[time_column] for row, _ in on_time]
        if times:
            newest[name] = max([*times, newest.get(name, datetime.min)])
            accepted[name] = on_time
    return accepted
