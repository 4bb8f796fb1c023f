"""Schema: the typed columns of a relation, and the conversion between Arrow tables and Z-sets.

``to_zset`` encodes a table and ``to_table`` decodes a Z-set. All work between them uses codes
(`circuits.types.codecs.codec`). Columns are matched by name, so their order does not matter. A
column of another type is cast if the cast cannot change a value (`circuits.types.safe_cast`). For
example, a declared int64 column accepts int32 values, and a declared int32 column accepts int64
values that fit. All other differences raise an error: a missing, surplus or repeated column, or
NULL in a column that is declared not null. Checks that do not need the codes run before the first
value is added to a dictionary. All work is on whole columns.

A schema is declared as an Arrow schema, a dict of types, DDL text, or a frame with such columns
(`arrow_schema`).

The column ``weight`` is the weight of the row. It has any integer type, is optional on input and
always present on output. Without it every row has weight 1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from circuits.errors import SchemaError
from circuits.inputs.tables import UNNAMED_INDEX, ArrowArray, ArrowStream, Rows, TableReader
from circuits.phases import DECODE
from circuits.plan.columns import JSON_KIND, Field
from circuits.types.arrow_types import empty_table
from circuits.types.codecs.codec import NULL, Codec, Codecs
from circuits.types.ddl import field_of, schema_of_ddl
from circuits.types.safe_cast import cast_lossless
from dbsp_wcoj import ZSet
from dbsp_wcoj.arguments import check_type
from dbsp_wcoj.cached_property import cached_property
from dbsp_wcoj.errors import ArgumentTypeError
from dbsp_wcoj.observer import observed
from dbsp_wcoj.workers import MIN_PARALLEL_ROWS, run_tasks
from dbsp_wcoj.zset import consolidated_rows

__all__ = ["WEIGHT", "Schema", "SchemaLike", "arrow_schema", "arrow_schemas", "schemas_of"]

WEIGHT: Final = "weight"
# The columns of a type are encoded and decoded together up to this many rows.
_MAX_JOINED_ROWS: Final = 2048
_NO_CODES: Final = np.empty(0, np.int64)


class ArrowSchema(Protocol):
    """An object that exports its columns as an Arrow schema."""

    def __arrow_c_schema__(self) -> Any:
        """The schema of the Arrow PyCapsule interface."""


#: A declaration of the columns of a relation.
SchemaLike: TypeAlias = (
    Mapping[str, pa.DataType | str] | str | ArrowSchema | ArrowStream | ArrowArray | pa.Schema
)


class _Layout(NamedTuple):
    """Where a table has the columns of a relation.

    Attributes:
        positions: The position of each column.
        has_type: For each column, whether its values need no cast, except for a check of NULLs.
        weight: The position of the weights; -1 if there are none.
    """

    positions: list[int]
    has_type: list[bool]
    weight: int


class _TypedColumns(NamedTuple):
    """The columns of a type.

    Attributes:
        columns: The columns.
        is_ordered: True if the codes have the order of the values, so there is no dictionary.
        can_be_joined: True if Arrow can concatenate several of the columns. To encode or decode few
            rows of all of them takes hardly longer than to encode or decode one.
    """

    columns: list[int]
    is_ordered: bool
    can_be_joined: bool


@dataclass(frozen=True)
class Schema:
    """The name of a relation and its fields.

    Raises:
        SchemaError: A column is named ``weight``, a name occurs twice, or a type is not supported.

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
    circuits.errors.SchemaError: relation 'p': the table has no column 'age'; its \
