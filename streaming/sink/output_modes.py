"""Output modes: what a target is told of a step's change of a view.

::

    delta()          rows with weight; the changes add up to the view
    upsert("nr")     for each touched key the row it has now (weight 1), or a tombstone (weight -1)
    complete()       the whole view, rows with weight

    ViewSink(..., outputs={"waiting": upsert("nr"), "totals": complete()})

A delta is consolidated, so it never has both +1 and -1 of a row, but an update is two rows, the old
one with -1 and the new one with +1. ``upsert`` makes one of them, for targets that keep a row per
key. Law: of all upserts so far the last of each key, without tombstones, is the view.

That needs a view in which a key has one row, once. It is checked on the state *after* the step, of
the touched keys, before anything is written: `PostStepReader` looks them up. The delta alone does
not tell: a key whose row comes today may have had another one since yesterday. With the look-up no
earlier step has to have been right, and what to write is simply what was found; a touched key that
was not found is a tombstone. Keys are equal as in GROUP BY: NULL is NULL, NaN is NaN.

Cost: ``delta`` nothing; ``upsert`` O(touched keys) and the look-up; ``complete`` the view.

Not taken: remembering the rows of each key here. The view is materialized already.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from circuits.schema import WEIGHT
from circuits.types.codecs.codec import Codecs
from circuits.types.functions.text_formatting import readable
from streaming.errors import TargetError

__all__ = [
    "MODES",
    "Mode",
    "Output",
    "PostStepReader",
    "PostStepTable",
    "complete",
    "delta",
    "folded",
    "upsert",
]

Mode = Literal["delta", "upsert", "complete"]
MODES: Final = ("delta", "upsert", "complete")


class PostStepReader(Protocol):
    """A view as it is after the step, rows with ``weight``."""

    def rows(self) -> pa.Table:
        """The whole view."""
        ...

    def rows_of(self, keys: pa.Table) -> pa.Table:
        """The rows that are equal in the columns of ``keys`` to one of its rows, as in GROUP BY.

        Args:
            keys: Distinct rows of some columns of the view.
        """
        ...


@dataclass(frozen=True)
class Output:
    """How the changes of a view are given to its target; see ``delta``, ``upsert``, ``complete``.

    Raises:
        TargetError: An unknown mode, or keys that do not go with it.
    """

    mode: Mode = "delta"
    keys: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise TargetError(f"output mode {self.mode!r} is none of {', '.join(MODES)}")
        if self.mode != "upsert" and self.keys:
            raise TargetError(
                f"output mode {self.mode!r} has no keys, {list(self.keys)} are given: leave them "
                "out, or choose 'upsert'"
            )
        if self.mode == "upsert" and (not self.keys or len(set(self.keys)) != len(self.keys)):
            raise TargetError(
                f"output mode 'upsert' needs different key columns, {list(self.keys)} are given; "
                "a view of a single row is best given by complete()"
            )

    def __str__(self) -> str:
        """As it is made."""
        return f"{self.mode}({', '.join(map(repr, self.keys))})"

    @property
    def needs_view(self) -> bool:
        """Whether the view has to be materialized."""
        return self.mode != "delta"

    def check(self, view: str, columns: Sequence[str]) -> None:
        """Check that the keys are columns of the view.

        Raises:
            TargetError: One is not.

        >>> upsert("number").check("waiting", ["nr", "items"])
        Traceback (most recent call last):
        streaming.errors.TargetError: view 'waiting': the key 'number' of its output is no column \
