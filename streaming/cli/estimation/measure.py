"""Measure: load a sample into views, run a few steps, and count their state and work."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from statistics import median
from time import perf_counter
from typing import Any, Final

import pyarrow as pa

from circuits import Circuit
from circuits.plan.nodes import Filter
from circuits.runtime.state_names import StateNames, arrangement_sizes, node_label
from streaming.cli.estimation.distinct_values import (
    DistinctValues,
    Int64Array,
    estimate_distinct_values,
    find_occurrences,
)
from streaming.cli.estimation.growth import exact_slope_of, extrapolate, slope_of

__all__ = ["Estimate", "Measurement", "PartEstimate", "estimate_parts", "measure"]

#: If rows of a part repeat, it grows ever more slowly: its slope is between these limits.
REPEATING_SLOPES: Final = (0.01, 0.995)
#: A power law is not exact in a sample of a smaller fraction.
SMALL_FRACTION: Final = 0.1
#: The growth of a part with fewer rows in the largest sample is uncertain.
MIN_CERTAIN_ROWS: Final = 100


@dataclass(frozen=True)
class Part:
    """The size of an arrangement or a dictionary.

    Attributes:
        rows: The number of its rows or values.
        bytes: Its bytes in memory.
        views: The views that need an arrangement.
    """

    rows: int
    bytes: int
    views: tuple[str, ...] = ()


@dataclass(frozen=True)
class Measurement:
    """The state and the work of views over a sample.

    Attributes:
        fraction: The fraction of the planned rows in the sample.
        arrangements: The arrangements by name.
        dictionaries: The dictionaries by name.
        work: The counted work of a step: proposals and intersections of joins, and emitted rows.
        seconds: The median seconds of a step.
        filters: The share of rows that pass each filter, by its label.
        sampled: The rows of the inputs of which a file has a sample.
    """

    fraction: float
    arrangements: Mapping[str, Part]
    dictionaries: Mapping[str, Part]
    work: float
    seconds: float
    filters: Mapping[str, float]
    sampled: Mapping[str, pa.Table] = field(default_factory=dict)


def measure(
    circuit: Circuit,
    fraction: float,
    tables: Mapping[str, pa.Table],
    steps: Sequence[Mapping[str, pa.Table]],
    sampled: Collection[str] = (),
) -> Measurement:
    """Load a sample in one step, and run a few steps.

    Args:
        circuit: The views, without state.
        fraction: The fraction of the planned rows in the sample.
        tables: The sample.
        steps: The rows of the further steps.
        sampled: The inputs of which a file has a sample.
    """
    now = datetime.now(UTC)
    circuit.step(tables, now=now)
    state = circuit.committed
    names = StateNames(state.graph)
    arrangements = {
        size.name: Part(sum(size.runs), size.bytes, size.views) for size in arrangement_sizes(state)
    }
    registry = state.graph.registry
    dictionaries = {
        names.name(name): Part(dictionary.string_count, dictionary.nbytes)
        for name, dictionary in registry.dictionaries.items()
        if len(dictionary)
    }
    filters = _filter_shares(circuit)
    work_before = _work(circuit)
    seconds = []
    for step in steps:
        start = perf_counter()
        circuit.step(step, now=now)
        seconds.append(perf_counter() - start)
    work = (_work(circuit) - work_before) / max(1, len(steps))
    return Measurement(
        fraction,
        arrangements,
        dictionaries,
        work,
        median(seconds) if seconds else 0.0,
        filters,
        {name: tables[name] for name in sampled},
    )


@dataclass(frozen=True)
class PartEstimate:
    """The estimated size of an arrangement or a dictionary.

    Attributes:
        name: Its name.
        kind: "arrangement" or "dictionary".
        views: The views that need an arrangement.
        rows: Its rows or values.
        bytes: Its bytes in memory.
        slope: The power of the number of rows that it grows with.
        sample_rows: Its rows or values in the largest sample.
        low: The number of rows is hardly smaller; equal to ``rows`` if no limits are estimated.
        high: The number of rows is hardly larger; likewise.
    """

    name: str
    kind: str
    views: tuple[str, ...]
    rows: float
    bytes: float
    slope: float
    sample_rows: int
    low: float
    high: float

    @property
    def is_uncertain(self) -> bool:
        """True if few rows of the samples have shown that it grows faster than its input."""
        return self.slope > 1 and self.sample_rows < MIN_CERTAIN_ROWS


@dataclass(frozen=True)
class Estimate:
    """The estimated state and step of views.

    Attributes:
        parts: The parts of the state, the largest first.
        work: The counted work of a step.
        seconds: The seconds of a step.
        filters: The share of rows that pass each filter in the largest sample.
    """

    parts: tuple[PartEstimate, ...]
    work: float
    seconds: float
    filters: Mapping[str, float]

    @property
    def bytes(self) -> float:
        """The bytes of the whole state."""
        return sum(part.bytes for part in self.parts)

    @property
    def low_bytes(self) -> float:
        """The whole state hardly has fewer bytes."""
        return sum(part.bytes * part.low / part.rows for part in self.parts)

    @property
    def high_bytes(self) -> float:
        """The whole state hardly has more bytes."""
        return sum(part.bytes * part.high / part.rows for part in self.parts)

    def to_json(self) -> dict[str, Any]:
        """Return the estimate as JSON values."""
        return {
            "bytes": round(self.bytes),
            "low_bytes": round(self.low_bytes),
            "high_bytes": round(self.high_bytes),
            "parts": [
                {
                    "name": part.name,
                    "kind": part.kind,
                    "views": list(part.views),
                    "rows": round(part.rows),
                    "bytes": round(part.bytes),
                    "power": round(part.slope, 3),
                    "sample_rows": part.sample_rows,
                    "low_rows": round(part.low),
                    "high_rows": round(part.high),
                }
                for part in self.parts
            ],
            "step": {"work": round(self.work), "ms": round(1000 * self.seconds, 3)},
            "filters": {name: round(share, 4) for name, share in self.filters.items()},
        }


def estimate_parts(measurements: Sequence[Measurement]) -> Estimate:
    """Extrapolate measurements of ascending fractions to the planned rows.

    A part whose rows repeat has a row for each distinct value of some columns. If these columns are
    found in a sample from a file, the number of values is estimated; otherwise the part follows a
    power law, which may be far too large.
    """
    fractions = [measurement.fraction for measurement in measurements]
    last = measurements[-1]
    growth = {
        (kind, name): (part, [sizes[name] if name in sizes else Part(0, 0) for sizes in by_size])
        for kind, by_size in (
            ("arrangement", [measurement.arrangements for measurement in measurements]),
            ("dictionary", [measurement.dictionaries for measurement in measurements]),
        )
        for name, part in by_size[-1].items()
        if part.rows
    }
    rows_of = {key: tuple(size.rows for size in sizes) for key, (_, sizes) in growth.items()}
    low, high = REPEATING_SLOPES
    repeating = {
        rows
        for rows in rows_of.values()
        if last.fraction < 1 and low < exact_slope_of(fractions, rows) < high
    }
    occurrences = _occurrences(measurements, repeating)
    parts = []
    for (kind, name), (part, sizes) in growth.items():
        rows = rows_of[kind, name]
        slope = slope_of(fractions, rows)
        power_law = extrapolate(fractions, rows, 1.0)
        if rows in occurrences:
            values = estimate_distinct_values(occurrences[rows], last.fraction)
        elif rows in repeating and last.fraction < SMALL_FRACTION:
            values = DistinctValues(power_law, part.rows, power_law)
        else:
            values = DistinctValues(power_law, power_law, power_law)
        parts.append(
            PartEstimate(
                name,
                kind,
                part.views,
                values.estimate,
                values.estimate * _bytes_per_row(kind, [size for size in sizes if size.rows]),
                slope,
                part.rows,
                values.low,
                values.high,
            )
        )
    work = [measurement.work for measurement in measurements]
    planned_work = extrapolate(fractions, work, 1.0)
    work_growth = planned_work / last.work if last.work else 1.0
    return Estimate(
        tuple(sorted(parts, key=lambda part: -part.bytes)),
        planned_work,
        last.seconds * max(1.0, work_growth),
        last.filters,
    )


def _occurrences(
    measurements: Sequence[Measurement], parts: Collection[tuple[int, ...]]
) -> dict[tuple[int, ...], Int64Array]:
    """Return how often each value occurs in the largest sample, for parts with a row per value.

    The keys are the numbers of rows of a part in all samples.
    """
    found: dict[tuple[int, ...], Int64Array] = {}
    for name in measurements[-1].sampled:
        samples = [measurement.sampled[name] for measurement in measurements]
        found |= find_occurrences(samples, [rows for rows in parts if rows not in found])
    return found


def _bytes_per_row(kind: str, sizes: Sequence[Part]) -> float:
    """Return the bytes per row at the planned size.

    Those of an arrangement hardly change with its size. A dictionary doubles its arrays when they
    are full, so its bytes per value are averaged over several sizes.
    """
    if kind == "arrangement":
        return sizes[-1].bytes / sizes[-1].rows
    rows = sum(size.rows for size in sizes)
    return sum(size.bytes for size in sizes) / rows if rows else 0.0


def _work(circuit: Circuit) -> int:
    """Return the counted work of all steps so far."""
    graph = circuit.graph
    joins = sum(query.stats.proposals + query.stats.intersections for query in graph.joins.values())
    return joins + sum(graph.rows)


def _filter_shares(circuit: Circuit) -> dict[str, float]:
    """Return the share of rows that pass each filter."""
    graph = circuit.graph
    shares = {}
    for position, node in enumerate(graph.nodes):
        if isinstance(node.plan, Filter):
            rows = graph.rows[node.inputs[0]]
            if rows:
                shares[f"{node.name} {node_label(graph, node)}"] = graph.rows[position] / rows
    return shares