columns: name; the relation needs name, age and may have weight
    """

    relation: str
    fields: tuple[Field, ...]

    def __post_init__(self) -> None:
        if WEIGHT in self.columns:
            raise SchemaError(
                f"relation {self.relation!r}: the column name {WEIGHT!r} is reserved for the "
                f"weight of a row, columns are {list(self.columns)}: choose another name"
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
                raise self._column_error(field.name, error) from error

    @classmethod
    def of(cls, relation: str, schema: SchemaLike) -> Schema:
        """Read a declared schema. `to_zset` rejects NULLs in a field that is not nullable.

        Args:
            relation: The name of the relation.
            schema: As for `arrow_schema`.

        Raises:
            ArgumentTypeError: ``schema`` declares no columns.
            SchemaError: As for the class, or a type does not exist.

        >>> Schema.of("r", "nr BIGINT NOT NULL, item STRING").fields[0]
        Field(name='nr', type=DataType(int64), nullable=False)
        """
        declared = arrow_schema(relation, schema)
        return cls(
            relation,
            tuple(
                Field(f.name, f.type, f.nullable, (f.metadata or {}).get(JSON_KIND, b"").decode())
                for f in declared
            ),
        )

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(field.name for field in self.fields)

    @property
    def arity(self) -> int:
        return len(self.fields)

    @cached_property
    def arrow_columns(self) -> pa.Schema:
        """The Arrow schema of the columns, without ``weight``."""
        return pa.schema([pa.field(f.name, f.type, f.nullable) for f in self.fields])

    @cached_property
    def table_reader(self) -> TableReader:
        """Converts rows to Arrow tables and validates them."""
        return TableReader(self.relation, self.arrow_columns)

    @cached_property
    def arrow(self) -> pa.Schema:
        """The Arrow schema of ``to_table``, with ``weight``."""
        return self.arrow_columns.append(pa.field(WEIGHT, pa.int64()))

    def to_zset(self, table: Rows, codecs: Codecs) -> ZSet:
        """Encode rows, with or without weights.

        Args:
            table: Rows of any kind that `circuits.inputs.tables` supports.
            codecs: The codecs, which assign the codes.

        Raises:
            SchemaError: Columns are missing or surplus, have a type that cannot be cast without
                loss, or contain values that are not allowed.
            WeightError, WeightOverflowError: A weight, or a sum of them, leaves int64.

        Complexity:
            O(bytes), plus the time to sort the codes.
        """
        return self.encode_table(self.table_reader.read(table), codecs)

    def encode_table(
        self, table: pa.Table, codecs: Codecs, *, read_columns: Collection[int] | None = None
    ) -> ZSet:
        """Encode a table that `table_reader` has validated.

        Args:
            table: The rows.
            codecs: The codecs, which assign the codes.
            read_columns: The columns that views read; by default all. The values of other columns
                are checked, but encoded as NULL, which saves the time to encode strings.

        Raises:
            SchemaError, WeightError, WeightOverflowError: As `to_zset`.
        """
        codes, weights = self.to_codes(table, codecs, read_columns=read_columns)
        if not self.fields:
            if weights is None:
                return ZSet.scalar(table.num_rows)
            return consolidated_rows(np.empty((0, len(weights)), np.int64), weights)
        return ZSet.from_columns(codes, weights)

    def to_codes(
        self, table: pa.Table, codecs: Codecs, *, read_columns: Collection[int] | None = None
    ) -> tuple[list[npt.NDArray[np.int64]], npt.NDArray[np.int64] | None]:
        """Return the codes of every column, in the order of the rows, and the weights if any.

        The arguments are those of `encode_table`.

        Raises:
            SchemaError: As `to_zset`.
        """
        layout = self._layout_of(table)
        arrays = []
        for field, position, is_typed in zip(
            self.fields, layout.positions, layout.has_type, strict=True
        ):
            column = table.column(position)
            if not is_typed or (not field.nullable and column.null_count):
                column = self._cast_column(column, field)
            arrays.append(column)
        weights = None if layout.weight < 0 else self._weights_in(table.column(layout.weight))
        return self._encode(arrays, codecs, read_columns), weights

    def check_columns(self, table: pa.Table, also_allowed: Collection[str] = ()) -> None:
        """Raise an error for surplus and repeated columns.

        Args:
            table: The rows.
            also_allowed: Names that are allowed besides the columns of the relation and
                ``weight``.

        Raises:
            SchemaError: The table has such columns.
        """
        names = table.column_names
        if len(set(names)) == len(names) and self._allowed_names.issuperset(names):
            return
        surplus = [name for name in names if name not in (*self._allowed_names, *also_allowed)]
        repeated = [name for name, times in Counter(names).items() if times > 1]
        if surplus or repeated:
            wrong_names = ", ".join(map(repr, dict.fromkeys(surplus + repeated)))
            raise SchemaError(
                f"relation {self.relation!r}: the table has surplus or repeated columns "
                f"{wrong_names}; {self._requirements}"
            )

    @observed(DECODE, rows=lambda arguments, _: len(arguments[1]))
    def to_table(self, zset: ZSet, codecs: Codecs) -> pa.Table:
        """Decode a Z-set of this arity: one column per name, then ``weight``.

        Raises:
            SchemaError: The codes are not codes of these types.
        """
        check_type("zset", zset, ZSet, "a ZSet")
        rows, codes = len(zset), zset.rows
        if not rows:
            return self.empty_table
        arrays: list[pa.Array] = [None] * len(self.fields)
        tasks: list[tuple[int, Callable[[], pa.Array]]] = []
        for columns, _, can_be_joined in self._columns_by_type:
            codec = codecs.codec(self.fields[columns[0]].type)
            if can_be_joined and len(columns) > 1 and rows <= _MAX_JOINED_ROWS:
                try:
                    joined = codec.decode(codes[columns].reshape(-1))
                except SchemaError:  # the error below names its column
                    pass
                else:
                    for number, column in enumerate(columns):
                        arrays[column] = joined.slice(number * rows, rows)
                    continue
            decode = partial(self._decode_column, codec, codes)
            if rows >= MIN_PARALLEL_ROWS:
                tasks += [(column, partial(decode, column)) for column in columns]
                continue
            for column in columns:
                arrays[column] = decode(column)
        decoded = run_tasks([task for _, task in tasks])
        for (column, _), array in zip(tasks, decoded, strict=True):
            arrays[column] = array
        return pa.Table.from_arrays([*arrays, pa.array(zset.weights)], schema=self.arrow)

    @cached_property
    def empty_table(self) -> pa.Table:
        """The result of `to_table` for no rows."""
        return empty_table(self.arrow)

    @property
    def _requirements(self) -> str:
        needed = ", ".join(self.columns) or "no column"
        return f"the relation needs {needed} and may have {WEIGHT}"

    @cached_property
    def _allowed_names(self) -> frozenset[str]:
        """The names of the columns that rows may have."""
        return frozenset((*self.columns, WEIGHT))

    def _layout_of(self, table: pa.Table) -> _Layout:
        """Return where a table has the columns; found once for tables of the same schema.

        Raises:
            SchemaError: Columns are missing, surplus or repeated.
        """
        schema, layouts = table.schema, self._last_layout
        if layouts:
            last_schema, last_layout = layouts[0]  # read once: other threads replace it
            if last_schema.equals(schema):
                return last_layout
        self.check_columns(table)
        names = table.column_names
        for name in self.columns:
            if name not in names:
                raise SchemaError(
                    f"relation {self.relation!r}: the table has no column {name!r}; its columns: "
                    f"{', '.join(names) or 'none'}; {self._requirements}"
                )
        layout = _Layout(
            [names.index(name) for name in self.columns],
            [
                schema.field(field.name).type == field.type
                and not pa.types.is_dictionary(field.type)
                for field in self.fields
            ],
            names.index(WEIGHT) if WEIGHT in names else -1,
        )
        layouts[:] = [(schema, layout)]
        return layout

    @cached_property
    def _last_layout(self) -> list[tuple[pa.Schema, _Layout]]:
        """The schema of the last table and its layout; empty before the first table."""
        return []

    def _cast_column(self, column: pa.ChunkedArray, field: Field) -> pa.ChunkedArray:
        """Return a column in its declared type."""
        name = field.name
        try:
            column = cast_lossless(column, field.type)
        except SchemaError as error:
            raise self._column_error(name, error) from error
        if not field.nullable and _null_count(column):
            raise SchemaError(
                f"relation {self.relation!r}: column {name!r} holds {_null_count(column)} NULL of "
                f"{len(column)} values and is declared not null: filter these rows out, or declare "
                "it nullable"
            )
        return column

    def _encode(
        self, arrays: list[pa.ChunkedArray], codecs: Codecs, read_columns: Collection[int] | None
    ) -> list[npt.NDArray[np.int64]]:
        """Return the codes of all columns.

        Columns without a dictionary are encoded first. They can fail, and then no value has been
        added to a dictionary.
        """
        codes = [_NO_CODES] * len(self.fields)
        # The columns whose values workers encode at the same time.
        ordered: list[tuple[int, Callable[[], npt.NDArray[np.int64]]]] = []
        joins_columns = bool(arrays) and 0 < len(arrays[0]) <= _MAX_JOINED_ROWS
        for columns, is_ordered, can_be_joined in self._columns_by_type:
            codec = codecs.codec(self.fields[columns[0]].type)
            # The encoding without a dictionary is also a check of the values.
            if read_columns is not None and not is_ordered:
                columns = [column for column in columns if column in read_columns]
            if joins_columns and can_be_joined and len(columns) > 1:
                chunks = [chunk for column in columns for chunk in arrays[column].chunks]
                try:
                    codes_of_columns = codec.encode(pa.concat_arrays(chunks))
                except (SchemaError, pa.ArrowInvalid):
                    pass  # the error below names its column; or more bytes than an array can have
                else:
                    codes_by_column = codes_of_columns.reshape(len(columns), -1)
                    for column, codes_of_column in zip(columns, codes_by_column, strict=True):
                        codes[column] = codes_of_column
                    continue
            encode = partial(self._encode_column, arrays, codec)
            if is_ordered and len(arrays[0]) >= MIN_PARALLEL_ROWS:
                ordered += [(column, partial(encode, column)) for column in columns]
                continue
            self._fill(codes, ordered)
            ordered = []
            for column in columns:
                codes[column] = encode(column)
        self._fill(codes, ordered)
        if read_columns is not None and len(read_columns) < len(codes):
            null_codes = np.broadcast_to(np.int64(NULL), len(arrays[0]))  # takes no memory
            for column in range(len(codes)):
                if column not in read_columns:
                    codes[column] = null_codes
        return codes

    def _encode_column(
        self, arrays: Sequence[pa.ChunkedArray], codec: Codec, column: int
    ) -> npt.NDArray[np.int64]:
        try:
            return codec.encode(arrays[column])
        except SchemaError as error:
            raise self._column_error(self.columns[column], error) from error

    def _fill(
        self,
        codes: list[npt.NDArray[np.int64]],
        columns: Sequence[tuple[int, Callable[[], npt.NDArray[np.int64]]]],
    ) -> None:
        """Compute the codes of columns that do not depend on each other."""
        results = run_tasks([encode for _, encode in columns])
        for (column, _), result in zip(columns, results, strict=True):
            codes[column] = result

    def _decode_column(self, codec: Codec, codes: npt.NDArray[np.int64], column: int) -> pa.Array:
        try:
            return codec.decode(codes[column])
        except SchemaError as error:
            raise self._column_error(self.columns[column], error) from error

    @cached_property
    def _columns_by_type(self) -> list[_TypedColumns]:
        """The columns of each type, those of types without a dictionary first."""
        columns: dict[pa.DataType, list[int]] = {}
        for column, field in enumerate(self.fields):
            columns.setdefault(field.type, []).append(column)
        codecs = Codecs()
        groups = [
            _TypedColumns(group, codecs.codec(data_type).ordered, _is_joinable(data_type))
            for data_type, group in columns.items()
        ]
        return sorted(groups, key=lambda group: not group.is_ordered)

    def weights(self, table: pa.Table) -> npt.NDArray[np.int64] | None:
        """Return the weights of a table's rows; None if it has no column of weights.

        Raises:
            SchemaError: The weights are not integers, contain NULL, or do not fit int64.
        """
        if WEIGHT not in table.column_names:
            return None
        return self._weights_in(table.column(WEIGHT))

    def _weights_in(self, column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
        """Return the weights in a column."""
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
            if column.type != pa.int64():
                column = column.cast(pa.int64())
            weights: npt.NDArray[np.int64] = column.to_numpy()
        except pa.ArrowInvalid as error:
            raise SchemaError(
                f"relation {self.relation!r}: column {WEIGHT!r} does not fit int64: {error}"
            ) from error
        return weights

    def _column_error(self, column: str, error: SchemaError) -> SchemaError:
        return SchemaError(f"relation {self.relation!r}: column {column!r}: {error}")


def _is_joinable(data_type: pa.DataType) -> bool:
    """Return whether the values of arrays of a type are in buffers that are concatenated."""
    types = pa.types
    return bool(
        types.is_primitive(data_type) or types.is_decimal(data_type) or types.is_string(data_type)
    )


def schemas_of(schemas: Mapping[str, SchemaLike]) -> dict[str, Schema]:
    """Return the schemas of the input relations, by name.

    Raises:
        ArgumentTypeError: ``schemas`` is not a mapping from names to schemas.
        SchemaError: As for the class.
    """
    return {name: Schema.of(name, schema) for name, schema in arrow_schemas(schemas).items()}


def arrow_schemas(schemas: Mapping[str, SchemaLike]) -> dict[str, pa.Schema]:
    """Return the Arrow schemas of the input relations, by name; each as `arrow_schema`."""
    check_type("schemas", schemas, Mapping, '{"name of the input": pa.schema(...)}')
    return {name: arrow_schema(name, schema) for name, schema in schemas.items()}


def arrow_schema(relation: str, schema: SchemaLike) -> pa.Schema:
    """Return the Arrow schema of a relation.

    Args:
        relation: The name of the relation.
        schema: One of

            - a `pa.Schema`: used unchanged;
            - a dict from the names of columns to types: a `pa.DataType`, or text as in DDL;
            - DDL text: ``"nr BIGINT NOT NULL, item STRING"`` (`circuits.types.ddl`);
            - a frame or table, or another object with ``__arrow_c_schema__`` or
              ``__arrow_c_stream__``: its columns except ``weight`` and an index without a name.
              A categorical column gets the type of its values. The rows are not read.

    Raises:
        ArgumentTypeError: ``schema`` is none of these.
        SchemaError: A type does not exist, or the object cannot export its columns.

    >>> arrow_schema("r", {"nr": pa.int64(), "price": "decimal(9, 2)"})
    nr: int64
    price: decimal128(9, 2)
    >>> arrow_schema("r", pa.table({"nr": [1, 2], "weight": [1, 1]}))
    nr: int64
    >>> arrow_schema("r", "nr bigint, item")
    Traceback (most recent call last):
    circuits.errors.SchemaError: relation 'r': schema 'nr bigint, item': invalid column 'item'; \
