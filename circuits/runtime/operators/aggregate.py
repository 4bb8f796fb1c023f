"""Aggregate: per key one row of counts, sums, means, least and greatest values.

::

    aggregate(Z)     = {(key, results of Z's rows of that key): 1 for each key with Σ weights > 0}
    aggregate^Δ(d)   = aggregate(I(d)) - aggregate(z⁻¹(I(d)))        of the keys that d touches only

An example stream, ``count(*), min(x)`` of the rows (key, x)::

    input     {(7,3): +1, (7,5): +1}    {(7,3): -1}                  {(7,5): -1}
    output    {(7,2,3): +1}             {(7,2,3): -1, (7,1,5): +1}   {(7,1,5): -1}

Without keys there is exactly one row, also of no input: it comes with the first step.

State: what is linear (count, sum, avg) is the weights of one small trace (`linear_aggregate`),
min and max have an ordered trace of their values each (`extreme`), and the ``distinct`` ones the
trace of their rows, of which the changes of the set go on to the linear one. A step reads the old
and the new state of the touched keys at once; all results follow from that by whole columns.

Weights may be of any sign at any time. A count is the sum of the weights; a sum or mean of a
column whose count is 0 is NULL; min, max and distinct see what has positive weight.

Cost: O(log N) per touched key, run and slot; never the size of a group, texts that share their
first bytes excepted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from circuits.plan.nodes import Aggregate
from circuits.runtime.operators.distinct import DistinctOperator, to_set
from circuits.runtime.operators.exact_sum import Digits
from circuits.runtime.operators.groups import changed_rows, grouped, touched
from circuits.runtime.operators.linear_aggregate import LinearAggregate
from circuits.runtime.operators.min_max import MinMax
from circuits.runtime.operators.operator import Result, StepContext
from circuits.types.codecs.arrow_buffers import BoolArray
from circuits.types.codecs.codec import NULL, Codec, Codecs, dictionary_columns
from dbsp_wcoj import Trace, ZSet
from dbsp_wcoj.storage.trace import Staged, StagedGroup
from dbsp_wcoj.zset import Int64Array, consolidated_rows

__all__ = ["AggregateOperator"]


class AggregateOperator:
    """The aggregates of groups of rows.

    Args:
        plan: The aggregates; `circuits.plan.nodes.Aggregate` states what they mean.
        codecs: The codes of values.

    >>> import pyarrow as pa
    >>> from circuits.plan.nodes import AggregateCall, Field, Scan
    >>> number = pa.int64()
    >>> plan = Aggregate(
    ...     Scan("r", (Field("key", number), Field("x", number))),
    ...     keys=(0,),
    ...     aggregates=(
    ...         AggregateCall("count", None, number, "n"),
    ...         AggregateCall("min", 1, number, "least"),
    ...     ),
    ... )
    >>> AggregateOperator(plan, Codecs()).evaluate([ZSet.from_rows([(7, 3), (7, 5)])])
    ZSet({(7, 2, 3): 1})
    """

    def __init__(self, plan: Aggregate, codecs: Codecs) -> None:
        self.keys = plan.keys
        self.calls = plan.aggregates
        inputs = [codecs.codec(field.type) for field in plan.input.fields]
        self._linear = LinearAggregate(
            inputs,
            self.keys,
            [(c, codecs.codec(c.type)) for c in self.calls if c.function not in ("min", "max")],
        )
        self._sets = {
            c: DistinctOperator(len(self.keys) + 1, to_set) for c in self._linear.distinct
        }
        self._extremes: dict[tuple[str, int], MinMax] = {}
        for call in self.calls:
            if call.function in ("min", "max") and call.argument is not None:
                extreme = MinMax(inputs, self.keys, call)
                self._extremes.setdefault((call.function, call.argument), extreme)
        self.traces: tuple[Trace, ...] = (
            self._linear.trace,
            *(one.trace for one in self._sets.values()),
            *(trace for one in self._extremes.values() for trace in one.rows.traces),
        )
        keys = dictionary_columns([inputs[key] for key in self.keys])
        values = [
            dictionary_columns([*(inputs[key] for key in self.keys), inputs[c]]) for c in self._sets
        ]
        self.coded: tuple[Mapping[int, Codec], ...] = (
            keys,
            *values,
            *(keys | one.coded for one in self._extremes.values() for _ in one.rows.traces),
        )

    def evaluate(self, inputs: Sequence[ZSet]) -> ZSet:
        """The rows of all groups of a whole Z-set."""
        (zset,) = inputs
        sets = {
            column: cut.evaluate([self._values(zset, column)]) for column, cut in self._sets.items()
        }
        sources = [self._linear.spread(zset, sets)]
        sources += [_positive(extreme.arranged(zset)) for extreme in self._extremes.values()]
        groups, places = grouped(sources, len(self.keys))
        n = groups.shape[1]
        linear = Digits(places[0], sources[0].row_array[-1], sources[0].weight_array)
        k = len(self.keys)
        best = [
            extreme.best(n, place, source.row_array[k:])
            for extreme, place, source in zip(
                self._extremes.values(), places[1:], sources[1:], strict=True
            )
        ]
        exists, columns = self._results(n, linear, best)
        rows = np.concatenate((groups, columns))[:, exists]
        return consolidated_rows(rows, np.ones(rows.shape[1], np.int64))

    def prepare(self, deltas: Sequence[ZSet], context: StepContext) -> Result:
        """How the rows of the touched groups change; without keys the first step brings the row.

        Raises:
            WeightOverflowError: A weight of the state would leave int64.
            EvaluationError: A sum is beyond the type of the result.
        """
        (delta,) = deltas
        initial = context.first and not self.keys
        if not len(delta) and not initial:
            return ZSet.empty(len(self.keys) + len(self.calls)), None
        staged: list[Staged] = []
        sets = {}
        for column, cut in self._sets.items():
            sets[column], step = cut.prepare([self._values(delta, column)], context)
            if step is not None:
                staged.append(step)
        prefixes = touched(delta, self.keys)
        n = prefixes.shape[1]
        linear = self._linear.read(prefixes, self._linear.spread(delta, sets), staged)
        best = [
            self._read_extreme(extreme, prefixes, extreme.arranged(delta), staged)
            for extreme in self._extremes.values()
        ]
        exists, columns = self._results(2 * n, linear, best)
        return changed_rows(prefixes, exists, columns, initial=initial), StagedGroup(staged)

    def _read_extreme(
        self, extreme: MinMax, prefixes: Int64Array, delta: ZSet, staged: list[Staged]
    ) -> Int64Array:
        """The old, then the new extremes of the touched groups."""
        n = prefixes.shape[1]
        found, steps = extreme.rows.prepare(delta, prefixes)
        staged += steps
        old, new = np.flatnonzero(found.old), np.flatnonzero(found.new)
        return extreme.best(
            2 * n,
            np.concatenate((found.places[old], found.places[new] + n)),
            np.concatenate((found.rows[:, old], found.rows[:, new]), axis=1),
        )

    def _results(
        self, n: int, linear: Digits, best: Sequence[Int64Array]
    ) -> tuple[BoolArray, Int64Array]:
        """Which groups exist, and the codes of all calls, shape ``(calls, n)``."""
        exists, counted = self._linear.results(n, linear, always=not self.keys)
        extremes = dict(zip(self._extremes, best, strict=True))
        remaining = iter(counted)
        columns = np.full((len(self.calls), n), NULL)
        for row, call in enumerate(self.calls):
            if call.argument is not None and (call.function, call.argument) in extremes:
                columns[row] = extremes[call.function, call.argument]
            else:
                columns[row] = next(remaining)
        return exists, columns

    def _values(self, zset: ZSet, column: int) -> ZSet:
        """The rows (keys, value) where the value is not NULL."""
        rows = zset.row_array[[*self.keys, column]]
        there = np.flatnonzero(rows[-1] != NULL)
        return consolidated_rows(rows[:, there], zset.weight_array[there])


def _positive(zset: ZSet) -> ZSet:
    """The rows of positive weight."""
    kept = np.flatnonzero(zset.weight_array > 0)
    return ZSet(zset.row_array[:, kept], zset.weight_array[kept])
