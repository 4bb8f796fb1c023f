"""A trace: the rows of one relation, sorted in every column order that a query reads.

An arrangement is the trace in one column order. It is stored as a spine: a list of runs, which are
immutable sorted pieces. All atoms and queries that need the same order share one arrangement::

    trace of e(a, b)
        arrangement (0, 1)   runs sorted by a, then b
        arrangement (1, 0)   runs sorted by b, then a

A step is prepared first and committed later. `Trace.prepare` returns a staged step (`TraceStep`),
which has one run in each column order. It checks everything that can go wrong, so a commit does not
fail, and a step that is not committed changes nothing.

Staged steps can also be pushed on the trace as an overlay, one on top of the other
(`Trace.push_overlay`). The next step is then computed as if they had been committed; so the
iterations of a recursion run within one step. `Trace.pop_overlay` removes them, and their sum is
one staged step.

A `TraceVersion` is the content of a trace at one moment, for readers in any thread. Runs are
immutable, so a version is a list of runs: nothing is copied, and later steps add new runs without
changing these. A reader of a version keeps its runs alive.

Invariant: every weight, and the weight of every row in any sum of neighbouring runs, fits in int64.
If the largest absolute weights of all runs and of the delta add up to less than 2**63, nothing
needs a check. Otherwise the weight of each row of the delta is looked up, and the runs are merged
into one: O(n) for each step in which some weights are that large.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, partial
from itertools import chain
from typing import Final, NamedTuple

import numpy as np

from dbsp_wcoj.arguments import check_type
from dbsp_wcoj.errors import ArityError, DbspWcojError, WeightOverflowError
from dbsp_wcoj.kernels.storage.weight_lookup import look_up_weights
from dbsp_wcoj.storage.arena import MAX_INSERTION_ROWS, Arena
from dbsp_wcoj.storage.arrangement_build import ArrangementBuild
from dbsp_wcoj.storage.deferred_rows import DeferredRows
from dbsp_wcoj.storage.grouped_rows import GroupedPairs
from dbsp_wcoj.storage.merged_runs import MergedRelation, MergedRuns, merge_newest_runs
from dbsp_wcoj.storage.run import Run
from dbsp_wcoj.storage.spine import Spine, SpineSnapshot, are_same, snapshot_runs
from dbsp_wcoj.workers import MIN_PARALLEL_ROWS, run_tasks
from dbsp_wcoj.zset import MAX_ARITY, MAX_INT64, Int64Array, ZSet, accumulate, consolidated_rows

__all__ = [
    "Arrangement",
    "ColumnOrder",
    "PoppedOverlay",
    "Staged",
    "StagedGroup",
    "Trace",
    "TraceStep",
    "TraceVersion",
    "build_run",
    "order_array",
]

ColumnOrder = tuple[int, ...]

# `Trace.build_arrangement` arranges a trace of at most this many rows at once.
MAX_ROWS_ARRANGED_AT_ONCE: Final = 1 << 16
# The arena builds the runs of a step of at most this many rows in one compiled call.
MAX_ARENA_ROWS: Final = MAX_INSERTION_ROWS
# The steps of an overlay with at most this many rows together are added up from their deltas.
MAX_ADDED_ROWS: Final = 48


class Staged(ABC):
    """A computed change that is not yet part of the state: the result of every ``prepare``.

    All levels, from a trace to a circuit, use this transaction protocol. Nothing changes until
    `commit`. A staged change that is not needed is simply dropped.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def changes(self) -> Iterable[TraceStep]:
        """The staged deltas of all traces that change, each once, for stores that write them."""

    @abstractmethod
    def commit(self) -> None:
        """Make the change part of the state."""


class StagedGroup(Staged):
    """Several staged changes, committed together."""

    __slots__ = ("_steps",)

    def __init__(self, steps: Iterable[Staged]) -> None:
        self._steps = tuple(steps)

    @property
    def changes(self) -> Iterable[TraceStep]:
        return chain.from_iterable(step.changes for step in self._steps)

    def commit(self) -> None:
        for step in self._steps:
            step.commit()


