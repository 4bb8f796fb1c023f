"""Finality: check that a view may read an input with ``on_expiry="keep"`` (a *kept input*).

When a row of a kept input expires, it is deleted from the state, and nothing is published. That is
correct for a view only if the results of the row are final, that is, cannot change any more::

    Filter, Map, Union ALL, joins      linear in each input: the deletion of a row deletes its own
                                       results and no others
    Aggregate, TopK, Window, …         correct if all rows of one group expire together, and no
                                       later row can belong to that group
    Semi, anti, outer joins            linear in the left input; a row of the right input that
                                       expires would change results of left rows that stay
    Fixpoint                           a derived row may have lost one of several derivations

A group expires as a whole if its key contains, for each row of a kept input that contributes to the
group, the event time ``t`` of that row or a value ``f(t)`` of a non-decreasing function. To check
this, the plan is traversed from the inputs to the view, and each node gets a value::

    node        =  a set of branches (a UNION ALL has those of all its inputs)
    branch      =  the occurrences of kept inputs that contribute to each of its rows
    occurrence  =  the input, and the columns that hold f(t) of its event time, with each f

A group to which several branches contribute expires as a whole only if all of them have the same
occurrences: the same inputs with the same columns. Rows then expire up to a time at which every
such ``f`` takes a new value (`circuits.inputs.retention`). So a row may stay in the state for
longer than its retention, until its group ends.

A view that reads one input with "keep" and another one with "retract" is an error. Otherwise the
row of a result that expires first would decide whether the result is deleted, and so would the way
in which the stream is split into micro-batches.

Cost: O(nodes * branches). A circuit without a kept input costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final, NoReturn

import pyarrow as pa
from pyarrow import types

from circuits.errors import InputOptionsError
from circuits.inputs.input_options import InputOptions
from circuits.plan.expressions import Call, Column, Expression, Literal, conjuncts, substitute
from circuits.plan.nodes import (
    Aggregate,
    CrossJoin,
    Distinct,
    Filter,
    Fixpoint,
    Map,
    Negate,
    OuterJoin,
    Plan,
    Positive,
    Scan,
    Semijoin,
    TopK,
    Union,
    Values,
)
from circuits.plan.window import Window
from circuits.schema import Schema
from circuits.types.arrow_types import NUMBERS, Family, family_of

__all__ = ["group_functions"]

#: A node with more branches gets one branch instead: all their inputs, without event times.
MAX_BRANCHES: Final = 64
_USE_RETRACT: Final = "use on_expiry='retract' for a view of the retained rows only"


@dataclass(frozen=True)
class _Occurrence:
    """A kept input that contributes to rows, and the columns with a function of its event time.

    A function is an expression over column 0, which is the event time.
    """

    input: str
    times: frozenset[tuple[int, Expression]]


Branch = tuple[_Occurrence, ...]
Branches = tuple[Branch, ...]
#: (new column, old column, function), for each new column that is a function of one old column.
ColumnMoves = Iterable[tuple[int, int, Expression]]


def group_functions(
    plans: Mapping[str, Plan], inputs: Mapping[str, Schema], options: Mapping[str, InputOptions]
) -> dict[str, tuple[Expression, ...]]:
    """Check every view that reads a kept input.

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
    retained = {name: one.retain for name, one in options.items() if one.retain is not None}
    kept = {name for name, retain in retained.items() if retain.keeps_results}
    if not kept:
        return {}
    known: dict[str, Branches] = {}
    reads: dict[str, frozenset[str]] = {}
    found: dict[str, dict[Expression, None]] = {name: {} for name in kept}
    for view, plan in plans.items():
        reads[view] = frozenset(
            name for scan in _scans(plan) for name in reads.get(scan.relation, {scan.relation})
        )
        mixed = sorted(reads[view] & (retained.keys() - kept))
        if mixed and reads[view] & kept:
            raise InputOptionsError(
                f"view {view!r} reads input {min(reads[view] & kept)!r} with on_expiry='keep' and "
                f"input {mixed[0]!r} with on_expiry='retract', so which results stay would depend "
                "on the row that expires first: give both the same on_expiry"
            )
        walk = _FinalityCheck(view, plan, inputs, options, known)
        known[view] = walk.branches(plan)
        for name, function in walk.used:
            found[name].setdefault(function)
    return {name: tuple(functions) for name, functions in found.items()}


