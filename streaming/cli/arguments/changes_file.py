"""Read a file of changes, and cut it into the steps of a circuit.

The file has the columns of one relation, or the columns of several relations and a column
``relation``. A column tells insertions from deletions: ``weight``, an integer, or ``op``, with 1
and -1 or the words of change feeds. In a file of several relations, the columns of a relation are
those in which at least one of its rows is not NULL::

    relation  src  dst  nr    op
    e           1    2  NULL  insert      relation e has the columns src and dst,
    v        NULL NULL     7  delete      relation v the column nr
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from circuits.schema import WEIGHT
from streaming.errors import EventsError

__all__ = ["OP", "RELATION", "ChangesFile", "relation_of_file"]

OP: Final = "op"
RELATION: Final = "relation"
INSERT_WORDS: Final = ("1", "+1", "+", "i", "c", "r", "+i", "+u", "insert", "update_postimage")
DELETE_WORDS: Final = ("-1", "-", "d", "-d", "-u", "delete", "update_preimage")


@dataclass(frozen=True)
class ChangesFile:
    """The changes, in order.

    Attributes:
        table: All rows, with ``weight``.
        relations: The columns of each relation.
        ends: Ascending row numbers; a step may end before these rows.
        relation_names: The relation of each row; None if there is only one relation.
    """

    table: pa.Table
    relations: dict[str, pa.Schema]
    ends: np.ndarray[tuple[int], np.dtype[np.int64]]
    relation_names: pa.ChunkedArray | None

    @classmethod
    def of(
        cls,
        table: pa.Table,
        path: Path,
        *,
        relation: str | None = None,
        by: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> ChangesFile:
        """Return the changes in the rows of a file.

        Args:
            table: The rows.
            path: The file.
            relation: The name of the only relation; by default that of the file.
            by: A column; rows with equal values are one transaction, which is never split.
            columns: The columns of the relations, if the file also has other columns.

        Raises:
            EventsError: A required column is missing, or a value is not valid.
        """
        table = _add_weights(table, path)
        if not table.num_rows:
            raise EventsError(f"{path} has no rows: name a file with changes")
        ends = _possible_ends(table, by, path)
        relation_names = table.column(RELATION) if RELATION in table.column_names else None
        if columns is not None:
            table = _select(table, columns, path)
        if relation is None and relation_names is not None:
            if relation_names.null_count:
                raise EventsError(
                    f"{path}: {relation_names.null_count} rows have NULL as relation: write its "
                    "name"
                )
            if RELATION in table.column_names:
                table = table.drop_columns([RELATION])
            return cls(table, _split_schemas(table, relation_names), ends, relation_names)
        name = relation or relation_of_file(str(path))
        return cls(table, {name: _without_weight(table.schema)}, ends, None)

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def steps(self, rows: int) -> Iterator[dict[str, pa.Table]]:
        """Yield the steps: tables by relation, with about ``rows`` rows together."""
        begin = 0
        while begin < len(self):
            wanted_end = min(begin + rows, len(self))
            end = int(self.ends[np.searchsorted(self.ends, wanted_end)])
            yield self._step(begin, end)
            begin = end

    def _step(self, begin: int, end: int) -> dict[str, pa.Table]:
        part = self.table.slice(begin, end - begin)
        if self.relation_names is None:
            (name,) = self.relations
            return {name: part}
        relation_names = self.relation_names.slice(begin, end - begin)
        return {
            name: part.filter(pc.equal(relation_names, name)).select([*schema.names, WEIGHT])
            for name, schema in self.relations.items()
        }


def relation_of_file(text: str) -> str:
    """Return the relation named after a file; ``text`` may contain options after the path.

    >>> relation_of_file("in/pay-2.day.csv,schema=a int")
    'pay_2'
    """
    name = Path(text.partition(",")[0]).name.partition(".")[0]
    name = re.sub(r"\W", "_", name)
    return name if name.isidentifier() else f"t_{name}" if name else "t"


def _add_weights(table: pa.Table, path: Path) -> pa.Table:
    if WEIGHT in table.column_names:
        if OP in table.column_names:
            raise EventsError(f"{path} has columns weight and op: leave one of them out")
        return table
    weights = np.ones(table.num_rows, np.int64)
    if OP in table.column_names:
        words = pc.utf8_lower(table.column(OP).cast(pa.string()))
        is_deletion = pc.is_in(words, pa.array(DELETE_WORDS)).to_numpy(zero_copy_only=False)
        is_insertion = pc.is_in(words, pa.array(INSERT_WORDS)).to_numpy(zero_copy_only=False)
        is_known = is_deletion | is_insertion
        if not is_known.all():
            row = int(np.argmin(is_known))
            raise EventsError(
                f"{path}, row {row}: op {table.column(OP)[row].as_py()!r} must be one of "
                f"{', '.join((*INSERT_WORDS, *DELETE_WORDS))}"
            )
        weights[is_deletion] = -1
        table = table.drop_columns([OP])
    return table.append_column(WEIGHT, pa.array(weights))


def _select(table: pa.Table, columns: Sequence[str], path: Path) -> pa.Table:
    for name in columns:
        if name not in table.column_names:
            raise EventsError(
                f"{path}: unknown column {name!r}; columns: {', '.join(table.column_names)}"
            )
    return table.select([*columns, WEIGHT])


def _possible_ends(
    table: pa.Table, by: str | None, path: Path
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    if by is None:
        return np.arange(1, table.num_rows + 1)
    if by not in table.column_names:
        raise EventsError(
            f"{path}: unknown column {by!r} of --by; columns: {', '.join(table.column_names)}"
        )
    column = table.column(by).combine_chunks()
    before, after = column.slice(0, len(column) - 1), column.slice(1)
    changes = pc.fill_null(pc.not_equal(before, after), True).to_numpy(zero_copy_only=False)
    return np.append(np.flatnonzero(changes) + 1, table.num_rows)


def _split_schemas(table: pa.Table, relation_names: pa.ChunkedArray) -> dict[str, pa.Schema]:
    schemas = {}
    for name in relation_names.unique().to_pylist():
        rows = table.filter(pc.equal(relation_names, name))
        schemas[name] = pa.schema(
            [
                field
                for field in rows.schema
                if field.name != WEIGHT and rows.column(field.name).null_count < rows.num_rows
            ]
        )
    return schemas


def _without_weight(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field for field in schema if field.name != WEIGHT]).remove_metadata()