of it; columns are nr, items
        """
        for key in self.keys:
            if key not in columns:
                raise TargetError(
                    f"view {view!r}: the key {key!r} of its output is no column of it; columns are "
                    f"{', '.join(columns)}"
                )

    def table(self, view: str, delta: pa.Table, after: PostStepReader | None = None) -> pa.Table:
        """What the target is told of a step.

        Args:
            view: The name of the view, for messages.
            delta: The consolidated delta of the step, rows with ``weight``.
            after: The view after the step; not needed in mode ``delta``.

        Returns:
            A table of the columns of ``delta``.

        Raises:
            TargetError: In mode ``upsert`` a touched key has more or less than one row, once.

        Complexity:
            O(rows of the result), and of the delta; ``after`` is asked for touched keys, or all.
        """
        if self.mode == "delta":
            return delta
        if after is None:
            raise TargetError(
                f"view {view!r}: output mode {self.mode!r} needs the view after the step: "
                f"materialize it, materialize=[{view!r}]"
            )
        if self.mode == "complete":
            return after.rows().select(delta.column_names).cast(delta.schema)
        return self._upserts(view, delta, after) if delta.num_rows else delta

    def _upserts(self, view: str, delta: pa.Table, after: PostStepReader) -> pa.Table:
        schema, delta = delta.schema, _takeable(delta)
        touched = delta.select(self.keys)
        touched = touched.take(_firsts(_groups(touched)))
        touched = touched.cast(pa.schema([schema.field(key) for key in self.keys]))
        now = after.rows_of(touched).select(schema.names).cast(delta.schema)
        groups = _groups(pa.concat_tables([now.select(self.keys), delta.select(self.keys)]))
        now_groups, delta_groups = groups[: now.num_rows], groups[now.num_rows :]
        self._check_unique(view, now, now_groups)
        leaving = pc.less(delta.column(WEIGHT), 0).to_numpy(zero_copy_only=False)
        gone = np.flatnonzero(leaving & ~np.isin(delta_groups, now_groups))
        tombstones = delta.take(gone[_firsts(delta_groups[gone])])
        return pa.concat_tables([_weighted(now, 1), _weighted(tombstones, -1)]).cast(schema)

    def _check_unique(self, view: str, now: pa.Table, groups: npt.NDArray[np.int64]) -> None:
        weights = now.column(WEIGHT).to_numpy()
        counts = np.bincount(groups, minlength=1)
        bad = np.flatnonzero((weights != 1) | (counts[groups] > 1))
        if not len(bad):
            return
        rows = readable(now.take(np.flatnonzero(groups == groups[bad[0]])[:2])).to_pylist()
        key = ", ".join(f"{name} = {_shown(rows[0][name])}" for name in self.keys)
        others = [name for name in now.column_names if name not in (*self.keys, WEIGHT)]
        raise TargetError(
            f"view {view!r}: by its output every ({', '.join(self.keys)}) has one row, but after "
            f"this step {key} has " + " and ".join(_times(row) for row in rows) + "; add a column "
            f"that tells them apart to the keys (there are {', '.join(others) or 'no more'}), make "
            "the view unique by GROUP BY, or give it by delta() or complete(). Nothing was written"
        )


def delta() -> Output:
    """The rows that changed, with ``weight``; what a view has when nothing else is said."""
    return Output("delta")


def upsert(*keys: str) -> Output:
    """One row per touched key: what it is now, or with weight -1 the row that left.

    Every key must have one row in the view; a step that breaks this is refused.

    >>> after = PostStepTable(pa.table({"nr": [1, 7], "items": [1, 4], "weight": [1, 1]}))
    >>> step = pa.table({"nr": [1, 1, 2], "items": [1, 2, 5], "weight": [1, -1, -1]})
    >>> upsert("nr").table("waiting", step, after).to_pylist()
    [{'nr': 1, 'items': 1, 'weight': 1}, {'nr': 2, 'items': 5, 'weight': -1}]
    """
    return Output("upsert", keys)


def complete() -> Output:
    """The whole view after each step, rows with ``weight``; for small views."""
    return Output("complete")


@dataclass(frozen=True)
class PostStepTable:
    """`PostStepReader` over the whole view as a table; a look-up reads all of it."""

    table: pa.Table

    def rows(self) -> pa.Table:
        return self.table

    def rows_of(self, keys: pa.Table) -> pa.Table:
        both = pa.concat_tables([keys, self.table.select(keys.column_names)])
        groups = _groups(both)
        mine = np.isin(groups[keys.num_rows :], groups[: keys.num_rows])
        return _takeable(self.table).filter(pa.array(mine)).cast(self.table.schema)


def folded(upserts: Sequence[pa.Table], keys: Sequence[str]) -> pa.Table:
    """The view that upserts add up to: the last row of each key, without tombstones.

    Complexity:
        O(rows), and sorting their keys.

    >>> first = pa.table({"nr": [1, 2], "items": [2, 5], "weight": [1, 1]})
    >>> second = pa.table({"nr": [2], "items": [5], "weight": [-1]})
    >>> folded([first, second], ["nr"]).to_pylist()
    [{'nr': 1, 'items': 2, 'weight': 1}]
    """
    schema = upserts[0].schema
    table = _takeable(pa.concat_tables(upserts))
    groups = _groups(table.select(keys))
    last = np.sort(len(groups) - 1 - _firsts(groups[::-1]))
    table = table.take(last)
    return table.filter(pc.greater(table.column(WEIGHT), 0)).cast(schema)


def _groups(table: pa.Table) -> npt.NDArray[np.int64]:
    """A number per row, from 0 without holes; equal rows have equal numbers."""
    codecs = Codecs()
    groups = np.zeros(table.num_rows, np.int64)
    for column in table.columns:
        _, inverse = np.unique(codecs.codec(column.type).encode(column), return_inverse=True)
        width = int(inverse.max(initial=0)) + 1
        _, groups = np.unique(groups * width + inverse, return_inverse=True)  # < rows ** 2
    return groups


def _firsts(groups: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The first place of each group."""
    return np.unique(groups, return_index=True)[1]


def _takeable(table: pa.Table) -> pa.Table:
    """The table without views, of which Arrow cannot take rows."""
    for place, field in enumerate(table.schema):
        if field.type in (pa.string_view(), pa.binary_view()):
            type_ = pa.string() if field.type == pa.string_view() else pa.binary()
            table = table.set_column(place, field.with_type(type_), table.column(place).cast(type_))
    return table


def _weighted(table: pa.Table, weight: int) -> pa.Table:
    place = table.column_names.index(WEIGHT)
    weights = pa.array(np.full(table.num_rows, weight, np.int64))
    return table.set_column(place, table.schema.field(place), weights)


def _times(row: dict[str, object]) -> str:
    weight = row.pop(WEIGHT)
    shown = ", ".join(f"{name}: {_shown(value)}" for name, value in row.items())
    return f"{{{shown}}} with weight {weight}"


def _shown(value: object) -> str:
    text = repr(value) if value is not None else "NULL"
    return text if len(text) <= 60 else text[:57] + "..."