def build_run(zset: ZSet, order: ColumnOrder) -> Run:
    """The run of a non-empty Z-set in a column order."""
    return Run.of(zset, order_array(order))


@cache
def order_array(order: ColumnOrder) -> Int64Array:
    """A column order as an array, for kernels."""
    return np.array(order, np.int64)


class Arrangement:
    """A trace in one column order."""

    __slots__ = ("order", "spine")

    def __init__(self, order: ColumnOrder, spine: Spine | None = None) -> None:
        """The arrangement with the runs of a spine; without a spine, an empty arrangement."""
        self.order = order
        self.spine = spine or Spine()

    def build_run(self, zset: ZSet) -> Run:
        """The run of a non-empty Z-set in this order."""
        return build_run(zset, self.order)


class Trace:
    """The rows of a relation of ``arity`` columns: the sum of its deltas.

    Attributes:
        arity: The number of columns.
        version: The number of committed steps.
        has_unfinished_commit: True while a step is committed, and after an error or interrupt then:
            some arrangements may have the step and others not. No step is prepared until `load`.

    >>> trace = Trace(2)
    >>> trace.update(ZSet.from_rows([(1, 2), (3, 4)]))
    >>> trace.update(ZSet.from_rows([(1, 2)], [2]))
    >>> trace.weights_of(ZSet.from_rows([(1, 2), (3, 4), (5, 6)])).tolist()
    [3, 1, 0]
    """

    __slots__ = (
        "_all_arrangements",
        "_arena",
        "_builds",
        "_deferred",
        "_overlay_steps",
        "arity",
        "has_unfinished_commit",
        "version",
    )

    def __init__(self, arity: int, orders: Iterable[ColumnOrder] | None = None) -> None:
        """Create an empty trace.

        Args:
            arity: The number of columns.
            orders: The column orders of its arrangements; by default one, the order of the columns.
                A trace without arrangements stores no rows.

        Raises:
            ArityError: ``arity`` is 0 (a relation without columns is just a weight) or too large.
        """
        check_type("arity", arity, int, "a number of columns")
        if not 1 <= arity <= MAX_ARITY:
            raise ArityError(f"a trace has from 1 to {MAX_ARITY} columns, not {arity}")
        self.arity = arity
        self.version = 0
        self.has_unfinished_commit = False
        self._all_arrangements: dict[ColumnOrder, Arrangement] = {}
        # All rows of the trace, if they are not in its arrangements yet.
        self._deferred: DeferredRows | None = None
        # The arrangements that do not have all rows yet.
        self._builds: dict[ColumnOrder, ArrangementBuild] = {}
        # None until it is needed, and after a change of the arrangements.
        self._arena: Arena | None = None
        self._overlay_steps: list[TraceStep] = []
        for order in [tuple(range(arity))] if orders is None else orders:
            self.arrange(order)

    @property
    def _arrangements(self) -> dict[ColumnOrder, Arrangement]:
        """The arrangements by column order, with all rows."""
        if self._deferred is not None:
            self.sort_deferred()
        return self._all_arrangements

    def defer(self, rows: DeferredRows) -> bool:
        """Make rows the content of the trace, but put off sorting them until somebody reads it.

        Kernels that know the address of a spine do not see the rows before `sort_deferred`.

        Returns:
            False, without a change, if the trace has rows or no arrangement.
        """
        arrangements = self._all_arrangements
        if self._deferred is not None or self._builds or self._overlay_steps or not arrangements:
            return False
        if not self.is_empty:
            return False
        self._deferred = rows
        return True

    def sort_deferred(self) -> None:
        """Sort the rows of `defer` into the arrangements; nothing if there are none.

        If this fails, it can be called again.

        Complexity:
            O(n log n) once, then O(1).
        """
        deferred = self._deferred
        if deferred is None:
            return
        for order, arrangement in self._all_arrangements.items():
            arrangement.spine.load([deferred.run(order)])
        self._deferred = None

    @property
    def deferred(self) -> DeferredRows | None:
        """All rows of the trace, if nobody has read them since `defer`."""
        return self._deferred

    @property
    def arrangements(self) -> tuple[Arrangement, ...]:
        """All arrangements, in the order of their creation."""
        return tuple(self._arrangements.values())

    @property
    def orders(self) -> tuple[ColumnOrder, ...]:
        """The column orders of the arrangements, in the order of their creation."""
        return tuple(self._all_arrangements)

    @property
    def arena(self) -> Arena | None:
        """The memory of the runs of small deltas.

        None without an arrangement, and while one is built, because kernels that add runs to the
        arena do not add them to the build.
        """
        if self._builds:
            return None
        arrangements = self._arrangements
        if self._arena is None and arrangements:
            self._arena = Arena({order: a.spine for order, a in arrangements.items()})
        return self._arena

    @property
    def rows(self) -> int:
        """The number of rows of all runs; a row that is in two runs counts twice. O(runs)."""
        if self._deferred is not None:
            return self._deferred.rows
        arrangements = self.arrangements
        return arrangements[0].spine.rows if arrangements else 0

    @property
    def is_empty(self) -> bool:
        """Return whether the trace has no runs."""
        if self._deferred is not None:
            return False
        return all(a.spine.is_empty for a in self._all_arrangements.values())

    def has_arrangement(self, order: ColumnOrder) -> bool:
        """Return whether the trace is arranged in this column order."""
        return order in self._all_arrangements

    def arrange(self, order: ColumnOrder) -> Arrangement:
        """Return the arrangement in a column order; build it from the current rows if it is new.

        Raises:
            ArityError: ``order`` is not a permutation of the columns.
            DbspWcojError: The trace has no arrangement, so it has not stored the rows of its steps.

        Complexity:
            O(n) the first time, else O(1).
        """
        arrangement = self._arrangements.get(order)
        if arrangement is None:
            self._check_order(order)
            if self.version and not self._arrangements:
                raise DbspWcojError(
                    f"the rows of the first {self.version} steps of this relation are not stored, "
                    "because no query needed them: create all queries that share relations before "
                    "the first step"
                )
            build = self._builds.pop(order, None)
            if build is not None:
                build.copy_all()
                arrangement = Arrangement(order, build.spine)
            else:
                arrangement = Arrangement(order)
                if self._arrangements and not self.is_empty:
                    rows = self.to_zset()
                    if len(rows):
                        arrangement.spine.append(arrangement.build_run(rows))
            for step in self._overlay_steps:
                arrangement.spine.push_overlay(step.run(order))
            self._arrangements[order] = arrangement
            self._arena = None
        return arrangement

    def build_arrangement(self, order: ColumnOrder, rows: int) -> bool:
        """Build a part of an arrangement; return whether it is complete.

        The first call begins a build, each call copies a slice of the rows, and the last one makes
        the arrangement available. In between, committed steps are added to it. A small trace is
        arranged at once.

        Args:
            order: A permutation of the columns.
            rows: The rows of the step that calls; the slice is in proportion to them
                (`dbsp_wcoj.storage.arrangement_build`).

        Raises:
            ArityError: ``order`` is not a permutation of the columns.

        >>> trace = Trace(2)
        >>> trace.update(ZSet.from_rows([(1, 2), (3, 4)]))
        >>> trace.build_arrangement((1, 0), rows=1), trace.orders
        (True, ((0, 1), (1, 0)))
        """
        if order in self._arrangements:
            return True
        build = self._builds.get(order)
        if build is None:
            is_small = self.rows <= MAX_ROWS_ARRANGED_AT_ONCE
            if not self._arrangements or self._overlay_steps or is_small:
                self.arrange(order)
                return True
            self._check_order(order)
            source = self._any_arrangement()
            build = ArrangementBuild(order_array(order), source.order, source.spine.runs)
            self._builds[order] = build
        try:
            build.copy_slice(rows)
        except BaseException:
            # After an interrupt it is unknown which rows were copied; the next call begins again.
            self._builds.pop(order, None)
            raise
        if build.is_complete and not self._overlay_steps:
            self.arrange(order)
            return True
        return False

    def snapshot(self) -> list[tuple[ColumnOrder, SpineSnapshot]]:
        """The current runs of each arrangement; see `Spine.snapshot`."""
        snapshots = []
        for order, arrangement in self._arrangements.items():  # a comprehension is one more call
            snapshots.append((order, arrangement.spine.snapshot()))
        return snapshots

    def load(self, arrangements: Mapping[ColumnOrder, Sequence[Run]]) -> None:
        """Replace the runs of the trace, without copying them; drop the overlay, if there is one.

        Arrangements in other column orders are dropped, because they have other rows; `arrange`
        builds them again. If ``arrangements`` is empty, the trace does not change.

        Args:
            arrangements: The runs of each column order, oldest first; their sum is the same in all
                orders.

        Raises:
            ArityError: A run has another arity, or an order does not permute the columns.

        Complexity:
            O(runs).

        >>> source = Trace(2, [(1, 0)])
        >>> source.update(ZSet.from_rows([(1, 2)]))
        >>> target = Trace(2)
        >>> target.load({(1, 0): source.arrangements[0].spine.runs})
        >>> target.to_zset()
        ZSet({(1, 2): 1})
        """
        self.check_loadable(arrangements)
        loaded: dict[ColumnOrder, Arrangement] = {}
        if arrangements:
            self.has_unfinished_commit = True
            self._deferred = None
            self._overlay_steps = []
        for order, runs in arrangements.items():
            loaded[order] = self._all_arrangements.get(order) or Arrangement(order)
            loaded[order].spine.load(runs)
        if loaded:
            self._all_arrangements = loaded
        self._builds.clear()
        self._arena = None
        self.version += 1
        if loaded:
            self.has_unfinished_commit = False

    def check_loadable(self, arrangements: Mapping[ColumnOrder, Sequence[Run]]) -> None:
        """Raise the error that `load` would raise, without a change; O(runs)."""
        for order, runs in arrangements.items():
            self._check_order(order)
            for run in runs:
                if run.arity != self.arity:
                    raise ArityError(
                        f"a run of order {order} has arity {run.arity}, the trace {self.arity}; "
                        "load the runs that were stored for this trace"
                    )

    def replace_runs(self, arrangements: Mapping[ColumnOrder, Sequence[Run]]) -> None:
        """Replace the runs of some arrangements by others that have the same sum.

        The rows stay the same, so steps that are prepared can still be committed. Complete
        arrangements in other column orders keep their runs; orders that are not arranged are
        ignored.

        Args:
            arrangements: The new runs of each column order, oldest first.

        Complexity:
            O(runs).
        """
        for order, runs in arrangements.items():
            arrangement = self._arrangements.get(order)
            if arrangement is not None:
                arrangement.spine.load(runs)

    def keep_arrangements(self, orders: Iterable[ColumnOrder]) -> None:
        """Drop the arrangements in other column orders, complete or not, but never all.

        >>> trace = Trace(2, [(0, 1), (1, 0)])
        >>> trace.keep_arrangements([(1, 0)])
        >>> [arrangement.order for arrangement in trace.arrangements]
        [(1, 0)]
        """
        kept_orders = set(orders)
        arrangements = self._all_arrangements
        remaining = {order: a for order, a in arrangements.items() if order in kept_orders}
        self._builds = {order: b for order, b in self._builds.items() if order in kept_orders}
        if remaining:
            self._all_arrangements = remaining
            self._arena = None

    def add_to_builds(self, step: TraceStep) -> None:
        """Add a step that is being committed to the arrangements that are not complete."""
        if step.must_compact:
            # Sums of the runs of a build might leave int64. It starts again when it is needed.
            self._builds.clear()
        for order, build in self._builds.items():
            build.add(step.run(order))

    def prepare(self, delta: ZSet) -> TraceStep:
        """Check a non-empty delta and stage it; the trace changes only when it is committed.

        Raises:
            ArityError: The delta has another arity.
            ValueError: The delta is empty. Its run would hide later rows from searches.
            WeightOverflowError: The weight of a row would leave int64.
            DbspWcojError: An earlier commit has failed.
        """
        if not isinstance(delta, ZSet):
            check_type("delta", delta, ZSet, "a ZSet")
        if len(delta.row_array) != self.arity:
            raise ArityError(
                f"the delta has arity {delta.arity}, the trace {self.arity}; project it"
            )
        if not len(delta.weight_array):
            raise ValueError("the delta is empty; prepare only deltas with rows, or call `update`")
        self.check_committed()
        step = TraceStep(self, delta)
        return step if step.fits_weight_bounds else self.check_step(step)

    def check_committed(self) -> None:
        """Check that no commit has failed or been interrupted since the last `load`.

        Raises:
            DbspWcojError: One has, so the arrangements may disagree.
        """
        if self.has_unfinished_commit:
            raise DbspWcojError(
                "a step of this relation failed or was interrupted while it was committed, so some "
                "of its arrangements may have the rows and others not: load it, or create it again"
            )

    def check_step(self, step: TraceStep) -> TraceStep:
        """Check that a staged step keeps every weight within int64; return it. See `prepare`.

        This is not needed if `TraceStep.fits_weight_bounds`.
        """
        for arrangement in self._arrangements.values():
            largest = step.run(arrangement.order).max_abs_weight
            if arrangement.spine.weight_bound + largest > MAX_INT64:
                break
        else:
            return step
        delta = step.delta
        old, change = self.weights_of(delta), delta.weights
        new = old + change  # wraps around on overflow; the signs show it
        overflows = (((old ^ new) & (change ^ new)) < 0) | (new < -MAX_INT64)
        if overflows.any():
            index = int(overflows.argmax())
            raise WeightOverflowError(
                f"row {tuple(delta.rows[:, index].tolist())} would get weight "
                f"{int(old[index]) + int(change[index])}, beyond int64 ({MAX_INT64}); "
                f"give smaller weights, or keep a column in which equal rows differ"
            )
        step.must_compact = True
        return step

    def update(self, delta: ZSet) -> None:
        """Add a delta: `prepare` and commit.

        Complexity:
            Amortised O(log n) row copies per row and arrangement.
        """
        check_type("delta", delta, ZSet, "a ZSet")
        if len(delta):
            self.prepare(delta).commit()
        elif delta.arity != self.arity:
            raise ArityError(
                f"the delta has arity {delta.arity}, the trace {self.arity}; project it"
            )

    def push_overlay(self, step: TraceStep) -> None:
        """Let readers see a staged step as if it were committed, until `pop_overlay`.

        With it, an iteration of a recursion reads the changes of the iterations before it. Joins,
        `weights_of` and `dbsp_wcoj.storage.prefix_lookup` read the overlay; `to_zset` and
        `Spine.runs` do not include it.

        >>> trace = Trace(1)
        >>> trace.push_overlay(trace.prepare(ZSet.from_rows([(7,)])))
        >>> trace.weights_of(ZSet.from_rows([(7,)])).tolist()
        [1]
        >>> trace.pop_overlay().total().delta, trace.weights_of(ZSet.from_rows([(7,)])).tolist()
        (ZSet({(7,): 1}), [0])
        """
        self._overlay_steps.append(step)
        for order, arrangement in self._arrangements.items():
            arrangement.spine.push_overlay(step.run(order))

    def pop_overlay(self) -> PoppedOverlay:
        """Remove the overlay and return its steps; the trace is as before `push_overlay`."""
        steps, self._overlay_steps = self._overlay_steps, []
        runs = {order: a.spine.pop_overlay() for order, a in self._arrangements.items()}
        return PoppedOverlay(self, steps, runs)

    def weights_of(self, rows: ZSet) -> Int64Array:
        """The current weight of each row, 0 if it is absent.

        Args:
            rows: The rows; their weights are ignored.

        Complexity:
            O(log n) per row and run.
        """
        check_type("rows", rows, ZSet, "a ZSet")
        if rows.arity != self.arity:
            raise ArityError(
                f"the rows have arity {rows.arity}, the trace {self.arity}; project them"
            )
        arrangement = self._any_arrangement()
        weights: Int64Array = look_up_weights(
            rows.row_array, order_array(arrangement.order), arrangement.spine.table
        )
        return weights

    def to_zset(self) -> ZSet:
        """All rows with their weights.

        Complexity:
            O(n).
        """
        arrangement = self._any_arrangement()
        parts = []
        for run in arrangement.spine.runs:
            columns, weights = run.read()
            rows = np.empty_like(columns)
            rows[list(arrangement.order)] = columns
            parts.append((rows, weights))
        if not parts:
            return ZSet.empty(self.arity)
        return consolidated_rows(
            np.concatenate([rows for rows, _ in parts], axis=1),
            np.concatenate([weights for _, weights in parts]),
        )

    def visible_runs(self, order: ColumnOrder) -> tuple[Run, ...]:
        """The runs that `visible_run` adds up; as long as they are the same, so is its result."""
        return self._arrangement_like(order).spine.visible_runs

    def visible_run(self, order: ColumnOrder) -> Run:
        """All rows as one run in a column order, with those of the overlay; there must be runs.

        Complexity:
            O(n); O(1) if the trace has this order, and one run.

        >>> trace = Trace(2)
        >>> trace.update(ZSet.from_rows([(1, 2), (3, 0)]))
        >>> trace.visible_run((1, 0)).level_values(0).tolist()
        [0, 2]
        """
        arrangement = self._arrangement_like(order)
        run = Run.sum_of(arrangement.spine.visible_runs)
        if arrangement.order == order or not run.rows:
            return run
        columns = [arrangement.order.index(column) for column in order]
        return Run.of(ZSet(*run.read()), np.array(columns, np.int64))

    def _arrangement_like(self, order: ColumnOrder) -> Arrangement:
        """Return the arrangement in a column order, or any other one."""
        return self._arrangements.get(order) or self._any_arrangement()

    def _check_order(self, order: ColumnOrder) -> None:
        if sorted(order) != list(range(self.arity)):
            raise ArityError(
                f"order {order} is not a permutation of the columns 0 … {self.arity - 1}"
            )

    def _any_arrangement(self) -> Arrangement:
        for arrangement in self._arrangements.values():
            return arrangement
        raise DbspWcojError("the trace has no arrangement, so it keeps no rows; arrange it first")


