"""Output modes: the table that a target receives for one step of a view.

::

    delta       the changed rows with weights; the deltas add up to the view
    append      the new rows without weights, of a view that loses no rows
    upsert      for each touched key its current row (weight 1), or a tombstone (weight -1)
    complete    the whole view, rows with weights

    OutputMode("upsert", ["nr"])

A view loses no rows if, for example, it filters or joins inputs that only grow, or contains each
window once when it is closed. A step that removes a row is an error in mode ``append``, before
anything is written; so targets need no column for the weight.

In a delta an update is two rows: the old row with weight -1 and the new row with weight 1. In mode
``upsert`` it is one row, for targets that keep a row per key. Law: the last upsert of each key,
without tombstones, is the view.

``upsert`` needs a view in which each key has exactly one row. The mode checks this before anything
is written, for the touched keys in the state *after* the step: `PostStepReader` looks them up. The
delta alone is not enough, because an earlier step may have inserted another row of a key. The rows
to write are the rows that the look-up returns; a touched key without a row is a tombstone. Keys are
compared as in GROUP BY: NULL equals NULL and NaN equals NaN.

Cost: ``delta`` and ``append`` nothing; ``upsert`` O(touched keys) and the look-up; ``complete`` the
view.

Alternatives considered: remembering the rows of each key here. The view is materialized already.
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
from circuits.types.functions.casting.text_formatting import format_unrepresentable
from streaming.errors import TargetError

__all__ = [
    "MODE_KEY",
    "OUTPUT_MODES",
    "Mode",
    "OutputMode",
    "PostStepReader",
    "PostStepTable",
    "fold_upserts",
    "replacing_upserts",
]

Mode = Literal["delta", "append", "upsert", "complete"]
OUTPUT_MODES: Final[tuple[Mode, ...]] = ("delta", "append", "upsert", "complete")
#: The metadata key of the mode of a published table; the value is ``str(OutputMode)``.
MODE_KEY: Final = b"dbsp_wcoj.output"
MAX_VALUE_CHARS: Final = 60  # the longest value in a message


class PostStepReader(Protocol):
    """Reads a view in its state after the step, rows with ``weight``."""

    def rows(self) -> pa.Table:
        """Return the whole view."""
        ...

    def rows_of(self, keys: pa.Table) -> pa.Table:
        """Return the rows of the view whose key columns equal a row of ``keys``, as in GROUP BY.

        Args:
            keys: Distinct rows of some columns of the view.
        """
        ...


@dataclass(frozen=True)
class OutputMode:
    """A mode and, for ``upsert``, the key columns.

    Raises:
        TargetError: The mode is unknown, or the keys do not fit the mode.

    >>> after = PostStepTable(pa.table({"nr": [1, 7], "items": [1, 4], "weight": [1, 1]}))
    >>> step = pa.table({"nr": [1, 1, 2], "items": [1, 2, 5], "weight": [1, -1, -1]})
    >>> OutputMode("upsert", ["nr"]).changes("waiting", step, after).to_pylist()
    [{'nr': 1, 'items': 1, 'weight': 1}, {'nr': 2, 'items': 5, 'weight': -1}]
    """

    mode: Mode = "delta"
    keys: Sequence[str] = ()

    def __post_init__(self) -> None:
        keys = (self.keys,) if isinstance(self.keys, str) else tuple(self.keys)
        object.__setattr__(self, "keys", keys)
        if self.mode not in OUTPUT_MODES:
            raise TargetError(
                f"output mode {self.mode!r}: it must be one of {', '.join(OUTPUT_MODES)}"
            )
        if self.mode != "upsert" and keys:
            raise TargetError(
                f"output mode {self.mode!r} has no keys, but keys={list(keys)} is set: remove "
                "keys, or use mode='upsert'"
            )
        if self.mode == "upsert" and (not keys or len(set(keys)) != len(keys)):
            raise TargetError(
                f"output mode 'upsert' needs distinct key columns, not keys={list(keys)}; "
                "for a view of a single row use mode='complete'"
            )

    def __str__(self) -> str:
        """The text that is stored with published tables, for example ``upsert('nr')``."""
        return f"{self.mode}({', '.join(map(repr, self.keys))})"

    @property
    def needs_view(self) -> bool:
        """Return whether the view must be materialized."""
        return self.mode in ("upsert", "complete")

    @property
    def has_weight(self) -> bool:
        """Return whether a table of a target has the column ``weight``."""
        return self.mode in ("delta", "complete")

    def check(self, view: str, columns: Sequence[str]) -> None:
        """Check that the keys are columns of the view.

        Raises:
            TargetError: A key is not a column of the view.

        >>> OutputMode("upsert", ["number"]).check("waiting", ["nr", "items"])
        Traceback (most recent call last):
        streaming.errors.TargetError: view 'waiting': the output key 'number' is not a column of \