class _FinalityCheck:
    """Computes the branches of the nodes of one view; visits each node of the DAG once."""

    def __init__(
        self,
        view: str,
        plan: Plan,
        inputs: Mapping[str, Schema],
        options: Mapping[str, InputOptions],
        views: Mapping[str, Branches],
    ) -> None:
        self.used: dict[tuple[str, Expression], None] = {}
        self._view = view
        self._plan = plan  # keeps all nodes alive, so that their ids stay unique
        self._inputs = inputs
        self._options = options
        self._views = views
        self._known: dict[int, Branches] = {}

    def branches(self, plan: Plan) -> Branches:
        """Return the branches of a node."""
        if id(plan) not in self._known:
            found = tuple(dict.fromkeys(self._compute(plan)))
            if len(found) > MAX_BRANCHES:
                found = (tuple(_Occurrence(name, frozenset()) for name in _input_names(found)),)
            self._known[id(plan)] = found
        return self._known[id(plan)]

    def _compute(self, plan: Plan) -> Branches:
        match plan:
            case Scan(relation):
                return self._views[relation] if relation in self._views else self._input(relation)
            case Values():
                return ((),)
            case Filter(below, predicate):
                return _filter(self.branches(below), predicate)
            case Map(below, expressions):
                steps = [(new, _monotone_step(e)) for new, e in enumerate(expressions)]
                moves = [(new, *step) for new, step in steps if step is not None]
                return _project(self.branches(below), moves)
            case Negate(below):
                return self.branches(below)
            case Union(inputs):
                return tuple(branch for below in inputs for branch in self.branches(below))
            case CrossJoin(inputs):
                return self._cross(inputs)
            case Semijoin(left, right, predicate, anti):
                self._check_right(right, "NOT EXISTS or NOT IN" if anti else "EXISTS or IN")
                return self.branches(left)
            case OuterJoin(left, right, _, kind):
                self._check_right(right, f"a {kind.upper()} JOIN")
                if kind == "full":
                    self._check_right(left, "a FULL JOIN")
                return self.branches(left)
            case Aggregate(below, keys):
                return self._group(below, keys, "GROUP BY" if keys else "an aggregate of all rows")
            case TopK(below, keys):
                found = self._group(below, keys, "ORDER BY with LIMIT, or row_number()")
                return _renumber_columns(found, keys)
            case Window(below, partition):
                found = self._group(below, partition, "a window function")
                return _renumber_columns(found, partition)
            case Distinct(below):
                everything = range(len(below.fields))
                return self._group(
                    below,
                    everything,
                    "DISTINCT (also of UNION, INTERSECT, EXCEPT, Datalog rules)",
                )
            case Positive(below):
                return self._group(below, range(len(below.fields)), "EXCEPT or INTERSECT")
            case Fixpoint():
                return self._check_recursion(plan)
            case _:
                raise AssertionError(f"{type(plan).__name__} occurs only in rewritten plans")

    def _input(self, name: str) -> Branches:
        options = self._options.get(name)
        if options is None or options.retain is None or not options.retain.keeps_results:
            return ((),)
        schema = self._inputs[name]
        if options.retain.column not in schema.columns:
            return ((),)  # `circuits.inputs.retention` raises an error for this
        place = schema.columns.index(options.retain.column)
        time = Column(0, schema.fields[place].type)
        return ((_Occurrence(name, frozenset([(place, time)])),),)

    def _cross(self, inputs: Sequence[Plan]) -> Branches:
        found: Branches = ((),)
        offset = 0
        for below in inputs:
            moves = [(offset + c, c, _event_time(f.type)) for c, f in enumerate(below.fields)]
            projected = _project(self.branches(below), moves)
            found = tuple(dict.fromkeys(a + b for a, b in product(found, projected)))
            if len(found) > MAX_BRANCHES:
                found = (tuple(_Occurrence(name, frozenset()) for name in _input_names(found)),)
            offset += len(below.fields)
        return found

    def _check_right(self, right: Plan, what: str) -> None:
        inputs = _input_names(self.branches(right))
        if inputs:
            why = "a row of it that expires would change results of rows that stay"
            self._raise_error(what, inputs, why, f"join it with JOIN, or {_USE_RETRACT}")

    def _check_recursion(self, plan: Fixpoint) -> Branches:
        inputs = sorted(
            name
            for scan in _scans(plan)
            for name in _input_names(
                self._views[scan.relation]
                if scan.relation in self._views
                else self._input(scan.relation)
            )
        )
        if inputs:
            why = "a row that expires may leave results that other rows derive as well"
            self._raise_error("a recursion", inputs, why, _USE_RETRACT)
        return ((),)

    def _group(self, below: Plan, keys: Iterable[int], what: str) -> Branches:
        """Return the branch of an operator that groups rows: the event times among its keys."""
        keys = tuple(keys)
        moves = [(new, old, _event_time(below.fields[old].type)) for new, old in enumerate(keys)]
        branches = _project(self.branches(below), moves)
        inputs = _input_names(branches)
        if not inputs:
            return ((),)
        untimed = [one.input for branch in branches for one in branch if not one.times]
        if untimed:
            column = self._options[untimed[0]].retain.column  # type: ignore[union-attr]
            why = "the result of a group would change when one of its rows expires"
            fix = (
                f"add {column!r} of each row of {untimed[0]!r} to the group or the selected "
                "columns, or a non-decreasing function of it, such as date_trunc or a cast to "
                "a date"
            )
            self._raise_error(what, untimed, why, f"{fix}, or {_USE_RETRACT}")
        if len(set(map(frozenset, branches))) > 1:
            why = "rows of several branches are in one group and would not expire together"
            self._raise_error(
                what, inputs, why, f"group each part of the UNION ALL, or {_USE_RETRACT}"
            )
        for one in branches[0]:
            _, function = min(one.times, key=lambda time: (len(str(time[1])), str(time[1])))
            if not isinstance(function, Column):
                self.used.setdefault((one.input, function))
        return branches[:1]

    def _raise_error(self, what: str, inputs: Sequence[str], why: str, fix: str) -> NoReturn:
        raise InputOptionsError(
            f"view {self._view!r}: {what} over input {inputs[0]!r}, whose published results are "
            f"kept when rows expire (on_expiry='keep'): {why}: {fix}"
        )


