"""Sort rows and add up the weights of equal rows.

    consolidate(rows, weights) = {row: Σ of the weights of its occurrences}, sorted, without zeros

Rows are int64 columns of shape ``(arity, n)`` with weights of shape ``(n,)``.

If the ranges of all columns fit in 64 bits together, each row is packed into one unsigned key and
the keys are radix-sorted, least significant digit first; a digit that is equal in all keys is
skipped. This takes O(n) per digit. Wider rows are sorted in this way by the leading columns that
fit, with a permutation as payload; then insertion sort orders the rows that tie. If more than
`MAX_INSERTION_ROWS` rows tie, all rows are sorted by one column after another instead, last column
first. The rows are then moved column by column: a column of some hundred thousand rows fits in the
second-level cache, all columns do not. Up to `MAX_INSERTION_ROWS` rows in total need no keys: they
are insertion-sorted.

The caller provides large scratch arrays: numpy asks the system for large pages but the allocator of
the kernels does not, and faulting in small pages costs as much as the sort.
"""

import numpy as np

from dbsp_wcoj.kernels.compilation import kernel, subroutine
from dbsp_wcoj.kernels.memory import borrow, keep_alive, load
from dbsp_wcoj.kernels.values.arithmetic import OVERFLOWED, add

# Up to this many rows, insertion sort is faster than radix sort.
MAX_INSERTION_ROWS = 48
# Number of scratch arrays of a sort, each of one word per row.
SCRATCH_ARRAYS = 4

# Maximum bits of a radix digit. With more buckets, each pass takes longer than it saves: their open
# cache lines no longer fit in the first and second level of the cache.
MAX_DIGIT_BITS = 11
# For fewer rows, counting that many buckets takes longer than one more pass.
MIN_WIDE_DIGIT_ROWS = 2048
SMALL_SORT_DIGIT_BITS = 8
# Not a literal, because numba compiles a function again for each literal argument.
FIRST_BIT = np.int64(0)

OK = 0
OVERFLOW = 1


@subroutine
def compare_rows(columns, order, i, j):
    """Return -1, 0 or 1 if row ``i`` is before, equal to or after row ``j`` in column order."""
    for k in range(order.shape[0]):
        x = columns[order[k], i]
        y = columns[order[k], j]
        if x < y:
            return -1
        if x > y:
            return 1
    return 0


@subroutine
def key_shifts(columns, order):
    """Return ``(lowest, shifts, bits)``: the packing of a row; bits > 64 if a row does not fit.

    ``lowest[k]`` is the least value of column ``order[k]``, and ``shifts[k]`` its bit position in
    the key; the last column has the lowest bits.
    """
    arity = order.shape[0]
    rows = columns.shape[1]
    lowest = np.zeros(arity, np.int64)
    shifts = np.zeros(arity + 1, np.int64)
    bits = 0
    for k in range(arity - 1, -1, -1):
        column = columns[order[k]]
        low = column[0]
        high = column[0]
        for i in range(1, rows):
            low = min(low, column[i])
            high = max(high, column[i])
        lowest[k] = low
        shifts[k] = bits
        distance = np.uint64(high) - np.uint64(low)
        while distance > np.uint64(0):
            distance >>= np.uint64(1)
            bits += 1
    return lowest, shifts, bits


@subroutine
def pack_rows(columns, order, lowest, shifts, keys):
    """Write one uint64 key per row."""
    rows = columns.shape[1]
    keys[:] = 0
    for k in range(order.shape[0]):
        column = columns[order[k]]
        low = np.uint64(lowest[k])
        # A shift of 64 is possible for a column of one value, which adds only zeros.
        shift = np.uint64(min(shifts[k], 63))
        for i in range(rows):
            keys[i] |= (np.uint64(column[i]) - low) << shift
    return keys


