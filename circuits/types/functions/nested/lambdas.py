"""Functions of lists with an expression over each element: transform, filter, exists, all, reduce.

::

    list_transform(a, body, …)     the values of the body, in the order of the elements
    list_filter(a, body, …)        the elements for which the body is true
    list_exists(a, body, …)        true if the body is true for an element
    list_forall(a, body, …)        true if the body is true for all elements
    list_reduce(a, body, start, …) the last value of a sequence that begins with start: for each
                                   element, the body computes the next value from the one before
    list_sort_by(a, body, …)       the elements in the order of the comparisons of the body

The body is a literal whose value is an expression. Its columns 0 and 1 are the element and its
position; in `list_reduce`, the value so far and the element; in `list_sort_by`, two elements. Its
other columns are the arguments ``…``, which are the columns of the row that the body reads. So a
rewrite rule that replaces columns of the row need only replace arguments, and never changes the
body. The evaluator computes the body for the elements of all lists at once
(`circuits.runtime.evaluation`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from circuits.errors import FunctionError
from circuits.plan.expressions import Call, Column, Expression, Literal, substitute
from circuits.types.codecs.nested import Lists, element_positions, list_array
from circuits.types.functions.casting.coercion import cast_to
from circuits.types.functions.function import Arguments, Function, TypedArguments, argument_error
from circuits.types.functions.nested.list_masks import filter_elements, has_any, null_mask
from circuits.types.functions.nested.list_rules import is_list

__all__ = [
    "FUNCTIONS",
    "LAMBDA_FUNCTIONS",
    "MAX_PAIRS",
    "Pairs",
    "apply_lambda",
    "lambda_call",
    "sort_by_comparisons",
]

_DESCRIPTIONS: Final = {
    "list_transform": "the list of the values of b for the elements of the list a",
    "list_filter": "the elements of the list a for which b is true",
    "list_exists": "true if b is true for an element of the list a",
    "list_forall": "true if b is true for all elements of the list a",
    "list_sort_by": "the list a sorted by b, which compares two elements: negative, 0 or positive",
    "list_reduce": "the value c, combined by b with each element of the list a in turn",
}
LAMBDA_FUNCTIONS: Final = frozenset(_DESCRIPTIONS)
#: The most pairs of elements that one call of `list_sort_by` compares.
MAX_PAIRS: Final = 20_000_000


def lambda_call(
    name: str,
    values: Expression,
    body: Expression,
    parameters: tuple[int, ...],
    start: Expression | None = None,
) -> Expression:
    """Return the call of a function of `LAMBDA_FUNCTIONS`.

    Args:
        name: The name of the function.
        values: The list.
        body: The expression. Its columns are the parameters of the lambda and columns of the row.
        parameters: The indices of the columns that stand for the parameters of the lambda.
        start: The first value of `list_reduce`.

    Raises:
        FunctionError: The argument is not a list, or the body has the wrong type.
    """
    if not is_list(values.type):
        raise FunctionError(f"{name}({values.type}, ...) does not exist: it takes a list")
    captured: dict[Column, int] = {}

    def renumber(column: Column) -> Column:
        if column.index in parameters:
            return Column(parameters.index(column.index), column.type)
        return Column(2 + captured.setdefault(column, len(captured)), column.type)

    body = substitute(body, renumber)
    result_type = pa.list_(body.type)
    if name in ("list_filter", "list_sort_by"):
        result_type = pa.list_(values.type.value_type)
    elif name in ("list_exists", "list_forall"):
        result_type = pa.bool_()
    elif start is not None:
        result_type = start.type
        body = cast_to(body, result_type)
    if name in ("list_filter", "list_exists", "list_forall"):
        if pa.types.is_null(body.type):
            body = Literal(None, pa.bool_())
        if not pa.types.is_boolean(body.type):
            raise FunctionError(f"{name} needs a condition, not a value of type {body.type}")
    if name == "list_sort_by":
        body = cast_to(body, pa.int64())
    more_arguments = [*([start] if start is not None else []), *captured]
    return Call(name, (values, Literal(body, pa.null()), *more_arguments), result_type)


def apply_lambda(name: str, lists: Lists, values: pa.Array, result_type: pa.DataType) -> pa.Array:
    """Return the results of a function of `LAMBDA_FUNCTIONS`.

    Args:
        name: The name of the function.
        lists: The lists.
        values: The value of the body for each element of all lists.
        result_type: The type of the result.
    """
    if name == "list_transform":
        element_type = result_type.value_type
        elements = values if values.type == element_type else pc.cast(values, element_type)
        return list_array(result_type, lists.lengths, [elements], lists.valid)
    is_true = pc.fill_null(values, False).to_numpy(zero_copy_only=False)
    if name == "list_filter":
        return filter_elements(lists, is_true, result_type)
    # One true element decides list_exists, one false element list_forall.
    is_exists = name == "list_exists"
    is_null = null_mask(values)
    decides = is_true if is_exists else ~is_true & ~is_null
    is_decided = has_any(lists, decides)
    is_unknown = ~is_decided & has_any(lists, is_null)
    if lists.valid is not None:
        is_unknown |= ~lists.valid
    # A decided list_exists is true, a decided list_forall false; an undecided one is the opposite.
    return pa.array(is_decided == is_exists, mask=is_unknown)


@dataclass(frozen=True)
class Pairs:
    """All pairs of elements of each list.

    Attributes:
        left: The index of the first element of each pair, among the elements of all lists.
        right: The index of its second element.
        owners: The row of its list.
    """

    left: npt.NDArray[np.int64]
    right: npt.NDArray[np.int64]
    owners: npt.NDArray[np.int64]

    @classmethod
    def of(cls, lists: Lists) -> Pairs:
        """Return the pairs of the elements of lists.

        Raises:
            ArrowInvalid: There are more than `MAX_PAIRS`.
        """
        lengths = lists.lengths
        if float(np.sum(lengths.astype(float) ** 2)) > MAX_PAIRS:
            raise pa.ArrowInvalid(f"lists to sort have more than {MAX_PAIRS:,} pairs of elements")
        pair_counts = lengths * lengths
        owners = np.repeat(np.arange(len(lengths)), pair_counts)
        pair_numbers = element_positions(pair_counts)  # from 0 in each list
        starts, list_lengths = lists.starts[owners], lengths[owners]
        left, right = np.divmod(pair_numbers, list_lengths)  # positions in the list
        return cls(starts + left, starts + right, owners)


def sort_by_comparisons(
    lists: Lists, pairs: Pairs, comparisons: pa.Array, result_type: pa.DataType
) -> pa.Array:
    """Return lists whose elements are in the order of the comparisons of all pairs.

    The new position of an element is the number of elements before it: those that compare as less,
    and the equal ones that are before it already. Complexity: O(n^2) for a list of n elements.
    """
    if comparisons.null_count:
        raise pa.ArrowInvalid("the comparison of two elements is NULL")
    signs = comparisons.to_numpy(zero_copy_only=False)
    right_is_before = (signs > 0) | ((signs == 0) & (pairs.right < pairs.left))
    new_positions = np.zeros(len(lists.values), np.int64)
    np.add.at(new_positions, pairs.left[right_is_before], 1)
    order = np.lexsort((new_positions, lists.owners))
    return list_array(result_type, lists.lengths, [lists.values.take(pa.array(order))], lists.valid)


def _rule(name: str, arguments: Arguments, target_type: pa.DataType | None) -> TypedArguments:
    raise argument_error(name, arguments, "its second argument is written as x -> expression")


FUNCTIONS = tuple(Function(name, text, _rule) for name, text in _DESCRIPTIONS.items())
