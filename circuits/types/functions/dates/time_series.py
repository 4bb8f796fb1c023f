"""Series of times whose step has months: each time is the one before it plus the step.

::

    2020-01-31, 2020-02-29, 2020-03-29, ...     the day of the month never grows again

A step of days and shorter units has equal distances: it is a series of integers
(`circuits.types.functions.nested.list_builders`). Cost: O(elements) array operations on the rows
whose series goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as arrow

from circuits.types.codecs.nested import list_array
from circuits.types.functions.argument_rows import fill_rows, row_count
from circuits.types.functions.casting.coercion import cast_to
from circuits.types.functions.dates.date_shifts import shift_by_parts
from circuits.types.functions.function import (
    Arguments,
    Function,
    Kernel,
    TypedArguments,
    Values,
    argument_error,
    require,
)
from circuits.types.functions.length_limits import MAX_LIST_ELEMENTS, check_list_lengths
from circuits.types.functions.nested.list_masks import valid_all

__all__ = ["FUNCTIONS"]

_MOMENT: Final = pa.timestamp("us")
_INT: Final = pa.int64()


def _rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
    require(name, arguments, 5, 5)
    if not all(arrow.is_timestamp(end.type) or arrow.is_null(end.type) for end in arguments[:2]):
        raise argument_error(name, arguments, "it takes two timestamps and the parts of a step")
    ends = (cast_to(end, _MOMENT) for end in arguments[:2])
    return (*ends, *(cast_to(part, _INT) for part in arguments[2:])), pa.list_(_MOMENT)


def _series(*, exclusive: bool) -> Kernel:
    """Return a kernel for the times from a start to a stop; exclusive: the stop is left out."""

    def kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
        rows = row_count(arguments)
        arrays = [fill_rows(values, rows) for values in arguments]
        valid = valid_all(arrays)
        time, stop, *parts = (
            pc.fill_null(pc.cast(array, _INT), 0).to_numpy(zero_copy_only=False).copy()
            for array in arrays
        )
        is_rising = np.logical_or.reduce([part > 0 for part in parts])
        is_falling = np.logical_or.reduce([part < 0 for part in parts])
        is_wrong = is_rising == is_falling
        if (is_wrong if valid is None else is_wrong & valid).any():
            raise pa.ArrowInvalid("the step of a series is 0, or has parts of both signs")
        lengths = np.zeros(rows, np.int64)
        owners: list[npt.NDArray[Any]] = []
        times: list[npt.NDArray[Any]] = []
        alive = np.arange(rows) if valid is None else np.flatnonzero(valid)
        while True:
            distance = np.where(is_rising, 1, -1)[alive] * np.sign(stop[alive] - time[alive])
            alive = alive[distance > 0 if exclusive else distance >= 0]
            if not len(alive):
                break
            owners.append(alive)
            times.append(time[alive])
            lengths[alive] += 1
            if lengths.max() > MAX_LIST_ELEMENTS:
                check_list_lengths(lengths)
            time[alive] = shift_by_parts(time[alive], *(part[alive] for part in parts))
        check_list_lengths(lengths)
        order = np.argsort(np.concatenate([np.empty(0, np.int64), *owners]), kind="stable")
        elements = np.concatenate([np.empty(0, np.int64), *times])[order]
        return list_array(result_type, lengths, [pa.array(elements).cast(_MOMENT)], valid)

    return kernel


# The arguments are a start, a stop, months, days and microseconds.
FUNCTIONS = (
    Function(
        "time_series",
        "the times from a to b, each c months, d days and e microseconds after the one before",
        _rule,
        _series(exclusive=False),
    ),
    Function("time_series_before", "as time_series, without b", _rule, _series(exclusive=True)),
)
