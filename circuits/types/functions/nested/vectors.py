"""Functions of vectors: lists of numbers of equal length, without NULL.

Sums are taken in double precision, in the order of the elements. The result is NULL if a list is
NULL; the cosine of vectors without numbers is NULL, too. Cost: O(elements).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyarrow import types as arrow

from circuits.types.codecs.nested import Lists
from circuits.types.functions.argument_rows import fill_rows, row_count
from circuits.types.functions.casting.coercion import cast_to
from circuits.types.functions.function import (
    Arguments,
    Function,
    Kernel,
    TypedArguments,
    Values,
    argument_error,
    require,
)
from circuits.types.functions.nested.list_masks import valid_all
from circuits.types.functions.nested.list_rules import require_lists, type_null_lists
from circuits.types.functions.type_rules import is_number

__all__ = ["FUNCTIONS"]

_FLOAT: Final = pa.float64()
Floats = np.ndarray[Any, np.dtype[np.float64]]
SumByRow = Callable[[Floats], Floats]


def _rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
    require(name, arguments, 2, 2)
    require_lists(name, arguments, 2)
    typed = type_null_lists(arguments)
    for vector in typed:
        element_type = vector.type.value_type
        if not is_number(element_type) and not arrow.is_null(element_type):
            raise argument_error(name, arguments, "it takes lists of numbers")
    return tuple(cast_to(vector, pa.list_(_FLOAT)) for vector in typed), _FLOAT


def _kernel(
    function: Callable[[Floats, Floats, SumByRow], Floats], *, null_if_empty: bool = False
) -> Kernel:
    """Return the kernel of a function of the two lists of each row.

    Args:
        function: Returns one number per row. Its arguments are the elements of the left lists of
            all rows, one list after another; the elements of the right lists in the same order;
            and a function from an array of one number per element to the sum of each row.
        null_if_empty: True if the result for vectors without numbers is NULL.
    """

    def kernel(arguments: Sequence[Values], result_type: pa.DataType) -> Values:
        rows = row_count(arguments)
        arrays = [fill_rows(values, rows) for values in arguments]
        valid = valid_all(arrays)
        if valid is not None:
            arrays = [array.filter(pa.array(valid)) for array in arrays]
        left, right = (Lists.of(array) for array in arrays)
        if (left.lengths != right.lengths).any():
            row = int((left.lengths != right.lengths).argmax())
            raise pa.ArrowInvalid(
                f"vectors of {left.lengths[row]} and {right.lengths[row]} numbers"
            )
        if left.values.null_count or right.values.null_count:
            raise pa.ArrowInvalid("a vector has a NULL")

        def sum_by_row(values: Floats) -> Floats:
            totals = np.bincount(left.owners, values, len(left.lengths))
            return totals.astype(np.float64)

        with np.errstate(all="ignore"):
            result = function(left.values.to_numpy(), right.values.to_numpy(), sum_by_row)
        has_result = left.lengths > 0 if null_if_empty else np.ones(len(result), np.bool_)
        if valid is None:
            return pa.array(result, _FLOAT, mask=~has_result)
        filled, is_null = np.zeros(rows), np.ones(rows, np.bool_)
        filled[valid], is_null[valid] = result, ~has_result
        return pa.array(filled, _FLOAT, mask=is_null)

    return kernel


def _dot_product(left: Floats, right: Floats, sum_by_row: SumByRow) -> Floats:
    return sum_by_row(left * right)


def _distance(left: Floats, right: Floats, sum_by_row: SumByRow) -> Floats:
    return np.sqrt(sum_by_row((left - right) ** 2))


def _cosine_similarity(left: Floats, right: Floats, sum_by_row: SumByRow) -> Floats:
    norms = np.sqrt(sum_by_row(left * left) * sum_by_row(right * right))
    return np.clip(sum_by_row(left * right) / norms, -1.0, 1.0)


FUNCTIONS = (
    Function(
        "list_dot_product", "the inner product of the vectors a and b", _rule, _kernel(_dot_product)
    ),
    Function(
        "list_distance", "the Euclidean distance of the vectors a and b", _rule, _kernel(_distance)
    ),
    Function(
        "list_cosine_similarity",
        "the cosine of the angle between the vectors a and b",
        _rule,
        _kernel(_cosine_similarity, null_if_empty=True),
    ),
)
