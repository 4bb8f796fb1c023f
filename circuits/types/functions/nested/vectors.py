"""Functions of two vectors: inner product, distance and cosine, as in DuckDB.

A vector is a list of numbers. The two vectors of a row must have the same length and no NULL among
their elements; otherwise the functions raise an error. The result is NULL if a vector is NULL. The
cosine of two empty vectors is NULL, too; that of a vector of zeros is NaN.

The type of the result is FLOAT if one list has elements of type FLOAT and none has DOUBLE, else
DOUBLE. Sums are computed in this precision, in the order of the elements.

Cost: O(elements).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

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

Floats = np.ndarray[Any, np.dtype[np.floating[Any]]]
# From two factors for each element of all lists: for each list, the sum of the products.
SumProducts = Callable[[Floats, Floats], Floats]


def _rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
    require(name, arguments, 2, 2)
    require_lists(name, arguments, 2)
    typed = type_null_lists(arguments)
    for vector in typed:
        element_type = vector.type.value_type
        if not is_number(element_type) and not arrow.is_null(element_type):
            raise argument_error(name, arguments, "it takes lists of numbers")
    types = {vector.type.value_type for vector in typed}
    is_single = pa.float32() in types and pa.float64() not in types
    result_type = pa.float32() if is_single else pa.float64()
    return tuple(cast_to(vector, pa.list_(result_type)) for vector in typed), result_type


def _kernel(
    function: Callable[[Floats, Floats, SumProducts], Floats], *, null_if_empty: bool = False
) -> Kernel:
    """Return the kernel of a function of the two lists of each row.

    Args:
        function: Returns one number per row. Its arguments are the elements of the left lists of
            all rows, one list after another; the elements of the right lists in the same order;
            and a function that returns, for each row, the sum of the products of two arrays of
            one number per element.
        null_if_empty: Whether the result for two empty vectors is NULL.

    The kernel raises ``ArrowInvalid`` if the lengths in a row differ, or an element is NULL.
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

        def sum_products(factors: Floats, others: Floats) -> Floats:
            if arrow.is_float32(result_type):
                return _sum_single_products(factors, others, left)
            totals = np.bincount(left.owners, factors * others, len(left.lengths))
            return totals.astype(np.float64)

        with np.errstate(all="ignore"):
            result = function(left.values.to_numpy(), right.values.to_numpy(), sum_products)
        has_result = left.lengths > 0 if null_if_empty else np.ones(len(result), np.bool_)
        if valid is None:
            return pa.array(result, result_type, mask=~has_result)
        filled, is_null = np.zeros(rows, result.dtype), np.ones(rows, np.bool_)
        filled[valid], is_null[valid] = result, ~has_result
        return pa.array(filled, result_type, mask=is_null)

    return kernel


def _sum_single_products(factors: Floats, others: Floats, lists: Lists) -> Floats:
    """Return the sum of the products in each list, in single precision.

    Each iteration adds the products at one position of all lists. A product is not rounded before
    it is added, because a double represents the product of two floats exactly. DuckDB has the same
    results: its compiler uses a fused multiply-add.
    """
    products = factors.astype(np.float64) * others
    totals = np.zeros(len(lists.lengths), np.float32)
    for position in range(int(lists.lengths.max(initial=0))):
        rows = np.flatnonzero(lists.lengths > position)
        totals[rows] = totals[rows] + products[lists.starts[rows] + position]
    return totals


def _dot_product(left: Floats, right: Floats, sum_products: SumProducts) -> Floats:
    return sum_products(left, right)


def _distance(left: Floats, right: Floats, sum_products: SumProducts) -> Floats:
    difference = left - right
    return np.sqrt(sum_products(difference, difference))


def _cosine_similarity(left: Floats, right: Floats, sum_products: SumProducts) -> Floats:
    norms = np.sqrt(sum_products(left, left) * sum_products(right, right))
    return np.clip(sum_products(left, right) / norms, -1.0, 1.0)


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
