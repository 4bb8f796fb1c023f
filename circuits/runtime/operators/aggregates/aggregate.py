"""Aggregate: one row per key, with counts, sums, means, minima and maxima.

::

    aggregate(Z)     = {(key, results of Z's rows of that key): 1 for each key with Σ weights > 0}
    aggregate^Δ(d)   = aggregate(I(d)) - aggregate(z⁻¹(I(d)))        for the keys of rows of d only

An example stream, ``count(*), min(x)`` of the rows (key, x)::

    input     {(7,3): +1, (7,5): +1}    {(7,3): -1}                  {(7,5): -1}
    output    {(7,2,3): +1}             {(7,2,3): -1, (7,1,5): +1}   {(7,1,5): -1}

An aggregate without keys has exactly one row, even for an empty input. The first step inserts it.

State: count, sum, avg, variances and bit operations are linear: they are computed from sums, which
are stored as weights of rows of one small trace (`linear_aggregate`). A sum that may not fit one
weight is stored as the digits of a number with a large base (`exact_sum.Digits`), one row for each
digit. Each min and max has a trace with its values in order (`min_max`), and so have functions of
ordered rows, as first, quantiles and string_agg (`ordered_aggregate`). The columns that are
aggregated with ``distinct`` have traces of their values (`value_sets`); the linear aggregates then
read the delta of the sets of these values. A step reads the old and the new state of all changed
keys together and computes all results as whole columns.

Weights may have any sign at any time. A count is the sum of the weights. A sum or mean of a column
whose count is 0 is NULL. Min, max and distinct use only rows of positive weight.

Cost: O(log N) per changed key, per run of a trace, and per slot (a row of state of a linear
aggregate), and a few times more for a quantile. It does not depend on the size of a group, except
for min and max of strings that share their first bytes, and for functions that read all rows of a
group (`ordered_aggregate`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from circuits.plan.columns import LINEAR_FUNCTIONS
from circuits.plan.nodes import Aggregate, AggregateCall
from circuits.runtime.operators.aggregates.groups import changed_groups, changed_rows, group_rows
from circuits.runtime.operators.aggregates.linear_aggregate import LinearAggregate
from circuits.runtime.operators.aggregates.min_max import MinMax
from circuits.runtime.operators.aggregates.ordered_aggregate import OrderedAggregate, state_key
from circuits.runtime.operators.aggregates.value_sets import value_sets
from circuits.runtime.operators.operator import Result, StepContext
from circuits.runtime.row_batch import UnsortedRows
from circuits.types.codecs.arrow_buffers import BoolArray
from circuits.types.codecs.codec import Codec, Codecs, dictionary_columns
from dbsp_wcoj import Budget, Trace, ZSet
from dbsp_wcoj.storage.group_lookup import GroupSlots
from dbsp_wcoj.storage.trace import Staged, StagedGroup
from dbsp_wcoj.zset import Int64Array, consolidated_rows

__all__ = ["AggregateOperator"]


class AggregateOperator:
    """The aggregates of groups of rows.

    Args:
        plan: The aggregates; `circuits.plan.nodes.Aggregate` defines them.
        codecs: Encode values as int64 codes.

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

    # Each trace begins with the keys, so old groups can be dropped (see `Operator`).
    traces_begin_with_partitioning: ClassVar[bool] = True

    def __init__(self, plan: Aggregate, codecs: Codecs) -> None:
        self.keys = plan.keys
        self.calls = plan.aggregates
        self._input_arity = len(plan.input.fields)
        inputs = [codecs.codec(field.type) for field in plan.input.fields]
        self._linear = LinearAggregate(
            inputs,
            self.keys,
            [
                (call, codecs.codec(call.type))
                for call in self.calls
                if call.function in LINEAR_FUNCTIONS
            ],
        )
        # The sets of the values that are aggregated with ``distinct``.
        self._value_sets = value_sets(self.keys, self._linear.distinct_slots, inputs)
        # By `_state_key`, because calls share a state; then by `_result_key`, because equal calls
        # are computed once.
        calls_by_state: dict[object, dict[object, AggregateCall]] = {}
        for call in self.calls:
            if call.function not in LINEAR_FUNCTIONS:
                calls_by_result = calls_by_state.setdefault(_state_key(call), {})
                calls_by_result.setdefault(_result_key(call), call)
        self._ordered_aggregates: list[MinMax | OrderedAggregate] = []
        for calls_by_result in calls_by_state.values():
            calls_of_state = list(calls_by_result.values())
            self._ordered_aggregates.append(
                MinMax(inputs, self.keys, calls_of_state[0])
                if calls_of_state[0].function in ("min", "max")
                else OrderedAggregate(plan.input.fields, codecs, self.keys, calls_of_state)
            )
        self.traces: tuple[Trace, ...] = (
            self._linear.trace,
            *(sets.trace for sets in self._value_sets),
            *(trace for ordered in self._ordered_aggregates for trace in ordered.traces),
        )
        key_codecs = [inputs[key] for key in self.keys]
        coded_keys = dictionary_columns(key_codecs)
        self.coded_columns: tuple[Mapping[int, Codec], ...] = (
            coded_keys,
            *(sets.coded_columns for sets in self._value_sets),
            *(
                coded_keys | ordered.coded_columns
                for ordered in self._ordered_aggregates
                for _ in ordered.traces
            ),
        )

    def evaluate(self, inputs: Sequence[ZSet], budget: Budget | None = None) -> ZSet:
        """Compute the result rows of all groups of a whole Z-set.

        Raises:
            EvaluationError: A sum does not fit the type of the result.
            LimitError: The texts or lists of the results exceed the limit of bytes.
        """
        (zset,) = inputs
        value_rows = [sets.evaluate(zset) for sets in self._value_sets]
        slot_rows = self._linear.partial_rows(zset.row_array, zset.weight_array, value_rows)
        ordered_rows = [
            _positive_rows(ordered.to_stored_rows(zset)) for ordered in self._ordered_aggregates
        ]
        groups, group_indices = group_rows([slot_rows, *ordered_rows], len(self.keys))
        n = groups.shape[1]
        linear_state = GroupSlots(group_indices[0], slot_rows.row_array[-1], slot_rows.weight_array)
        k = len(self.keys)
        ordered_codes = [
            ordered.results(n, indices, rows.row_array[k:], rows.weight_array, budget)
            for ordered, indices, rows in zip(
                self._ordered_aggregates, group_indices[1:], ordered_rows, strict=True
            )
        ]
        exists, columns = self._results(n, linear_state, ordered_codes)
        result = np.concatenate((groups, columns))[:, exists]
        return consolidated_rows(result, np.ones(result.shape[1], np.int64))

    def prepare(self, deltas: Sequence[ZSet | UnsortedRows], context: StepContext) -> Result:
        """Compute the change of the result rows of the groups in the delta.

        The rows of the delta may be in any order. The first step also inserts the one row of an
        aggregate without keys.

        Raises:
            WeightOverflowError: A weight of the state would leave int64.
            EvaluationError: A sum does not fit the type of the result.
            LimitError: The texts or lists of the results exceed the limit of bytes.
        """
        (delta,) = deltas
        initial = context.first and not self.keys
        if not len(delta) and not initial:
            return ZSet.empty(len(self.keys) + len(self.calls)), None
        if self.is_sliceable:
            partial = self._linear.partial_rows(delta.row_array, delta.weight_array, ())
            return self.prepare_partial(partial, context)
        staged: list[Staged] = []
        value_deltas = []
        for sets in self._value_sets:
            value_delta, change = sets.prepare(delta, context)
            value_deltas.append(value_delta)
            if change is not None:
                staged.append(change)
        slot_rows = self._linear.partial_rows(delta.row_array, delta.weight_array, value_deltas)
        if self._ordered_aggregates:
            groups = changed_groups(delta, self.keys)
        elif len(slot_rows) or initial:  # a group whose slots do not change has the same results
            groups = changed_groups(slot_rows, range(len(self.keys)))
        else:
            return ZSet.empty(len(self.keys) + len(self.calls)), StagedGroup(staged)
        return self._prepare_groups(groups, delta, slot_rows, staged, context)

    @property
    def is_sliceable(self) -> bool:
        """True if all calls are linear, so that `partial_rows` contains all that they need."""
        return not self._value_sets and not self._ordered_aggregates

    @property
    def sorts_whole_rows(self) -> bool:
        """True if the aggregate sorts rows (keys, value), and its input has no other columns.

        Then it takes less time if its input is sorted already.
        """
        if len(self._ordered_aggregates) != 1 or self._value_sets:
            return False
        return self._input_arity == len(self.keys) + 1 and self.keys == tuple(range(len(self.keys)))

    @property
    def partial_arity(self) -> int:
        """The number of columns of the partial aggregate."""
        return len(self.keys) + 1

    def partial_rows(self, rows: Int64Array, weights: Int64Array) -> ZSet:
        """Compute the partial aggregate of a slice of the rows, which may be in any order."""
        return self._linear.partial_rows(rows, weights, ())

    def prepare_partial(self, partial: ZSet, context: StepContext) -> Result:
        """Return the result of `prepare`, given the sum of `partial_rows` of the delta.

        The partial aggregate has no row of a group of the delta whose state does not change.
        """
        if not len(partial) and not (context.first and not self.keys):
            return ZSet.empty(len(self.keys) + len(self.calls)), None
        groups = changed_groups(partial, range(len(self.keys)))
        return self._prepare_groups(groups, partial, partial, [], context)

    def _prepare_groups(
        self,
        groups: Int64Array,
        delta: ZSet | UnsortedRows,
        slot_rows: ZSet,
        staged: list[Staged],
        context: StepContext,
    ) -> Result:
        """Compute the change of the result rows of some groups, and stage the new state.

        Args:
            groups: The distinct keys of the delta.
            delta: The delta, for ordered aggregates.
            slot_rows: The partial aggregate of the delta.
            staged: The changes of other state; they become part of the result.
            context: The step.
        """
        initial = context.first and not self.keys
        n = groups.shape[1]
        linear_state = self._linear.read(groups, slot_rows, staged)
        ordered_codes = []
        for ordered in self._ordered_aggregates:
            codes, changes = ordered.read(ordered.to_stored_rows(delta), groups, context.budget)
            ordered_codes.append(codes)
            staged += changes
        # The n groups before the step, then the n groups after it.
        exists, columns = self._results(2 * n, linear_state, ordered_codes)
        return changed_rows(groups, exists, columns, initial=initial), StagedGroup(staged)

    def _results(
        self, n: int, linear_state: GroupSlots, ordered_codes: Sequence[Int64Array]
    ) -> tuple[BoolArray, Int64Array]:
        """Return the results of n groups.

        Args:
            n: The number of groups.
            linear_state: The state of the linear aggregates.
            ordered_codes: The codes of the results of each ordered aggregate, ``(calls, n)``.

        Returns:
            A mask of the groups that exist, and the codes of all calls, shape ``(calls, n)``.
        """
        exists, linear_codes = self._linear.results(n, linear_state, always_exists=not self.keys)
        if not self._ordered_aggregates:
            return exists, linear_codes
        codes_by_result = {
            _result_key(call): codes
            for aggregate, call_codes in zip(self._ordered_aggregates, ordered_codes, strict=True)
            for call, codes in zip(aggregate.calls, call_codes, strict=True)
        }
        next_linear_codes = iter(linear_codes)
        columns = np.empty((len(self.calls), n), np.int64)
        for row, call in enumerate(self.calls):
            if call.function in LINEAR_FUNCTIONS:
                columns[row] = next(next_linear_codes)
            else:
                columns[row] = codes_by_result[_result_key(call)]
        return exists, columns


def _result_key(call: AggregateCall) -> object:
    """Return a key that is equal for calls with the same results."""
    return (call.function, call.argument) if call.function in ("min", "max") else call.key()


def _state_key(call: AggregateCall) -> object:
    """Return a key that is equal for calls that share their state."""
    return _result_key(call) if call.function in ("min", "max") else state_key(call)


def _positive_rows(zset: ZSet) -> ZSet:
    """Return the rows of positive weight."""
    positive = np.flatnonzero(zset.weight_array > 0)
    return ZSet(zset.row_array[:, positive], zset.weight_array[positive])
