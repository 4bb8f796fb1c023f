"""Placement of user-defined functions: make a plan node of each call in the expressions of a plan.

::

    Map(t, score(x) + 1)                      Map(UserCall(t, score(x)), #result + 1)
    Filter(a x b, a.k = b.k AND score(a.x))   Filter(a' x b, a.k = b.k)
                                              with a' = Filter(UserCall(a, score(x)), #result)

A call is computed as early as its columns are together, but after the conditions that need no call:

- A call in a condition that reads columns of one item of FROM is computed for the rows of that
  item, after the conditions without calls on that item alone. So the joins stay one N-way join.
- A call that reads several items is computed for the rows of their join.
- A call in the SELECT list is computed for the rows that pass all conditions. If a condition has
  the same call, it is computed once.

A call inside CASE or OR is computed for every row, as in Spark, because its result is a column.

Invariant: a call of the text is one node, however often a plan uses its rows. Otherwise the results
of a function that is not deterministic could differ between the uses. So this pass runs before the
rewrite rules, which treat the node as one relation, and it never moves a call or condition across a
node that has several readers.

Columns that nobody reads are dropped below each call (`drop_unread_columns`), because its operator
stores its rows.

Cost: O(size of the plan).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

from circuits.errors import CircuitError
from circuits.plan.expression_text import column_names, label
from circuits.plan.expressions import (
    Call,
    Column,
    Expression,
    Literal,
    columns_of,
    conjuncts,
    shift_columns,
)
from circuits.plan.nodes import (
    CrossJoin,
    Filter,
    Map,
    OuterJoin,
    PlanNode,
    Semijoin,
    TemporalFilter,
    Union,
    columns,
)
from circuits.plan.traversal import iter_nodes
from circuits.plan.unread_columns import drop_unread_columns
from circuits.plan.user_call import UserCall
from circuits.user_functions import UserFunction, user_function_name

__all__ = ["place_user_calls"]


def place_user_calls(
    plans: Mapping[str, PlanNode], functions: Mapping[str, UserFunction]
) -> dict[str, PlanNode]:
    """Return the plans of views with a node for each call of a user-defined function.

    Args:
        plans: The logical plan of each view.
        functions: The functions by lower-case name.

    Raises:
        CircuitError: A call reads both sides of an outer join, or of EXISTS, IN or NOT IN.
    """
    if not functions:
        return dict(plans)
    placed = {
        name: _CallPlacer(plan, functions, name).remove_calls(plan) for name, plan in plans.items()
    }
    return {name: drop_unread_columns(plan) for name, plan in placed.items()}


@dataclass(frozen=True)
class _RowsWithResults:
    """A plan with the rows of an original plan, and further columns for the results of calls.

    Expressions of the text read the columns of the original plan; `rewrite` translates them.

    Attributes:
        plan: The plan with the results.
        columns: For each column of the original plan, the column of ``plan``.
        results: For each call, as an expression over the original plan, the column of ``plan``
            with its result.
    """

    plan: PlanNode
    columns: tuple[Column, ...]
    results: Mapping[Expression, Column] = field(default_factory=dict)

    @classmethod
    def of(cls, plan: PlanNode) -> _RowsWithResults:
        return cls(plan, columns(plan))

    def rewrite(self, expression: Expression) -> Expression:
        """Translate an expression over the original plan into one over ``plan``."""
        if isinstance(expression, Column):
            return self.columns[expression.index]
        if isinstance(expression, Literal):
            return expression
        if expression in self.results:
            return self.results[expression]
        arguments = tuple(map(self.rewrite, expression.arguments))
        return Call(expression.function, arguments, expression.type)

    def where(self, predicate: Expression) -> _RowsWithResults:
        """Return the rows for which a condition over the original plan is true."""
        return replace(self, plan=Filter(self.plan, self.rewrite(predicate)))

    def restore(self, original: PlanNode) -> PlanNode:
        """Return a plan with the columns of the original one only."""
        if self.columns == columns(self.plan):
            return self.plan
        return Map(self.plan, self.columns, tuple(field.name for field in original.fields))


def _calls_of(expressions: Iterable[Expression]) -> Iterator[Call]:
    """Yield the calls of user-defined functions; each after the calls in its arguments."""
    for expression in expressions:
        if isinstance(expression, Call):
            yield from _calls_of(expression.arguments)
            if user_function_name(expression) is not None:
                yield expression


def _has_call(expression: Expression) -> bool:
    return any(True for _ in _calls_of([expression]))


def _shift_call(expression: Call, offset: int) -> Call:
    arguments = tuple(shift_columns(argument, offset) for argument in expression.arguments)
    return replace(expression, arguments=arguments)


def _expressions_of(plan: PlanNode) -> tuple[Expression, ...]:
    match plan:
        case Filter(_, predicate) | Semijoin(_, _, predicate) | OuterJoin(_, _, predicate):
            return (predicate,)
        case Map(_, expressions):
            return expressions
        case TemporalFilter(_, value):
            return (value,)
    return ()


class _CallPlacer:
    """Places the calls of one view; visits each node of the DAG once.

    Args:
        plan: The plan of the view.
        functions: The functions by name.
        view: The name of the view.
    """

    def __init__(self, plan: PlanNode, functions: Mapping[str, UserFunction], view: str) -> None:
        self._functions = functions
        self._view = view
        # By the ``id`` of a node, which is unique while the caller holds the plan.
        self._readers = Counter(id(input) for node in iter_nodes(plan) for input in node.inputs)
        self._contains_call_by_node: dict[int, bool] = {}
        self._rows: dict[int, _RowsWithResults] = {}

    def remove_calls(self, plan: PlanNode) -> PlanNode:
        """Return a plan with the same columns, whose expressions have no calls."""
        return self.place(plan).restore(plan)

    def place(self, plan: PlanNode) -> _RowsWithResults:
        """Return the rows of a plan with a node for each call in it; computed once per node."""
        if id(plan) not in self._rows:
            self._rows[id(plan)] = (
                self._place(plan) if self._contains_call(plan) else _RowsWithResults.of(plan)
            )
        return self._rows[id(plan)]

    def _contains_call(self, plan: PlanNode) -> bool:
        """Return whether there is a call in the node or below it."""
        result = self._contains_call_by_node.get(id(plan))
        if result is None:
            result = any(map(_has_call, _expressions_of(plan)))
            result = result or any([self._contains_call(input) for input in plan.inputs])
            self._contains_call_by_node[id(plan)] = result
        return result

    def _place(self, plan: PlanNode) -> _RowsWithResults:
        match plan:
            case Map(input, expressions, names):
                rows = self._add_calls(self.place(input), _calls_of(expressions))
                return _RowsWithResults.of(
                    Map(rows.plan, tuple(map(rows.rewrite, expressions)), names)
                )
            case Filter() | CrossJoin() | Semijoin():
                return self._place_block(plan)
            case OuterJoin():
                return self._place_outer_join(plan)
            case Union():
                return self._place_union(plan)
            case TemporalFilter(input, value):
                rows = self._add_calls(self.place(input), _calls_of([value]))
                return replace(rows, plan=replace(plan, input=rows.plan, value=rows.rewrite(value)))
        return _RowsWithResults.of(
            plan.with_inputs([self.remove_calls(input) for input in plan.inputs])
        )

    def _add_calls(self, rows: _RowsWithResults, calls: Iterable[Call]) -> _RowsWithResults:
        """Return the rows with the results of calls; inner calls are listed before outer ones."""
        for expression in calls:
            if expression in rows.results:
                continue
            name = user_function_name(expression)
            assert name is not None
            arguments = [rows.rewrite(argument) for argument in expression.arguments]
            plan = rows.plan
            values: list[Expression] = list(columns(plan))
            values += [value for value in dict.fromkeys(arguments) if value not in values]
            if len(values) > len(plan.fields):
                plan = Map(plan, tuple(values), column_names(values, plan.fields))
            argument_columns = tuple(map(values.index, arguments))
            plan = UserCall(plan, name, self._functions[name], argument_columns, self._view)
            result = Column(len(plan.fields) - 1, expression.type)
            rows = _RowsWithResults(plan, rows.columns, {**rows.results, expression: result})
        return rows

    def _place_union(self, plan: Union) -> _RowsWithResults:
        """Return the union, with the results that all its inputs have."""
        parts = [self.place(input) for input in plan.inputs]
        shared = [c for c in parts[0].results if all(c in part.results for part in parts)]
        names = [field.name for field in plan.fields]
        names += [f"result_{number}" for number in range(len(shared))]
        inputs = [
            Map(part.plan, (*part.columns, *(part.results[c] for c in shared)), tuple(names))
            for part in parts
        ]
        union = Union(tuple(inputs))
        union_columns = columns(union)
        width = len(plan.fields)
        results = dict(zip(shared, union_columns[width:], strict=True))
        return _RowsWithResults(union, union_columns[:width], results)

    def _place_outer_join(self, plan: OuterJoin) -> _RowsWithResults:
        width = len(plan.left.fields)
        left_calls, right_calls = self._split_calls(plan, [plan.predicate], width, "an outer join")
        left = self._add_calls(self.place(plan.left), left_calls)
        right = self._add_calls(self.place(plan.right), right_calls)
        both = _product([left, right])
        joined = OuterJoin(left.plan, right.plan, both.rewrite(plan.predicate), plan.kind)
        # The row of a side without a partner has NULL as the result of a call, but a call over its
        # NULLs may have another result. So only results of a side that has all rows are kept.
        results = left.results if plan.kind == "left" else {}
        return _RowsWithResults(joined, both.columns, results)

    def _split_calls(
        self, plan: PlanNode, predicates: Sequence[Expression], width: int, operator: str
    ) -> tuple[list[Call], list[Call]]:
        """Divide the calls into those that read left columns and those that read right columns.

        The calls of right columns are returned over the columns of the right side alone.
        """
        left, right = [], []
        for expression in _calls_of(predicates):
            used = columns_of(expression)
            if all(column < width for column in used):
                left.append(expression)
            elif all(column >= width for column in used):
                right.append(_shift_call(expression, -width))
            else:
                names = [f.name for input in plan.inputs for f in input.fields]
                call_text = label(expression, names)
                raise CircuitError(
                    f"view {self._view!r}: the call {call_text} in the condition of {operator} "
                    "reads both of its sides, which is not supported: join the rows in a query in "
                    "FROM, and call the function there"
                )
        return left, right

    def _place_block(self, plan: PlanNode) -> _RowsWithResults:
        """Place the calls in conditions over the items of FROM, joined or not."""
        block = _Block()
        self._flatten(plan, block)
        items = [self.place(item) for item in block.items]
        predicates_of_item: list[list[Expression]] = [[] for _ in items]  # without calls
        join_predicates: list[Expression] = []
        with_calls: list[Expression] = []
        for predicate in block.predicates:
            items_read = block.items_read([predicate])
            if _has_call(predicate):
                with_calls.append(predicate)
            elif len(items_read) == 1:
                predicates_of_item[min(items_read)].append(predicate)
            else:
                join_predicates.append(predicate)
        semijoins = [self._place_semijoin(semijoin) for semijoin in block.semijoins]
        for number, predicates in enumerate(predicates_of_item):
            start = block.starts[number]
            for predicate in predicates:
                items[number] = items[number].where(shift_columns(predicate, -start))
        after_join: list[Expression] = []  # with a call that reads the rows of the join
        for predicate in with_calls:
            self._add_calls_of_items(block, items, [predicate])
            items_read = block.items_read([predicate])
            if self._needs_join(block, [predicate]):
                after_join.append(predicate)
            elif len(items_read) == 1:
                number = min(items_read)
                items[number] = items[number].where(shift_columns(predicate, -block.starts[number]))
            else:
                join_predicates.append(predicate)
        for semijoin in semijoins:
            self._add_calls_of_items(block, items, semijoin.left_calls)
        rows = reduce(_RowsWithResults.where, join_predicates, _product(items))
        # Semijoins whose calls read several items are last, so that the others save calls.
        for semijoin in sorted(
            semijoins, key=lambda semijoin: self._needs_join(block, semijoin.left_calls)
        ):
            rows = self._add_calls(rows, semijoin.left_calls)
            rows = semijoin.apply(rows)
        for predicate in after_join:
            rows = self._add_calls(rows, _calls_of([predicate])).where(predicate)
        return rows

    def _add_calls_of_items(
        self, block: _Block, items: list[_RowsWithResults], expressions: Sequence[Expression]
    ) -> None:
        """Compute the calls that read one item of FROM for the rows of that item."""
        for expression in _calls_of(expressions):
            items_read = block.items_read([expression])
            if len(items_read) == 1:
                number = min(items_read)
                call = _shift_call(expression, -block.starts[number])
                items[number] = self._add_calls(items[number], [call])

    @staticmethod
    def _needs_join(block: _Block, expressions: Sequence[Expression]) -> bool:
        """Return whether a call reads several items of FROM, or none."""
        return any(len(block.items_read([c])) != 1 for c in _calls_of(expressions))

    def _flatten(self, plan: PlanNode, block: _Block) -> None:
        """Add a plan to a block: its items, and its conditions over them.

        Columns of the conditions are numbered from the first column of the plan in the block.
        """
        start = block.width
        match plan:
            case Filter(input, predicate):
                self._flatten_input(input, block)
                block.predicates += [shift_columns(part, start) for part in conjuncts([predicate])]
            case CrossJoin(inputs):
                for input in inputs:
                    self._flatten_input(input, block)
            case Semijoin(left):
                self._flatten_input(left, block)
                block.semijoins.append((plan, start))
            case _:
                block.add(plan)

    def _flatten_input(self, plan: PlanNode, block: _Block) -> None:
        if self._readers[id(plan)] > 1:
            block.add(plan)
        else:
            self._flatten(plan, block)

    def _place_semijoin(self, semijoin: tuple[Semijoin, int]) -> _PlacedSemijoin:
        plan, start = semijoin
        width = len(plan.left.fields)
        left_calls, right_calls = self._split_calls(plan, [plan.predicate], width, "EXISTS or IN")
        right = self._add_calls(self.place(plan.right), right_calls)
        shifted = [_shift_call(expression, start) for expression in left_calls]
        return _PlacedSemijoin(plan, start, shifted, right)


@dataclass
class _Block:
    """The items of FROM and the conditions over them; columns are numbered in order of the items.

    Attributes:
        items: The items.
        starts: The first column of each item.
        width: The number of columns.
        predicates: The conditions.
        semijoins: The semijoins, with the number of the first column of their left side.
    """

    items: list[PlanNode] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    width: int = 0
    predicates: list[Expression] = field(default_factory=list)
    semijoins: list[tuple[Semijoin, int]] = field(default_factory=list)

    def add(self, plan: PlanNode) -> None:
        self.items.append(plan)
        self.starts.append(self.width)
        self.width += len(plan.fields)

    def items_read(self, expressions: Iterable[Expression]) -> set[int]:
        """Return the numbers of the items whose columns the expressions read."""
        return {
            max(number for number, start in enumerate(self.starts) if start <= column)
            for expression in expressions
            for column in columns_of(expression)
        }


@dataclass(frozen=True)
class _PlacedSemijoin:
    """A semijoin of a block, whose right side has the results of its calls of right columns.

    Attributes:
        plan: The semijoin.
        start: The column of the block that is the first column of the left side.
        left_calls: The calls of left columns, over the columns of the block.
        right: The rows of the right side, with the results of its calls.
    """

    plan: Semijoin
    start: int
    left_calls: list[Call]
    right: _RowsWithResults

    def apply(self, left: _RowsWithResults) -> _RowsWithResults:
        """Return the rows of a block that match; they have the results of ``left_calls``."""
        width, start = len(self.plan.left.fields), self.start
        left_results = {
            shift_columns(call, -start): column
            for call, column in left.results.items()
            if all(start <= column < start + width for column in columns_of(call))
        }
        left_side = _RowsWithResults(left.plan, left.columns[start : start + width], left_results)
        both = _product([left_side, self.right])
        predicate = both.rewrite(self.plan.predicate)
        return replace(left, plan=Semijoin(left.plan, self.right.plan, predicate, self.plan.anti))


def _product(parts: Sequence[_RowsWithResults]) -> _RowsWithResults:
    """Return the cross join of several parts, with their columns and results side by side."""
    all_columns: list[Column] = []
    results: dict[Expression, Column] = {}
    # The first column of the part: in the joined plan, and in the joined original plan.
    offset = original_offset = 0
    for part in parts:
        all_columns += [Column(c.index + offset, c.type) for c in part.columns]
        for expression, column in part.results.items():
            shifted = shift_columns(expression, original_offset)
            results[shifted] = Column(column.index + offset, column.type)
        offset += len(part.plan.fields)
        original_offset += len(part.columns)
    plan = parts[0].plan if len(parts) == 1 else CrossJoin(tuple(part.plan for part in parts))
    return _RowsWithResults(plan, tuple(all_columns), results)