the view; columns are nr, items
        """
        for key in self.keys:
            if key not in columns:
                raise TargetError(
                    f"view {view!r}: the output key {key!r} is not a column of the view; columns "
                    f"are {', '.join(columns)}"
                )

    def changes(self, view: str, delta: pa.Table, after: PostStepReader | None = None) -> pa.Table:
        """Return the table that the target receives for a step.

        Args:
            view: The name of the view, for messages.
            delta: The consolidated delta of the step, rows with ``weight``.
            after: The view after the step; not needed in modes ``delta`` and ``append``.

        Returns:
            A table of the columns of ``delta``.

        Raises:
            TargetError: The view is not materialized, in mode ``upsert`` a touched key has
                several rows or a weight other than 1, or in mode ``append`` a row is removed.

        Complexity:
            O(rows of the delta and of the result), and one look-up of the touched keys or one scan
            of the view.
        """
        if self.mode == "append":
            _check_only_inserts(view, delta)
        if not self.needs_view:
            return delta
        if after is None:
            raise TargetError(
                f"view {view!r}: output mode {self.mode!r} needs a materialized view: compile the "
                f"circuit with materialize=[{view!r}]"
            )
        if self.mode == "complete":
            return after.rows().select(delta.column_names).cast(delta.schema)
        return self._upserts(view, delta, after) if delta.num_rows else delta

    def publish(self, view: str, delta: pa.Table, after: PostStepReader | None = None) -> pa.Table:
        """Return the result of `changes`, with this mode in the metadata of its schema."""
        changes = self.changes(view, delta, after)
        return changes.replace_schema_metadata({MODE_KEY: str(self)})

    def _upserts(self, view: str, delta: pa.Table, after: PostStepReader) -> pa.Table:
        schema, delta = delta.schema, _without_view_types(delta)
        touched = delta.select(self.keys)
        touched = touched.take(_first_positions(_group_numbers(touched)))
        touched = touched.cast(pa.schema([schema.field(key) for key in self.keys]))
        current = after.rows_of(touched).select(schema.names).cast(delta.schema)
        # Equal keys of both tables have the same number.
        groups = _group_numbers(
            pa.concat_tables([current.select(self.keys), delta.select(self.keys)])
        )
        current_groups, delta_groups = groups[: current.num_rows], groups[current.num_rows :]
        self._check_unique(view, current, current_groups)
        is_deletion = pc.less(delta.column(WEIGHT), 0).to_numpy(zero_copy_only=False)
        deleted = np.flatnonzero(is_deletion & ~np.isin(delta_groups, current_groups))
        tombstones = delta.take(deleted[_first_positions(delta_groups[deleted])])
        return pa.concat_tables([_with_weight(current, 1), _with_weight(tombstones, -1)]).cast(
            schema
        )

    def _check_unique(self, view: str, current: pa.Table, groups: npt.NDArray[np.int64]) -> None:
        weights = current.column(WEIGHT).to_numpy()
        counts = np.bincount(groups, minlength=1)
        wrong_rows = np.flatnonzero((weights != 1) | (counts[groups] > 1))
        if not len(wrong_rows):
            return
        examples = current.take(np.flatnonzero(groups == groups[wrong_rows[0]])[:2])
        rows = format_unrepresentable(examples).to_pylist()
        key = ", ".join(f"{name} = {_format_value(rows[0][name])}" for name in self.keys)
        others = [name for name in current.column_names if name not in (*self.keys, WEIGHT)]
        raise TargetError(
            f"view {view!r}: mode 'upsert' needs one row for every ({', '.join(self.keys)}), but "
            f"after this step {key} has "
            + " and ".join(_format_row(row) for row in rows)
            + "; add a column that distinguishes them to the keys (other columns: "
            f"{', '.join(others) or 'none'}), make the view unique by GROUP BY, or use "
            "mode='delta' or mode='complete'. Nothing was written"
        )


def _check_only_inserts(view: str, delta: pa.Table) -> None:
    removed = delta.filter(pc.less(delta.column(WEIGHT), 0)).slice(0, 1)
    if removed.num_rows:
        (row,) = format_unrepresentable(removed).to_pylist()
        raise TargetError(
            f"view {view!r}: mode 'append' only adds rows, but this step removes "
            f"{_format_row(row)}; use mode='delta', or mode='upsert' with the keys of the view. "
            "Nothing was written"
        )


@dataclass(frozen=True)
class PostStepTable:
    """`PostStepReader` of a view that is given as a table; a look-up scans the table."""

    table: pa.Table

    def rows(self) -> pa.Table:
        return self.table

    def rows_of(self, keys: pa.Table) -> pa.Table:
        groups = _group_numbers(pa.concat_tables([keys, self.table.select(keys.column_names)]))
        matches = np.isin(groups[keys.num_rows :], groups[: keys.num_rows])
        return _without_view_types(self.table).filter(pa.array(matches)).cast(self.table.schema)


def fold_upserts(upserts: Sequence[pa.Table], keys: Sequence[str]) -> pa.Table:
    """Return the view that upserts add up to: the last row of each key, without tombstones.

    Complexity:
        O(rows), and sorting their keys.

    >>> first = pa.table({"nr": [1, 2], "items": [2, 5], "weight": [1, 1]})
    >>> second = pa.table({"nr": [2], "items": [5], "weight": [-1]})
    >>> fold_upserts([first, second], ["nr"]).to_pylist()
    [{'nr': 1, 'items': 2, 'weight': 1}]
    """
    schema = upserts[0].schema
    table = _without_view_types(pa.concat_tables(upserts))
    groups = _group_numbers(table.select(keys))
    # The last row of a key is the first in the reversed order.
    last_rows = np.sort(len(groups) - 1 - _first_positions(groups[::-1]))
    table = table.take(last_rows)
    return table.filter(pc.greater(table.column(WEIGHT), 0)).cast(schema)


def replacing_upserts(held: pa.Table, view: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Return the upserts that replace the rows of a view by other rows.

    Args:
        held: The rows to replace, one per key.
        view: The new rows, one per key.
        keys: The key columns.

    Complexity:
        O(rows), and sorting their keys.

    >>> held = pa.table({"nr": [1, 2], "items": [2, 5], "weight": [1, 1]})
    >>> view = pa.table({"nr": [2], "items": [6], "weight": [1]})
    >>> replacing_upserts(held, view, ["nr"]).to_pylist()
    [{'nr': 2, 'items': 6, 'weight': 1}, {'nr': 1, 'items': 2, 'weight': -1}]
    """
    schema, held = view.schema, _without_view_types(held)
    keys_of_both = [table.select(keys) for table in (_without_view_types(view), held)]
    groups = _group_numbers(pa.concat_tables(keys_of_both))
    is_gone = ~np.isin(groups[view.num_rows :], groups[: view.num_rows])
    tombstones = _with_weight(held.filter(pa.array(is_gone)), -1)
    return pa.concat_tables([view, tombstones.cast(schema)])


