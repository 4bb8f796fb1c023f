"""Sorting rows and adding up the weights of equal rows.

Where the columns' ranges together fit in 64 bits, a row is packed into one unsigned key and the
keys are sorted by byte (least significant first, bytes that are all equal skipped): O(n) per
byte in use. Wider rows are sorted by one column after the other, last column first, which is the
same sort with a permutation as its payload. A handful of rows is insertion-sorted in place.
"""

import numpy as np
from numba import njit

from dbsp_wcoj.kernels.arithmetic import add
from dbsp_wcoj.kernels.compiled import compiled

# Up to this many rows insertion sort beats counting 256 buckets.
FEW = 48

OK = 0
OVERFLOW = 1


@njit(nogil=True)
def precedes(columns, order, i, j):
    """Return -1, 0 or 1 as row ``i`` is before, equal to or after row ``j`` in column order."""
    for k in range(order.shape[0]):
        x = columns[order[k], i]
        y = columns[order[k], j]
        if x < y:
            return -1
        if x > y:
            return 1
    return 0


@njit(nogil=True)
def key_shifts(columns, order):
    """Return ``(lowest, shifts, bits)``: the packing of a row, or bits > 64 when none exists.

    ``shifts[k]`` is the bit position of column ``order[k]``; the last column is lowest.
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


@njit(nogil=True)
def pack_rows(columns, order, lowest, shifts):
    """Return one uint64 key per row."""
    rows = columns.shape[1]
    keys = np.zeros(rows, np.uint64)
    for k in range(order.shape[0]):
        column = columns[order[k]]
        low = np.uint64(lowest[k])
        shift = np.uint64(min(shifts[k], 63))
        for i in range(rows):
            keys[i] |= (np.uint64(column[i]) - low) << shift
    return keys


@njit(nogil=True)
def radix_sort(keys, payload, low_bit, high_bit):
    """Stable sort of ``keys`` by their bits ``[low_bit, high_bit)``; ``payload`` follows, if any.

    Returns ``(keys, payload)``, new arrays or the given ones. ``payload`` is empty or as long.
    """
    rows = keys.shape[0]
    carry = payload.shape[0] > 0
    other_keys = np.empty(rows, np.uint64)
    other_payload = np.empty(payload.shape[0], np.int64)
    places = np.empty(256, np.int64)
    for low in range(low_bit, high_bit, 8):
        shift = np.uint64(low)
        mask = np.uint64((1 << min(8, high_bit - low)) - 1)
        places[:] = 0
        for i in range(rows):
            places[(keys[i] >> shift) & mask] += 1
        if places[(keys[0] >> shift) & mask] == rows:
            continue
        total = np.int64(0)
        for digit in range(256):
            count = places[digit]
            places[digit] = total
            total += count
        if carry:
            for i in range(rows):
                digit = (keys[i] >> shift) & mask
                place = places[digit]
                places[digit] = place + 1
                other_keys[place] = keys[i]
                other_payload[place] = payload[i]
            payload, other_payload = other_payload, payload
        else:
            for i in range(rows):
                digit = (keys[i] >> shift) & mask
                place = places[digit]
                places[digit] = place + 1
                other_keys[place] = keys[i]
        keys, other_keys = other_keys, keys
    return keys, payload


@njit(nogil=True)
def row_permutation(columns, order):
    """Return the stable permutation that sorts rows of any width by ``order``."""
    rows = columns.shape[1]
    permutation = np.arange(rows)
    if rows <= FEW:
        for i in range(1, rows):
            row = permutation[i]
            j = i
            while j > 0 and precedes(columns, order, permutation[j - 1], row) > 0:
                permutation[j] = permutation[j - 1]
                j -= 1
            permutation[j] = row
        return permutation
    for k in range(order.shape[0] - 1, -1, -1):
        lowest, _, bits = key_shifts(columns, order[k : k + 1])
        if bits == 0:
            continue
        keys = np.empty(rows, np.uint64)
        low = np.uint64(lowest[0])
        for i in range(rows):
            keys[i] = np.uint64(columns[order[k], permutation[i]]) - low
        keys, permutation = radix_sort(keys, permutation, 0, bits)
    return permutation


@njit(nogil=True)
def is_sorted(columns, order):
    """Return whether rows are strictly increasing in the column order."""
    row = 1
    while row < columns.shape[1] and precedes(columns, order, row - 1, row) < 0:
        row += 1
    return row >= columns.shape[1]


@njit(nogil=True)
def unpack_rows(keys, order, lowest, shifts, bits, columns):
    """Write the rows of sorted ``keys`` to ``columns``."""
    arity = order.shape[0]
    rows = keys.shape[0]
    top = bits
    for k in range(arity):
        shift = np.uint64(min(shifts[k], 63))
        width = top - shifts[k]
        mask = np.uint64(0xFFFFFFFFFFFFFFFF)
        if width == 0:
            mask = np.uint64(0)
        elif width < 64:
            mask = (np.uint64(1) << np.uint64(width)) - np.uint64(1)
        low = np.uint64(lowest[k])
        column = columns[order[k]]
        for i in range(rows):
            column[i] = np.int64(((keys[i] >> shift) & mask) + low)
        top = shifts[k]


@compiled
def consolidate(columns, weights):
    """Sort rows, add the weights of equal rows, drop rows of weight zero.

    Args:
        columns: int64, shape ``(arity, n)``, arity >= 1.
        weights: int64, shape ``(n,)``.

    Returns:
        ``(columns, weights, status)``; status is `OVERFLOW` when a sum passes int64.
    """
    arity, rows = columns.shape
    order = np.arange(arity)
    if rows <= FEW or is_sorted(columns, order):
        if rows > FEW or is_sorted(columns, order):
            zeros = False
            for i in range(rows):
                zeros |= weights[i] == 0
            if not zeros:
                return columns, weights, OK
            permutation = order[:0]
        else:
            permutation = row_permutation(columns, order)
    else:
        lowest, shifts, bits = key_shifts(columns, order)
        if bits <= 64:
            return consolidate_keys(columns, weights, order, lowest, shifts, bits)
        permutation = row_permutation(columns, order)
    sorted_already = permutation.shape[0] == 0
    result = np.empty((arity, rows), np.int64)
    summed = np.empty(rows, np.int64)
    kept = 0
    i = 0
    while i < rows:
        row = i if sorted_already else permutation[i]
        total = weights[row]
        i += 1
        while (
            i < rows and not sorted_already and precedes(columns, order, row, permutation[i]) == 0
        ):
            total, overflowed = add(total, weights[permutation[i]])
            if overflowed:
                return columns, weights, OVERFLOW
            i += 1
        if total != 0:
            for k in range(arity):
                result[k, kept] = columns[k, row]
            summed[kept] = total
            kept += 1
    if kept < rows:
        return np.ascontiguousarray(result[:, :kept]), summed[:kept].copy(), OK
    return result, summed, OK


@njit(nogil=True)
def consolidate_keys(columns, weights, order, lowest, shifts, bits):
    """`consolidate` by packed keys."""
    rows = columns.shape[1]
    keys = pack_rows(columns, order, lowest, shifts)
    unit = True
    for i in range(rows):
        unit &= weights[i] == 1
    payload = weights[:0] if unit else weights.copy()
    keys, payload = radix_sort(keys, payload, 0, bits)
    summed = np.empty(rows, np.int64)
    kept = 0
    i = 0
    while i < rows:
        key = keys[i]
        total = np.int64(1) if unit else payload[i]
        i += 1
        while i < rows and keys[i] == key:
            total, overflowed = add(total, np.int64(1) if unit else payload[i])
            if overflowed:
                return columns, weights, OVERFLOW
            i += 1
        if total != 0:
            keys[kept] = key
            summed[kept] = total
            kept += 1
    result = np.empty((order.shape[0], kept), np.int64)
    unpack_rows(keys[:kept], order, lowest, shifts, bits, result)
    return result, summed[:kept].copy() if kept < rows else summed, OK


@njit(nogil=True)
def sort_rows(columns, weights, order):
    """Return ``(columns, weights)`` with the rows sorted in another column order.

    The rows are distinct and sorted by their first column, second column and so on. Where the
    tail of ``order`` is a prefix of that (as for the reverse of a binary relation), the sort by
    the tail is already there and only the other columns' bytes are sorted.
    """
    arity, rows = columns.shape
    if rows > FEW:
        lowest, shifts, bits = key_shifts(columns, order)
        if bits <= 64:
            keys = pack_rows(columns, order, lowest, shifts)
            first = arity
            for start in range(arity):
                if is_prefix(order[start:]):
                    first = start
                    break
            low_bit = bits if first == 0 else (0 if first == arity else shifts[first - 1])
            unit = True
            for i in range(rows):
                unit &= weights[i] == 1
            payload = weights[:0] if unit else weights.copy()
            keys, payload = radix_sort(keys, payload, low_bit, bits)
            result = np.empty((arity, rows), np.int64)
            unpack_rows(keys, order, lowest, shifts, bits, result)
            return result, weights if unit else payload
    permutation = row_permutation(columns, order)
    result = np.empty((arity, rows), np.int64)
    moved = np.empty(rows, np.int64)
    for i in range(rows):
        row = permutation[i]
        moved[i] = weights[row]
        for k in range(arity):
            result[k, i] = columns[k, row]
    return result, moved


@njit(nogil=True)
def is_prefix(order):
    """Return whether ``order`` is 0, 1, 2, …"""
    k = 0
    while k < order.shape[0] and order[k] == k:
        k += 1
    return k == order.shape[0]
