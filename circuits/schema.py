"""Schema: the integer columns of a relation, and the two ways between Arrow and Z-sets.

A table enters through ``to_zset`` and leaves through ``to_table``; nothing in between knows Arrow.
Columns are matched by name, so their order does not matter; a missing, surplus, NULL or
non-integer column is refused here, before any state can change. All work is on whole columns.

The column ``weight`` (any integer type, optional on input, always there on output) is the weight of
the row; without it every row has weight 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from circuits.errors import SchemaError
from dbsp_wcoj import ZSet

__all__ = ["WEIGHT", "Schema"]

WEIGHT: Final = "weight"


@dataclass(frozen=True)
class Schema:
    """The name of a relation and the names of its int64 columns.

    >>> edges = Schema("e", ("src", "dst"))
    >>> table = pa.table({"dst": [2, 2, 3], "src": [1, 1, 1], "weight": [1, 1, -1]})
    >>> edges.to_zset(table).to_dict()
    {(1, 2): 2, (1, 3): -1}
    >>> edges.to_table(edges.to_zset(table)).to_pylist()[0]
    {'src': 1, 'dst': 2, 'weight': 2}
    >>> edges.to_zset(pa.table({"src": [1]}))
    Traceback (most recent call last):
    circuits.errors.SchemaError: relation 'e': no column 'dst' among ['src']; it needs \
src, dst and may have weight
    """

    relation: str
    columns: tuple[str, ...]

    def __post_init__(self) -> None:
        if WEIGHT in self.columns:
            raise SchemaError(
                f"relation {self.relation!r}: the column name {WEIGHT!r} is kept for the weight "
                f"of a row, columns are {list(self.columns)}: choose another name"
            )
        if len(set(self.columns)) != len(self.columns):
            raise SchemaError(
                f"relation {self.relation!r}: a column name occurs twice in "
                f"{list(self.columns)}: choose different names"
            )

    @classmethod
    def of(cls, relation: str, schema: pa.Schema) -> Schema:
        """Read an Arrow schema; every column must be of an integer type.

        Raises:
            SchemaError: A column is not of an integer type, or is named ``weight``.
        """
        for field in schema:
            if not pa.types.is_integer(field.type):
                raise SchemaError(
                    f"relation {relation!r}: column {field.name!r} is of type {field.type}, "
                    "only integers join here: give it integer codes"
                )
        return cls(relation, tuple(schema.names))

    @property
    def arity(self) -> int:
        return len(self.columns)

    def to_zset(self, table: pa.Table) -> ZSet:
        """Encode a table of rows, with or without weights.

        Raises:
            SchemaError: Columns are missing, surplus, not integers, or hold NULL.
        """
        names = table.column_names
        surplus = [name for name in names if name not in (*self.columns, WEIGHT)]
        if surplus or len(set(names)) != len(names):
            raise SchemaError(
                f"relation {self.relation!r}: surplus or repeated columns in {names}; {self._needs}"
            )
        arrays = [self._integers(table, name) for name in self.columns]
        weights = self._integers(table, WEIGHT) if WEIGHT in names else None
        if self.columns:
            return ZSet.from_columns(arrays, weights)
        total = table.num_rows if weights is None else sum(map(int, weights))
        return ZSet.from_rows([()], [total], arity=0)

    def to_table(self, zset: ZSet) -> pa.Table:
        """Decode a Z-set of this arity: one column per name, then ``weight``."""
        arrays = [pa.array(column) for column in (*zset.columns, zset.weights)]
        return pa.table(arrays, schema=self.arrow)

    @property
    def arrow(self) -> pa.Schema:
        """The Arrow schema of ``to_table``."""
        return pa.schema([(name, pa.int64()) for name in (*self.columns, WEIGHT)])

    @property
    def _needs(self) -> str:
        return f"it needs {', '.join(self.columns) or 'no column'} and may have {WEIGHT}"

    def _integers(self, table: pa.Table, name: str) -> npt.NDArray[np.int64]:
        if name not in table.column_names:
            raise SchemaError(
                f"relation {self.relation!r}: no column {name!r} among {table.column_names}; "
                f"{self._needs}"
            )
        column = table.column(name)
        if not pa.types.is_integer(column.type):
            raise SchemaError(
                f"relation {self.relation!r}: column {name!r} is of type {column.type}, "
                "only integers join here: give it integer codes"
            )
        if column.null_count:
            raise SchemaError(
                f"relation {self.relation!r}: column {name!r} holds {column.null_count} NULL of "
                f"{len(column)} values; NULL has no place in a join: filter these rows out"
            )
        try:
            integers: npt.NDArray[np.int64] = column.cast(pa.int64()).to_numpy()
        except pa.ArrowInvalid as error:
            raise SchemaError(
                f"relation {self.relation!r}: column {name!r} does not fit int64: {error}"
            ) from error
        return integers
