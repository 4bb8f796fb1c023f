"""Tables: what a user gives for the rows of an input becomes an Arrow table here, and nowhere else.

`tables_of` takes the argument of `Circuit.step`, `table_of` the rows of one input. Another kind of
rows (a frame, a list of dicts) is one more case of `table_of`; whatever is none of them is an error
that says what was given. Columns and types are checked later, by `circuits.schema`.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from circuits.errors import SchemaError, UnknownInputError

__all__ = ["table_of", "tables_of"]


def tables_of(given: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """The tables of a step by input.

    Raises:
        SchemaError: It is no mapping, or the rows of an input are no table.
        UnknownInputError: A name is no string.

    >>> tables_of(None)
    Traceback (most recent call last):
    circuits.errors.SchemaError: a step takes a mapping from inputs to tables, not NoneType: give \
{"name of the input": table}, or {} for no rows
    """
    if not isinstance(given, Mapping):
        raise SchemaError(
            f"a step takes a mapping from inputs to tables, not {type(given).__name__}: give "
            '{"name of the input": table}, or {} for no rows'
        )
    found = {}
    for name, rows in given.items():
        if not isinstance(name, str):
            raise UnknownInputError(
                f"{name!r} is not the name of an input: names are strings, not "
                f"{type(name).__name__}"
            )
        found[name] = table_of(name, rows)
    return found


def table_of(relation: str, rows: object) -> pa.Table:
    """The rows of one input as an Arrow table; nothing is copied.

    Arrow checks offsets, indices and UTF-8, since the kernels trust them: O(bytes of texts), far
    less than encoding takes.

    Args:
        relation: The input, for errors.
        rows: A `pa.Table` or a `pa.RecordBatch`.

    Raises:
        SchemaError: It is no kind of rows, or Arrow finds that it is damaged.
    """
    if isinstance(rows, pa.RecordBatch):
        rows = pa.Table.from_batches([rows])
    if not isinstance(rows, pa.Table):
        raise SchemaError(
            f"relation {relation!r}: rows come as a pa.Table, not {type(rows).__name__}: make one "
            "with pa.table(...)"
        )
    try:
        rows.validate(full=True)
    except pa.ArrowInvalid as error:
        raise SchemaError(
            f"relation {relation!r}: the table is damaged: {error}; write what made it again, or "
            "read texts that are not UTF-8 as binary"
        ) from error
    return rows
