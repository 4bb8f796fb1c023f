"""Pathway: differential dataflow behind Python tables; each atom after the first is one join.

Its engine runs in a thread of this process. A step puts rows into its Python connector and commits
them. Its output is one table with the count and a checksum of the edges, which changes in every
step even if the count does not. A step is complete when Pathway closes a time in which the checksum
changed. Rows are keyed by all columns, so a delete is exact.

For an LSQB query the rows of all relations go through one connector, so that a step is one time.
The number of all rows takes the place of the checksum. The joins are those of `lsqb_joins`.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.lsqb_joins import JOINS, Conjunction, union_parts
from benchmarks.peers.pattern import Pattern
from benchmarks.peers.systems import Edges, Resources

if TYPE_CHECKING:
    import pyarrow as pa

_PRIME = 1_000_003  # multiplies the source of an edge in the checksum
_Columns = NDArray[np.int64]  # one row for each column
_Step = tuple[_Columns, NDArray[np.int64]]


class _Maintainer:
    """Passes steps to the engine's thread, and waits for their answers.

    The engine calls `on_change` for each changed row of the output, and `on_time_end` when it
    closes a time.
    """

    def __init__(self, steps: queue.Queue[_Step | None]) -> None:
        self._steps = steps
        self._answers: queue.Queue[int | BaseException] = queue.Queue()
        self._count, self._has_new_checksum = 0, False

    def step(self, rows: _Columns, weights: NDArray[np.int64]) -> int:
        self._steps.put((rows, weights))
        answer = self._answers.get()
        if isinstance(answer, BaseException):
            raise RuntimeError("Pathway's engine failed") from answer
        return answer

    def on_change(self, key: Any, row: dict[str, Any], time: int, is_addition: bool) -> None:
        if row["kind"] == "checksum":
            self._has_new_checksum = True
        elif is_addition:
            self._count = row["value"]
        elif row["value"] == self._count:  # the count is 0, unless another value follows
            self._count = 0

    def on_time_end(self, time: int) -> None:
        if self._has_new_checksum:
            self._has_new_checksum = False
            self._answers.put(self._count)

    def on_failure(self, failure: BaseException) -> None:
        self._answers.put(failure)


class _View:
    """A maintained query over one table with the rows of all relations.

    Each row has the number of its relation and two columns; a single column is repeated.
    """

    def __init__(self, maintainer: _Maintainer, numbers: Mapping[str, int]) -> None:
        self._maintainer, self._numbers, self._count = maintainer, numbers, 0

    def change(self, rows: Mapping[str, pa.Table], weight: int) -> None:
        columns = np.concatenate(
            [
                np.stack(
                    [
                        np.full(table.num_rows, self._numbers[name]),
                        table.column(0).to_numpy(),
                        table.column(min(1, table.num_columns - 1)).to_numpy(),
                    ]
                )
                for name, table in rows.items()
            ],
            axis=1,
        )
        self._count = self._maintainer.step(columns, np.full(columns.shape[1], weight))

    def count(self) -> int:
        return self._count


@contextmanager
def maintainer(pattern: Pattern, edges: Edges, resources: Resources) -> Iterator[_Maintainer]:
    def sum_edges(pw: Any, table: Any) -> Any:
        return pw.reducers.sum(table.src * _PRIME + table.dst)

    def count(pw: Any, table: Any) -> Any:
        return _count(pw, table, pattern)

    with _running(("src", "dst"), count, sum_edges, resources) as session:
        session.step(edges, np.ones(edges.shape[1], np.int64))
        yield session


@contextmanager
def view(query: str, relations: Mapping[str, pa.Table], resources: Resources) -> Iterator[_View]:
    numbers = {name: number for number, name in enumerate(relations)}

    def count_all_rows(pw: Any, table: Any) -> Any:
        return pw.reducers.count()

    def count(pw: Any, table: Any) -> Any:
        return _sum(pw, table, numbers, JOINS[query])

    with _running(("relation", "a", "b"), count, count_all_rows, resources) as session:
        loaded = _View(session, numbers)
        loaded.change(relations, 1)
        yield loaded


@contextmanager
def _running(
    names: tuple[str, ...],
    count: Callable[[Any, Any], Any],
    checksum: Callable[[Any, Any], Any],
    resources: Resources,
) -> Iterator[_Maintainer]:
    """Run the engine over one table with these columns.

    ``count`` returns a table with the column ``value``, ``checksum`` an expression that aggregates
    the rows.
    """
    os.environ["PATHWAY_THREADS"] = str(resources.threads)
    import pathway as pw

    key = {name: pw.column_definition(primary_key=True, dtype=int) for name in names}
    steps: queue.Queue[_Step | None] = queue.Queue()

    class Subject(pw.io.python.ConnectorSubject):  # type: ignore[misc]
        def run(self) -> None:
            while (step := steps.get()) is not None:
                for *values, weight in zip(*step[0].tolist(), step[1].tolist(), strict=True):
                    row = dict(zip(names, values, strict=True))
                    if weight > 0:
                        self.next(**row)
                    else:
                        self.delete(**row)
                self.commit()

    schema = pw.schema_builder(key, name="Rows")
    table = pw.io.python.read(Subject(), schema=schema, autocommit_duration_ms=None)
    session = _Maintainer(steps)
    sums = table.reduce(value=checksum(pw, table))
    counts = count(pw, table)
    output = pw.Table.concat_reindex(
        counts.select(kind="count", value=counts.value),
        sums.select(kind="checksum", value=sums.value),
    )
    pw.io.subscribe(output, session.on_change, on_time_end=session.on_time_end)

    def engine() -> None:
        try:
            pw.run(monitoring_level=pw.MonitoringLevel.NONE)
        except BaseException as failure:
            session.on_failure(failure)

    thread = threading.Thread(target=engine, daemon=True)
    thread.start()
    yield session
    steps.put(None)
    thread.join(timeout=10)


def _count(pw: Any, table: Any, pattern: Pattern) -> Any:
    """Join the atoms in their order, and count the rows."""
    x, y = pattern.atoms[0]
    joined = table.select(**{x: table.src, y: table.dst})
    bound = [x, y]

    def compare(rows: Any, bound_before: list[str]) -> Any:
        """Apply the comparisons whose last variable was bound after ``bound_before``."""
        for x, sign, y in pattern.comparisons:
            if {x, y} <= set(bound) and not {x, y} <= set(bound_before):
                is_less = rows[x] < rows[y]
                rows = rows.filter(is_less if sign == "<" else rows[x] != rows[y])
        return rows

    joined = compare(joined, [])
    for atom in pattern.atoms[1:]:
        right = table.copy()
        columns = dict(zip(atom, (right.src, right.dst), strict=True))
        shared = [joined[name] == column for name, column in columns.items() if name in bound]
        new_columns = {name: column for name, column in columns.items() if name not in bound}
        bound_columns = {name: joined[name] for name in bound}
        bound_before, bound = bound, [*bound, *new_columns]
        joined = joined.join(right, *shared).select(**bound_columns, **new_columns)
        joined = compare(joined, bound_before)
    return joined.reduce(value=pw.reducers.count())


def _sum(pw: Any, table: Any, numbers: Mapping[str, int], joins: tuple[Conjunction, ...]) -> Any:
    """Return the sum of the counts of the joins, with their signs."""
    names = {relation for join in joins for relation, _ in join.atoms}
    relations = {}
    for relation in names:
        part_tables = []
        for part, swapped in union_parts(relation):
            rows = table.filter(table.relation == numbers[part])
            first, second = (rows.b, rows.a) if swapped else (rows.a, rows.b)
            part_tables.append(rows.select(a=first, b=second))
        relations[relation] = (
            part_tables[0] if len(part_tables) == 1 else pw.Table.concat_reindex(*part_tables)
        )
    counts = []
    for join in joins:
        count = _join(relations, join).reduce(value=pw.reducers.count())
        counts.append(count.select(value=join.sign * count.value))
    if len(counts) == 1:
        return counts[0]
    all_counts = pw.Table.concat_reindex(*counts)
    return all_counts.reduce(value=pw.reducers.sum(all_counts.value))


def _join(relations: Mapping[str, Any], join: Conjunction) -> Any:
    """Join the relations in the order of the atoms."""
    joined: Any = None
    bound: list[str] = []
    for relation, variables in join.atoms:
        right = relations[relation].copy()
        columns = dict(zip(variables, (right.a, right.b), strict=False))
        new_columns = {name: column for name, column in columns.items() if name not in bound}
        if joined is None:
            joined = right.select(**new_columns)
        else:
            shared = [joined[name] == column for name, column in columns.items() if name in bound]
            bound_columns = {name: joined[name] for name in bound}
            joined = joined.join(right, *shared).select(**bound_columns, **new_columns)
        bound_before, bound = bound, [*bound, *new_columns]
        for x, y in join.unequal:
            if {x, y} <= set(bound) and not {x, y} <= set(bound_before):
                joined = joined.filter(joined[x] != joined[y])
    return joined
