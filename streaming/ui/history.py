"""History: the bounded memory of a live page about a running sink.

The sink calls ``take`` after each micro-batch, in its own thread, so ``take`` must be cheap. It
reads the first few rows of each delta, adds up weights, and keeps no table. Data that it must ask
the circuit for (rows and bytes of arrangements, rows and time of operators) is sampled, so rarely
that sampling takes less than ``MAX_SAMPLING_SHARE`` of the time. Everything else, JSON above all,
is computed by the readers.

The history keeps the last ``MAX_RECENT_BATCHES`` micro-batches in full, and at most
``MAX_COURSE_POINTS`` points of the whole run. When there are more, every second point is dropped,
so memory is bounded and a run of a week still shows its beginning.
"""

from __future__ import annotations

import ast
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final

import pyarrow as pa

from circuits import Circuit
from streaming.sink.metrics import BatchMetrics
from streaming.sink.observer import Published, SinkObserver
from streaming.ui.drawing import Drawing
from streaming.ui.matches import Matches
from streaming.ui.pattern import pattern_of
from streaming.ui.row_texts import Int64Array, Row, columns_of, rows_of, weights_of
from streaming.ui.state_summary import arrangements_of, arrangements_on_disk
from streaming.ui.view_counts import ViewCounts

__all__ = [
    "MAX_COURSE_POINTS",
    "MAX_RECENT_BATCHES",
    "MAX_ROWS",
    "History",
    "output_mode_of",
    "upsert_keys_of",
]

MAX_RECENT_BATCHES: Final = 120
MAX_COURSE_POINTS: Final = 512
MAX_ROWS: Final = 20
MAX_SAMPLING_SHARE: Final = 0.01
MAX_TABLE_ROWS: Final = 1000  # rows of a table that is kept as it is
FORM: Final = b"dbsp_wcoj.output"


@dataclass(frozen=True)
class Newest:
    """The last change of a view. A small table is kept, and becomes texts when it is asked for."""

    batch: int
    mode: str
    comes: int
    goes: int
    count: int
    rows: pa.Table | list[tuple[int, Row]]

    @classmethod
    def of(cls, table: pa.Table, weights: Int64Array, batch_id: int, mode: str) -> Newest:
        """What is kept of a table."""
        comes = int(weights[weights > 0].sum())
        rows = table if table.num_rows <= MAX_TABLE_ROWS else rows_of(table, MAX_ROWS)
        return cls(batch_id, mode, comes, comes - int(weights.sum()), table.num_rows, rows)

    def shown(self) -> dict[str, Any]:
        """For JSON."""
        is_table = isinstance(self.rows, pa.Table)
        rows = rows_of(self.rows, MAX_ROWS) if is_table else self.rows
        return {
            "batch": self.batch,
            "mode": self.mode,
            "comes": self.comes,
            "goes": self.goes,
            "count": self.count,
            "rows": rows,
        }


