"""Measures the rows that windows, interval joins and sessions keep over a long stream.

Claim: with lateness, the state of each query keeps a constant number of rows, however long the
stream is.

Inputs: clicks and buys, alternating, 1,000 events per second of event time. An event comes up to 4
seconds late; the lateness is 5 seconds. In each minute 100 of 2,000 keys occur, so a session of a
key lasts about a minute. Events follow from their number by a hash, so none is stored.

All views emit each row once, when it is final. At the end a watermark closes everything, and the
totals of the outputs are compared with those that numpy counts block by block.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import typer

from benchmarks.cost import Clock
from benchmarks.result import Result, Row
from benchmarks.verdict import Verdict
from circuits import compile_sql

CLAIM: Final = "The state of windows, interval joins and sessions does not grow with the stream"
ROWS: Final = "Rows held"
OPERATORS: Final = "Operators"
TARGET_GROWTH: Final = 1.25
SAMPLES: Final = 20  # measurements of the kept rows over a stream
BLOCK: Final = 1_000_000  # events that numpy counts at a time

SECOND: Final = 10**6  # microseconds, as are the other times
EVENT_INTERVAL: Final = SECOND // 1000  # between two events
MAX_DELAY_EVENTS: Final = 4000  # an event arrives after up to so many later ones
WINDOW, SLIDE, DISTANCE, GAP = 10 * SECOND, 5 * SECOND, 2 * SECOND, 10 * SECOND
TABLES: Final = "".join(
    f"CREATE TABLE {name} (k BIGINT NOT NULL, ts TIMESTAMP NOT NULL, "
    "WATERMARK FOR ts AS ts - INTERVAL '5' SECOND);\n"
    for name in ("clicks", "buys")
)
QUERIES: Final = {
    "tumbling windows": """
        SELECT k, window_start, count(*) AS n
        FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '10' SECOND))
        GROUP BY k, window_start""",
    "hopping windows": """
        SELECT k, window_start, count(*) AS n
        FROM TABLE(HOP(TABLE clicks, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND))
        GROUP BY k, window_start""",
    "interval join": """
        SELECT time_bucket(INTERVAL '10' SECOND, clicks.ts) AS s, count(*) AS n
        FROM clicks JOIN buys ON clicks.k = buys.k
        AND buys.ts BETWEEN clicks.ts AND clicks.ts + INTERVAL '2' SECOND GROUP BY s""",
    "sessions": """
        SELECT k, window_start, count(*) AS n FROM TABLE(
        SESSION(TABLE clicks PARTITION BY k, DESCRIPTOR(ts), INTERVAL '10' SECOND))
        GROUP BY k, window_start""",
}

Int64s = npt.NDArray[np.int64]


def _mix(numbers: Int64s, seed: int) -> Int64s:
    """Return a hash of each number, from 0 to 2**24 - 1."""
    mixed = (numbers.astype(np.uint64) + np.uint64(seed + 1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    return (mixed >> np.uint64(40)).astype(np.int64)


def keys_of(events: Int64s) -> Int64s:
    """Return the keys of events, by their numbers."""
    minute = events * EVENT_INTERVAL // (60 * SECOND)
    return (minute * 100 + _mix(events, 0) % 100) % 2000


def arrivals(start: int, stop: int, seed: int, event_count: int) -> Int64s:
    """Return the numbers of the events that arrive from start to stop, in this order.

    An event arrives up to 4 seconds late, so the last ones arrive after ``event_count``.
    """
    events = np.arange(max(start - MAX_DELAY_EVENTS, 0), min(stop, event_count))
    arrival = events + _mix(events, seed) % MAX_DELAY_EVENTS
    chosen = np.flatnonzero((arrival >= start) & (arrival < stop))
    return events[chosen[np.argsort(arrival[chosen], kind="stable")]]


def tables_of(events: Int64s) -> dict[str, pa.Table]:
    """Return events as rows: even numbers are clicks, odd ones are buys."""
    tables = {}
    for remainder, name in enumerate(("clicks", "buys")):
        numbers = events[events % 2 == remainder]
        times = pa.array(numbers * EVENT_INTERVAL).cast(pa.timestamp("us"))
        tables[name] = pa.table({"k": keys_of(numbers), "ts": times})
    return tables


def count_pairs(start: int, stop: int, event_count: int) -> int:
    """Count the pairs of the interval join whose clicks are from start to stop."""
    max_distance = DISTANCE // EVENT_INTERVAL
    events = np.arange(start, min(stop + max_distance + 1, event_count))
    buys = events[events % 2 == 1]
    clicks = events[(events % 2 == 0) & (events < stop)]
    key_step = 2**44  # more than any event number, so codes are ordered by key, then by event
    buy_codes = np.sort(keys_of(buys) * key_step + buys)
    click_codes = keys_of(clicks) * key_step + clicks
    ends = np.searchsorted(buy_codes, click_codes + max_distance, side="right")
    return int((ends - np.searchsorted(buy_codes, click_codes)).sum())


def count_sessions(start: int, stop: int, event_count: int) -> int:
    """Count the sessions that begin from start to stop."""
    max_distance = GAP // EVENT_INTERVAL
    events = np.arange(max(start - max_distance, 0), stop)
    clicks = events[events % 2 == 0]
    order = np.lexsort((clicks, keys_of(clicks)))
    keys, clicks = keys_of(clicks)[order], clicks[order]
    begins = np.ones(len(clicks), np.bool_)
    begins[1:] = (keys[1:] != keys[:-1]) | (np.diff(clicks) > max_distance)
    return int((begins & (clicks >= start)).sum())


@dataclass
class Measurement:
    """One query over the stream.

    Attributes:
        rows: A row of the result per sample.
        operators: A row of the result per operator.
        total: The sum of ``n`` over all emitted rows.
        emitted: The number of emitted rows.
        lowest_weight: The least weight of an emitted row.
    """

    rows: list[Row]
    operators: list[Row]
    total: int = 0
    emitted: int = 0
    lowest_weight: int = 1

    def add(self, output: pa.Table) -> None:
        """Add the output of a step."""
        if output.num_rows:
            self.total += pc.sum(pc.multiply(output["n"], output["weight"])).as_py()
            self.emitted += output.num_rows
            self.lowest_weight = min(self.lowest_weight, pc.min(output["weight"]).as_py())


def measure(name: str, events: int, batch: int, seed: int) -> Measurement:
    """Run one query over all events; record the most rows that it keeps between two samples."""
    circuit = compile_sql(
        f"{TABLES} CREATE VIEW view AS {QUERIES[name]} EMIT ON WINDOW CLOSE;", threads=1
    )
    measurement, seconds = Measurement([], []), 0.0
    most_rows: dict[str, int] = {}
    most_rows_in_all = 0
    steps = -(-events // batch)
    sampled = {steps * sample // SAMPLES for sample in range(1, SAMPLES + 1)}
    for step in range(steps):
        stop = min((step + 1) * batch, events)
        rows = tables_of(arrivals(step * batch, stop, seed, events))
        clock = Clock()
        output = circuit.step(rows)["view"]
        if step:  # the first step compiles kernels
            seconds += clock.read().cpu
        measurement.add(output)
        sizes = circuit.state_sizes()
        for size in sizes:
            most_rows[size.operator] = max(most_rows.get(size.operator, 0), size.rows)
        most_rows_in_all = max(most_rows_in_all, sum(size.rows for size in sizes))
        if step + 1 in sampled:
            row: Row = {"query": name, "events": stop, "rows held": most_rows_in_all}
            measurement.rows.append(row)
            most_rows_in_all = 0
    for size in circuit.state_sizes():
        measurement.operators.append(
            {
                "query": name,
                "operator": f"{size.operator} {size.kind}",
                "bound": size.bound,
                "most rows": most_rows[size.operator],
                "query's events/CPU s": round((events - batch) / max(seconds, 1e-9)),
            }
        )
    end = pa.scalar(events * EVENT_INTERVAL * 2 + 10**12, pa.timestamp("us"))
    last_rows = tables_of(arrivals(events, events + MAX_DELAY_EVENTS, seed, events))
    measurement.add(circuit.step(last_rows, {"clicks": end, "buys": end})["view"])
    return measurement


def growth_of(rows: list[Row]) -> float:
    """Return the most rows in the second half of a stream, divided by the most in the first."""
    counts = [int(str(row["rows held"])) for row in rows]
    half = len(counts) // 2
    return max(counts[half:]) / max(max(counts[:half]), 1)


def check(verdict: Verdict, name: str, events: int, measurement: Measurement) -> None:
    """Compare the totals of a query with those that numpy counts."""
    clicks = (events + 1) // 2
    totals: dict[str, Callable[[], int]] = {
        "tumbling windows": lambda: clicks,
        "hopping windows": lambda: clicks * WINDOW // SLIDE,
        "interval join": lambda: _over_blocks(count_pairs, events),
        "sessions": lambda: clicks,
    }
    verdict.set_truth(f"total of {name}", totals[name]())
    verdict.compare("sum of all emitted rows", f"total of {name}", measurement.total)
    verdict.set_truth("weight of each emitted row", 1)
    verdict.compare(name, "weight of each emitted row", measurement.lowest_weight)
    if name == "sessions":
        verdict.set_truth("number of sessions", _over_blocks(count_sessions, events))
        verdict.compare("emitted sessions", "number of sessions", measurement.emitted)


def _over_blocks(count: Callable[[int, int, int], int], events: int) -> int:
    starts = range(0, events, BLOCK)
    return sum(count(start, min(start + BLOCK, events), events) for start in starts)


def main(
    events: Annotated[int, typer.Option(help="The events of each query.")] = 2_000_000,
    batch: Annotated[int, typer.Option(help="The events of a step.")] = 10_000,
    seed: Annotated[
        int, typer.Option(help="The seed of the order in which events arrive, from 1.")
    ] = 1,
    json: Annotated[Path | None, typer.Option(help="Where to write the result.")] = None,
) -> None:
    """Measure all queries; exit status 1 if an answer is wrong."""
    verdict = Verdict()
    result = Result("bounded_state", CLAIM, {OPERATORS: [], ROWS: []})
    for name in QUERIES:
        measurement = measure(name, events, batch, seed)
        check(verdict, name, events, measurement)
        growth = growth_of(measurement.rows)
        for row in measurement.operators:
            row |= {"growth": growth, "target": TARGET_GROWTH, "met": growth <= TARGET_GROWTH}
        result.tables[OPERATORS] += measurement.operators
        result.tables[ROWS] += measurement.rows
    verdict.close(result, json)


if __name__ == "__main__":
    typer.run(main)
