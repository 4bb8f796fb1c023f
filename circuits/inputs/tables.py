"""Tables: convert the rows that a user passes for an input to an Arrow table.

Every kind of rows is read here; `circuits.inputs.python_rows` converts the dicts among them.

=====================================  ===========================================================
rows                                   resulting table
=====================================  ===========================================================
`pa.Table`, `pa.RecordBatch`           its rows
a list of RecordBatches                their rows, one after another
a list of dicts                        a column per key (`circuits.inputs.python_rows`)
an object with ``__arrow_c_stream__``  its rows, read to the end: frames of pandas 2.2 and polars,
                                       DuckDB relations, a `pa.RecordBatchReader`
an object with ``__arrow_c_array__``   its structs, one row per struct
=====================================  ===========================================================

`tables_of` converts the argument of `Circuit.step`, and `TableReader` the rows of one input.
`circuits.schema` checks columns and types later.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import pyarrow as pa

from circuits.errors import SchemaError, UnknownInputError
from circuits.inputs.python_rows import table_of_dicts
from circuits.types.arrow_types import empty_table

__all__ = [
    "UNNAMED_INDEX",
    "ArrowArray",
    "ArrowStream",
    "Rows",
    "TableReader",
    "check_input",
    "tables_of",
]

#: The name that pandas gives to the column of an index without a name.
UNNAMED_INDEX: Final = re.compile(r"__index_level_\d+__")


class ArrowStream(Protocol):
    """A frame, or another object that exports its rows as an Arrow stream."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return the stream, as the Arrow PyCapsule interface defines it."""


class ArrowArray(Protocol):
    """An object that exports its rows as one Arrow array of structs."""

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        """Return the array, as the Arrow PyCapsule interface defines it."""


#: The rows of one input.
Rows: TypeAlias = (
    ArrowStream | ArrowArray | Sequence[Mapping[str, Any]] | Sequence[pa.RecordBatch] | pa.Table
)


def tables_of(
    inputs: Mapping[str, Rows],
    readers: Mapping[str, TableReader],
    unread: Callable[[str], Collection[str]] = lambda name: (),
) -> dict[str, pa.Table]:
    """Convert the rows of a step to one Arrow table per input.

    Args:
        inputs: The rows of each input, by the name of the input.
        readers: The reader of every input, by name.
        unread: Returns the columns of an input whose values nobody reads; see `TableReader.read`.

    Raises:
        SchemaError: ``inputs`` is not a mapping, or the rows of an input cannot become a table.
        UnknownInputError: A name is not the name of an input.

    >>> tables_of(None, {})
    Traceback (most recent call last):
    circuits.errors.SchemaError: a step takes a mapping from inputs to tables, not NoneType: give \
{"name of the input": table}, or {} for no rows
    """
    if not isinstance(inputs, Mapping):
        raise SchemaError(
            f"a step takes a mapping from inputs to tables, not {type(inputs).__name__}: give "
            '{"name of the input": table}, or {} for no rows'
        )
    for name in inputs:
        check_input(name, readers)
    return {name: readers[name].read(rows, unread(name)) for name, rows in inputs.items()}


def check_input(name: object, inputs: Collection[str]) -> None:
    """Raise an error unless ``name`` is the name of an input.

    Raises:
        UnknownInputError: ``name`` is not a string, or not one of ``inputs``.
    """
    if not isinstance(name, str):
        raise UnknownInputError(
            f"{name!r} is not the name of an input: names are strings, not {type(name).__name__}"
        )
    if name not in inputs:
        raise UnknownInputError(
            f"{name!r} is not an input; inputs are {', '.join(inputs)}: "
            "rename the relation or add its schema"
        )


class _Checks(NamedTuple):
    """The columns to keep and to validate in tables with one Arrow schema.

    Attributes:
        schema: The schema.
        unread: The columns whose values nobody reads.
        kept: The positions of the columns other than unnamed indexes; None for all columns.
        validated: The positions, among the kept columns, of those whose values are validated.
    """

    schema: pa.Schema
    unread: frozenset[str]
    kept: list[int] | None
    validated: list[int]


