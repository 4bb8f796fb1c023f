"""Histograms with given bins, as in DuckDB.

::

    histogram(x, [1, 5])          {1: values up to 1, 5: values from 1 to 5, others: values above}
    histogram_exact(x, [1, 5])    {1: values equal to 1, 5: those equal to 5, others: all others}

The key of the others is the greatest value of the type; it is there only if there are others.

Cost: O(values * log(bins)).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as arrow

from circuits.types.functions.argument_rows import fill_rows, row_count
from circuits.types.functions.function import (
    Arguments,
    Function,
    TypedArguments,
    Values,
    argument_error,
    require,
)
from circuits.types.functions.nested.list_rules import is_list

__all__ = ["FUNCTIONS"]


def _rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
    require(name, arguments, 2, None)
    values, *bins = arguments
    element = values.type.value_type if is_list(values.type) else None
    is_number = element is not None and (arrow.is_integer(element) or arrow.is_floating(element))
    if not is_number or any(part.type != element for part in bins):
        raise argument_error(name, arguments, "it takes a list of numbers, and bins of its type")
    return arguments, pa.map_(element, pa.uint64())


def _histogram(arguments: Sequence[Values], result_type: pa.DataType, *, is_exact: bool) -> Values:
    """Count the values of lists; the other arguments are the bins. NULL counts for no bin."""
    lists = fill_rows(arguments[0], row_count(arguments))
    key_type = result_type.key_type
    dtype: Any = key_type.to_pandas_dtype()
    bins = np.unique(np.array([_scalar(part) for part in arguments[1:]], dtype))
    is_float = arrow.is_floating(key_type)
    greatest = np.inf if is_float else np.iinfo(dtype).max
    elements, parents = lists.flatten(), lists.value_parent_indices()
    values = elements.drop_null().to_numpy(zero_copy_only=False)
    rows = parents.filter(elements.is_valid()).to_numpy(zero_copy_only=False)
    places = np.searchsorted(bins, values)
    if is_float:
        places[np.isnan(values)] = 0  # it is not above any bin
    if is_exact and len(bins):
        is_equal = bins[np.minimum(places, len(bins) - 1)] == values
        places = np.where(is_equal, places, len(bins))
    width = len(bins) + 1
    counts = np.bincount(rows * width + places, minlength=len(lists) * width)
    counts = counts.reshape(len(lists), width)
    is_kept = np.ones(counts.shape, np.bool_)
    is_kept[:, -1] = counts[:, -1] > 0
    has_values = counts.sum(axis=1) > 0
    is_kept[~has_values] = False
    keys = np.broadcast_to(np.append(bins, np.array(greatest, dtype)), counts.shape)[is_kept]
    offsets = np.append(0, np.cumsum(is_kept.sum(axis=1))).astype(np.int32)
    maps = pa.MapArray.from_arrays(
        pa.array(offsets), pa.array(keys, key_type), pa.array(counts[is_kept], pa.uint64())
    )
    return pc.if_else(pa.array(has_values), maps, pa.scalar(None, result_type))


def _scalar(value: Values) -> Any:
    return (value if isinstance(value, pa.Scalar) else value[0]).as_py()


FUNCTIONS = (
    Function(
        "list_histogram_bins",
        "the map from each of the bins b, ... to the number of values of the list a up to it",
        _rule,
        partial(_histogram, is_exact=False),
    ),
    Function(
        "list_histogram_exact",
        "the map from each of the values b, ... to the number of its equals in the list a",
        _rule,
        partial(_histogram, is_exact=True),
    ),
)
