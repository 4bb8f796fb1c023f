"""Tables: convert the rows that a user passes for an input to an Arrow table.

Every kind of rows is read here; `circuits.inputs.python_rows` converts the dicts among them.

=====================================  ===========================================================
rows                                   resulting table
=====================================  ===========================================================
`pa.Table`, `pa.RecordBatch`           itself
a list of RecordBatches                their rows, one after another
a list of dicts                        a column per key (`circuits.inputs.python_rows`)
an object with ``__arrow_c_stream__``  its rows, read to the end: frames of pandas 2.2 and polars,
                                       DuckDB relations, a `pa.RecordBatchReader`
an object with ``__arrow_c_array__``   its structs, one row per struct
=====================================  ===========================================================

`tables_of` converts the argument of `Circuit.step`, and `table_of` the rows of one input.
`circuits.schema` checks columns and types later.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias

import pyarrow as pa

from circuits.errors import SchemaError, UnknownInputError
from circuits.inputs.python_rows import table_of_dicts
from circuits.types.arrow_types import empty_table

__all__ = [
    "UNNAMED_INDEX",
    "ArrowArray",
    "ArrowStream",
    "Rows",
    "check_input",
    "table_of",
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
    schemas: Mapping[str, pa.Schema],
    unread: Callable[[str], Collection[str]] = lambda name: (),
) -> dict[str, pa.Table]:
    """Convert the rows of a step to one Arrow table per input.

    Args:
        inputs: The rows of each input, by the name of the input.
        schemas: The schema of every input, by name.
        unread: Returns the columns of an input whose values nobody reads; see `table_of`.

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
        check_input(name, schemas)
    return {
        name: table_of(name, rows, schemas[name], unread(name)) for name, rows in inputs.items()
    }


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


def table_of(
    relation: str, rows: Rows, schema: pa.Schema, unread: Collection[str] = ()
) -> pa.Table:
    """Convert the rows of one input to an Arrow table.

    Tables and RecordBatches are not copied. The index of a pandas frame is dropped, unless it has a
    name. Arrow validates offsets, indices and UTF-8, because the kernels trust them. This costs
    O(bytes of the strings that are read).

    Args:
        relation: The name of the input, for error messages.
        rows: A table, a frame, RecordBatches or a list of dicts. A reader is read to its end.
        schema: The declared columns, for rows that are dicts.
        unread: Columns whose values nobody reads. The strings of those that have the declared type
            are not validated; other columns are, because a cast reads them.

    Raises:
        SchemaError: ``rows`` has none of the supported types or cannot be read as Arrow data, or
            the validation by Arrow fails.

    >>> schema = pa.schema([("nr", pa.int64()), ("item", pa.string())])
    >>> table_of("r", [{"nr": 1, "item": "x"}, {"nr": 2}], schema).to_pylist()
    [{'nr': 1, 'item': 'x'}, {'nr': 2, 'item': None}]
    >>> table_of("r", {"nr": 1}, schema)
    Traceback (most recent call last):
    circuits.errors.SchemaError: relation 'r': rows must be a table, a frame, RecordBatches or a \
list of dicts, not dict: make a list of the row, or a table with pa.table(...)
    """
    table = _read(relation, rows, schema)
    declared = schema.names
    index_columns = [
        name
        for name in table.column_names
        if name not in declared and UNNAMED_INDEX.fullmatch(name)
    ]
    if index_columns:
        table = table.drop_columns(index_columns)
    columns = table.schema
    trusted = [
        name
        for name in unread
        if pa.types.is_string(declared_type := schema.field(name).type)
        and (position := columns.get_field_index(name)) >= 0
        and columns.field(position).type == declared_type
    ]
    read = table.drop_columns(trusted) if trusted else table
    try:
        table.validate()  # the sizes of the buffers
        read.validate(full=True)
    except pa.ArrowInvalid as error:
        raise SchemaError(
            f"relation {relation!r}: the table is damaged: {error}; write it again, or "
            "read texts that are not UTF-8 as binary"
        ) from error
    return table


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
        return pa.table(rows)
    except MemoryError:
        raise
    except Exception as error:  # code of other packages may raise any exception
        raise SchemaError(
            f"relation {relation!r}: the rows of a {type(rows).__name__} cannot be read as Arrow "
            f"data: {error}; give a frame with columns of one type each"
        ) from error


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
