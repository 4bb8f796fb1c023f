"""Schema: the typed columns of a relation, and the two ways between Arrow and Z-sets.

A table enters through ``to_zset`` and leaves through ``to_table``; what lies between works on codes
(`circuits.codec`). Columns are matched by name, so their order does not matter. A column of another
type is cast if that cannot change a value (`circuits.lossless`): an int32 column is fine where
int64 is declared, and an int64 column where int32 is, as long as the values fit. All else is
refused: a missing, surplus or repeated column, NULL where the field says not null. Refusals that
do not need the codes come before the first value is added to a table. All work is on whole columns.

The column ``weight`` (any integer type, optional on input, always there on output) is the weight of
the row; without it every row has weight 1.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from circuits.codec import Codecs
from circuits.errors import SchemaError
from circuits.lossless import lossless
from circuits.relational import Field
from circuits.tables import table_of
from dbsp_wcoj import ZSet
from dbsp_wcoj.arguments import check_type
from dbsp_wcoj.zset import consolidated_rows

__all__ = ["WEIGHT", "Schema", "schemas_of"]

WEIGHT: Final = "weight"


@dataclass(frozen=True)
class Schema:
    """The name of a relation and its fields.

    Raises:
        SchemaError: A column is named ``weight`` or like another, or its type is not supported.

    >>> people = Schema.of("p", pa.schema([("name", pa.string()), ("age", pa.int32())]))
    >>> codecs = Codecs()
    >>> table = pa.table({"age": [30, None], "name": ["ann", "bob"], "weight": [2, 1]})
    >>> zset = people.to_zset(table, codecs)
    >>> zset.to_dict()
    {(0, 30): 2, (1, -9223372036854775808): 1}
    >>> people.to_table(zset, codecs).to_pylist()[1]
    {'name': 'bob', 'age': None, 'weight': 1}
    >>> people.to_zset(pa.table({"name": ["eve"]}), codecs)
    Traceback (most recent call last):
    circuits.errors.SchemaError: relation 'p': no column 'age' among ['name']; it needs \