def _input_names(branches: Branches) -> list[str]:
    return list(dict.fromkeys(one.input for branch in branches for one in branch))


def _project(branches: Branches, moves: ColumnMoves) -> Branches:
    """Return the branches after a projection to other columns, or to functions of one column."""
    moves = list(moves)
    return tuple(
        tuple(
            _Occurrence(
                one.input,
                frozenset(
                    (new, substitute(function, [known]))
                    for new, old, function in moves
                    for column, known in one.times
                    if column == old
                ),
            )
            for one in branch
        )
        for branch in branches
    )


def _renumber_columns(branches: Branches, keys: Sequence[int]) -> Branches:
    """Number the columns of branches by the columns of the rows again, not by the group keys."""
    return tuple(
        tuple(
            _Occurrence(one.input, frozenset((keys[c], function) for c, function in one.times))
            for one in branch
        )
        for branch in branches
    )


def _filter(branches: Branches, predicate: Expression) -> Branches:
    """Return the branches after a filter: equal columns contain the same function of a time."""
    for part in conjuncts([predicate]):
        match part:
            case Call("eq", (Column(a), Column(b))):
                branches = tuple(
                    tuple(
                        _Occurrence(
                            one.input,
                            one.times
                            | {(b, f) for column, f in one.times if column == a}
                            | {(a, f) for column, f in one.times if column == b},
                        )
                        for one in branch
                    )
                    for branch in branches
                )
    return branches


