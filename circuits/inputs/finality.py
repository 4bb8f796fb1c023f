"""Finality: check that a view may read an input with ``on_expiry="keep"`` (a *kept input*).

When a row of a kept input expires, it is deleted from the state, but the published results that
were computed from it stay. So they must be final: nothing may change them later. Three views of
``clicks(k, at)``, whose rows expire a day after ``at``::

    SELECT k, at FROM clicks                          accepted: one result per row, final at once
    SELECT date_trunc('hour', at), count(*)           accepted: the rows of an hour expire together,
    FROM clicks GROUP BY 1                            and a later row of that hour is late
    SELECT k, count(*) FROM clicks GROUP BY k         error: rows of one k expire at different times

The rules, by plan node::

    Filter, Map, Union ALL, joins,
    Unnest, UserCall, EventTime        accepted: they are linear in each input, so the deletion of a
                                       row affects only the results that contain this row
    Aggregate, TopK, Window, …         accepted if all rows of a group expire together
    Semi, anti, outer joins            accepted if only the left input reads kept inputs: a right
                                       row that expires changes the results of left rows that stay
    CurrentTime                        not accepted in a join: it changes results as time advances
    TemporalFilter                     not accepted: it deletes results as time advances
    Fixpoint                           not accepted: a derived row may have several derivations, and
                                       only one of them may have expired

The rows of a group expire together if the group's key contains, for each kept input, the event time
``t`` of the row or ``f(t)`` for a non-decreasing function ``f``, such as the hour of ``t``. All
rows with the same ``f(t)`` are then kept until the last of them may expire
(`circuits.inputs.retention`), so a row may stay in the state longer than its retention.

To check this, `_FinalityCheck` computes *branches* for each node, from the inputs up to the view. A
branch is one part of a UNION ALL. It lists the kept inputs whose rows are combined in each of its
rows, and the columns with a function of their event times. For the second view above::

    node                            branches
    Scan clicks(k, at)              [clicks: column 1 is at]
    Map date_trunc('hour', at)      [clicks: column 0 is date_trunc('hour', at)]
    Aggregate by column 0           the same: accepted, because the key, column 0, is a function of
                                    the event time

In the third view the key is ``k``, so the branch at the Aggregate is ``[clicks: no column]``: an
error. If several branches contribute to a group, they must be equal.

A view that reads one input with "keep" and another one with "retract" is an error. Otherwise a
result would stay or be deleted depending on which of its rows expires first, and therefore on how
the stream is split into micro-batches.

Cost: O(nodes * branches). A circuit without a kept input costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Final, NamedTuple, NoReturn

from circuits.errors import InputOptionsError
from circuits.inputs.input_options import InputOptions
from circuits.plan.event_time import EventTime
from circuits.plan.expressions import Call, Column, Expression, conjuncts, substitute
from circuits.plan.monotone_functions import monotone_argument
from circuits.plan.nodes import (
    Aggregate,
    CrossJoin,
    CurrentTime,
    Distinct,
    Filter,
    Fixpoint,
    Map,
    Negate,
    OuterJoin,
    PlanNode,
    Positive,
    Scan,
    Semijoin,
    TemporalFilter,
    TopK,
    Union,
    Values,
)
from circuits.plan.single_row import SingleRow
from circuits.plan.time_windows import HoppingWindows, LatestTime, SessionBound
from circuits.plan.traversal import read_relations
from circuits.plan.unnest import Unnest
from circuits.plan.user_call import UserCall
from circuits.plan.window import Window
from circuits.plan.window_close import WindowClose
from circuits.schema import Schema

__all__ = ["check_finality"]

#: A node with more branches gets one branch instead: all their inputs, without time columns.
_MAX_BRANCHES: Final = 64
_USE_RETRACT: Final = "use on_expiry='retract' for a view of the retained rows only"


class _TimeColumn(NamedTuple):
    """A column whose values are a function of the event time of an input.

    Attributes:
        column: The position of the column.
        function: The function, as an expression in which column 0 is the event time.
    """

    column: int
    function: Expression


_TimeColumns = frozenset[_TimeColumn]


@dataclass(frozen=True)
class _InputUse:
    """A kept input in a branch, and the columns that are functions of its event time.

    An input that is joined with itself occurs twice in a branch.
    """

    input: str
    time_columns: _TimeColumns


_Branch = tuple[_InputUse, ...]
_Branches = tuple[_Branch, ...]

# The branches of rows that are computed without kept inputs.
_NO_INPUTS: Final[_Branches] = ((),)


class _Projection(NamedTuple):
    """A column of a result that is a function of one column of the input.

    Attributes:
        new: The position of the column in the result.
        old: The position of the column in the input.
        function: The function, as an expression in which column 0 is the column of the input.
    """

    new: int
    old: int
    function: Expression


def check_finality(
    plans: Mapping[str, PlanNode], inputs: Mapping[str, Schema], options: Mapping[str, InputOptions]
) -> dict[str, tuple[Expression, ...]]:
    """Check every view that reads a kept input, and return the functions that views group by.

    Args:
        plans: The plans of the views before any rewrite, each view after the views that it reads.
        inputs: The columns of the inputs.
        options: The options of the inputs, by name.

    Returns:
        For each kept input, the functions of its event time (column 0) that views group by.

    Raises:
        InputOptionsError: The results of a view could change after a row has expired. The error
            names the view, the operator and the input, and says how to fix it.
    """
    retained = {name: option.retain for name, option in options.items() if option.retain}
    kept_inputs = {name for name, retain in retained.items() if retain.keeps_results}
    if not kept_inputs:
        return {}
    branches_by_view: dict[str, _Branches] = {}
    inputs_by_view: dict[str, frozenset[str]] = {}
    group_functions: dict[str, dict[Expression, None]] = {name: {} for name in kept_inputs}
    for view, plan in plans.items():
        inputs_by_view[view] = frozenset(
            name
            for relation in read_relations(plan)
            for name in inputs_by_view.get(relation, {relation})
        )
        _check_same_on_expiry(
            view, inputs_by_view[view], kept_inputs, retained.keys() - kept_inputs
        )
        check = _FinalityCheck(view, plan, inputs, options, branches_by_view)
        branches_by_view[view] = check.branches(plan)
        for name, function in check.group_functions:
            group_functions[name].setdefault(function)
    return {name: tuple(functions) for name, functions in group_functions.items()}


def _check_same_on_expiry(
    view: str, inputs: frozenset[str], kept_inputs: set[str], retracted_inputs: set[str]
) -> None:
    if inputs & kept_inputs and inputs & retracted_inputs:
        raise InputOptionsError(
            f"view {view!r} reads input {min(inputs & kept_inputs)!r} with on_expiry='keep' and "
            f"input {min(inputs & retracted_inputs)!r} with on_expiry='retract', so which results "
            "stay would depend on the row that expires first: give both the same on_expiry"
        )


class _FinalityCheck:
    """Computes the branches of the nodes of one view; visits each node of the DAG once.

    Attributes:
        group_functions: Pairs of a kept input and a function of its event time that an operator
            groups by; the keys of a dict, to keep their order.
    """

    def __init__(
        self,
        view: str,
        plan: PlanNode,
        inputs: Mapping[str, Schema],
        options: Mapping[str, InputOptions],
        branches_by_view: Mapping[str, _Branches],
    ) -> None:
        self.group_functions: dict[tuple[str, Expression], None] = {}
        self._view = view
        self._plan = plan  # keeps all nodes alive, so that their ids stay unique
        self._inputs = inputs
        self._options = options
        self._branches_by_view = branches_by_view
        self._branches_by_node: dict[int, _Branches] = {}

    def branches(self, plan: PlanNode) -> _Branches:
        """Return the branches of a node.

        Raises:
            InputOptionsError: Results of the node, or of a node that it reads, are not final.
        """
        if id(plan) not in self._branches_by_node:
            self._branches_by_node[id(plan)] = _limit_branches(self._compute(plan))
        return self._branches_by_node[id(plan)]

    def _compute(self, plan: PlanNode) -> _Branches:
        match plan:
            case Scan(relation):
                return self._relation(relation)
            case Values() | CurrentTime():
                return _NO_INPUTS
            case Filter(input, predicate):
                return _filter(self.branches(input), predicate)
            case Map(input, expressions):
                return _project(self.branches(input), list(_projections(expressions)))
            case Negate(input):
                return self.branches(input)
            case UserCall(input) | EventTime(input):
                return self.branches(input)
            case Unnest(input):
                unchanged = [
                    _Projection(column, column, Column(0, field.type))
                    for column, field in enumerate(input.fields[:-1])
                ]
                return _project(self.branches(input), unchanged)
            case Union(inputs):
                return tuple(branch for input in inputs for branch in self.branches(input))
            case CrossJoin(inputs):
                if any(isinstance(input, CurrentTime) for input in inputs):
                    why = "time changes results, and those of expired rows would stay"
                    for input in inputs:
                        self._check_none(input, "now()", why)
                return self._cross(inputs)
            case Semijoin(left, right, predicate, anti):
                self._check_right(right, "NOT EXISTS or NOT IN" if anti else "EXISTS or IN")
                return self.branches(left)
            case OuterJoin(left, right, _, "left"):
                # A right join is a left join with exchanged sides.
                self._check_right(right, "a LEFT or RIGHT JOIN")
                return self.branches(left)
            case OuterJoin(left, right):
                self._check_right(right, "a FULL JOIN")
                self._check_right(left, "a FULL JOIN")
                return self.branches(left)
            case Aggregate(input, keys):
                return self._group(input, keys, "GROUP BY" if keys else "an aggregate of all rows")
            case TopK(input, keys):
                branches = self._group(input, keys, "ORDER BY with LIMIT, or row_number()")
                return _restore_columns(branches, keys)
            case SingleRow(input, key_count):
                return self._group(input, range(key_count), "a scalar subquery")
            case Window(input, partition):
                branches = self._group(input, partition, "a window function")
                return _restore_columns(branches, partition)
            case Distinct(input):
                clause = "DISTINCT (also of UNION, INTERSECT, EXCEPT, Datalog rules)"
                return self._group(input, range(len(input.fields)), clause)
            case Positive(input):
                return self._group(input, range(len(input.fields)), "EXCEPT or INTERSECT")
            case TemporalFilter(input):
                return self._check_temporal(input)
            case HoppingWindows(input) | WindowClose(input):
                return self.branches(input)
            case SessionBound(input):
                why = "a later row could extend the session of a row that has expired"
                self._check_none(input, "a session window", why)
                return _NO_INPUTS
            case LatestTime(left, right):
                self._check_right(right, "an ASOF JOIN")
                return self.branches(left)
            case Fixpoint():
                return self._check_recursion(plan)
            case _:
                raise AssertionError(f"{type(plan).__name__} occurs only in rewritten plans")

    def _relation(self, name: str) -> _Branches:
        """Return the branches of a view or an input."""
        if name in self._branches_by_view:
            return self._branches_by_view[name]
        options = self._options.get(name)
        if options is None or options.retain is None or not options.retain.keeps_results:
            return _NO_INPUTS
        schema = self._inputs[name]
        if options.retain.column not in schema.columns:
            return _NO_INPUTS  # `circuits.inputs.retention` raises an error for this
        index = schema.columns.index(options.retain.column)
        time = _TimeColumn(index, Column(0, schema.fields[index].type))
        return ((_InputUse(name, frozenset([time])),),)

    def _cross(self, inputs: Sequence[PlanNode]) -> _Branches:
        """Return the branches of a cross join: each combination of one branch per input."""
        combined = _NO_INPUTS
        offset = 0
        for input in inputs:
            shifted = _project(
                self.branches(input),
                [
                    _Projection(offset + column, column, Column(0, field.type))
                    for column, field in enumerate(input.fields)
                ],
            )
            combined = _limit_branches(
                first + second for first, second in product(combined, shifted)
            )
            offset += len(input.fields)
        return combined

    def _check_right(self, right: PlanNode, clause: str) -> None:
        inputs = _input_names(self.branches(right))
        if inputs:
            why = "a row of it that expires would change results of rows that stay"
            self._raise_error(clause, inputs, why, f"join it with JOIN, or {_USE_RETRACT}")

    def _check_temporal(self, input: PlanNode) -> _Branches:
        why = "time deletes results, and those of expired rows would stay"
        self._check_none(input, "a comparison with now()", why)
        return self.branches(input)

    def _check_none(self, input: PlanNode, clause: str, why: str) -> None:
        inputs = _input_names(self.branches(input))
        if inputs:
            self._raise_error(clause, inputs, why, _USE_RETRACT)

    def _check_recursion(self, plan: Fixpoint) -> _Branches:
        relations = map(self._relation, read_relations(plan))
        inputs = sorted({name for branches in relations for name in _input_names(branches)})
        if inputs:
            why = "a row that expires may leave results that other rows derive as well"
            self._raise_error("a recursion", inputs, why, _USE_RETRACT)
        return _NO_INPUTS

    def _group(self, input: PlanNode, keys: Iterable[int], clause: str) -> _Branches:
        """Return the branch of an operator that groups rows; its columns are the keys."""
        projections = [
            _Projection(new, old, Column(0, input.fields[old].type)) for new, old in enumerate(keys)
        ]
        branches = _project(self.branches(input), projections)
        inputs = _input_names(branches)
        if not inputs:
            return _NO_INPUTS
        untimed = [use.input for branch in branches for use in branch if not use.time_columns]
        if untimed:
            column = self._options[untimed[0]].retain.column  # type: ignore[union-attr]
            why = "the result of a group would change when one of its rows expires"
            fix = (
                f"add {column!r} of each row of {untimed[0]!r} to the group or the selected "
                "columns, or a non-decreasing function of it, such as date_trunc or a cast to "
                "a date"
            )
            self._raise_error(clause, untimed, why, f"{fix}, or {_USE_RETRACT}")
        if len({frozenset(branch) for branch in branches}) > 1:
            why = "rows of several branches are in one group and would not expire together"
            self._raise_error(
                clause, inputs, why, f"group each part of the UNION ALL, or {_USE_RETRACT}"
            )
        for use in branches[0]:
            # Each of these functions has one value in a group, so retention needs only one of them.
            function = min((time.function for time in use.time_columns), key=_length_and_text)
            if not isinstance(function, Column):
                self.group_functions.setdefault((use.input, function))
        return branches[:1]

    def _raise_error(self, clause: str, inputs: Sequence[str], why: str, fix: str) -> NoReturn:
        raise InputOptionsError(
            f"view {self._view!r}: {clause} over input {inputs[0]!r}, whose published results are "
            f"kept when rows expire (on_expiry='keep'): {why}: {fix}"
        )


def _length_and_text(function: Expression) -> tuple[int, str]:
    """Return a sort key, by which the simplest function is the first."""
    text = str(function)
    return len(text), text


def _input_names(branches: _Branches) -> list[str]:
    return list(dict.fromkeys(use.input for branch in branches for use in branch))


def _limit_branches(branches: Iterable[_Branch]) -> _Branches:
    """Return the distinct branches; one branch without time columns if there are too many."""
    distinct = tuple(dict.fromkeys(branches))
    if len(distinct) <= _MAX_BRANCHES:
        return distinct
    return (tuple(_InputUse(name, frozenset()) for name in _input_names(distinct)),)


def _with_time_columns(
    branches: _Branches, change: Callable[[_TimeColumns], Iterable[_TimeColumn]]
) -> _Branches:
    """Return the branches with the time columns of every input changed."""
    return tuple(
        tuple(replace(use, time_columns=frozenset(change(use.time_columns))) for use in branch)
        for branch in branches
    )


def _project(branches: _Branches, projections: Sequence[_Projection]) -> _Branches:
    """Return the branches of rows with other columns."""

    def project(times: _TimeColumns) -> Iterator[_TimeColumn]:
        for new, old, function in projections:
            for time in times:
                if time.column == old:
                    yield _TimeColumn(new, substitute(function, [time.function]))

    return _with_time_columns(branches, project)


def _projections(expressions: Sequence[Expression]) -> Iterator[_Projection]:
    """Yield the expressions that are non-decreasing functions of one column."""
    for new, expression in enumerate(expressions):
        argument = monotone_argument(expression)
        if argument is not None:
            function = substitute(expression, lambda column: Column(0, column.type))
            yield _Projection(new, argument.index, function)


def _restore_columns(branches: _Branches, keys: Sequence[int]) -> _Branches:
    """Return branches whose columns are group keys with the columns of the rows instead."""
    return _with_time_columns(
        branches, lambda times: (time._replace(column=keys[time.column]) for time in times)
    )


def _filter(branches: _Branches, predicate: Expression) -> _Branches:
    """Return the branches after a filter: equal columns contain the same function of a time."""
    for part in conjuncts([predicate]):
        match part:
            case Call("eq", (Column(a), Column(b))):
                branches = _equate_columns(branches, a, b)
    return branches


def _equate_columns(branches: _Branches, first: int, second: int) -> _Branches:
    def equate(times: _TimeColumns) -> Iterator[_TimeColumn]:
        yield from times
        for time in times:
            if time.column == first:
                yield time._replace(column=second)
            if time.column == second:
                yield time._replace(column=first)

    return _with_time_columns(branches, equate)