name, age and may have weight
    """

    relation: str
    fields: tuple[Field, ...]

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
        codecs = Codecs()
        for field in self.fields:
            try:
                codecs.codec(field.type)
            except SchemaError as error:
                raise self._refused(field.name, error) from error

    @classmethod
    def of(cls, relation: str, schema: pa.Schema) -> Schema:
        """Read an Arrow schema; a field that is not nullable is refused where it holds NULL.

        Raises:
            SchemaError: As for the class.
        """
        check_type("relation", relation, str, "the name of a relation")
        check_type(f"the schema of {relation!r}", schema, pa.Schema, "a pa.Schema")
        return cls(relation, tuple(Field(f.name, f.type, f.nullable) for f in schema))

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(field.name for field in self.fields)

    @property
    def arity(self) -> int:
        return len(self.fields)

    @property
    def arrow(self) -> pa.Schema:
        """The Arrow schema of ``to_table``."""
        fields = [pa.field(f.name, f.type, f.nullable) for f in self.fields]
        return pa.schema([*fields, (WEIGHT, pa.int64())])

    def to_zset(self, table: pa.Table, codecs: Codecs) -> ZSet:
        """Encode a table of rows, with or without weights.

        Raises:
            SchemaError: Columns are missing, surplus, of a type that cannot be cast without loss,
                or hold what they must not.
            WeightError, WeightOverflowError: A weight, or a sum of them, leaves int64.

        Complexity:
            O(bytes), and sorting the codes.
        """
        table = table_of(self.relation, table)
        codes, weights = self.to_codes(table, codecs)
        if not self.fields:
            if weights is None:
                return ZSet.scalar(table.num_rows)
            return consolidated_rows(np.empty((0, len(weights)), np.int64), weights)
        return ZSet.from_columns(codes, weights)

    def to_codes(
        self, table: pa.Table, codecs: Codecs
    ) -> tuple[list[npt.NDArray[np.int64]], npt.NDArray[np.int64] | None]:
        """The codes of every column, row by row as given, and the weights if there are any.

        Raises:
            SchemaError: As `to_zset`.
        """
        table = table_of(self.relation, table)
        self.check_columns(table)
        arrays = [self._column(table, field) for field in self.fields]
        weights = self.weights(table)
        return self._encoded(arrays, codecs), weights

    def check_columns(self, table: pa.Table, besides: Collection[str] = ()) -> None:
        """Refuse columns that are surplus or repeated.

        Raises:
            SchemaError: There are such.
        """
        names = table.column_names
        surplus = [name for name in names if name not in (*self.columns, WEIGHT, *besides)]
        if surplus or len(set(names)) != len(names):
            raise SchemaError(
                f"relation {self.relation!r}: surplus or repeated columns in {names}; {self._needs}"
            )

    def to_table(self, zset: ZSet, codecs: Codecs) -> pa.Table:
        """Decode a Z-set of this arity: one column per name, then ``weight``.

        Raises:
            SchemaError: The codes are not those of these types.
        """
        check_type("zset", zset, ZSet, "a ZSet")
        if not len(zset):
            return self.arrow.empty_table()
        arrays = []
        for field, codes in zip(self.fields, zset.columns, strict=True):
            try:
                arrays.append(codecs.codec(field.type).decode(codes))
            except SchemaError as error:
                raise self._refused(field.name, error) from error
        return pa.Table.from_arrays([*arrays, pa.array(zset.weights)], schema=self.arrow)

    @property
    def _needs(self) -> str:
        return f"it needs {', '.join(self.columns) or 'no column'} and may have {WEIGHT}"

    def _column(self, table: pa.Table, field: Field) -> pa.ChunkedArray:
        """The column as the declared type."""
        name = field.name
        if name not in table.column_names:
            raise SchemaError(
                f"relation {self.relation!r}: no column {name!r} among {table.column_names}; "
                f"{self._needs}"
            )
        try:
            column = lossless(table.column(name), field.type)
        except SchemaError as error:
            raise self._refused(name, error) from error
        if not field.nullable and _null_count(column):
            raise SchemaError(
                f"relation {self.relation!r}: column {name!r} holds {_null_count(column)} NULL of "
                f"{len(column)} values and is declared not null: filter these rows out, or declare "
                "it nullable"
            )
        return column

    def _encoded(
        self, arrays: list[pa.ChunkedArray], codecs: Codecs
    ) -> list[npt.NDArray[np.int64]]:
        """The codes of all columns; those without a table first, because they can be refused."""
        pairs = [
            (codecs.codec(field.type), array)
            for field, array in zip(self.fields, arrays, strict=True)
        ]
        codes = [np.empty(0, np.int64)] * len(pairs)
        for place in sorted(range(len(pairs)), key=lambda place: not pairs[place][0].ordered):
            codec, array = pairs[place]
            try:
                codes[place] = codec.encode(array)
            except SchemaError as error:
                raise self._refused(self.columns[place], error) from error
        return codes

    def weights(self, table: pa.Table) -> npt.NDArray[np.int64] | None:
        """The weights of a table's rows, None if it has none.

        Raises:
            SchemaError: They are no integers, or NULL, or do not fit int64.
        """
        if WEIGHT not in table.column_names:
            return None
        column = table.column(WEIGHT)
        if not pa.types.is_integer(column.type):
            raise SchemaError(
                f"relation {self.relation!r}: column {WEIGHT!r} is of type {column.type}, "
                "weights are integers: cast it"
            )
        if column.null_count:
            raise SchemaError(
                f"relation {self.relation!r}: column {WEIGHT!r} holds {column.null_count} NULL of "
                f"{len(column)} values; every row has a weight: fill in 1, or filter these rows out"
            )
        try:
            weights: npt.NDArray[np.int64] = column.cast(pa.int64()).to_numpy()
        except pa.ArrowInvalid as error:
            raise SchemaError(
                f"relation {self.relation!r}: column {WEIGHT!r} does not fit int64: {error}"
            ) from error
        return weights

    def _refused(self, column: str, error: SchemaError) -> SchemaError:
        return SchemaError(f"relation {self.relation!r}: column {column!r}: {error}")


def schemas_of(schemas: Mapping[str, pa.Schema]) -> dict[str, Schema]:
    """The schemas of the input relations, by name.

    Raises:
        ArgumentTypeError: They are no mapping from names to Arrow schemas.
        SchemaError: As for the class.
    """
    check_type("schemas", schemas, Mapping, '{"name of the input": pa.schema(...)}')
    return {name: Schema.of(name, schema) for name, schema in schemas.items()}


def _null_count(column: pa.ChunkedArray) -> int:
    """The number of NULLs, also of those in a dictionary."""
    if pa.types.is_dictionary(column.type):
        return int(column.is_null().sum().as_py() or 0)
    return int(column.null_count)