def _event_time(type: pa.DataType) -> Expression:
    return Column(0, type)


def _monotone_step(expression: Expression) -> tuple[int, Expression] | None:
    """Return the one column that an expression reads, and the expression over column 0 instead.

    None if it reads several columns, or is not known to be a non-decreasing function of one.
    """
    if isinstance(expression, Column):
        return expression.index, _event_time(expression.type)
    if not isinstance(expression, Call):
        return None
    for monotone_argument in _MONOTONE.get(expression.function, ()):
        inner = monotone_argument(expression)
        step = None if inner is None else _monotone_step(inner)
        if step is not None:
            index = step[0]
            return index, substitute(expression, lambda column: Column(0, column.type))
    return None


def _is_constant(expression: Expression, *, least: float | None = None) -> bool:
    """True for a constant other than NULL that is greater than ``least``, if that is given."""
    if not isinstance(expression, Literal) or expression.value is None:
        return False
    return least is None or (_is_number(expression.type) and expression.value > least)


def _is_number(type: pa.DataType) -> bool:
    return family_of(type) in NUMBERS


def _is_ordered(type: pa.DataType) -> bool:
    return _is_number(type) or family_of(type) in (Family.TIMESTAMP, Family.DATE)


def _is_local(type: pa.DataType) -> bool:
    """True for timestamps in zones other than UTC: local time is set back when summer time ends."""
    return bool(types.is_timestamp(type) and type.tz not in (None, "UTC"))


def _cast(call: Call) -> Expression | None:
    (inner,) = call.arguments
    ordered = _is_ordered(inner.type) and _is_ordered(call.type)
    return inner if ordered and not (_is_local(inner.type) or _is_local(call.type)) else None


def _date_trunc(call: Call) -> Expression | None:
    unit, inner = call.arguments
    return inner if _is_constant(unit) and not _is_local(inner.type) else None


def _year(call: Call) -> Expression | None:
    (inner,) = call.arguments
    return None if _is_local(inner.type) else inner


def _interval_sum(call: Call) -> Expression | None:
    """A date or timestamp plus a constant duration."""
    inner, *amounts = call.arguments
    return inner if all(map(_is_constant, amounts)) and not _is_local(inner.type) else None


def _sum(call: Call) -> Expression | None:
    one, other = call.arguments
    return one if _is_constant(other) else other if _is_constant(one) else None


def _difference(call: Call) -> Expression | None:
    one, other = call.arguments
    return one if _is_constant(other) else None


def _round_down(call: Call) -> Expression | None:
    """``t - t % 60``, where both ``t`` are the same expression."""
    match call.arguments:
        case inner, Call("modulo", (again, size)) if again == inner and _is_constant(size, least=0):
            return inner if types.is_integer(inner.type) and types.is_integer(call.type) else None
    return None


def _scale(call: Call) -> Expression | None:
    one, other = call.arguments
    return one if _is_constant(other, least=0) else None


def _round(call: Call) -> Expression | None:
    inner, *digits = call.arguments
    return inner if all(map(_is_constant, digits)) else None


#: Non-decreasing functions by name. Each entry returns the argument in which a call is
#: non-decreasing, or None.
_MONOTONE: Final[Mapping[str, tuple[Callable[[Call], Expression | None], ...]]] = {
    "cast": (_cast,),
    "date_trunc": (_date_trunc,),
    "year": (_year,),
    "date_add": (_interval_sum,),
    "add": (_sum,),
    "subtract": (_difference, _round_down),
    "multiply": (_scale,),
    "divide": (_scale,),
    "int_divide": (_scale,),
    "floor": (_round,),
    "ceil": (_round,),
    "round": (_round,),
}


def _scans(plan: Plan) -> Iterator[Scan]:
    """Yield the scans in a plan; visit each node once."""
    seen: set[int] = set()
    pending = [plan]
    while pending:
        one = pending.pop()
        if id(one) not in seen:
            seen.add(id(one))
            if isinstance(one, Scan):
                yield one
            pending.extend(one.inputs)