@subroutine
def radix_sort(keys, other_keys, payload, other_payload, low_bit, high_bit):
    """Stable sort of ``keys`` by their bits ``[low_bit, high_bit)``; ``payload`` follows, if any.

    Returns ``(keys, payload)``, each in one of its two arrays; the payload may be empty.
    """
    rows = keys.shape[0]
    has_payload = payload.shape[0] > 0
    max_width = SMALL_SORT_DIGIT_BITS if rows < MIN_WIDE_DIGIT_ROWS else MAX_DIGIT_BITS
    passes = max((high_bit - low_bit + max_width - 1) // max_width, 1)
    width = max((high_bit - low_bit + passes - 1) // passes, 1)
    # For each digit, first the number of its keys, then the position to which its next key moves.
    buckets = np.empty(1 << width, np.int64)
    for low in range(low_bit, high_bit, width):
        shift = np.uint64(low)
        mask = np.uint64((1 << min(width, high_bit - low)) - 1)
        buckets[:] = 0
        for i in range(rows):
            buckets[(keys[i] >> shift) & mask] += 1
        if buckets[(keys[0] >> shift) & mask] == rows:
            continue
        total = np.int64(0)
        for digit in range(1 << width):
            count = buckets[digit]
            buckets[digit] = total
            total += count
        if has_payload:
            for i in range(rows):
                digit = (keys[i] >> shift) & mask
                target = buckets[digit]
                buckets[digit] = target + 1
                other_keys[target] = keys[i]
                other_payload[target] = payload[i]
            payload, other_payload = other_payload, payload
        else:
            for i in range(rows):
                digit = (keys[i] >> shift) & mask
                target = buckets[digit]
                buckets[digit] = target + 1
                other_keys[target] = keys[i]
        keys, other_keys = other_keys, keys
    return keys, payload


@subroutine
def insertion_sort(columns, order, permutation, start, stop):
    """Stable sort of ``permutation[start:stop]`` by the rows at its positions, in place."""
    for i in range(start + 1, stop):
        row = permutation[i]
        j = i
        while j > start and compare_rows(columns, order, permutation[j - 1], row) > 0:
            permutation[j] = permutation[j - 1]
            j -= 1
        permutation[j] = row


@subroutine
def insertion_permutation(columns, order):
    """Like `row_permutation`, by insertion sort, for at most `MAX_INSERTION_ROWS` rows."""
    permutation = np.arange(columns.shape[1])
    insertion_sort(borrow(columns), borrow(order), borrow(permutation), 0, columns.shape[1])
    return permutation


@subroutine
def leading_columns(columns, order):
    """Return how many of the first columns fit 64 bits together, and how many bits they take."""
    count = np.int64(0)
    bits = 0
    while count < order.shape[0]:
        _, _, column_bits = key_shifts(columns, order[count : count + 1])
        if bits + column_bits > 64:
            break
        bits += column_bits
        count += 1
    return count, bits


@subroutine
def row_permutation(columns, order, scratch):
    """Return the stable permutation that sorts rows of any width by ``order``.

    It is in one of the `SCRATCH_ARRAYS` arrays of ``scratch``, if there are more than
    `MAX_INSERTION_ROWS` rows.
    """
    rows = columns.shape[1]
    if rows <= MAX_INSERTION_ROWS:
        return insertion_permutation(columns, order)
    count, bits = leading_columns(columns, order)
    lowest, shifts, _ = key_shifts(columns, order[:count])
    keys = pack_rows(columns, order[:count], lowest, shifts, scratch[0].view(np.uint64))
    permutation = scratch[2]
    for i in range(rows):
        permutation[i] = i
    keys, permutation = radix_sort(
        keys, scratch[1].view(np.uint64), permutation, scratch[3], FIRST_BIT, bits
    )
    start = 0
    for i in range(1, rows + 1):
        if i < rows and keys[i] == keys[start]:
            continue
        if i - start > MAX_INSERTION_ROWS and count < order.shape[0]:
            return permutation_by_columns(columns, order, scratch)
        if i - start > 1:
            insertion_sort(columns, order[count:], permutation, start, i)
        start = i
    return permutation


@subroutine
def permutation_by_columns(columns, order, scratch):
    """Like `row_permutation`, by one column after another."""
    rows = columns.shape[1]
    keys = scratch[0].view(np.uint64)
    permutation = scratch[2]
    for i in range(rows):
        permutation[i] = i
    other_keys = scratch[1].view(np.uint64)
    other_permutation = scratch[3]
    for k in range(order.shape[0] - 1, -1, -1):
        lowest, _, bits = key_shifts(columns, order[k : k + 1])
        if bits == 0:
            continue
        low = np.uint64(lowest[0])
        for i in range(rows):
            keys[i] = np.uint64(columns[order[k], permutation[i]]) - low
        _, result = radix_sort(keys, other_keys, permutation, other_permutation, FIRST_BIT, bits)
        if result.ctypes.data != permutation.ctypes.data:
            permutation, other_permutation = other_permutation, permutation
    return permutation


@subroutine
def is_sorted(columns, order):
    """Return whether rows are strictly increasing in the column order."""
    row = np.int64(1)
    while row < columns.shape[1] and compare_rows(columns, order, row - 1, row) < 0:
        row += 1
    return row >= columns.shape[1]


@subroutine
def unpack_column(keys, low, shift, top, column):
    """Write the values at the bits from ``shift`` to before ``top`` of the keys to a column."""
    width = top - shift
    mask = np.uint64(0xFFFFFFFFFFFFFFFF)
    if width == 0:
        mask = np.uint64(0)
    elif width < 64:
        mask = (np.uint64(1) << np.uint64(width)) - np.uint64(1)
    # A shift of 64 is possible for a column of one value, which adds only zeros.
    shift = np.uint64(min(shift, 63))
    low = np.uint64(low)
    for i in range(keys.shape[0]):
        column[i] = np.int64(((keys[i] >> shift) & mask) + low)


@subroutine
def unpack_rows(keys, order, lowest, shifts, bits, columns):
    """Write the rows of sorted ``keys`` to ``columns``."""
    # Column order[k] has the bits [shifts[k], top) of a key.
    top = bits
    for k in range(order.shape[0]):
        unpack_column(keys, lowest[k], shifts[k], top, columns[order[k]])
        top = shifts[k]


@kernel
def consolidate(columns, weights, scratch):
    """Sort rows, add the weights of equal rows, drop rows of weight zero.

    Args:
        columns: int64, shape ``(arity, n)``, arity and n at least 1; it is overwritten.
        weights: int64, shape ``(n,)``; not written to, but it may be returned.
        scratch: int64, shape ``(SCRATCH_ARRAYS, n)``; may be shorter for up to
            `MAX_INSERTION_ROWS` rows.

    Returns:
        ``(columns, weights, status)``; status is `OVERFLOW` if a sum leaves int64.
    """
    arity, rows = columns.shape
    order = np.arange(arity)
    if is_sorted(borrow(columns), borrow(order)):
        if has_zeros(weights):
            return drop_zeros(columns, weights, rows)
        return columns, weights, OK
    if rows > MAX_INSERTION_ROWS:
        lowest, shifts, bits = key_shifts(columns, order)
        if bits <= 64:
            return consolidate_keys(columns, weights, order, lowest, shifts, bits, scratch)
    permutation = row_permutation(columns, order, scratch)
    kept, summed, status = sum_equal_rows(
        borrow(columns), borrow(weights), borrow(order), borrow(permutation)
    )
    keep_alive(order)
    if status == OVERFLOW:
        return columns, weights, OVERFLOW
    if kept < rows or rows <= MAX_INSERTION_ROWS:
        result = np.empty((arity, kept), np.int64)
        for k in range(arity):
            gather(columns[k], permutation, result[k])
        return result, summed, OK
    values = scratch[0]
    for k in range(arity):
        copy_numbers(columns[k], values)
        gather(values, permutation, columns[k])
    return columns, summed, OK


@subroutine
def sum_equal_rows(columns, weights, order, permutation):
    """Add the weights of equal rows, and drop rows of weight zero.

    ``permutation`` has the positions of the rows in their order. The first ones are overwritten
    with the positions of the rows that remain.

    Returns:
        ``(rows, weights, status)``: the number of the rows that remain, and their weights.
    """
    summed = np.empty(permutation.shape[0], np.int64)
    kept = np.int64(0)  # the rows with a weight so far; the row after them may have none
    summed[0] = weights[permutation[0]]
    for i in range(1, permutation.shape[0]):
        row = permutation[i]
        if compare_rows(columns, order, permutation[kept], row) == 0:
            summed[kept] = add(summed[kept], weights[row])
            if summed[kept] == OVERFLOWED:
                return kept, summed, OVERFLOW
            continue
        kept += summed[kept] != 0
        permutation[kept] = row
        summed[kept] = weights[row]
    kept += summed[kept] != 0
    return kept, summed[:kept].copy(), OK


@subroutine
def gather(values, positions, out):
    """Fill ``out`` with the values at the first positions."""
    for i in range(out.shape[0]):
        out[i] = values[positions[i]]


@subroutine
def are_all_ones(weights):
    """Return whether every weight is 1."""
    all_ones = True
    for i in range(weights.shape[0]):
        all_ones &= weights[i] == 1
    return all_ones


@subroutine
def has_zeros(weights):
    """Return whether any weight is 0."""
    zeros = False
    for i in range(weights.shape[0]):
        zeros |= weights[i] == 0
    return zeros


@subroutine
def copy_numbers(numbers, out):
    """Fill ``out`` with the first numbers."""
    for i in range(out.shape[0]):
        out[i] = numbers[i]


@subroutine
def drop_zeros(columns, weights, rows):
    """Return ``(columns, weights, OK)`` of the first rows, without rows of weight zero.

    The arrays are new.
    """
    arity = columns.shape[0]
    count = np.int64(0)
    for i in range(rows):
        count += weights[i] != 0
    result = np.empty((arity, count), np.int64)
    summed = np.empty(count, np.int64)
    written = 0
    for i in range(rows):
        if weights[i] != 0:
            summed[written] = weights[i]
            for k in range(arity):
                result[k, written] = columns[k, i]
            written += 1
    return result, summed, OK


@subroutine
def consolidate_keys(columns, weights, order, lowest, shifts, bits, scratch):
    """Consolidate rows that fit in packed keys; see `consolidate`."""
    rows = columns.shape[1]
    keys = scratch[0].view(np.uint64)
    pack_rows(columns, order, lowest, shifts, keys)
    payload = scratch[2, :0] if are_all_ones(weights) else scratch[2]
    copy_numbers(weights, payload)
    other_keys = scratch[1].view(np.uint64)
    keys, summed, status = sum_keys(keys, other_keys, payload, scratch[3], FIRST_BIT, bits)
    if status == OVERFLOW:
        return columns, weights, OVERFLOW
    if keys.shape[0] == rows:
        unpack_rows(keys, order, lowest, shifts, bits, columns)
        return columns, summed.copy() if summed.shape[0] else weights, OK
    result = np.empty((order.shape[0], keys.shape[0]), np.int64)
    unpack_rows(keys, order, lowest, shifts, bits, result)
    return result, summed.copy(), OK


@subroutine
def sum_keys(keys, other_keys, weights, other_weights, low_bit, high_bit):
    """Sort keys by bits, add the weights of equal keys, drop keys of weight zero.

    Args:
        keys: uint64, at least one. Keys that are equal in the bits from ``low_bit`` to before
            ``high_bit`` are in ascending order, and the bits above are equal in all keys.
        other_keys: Memory for as many keys; both arrays are overwritten.
        weights: int64, one per key; empty if each is 1.
        other_weights: Memory for as many weights; both arrays are overwritten.
        low_bit: The first bit to sort by.
        high_bit: The bit after the last one to sort by.

    Returns:
        ``(keys, weights, status)``. The keys and the weights are in the given arrays, or the
        weights in a new one if there were none; no weights if each is 1. After `OVERFLOW` they
        have no meaning.
    """
    keys, weights = radix_sort(keys, other_keys, weights, other_weights, low_bit, high_bit)
    rows = keys.shape[0]
    has_repeated = False
    for i in range(1, rows):
        has_repeated |= keys[i] == keys[i - 1]
    are_ones = weights.shape[0] == 0
    if not has_repeated and (are_ones or not has_zeros(weights)):
        return keys, weights, OK
    summed = np.ones(rows, np.int64) if are_ones else weights
    target = 0
    for i in range(1, rows):
        if keys[i] == keys[target]:
            summed[target] = add(summed[target], summed[i])
            if summed[target] == OVERFLOWED:
                return keys, weights, OVERFLOW
            continue
        # The next key overwrites a key whose weights add up to zero.
        target += summed[target] != 0
        keys[target] = keys[i]
        summed[target] = summed[i]
    target += summed[target] != 0
    return keys[:target], summed[:target], OK


@subroutine
def sort_rows(columns, weights, order, scratch):
    """Sort rows by another column order, without moving them; see `sorted_column`.

    The rows are distinct and sorted by columns 0, 1, 2 and so on. If ``order`` ends with 0, 1, …,
    as (1, 0) does for a binary relation, the rows are already sorted by these last columns, and
    only the bits of the other columns are sorted.

    Args:
        columns: int64, shape ``(arity, n)``.
        weights: int64, shape ``(n,)``.
        order: int64 permutation of the columns.
        scratch: int64, shape ``(SCRATCH_ARRAYS, n)``, to which the result refers; may be shorter
            for up to `MAX_INSERTION_ROWS` rows.

    Returns:
        ``(sorted_rows, weights)``, the weights in the new order. ``sorted_rows`` is ``(columns,
        order, keys, permutation, (lowest, shifts, bits), memory, memory)``: either packed keys, or
        the permutation of the rows; and the memory for two columns.
    """
    rows = columns.shape[1]
    nothing = scratch[0, :0]
    no_keys = nothing.view(np.uint64)
    if rows <= MAX_INSERTION_ROWS:
        permutation = insertion_permutation(columns, order)
        memory = np.empty((3, rows), np.int64)
        gather(weights, permutation, memory[0])
        packing = nothing, nothing, np.int64(0)
        return (columns, order, no_keys, permutation, packing, memory[1], memory[2]), memory[0]
    are_ones = are_all_ones(weights)
    lowest, shifts, bits = key_shifts(columns, order)
    packing = lowest, shifts, np.int64(bits)
    if bits <= 64:
        keys = scratch[0].view(np.uint64)
        pack_rows(columns, order, lowest, shifts, keys)
        # order[first:] is the longest end of the order that is 0, 1, 2, …
        first = order.shape[0]
        for start in range(order.shape[0] - 1, -1, -1):
            if is_prefix(order[start:]):
                first = start
        low_bit = FIRST_BIT if first == order.shape[0] else shifts[first - 1]
        payload = scratch[2, :0] if are_ones else scratch[2]
        copy_numbers(weights, payload)
        other_keys = scratch[1].view(np.uint64)
        sorted_keys, payload = radix_sort(keys, other_keys, payload, scratch[3], low_bit, bits)
        is_second = sorted_keys.ctypes.data == other_keys.ctypes.data
        spare = scratch[0] if is_second else scratch[1]
        other_spare = scratch[2] if payload.ctypes.data == scratch[3].ctypes.data else scratch[3]
        return (
            (columns, order, sorted_keys, nothing, packing, spare, other_spare),
            weights if are_ones else payload,
        )
    permutation = row_permutation(columns, order, scratch)
    sorted_weights = weights
    if not are_ones:
        sorted_weights = np.empty(rows, np.int64)
        gather(weights, permutation, sorted_weights)
    return (columns, order, no_keys, permutation, packing, scratch[0], scratch[1]), sorted_weights


@subroutine
def as_sorted_rows(columns, order):
    """Return rows that are sorted by ``order`` already, as `sort_rows` returns rows."""
    nothing = columns[0, :0]
    packing = nothing, nothing, np.int64(0)
    return columns, order, nothing.view(np.uint64), nothing, packing, nothing, nothing


@subroutine
def sorted_column(sorted_rows, k):
    """Return column ``order[k]`` of the rows that `sort_rows` has sorted.

    It is valid until the call for column ``order[k + 2]``, which uses the same memory.
    """
    columns, order, keys, permutation, packing, spare, other_spare = sorted_rows
    column = spare if k % 2 == 0 else other_spare
    if column.shape[0] == 0:
        return columns[order[k]]
    if keys.shape[0] > 0:
        lowest, shifts, bits = packing
        unpack_column(keys, lowest[k], shifts[k], bits if k == 0 else shifts[k - 1], column)
    else:
        gather(columns[order[k]], permutation, column)
    return column


@kernel
def pack_column(column, low, shift, first, end, keys):
    """Write the values of a column into the keys of the rows from ``first`` to ``end``.

    Args:
        column: Address of int64, one per row: an array can be read-only, another type to numba.
        low: Subtracted from each value.
        shift: The bit position of the value in its key.
        first: The first row.
        end: The row after the last one.
        keys: uint64, shape ``(n,)``; the bits at which the values are written are 0.
    """
    for i in range(first, end):
        keys[i] |= (np.uint64(load(column, i)) - low) << shift


@kernel
def find_parts(keys, bounds, first, end, parts, counts):
    """Find the part of each key from ``first`` to ``end``, and count the keys of each part.

    Args:
        keys: uint64, shape ``(n,)``.
        bounds: uint64, ascending, at most 255. Part p has the keys from bound p - 1 to below bound
            p.
        first: The first row.
        end: The row after the last one.
        parts: uint8, shape ``(n,)``; the parts are written here.
        counts: int64, one per part, zeros; the counts are written here.
    """
    # Without a branch for each key, whose outcome would depend on the data.
    values = keys[first:end]
    numbers = parts[first:end]
    numbers[:] = 0
    for bound in bounds:
        for i in range(values.shape[0]):
            numbers[i] += np.uint8(values[i] >= bound)
    for i in range(numbers.shape[0]):
        counts[numbers[i]] += 1


@kernel
def move_to_parts(keys, weights, parts, first, end, positions, moved_keys, moved_weights):
    """Copy the keys from ``first`` to ``end`` to the next positions of their parts, in order.

    Args:
        keys: uint64, shape ``(n,)``.
        weights: Address of int64, one per row; not read if there are no ``moved_weights``.
        parts: The part of each key.
        first: The first row.
        end: The row after the last one.
        positions: int64, the next position of each part; it is overwritten.
        moved_keys: uint64, shape ``(n,)``.
        moved_weights: int64, shape ``(n,)`` or empty.
    """
    has_weights = moved_weights.shape[0] > 0
    for i in range(first, end):
        position = positions[parts[i]]
        positions[parts[i]] = position + 1
        moved_keys[position] = keys[i]
        if has_weights:
            moved_weights[position] = load(weights, i)


@kernel
def sort_part(keys, weights, scratch, low_bit):
    """Apply `sum_keys` to a part of at least one key, which is sorted by the bits below a bit.

    ``scratch`` is int64, of shape ``(2, n)``.
    """
    lowest = keys[0]
    highest = keys[0]
    for i in range(1, keys.shape[0]):
        lowest = min(lowest, keys[i])
        highest = max(highest, keys[i])
    # The bits above are equal in all keys.
    high_bit = np.int64(0)
    difference = lowest ^ highest
    while difference > np.uint64(0):
        difference >>= np.uint64(1)
        high_bit += 1
    other_keys = scratch[0].view(np.uint64)
    return sum_keys(keys, other_keys, weights, scratch[1], low_bit, max(high_bit, low_bit))


@kernel
def write_rows(keys, lowest, shifts, bits, columns, first):
    """Write the rows of sorted keys to ``columns``, from row ``first`` on."""
    target = columns[:, first : first + keys.shape[0]]
    unpack_rows(keys, np.arange(columns.shape[0]), lowest, shifts, bits, target)


@subroutine
def is_prefix(order):
    """Return whether ``order`` is 0, 1, 2, …"""
    k = 0
    while k < order.shape[0] and order[k] == k:
        k += 1
    return k == order.shape[0]
