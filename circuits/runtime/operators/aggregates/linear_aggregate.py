"""Linear aggregates: count, sum and avg as the weights of one Z-set per aggregate node.

Each group has a few slots: integers that name the quantities to add up. A row of the Z-set is
(key, slot), and its weight is the quantity::

    partial(Z)[key, slot] = Σ over the rows x of the key of Z[x] · value of the slot for x

    slot                 value                          used for
    0                    1                              count(*), existence of the group
    nulls of x           1 where x is NULL              count(x) = count(*) - nulls of x
    distinct x           1 per distinct value           count(distinct x)
    digit d of x         digit d of x                   sum(x), avg(x) = sum(x) / count(x)
    digit d of x * y     digit d of x * y               comoment(x, y), see `comoment`
    digit d of x³        digit d of x³                  moment(x, 3); also x⁴ for moment(x, 4)
    bit b of x           1 where the bit is set         bit_and, bit_or, bit_xor

Digits have the base 2**32 (`exact_sum`). Each quantity has ``MAX_DIGITS`` = 128 slots. If sum(x) is
the only aggregate, slot 0 has the number of rows, slot 128 the number of NULLs of x, and slot
256 + d the digit d of x. An example: sum(x) of the group 7 with the stream of x ``+3  +5  -3``::

    delta of the state   {(7,0): 1, (7,256): 3}  {(7,0): 1, (7,256): 5}  {(7,0): -1, (7,256): -3}

The digits of x times a weight have carries, so those of 2 x need not be twice those of x. A row of
weight 2 that is deleted in two portions may leave digits whose sum is 0. `LinearAggregate.read`
removes such digits from groups without rows.

``partial`` is linear, so the state of a group is the sum of the partial aggregates of its rows. The
state is a trace with a few rows per group, regardless of the size of the group. The trace has no
rows of weight zero, so a column without NULLs has no row for its slot of NULLs. An aggregate with
``distinct`` reads the delta of the set of the column's values instead of the delta of the input.

Counts, and sums and means of integers, decimals and doubles are computed by two kernels
(`compiled_sums`). The methods of this module compute all others, and values that the kernels do not
support.

Cost: O(slots) per row of the delta, O(log N + slots) per changed group and run, for N rows of the
trace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from itertools import pairwise
from typing import Final

import numpy as np

from circuits.plan.nodes import AggregateCall
from circuits.runtime.operators.aggregates.amounts_by_group import find_groups
from circuits.runtime.operators.aggregates.bit_counts import BitCounts
from circuits.runtime.operators.aggregates.comoment import comoment_codes, moment_codes
from circuits.runtime.operators.aggregates.compiled_sums import CompiledSums, Quantity, ResultCall
from circuits.runtime.operators.aggregates.exact_sum import (
    FIRST_SPECIAL_POSITION,
    MAX_DIGITS,
    Digits,
    ExactSum,
    split_powers,
    split_products,
)
from circuits.runtime.operators.aggregates.sum_encoder import SumEncoder
from circuits.types.codecs.arrow_buffers import BoolArray
from circuits.types.codecs.codec import NULL, Codec
from dbsp_wcoj import Trace, WeightOverflowError, ZSet
from dbsp_wcoj.kernels.values.digits import sum_to_integers
from dbsp_wcoj.kernels.values.group_changes import (
    first_slot_weights,
    rows_of_slots,
)
from dbsp_wcoj.storage.group_lookup import GroupSlots, group_slots
from dbsp_wcoj.storage.trace import Staged, TraceStep
from dbsp_wcoj.workers import MIN_PARALLEL_ROWS, TASKS_PER_THREAD, current_workers, run_tasks
from dbsp_wcoj.zset import Int64Array, add_in_order, consolidated_rows

__all__ = ["LinearAggregate"]

# The numbers of the rows of small deltas.
_NUMBERS: Final = np.arange(1024)

# The argument of an aggregate: its columns, and True for an aggregate with ``distinct``. A row has
# a value if no column is NULL.
Argument = tuple[tuple[int, ...], bool]
# Returns a quantity of each value, times its weight, as digits. The arguments are the codes of the
# values, shape ``(columns of the argument, n)``, and the n weights.
Split = Callable[[Int64Array, Int64Array], Digits]


# Computes the codes of a call from the state, the counts, and a mask of the groups with values.
_Encoder = Callable[[GroupSlots, Int64Array, BoolArray], Int64Array]


class LinearAggregate:
    """The state and the results of all linear aggregates of one node.

    Args:
        codecs: The codecs of the input's columns.
        keys: The columns that identify a group.
        calls: The linear aggregates, each with the codec of its result.
    """

    def __init__(
        self,
        codecs: Sequence[Codec],
        keys: Sequence[int],
        calls: Sequence[tuple[AggregateCall, Codec]],
    ) -> None:
        self.keys = list(keys)
        self._key_columns = np.array(self.keys, np.int64)
        self.calls = tuple(call for call, _ in calls)
        self.trace = Trace(len(self.keys) + 1)
        # The slot from which `results` computes the count of an argument: with distinct, the number
        # of its distinct values; without, the number of its NULLs.
        self._count_slots: dict[Argument, int] = {}
        # By call: its argument, or None for count(*).
        self._arguments: list[Argument | None] = []
        # The first slot of each quantity that is split into digits, and the function that splits.
        self._quantities: dict[tuple[str, Argument], tuple[int, Split]] = {}
        self._encoders: list[_Encoder | None] = []
        self._last_slot = 0  # the first slot of the quantity that was added last
        # The quantities and results for the kernel; None if there are others.
        self._kernel_quantities: list[Quantity] | None = [Quantity(0, 0)]
        self._kernel_calls: list[ResultCall] | None = []
        for call, codec in calls:
            self._arguments.append(None if call.argument is None else _argument(call))
            if call.argument is None:
                self._encoders.append(None)
                self._add_kernel_call(ResultCall(-1, is_distinct=False))
                continue
            self._add_count(_argument(call))
            self._encoders.append(self._add_quantities(call, codecs, codec))
        self._compiled = CompiledSums(self.keys, self._kernel_quantities, self._kernel_calls)

    def _add_count(self, argument: Argument) -> None:
        """Add the slot from which the count of an argument is computed, if it is new."""
        if argument not in self._count_slots:
            self._last_slot += MAX_DIGITS
            self._count_slots[argument] = self._last_slot
            columns, is_distinct = argument
            if is_distinct or len(columns) > 1:
                self._kernel_quantities = None
            else:
                self._add_kernel_quantity(Quantity(columns[0], self._last_slot, counts_nulls=True))

    def _add_kernel_quantity(self, quantity: Quantity) -> None:
        if self._kernel_quantities is not None:
            self._kernel_quantities.append(quantity)

    def _add_kernel_call(self, call: ResultCall) -> None:
        if self._kernel_calls is not None:
            self._kernel_calls.append(call)

    def _add_quantity(self, kind: str, argument: Argument, split: Split) -> int:
        """Add a quantity if it is new, and return its first slot."""
        if (kind, argument) not in self._quantities:
            self._last_slot += MAX_DIGITS
            self._quantities[kind, argument] = self._last_slot, split
        return self._quantities[kind, argument][0]

    def _add_sum(self, column: int, distinct: bool, exact: ExactSum) -> int:
        """Add the sum of a column if it is new, and return its first slot."""

        def split(codes: Int64Array, weights: Int64Array) -> Digits:
            return exact.split(codes[0], weights)

        is_new = ("sum", ((column,), distinct)) not in self._quantities
        slot = self._add_quantity("sum", ((column,), distinct), split)
        if is_new:
            self._add_kernel_quantity(Quantity(column, slot, exact))
        return slot

    def _add_quantities(
        self, call: AggregateCall, codecs: Sequence[Codec], codec: Codec
    ) -> _Encoder | None:
        """Add the quantities of a call and return the function that computes its results.

        None if the result is the count of the argument.
        """
        assert call.argument is not None
        argument = _argument(call)
        count_slot = self._count_slots[argument]
        if call.function == "count":
            self._add_kernel_call(ResultCall(count_slot, call.distinct))
            return None
        exact = ExactSum(codecs[call.argument])
        if call.function in ("comoment", "moment", "bit_and", "bit_or", "bit_xor"):
            self._kernel_quantities = self._kernel_calls = None
        if call.function == "comoment":
            return self._add_comoment(call, exact)
        if call.function == "moment":
            return self._add_moment(call, exact)
        if call.function in ("bit_and", "bit_or", "bit_xor"):
            bits = BitCounts(codecs[call.argument], call.function)
            bits_slot = self._add_quantity("bits", argument, bits.split)
            return lambda state, counts, present: bits.codes(
                _digits(state, bits_slot), counts, present
            )
        encoder = SumEncoder(call, exact, codec)
        slot = self._add_sum(call.argument, call.distinct, exact)
        self._add_kernel_call(ResultCall(count_slot, call.distinct, slot, encoder))
        return lambda state, counts, present: encoder.codes(_digits(state, slot), counts, present)

    def _add_comoment(self, call: AggregateCall, exact: ExactSum) -> _Encoder:
        # x and y are NULL in the same rows (`comoment`), and both are doubles, so ``exact`` splits
        # both. For comoment(x, x) the argument has one column, so y is always the last column.
        x, y = call.arguments[0], call.arguments[-1]
        slot_x = self._add_sum(x, call.distinct, exact)
        slot_y = self._add_sum(y, call.distinct, exact)
        slot_xy = self._add_products(call, exact)
        return lambda state, counts, present: comoment_codes(
            exact,
            _digits(state, slot_x),
            _digits(state, slot_y),
            _digits(state, slot_xy),
            counts,
            present,
        )

    def _add_products(self, call: AggregateCall, exact: ExactSum) -> int:
        """Add the sum of the products of the columns of a call; return its first slot."""

        def split(codes: Int64Array, weights: Int64Array) -> Digits:
            return split_products(exact.numbers(codes[0]), exact.numbers(codes[-1]), weights)

        return self._add_quantity("products", _argument(call), split)

    def _add_moment(self, call: AggregateCall, exact: ExactSum) -> _Encoder:
        def add_powers(power: int) -> int:
            def split(codes: Int64Array, weights: Int64Array) -> Digits:
                return split_powers(exact.numbers(codes[0]), power, weights)

            return self._add_quantity(f"powers of {power}", _argument(call), split)

        (max_power,) = call.options
        slots = [self._add_sum(call.arguments[0], call.distinct, exact)]
        slots.append(self._add_products(call, exact))
        slots += map(add_powers, range(3, max_power + 1))
        return lambda state, counts, present: moment_codes(
            exact, [_digits(state, slot) for slot in slots], counts, present
        )

    @cached_property
    def _digit_quantities(self) -> list[int]:
        """The numbers of the quantities that are numbers split into digits."""
        slots = [slot for (kind, _), (slot, _) in self._quantities.items() if kind != "bits"]
        return [slot // MAX_DIGITS for slot in slots]

    @property
    def distinct_slots(self) -> dict[tuple[int, ...], int]:
        """The slot of each list of columns that some call aggregates with ``distinct``.

        A row of `value_sets` has this slot. In the state, it has the number of distinct values.
        """
        slots = self._count_slots.items()
        return {columns: slot for (columns, distinct), slot in slots if distinct}

    def partial_rows(
        self, rows: Int64Array, weights: Int64Array, value_rows: Sequence[ZSet]
    ) -> ZSet:
        """Compute the partial aggregate of some rows: rows (keys, slot).

        Args:
            rows: The columns of rows of the input, or of a delta of the input, in any order.
            weights: The weights of the rows.
            value_rows: The sets of values of `distinct_slots`, or a delta of these sets, as rows
                (keys, slot, values) (`value_sets`). Empty only if no call has ``distinct``.

        Raises:
            WeightOverflowError: A weight would leave int64.
        """
        n = len(weights)
        workers = current_workers() if n >= MIN_PARALLEL_ROWS and not value_rows else None
        if workers is not None:
            return self._add_slices(rows, weights, workers.threads * TASKS_PER_THREAD)
        return self._partial_rows(rows, weights, value_rows)

    def _add_slices(self, rows: Int64Array, weights: Int64Array, count: int) -> ZSet:
        """Return the partial aggregate of rows, of which workers compute slices."""

        def add_up(first: int, end: int) -> ZSet:
            # Kernels are compiled for contiguous arrays.
            columns = np.ascontiguousarray(rows[:, first:end])
            return self._partial_rows(columns, weights[first:end], ())

        bounds = [len(weights) * number // count for number in range(count + 1)]
        parts = run_tasks([partial(add_up, first, end) for first, end in pairwise(bounds)])
        return add_in_order(parts, len(self.keys) + 1)

    def _partial_rows(
        self, rows: Int64Array, weights: Int64Array, value_rows: Sequence[ZSet]
    ) -> ZSet:
        """Compute `partial_rows` in this thread."""
        k, n = len(self.keys), len(weights)
        keys = [rows.take(self._key_columns, axis=0)]
        groups = find_groups(keys[0])
        if not value_rows:
            compiled = self._compiled.partial_rows(rows, weights, groups)
            if compiled is not None:
                return compiled
        if groups is None and not (self._count_slots or self._quantities):  # count(*) only
            return self._add_up(np.concatenate([keys[0], np.zeros((1, n), np.int64)]), weights)
        # For each quantity: the row of each amount, its slot, and the amount.
        quantities = [(_numbers_below(n), np.zeros(n, np.int64), weights)]
        null_masks: dict[tuple[int, ...], BoolArray | None] = {}
        # Looking for NULL pays off for few rows only.
        may_have_nulls = n > len(_NUMBERS) or bool((rows == NULL).any())
        for argument, is_distinct in self._count_slots if may_have_nulls else ():
            is_null = None if is_distinct else _null_mask(rows, argument, null_masks)
            if is_null is not None:
                null_rows = is_null.nonzero()[0]
                slots = np.full(len(null_rows), self._count_slots[argument, False])
                quantities.append((null_rows, slots, weights[null_rows]))
        # The quantities of sets of values. Their rows follow those of the input.
        value_quantities: list[tuple[Int64Array, Int64Array, Int64Array]] = []
        for values in value_rows:
            first_row = n + sum([part.shape[1] for part in keys[1:]])
            value_numbers = first_row + _numbers_below(len(values))
            keys.append(values.row_array[:k])
            value_quantities.append((value_numbers, values.row_array[k], values.weight_array))
        for (_, (columns, is_distinct)), (slot, split) in self._quantities.items():
            if is_distinct:
                values_slot = self._count_slots[columns, True]
                first_row, own_rows, values = _values_of_slot(value_rows, k, values_slot)
                digits = split(values.row_array[k + 1 :, own_rows], values.weight_array[own_rows])
                digit_rows = n + first_row + own_rows[digits.sum_indices]
                value_quantities.append((digit_rows, slot + digits.positions, digits.amounts))
                continue
            is_null = _null_mask(rows, columns, null_masks) if may_have_nulls else None
            codes = _columns_of(rows, columns)
            if is_null is None:
                digits = split(codes, weights)
                digit_rows = digits.sum_indices
            else:
                present = (~is_null).nonzero()[0]
                digits = split(codes.take(present, axis=1), weights[present])
                digit_rows = present[digits.sum_indices]
            quantities.append((digit_rows, slot + digits.positions, digits.amounts))
        if groups is not None:
            quantities = [groups.add(*quantity) for quantity in quantities]
        row_numbers, slots, amounts = _concatenate([*quantities, *value_quantities])
        all_keys = keys[0] if len(keys) == 1 else np.concatenate(keys, axis=1)
        slot_rows = np.empty((k + 1, len(amounts)), np.int64)
        all_keys.take(row_numbers, axis=1, out=slot_rows[:-1], mode="clip")
        slot_rows[-1] = slots
        return self._add_up(slot_rows, amounts)

    def _add_up(self, slot_rows: Int64Array, amounts: Int64Array) -> ZSet:
        """Return the sum of amounts as rows (keys, slot)."""
        try:
            return consolidated_rows(slot_rows, amounts)
        except WeightOverflowError as error:
            raise self._overflow(error) from None

    def results(
        self, n: int, state: GroupSlots, *, always_exists: bool
    ) -> tuple[BoolArray, Int64Array]:
        """Return a mask of the groups that exist, and the codes of the results, ``(calls, n)``.

        Args:
            n: The number of groups.
            state: The state of the groups.
            always_exists: True if a group without rows has a result row, too.

        Raises:
            EvaluationError: A sum of a group that exists does not fit its type.
            WeightOverflowError: A count of a group that exists leaves int64.
        """
        compiled = self._compiled.results(n, state, always_exists=always_exists)
        if compiled is not None:
            return compiled
        # The weight of each quantity's first slot, by quantity and group.
        quantities = self._last_slot // MAX_DIGITS + 1
        first_weights = first_slot_weights(*state, quantities, n, MAX_DIGITS)
        row_counts = first_weights[0]
        exists = np.ones(n, np.bool) if always_exists else row_counts > 0
        counts = {}
        for counted, slot in self._count_slots.items():
            _, is_distinct = counted
            count = first_weights[slot // MAX_DIGITS]
            counts[counted] = count
            if not is_distinct:
                counts[counted] = self._subtract_nulls(row_counts, count, exists)
        columns = np.empty((len(self.calls), n), np.int64)
        for position, (argument, encoder) in enumerate(
            zip(self._arguments, self._encoders, strict=True)
        ):
            count = row_counts if argument is None else counts[argument]
            columns[position] = (
                count if encoder is None else encoder(state, count, exists & (count != 0))
            )
        return exists, columns

    def read(self, groups: Int64Array, delta: ZSet, staged: list[Staged]) -> GroupSlots:
        """Read the old state of some groups, followed by their new state.

        Args:
            groups: The keys of n groups, of shape ``(keys, n)``.
            delta: Rows (keys, slot) of these groups, returned by `partial_rows`.
            staged: The list to which the change of the state is appended.

        Returns:
            The state of 2 n groups: index i is group i before the step, n + i is group i after it.

        Raises:
            WeightOverflowError: A weight would leave int64.
        """
        step = self._prepare(delta)
        state = group_slots(self.trace, groups, step)
        if step is not None and self._digit_quantities:
            zeros = self._digits_of_zero(groups, state)
            if zeros is not None:
                step = self._prepare(delta + zeros)
                state = group_slots(self.trace, groups, step)
        if step is not None:
            step.lookups = groups.shape[1]
            staged.append(step)
        return state

    def _prepare(self, delta: ZSet) -> TraceStep | None:
        """Stage a delta of the state; None if it is empty."""
        if not len(delta):
            return None
        try:
            return self.trace.prepare(delta)
        except WeightOverflowError as error:
            raise self._overflow(error) from None

    def _digits_of_zero(self, groups: Int64Array, state: GroupSlots) -> ZSet | None:
        """Return the delta that removes the digits of sums of 0 from groups without rows.

        Args:
            groups: The keys of n groups.
            state: Their old and new state, see `read`.

        Complexity:
            O(slots); one or two passes over whole columns if all groups with a state have rows.
        """
        indices, slots, amounts = state
        n = groups.shape[1]
        with_rows = len(slots) - np.count_nonzero(slots)
        if with_rows == 2 * n:
            return None
        with_state = np.count_nonzero(indices[1:] != indices[:-1]) + bool(len(indices))
        if with_rows == with_state:
            return None
        has_rows = np.isin(indices, indices[slots == 0])
        quantities, positions = np.divmod(slots, MAX_DIGITS)
        is_digit = np.isin(quantities, self._digit_quantities) & (
            positions < FIRST_SPECIAL_POSITION
        )
        rows = np.flatnonzero((indices >= n) & ~has_rows & is_digit)
        if not len(rows):
            return None
        sums = indices[rows] * (int(quantities.max()) + 1) + quantities[rows]
        is_first = np.diff(sums, prepend=-1) != 0
        sum_indices = np.cumsum(is_first) - 1
        # From the first position on: a multiple of a sum is 0 if and only if the sum is.
        positions = positions[rows] - positions[rows][is_first][sum_indices]
        words = np.zeros((1, int(sum_indices[-1]) + 1), np.int64)
        fits = np.ones(words.shape[1], np.bool)
        sum_to_integers(sum_indices, positions, np.ascontiguousarray(amounts[rows]), words, fits)
        rows = rows[(fits & (words[0] == 0))[sum_indices]]
        if not len(rows):
            return None
        keys = groups[:, indices[rows] - n]
        return consolidated_rows(np.concatenate((keys, slots[rows][np.newaxis])), -amounts[rows])

    def _subtract_nulls(
        self, row_counts: Int64Array, nulls: Int64Array, exists: BoolArray
    ) -> Int64Array:
        """Return the number of values of each group that are not NULL.

        Raises:
            WeightOverflowError: A count of a group that exists leaves int64.
        """
        counts = row_counts - nulls  # wraps around on overflow; the signs show it
        overflows = ((row_counts ^ nulls) & (row_counts ^ counts)) < 0
        overflows = exists & (overflows | (counts == NULL))
        if overflows.any():
            group = int(overflows.argmax())
            count = int(row_counts[group]) - int(nulls[group])
            raise self._overflow(WeightOverflowError(f"{count} values are not NULL"))
        return counts

    def _overflow(self, error: WeightOverflowError) -> WeightOverflowError:
        """Build the overflow error of a weight of the state, with the names of the aggregates."""
        names = ", ".join(
            f"{call.function}({', '.join(f'#{c}' for c in call.arguments) or '*'})"
            for call in self.calls
        )
        return WeightOverflowError(
            f"a count or sum in the state of {names or 'count(*)'} leaves int64: {error}; "
            f"nothing was changed: use smaller weights or values"
        )


def _digits(state: GroupSlots, first_slot: int) -> Digits:
    """Return the digits of the quantity with this first slot, by group."""
    return Digits(*rows_of_slots(*state, first_slot, first_slot + MAX_DIGITS))


def _argument(call: AggregateCall) -> Argument:
    return tuple(dict.fromkeys(call.arguments)), call.distinct


def _null_mask(
    rows: Int64Array, columns: tuple[int, ...], known: dict[tuple[int, ...], BoolArray | None]
) -> BoolArray | None:
    """Return where a column of an argument is NULL, None if nowhere; keep it in ``known``."""
    if columns not in known:
        mask: BoolArray = rows[columns[0]] == NULL
        for column in columns[1:]:
            mask |= rows[column] == NULL
        known[columns] = mask if mask.any() else None
    return known[columns]


def _columns_of(rows: Int64Array, columns: tuple[int, ...]) -> Int64Array:
    """Return some columns, as an array of shape ``(columns, n)``; a view of a single column."""
    if len(columns) == 1:
        return rows[columns[0] : columns[0] + 1]
    return rows[list(columns)]


def _values_of_slot(value_rows: Sequence[ZSet], k: int, slot: int) -> tuple[int, Int64Array, ZSet]:
    """Return the rows (k keys, slot, values) of one slot.

    At most one of the Z-sets has rows of the slot.

    Returns:
        The number of rows of the Z-sets before that one, the positions of the rows, and the Z-set.
    """
    first_row = 0
    for zset in value_rows:
        own_rows = (zset.row_array[k] == slot).nonzero()[0]
        if len(own_rows):
            break
        first_row += len(zset)
    return first_row, own_rows, zset


def _numbers_below(n: int) -> Int64Array:
    """Return 0, 1, ..., n - 1; do not write to the array."""
    return _NUMBERS[:n] if n <= len(_NUMBERS) else np.arange(n)


def _concatenate(
    quantities: Sequence[tuple[Int64Array, Int64Array, Int64Array]],
) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Concatenate each of the three arrays of all quantities."""
    if len(quantities) == 1:
        return quantities[0]
    rows, slots, amounts = map(np.concatenate, zip(*quantities, strict=True))
    return rows, slots, amounts