class TableReader:
    """Converts the rows of one input to Arrow tables.

    Args:
        relation: The name of the input, for error messages.
        schema: The declared columns.

    >>> reader = TableReader("r", pa.schema([("nr", pa.int64()), ("item", pa.string())]))
    >>> reader.read([{"nr": 1, "item": "x"}, {"nr": 2}]).to_pylist()
    [{'nr': 1, 'item': 'x'}, {'nr': 2, 'item': None}]
    >>> reader.read({"nr": 1})
    Traceback (most recent call last):
    circuits.errors.SchemaError: relation 'r': rows must be a table, a frame, RecordBatches or a \
list of dicts, not dict: make a list of the row, or a table with pa.table(...)
    """

    def __init__(self, relation: str, schema: pa.Schema) -> None:
        self.relation = relation
        self.schema = schema
        # Those of the last table: most tables of an input have the same schema.
        self._last_checks: _Checks | None = None

    def read(self, rows: Rows, unread: Collection[str] = ()) -> pa.Table:
        """Convert the rows of the input to a table.

        Tables and RecordBatches are not copied. The column of an unnamed index of pandas,
        ``__index_level_0__``, is dropped. Arrow validates offsets, indices and UTF-8, because the
        kernels trust them. This costs O(bytes of the strings that are read).

        Args:
            rows: A table, a frame, RecordBatches or a list of dicts. A reader is read to its end.
            unread: Columns whose values nobody reads. The strings of those that have the declared
                type are not validated; other columns are, because a cast reads them.

        Raises:
            SchemaError: ``rows`` has none of the supported types or cannot be read as Arrow data,
                or the validation by Arrow fails.
        """
        table = _read(self.relation, rows, self.schema)
        checks, unread = self._last_checks, frozenset(unread)
        if checks is None or checks.unread != unread or not checks.schema.equals(table.schema):
            checks = self._last_checks = self._checks_of(table.schema, unread)
        if checks.kept is not None:
            table = table.select(checks.kept)
        try:
            table.validate()  # the sizes of the buffers
            if checks.validated:
                table.select(checks.validated).validate(full=True)
        except pa.ArrowInvalid as error:
            raise SchemaError(
                f"relation {self.relation!r}: the table is damaged: {error}; write it again, or "
                "read texts that are not UTF-8 as binary"
            ) from error
        return table

    def _checks_of(self, schema: pa.Schema, unread: frozenset[str]) -> _Checks:
        """Return the checks of the tables of a schema."""
        declared = {field.name: field.type for field in self.schema}
        kept = [
            position
            for position, name in enumerate(schema.names)
            if name in declared or not UNNAMED_INDEX.fullmatch(name)
        ]
        fields = [schema.field(position) for position in kept]
        validated = [
            position
            for position, field in enumerate(fields)
            if not _accepts_all_bits(field.type)
            and (
                field.name not in unread
                or not pa.types.is_string(field.type)
                or declared.get(field.name) != field.type
            )
        ]
        return _Checks(schema, unread, None if len(kept) == len(schema) else kept, validated)


def _accepts_all_bits(type: pa.DataType) -> bool:
    """Return whether every bit pattern is a value of a type: Arrow has nothing to validate."""
    types = pa.types
    return bool(
        types.is_integer(type)
        or types.is_floating(type)
        or types.is_boolean(type)
        or types.is_timestamp(type)
        or types.is_duration(type)
    )


def _read(relation: str, rows: Rows, schema: pa.Schema) -> pa.Table:
    if isinstance(rows, pa.Table):
        return rows
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    if isinstance(rows, list | tuple):
        return _table_of_list(relation, rows, schema)
    if not (hasattr(rows, "__arrow_c_stream__") or hasattr(rows, "__arrow_c_array__")):
        fix = "make a list of the row, or a table" if isinstance(rows, Mapping) else "make one"
        raise SchemaError(
            f"relation {relation!r}: rows must be a table, a frame, RecordBatches or a list of "
            f"dicts, not {type(rows).__name__}: {fix} with pa.table(...)"
        )
    try:
        return _table_of_structs(rows) if isinstance(rows, pa.StructArray) else pa.table(rows)
    except MemoryError:
        raise
    except Exception as error:  # code of other packages may raise any exception
        raise SchemaError(
            f"relation {relation!r}: the rows of a {type(rows).__name__} cannot be read as Arrow "
            f"data: {error}; give a table with pa.table(...)"
        ) from error


def _table_of_structs(rows: pa.StructArray) -> pa.Table:
    """Return a row for each struct; the array may be a slice."""
    if rows.null_count:
        raise ValueError(f"{rows.null_count} of {len(rows)} structs are NULL, and a row is not")
    return pa.Table.from_struct_array(rows)


def _table_of_list(relation: str, rows: Sequence[Any], schema: pa.Schema) -> pa.Table:
    classes = set(map(type, rows))
    if all(issubclass(cls, Mapping) for cls in classes):
        if not rows:
            return empty_table(schema)
        return table_of_dicts(relation, rows, schema)
    if not all(issubclass(cls, pa.RecordBatch) for cls in classes):
        allowed = (Mapping, pa.RecordBatch)
        # If the list has no other class, it mixes dicts and RecordBatches.
        other = next((cls for cls in classes if not issubclass(cls, allowed)), pa.RecordBatch)
        raise SchemaError(
            f"relation {relation!r}: a list of rows holds only dicts, or only RecordBatches, and "
            f"one is of type {other.__name__}: give one dict per row, or a table with pa.table(...)"
        )
    try:
        return pa.Table.from_batches(rows)
    except pa.ArrowInvalid as error:
        raise SchemaError(
            f"relation {relation!r}: the RecordBatches of a list have different columns: {error}; "
            "give them the same schema"
        ) from error