def _group_numbers(table: pa.Table) -> npt.NDArray[np.int64]:
    """Number the rows from 0 without gaps; equal rows have equal numbers."""
    codecs = Codecs()
    groups = np.zeros(table.num_rows, np.int64)
    for column in table.columns:
        _, values = np.unique(codecs.codec(column.type).encode(column), return_inverse=True)
        value_count = int(values.max(initial=0)) + 1
        # Both factors are at most the number of rows, so the product fits an int64.
        _, groups = np.unique(groups * value_count + values, return_inverse=True)
    return groups


def _first_positions(groups: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the first position of each group."""
    return np.unique(groups, return_index=True)[1]


def _without_view_types(table: pa.Table) -> pa.Table:
    """Cast string-view and binary-view columns, because Arrow cannot take rows of them."""
    for i, field in enumerate(table.schema):
        if field.type in (pa.string_view(), pa.binary_view()):
            type_ = pa.string() if field.type == pa.string_view() else pa.binary()
            table = table.set_column(i, field.with_type(type_), table.column(i).cast(type_))
    return table


def _with_weight(table: pa.Table, weight: int) -> pa.Table:
    i = table.column_names.index(WEIGHT)
    weights = pa.array(np.full(table.num_rows, weight, np.int64))
    return table.set_column(i, table.schema.field(i), weights)


def _format_row(row: dict[str, object]) -> str:
    weight = row.pop(WEIGHT)
    values = ", ".join(f"{name}: {_format_value(value)}" for name, value in row.items())
    return f"{{{values}}} with weight {weight}"


def _format_value(value: object) -> str:
    text = repr(value) if value is not None else "NULL"
    return text if len(text) <= MAX_VALUE_CHARS else text[: MAX_VALUE_CHARS - 3] + "..."
