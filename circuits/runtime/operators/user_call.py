"""User call: appends the result of a user-defined function to each row, and stores it.

::

    call(Z)[x, f(x)]  =  Z[x],   so   call^Δ(d)[x, r(x)] = d[x]

r(x) is the result that the state stores for the arguments of x. If it stores none, the function is
called once for these arguments. An example stream of rows (id, x), for a random function::

    input     {(1, a): +1, (2, a): +1}                {(1, a): -1}           {(2, a): -1}
    called    a -> 0.7
    output    {(1, a, 0.7): +1, (2, a, 0.7): +1}      {(1, a, 0.7): -1}      {(2, a, 0.7): -1}

After the last step the result is forgotten: a later row with ``a`` calls the function again.

State: one trace of the rows, as (arguments, result, other columns). So a result stays as long as
a row of a weight that is not zero has its arguments, whatever the weights of these rows add up to.
Rows with a NULL among the arguments are not stored if the function is not called for them.

Cost: for a delta of |d| rows, O(|d| log N) and one call for each combination of arguments that is
new. Alternative considered: a trace of arguments and results only, with the sum of the weights. It
is smaller, but forgets a result whose rows have weights that cancel out, such as an insertion and
the deletion of a row that has yet to arrive.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from circuits.errors import SchemaError, UserFunctionError
from circuits.excerpt import shorten
from circuits.plan.user_call import UserCall
from circuits.runtime.operators.operator import Result, StepContext
from circuits.types.codecs.codec import NULL, Codecs, dictionary_columns
from circuits.user_functions import FailedCall
from dbsp_wcoj import Trace, ZSet
from dbsp_wcoj.limits import Budget
from dbsp_wcoj.storage.prefix_lookup import prefix_lookup
from dbsp_wcoj.zset import Int64Array, consolidated_rows

__all__ = ["UserCallOperator"]

# How many characters of each value the error of a failed call shows.
_MAX_VALUE_CHARACTERS: Final = 100


class UserCallOperator:
    """Adds the results of a function, and stores the rows that it was called for.

    Attributes:
        plan: The call.
        trace: The rows that the function was called for, as the module describes them.
        known_results: Rows as in ``trace``, whose results are used for arguments that ``trace``
            does not have: those of an equal operator in a backfill, those of the first computation
            if a step is computed twice; else None.
    """

    def __init__(self, plan: UserCall, codecs: Codecs) -> None:
        fields = plan.input.fields
        self.plan = plan
        self._columns = [codecs.codec(field.type) for field in fields]
        self._result = codecs.codec(plan.function.returns)
        self._arguments = list(dict.fromkeys(plan.arguments))
        self._others = [column for column in range(len(fields)) if column not in self._arguments]
        self.trace = Trace(len(fields) + 1)
        self.known_results: Trace | None = None
        self.traces = (self.trace,)
        trace_codecs = [self._columns[column] for column in self._arguments]
        trace_codecs += [self._result, *(self._columns[column] for column in self._others)]
        self.coded_columns = (dictionary_columns(trace_codecs),)

    def evaluate(self, inputs: Sequence[ZSet]) -> ZSet:
        """Call the function for a whole Z-set, without stored results.

        Raises:
            UserFunctionError: A call failed.
        """
        (zset,) = inputs
        if not len(zset):
            return ZSet.empty(len(self._columns) + 1)
        called_rows, groups, group_of_row = self._group(zset)
        results = np.full(len(zset), NULL)
        results[called_rows] = self._call(groups, zset, None)[group_of_row]
        return _with_results(zset, results)

    def prepare(self, deltas: Sequence[ZSet], context: StepContext) -> Result:
        """Return the delta with results, and stage its rows.

        Raises:
            UserFunctionError: A call failed.
            WeightOverflowError: The total weight of a row would leave int64.
        """
        (delta,) = deltas
        if not len(delta):
            return ZSet.empty(len(self._columns) + 1), None
        called_rows, groups, group_of_row = self._group(delta)
        results = np.full(len(delta), NULL)
        if not len(called_rows):
            return _with_results(delta, results), None
        codes, is_known = self._look_up_results(groups)
        if not is_known.all():
            codes[~is_known] = self._call(groups[:, ~is_known], delta, context.budget)
        results[called_rows] = codes[group_of_row]
        rows = delta.row_array
        staged = self.trace.prepare(self._stored_rows(rows, results, delta, called_rows))
        return _with_results(delta, results), staged

    def use_results_of(self, delta: ZSet) -> None:
        """Set ``known_results`` to the results in a delta that `prepare` has returned."""
        rows, results = delta.row_array[:-1], delta.row_array[-1]
        stored = self._stored_rows(rows, results, delta, self._group(delta)[0])
        known = Trace(stored.arity)
        if len(stored):
            known.update(stored)
        self.known_results = known

    def _stored_rows(
        self, rows: Int64Array, results: Int64Array, delta: ZSet, called_rows: Int64Array
    ) -> ZSet:
        """Return the rows of a delta for which the function is called, as the trace stores them."""
        stored = np.concatenate((rows[self._arguments], results[None], rows[self._others]))
        stored = np.ascontiguousarray(stored[:, called_rows])
        return consolidated_rows(stored, delta.weight_array[called_rows].copy())

    def _group(self, zset: ZSet) -> tuple[Int64Array, Int64Array, Int64Array]:
        """Group the rows that the function is called for by their arguments.

        Returns:
            The indices of these rows; their distinct arguments, shape ``(arguments, groups)``; and
            for each of these rows, the number of its group.
        """
        arguments = zset.row_array[self._arguments]
        called_rows = np.arange(len(zset))
        if not self.plan.function.call_on_null:
            called_rows = np.flatnonzero((arguments != NULL).all(axis=0))
        arguments = arguments[:, called_rows]
        order = np.lexsort(arguments[::-1])
        ordered = arguments[:, order]
        is_first = np.ones(len(order), bool)
        is_first[1:] = (ordered[:, 1:] != ordered[:, :-1]).any(axis=0)
        group_of_row = np.empty(len(order), np.int64)
        group_of_row[order] = np.cumsum(is_first) - 1
        return called_rows, np.ascontiguousarray(ordered[:, is_first]), group_of_row

    def _look_up_results(self, groups: Int64Array) -> tuple[Int64Array, np.ndarray]:
        """Return the stored result of each combination of arguments, and a mask of the known ones.

        The result is the first column after the arguments in the trace.
        """
        codes, is_known = _look_up(self.trace, groups)
        if self.known_results is not None and not is_known.all():
            missing = np.flatnonzero(~is_known)
            codes[missing], is_known[missing] = _look_up(
                self.known_results, np.ascontiguousarray(groups[:, missing])
            )
        return codes, is_known

    def _call(self, groups: Int64Array, zset: ZSet, budget: Budget | None) -> Int64Array:
        """Return the codes of the results for distinct arguments.

        ``zset`` has the rows with these arguments, for the error of a failed call.
        """
        plan = self.plan
        arguments = [
            self._columns[column].decode(groups[self._arguments.index(column)])
            for column in plan.arguments
        ]
        try:
            results = plan.function.compute(arguments)
            if budget is not None:
                budget.add_bytes(results.nbytes)
            return self._result.encode(results)
        except FailedCall as failure:
            raise self._error(failure, arguments, groups, zset) from failure.__cause__
        except SchemaError as error:
            raise self._error(FailedCall(str(error), None), arguments, groups, zset) from error

    def _error(
        self, failure: FailedCall, arguments: Sequence[pa.Array], groups: Int64Array, zset: ZSet
    ) -> UserFunctionError:
        plan = self.plan
        call, row = f"{plan.name}()", ""
        if failure.row is not None:
            call = f"{plan.name}({', '.join(_show(array, failure.row) for array in arguments)})"
            failed_group = groups[:, failure.row : failure.row + 1]
            position = int(
                np.flatnonzero((zset.row_array[self._arguments] == failed_group).all(axis=0))[0]
            )
            values = [
                _show(codec.decode(codes), 0)
                for codec, codes in zip(
                    self._columns, zset.row_array[:, position : position + 1], strict=True
                )
            ]
            pairs = zip(plan.input.fields, values, strict=True)
            row = f"; the row: {', '.join(f'{field.name} = {value}' for field, value in pairs)}"
        return UserFunctionError(
            f"view {plan.view!r}: the user-defined function {call} failed: {failure.reason}{row}; "
            "exclude such rows, or catch the error in the function"
        )


def _show(array: pa.Array, row: int) -> str:
    try:
        text = repr(array[row].as_py())
    except (ValueError, OverflowError):
        text = str(array[row])
    return shorten(text, _MAX_VALUE_CHARACTERS)


def _look_up(trace: Trace, groups: Int64Array) -> tuple[Int64Array, np.ndarray]:
    """Return the result that a trace has for each combination of arguments, and which it has."""
    codes = np.empty(groups.shape[1], np.int64)
    is_known = np.zeros(groups.shape[1], bool)
    first_rows = prefix_lookup(trace, groups, limit=1)
    codes[first_rows.prefix_index], is_known[first_rows.prefix_index] = first_rows.rows[0], True
    if is_known.all() or trace.is_empty:
        return codes, is_known
    # Arguments whose rows all have negative weights: deletions of rows that have yet to arrive.
    missing = np.flatnonzero(~is_known)
    negative = prefix_lookup(trace, np.ascontiguousarray(groups[:, missing]), signed=True)
    negative_groups = missing[negative.prefix_index[negative.old != 0]]
    codes[negative_groups], is_known[negative_groups] = (
        negative.rows[0][negative.old != 0],
        True,
    )
    return codes, is_known


def _with_results(zset: ZSet, results: Int64Array) -> ZSet:
    """Return the rows with one more column, which keeps them sorted and distinct."""
    rows = np.concatenate((zset.row_array, results[None]))
    return ZSet(rows, zset.weight_array)
