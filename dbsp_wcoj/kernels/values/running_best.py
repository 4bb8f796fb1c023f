"""Running best: the values of each key that lower the least value so far, before and after a step.

A candidate (key, value, iteration) is inserted where the sum of its weights so far becomes
positive. It is an improvement if all lower values of its key are inserted later::

    improved(v, i) = inserted(v, i) and i < min {j : inserted(w, j), w < v}
                                    and i < min {j : inserted(v, j), j ≠ i}

The candidates of a key are sorted by value, so one pass finds both minima: it keeps the earliest
iteration so far. The first improvement that it finds has the least value of the key.
"""

import numpy as np

from dbsp_wcoj.kernels.compilation import kernel, subroutine
from dbsp_wcoj.kernels.values.arithmetic import OVERFLOWED, add

# No iteration is as late as this.
NEVER = np.int64(2**63 - 1)


@kernel
def change_improvements(keys, rows, old, new, positions, weights, best_positions, best_weights):
    """Find the changes of the improvements and of the least value of each key.

    Args:
        keys: int64, the key of each candidate; those of a key are next to each other.
        rows: int64, shape ``(2, n)``: values and iterations, sorted within each key.
        old: int64, the weight of each candidate before the step.
        new: int64, its weight after the step.
        positions: int64, shape ``(n,)``; receives the positions of the candidates that begin or
            cease to be an improvement.
        weights: int64, shape ``(n,)``; receives 1 for those that begin, -1 for the others.
        best_positions: int64, shape ``(2 n,)``; receives the position of each new and each old
            least value, if they differ.
        best_weights: int64, shape ``(2 n,)``; receives 1 for new values, -1 for old ones.

    Returns:
        ``(changes, best_changes, is_overflow)``: the numbers of positions; and whether a sum of
        weights does not fit in int64, so that they are not valid.
    """
    values = rows[0]
    iterations = rows[1]
    count = np.int64(0)
    best_count = np.int64(0)
    old_sum = np.int64(0)
    new_sum = np.int64(0)
    old_earliest = NEVER
    new_earliest = NEVER
    old_best = np.int64(-1)
    new_best = np.int64(-1)
    is_overflow = False
    for i in range(keys.shape[0]):
        if i == 0 or keys[i] != keys[i - 1]:
            best_count = write_best(
                values, old_best, new_best, best_positions, best_weights, best_count
            )
            old_earliest = NEVER
            new_earliest = NEVER
            old_best = np.int64(-1)
            new_best = np.int64(-1)
            old_sum = np.int64(0)
            new_sum = np.int64(0)
        elif values[i] != values[i - 1]:
            old_sum = np.int64(0)
            new_sum = np.int64(0)
        iteration = iterations[i]
        old_before = old_sum
        new_before = new_sum
        old_sum = add(old_sum, old[i])
        new_sum = add(new_sum, new[i])
        is_overflow |= old_sum == OVERFLOWED or new_sum == OVERFLOWED
        is_old = old_before <= 0 and old_sum > 0 and iteration < old_earliest
        is_new = new_before <= 0 and new_sum > 0 and iteration < new_earliest
        if is_old:
            old_earliest = iteration
            if old_best < 0:
                old_best = np.int64(i)
        if is_new:
            new_earliest = iteration
            if new_best < 0:
                new_best = np.int64(i)
        if is_old != is_new:
            positions[count] = i
            weights[count] = 1 if is_new else -1
            count += 1
    best_count = write_best(values, old_best, new_best, best_positions, best_weights, best_count)
    return count, best_count, is_overflow


@subroutine
def write_best(values, old_best, new_best, positions, weights, count):
    """Write the change of the least value of a key; return the new number of changes."""
    if old_best >= 0 and new_best >= 0 and values[old_best] == values[new_best]:
        return count
    if new_best >= 0:
        positions[count] = new_best
        weights[count] = 1
        count += 1
    if old_best >= 0:
        positions[count] = old_best
        weights[count] = -1
        count += 1
    return count
