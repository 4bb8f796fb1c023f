"""First rows: the plans of min, max, first and top-k in a partial and a final stage.

::

    operator               rows of the partial stage            what it emits
    min(x) by key          (key, x) with x not NULL             the least x of each part of a group
    first(x order by y)    (key, y, x)                          the first row of each part
    top k of all columns   the rows                             the first k rows of each part

`streaming.distributed.planning.stages` explains the two stages. The order of a partial stage is
that of the operator, and the columns that are not in the order break ties in the same way. So the
first rows of all parts contain the first rows of the group, and the trace of the partial stage has
the layout of the operator's trace of ordered rows.

An aggregate has a partial stage for each of its orders. The final stage reads all of them as one
relation, in which each has columns of its own, that are NULL in the rows of the others::

    SELECT key, count(*), min(x), arg_max(a, b) …

    key   x of min   b, a, flag of arg_max    weight
     7                                        +3          three rows of group 7
     7      2                                 +1          the least x of one part
     7                                        -1          … which is no row of the group
     7                10  'u'  1              +1          the first row of one part
     7                                        -1
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from circuits.plan.columns import with_unique_names
from circuits.plan.expressions import Column, Expression, Literal
from circuits.plan.nodes import (
    Aggregate,
    AggregateCall,
    Field,
    Fields,
    Filter,
    Map,
    Negate,
    Order,
    PlanNode,
    TopK,
)
from circuits.types.functions import call as call_function
from circuits.types.functions import conjunction

__all__ = ["AggregateParts", "FirstRows", "split_aggregate", "split_top_k"]

#: The largest number of rows of a group that each cell of a partial stage sends. More rows than
#: this are nearly as many as a cell has.
MAX_FIRST_ROWS: Final = 1 << 12
#: A column of the rows of a partial stage of `first`: the values of such a row may all be NULL.
_FLAG: Final = Field("#first", pa.int64())


@dataclass(frozen=True)
class FirstRows:
    """The first rows of each group, as a partial stage computes them.

    Attributes:
        fields: The columns of the input of the operator.
        columns: The columns that the stage keeps.
        required: The columns of the input that must not be NULL.
        keys: The columns that identify a group, of the kept ones; those of an aggregate are first.
        order: The order, over the kept columns.
        limit: The number of rows of each group.
    """

    fields: Fields
    columns: tuple[int, ...]
    required: tuple[int, ...]
    keys: tuple[int, ...]
    order: tuple[Order, ...]
    limit: int

    @property
    def kept_fields(self) -> Fields:
        """The columns that the stage keeps."""
        return with_unique_names([self.fields[column] for column in self.columns])

    def rows_of(self, rows: PlanNode) -> PlanNode:
        """Return the rows that the stage reads, from rows of the operator's input."""
        conditions = [
            call_function("not", call_function("is_null", Column(c, self.fields[c].type)))
            for c in self.required
            if self.fields[c].nullable
        ]
        if conditions:
            rows = Filter(rows, conjunction(conditions))
        if self.columns == tuple(range(len(self.fields))):
            return rows
        expressions = tuple(Column(c, self.fields[c].type) for c in self.columns)
        return Map(rows, expressions, tuple(field.name for field in self.kept_fields))

    def operator(self, rows: PlanNode) -> TopK:
        """Return the operator of the stage."""
        return TopK(rows, self.keys, self.order, self.limit)


@dataclass(frozen=True)
class AggregateParts:
    """An aggregate in partial stages and a final one.

    Attributes:
        plan: The aggregate.
        partials: The first rows that the partial stages compute.
        calls: The aggregates of the final stage.
    """

    plan: Aggregate
    partials: tuple[FirstRows, ...]
    calls: tuple[AggregateCall, ...]

    @property
    def fields(self) -> Fields:
        """The columns of the rows that the final stage reads."""
        keys = [self.plan.input.fields[key] for key in self.plan.keys]
        values = [field for partial in self.partials for field in self._own_fields(partial)]
        return with_unique_names([*keys, *values])

    def counts(self, rows: PlanNode) -> PlanNode:
        """Return the keys of rows of the aggregate's input, each row with its weight."""
        columns = [Column(key, self.plan.input.fields[key].type) for key in self.plan.keys]
        return self._map(rows, columns)

    def additions(self, index: int, rows: PlanNode) -> PlanNode:
        """Return the first rows that a partial stage emits as rows of the final stage."""
        partial = self.partials[index]
        kept = [Column(position, f.type) for position, f in enumerate(partial.kept_fields)]
        before = [f for other in self.partials[:index] for f in self._own_fields(other)]
        return self._map(
            rows,
            [
                *kept[: len(partial.keys)],
                *(Literal(None, field.type) for field in before),
                *kept[len(partial.keys) :],
                Literal(1, _FLAG.type),
            ],
        )

    def subtractions(self, index: int, rows: PlanNode) -> PlanNode:
        """Return the rows that take back the weights of `additions`."""
        fields = self.partials[index].kept_fields[: len(self.plan.keys)]
        columns = [Column(position, field.type) for position, field in enumerate(fields)]
        return Negate(self._map(rows, columns))

    def operator(self, rows: PlanNode) -> Aggregate:
        """Return the operator of the final stage."""
        return Aggregate(rows, tuple(range(len(self.plan.keys))), self.calls)

    def _map(self, rows: PlanNode, first: Sequence[Expression]) -> Map:
        """Return rows with the given first columns; the others are NULL."""
        nulls = [Literal(None, field.type) for field in self.fields[len(first) :]]
        return Map(rows, (*first, *nulls), tuple(field.name for field in self.fields))

    @staticmethod
    def _own_fields(partial: FirstRows) -> list[Field]:
        values = partial.kept_fields[len(partial.keys) :]
        return [*(replace(field, nullable=True) for field in values), _FLAG]