write NAME TYPE, NAME TYPE, as in 'src long, dst long'
    """
    check_type("relation", relation, str, "the name of a relation")
    if isinstance(schema, pa.Schema):
        return schema
    try:
        if isinstance(schema, str):
            return schema_of_ddl(schema)
        if isinstance(schema, Mapping):
            return pa.schema([_declared_field(name, type) for name, type in schema.items()])
        schema_of_rows = _schema_of_rows(schema)
    except MemoryError:
        raise
    except (SchemaError, ArgumentTypeError) as error:
        raise type(error)(f"relation {relation!r}: {error}") from error
    except Exception as error:  # the code of another package runs here, and may raise anything
        raise SchemaError(
            f"relation {relation!r}: the columns of a {type(schema).__name__} cannot be read as an "
            f"Arrow schema: {error}; give a pa.Schema"
        ) from error
    if schema_of_rows is None:
        check_type(
            f"the schema of {relation!r}",
            schema,
            pa.Schema,
            "a pa.Schema, a dict of types, DDL text such as 'nr bigint, item string', or a frame",
        )
    return schema_of_rows


def _declared_field(name: Any, type: Any) -> pa.Field:
    check_type("the name of a column", name, str, "a text")
    if isinstance(type, str):
        return field_of(name, type)
    check_type(f"the type of column {name!r}", type, pa.DataType, "a pa.DataType, or its name")
    return pa.field(name, type)


def _schema_of_rows(rows: Any) -> pa.Schema | None:
    """Return the columns of a frame; None for other objects. The rows of a reader are not read."""
    if isinstance(rows, pa.Table | pa.RecordBatch | pa.RecordBatchReader):
        exported = rows.schema
    elif hasattr(rows, "__arrow_c_schema__"):
        exported = pa.schema(rows)
    elif hasattr(rows, "__arrow_c_stream__"):
        exported = pa.RecordBatchReader.from_stream(rows).schema
    elif isinstance(rows, pa.StructArray):
        exported = pa.schema(list(rows.type))
    elif hasattr(rows, "__arrow_c_array__"):
        exported = pa.record_batch(rows).schema
    else:
        return None
    fields = []
    for field in exported:
        if field.name != WEIGHT and not UNNAMED_INDEX.fullmatch(field.name):
            is_categorical = pa.types.is_dictionary(field.type)
            type = field.type.value_type if is_categorical else field.type
            fields.append(pa.field(field.name, type, field.nullable))
    return pa.schema(fields)


def _null_count(column: pa.ChunkedArray) -> int:
    """Return the number of NULLs, including NULLs in the values of a dictionary array."""
    if pa.types.is_dictionary(column.type):
        return int(column.is_null().sum().as_py() or 0)
    return int(column.null_count)