class History(SinkObserver):
    """What happened, for who asks.

    Args:
        circuit: The views, before the first micro-batch that is taken.
        name: What the page is called.
        clock: Seconds since 1970.
        timer: Seconds, for what taking costs.
    """

    def __init__(
        self,
        circuit: Circuit,
        *,
        name: str,
        clock: Callable[[], float] = time.time,
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.name = name
        self._circuit = circuit
        self._clock, self._timer = clock, timer
        self._lock = Lock()
        self._drawing = Drawing.of(circuit)
        self._tallies = {view: ViewCounts(circuit, view) for view in circuit.outputs}
        self._matches = {}
        for view in circuit.outputs:
            pattern = pattern_of(circuit.graph, view)
            if pattern is not None:
                names = [field.name for field in circuit.schema(view).fields]
                self._matches[view] = Matches(pattern, names)
        self._recent: deque[dict[str, Any]] = deque(maxlen=MAX_RECENT_BATCHES)
        self._course: list[dict[str, Any]] = []
        self._stride, self._taken = 1, 0
        self._newest: dict[str, Newest] = {}
        self._state: list[dict[str, Any]] = []
        self._operators: list[tuple[int, float]] = []
        self._sampled, self._cost = float("-inf"), 0.0
        self._status: dict[str, Any] = {"state": "waiting", "said": ""}
        #: Grows with everything that changes.
        self.version = 0
        #: Seconds that ``take`` has taken, in all.
        self.spent = 0.0

    def batch_completed(self, published: Published, metrics: BatchMetrics) -> None:
        """Take in a micro-batch; its step is committed.

        Complexity:
            O(rows given out) for their weights, in numpy; O(views · ROWS) for what is shown.
        """
        with self._timed():
            begin, batch_id = self._timer(), published.batch_id
            values, newest = {}, {}
            for view, table in published.outputs.items():
                mode = output_mode_of(table)
                weights = weights_of(table)
                tally = self._tallies[view].take(
                    table, weights, mode, batch_id=batch_id, replayed=metrics.replayed
                )
                values[view] = list(tally)
                if table.num_rows:
                    newest[view] = Newest.of(table, weights, batch_id, mode)
                    if view in self._matches:
                        with self._lock:  # readers are shown all of a change or nothing of it
                            self._matches[view].take(
                                table, weights, batch_id, mode=mode, keys=upsert_keys_of(table)
                            )
            sample = begin - self._sampled > self._cost / MAX_SAMPLING_SHARE
            if sample:
                state = arrangements_of(self._circuit) or arrangements_on_disk(metrics)
                operators = self._drawing.done(self._circuit)
                self._sampled, self._cost = begin, self._timer() - begin
            entry = {
                "n": self._taken + 1,
                "id": batch_id,
                "at": round(self._clock(), 3),
                "replayed": metrics.replayed,
                "in": dict(metrics.rows_in),
                "out": dict(metrics.rows_out),
                "seconds": dict(metrics.seconds),
                "letters": metrics.dead_letters,
                "letters_total": metrics.dead_letters_total,
                "written": metrics.bytes_written,
                "values": values,
            }
            with self._lock:
                self._newest |= newest
                if sample:
                    self._state, self._operators = state, operators
                self._recent.append(entry)
                self._note(
                    {"n": entry["n"], "id": entry["id"], "at": entry["at"], "values": values}
                )
                self._status = {"state": "running", "said": ""}
                self.version += 1

    def end(self, said: str = "", *, failed: bool = False) -> None:
        """Tell that no more micro-batches will come, and why; not while one is under way."""
        with self._lock:
            if self._taken and self._circuit.graph.steps:  # what was seen last was a sample
                self._state = arrangements_of(self._circuit)
                self._operators = self._drawing.done(self._circuit)
            self._status = {"state": "failed" if failed else "ended", "said": said}
            self.version += 1

    def whole(self) -> dict[str, Any]:
        """All that is known, for JSON; the first that a page gets."""
        schemas = {view: self._circuit.schema(view).arrow for view in self._circuit.outputs}
        views = [
            {
                "name": view,
                "columns": columns_of(schemas[view]),
                "numbers": tally.names,
                "single": tally.is_single,
                "pattern": self._pattern(view),
            }
            for view, tally in self._tallies.items()
        ]
        with self._lock:
            return {
                "name": self.name,
                "inputs": list(self._circuit.inputs),
                "views": views,
                "circuit": self._drawing.picture,
                "course": list(self._course),
                "recent": list(self._recent),
                **self._now(),
            }

    def since(self, taken: int) -> dict[str, Any]:
        """What is new after so many micro-batches, as far as it is still there; for JSON."""
        with self._lock:
            return {"recent": [one for one in self._recent if one["n"] > taken], **self._now()}

    def _now(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "taken": self._taken,
            "partial": [view for view, tally in self._tallies.items() if tally.is_partial],
            "status": self._status,
            "newest": {view: newest.shown() for view, newest in self._newest.items()},
            "matches": {view: matches.shown() for view, matches in self._matches.items()},
            "state": self._state,
            "operators": self._operators,
            "elsewhere": bool(self._taken) and not self._circuit.graph.steps,
        }

    def _pattern(self, view: str) -> dict[str, Any] | None:
        matches = self._matches.get(view)
        if matches is None:
            return None
        return {"nodes": matches.names, "edges": matches.pattern.edges}

    def _note(self, moment: dict[str, Any]) -> None:
        """Add to the course; the last moment is always the newest."""
        if self._course and (self._taken - 1) % self._stride:
            self._course[-1] = moment
        else:
            self._course.append(moment)
        self._taken += 1
        if len(self._course) > MAX_COURSE_POINTS:
            self._course = self._course[::2]
            self._stride *= 2

    @contextmanager
    def _timed(self) -> Iterator[None]:
        begin = self._timer()
        try:
            yield
        finally:
            self.spent += self._timer() - begin


def output_mode_of(table: pa.Table) -> str:
    """The form in which a view's changes are given out, as the sink noted it."""
    form: str = (table.schema.metadata or {}).get(FORM, b"delta").decode()
    return form.partition("(")[0]


def upsert_keys_of(table: pa.Table) -> tuple[str, ...]:
    """The key columns of a view that is published as upserts; else none.

    >>> upsert_keys_of(pa.table({"a": [1]}).replace_schema_metadata({FORM: "upsert('a', 'b')"}))
    ('a', 'b')
    """
    form: str = (table.schema.metadata or {}).get(FORM, b"delta").decode()
    given = form.partition("(")[2].removesuffix(")")
    keys: tuple[str, ...] = ast.literal_eval(f"({given},)") if given else ()
    return keys