def split_top_k(plan: TopK) -> FirstRows | None:
    """Return the first rows that the final top-k reads; None if it needs none or too many.

    >>> from circuits.plan.nodes import Scan
    >>> r = Scan("r", (Field("k", pa.int64()), Field("x", pa.int64())))
    >>> first = split_top_k(TopK(r, (0,), (Order(1),), limit=2, offset=3))
    >>> first.limit, split_top_k(TopK(r, (0,), (Order(1),), limit=None, offset=3))
    (5, None)
    """
    if not plan.limit or plan.limit + plan.offset > MAX_FIRST_ROWS:
        return None
    fields = plan.input.fields
    columns = tuple(range(len(fields)))
    return FirstRows(fields, columns, (), plan.keys, plan.order, plan.limit + plan.offset)


def split_aggregate(plan: Aggregate) -> AggregateParts | None:
    """Return the parts of an aggregate; None if it also reads something else than first rows.

    The other aggregates that may be in it are counts of rows.

    >>> from circuits.plan.nodes import Scan
    >>> r = Scan("r", (Field("k", pa.int64()), Field("x", pa.int64())))
    >>> least = AggregateCall("min", 1, pa.int64(), "least")
    >>> parts = split_aggregate(Aggregate(r, (0,), (least,)))
    >>> parts.partials[0].operator(parts.partials[0].rows_of(r)).label()
    'top 1 in order x nulls first per k'
    >>> parts.operator(Scan("f", parts.fields)).label()
    'aggregate min(x) by k'
    """
    fields, keys = plan.input.fields, plan.keys
    first_of_key: dict[object, FirstRows] = {}
    for call in plan.aggregates:
        if call.function in ("min", "max", "first"):
            first_of_key.setdefault(_state_key(call), _first_rows(call, fields, keys))
        elif call.function != "count" or call.argument is not None:
            return None
    if not first_of_key:
        return None
    partials = tuple(first_of_key.values())
    widths = [len(partial.columns) - len(keys) + 1 for partial in partials]
    starts = [len(keys) + sum(widths[:index]) for index in range(len(partials))]
    start_of_key = dict(zip(first_of_key, starts, strict=True))
    calls = []
    for call in plan.aggregates:
        if call.argument is None:
            calls.append(call)
            continue
        partial, start = first_of_key[_state_key(call)], start_of_key[_state_key(call)]
        values = partial.columns[len(keys) :]
        argument = start + values.index(call.argument)
        if call.function != "first":
            calls.append(replace(call, argument=argument))
            continue
        order = tuple(
            replace(part, column=start + values.index(part.column)) for part in call.order
        )
        flag = start + len(values)
        calls.append(replace(call, argument=argument, others=(flag,), order=order))
    return AggregateParts(plan, partials, tuple(calls))


def _state_key(call: AggregateCall) -> object:
    """Return a key that is equal for calls that share their ordered rows.

    The traces of an aggregate have one for each key, in the order of the calls
    (`circuits.runtime.operators.aggregates.aggregate`).
    """
    return call.key() if call.function == "first" else (call.function, call.argument)


def _first_rows(call: AggregateCall, fields: Fields, keys: Sequence[int]) -> FirstRows:
    assert call.argument is not None
    if call.function == "first":
        values = tuple(dict.fromkeys((*(part.column for part in call.order), call.argument)))
        order = tuple(
            replace(part, column=len(keys) + values.index(part.column)) for part in call.order
        )
        return FirstRows(fields, (*keys, *values), call.others, tuple(range(len(keys))), order, 1)
    # The place of NULL is that of `circuits.runtime.operators.aggregates.min_max`.
    is_max = call.function == "max"
    order = (Order(len(keys), descending=is_max, nulls_first=not is_max),)
    required = (call.argument,)
    return FirstRows(fields, (*keys, call.argument), required, tuple(range(len(keys))), order, 1)
