"""Gives the same steps to a view of each formula, in turns, and compares their times.

Every formula has a view with its own relations, loaded with the same rows. Loading does not
evaluate the views: a recursive formula would join whole relations, which takes very long. Then for
each batch size all views insert the rows and delete them again, many times, in turns and in random
order. So other work on the machine affects all views alike, and no view always runs after the same
other one. Times are CPU times of the thread, for the same reason. The deltas of all views must be
equal, and their joins as many as `dbsp_wcoj.formulas.count_joins` says.

Batch sizes ascend. A view is stopped if its step would exceed the limit, assuming that its time
grows in proportion to the batch; it gets no figures for that batch size and all larger ones.
``auto`` is stopped with the last formula. If ``auto`` seems slower than the fastest formula, it is
measured again with the two fastest, for longer and on several new loads, and the median of the
ratios counts. There are two reasons: the smallest of six measurements is small by luck, and the
position of rows in memory changes the time of the same step by a tenth and more.
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

# Seconds that a step may take, and CPU seconds after which a case begins no other batch size.
STEP_LIMIT = 0.25
CASE_LIMIT = 5.0
# Seconds for all views at one batch size, and rounds (an insertion and a deletion each).
SECONDS = 0.1
MAX_ROUNDS = 20
MIN_ROUNDS = 3
# ``auto`` is measured again on so many new loads, if it seems slower by this factor.
REMEASURE_RATIO = 1.05
REMEASURE_LOADS = 5
# With so many atoms, which multiply the degrees of hubs, the data is less skewed.
MANY_ATOMS = 5
MILDLY_SKEWED = (0.45, 0.22, 0.22, 0.11)


@dataclass(frozen=True)
class Case:
    """A query over generated rows, and what changes.

    Attributes:
        shape: Of `benchmarks.formulas.shape`.
        n: How many atoms.
        changed: "one" (that in the middle) or "all" of ``n`` relations, or "self": one relation in
            all atoms.
        data: "uniform" or "skewed".
        scale: The values of a column are below ``2 ** scale``.
        rows: Of each relation, about.
        batches: Rows that change in a step in each changed relation, ascending.
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
        """For people."""
        return f"{self.shape} of {self.n}, {self.changed} changed, {self.data}"

    @property
    def changing(self) -> list[str]:
        """The relations that change."""
        names = list(self.query.relations)
        return [names[len(names) // 2]] if self.changed == "one" else names

    @property
    def changed_atoms(self) -> list[int]:
        """The atoms that change."""
        return [i for i, a in enumerate(self.query.body) if a.relation in self.changing]

    def rows_of(self, seed: int) -> tuple[dict[str, ZSet], dict[str, list[ZSet]]]:
        """The rows that stay, and those that change at each batch size, by relation."""
        kept: dict[str, ZSet] = {}
        fresh: dict[str, list[ZSet]] = {}
        has_large_powers = self.n >= MANY_ATOMS and self.shape != "clique"
        skewed = MILDLY_SKEWED if has_large_powers else SKEWED
        most = self.batches[-1]
        for place, name in enumerate(self.query.relations):
            quadrants = UNIFORM if self.data == "uniform" else skewed
            columns = rmat(self.scale, self.rows + most, seed=seed + place, quadrants=quadrants)
            order = np.random.default_rng(seed + place).permutation(len(columns[0]))
            source, target = (column[order] for column in columns)
            # Skewed samples repeat, so there may be fewer rows than asked for.
            changing = min(most, len(source) // 2)
            kept[name] = ZSet.from_columns([source[changing:], target[changing:]])
            if name in self.changing:
                fresh[name] = [
                    ZSet.from_columns([source[: min(b, changing)], target[: min(b, changing)]])
                    for b in self.batches
                ]
        return kept, fresh


@dataclass
class Contestant:
    """A view of one formula, and the times of its steps."""

    formula: str
    view: DeltaQuery
    relations: Relations
    seconds: list[float] = field(default_factory=list)
    # Rows and the least seconds of a step at the batch size before.
    before: tuple[int, float] = (0, 0.0)
    stopped: bool = False

    @classmethod
    def loaded(cls, query: Query, formula: str, kept: Mapping[str, ZSet]) -> Contestant:
        """Create a view over these rows, with plans that suit them."""
        relations = Relations()
        view = DeltaQuery(query, formula=formula, relations=relations)
        relations.stage(kept).commit()
        view.resume(None)
        return cls(formula, view, relations)

    def step(self, deltas: Mapping[str, ZSet]) -> ZSet:
        """Run a step of the view and record its time."""
        begun = time.thread_time()
        step = self.relations.stage(deltas)
        delta = self.view.evaluate(step)
        step.commit()
        self.seconds.append(time.thread_time() - begun)
        return delta

    def settle(self) -> float:
        """The median step in milliseconds, of insertions and deletions apart; their mean."""
        found = 500 * (median(self.seconds[::2]) + median(self.seconds[1::2]))
        self.before = (self.before[0], min(self.seconds))
        self.seconds.clear()
        return found

    def would_take_too_long(self, batch: int) -> bool:
        """Return whether a step takes more than the limit if its time grows as the batch does."""
        rows, seconds = self.before
        return bool(rows) and seconds * batch / rows > STEP_LIMIT


def run_contest(
    case: Case, formulas: Sequence[str], verdict: Verdict, *, seed: int = 0
) -> Iterator[Row]:
    """A row for each batch size and formula."""
    begun = time.process_time()
    kept, fresh = case.rows_of(seed)
    contestants = [Contestant.loaded(case.query, formula, kept) for formula in formulas]
    for place, batch in enumerate(case.batches):
        there = {name: deltas[place] for name, deltas in fresh.items()}
        late = time.process_time() - begun > CASE_LIMIT
        fixed = [one for one in contestants if one.formula != AUTO]
        for one in fixed:
            one.stopped = one.stopped or late or one.would_take_too_long(batch)
        for one in contestants:
            if one.formula == AUTO:
                one.stopped = one.stopped or all(other.stopped for other in fixed)
        yield from _at(case, batch, contestants, kept, there, verdict)


def _at(
    case: Case,
    batch: int,
    contestants: Sequence[Contestant],
    kept: Mapping[str, ZSet],
    there: Mapping[str, ZSet],
    verdict: Verdict,
) -> Iterator[Row]:
    """The rows of one batch size."""
    back = {name: -delta for name, delta in there.items()}
    running = [one for one in contestants if not one.stopped]
    counted = _warm_up(case, batch, running, there, back, verdict)
    _rounds(running, there, back, batch)
    times = {one.formula: one.settle() for one in running}
    fixed = {name: spent for name, spent in times.items() if name != AUTO}
    fastest = dict.fromkeys(times, min(fixed.values(), default=0.0))
    if fixed and times.get(AUTO, 0.0) > REMEASURE_RATIO * min(fixed.values()):
        best = sorted(fixed, key=fixed.__getitem__)[:2]
        again = _again(case, kept, (AUTO, *best), batch, there, back)
        times |= {name: median(found) for name, found in again.items()}
        fastest |= {name: min(times[one] for one in best) for name in again}
        # What disturbs the machine disturbs all of one load alike.
        fastest[AUTO] = times[AUTO] / max(
            median(a / b for a, b in zip(again[AUTO], again[name], strict=True)) for name in best
        )
    for one in contestants:
        ran: Sequence[float | None] = counted.get(one.formula, (None, None, None))
        spent = times.get(one.formula)
        yield {
            "shape": case.shape,
            "n": case.n,
            "changed": case.changed,
            "data": case.data,
            "rows": case.rows,
            "batch": batch,
            "formula": one.formula,
            "joins/step": ran[0],
            "proposals/step": ran[1],
            "intersections/step": ran[2],
            "ms/step p50": spent,
            "by the fastest": spent / fastest[one.formula] if spent and fixed else None,
            "stopped": one.stopped,
        }


def _again(
    case: Case,
    kept: Mapping[str, ZSet],
    formulas: Sequence[str],
    batch: int,
    there: Mapping[str, ZSet],
    back: Mapping[str, ZSet],
) -> dict[str, list[float]]:
    """Return milliseconds of a step of each formula, on each of several new loads."""
    times: dict[str, list[float]] = {name: [] for name in formulas}
    for load in range(REMEASURE_LOADS):
        running = [Contestant.loaded(case.query, name, kept) for name in formulas]
        for one in running:
            for delta in (there, back, there, back):
                one.step(delta)
            one.seconds.clear()
        _rounds(running, there, back, batch + 1 + load)
        for one in running:
            times[one.formula].append(one.settle())
    return times


def _warm_up(
    case: Case,
    batch: int,
    running: Sequence[Contestant],
    there: Mapping[str, ZSet],
    back: Mapping[str, ZSet],
    verdict: Verdict,
) -> dict[str, tuple[float, float, float]]:
    """Run one insertion and one deletion in each view; compare deltas, count joins and work."""
    what = f"{case.name}, {batch:,} rows"
    counted = {}
    answer: ZSet | None = None
    for one in running:
        if one.formula == AUTO:
            # It tries its candidates first.
            for delta in (there, back, there, back):
                one.step(delta)
        before = one.view.stats
        found, undone = one.step(there), one.step(back)
        after = one.view.stats
        answer = found if answer is None else answer
        _same(verdict, f"{what}: {one.formula}", found == answer and undone == -found)
        ran = after.joins - before.joins
        _same(verdict, f"{what}: joins of {one.formula}", _joins_hold(case, batch, one, ran))
        one.before = (batch, 0.0)
        counted[one.formula] = (
            ran / 2,
            (after.proposals - before.proposals) / 2,
            (after.intersections - before.intersections) / 2,
        )
        one.seconds.clear()
    return counted


def _joins_hold(case: Case, batch: int, one: Contestant, ran: int) -> bool:
    """Return whether the joins of two steps are those of the formula.

    An empty partial delta is not joined, so a recursive formula may do fewer joins. On stars and
    paths with many changed rows no partial delta is empty.
    """
    if one.formula == AUTO:
        return True
    wanted = 2 * count_joins(one.formula, case.n, changed=case.changed_atoms)
    recursive = Formula(one.formula).is_recursive
    if recursive and (batch < 100 or case.shape not in ("star", "path")):
        return ran <= wanted
    return ran == wanted


def _same(verdict: Verdict, what: str, holds: bool) -> None:
    verdict.truths[what] = 1
    verdict.compare(what, what, int(holds))


def _rounds(
    running: Sequence[Contestant],
    there: Mapping[str, ZSet],
    back: Mapping[str, ZSet],
    seed: int,
) -> None:
    """Run insertions and deletions in all views in turns, until the time is used up."""
    turns = random.Random(seed)
    gc.collect()
    gc.disable()
    begun = time.process_time()
    for done in range(MAX_ROUNDS if running else 0):
        if done >= MIN_ROUNDS and time.process_time() - begun > SECONDS:
            break
        for change in (there, back):
            for one in turns.sample(list(running), len(running)):
                one.step(change)
    gc.enable()
