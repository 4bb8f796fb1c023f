"""Linear stage: run the filters, maps and partial aggregates over a large input in slices.

::

    Q(a + b) = Q(a) + Q(b)    so    Q(rows)  =  Σ over slices of rows:  Q(slice)

A step with a large table, such as the first load, would otherwise keep the whole delta of each of
these operators: all columns of the rows that pass a filter, and the summands of each row before an
aggregate adds them up by group. Instead, the stage runs all its operators on one slice after
another, in arrays that fit the cache and that the allocator reuses. It keeps only the results that
are needed outside the stage: the rows of a map that a join reads, for example, and the partial
aggregates. A column that no operator reads is not copied, and only results are sorted; in a stage
of one slice, not even those that only aggregates read.

A table with fewer than `MIN_SLICED_STAGE_ROWS` rows is one slice. It saves the sort of the input
only. Workers share such a slice by branches: the operators that depend on different first
operators.

The stage of an input consists of

- filters and maps over the input, or over other filters and maps of the stage;
- partial aggregates, and aggregates whose functions are all linear, over these.

An input has no stage if an operator outside the stage reads it, or if it is a view or has a trace,
since then the Z-set of all rows is needed anyway. A stage runs only if all weights are positive
(`EncodedRows`): a row with weight -1 may cancel one with weight 1, and an expression must not fail
for a row that the delta does not contain.

The stage changes no state. If an expression fails, the step is abandoned as at any other operator.

Alternatives considered: a step of the circuit per slice. All operators would then do the work of a
step for each slice, merges included, and the step would not be all or nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, pairwise
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from circuits.inputs.encoded_rows import MIN_SLICED_STAGE_ROWS, EncodedRows
from circuits.runtime.graph_node import Node
from circuits.runtime.operators.aggregates.aggregate import AggregateOperator
from circuits.runtime.operators.aggregates.partial_aggregate import PartialAggregateOperator
from circuits.runtime.operators.late_materialization import RowIdDecodeOperator
from circuits.runtime.operators.linear import FilterOperator, MapOperator
from circuits.runtime.operators.operator import Operator
from circuits.runtime.partial_sum import BUFFER_BYTES, PartialSum, add_in_ranges
from circuits.runtime.row_batch import RowSlice, UnsortedRows
from circuits.runtime.task_order import may_add_values
from circuits.types.codecs.codec import Codecs
from dbsp_wcoj import ZSet
from dbsp_wcoj.limits import Budget
from dbsp_wcoj.workers import MIN_DIVIDED_ROWS, TASKS_PER_THREAD, current_workers, run_tasks
from dbsp_wcoj.zset import MAX_INT64, SortedRows, add_in_order, consolidated_rows

__all__ = [
    "SLICE_ROWS",
    "AggregatingOperator",
    "CollectedRows",
    "LinearStage",
    "StageResult",
    "find_stages",
    "find_unsorted_nodes",
    "run_stage",
]

#: The number of rows of a slice. The arrays of a slice stay well below 32 MB. The C library returns
#: larger arrays to the system when they are freed, so each new one begins with page faults.
SLICE_ROWS: Final = 1 << 13

#: The same if only filters read the rows, which copy few of them.
GROUPED_SLICE_ROWS: Final = 1 << 16

#: The size of an array that is allocated and freed before the slices. When the C library (glibc)
#: frees an array of this size, it raises its limit for memory that it returns to the system: from
#: then on it keeps up to twice this size, and reuses it for smaller arrays. With its initial limit,
#: 128 KB, every slice would begin with page faults. The highest limit is 32 MB.
REUSED_BYTES: Final = (32 << 20) - (1 << 16)

#: The operators whose partial aggregate the stage computes.
AggregatingOperator: TypeAlias = AggregateOperator | PartialAggregateOperator


@dataclass(frozen=True)
class LinearStage:
    """The operators over one input that process its rows in slices.

    Attributes:
        input: The position of the input.
        members: The positions of the operators, each after its input.
        branches: The members by the first operator over the input on whose rows they depend.
        results: The members whose result is needed outside the stage: an operator outside reads it,
            or it is a view or has a trace. Of aggregates, the stage always returns the partial
            result.
        keeps_values: True if no member may add values to a dictionary. Workers may then share the
            slices; else the values would get their codes in another order.
        is_grouped: True if the rows of the input may be grouped: no map or aggregate reads them.
    """

    input: int
    members: Sequence[int]
    branches: Sequence[Sequence[int]]
    results: Collection[int]
    keeps_values: bool
    is_grouped: bool


class StageResult(NamedTuple):
    """The results of a stage, by the positions of its members.

    Attributes:
        results: The delta of each filter and map in `LinearStage.results`, and for each aggregate
            the partial aggregate of its input.
        rows: The number of rows that each filter and map has emitted; equal rows are counted once
            if the delta is in ``results``.
        seconds: The seconds that each member has taken.
        unsorted: The rows of maps that operators outside of the stage read, and that need no
            order; such a map is not in ``results``.
    """

    results: Mapping[int, ZSet]
    rows: Mapping[int, int]
    seconds: Mapping[int, float]
    unsorted: Mapping[int, UnsortedRows]


def find_unsorted_nodes(nodes: Sequence[Node], published: Collection[int]) -> frozenset[int]:
    """Find the maps, and the decoders of row ids, whose rows need no order.

    These operators sort their results by all columns, which often takes longer than to compute
    them. The order is not needed if all readers are aggregates that are not faster on sorted rows.
    Decoded rows differ from each other, so maps may read them as well. The rows of an unsorted map
    may cancel out, so only aggregates may read them: an expression must not fail for such a row.

    Args:
        nodes: The nodes, each after its inputs.
        published: The positions of the views.

    Complexity:
        O(nodes).
    """
    readers = _readers(nodes)
    found: set[int] = set()
    for position in reversed(range(len(nodes))):  # readers first
        node = nodes[position]
        if node.is_nested or node.is_arranged or position in published or not readers[position]:
            continue
        is_decoder = isinstance(node.operator, RowIdDecodeOperator)
        if (is_decoder or isinstance(node.operator, MapOperator)) and all(
            _needs_no_order(nodes[reader])
            or (is_decoder and reader in found and isinstance(nodes[reader].operator, MapOperator))
            for reader in readers[position]
        ):
            found.add(position)
    return frozenset(found)


def _needs_no_order(node: Node) -> bool:
    """Return whether an operator takes rows in any order, and no longer than sorted ones."""
    operator = node.operator
    if not isinstance(operator, AggregatingOperator) or node.is_nested:
        return False
    return not operator.sorts_whole_rows


def _readers(nodes: Sequence[Node]) -> list[list[int]]:
    """Return, for each node, the positions of the nodes that read it."""
    readers: list[list[int]] = [[] for _ in nodes]
    for position, node in enumerate(nodes):
        for source in node.inputs:
            readers[source].append(position)
    return readers


def find_stages(
    nodes: Sequence[Node],
    published: Collection[int],
    codecs: Codecs,
    grouped: Collection[int] = (),
) -> dict[str, LinearStage]:
    """Find the stages of a graph, by the names of their inputs.

    Args:
        nodes: The nodes, each after its inputs.
        published: The positions of the views.
        codecs: The dictionaries of values.
        grouped: The inputs whose rows may be grouped (`circuits.runtime.grouped_inputs`).

    Complexity:
        O(nodes).
    """
    readers = _readers(nodes)
    stages = {}
    for position, node in enumerate(nodes):
        members = _members(nodes, readers, position) if node.is_input else set[int]()
        is_sliced = members.issuperset(readers[position]) and bool(readers[position])
        is_sliced = is_sliced and not node.is_arranged and position not in published
        if is_sliced or position in grouped:
            results = [
                member
                for member in members
                if nodes[member].is_arranged
                or member in published
                or not members.issuperset(readers[member])
            ]
            # The stage computes partial aggregates only, which have no values of dictionaries.
            keeps_values = not any(
                may_add_values(nodes[member], codecs)
                for member in members
                if isinstance(nodes[member].operator, MapOperator)
            )
            ordered = sorted(members)
            stages[node.name] = LinearStage(
                position,
                ordered,
                _branches(nodes, position, ordered),
                frozenset(results),
                keeps_values,
                position in grouped,
            )
    return stages


def _branches(nodes: Sequence[Node], position: int, members: Sequence[int]) -> list[list[int]]:
    """Return the members of a stage by the first operator on whose rows they depend."""
    branch_of: dict[int, list[int]] = {}
    for member in members:
        (source,) = nodes[member].inputs
        branch = branch_of[member] = [] if source == position else branch_of[source]
        branch.append(member)
    return [branch for member, branch in branch_of.items() if branch[0] == member]


def _members(nodes: Sequence[Node], readers: Sequence[Sequence[int]], position: int) -> set[int]:
    """Return the operators over an input that can take its rows in slices."""
    members: set[int] = set()
    pending = [position]
    while pending:
        for reader in readers[pending.pop()]:
            operator = nodes[reader].operator
            if nodes[reader].is_nested or len(nodes[reader].inputs) != 1:
                continue
            if isinstance(operator, FilterOperator | MapOperator):
                pending.append(reader)
                members.add(reader)
            elif isinstance(operator, AggregatingOperator) and operator.is_sliceable:
                members.add(reader)
    return members


def run_stage(
    stage: LinearStage,
    nodes: Sequence[Node],
    rows: EncodedRows,
    budget: Budget,
    clock: Callable[[], float],
    unsorted_nodes: Collection[int] = (),
) -> StageResult:
    """Run the operators of a stage over the slices of the input, which workers share.

    Args:
        stage: The stage.
        nodes: The nodes of the graph.
        rows: The rows of the input, at least one.
        budget: The limits of the step.
        clock: Returns the time in seconds.
        unsorted_nodes: As `find_unsorted_nodes`. Their rows are sorted only if there are several
            slices, because equal rows are then kept once.

    Raises:
        EvaluationError: An expression has no value for a row.
        WeightOverflowError: A weight or partial aggregate leaves int64.
        LimitError: The step exceeds a limit; ``budget.operator`` is the node that exceeded it.
    """
    np.empty(REUSED_BYTES, np.uint8)  # freed at once; no page of it is touched
    is_sliced = len(rows) >= MIN_SLICED_STAGE_ROWS
    is_divisible = is_sliced or (len(rows) >= MIN_DIVIDED_ROWS and len(stage.branches) > 1)
    slice_rows = GROUPED_SLICE_ROWS if stage.is_grouped else SLICE_ROWS
    workers = current_workers() if is_divisible and stage.keeps_values else None
    buffer_bytes = BUFFER_BYTES // (1 if workers is None else workers.threads)
    run = partial(
        _run_slices,
        stage,
        nodes,
        rows,
        slice_rows if is_sliced else len(rows),
        clock=clock,
        unsorted_nodes=unsorted_nodes,
        buffer_bytes=buffer_bytes,
    )
    if workers is None:
        measured = [run(stage.members, 0, len(rows), budget=budget)]
    elif is_sliced:
        tasks = workers.threads * TASKS_PER_THREAD
        bounds = [len(rows) * task // tasks for task in range(tasks + 1)]
        measured = run_tasks(
            [
                partial(run, stage.members, start, stop, budget=budget.for_concurrent_operator(0))
                for start, stop in pairwise(bounds)
            ]
        )
    else:
        tasks = min(workers.threads * TASKS_PER_THREAD, len(stage.branches))
        measured = run_tasks(
            [
                partial(run, members, 0, len(rows), budget=budget.for_concurrent_operator(0))
                for members in (
                    [*chain.from_iterable(stage.branches[task::tasks])] for task in range(tasks)
                )
            ]
        )
    results: dict[int, ZSet] = {}
    row_counts: dict[int, int] = {}
    seconds: dict[int, float] = {}
    unsorted: dict[int, UnsortedRows] = {}
    for part in measured:
        unsorted.update(part.unsorted)
    for member in stage.members:
        before = clock()
        parts = [part for part in measured if member in part.seconds]
        if workers is not None:  # each worker has compared its own bytes only
            budget.start_operator(member)
            budget.add_bytes(sum(part.sizes[member] for part in parts))
        operator = nodes[member].operator
        if isinstance(operator, AggregatingOperator):  # it emits rows only after the stage
            sums = [stored for part in parts for stored in part.sums.pop(member)]
            results[member] = add_in_ranges(sums, operator.partial_arity)
        else:
            row_counts[member] = sum(part.row_counts[member] for part in parts)
            if member in stage.results and member not in unsorted:
                outputs = [output for part in parts for output in part.outputs.pop(member)]
                results[member] = add_in_order(outputs, nodes[member].empty.arity)
                row_counts[member] = len(results[member])
        seconds[member] = sum(part.seconds[member] for part in parts) + clock() - before
    return StageResult(results, row_counts, seconds, unsorted)


class _SliceResults(NamedTuple):
    """The results of some members for some slices, by the positions of the members.

    Attributes:
        outputs: The rows of each slice that are needed outside the stage, of filters and maps.
        sums: The sum over the slices, of aggregates.
        row_counts: The number of rows that each member has emitted.
        seconds: The seconds that each member has taken.
        sizes: The bytes that each member has produced.
        unsorted: As `StageResult.unsorted`.
    """

    outputs: dict[int, list[ZSet]]
    sums: dict[int, list[SortedRows]]
    row_counts: dict[int, int]
    seconds: dict[int, float]
    sizes: dict[int, int]
    unsorted: dict[int, UnsortedRows]


def _run_slices(
    stage: LinearStage,
    nodes: Sequence[Node],
    rows: EncodedRows,
    slice_rows: int,
    members: Sequence[int],
    first: int,
    end: int,
    *,
    budget: Budget,
    clock: Callable[[], float],
    unsorted_nodes: Collection[int],
    buffer_bytes: int,
) -> _SliceResults:
    """Run members of a stage on the rows from ``first`` to ``end``, slice by slice."""
    result = _SliceResults(
        {member: [] for member in members},
        {},
        dict.fromkeys(members, 0),
        dict.fromkeys(members, 0.0),
        dict.fromkeys(members, 0),
        {},
    )
    collected: dict[int, CollectedRows] = {}
    slice_count = -(-(end - first) // slice_rows)
    operators = {
        member: operator
        for member in members
        if isinstance(operator := nodes[member].operator, AggregatingOperator)
    }
    partial_sums = {
        member: PartialSum(
            operator.partial_arity,
            buffer_bytes,
            slice_count,
            first_bytes=buffer_bytes // len(operators),
        )
        for member, operator in operators.items()
    }
    for start in range(first, end, slice_rows) if members else ():
        stop = min(start + slice_rows, end)
        columns = [column[start:stop] for column in rows.columns]
        slices = {stage.input: RowSlice(columns, rows.weights_of(start, stop))}
        for member in members:
            before = clock()
            node = nodes[member]
            source = slices.get(node.inputs[0])
            if source is None:  # no row passes the filters before this node
                continue
            budget.start_operator(member, size=result.sizes[member])
            operator = node.operator
            if isinstance(operator, AggregatingOperator):
                partial_rows = operator.partial_rows(source.to_array(), source.weight_array)
                partial_sums[member].append(partial_rows)
            else:
                output = _apply(operator, source, budget)
                result.row_counts[member] += len(output)
                if len(output):
                    slices[member] = output
                    is_result = member in stage.results  # else only members read the rows
                    if is_result and member in unsorted_nodes and slice_rows == len(rows):
                        unsorted = UnsortedRows(output.to_array(), output.weight_array)
                        result.unsorted[member] = unsorted
                    elif is_result:
                        weights = output.weight_array.copy()
                        sorted_rows = consolidated_rows(output.to_array(), weights)
                        outputs = result.outputs[member]
                        if not start and stop < end == len(rows) and len(sorted_rows) == stop:
                            collected[member] = CollectedRows(len(sorted_rows.row_array), end)
                        if member in collected:
                            collected[member].append(sorted_rows)
                        else:
                            outputs.append(sorted_rows)
            result.sizes[member] = budget.operator_bytes
            result.seconds[member] += clock() - before
    for member, rows_of_member in collected.items():
        before = clock()
        result.outputs[member].append(rows_of_member.to_zset())
        result.seconds[member] += clock() - before
    for member, partial_sum in partial_sums.items():
        before = clock()
        result.sums[member] = partial_sum.finish()
        result.seconds[member] += clock() - before
    return result


class CollectedRows:
    """The rows of a member, copied to one array slice by slice.

    For a member that keeps all rows of the first slice, if one thread runs all slices. A list of
    the rows of each slice would take as much memory again until they are joined.

    Args:
        arity: The number of columns.
        max_rows: At most this many rows are appended.
    """

    def __init__(self, arity: int, max_rows: int) -> None:
        self._columns = np.empty((arity, max_rows), np.int64)
        self._weights = np.empty(max_rows, np.int64)
        self._count = 0
        self._are_in_order = True

    def append(self, rows: ZSet) -> None:
        """Append rows of positive weights, at least one."""
        columns, weights, begin = rows.row_array, rows.weight_array, self._count
        if begin:
            last, first = self._columns[:, begin - 1].tolist(), columns[:, 0].tolist()
            if last == first and int(self._weights[begin - 1]) <= MAX_INT64 - int(weights[0]):
                self._weights[begin - 1] += weights[0]
                columns, weights = columns[:, 1:], weights[1:]
            elif last >= first:
                self._are_in_order = False
        end = self._count = begin + len(weights)
        self._columns[:, begin:end] = columns
        self._weights[begin:end] = weights

    def to_zset(self) -> ZSet:
        """Return the rows, sorted if they are not in order; nothing may be appended afterwards.

        Raises:
            WeightOverflowError: The sum of the weights of a row leaves int64.
        """
        columns = np.ascontiguousarray(self._columns[:, : self._count])
        weights = self._weights[: self._count]
        return ZSet(columns, weights) if self._are_in_order else consolidated_rows(columns, weights)


def _apply(operator: Operator | None, rows: RowSlice, budget: Budget) -> RowSlice:
    """Return the rows that a filter or map outputs for a slice that is not empty."""
    if isinstance(operator, FilterOperator):
        return rows.select(operator.passing(rows))
    assert isinstance(operator, MapOperator)
    return RowSlice(list(operator.compute(rows, budget)), rows.weight_array)
