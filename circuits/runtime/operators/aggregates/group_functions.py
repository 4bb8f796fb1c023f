"""Group functions: functions of the ordered values of groups, for all groups at once.

A function gets the values of all groups as columns: the group, the weight and the code of each
value. They are sorted by group, and within a group in the order in which the aggregate reads them.
The function returns one code per group; a group without values has NULL.
A function that reads only values at ranks gets them from `RankedGroups`, without the other values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from circuits.errors import EvaluationError
from circuits.plan.nodes import AggregateCall
from circuits.runtime.operators.ordered_rows import first_positions
from circuits.types.codecs.arrow_buffers import expand_encoding
from circuits.types.codecs.codec import NULL, Codec
from circuits.types.functions.numbers.interpolation import (
    interpolate_floats,
    interpolate_integers,
)
from dbsp_wcoj import WeightOverflowError
from dbsp_wcoj.cached_property import cached_property
from dbsp_wcoj.limits import WORD_BYTES, Budget
from dbsp_wcoj.values.bitcast import codes_of, values_of
from dbsp_wcoj.zset import Int64Array

__all__ = ["GROUP_FUNCTIONS", "GroupFunction", "GroupedRows", "RankedGroups", "size_overflow"]

# The maximum number of values that a group adds to one text or list: a value of weight w is added
# w times.
_MAX_COPIES: Final = 2**31 - 1
_MAX_INT64: Final = 2.0**63


class RankedGroups(Protocol):
    """The values of groups, read at their ranks.

    Attributes:
        codec: The codec of the values.
        call: The aggregate.
        result: The codec of the result.
    """

    @property
    def codec(self) -> Codec: ...

    @property
    def call(self) -> AggregateCall: ...

    @property
    def result(self) -> Codec: ...

    @property
    def sizes(self) -> Int64Array:
        """The sum of the weights of each group that has values."""

    def at_ranks(self, ranks: Int64Array) -> Int64Array:
        """Return the code at a rank, from 0, of each group that has values."""

    def fill_all_groups(self, codes: Int64Array) -> Int64Array:
        """Return codes of all groups, given those of the groups that have values; else NULL."""


@dataclass(frozen=True)
class GroupedRows:
    """At least one value in n groups, sorted by group, then in the order of the aggregate.

    Attributes:
        n: The number of groups.
        groups: The group of each value, ascending.
        weights: The weight of each value, above 0.
        codes: The code of each value.
        codec: The codec of the values.
        call: The aggregate.
        result: The codec of the result.
        budget: The limits of the step; None for no limits.
    """

    n: int
    groups: Int64Array
    weights: Int64Array
    codes: Int64Array
    codec: Codec
    call: AggregateCall
    result: Codec
    budget: Budget | None = None

    @cached_property
    def starts(self) -> Int64Array:
        """The position of the first value of each group that has values."""
        return first_positions(self.groups)

    @cached_property
    def non_empty_groups(self) -> Int64Array:
        """The groups that have values, ascending."""
        groups: Int64Array = self.groups[self.starts]
        return groups

    @cached_property
    def sizes(self) -> Int64Array:
        """The sum of the weights of each group that has values.

        Raises:
            WeightOverflowError: A sum does not fit in int64.
        """
        sizes: Int64Array = np.add.reduceat(self.weights, self.starts)
        # A sum that has wrapped around is far from the sum of the weights as floats.
        approximate = np.add.reduceat(self.weights.astype(np.float64), self.starts)
        if (np.abs(approximate - sizes) > _MAX_INT64).any():
            raise size_overflow(self.call)
        return sizes

    def fill_all_groups(self, codes: Int64Array) -> Int64Array:
        """Return codes of all groups, given those of the groups that have values; else NULL."""
        result = np.full(self.n, NULL)
        result[self.non_empty_groups] = codes
        return result

    def at_ranks(self, ranks: Int64Array) -> Int64Array:
        """Return the code at a rank, from 0, of each group that has values."""
        # The first value of the group up to which the weights exceed the rank. Sums over several
        # groups may wrap around; their differences within a group are right.
        counts = np.diff(np.append(self.starts, len(self.groups)))
        weights_up_to_values = np.cumsum(self.weights)
        weights_before_groups = np.cumsum(self.sizes) - self.sizes
        is_before = weights_up_to_values - np.repeat(weights_before_groups, counts) <= np.repeat(
            ranks, counts
        )
        positions = self.starts + np.add.reduceat(is_before.astype(np.int64), self.starts)
        codes: Int64Array = self.codes[positions]
        return codes

    def repeat_by_weight(self) -> tuple[Int64Array, Int64Array]:
        """Return the group and the position of each value, as often as its weight."""
        if int(self.sizes.max(initial=0)) > _MAX_COPIES:
            raise EvaluationError(
                f"{self.call.name} has more than {_MAX_COPIES} values in some group; aggregate "
                "fewer rows"
            )
        if self.budget is not None:  # the group, the position and the code of each copy
            self.budget.add_bytes(3 * WORD_BYTES * int(self.sizes.sum()))
        positions = np.repeat(np.arange(len(self.groups)), self.weights)
        return self.groups[positions], positions


def size_overflow(call: AggregateCall) -> WeightOverflowError:
    """Return the error for a group whose weights are more than int64 holds."""
    return WeightOverflowError(
        f"the positive weights in a group of {call.name} add up to more than int64 holds "
        f"({2**63 - 1}); give smaller weights, or group by more columns"
    )


@dataclass(frozen=True)
class GroupFunction:
    """A function of the values of groups.

    Attributes:
        compute: Returns the code of each group's result.
        reads_first: True if the first row of a group is enough.
        keeps_nulls: True if a value may be NULL; else the rows with NULL are left out.
        compute_by_rank: The same as ``compute``, from the values at some ranks; None if the
            function reads all values.
    """

    compute: Callable[[GroupedRows], Int64Array]
    reads_first: bool = False
    keeps_nulls: bool = False
    compute_by_rank: Callable[[RankedGroups], Int64Array] | None = None


def _first(rows: GroupedRows) -> Int64Array:
    return rows.fill_all_groups(rows.codes[rows.starts])


def _mode(rows: GroupedRows) -> Int64Array:
    # By group, then by weight, greatest first. The groups begin at the same positions as before.
    order = np.lexsort((np.arange(len(rows.groups)), -rows.weights, rows.groups))
    return rows.fill_all_groups(rows.codes[order[rows.starts]])


def _fraction(rows: RankedGroups) -> float:
    return float(rows.call.options[0])


def _whole(numbers: np.ndarray, limits: Int64Array) -> Int64Array:
    """Return whole floats, which may exceed int64, as integers; each is at most its limit."""
    is_int64 = numbers < _MAX_INT64
    return np.where(
        is_int64, np.minimum(np.where(is_int64, numbers, 0).astype(np.int64), limits), limits
    )


def _quantile_disc(rows: RankedGroups) -> Int64Array:
    """The first value at which the share of values up to it reaches the fraction."""
    sizes = rows.sizes
    # The number of values that follow the result is rounded down. Floating point may miss a whole
    # number by a little, as in 100 * 0.07 = 7.000000000000001, so an almost whole number is whole.
    values_after = sizes - sizes * _fraction(rows)
    nearest = np.rint(values_after)
    is_whole = abs(values_after - nearest) <= 1e-9 * np.maximum(nearest, 1)
    count_after = _whole(np.where(is_whole, nearest, np.floor(values_after)), sizes)
    ranks = np.maximum(1, sizes - count_after) - 1
    return rows.fill_all_groups(rows.at_ranks(ranks))


def _quantile_cont(rows: RankedGroups) -> Int64Array:
    """The value at a fraction of the way from the first to the last value, interpolated."""
    rank = (rows.sizes - 1) * _fraction(rows)  # seldom whole: between the low and the high rank
    low_rank = np.floor(rank)
    share = rank - low_rank
    low_codes = rows.at_ranks(_whole(low_rank, rows.sizes - 1))
    high_codes = rows.at_ranks(_whole(np.ceil(rank), rows.sizes - 1))
    data_type = rows.codec.type
    if pa.types.is_floating(data_type):
        dtype = np.dtype(f"f{data_type.bit_width // 8}")
        low = values_of(low_codes, dtype).astype(np.float64)
        high = values_of(high_codes, dtype).astype(np.float64)
        values = interpolate_floats(low, high, share)
        return rows.fill_all_groups(codes_of(values.astype(f"f{rows.result.type.bit_width // 8}")))
    # A code of any other type is a whole number, such as of microseconds.
    return rows.fill_all_groups(interpolate_integers(low_codes, high_codes, share, data_type))


def _product(rows: GroupedRows) -> Int64Array:
    dtype = np.dtype(f"f{rows.codec.type.bit_width // 8}")
    numbers = values_of(rows.codes, dtype).astype(np.float64)
    with np.errstate(all="ignore"):
        powers = np.where(rows.weights == 1, numbers, numbers ** rows.weights.astype(np.float64))
        products = np.multiply.reduceat(powers, rows.starts)
    return rows.fill_all_groups(codes_of(products))


def _string_agg(rows: GroupedRows) -> Int64Array:
    values = pc.cast(expand_encoding(rows.codec.decode(rows.codes)), pa.large_string())
    if rows.budget is not None:
        # Counted before the texts are repeated, because the copies may be far larger: each text is
        # copied as often as its weight says, in each of its groups.
        separator_bytes = len(rows.call.options[0].encode())
        lengths = pc.binary_length(values).to_numpy() + separator_bytes
        rows.budget.add_bytes(int((lengths * rows.weights.astype(np.float64)).sum()))
    groups, positions = rows.repeat_by_weight()
    texts = values.take(pa.array(positions))
    offsets = np.append(first_positions(groups), len(groups))
    lists = pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), texts)
    separator = pa.scalar(rows.call.options[0], pa.large_string())
    joined = pc.binary_join(lists, separator)
    return rows.fill_all_groups(rows.result.encode(pc.cast(joined, rows.result.type)))


def _list(rows: GroupedRows) -> Int64Array:
    groups, positions = rows.repeat_by_weight()
    values = rows.codec.decode(rows.codes[positions])
    offsets = np.append(first_positions(groups), len(groups))
    lists = pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), values)
    return rows.fill_all_groups(rows.result.encode(pc.cast(lists, rows.result.type)))


#: By name; `circuits.types.functions.type_rules.aggregate_type` describes them.
GROUP_FUNCTIONS: Final[Mapping[str, GroupFunction]] = MappingProxyType(
    {
        "first": GroupFunction(_first, reads_first=True, keeps_nulls=True),
        "mode": GroupFunction(_mode),
        "quantile_cont": GroupFunction(_quantile_cont, compute_by_rank=_quantile_cont),
        "quantile_disc": GroupFunction(_quantile_disc, compute_by_rank=_quantile_disc),
        "product": GroupFunction(_product),
        "string_agg": GroupFunction(_string_agg),
        "list": GroupFunction(_list, keeps_nulls=True),
    }
)
