"""A trace: the history of one relation, arranged in every column order that something needs.

An arrangement is the trace in one column order, stored as a spine of runs and shared by all atoms
and queries that need that order. A step is prepared first and committed later: `Trace.prepare`
builds the delta's runs and checks everything that can go wrong, so a commit cannot fail and an
abandoned step leaves no mark.

Invariant: no row's weight, and no sum of neighbouring runs, ever leaves int64. As long as the
largest weights of all runs add up to less, nothing has to be looked at; beyond that each row of
the delta is looked up, and the runs are merged into one: O(n) for each step in which some weights
are that large.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from dbsp_wcoj.arguments import check_type
from dbsp_wcoj.errors import ArityError, DbspWcojError, WeightOverflowError
from dbsp_wcoj.kernels.storage.weight_lookup import row_weights
from dbsp_wcoj.storage.arena import Arena
from dbsp_wcoj.storage.run import Run
from dbsp_wcoj.storage.spine import Contents, Spine
from dbsp_wcoj.storage.trace_step import ColumnOrder, Overlaid, TraceStep, order_array, run_in_order
from dbsp_wcoj.zset import LIMIT, MAX_ARITY, Int64Array, ZSet, consolidated_rows

__all__ = ["Arrangement", "ColumnOrder", "Overlaid", "Trace", "TraceStep", "run_in_order"]


class Arrangement:
    """A trace in one column order."""

    __slots__ = ("order", "spine")

    def __init__(self, order: ColumnOrder) -> None:
        """An empty arrangement."""
        self.order = order
        self.spine = Spine()

    def run_of(self, zset: ZSet) -> Run:
        """The run of a non-empty Z-set in this order."""
        return run_in_order(zset, self.order)


class Trace:
    """The history of a relation of ``arity`` columns, as the sum of its deltas.

    >>> trace = Trace(2)
    >>> trace.update(ZSet.from_rows([(1, 2), (3, 4)]))
    >>> trace.update(ZSet.from_rows([(1, 2)], [2]))
    >>> trace.weights_of(ZSet.from_rows([(1, 2), (3, 4), (5, 6)])).tolist()
    [3, 1, 0]
    """

    __slots__ = ("_arena", "_arrangements", "_laid", "arity", "version")

    def __init__(self, arity: int, orders: Iterable[ColumnOrder] | None = None) -> None:
        """An empty trace with the given arrangements, by default one in the columns' own order.

        A trace without arrangements keeps nothing.

        Raises:
            ArityError: ``arity`` is 0; a relation without columns is just a weight.
        """
        check_type("arity", arity, int, "a number of columns")
        if not 1 <= arity <= MAX_ARITY:
            raise ArityError(f"a trace has from 1 to {MAX_ARITY} columns, not {arity}")
        self.arity = arity
        # How many steps have been committed.
        self.version = 0
        self._arrangements: dict[ColumnOrder, Arrangement] = {}
        # None when the arrangements have changed.
        self._arena: Arena | None = None
        self._laid: list[TraceStep] = []
        for order in [tuple(range(arity))] if orders is None else orders:
            self.arrange(order)

    @property
    def arrangements(self) -> tuple[Arrangement, ...]:
        """All arrangements, in the order in which they were asked for."""
        return tuple(self._arrangements.values())

    @property
    def orders(self) -> tuple[ColumnOrder, ...]:
        """The column orders of the arrangements, in the order in which they were asked for."""
        return tuple(self._arrangements)

    @property
    def arena(self) -> Arena | None:
        """Where the runs of small deltas lie; None without an arrangement."""
        if self._arena is None and self._arrangements:
            self._arena = Arena({order: a.spine for order, a in self._arrangements.items()})
        return self._arena

    @property
    def rows(self) -> int:
        """Rows of all runs, those counted twice that stand in two of them; O(runs)."""
        return next((one.spine.rows for one in self._arrangements.values()), 0)

    @property
    def is_empty(self) -> bool:
        """Whether the trace holds no run."""
        return all(arrangement.spine.is_empty for arrangement in self._arrangements.values())

    def has(self, order: ColumnOrder) -> bool:
        """Whether the trace is arranged in this column order."""
        return order in self._arrangements

    def arrange(self, order: ColumnOrder) -> Arrangement:
        """The arrangement in a column order, built from the rows so far if it is new.

        Raises:
            ArityError: ``order`` is not a permutation of the columns.

        Complexity:
            O(n) the first time, else O(1).
        """
        arrangement = self._arrangements.get(order)
        if arrangement is None:
            self._check_order(order)
            arrangement = Arrangement(order)
            if self._arrangements and not self.is_empty:
                rows = self.to_zset()
                if len(rows):
                    arrangement.spine.append(arrangement.run_of(rows))
            for step in self._laid:
                arrangement.spine.push_overlay(step.run(order))
            self._arrangements[order] = arrangement
            self._arena = None
        return arrangement

    def contents(self) -> list[tuple[ColumnOrder, Contents]]:
        """The runs of each arrangement as they are now; see `Spine.contents`."""
        return [(order, a.spine.contents) for order, a in self._arrangements.items()]

    def load(self, arrangements: Mapping[ColumnOrder, Sequence[Run]]) -> None:
        """Fill the trace with runs as they are; nothing is copied or built.

        Arrangements that are not given are dropped, because they lack the rows; asked for again
        they are built. If none is given, the trace stays as it is.

        Args:
            arrangements: Per column order the runs, oldest first; the sum is the same in all of
                them.

        Raises:
            ArityError: A run has another arity, or an order is none of this trace.

        Complexity:
            O(runs).

        >>> one = Trace(2, [(1, 0)])
        >>> one.update(ZSet.from_rows([(1, 2)]))
        >>> other = Trace(2)
        >>> other.load({(1, 0): one.arrangements[0].spine.runs})
        >>> other.to_zset()
        ZSet({(1, 2): 1})
        """
        for order, runs in arrangements.items():
            self._check_order(order)
            for run in runs:
                if run.arity != self.arity:
                    raise ArityError(
                        f"a run of order {order} has arity {run.arity}, the trace {self.arity}; "
                        "load what was stored of this trace"
                    )
        known, self._arrangements = self._arrangements, {}
        for order, runs in arrangements.items():
            arrangement = known.get(order) or Arrangement(order)
            arrangement.spine.load(runs)
            self._arrangements[order] = arrangement
        if not arrangements:
            self._arrangements = known
        self._arena = None
        self.version += 1

    def keep(self, orders: Iterable[ColumnOrder]) -> None:
        """Drop all arrangements but these; if the trace has none of them, nothing is dropped.

        >>> trace = Trace(2, [(0, 1), (1, 0)])
        >>> trace.keep([(1, 0)])
        >>> [arrangement.order for arrangement in trace.arrangements]
        [(1, 0)]
        """
        wanted = set(orders)
        kept = {order: a for order, a in self._arrangements.items() if order in wanted}
        if kept:
            self._arrangements = kept
            self._arena = None

    def prepare(self, delta: ZSet) -> TraceStep:
        """Check a non-empty delta and stage it; the trace changes only when it is committed.

        Raises:
            ArityError: The delta has another arity.
            WeightOverflowError: The weight of a row would leave int64.
        """
        check_type("delta", delta, ZSet, "a ZSet")
        if delta.arity != self.arity:
            raise ArityError(
                f"the delta has arity {delta.arity}, the trace {self.arity}; project it"
            )
        return self.checked(TraceStep(self, delta))

    def checked(self, step: TraceStep) -> TraceStep:
        """A staged step, once it is known to leave no weight beyond int64; see `prepare`."""
        for arrangement in self._arrangements.values():
            largest = step.run(arrangement.order).max_abs_weight
            if arrangement.spine.weight_bound + largest > LIMIT:
                break
        else:
            return step
        delta = step.delta
        old, change = self.weights_of(delta), delta.weights
        new = old + change  # wraps around where it overflows, which shows in the signs
        beyond = (((old ^ new) & (change ^ new)) < 0) | (new < -LIMIT)
        if beyond.any():
            first = int(beyond.argmax())
            raise WeightOverflowError(
                f"row {tuple(delta.rows[:, first].tolist())} would get weight "
                f"{int(old[first]) + int(change[first])}, beyond int64 ({LIMIT}); "
                f"split or scale the weights"
            )
        step.compact = True
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
        """Let readers see a staged step as if it were committed, until it is lifted.

        So steps can be made on top of each other before any is committed: the iterations of a
        recursion. Rows are read by joins, `weights_of` and `dbsp_wcoj.storage.prefix_lookup`;
        `to_zset` and the runs stay those of the trace.

        >>> trace = Trace(1)
        >>> trace.push_overlay(trace.prepare(ZSet.from_rows([(7,)])))
        >>> trace.weights_of(ZSet.from_rows([(7,)])).tolist()
        [1]
        >>> trace.pop_overlay().total().delta, trace.weights_of(ZSet.from_rows([(7,)])).tolist()
        (ZSet({(7,): 1}), [0])
        """
        self._laid.append(step)
        for order, arrangement in self._arrangements.items():
            arrangement.spine.push_overlay(step.run(order))

    def pop_overlay(self) -> Overlaid:
        """Take away the steps that were laid; the trace is as it was."""
        steps, self._laid = self._laid, []
        runs = {order: a.spine.pop_overlay() for order, a in self._arrangements.items()}
        return Overlaid(self, steps, runs)

    def weights_of(self, rows: ZSet) -> Int64Array:
        """The current weight of each row of ``rows`` (its own weights do not matter), 0 if absent.

        Complexity:
            O(log n) per row and run.
        """
        check_type("rows", rows, ZSet, "a ZSet")
        if rows.arity != self.arity:
            raise ArityError(
                f"the rows have arity {rows.arity}, the trace {self.arity}; project them"
            )
        arrangement = self._any_arrangement()
        weights: Int64Array = row_weights(
            rows._rows, order_array(arrangement.order), arrangement.spine.table
        )
        return weights

    def to_zset(self) -> ZSet:
        """All rows with their weights.

        Complexity:
            O(n).
        """
        arrangement = self._any_arrangement()
        pieces = []
        for run in arrangement.spine.runs:
            columns, weights = run.read()
            rows = np.empty_like(columns)
            rows[list(arrangement.order)] = columns
            pieces.append((rows, weights))
        if not pieces:
            return ZSet.empty(self.arity)
        return consolidated_rows(
            np.concatenate([rows for rows, _ in pieces], axis=1),
            np.concatenate([weights for _, weights in pieces]),
        )

    def _check_order(self, order: ColumnOrder) -> None:
        if sorted(order) != list(range(self.arity)):
            raise ArityError(
                f"order {order} is not a permutation of the columns 0 … {self.arity - 1}"
            )

    def _any_arrangement(self) -> Arrangement:
        for arrangement in self._arrangements.values():
            return arrangement
        raise DbspWcojError("the trace has no arrangement, so it keeps no rows; arrange it first")