class TraceStep(Staged):
    """The delta of one step of one relation: its run in each order, not yet part of the trace.

    Attributes:
        trace: The trace that the step changes.
        fits_weight_bounds: True if the weight bounds of the trace already show that no weight
            leaves int64.
        rows: The number of rows of the step.
        lookups: About how many rows of the trace such a step searches for; None if unknown. It
            decides how soon the trace merges its runs (`dbsp_wcoj.storage.spine`).
        must_compact: True if a sum of runs might leave int64; the commit then merges all runs.
    """

    __slots__ = (
        "_arena",
        "_deferred",
        "_delta",
        "_merged",
        "_runs",
        "_version",
        "fits_weight_bounds",
        "lookups",
        "must_compact",
        "rows",
        "trace",
    )

    def __init__(
        self,
        trace: Trace,
        delta: ZSet | None,
        runs: dict[ColumnOrder, Run] | None = None,
        deferred: DeferredRows | None = None,
    ) -> None:
        """Stage a delta of ``trace``.

        Args:
            trace: The trace.
            delta: At least one row; None to read it from ``runs`` when it is needed.
            runs: The delta's run in each column order of the trace; those that are missing are
                built when they are read, from ``delta``. None to build all of them at once.
            deferred: The delta of an empty trace, instead of the other two. It is sorted when it is
                read, which may be long after the commit. Its weights must not need a check.
        """
        self._delta = delta
        self._deferred = deferred
        # The merged runs of `merge_newest_runs`, by column order.
        self._merged: dict[ColumnOrder, MergedRuns] = {}
        self.lookups: int | None = None
        self.must_compact = False
        self.trace = trace
        self._version = trace.version
        # The arena that holds the runs, if any.
        self._arena: Arena | None = None
        self.fits_weight_bounds = False
        if deferred is not None:
            self._runs = {}
            self.rows = deferred.rows
            return
        if runs is not None:
            self._runs = runs
            self.rows = next(iter(runs.values())).rows if delta is None else len(delta)
            return
        assert delta is not None
        self.rows = len(delta.weight_array)
        if self.rows <= MAX_ARENA_ROWS:
            arena = self._arena = trace.arena
            if arena is not None:
                self._runs, bound = arena.build_runs(delta)
                largest = self._runs[arena.orders[0]].max_abs_weight
                self.fits_weight_bounds = bound + largest <= MAX_INT64
                return
        orders = trace.orders
        if self.rows >= MIN_PARALLEL_ROWS:
            runs_in_order = run_tasks([partial(build_run, delta, order) for order in orders])
            self._runs = dict(zip(orders, runs_in_order, strict=True))
            return
        self._runs = {order: build_run(delta, order) for order in orders}

    @property
    def delta(self) -> ZSet:
        """The rows of the step."""
        if self._delta is None:
            if not self._runs and self._deferred is not None:
                self._runs = {order: self._deferred.run(order) for order in self.trace.orders[:1]}
            order, run = next(iter(self._runs.items()))
            columns, weights = run.read()
            rows = np.empty_like(columns)
            rows[list(order)] = columns
            self._delta = consolidated_rows(rows, weights)
        return self._delta

    def for_lookups(self) -> TraceStep:
        """Return the step for readers that look up rows by their first column, and do no more.

        They get the grouped run of the rows if there is one (`GroupedPairs.grouped`).
        """
        grouped = self._deferred.grouped if isinstance(self._deferred, GroupedPairs) else None
        return self if grouped is None else TraceStep(self.trace, None, {(0, 1): grouped})

    def forget_delta(self) -> None:
        """Free the memory of the delta if the runs can give it back: `delta` sorts one of them."""
        if self._runs and self.rows:
            self._delta = None

    def run(self, order: ColumnOrder) -> Run:
        """The delta's run in a column order, built on the first call."""
        run = self._runs.get(order)
        if run is None:
            deferred = self._deferred
            run = build_run(self.delta, order) if deferred is None else deferred.run(order)
            # Two threads may both build it; both then return the run that is kept.
            run = self._runs.setdefault(order, run)
        return run

    def merge_newest_runs(self, order: ColumnOrder, spine: Spine) -> MergedRelation | None:
        """Merge the newest runs of the trace and the delta (`dbsp_wcoj.storage.merged_runs`).

        Args:
            order: A column order.
            spine: The arrangement of the trace in this order.

        Returns:
            The relation before and after the step; None if joins better read it as it is.

        Complexity:
            O(rows of the step) for the first of the views that share the relation, then O(1).
        """
        found = self._merged.get(order)
        if found is None or not are_same(found.before, spine.visible_runs):
            # Two threads may both merge; either result is right.
            found = self._merged[order] = merge_newest_runs(spine, self.run(order))
        return found.relation

    @property
    def changes(self) -> tuple[TraceStep, ...]:
        """The steps of the traces that change: only this one. Composite steps list several."""
        return (self,)

    @property
    def runs(self) -> dict[ColumnOrder, Run]:
        """The delta's run in each column order of the trace."""
        return {order: self.run(order) for order in self.trace.orders}

    def check_version(self) -> None:
        """Check that the trace is as it was when the step was prepared.

        Raises:
            DbspWcojError: It has changed.
        """
        if self.trace.version != self._version:
            raise DbspWcojError(
                f"step prepared at version {self._version}, but the trace is at version "
                f"{self.trace.version}; prepare it again"
            )

    def commit(self) -> None:
        """Make the delta part of the trace.

        Raises:
            DbspWcojError: The trace has changed since the step was prepared.
        """
        self.check_version()
        trace = self.trace
        trace.has_unfinished_commit = True
        trace.version += 1
        if self._deferred is not None and not self._runs and trace.defer(self._deferred):
            trace.has_unfinished_commit = False
            return
        arena = None if self.must_compact else self._arena
        # While an arrangement is being built, the trace has no arena.
        if arena is None or arena is not trace.arena or not arena.add(self._runs):
            trace.add_to_builds(self)
            if self.rows >= MIN_PARALLEL_ROWS:
                run_tasks([partial(self._append_to, a) for a in trace.arrangements])
            else:
                for arrangement in trace.arrangements:
                    self._append_to(arrangement)
        self._merged = {}  # the spine may drop these runs before the step ends
        trace.has_unfinished_commit = False

    def _append_to(self, arrangement: Arrangement) -> None:
        """Add the step's run to an arrangement."""
        # `check_step` has checked the sum of all runs and the delta, but not sums of some of them.
        # So all runs are merged into one before the delta is added.
        if self.must_compact:
            arrangement.spine.compact()
        merged = self._merged.get(arrangement.order)
        offered = None if merged is None else merged.offered
        arrangement.spine.append(self.run(arrangement.order), self.lookups, offered)
        if self.must_compact:
            arrangement.spine.compact()


