"""Ordered aggregates: functions of the rows of a group in an order, read from an ordered trace.

::

    first(x order by y)[key]    = x of the first row of the key; min_by, max_by, last, any_value
    quantile(x, q)[key]         = the value at a rank among the values of the key, in order
    string_agg(x order by y)    = the texts of the key in order, with a separator
    mode(x)                     = the value of the greatest weight; of several the least

State: the rows (key columns, ordered columns) of each call (`row_order`, `ordered_rows`). Columns
that are not in the order break ties, ascending, so a result depends only on the rows of the group.
``first`` reads the first row of a changed group, and a quantile the rows at its rank
(`ranked_rows`). The others read all distinct rows of a changed group and compute its result again,
for all groups together and by column (`group_functions`); quantiles do this, too, for texts and
other values that the sort columns do not tell apart (`sort_columns`). All quantiles of one order
share the rows.

Cost: O(log N) per changed group and run for ``first``, and O(log N) searches per run for a
quantile; O(distinct rows of the changed groups) for the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from circuits.plan.nodes import AggregateCall, Fields, Order
from circuits.runtime.operators.aggregates.group_functions import (
    GROUP_FUNCTIONS,
    GroupedRows,
    size_overflow,
)
from circuits.runtime.operators.aggregates.ranked_rows import RankedRows
from circuits.runtime.operators.ordered_rows import OrderedRows
from circuits.runtime.operators.row_order import RowOrder
from circuits.runtime.row_batch import UnsortedRows
from circuits.types.codecs.codec import NULL, Codec, Codecs
from dbsp_wcoj import Budget, Trace, ZSet
from dbsp_wcoj.cached_property import cached_property
from dbsp_wcoj.storage.rank_search import RankSearch
from dbsp_wcoj.storage.trace import Staged
from dbsp_wcoj.zset import Int64Array, consolidated_rows

__all__ = ["OrderedAggregate", "state_key"]


# A size below it, plus a change of at most as much, wraps around to a negative number.
_SIZE_LIMIT: Final = 2**63


def state_key(call: AggregateCall) -> object:
    """Return a key that is equal for calls that can share the state of an `OrderedAggregate`."""
    if GROUP_FUNCTIONS[call.function].compute_by_rank is None:
        return call.key()
    return "ranks", call.argument, call.distinct, call.others, call.order


class OrderedAggregate:
    """The state and the results of ordered aggregates.

    Args:
        fields: The columns of the input.
        codecs: Encode values as int64 codes.
        keys: The columns that identify a group.
        calls: The aggregates; all have the same `state_key`.
    """

    def __init__(
        self, fields: Fields, codecs: Codecs, keys: Sequence[int], calls: Sequence[AggregateCall]
    ) -> None:
        call = calls[0]
        assert call.argument is not None
        self.calls = tuple(calls)
        self._functions = [GROUP_FUNCTIONS[call.function] for call in calls]
        function = self._functions[0]
        self._key_count = len(keys)
        # The arguments after the first (``call.others``) only leave out the rows in which they are
        # NULL, so they are not stored.
        values = list(dict.fromkeys((*(part.column for part in call.order), call.argument)))
        self._columns = [*keys, *values]
        self._required = list(call.others)
        if not function.keeps_nulls:
            self._required.append(call.argument)
        order = [
            Order(len(keys) + values.index(part.column), part.descending, part.nulls_first)
            for part in call.order
        ]
        columns = tuple(fields[column] for column in self._columns)
        self._order = RowOrder(columns, range(len(keys)), order, codecs, sorts_ties=True)
        self._argument = len(keys) + values.index(call.argument)
        self._argument_codec = codecs.codec(fields[call.argument].type)
        self._result_codecs = [codecs.codec(call.type) for call in calls]
        self._rows: OrderedRows | RankedRows
        if function.compute_by_rank is not None and self._order.tie_columns is None:
            self._rows = RankedRows(self._order.width, distinct=call.distinct)
        else:
            self._rows = OrderedRows(
                len(keys),
                self._order.width,
                limit=1 if function.reads_first else None,
                tie_columns=self._order.tie_columns,
            )

    @property
    def traces(self) -> tuple[Trace, ...]:
        """The traces of the state."""
        return self._rows.traces

    @property
    def coded_columns(self) -> dict[int, Codec]:
        """The columns of the trace whose codes come from a dictionary."""
        return self._order.coded_columns

    def to_stored_rows(self, zset: ZSet | UnsortedRows) -> ZSet:
        """Return the rows that the function reads, in the layout of the trace."""
        rows, weights = zset.row_array, zset.weight_array
        present = np.flatnonzero(np.all(rows[self._required] != NULL, axis=0))
        columns = rows[self._columns][:, present]
        return self._order.to_stored_rows(consolidated_rows(columns, weights[present]))

    def read(
        self, delta: ZSet, groups: Int64Array, budget: Budget
    ) -> tuple[Int64Array, list[Staged]]:
        """Return the old results of all groups, followed by the new results, and stage a delta.

        Args:
            delta: Rows of `to_stored_rows`.
            groups: The changed keys, sorted, shape ``(keys, n)``.
            budget: The limits of the step.

        Returns:
            The codes, shape ``(calls, 2 n)``, and the staged changes.

        Raises:
            WeightOverflowError: The positive weights of a group leave int64.
        """
        if isinstance(self._rows, OrderedRows):
            return self._rows.read_results(delta, groups, partial(self.results, budget=budget))
        self._check_weights(delta)
        old, new, staged = self._rows.prepare(delta)
        codes = [self._results_by_rank(search, groups) for search in (old, new)]
        return np.concatenate(codes, axis=1), staged

    def _check_weights(self, delta: ZSet) -> None:
        """Refuse a step that may change the size of a group by more than int64 holds."""
        weights = delta.weight_array
        if np.abs(weights.astype(np.float64)).sum() < _SIZE_LIMIT:
            return
        starts = self._order.group_starts(delta.row_array)
        magnitudes = np.add.reduceat(np.abs(weights.astype(object)), starts)  # exact
        if (magnitudes > _SIZE_LIMIT).any():
            raise size_overflow(self.calls[0])

    def _results_by_rank(self, search: RankSearch, groups: Int64Array) -> Int64Array:
        sizes = search.sizes(groups)
        # `_check_weights` has bounded the change, so a size that leaves int64 is negative.
        if (sizes < 0).any():
            raise size_overflow(self.calls[0])
        codes = []
        for call, function, result_codec in zip(
            self.calls, self._functions, self._result_codecs, strict=True
        ):
            assert function.compute_by_rank is not None
            ranked = _SearchedGroups(
                groups, sizes, search, self._codes, self._argument_codec, call, result_codec
            )
            codes.append(function.compute_by_rank(ranked))
        return np.stack(codes)

    def _codes(self, rows: Int64Array) -> Int64Array:
        """Return the codes of the argument in rows of the layout of the trace."""
        codes: Int64Array = self._order.to_input(rows)[self._argument]
        return codes

    def results(
        self,
        n: int,
        group_indices: Int64Array,
        rows: Int64Array,
        weights: Int64Array,
        budget: Budget | None = None,
    ) -> Int64Array:
        """Return the codes of the results of n groups; NULL for a group without rows.

        The result has shape ``(calls, n)``.

        Args:
            n: The number of groups.
            group_indices: The group of each row, ascending.
            rows: The columns of the rows after the keys, ascending within a group.
            weights: The weight of each row, above 0.
            budget: The limits of the step; None for no limits.

        Raises:
            LimitError: The texts or lists of the results exceed the limit of bytes.
        """
        if not len(group_indices):
            return np.full((len(self.calls), n), NULL)
        # The layout begins with the keys, whose values are not used below: zeros take their place.
        keys = np.zeros((self._key_count, rows.shape[1]), np.int64)
        rows = np.concatenate((keys, rows))
        if self._order.tie_columns is not None and len(group_indices) > 1:
            positions = self._order.sort_positions(group_indices, rows)
            rows, weights = rows[:, positions], weights[positions]
            group_indices = group_indices[positions]
        if self.calls[0].distinct:
            weights = np.ones(len(weights), np.int64)
        codes = self._codes(rows)
        return np.stack(
            [
                function.compute(
                    GroupedRows(
                        n,
                        group_indices,
                        weights,
                        codes,
                        self._argument_codec,
                        call,
                        result_codec,
                        budget,
                    )
                )
                for call, function, result_codec in zip(
                    self.calls, self._functions, self._result_codecs, strict=True
                )
            ]
        )


@dataclass(frozen=True)
class _SearchedGroups:
    """The values of groups, read by rank from a multiset (`group_functions.RankedGroups`).

    Attributes:
        groups: The keys of the groups, shape ``(keys, n)``.
        group_sizes: The sum of the weights of each group; 0 for a group without values.
        search: The multiset.
        codes_of: Returns the codes of the values in rows of the multiset.
        codec: The codec of the values.
        call: The aggregate.
        result: The codec of the result.
    """

    groups: Int64Array
    group_sizes: Int64Array
    search: RankSearch
    codes_of: Callable[[Int64Array], Int64Array]
    codec: Codec
    call: AggregateCall
    result: Codec

    @cached_property
    def present(self) -> Int64Array:
        """The groups that have values, ascending."""
        return np.flatnonzero(self.group_sizes > 0)

    @cached_property
    def sizes(self) -> Int64Array:
        """The sum of the weights of each group that has values."""
        sizes: Int64Array = self.group_sizes[self.present]
        return sizes

    def at_ranks(self, ranks: Int64Array) -> Int64Array:
        """Return the code at a rank, from 0, of each group that has values."""
        return self.codes_of(self.search.find(self.groups[:, self.present], ranks))

    def fill_all_groups(self, codes: Int64Array) -> Int64Array:
        """Return codes of all groups, given those of the groups that have values; else NULL."""
        result = np.full(len(self.group_sizes), NULL)
        result[self.present] = codes
        return result
