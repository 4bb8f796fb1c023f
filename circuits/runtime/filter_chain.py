"""Filter chain: consecutive filters, and a projection after them, as one compiled call.

::

    filter[p1] → filter[p2] → … → map[columns]   =   one pass over the rows

A rewrite splits a condition into one filter per conjunct, so that views with a common condition
share nodes. A step of a few rows would then spend most of its time between the filters: each one
builds a batch, masks and a Z-set. In a chain, each filter is the only reader of the one before it.
The last node may be a map that only chooses columns. The predicates only compare codes, so they
cannot fail, and `dbsp_wcoj.kernels.values.select_rows` evaluates all of them in one call.

A chain gives the same result as its nodes one by one. Only the delta of its last node is computed,
because no other node reads those before it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from circuits.plan.expressions import Call, Expression
from circuits.runtime.code_arithmetic import columns_that_make_null
from circuits.runtime.graph_node import Node
from circuits.runtime.operators.linear import FilterOperator, MapOperator
from circuits.runtime.predicates import (
    CodeComparison,
    Side,
    compares_codes,
    comparison_of,
    equalities_of,
)
from circuits.types.codecs.codec import NULL, Codecs
from dbsp_wcoj import WeightOverflowError, ZSet
from dbsp_wcoj.kernels.storage.sort import MAX_INSERTION_ROWS
from dbsp_wcoj.kernels.values import select_rows as kernels
from dbsp_wcoj.kernels.values.select_rows import OVERFLOWED_WEIGHT, select_rows
from dbsp_wcoj.zset import MAX_INT64, Int64Array, consolidated_rows

__all__ = ["FilterChain", "find_chains"]

_NEGATED: Final = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "le": "gt", "gt": "le"}
_MIRRORED: Final = {"eq": "eq", "ne": "ne", "lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}
_COLUMN_OPERATIONS: Final = {
    "lt": kernels.LESS,
    "le": kernels.LESS_OR_EQUAL,
    "eq": kernels.EQUAL,
    "ne": kernels.UNEQUAL,
    "same": kernels.SAME,
    "distinct": kernels.DISTINCT,
}
_NO_COLUMNS: Final[Int64Array] = np.empty(0, np.int64)
#: In deltas with at least this many rows, those in the range of the first column are searched for.
MIN_SEARCHED_ROWS: Final = 1 << 12
#: Only they are copied and filtered if they are at most one in this many.
MIN_SEARCHED_SHARE: Final = 4


class _Program:
    """The instructions of some filters, and the constants that may change between steps."""

    def __init__(self, codecs: Codecs) -> None:
        self._codecs = codecs
        self._masks = 0  # number on the stack after the instructions so far
        self.instructions: list[tuple[int, int, int, int, int]] = []
        self.max_masks = 0
        # Instructions with a string as constant: its code is set when the chain runs.
        self.strings: list[tuple[int, Side]] = []

    def add_filter(self, predicate: Expression) -> None:
        """Add a filter with a predicate for which `compares_codes` is true."""
        is_first = not self.instructions
        self._add(predicate, truth=True)
        if not is_first:
            self._combine(kernels.AND, 2)
        self._append(kernels.COUNT)

    def _append(
        self, operation: int, left: int = 0, right: int = 0, low: int = 0, high: int = 0
    ) -> None:
        self.instructions.append((operation, left, right, low, high))

    def _push(self, operation: int, left: int, right: int = 0, low: int = 0, high: int = 0) -> None:
        self._append(operation, left, right, low, high)
        self._masks += 1
        self.max_masks = max(self.max_masks, self._masks)

    def _combine(self, operation: int, count: int) -> None:
        for _ in range(count - 1):
            self._append(operation)
            self._masks -= 1

    def _add(self, predicate: Expression, *, truth: bool) -> None:
        """Push the mask of the rows for which a predicate is TRUE; with ``truth=False``, FALSE.

        Rows for which the predicate is NULL are in neither mask, so one is not the negation of the
        other.
        """
        assert isinstance(predicate, Call)
        function, arguments = predicate.function, predicate.arguments
        match function:
            case "and" | "or":
                for argument in arguments:
                    self._add(argument, truth=truth)
                is_and = (function == "and") == truth
                self._combine(kernels.AND if is_and else kernels.OR, len(arguments))
            case "not":
                self._add(arguments[0], truth=not truth)
            case "is_true":
                self._add(arguments[0], truth=True)
                if not truth:
                    self._append(kernels.NOT)
            case "is_null":
                columns = columns_that_make_null(arguments[0])
                assert columns
                operation = kernels.BETWEEN if truth else kernels.DISTINCT_FROM
                for column in columns:
                    self._push(operation, column, low=NULL, high=NULL)
                self._combine(kernels.OR if truth else kernels.AND, len(columns))
            case "in":
                equalities = equalities_of(predicate, self._codecs)
                assert equalities is not None
                for equality in equalities:
                    self._compare("eq" if truth else "ne", equality)
                self._combine(kernels.OR if truth else kernels.AND, len(equalities))
            case _:
                comparison = comparison_of(predicate, self._codecs)
                assert comparison is not None
                if not truth:
                    function = "distinct" if function == "same" else _NEGATED[function]
                self._compare(function, comparison)

    def _compare(self, function: str, comparison: CodeComparison) -> None:
        left, right = comparison.left, comparison.right
        if left.column is None or (right.column is not None and function in ("gt", "ge")):
            left, right, function = right, left, _MIRRORED.get(function, function)
        assert left.column is not None
        if right.column is not None:
            self._push(_COLUMN_OPERATIONS[function], left.column, right.column)
        elif right.code is None:
            self.strings.append((len(self.instructions), right))
            self._compare_with_code(function, left.column, 0)
        else:
            self._compare_with_code(function, left.column, int(right.code))

    def _compare_with_code(self, function: str, column: int, code: int) -> None:
        if function == "distinct":
            self._push(kernels.DISTINCT_FROM, column, low=code)
        elif function == "ne" and code != NULL:
            self._push(kernels.NOT_EQUAL, column, low=code)
        elif code == NULL and function != "same":
            self._push(kernels.BETWEEN, column, low=1, high=0)  # no row
        else:
            low, high = {
                "lt": (NULL + 1, code - 1),
                "le": (NULL + 1, code),
                "ge": (code, MAX_INT64),
                "gt": (min(code, MAX_INT64 - 1) + 1, MAX_INT64 if code < MAX_INT64 else NULL),
            }.get(function, (code, code))
            self._push(kernels.BETWEEN, column, low=low, high=high)


@dataclass(frozen=True)
class FilterChain:
    """Consecutive filters, and the projection that reads the last one, if any.

    Attributes:
        positions: The positions of the nodes in the graph, in their order.
        filters: The number of filters; they come before the projection.
        program: The instructions of the filters.
        columns: The columns of the projection; None without one.
        arity: The number of columns of the result.
        masks: The maximum number of masks on the stack of the program.
        ranges: Instructions that compare the first column with constants, and are all true for each
            row that passes the first filter.
        strings: The instructions with a string as constant, and the string. Its code may change
            between steps.
    """

    positions: Sequence[int]
    filters: int
    program: Int64Array
    columns: Int64Array | None
    arity: int
    masks: int
    ranges: Sequence[int]
    strings: Sequence[tuple[int, Side]]

    @staticmethod
    def of(positions: Sequence[int], nodes: Sequence[Node], codecs: Codecs) -> FilterChain:
        """Build the chain of some nodes: filters that compare codes, then at most one projection.

        Complexity:
            O(size of the predicates).
        """
        program, columns = _Program(codecs), None
        for position in positions:
            operator = nodes[position].operator
            if isinstance(operator, FilterOperator):
                program.add_filter(operator.predicate)
            else:
                assert isinstance(operator, MapOperator)
                columns = operator.columns
        return FilterChain(
            positions,
            len(positions) - (columns is not None),
            np.array(program.instructions, np.int64),
            columns,
            len(nodes[positions[-1]].plan.fields),
            program.max_masks,
            _ranges_of_first_column(program.instructions),
            program.strings,
        )

    def run(self, delta: ZSet) -> tuple[ZSet | None, list[int]]:
        """Run the chain.

        Args:
            delta: The delta of the input of the first node, with at least one row.

        Returns:
            The delta of the last node, None if it is empty; and for each filter, the rows that pass
            it and those before it.

        Raises:
            WeightOverflowError: The weights of equal rows of the projection leave int64.
        """
        program, rows = self.program, len(delta.weight_array)
        for instruction, string in self.strings:
            code = string.constant()
            program[instruction, kernels.LOW] = code
            program[instruction, kernels.HIGH] = code
        if self.ranges and rows >= MIN_SEARCHED_ROWS:
            found = self._rows_in_range(delta)
            if found is not None:
                if not len(found):
                    return None, [0] * self.filters
                delta, rows = found, len(found)
        columns = self.columns
        out = np.empty(self.arity * rows, np.int64)
        weights = np.empty(rows, np.int64)
        counts = np.empty(self.filters, np.int64)
        selected = select_rows(
            delta.row_array,
            delta.weight_array,
            program,
            _NO_COLUMNS if columns is None else columns,
            np.empty((self.masks, rows), np.bool_),
            out,
            weights,
            counts,
        )
        row_counts = counts.tolist()
        if selected == OVERFLOWED_WEIGHT:
            raise WeightOverflowError(
                "the weights of equal rows of a projection add up to more than int64 holds "
                f"({MAX_INT64}): give smaller weights, or keep a column in which the rows differ"
            )
        if not selected:
            return None, row_counts
        if columns is None and selected == rows:
            return delta, row_counts
        if selected < rows:
            out, weights = out[: self.arity * selected], weights[:selected]
            if 2 * selected < rows:  # otherwise the result would keep the memory of all rows
                out, weights = out.copy(), weights.copy()
        result = out.reshape(self.arity, selected)
        if columns is not None and row_counts[-1] > MAX_INSERTION_ROWS:
            return consolidated_rows(result, weights), row_counts
        return ZSet(result, weights), row_counts

    def _rows_in_range(self, delta: ZSet) -> ZSet | None:
        """Return the rows whose first column is in all ranges; None if they are not few.

        Complexity:
            O(log rows of the delta + rows of the result), because the rows are sorted.
        """
        words = self.program[self.ranges]
        low, high = words[:, kernels.LOW].max(), words[:, kernels.HIGH].min()
        first_column = delta.row_array[0]
        first = int(np.searchsorted(first_column, low))
        end = max(int(np.searchsorted(first_column, high, side="right")), first)
        if MIN_SEARCHED_SHARE * (end - first) > len(first_column):
            return None
        rows = np.ascontiguousarray(delta.row_array[:, first:end])
        return ZSet(rows, delta.weight_array[first:end].copy())


def _ranges_of_first_column(instructions: Sequence[tuple[int, int, int, int, int]]) -> list[int]:
    """Return the instructions of `FilterChain.ranges`; none if the first filter has OR or NOT."""
    found = []
    for position, (operation, column, *_) in enumerate(instructions):
        if operation == kernels.COUNT:
            break
        if operation in (kernels.OR, kernels.NOT):
            return []
        if operation == kernels.BETWEEN and column == 0:
            found.append(position)
    return found


def find_chains(
    nodes: Sequence[Node], published: Collection[int], codecs: Codecs
) -> dict[int, FilterChain]:
    """Find the chains of a graph, by the position of their first node; they may have one node.

    Args:
        nodes: The nodes, each after its inputs.
        published: The positions of the views.
        codecs: The codecs of the graph.

    Complexity:
        O(nodes + size of the predicates).
    """
    readers: list[list[int]] = [[] for _ in nodes]
    for position, node in enumerate(nodes):
        for source in node.inputs:
            readers[source].append(position)
    chains: dict[int, FilterChain] = {}
    members: set[int] = set()
    for position, node in enumerate(nodes):
        if position in members or not _is_filter(node, codecs):
            continue
        chain = [position]
        while True:
            last = nodes[chain[-1]]
            next_nodes = readers[chain[-1]]
            if len(next_nodes) != 1 or last.is_arranged or chain[-1] in published:
                break
            reader = nodes[next_nodes[0]]
            if not (_is_filter(reader, codecs) or _is_projection(reader)):
                break
            chain += next_nodes
            if _is_projection(reader):
                break
        members.update(chain)
        chains[position] = FilterChain.of(chain, nodes, codecs)
    return chains


def _is_filter(node: Node, codecs: Codecs) -> bool:
    """Return whether a node is a filter that compares codes."""
    operator = node.operator
    if node.is_nested or not isinstance(operator, FilterOperator):
        return False
    return compares_codes(operator.predicate, codecs)


def _is_projection(node: Node) -> bool:
    """Return whether a node is a map that only chooses columns, at least one."""
    operator = node.operator
    return not node.is_nested and isinstance(operator, MapOperator) and operator.columns is not None