class PoppedOverlay(NamedTuple):
    """The steps of an overlay, and their runs, partly merged, by column order."""

    trace: Trace
    steps: list[TraceStep]
    runs: dict[ColumnOrder, list[Run]]

    def total(self) -> TraceStep | None:
        """The sum of the steps as one staged step; None if it has no rows.

        Raises:
            WeightOverflowError: The weight of a row would leave int64.

        Complexity:
            Amortised O(log steps) row copies per row and arrangement, mostly in `push_overlay`.
        """
        steps, trace = self.steps, self.trace
        if len(steps) == 1:
            return steps[0]
        if not self.runs or sum([len(step.delta) for step in steps]) <= MAX_ADDED_ROWS:
            delta = accumulate([step.delta for step in steps], trace.arity)
            return trace.prepare(delta) if len(delta) else None
        sums = {order: Run.sum_of(runs) for order, runs in self.runs.items() if runs}
        sums = {order: run for order, run in sums.items() if run.rows}
        return trace.check_step(TraceStep(trace, None, sums)) if sums else None


class TraceVersion:
    """The current rows of a trace, in its current column orders.

    Args:
        trace: A trace without an overlay (`Trace.push_overlay`).

    Complexity:
        O(arrangements), and O(runs) for the first reader.

    >>> trace = Trace(1)
    >>> trace.update(ZSet.from_rows([(7,)]))
    >>> before = TraceVersion(trace)
    >>> trace.update(ZSet.from_rows([(8,)]))
    >>> before.trace.to_zset(), trace.to_zset()
    (ZSet({(7,): 1}), ZSet({(7,): 1, (8,): 1}))
    """

    __slots__ = ("_arity", "_deferred", "_orders", "_snapshot", "_trace")

    def __init__(self, trace: Trace) -> None:
        self._arity = trace.arity
        self._deferred = trace.deferred
        self._orders = trace.orders
        self._snapshot = trace.snapshot() if self._deferred is None else []
        self._trace: Trace | None = None

    @property
    def rows(self) -> int:
        """The number of rows of all runs; a row that is in two runs counts twice. O(runs)."""
        if self._deferred is not None:
            return self._deferred.rows
        for _, (runs, tail) in self._snapshot:
            return sum([run.rows for run in runs]) + (0 if tail is None else tail[2])
        return 0

    @property
    def trace(self) -> Trace:
        """A trace of these rows, read-only and shared by all readers."""
        trace = self._trace
        if trace is None:
            # Two threads may both build one; either result is right.
            trace = Trace(self._arity, ())
            if self._deferred is not None:
                trace.load({order: [self._deferred.run(order)] for order in self._orders})
            else:
                trace.load({order: snapshot_runs(snapshot) for order, snapshot in self._snapshot})
            self._trace = trace
        return trace
