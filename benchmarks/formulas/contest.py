"""Runs the same steps in a view of each formula, in turns, and compares their times.

Every formula has a view with its own relations, loaded with the same rows. Loading does not
evaluate the views: a recursive formula would join whole relations, which takes very long. Then for
each batch size all views insert the rows and delete them again, many times, in turns and in random
order. So other work on the machine affects all views alike, and no view always runs after the same
other one. Times are CPU times of the thread, for the same reason. The deltas of all views must be
equal, and the number of their joins must be that of `dbsp_wcoj.formulas.count_joins`.

Batch sizes ascend. A view is stopped if its step would exceed the limit, assuming that its time
grows in proportion to the batch; it gets no figures for that batch size and all larger ones.
``auto`` is stopped with the last formula. If ``auto`` seems slower than the fastest formula, it is
measured again with the two fastest, on several new loads, and the median of the ratios counts.
There are two reasons: the smallest of six measurements is small by chance, and the position of rows
in memory changes the time of the same step by 10 % and more.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

import numpy as np

from benchmarks.formulas.shape import query_text
from benchmarks.result import Row
from benchmarks.rmat import SKEWED, UNIFORM, rmat
from benchmarks.verdict import Verdict
from dbsp_wcoj import DeltaQuery, Formula, Query, Relations, ZSet
from dbsp_wcoj.formulas import count_joins

__all__ = ["AUTO", "FORMULAS", "Case", "run_contest"]

AUTO = "auto"
FORMULAS = (*map(str, Formula), AUTO)

# CPU seconds that a step may take.
STEP_LIMIT_S = 0.25
# CPU seconds after which a case begins no other batch size.
CASE_LIMIT_S = 5.0
# CPU seconds of all views at one batch size, after which no other round begins.
ROUNDS_LIMIT_S = 0.1
# Rounds at one batch size; each is an insertion and a deletion in every view.
MAX_ROUNDS = 20
MIN_ROUNDS = 3
# If ``auto`` seems slower by this factor, it is measured again on this number of new loads.
REMEASURE_RATIO = 1.05
REMEASURE_LOADS = 5
# From this number of atoms on, the data is less skewed, because the atoms multiply the degrees of
# hubs.
MANY_ATOMS = 5
MILDLY_SKEWED = (0.45, 0.22, 0.22, 0.11)


@dataclass(frozen=True)
class Case:
    """A query over generated rows, and what changes.

    Attributes:
        shape: A name of `benchmarks.formulas.shape`.
        n: The number of atoms.
        changed: Which of the ``n`` relations change: "one" (the middle one) or "all"; or "self" if
            all atoms read the same relation.
        data: "uniform" or "skewed".
        scale: The values of a column are below ``2 ** scale``.
        rows: The approximate number of rows of each relation.
        batches: The numbers of rows that a step changes in each changed relation, ascending.
    """

    shape: str
    n: int
    changed: str
    data: str
    scale: int
    rows: int
    batches: tuple[int, ...]

    @property
    def query(self) -> Query:
        """The query."""
        return Query.parse(query_text(self.shape, self.n, selfjoin=self.changed == "self"))

    @property
    def name(self) -> str:
        """The case in words, for messages."""
        return f"{self.shape} of {self.n}, {self.changed} changed, {self.data}"

    @property
    def changing(self) -> list[str]:
        """The relations that change."""
        names = list(self.query.relations)
        return [names[len(names) // 2]] if self.changed == "one" else names

    @property
    def changed_atoms(self) -> list[int]:
        """The atoms that change."""
        return [
            position
            for position, atom in enumerate(self.query.body)
            if atom.relation in self.changing
        ]

    def generate_rows(self, seed: int) -> tuple[dict[str, ZSet], dict[str, list[ZSet]]]:
        """Return the loaded rows of each relation, and the rows that change at each batch size."""
        loaded_rows: dict[str, ZSet] = {}
        changes: dict[str, list[ZSet]] = {}
        multiplies_degrees = self.n >= MANY_ATOMS and self.shape != "clique"
        skewed = MILDLY_SKEWED if multiplies_degrees else SKEWED
        max_batch = self.batches[-1]
        for position, name in enumerate(self.query.relations):
            quadrants = UNIFORM if self.data == "uniform" else skewed
            columns = rmat(
                self.scale, self.rows + max_batch, seed=seed + position, quadrants=quadrants
            )
            order = np.random.default_rng(seed + position).permutation(len(columns[0]))
            source, target = (column[order] for column in columns)
            # Skewed samples repeat rows, so there may be fewer rows than requested.
            unloaded = min(max_batch, len(source) // 2)
            loaded_rows[name] = ZSet.from_columns([source[unloaded:], target[unloaded:]])
            if name in self.changing:
                changes[name] = [
                    ZSet.from_columns([source[:size], target[:size]])
                    for size in (min(batch, unloaded) for batch in self.batches)
                ]
        return loaded_rows, changes


@dataclass
class Contestant:
    """A view of one formula, and the times of its steps."""

    formula: str
    view: DeltaQuery
    relations: Relations
    seconds: list[float] = field(default_factory=list)
    # The batch size before this one, and the CPU seconds of its fastest step.
    previous_batch: tuple[int, float] = (0, 0.0)
    stopped: bool = False

    @classmethod
    def load(cls, query: Query, formula: str, loaded_rows: Mapping[str, ZSet]) -> Contestant:
        """Create a view over these rows, with plans that suit them."""
        relations = Relations()
        view = DeltaQuery(query, formula=formula, relations=relations)
        relations.stage(loaded_rows).commit()
        view.resume(None)
        return cls(formula, view, relations)

    def step(self, deltas: Mapping[str, ZSet]) -> ZSet:
        """Run a step of the view and record its time."""
        start = time.thread_time()
        step = self.relations.stage(deltas)
        delta = self.view.evaluate(step)
        step.commit()
        self.seconds.append(time.thread_time() - start)
        return delta

    def take_median_ms(self) -> float:
        """Return the mean of the median insertion and the median deletion, in milliseconds.

        The measurements are then cleared for the next batch size.
        """
        insertions, deletions = self.seconds[::2], self.seconds[1::2]
        median_ms = 1000 * (median(insertions) + median(deletions)) / 2
        self.previous_batch = (self.previous_batch[0], min(self.seconds))
        self.seconds.clear()
        return median_ms

    def would_take_too_long(self, batch: int) -> bool:
        """Return whether a step takes more than the limit if its time grows as the batch does."""
        rows, seconds = self.previous_batch
        return bool(rows) and seconds * batch / rows > STEP_LIMIT_S


def run_contest(
    case: Case, formulas: Sequence[str], verdict: Verdict, *, seed: int = 0
) -> Iterator[Row]:
    """Yield a row for each batch size and formula."""
    start = time.process_time()
    loaded_rows, changes = case.generate_rows(seed)
    contestants = [Contestant.load(case.query, formula, loaded_rows) for formula in formulas]
    for position, batch in enumerate(case.batches):
        insertions = {name: deltas[position] for name, deltas in changes.items()}
        is_late = time.process_time() - start > CASE_LIMIT_S
        fixed = [contestant for contestant in contestants if contestant.formula != AUTO]
        for contestant in fixed:
            contestant.stopped = (
                contestant.stopped or is_late or contestant.would_take_too_long(batch)
            )
        all_stopped = all(contestant.stopped for contestant in fixed)
        for contestant in contestants:
            if contestant.formula == AUTO and all_stopped:
                contestant.stopped = True
        yield from _run_batch_size(case, batch, contestants, loaded_rows, insertions, verdict)


def _run_batch_size(
    case: Case,
    batch: int,
    contestants: Sequence[Contestant],
    loaded_rows: Mapping[str, ZSet],
    insertions: Mapping[str, ZSet],
    verdict: Verdict,
) -> Iterator[Row]:
    """Yield the rows of one batch size."""
    deletions = {name: -delta for name, delta in insertions.items()}
    running = [contestant for contestant in contestants if not contestant.stopped]
    counts = _warm_up(case, batch, running, insertions, deletions, verdict)
    _run_rounds(running, insertions, deletions, batch)
    times = {contestant.formula: contestant.take_median_ms() for contestant in running}
    fixed_times = {name: ms for name, ms in times.items() if name != AUTO}
    # For each formula, the time of the fastest formula to which it is compared.
    fastest = dict.fromkeys(times, min(fixed_times.values(), default=0.0))
    if fixed_times and times.get(AUTO, 0.0) > REMEASURE_RATIO * min(fixed_times.values()):
        two_best = sorted(fixed_times, key=fixed_times.__getitem__)[:2]
        by_load = _remeasure(case, loaded_rows, (AUTO, *two_best), batch, insertions, deletions)
        times |= {name: median(load_ms) for name, load_ms in by_load.items()}
        fastest |= {name: min(times[formula] for formula in two_best) for name in by_load}
        # Other work on the machine affects all views of one load alike: compare them load by load.
        ratio_of_auto = max(
            median(auto / ms for auto, ms in zip(by_load[AUTO], by_load[name], strict=True))
            for name in two_best
        )
        fastest[AUTO] = times[AUTO] / ratio_of_auto  # so that the row below shows this ratio
    for contestant in contestants:
        joins, proposals, intersections = counts.get(contestant.formula, (None, None, None))
        step_ms = times.get(contestant.formula)
        yield {
            "shape": case.shape,
            "n": case.n,
            "changed": case.changed,
            "data": case.data,
            "rows": case.rows,
            "batch": batch,
            "formula": contestant.formula,
            "joins/step": joins,
            "proposals/step": proposals,
            "intersections/step": intersections,
            "ms/step p50": step_ms,
            "ratio to the fastest": (
                step_ms / fastest[contestant.formula] if step_ms and fixed_times else None
            ),
            "stopped": contestant.stopped,
        }


def _remeasure(
    case: Case,
    loaded_rows: Mapping[str, ZSet],
    formulas: Sequence[str],
    batch: int,
    insertions: Mapping[str, ZSet],
    deletions: Mapping[str, ZSet],
) -> dict[str, list[float]]:
    """Return the median milliseconds of each formula on each of several new loads."""
    times: dict[str, list[float]] = {name: [] for name in formulas}
    for load in range(REMEASURE_LOADS):
        running = [Contestant.load(case.query, name, loaded_rows) for name in formulas]
        for contestant in running:
            for delta in (insertions, deletions, insertions, deletions):
                contestant.step(delta)
            contestant.seconds.clear()
        _run_rounds(running, insertions, deletions, batch + 1 + load)
        for contestant in running:
            times[contestant.formula].append(contestant.take_median_ms())
    return times


def _warm_up(
    case: Case,
    batch: int,
    running: Sequence[Contestant],
    insertions: Mapping[str, ZSet],
    deletions: Mapping[str, ZSet],
    verdict: Verdict,
) -> dict[str, tuple[float, float, float]]:
    """Run one insertion and one deletion in each view, and compare their deltas.

    Returns:
        The joins, proposals and intersections of a step of each formula.
    """
    subject = f"{case.name}, {batch:,} rows"
    counts = {}
    expected: ZSet | None = None
    for contestant in running:
        formula = contestant.formula
        if formula == AUTO:
            # It measures its candidate formulas in the first steps.
            for delta in (insertions, deletions, insertions, deletions):
                contestant.step(delta)
        stats_before = contestant.view.stats
        inserted, deleted = contestant.step(insertions), contestant.step(deletions)
        stats_after = contestant.view.stats
        expected = inserted if expected is None else expected
        is_equal = inserted == expected and deleted == -inserted
        _check(verdict, f"{subject}: {formula}", is_equal)
        joins = stats_after.joins - stats_before.joins
        _check(
            verdict,
            f"{subject}: joins of {formula}",
            _has_expected_joins(case, batch, formula, joins),
        )
        contestant.previous_batch = (batch, 0.0)
        counts[formula] = (
            joins / 2,
            (stats_after.proposals - stats_before.proposals) / 2,
            (stats_after.intersections - stats_before.intersections) / 2,
        )
        contestant.seconds.clear()
    return counts


def _has_expected_joins(case: Case, batch: int, formula: str, joins: int) -> bool:
    """Return whether the joins of two steps are those of the formula.

    An empty partial delta is not joined, so a recursive formula may do fewer joins. On stars and
    paths with many changed rows no partial delta is empty.
    """
    if formula == AUTO:
        return True
    expected = 2 * count_joins(formula, case.n, changed=case.changed_atoms)
    is_recursive = Formula(formula).is_recursive
    if is_recursive and (batch < 100 or case.shape not in ("star", "path")):
        return joins <= expected
    return joins == expected


def _check(verdict: Verdict, subject: str, holds: bool) -> None:
    verdict.truths[subject] = 1
    verdict.compare(subject, subject, int(holds))


def _run_rounds(
    running: Sequence[Contestant],
    insertions: Mapping[str, ZSet],
    deletions: Mapping[str, ZSet],
    seed: int,
) -> None:
    """Run insertions and deletions in all views in turns, until the time is used up."""
    order = random.Random(seed)
    gc.collect()
    gc.disable()
    start = time.process_time()
    for rounds_run in range(MAX_ROUNDS if running else 0):
        if rounds_run >= MIN_ROUNDS and time.process_time() - start > ROUNDS_LIMIT_S:
            break
        for change in (insertions, deletions):
            for contestant in order.sample(list(running), len(running)):
                contestant.step(change)
    gc.enable()
