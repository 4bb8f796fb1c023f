"""Transaction: changes of several inputs that take effect as one step, or not at all.

::

    with db.transaction() as transaction:
        db.insert("orders", orders)         # waits for the end of the block
        db.delete("stock", sold)
    transaction.changes["waiting"]          # the changed rows of a view

At the end of the block, the changes become one step of the circuit. If the block raises an error,
nothing has changed. A transaction holds no lock while it is open: it has no reads of its own, so
two transactions cannot conflict. After the block it is empty, and may be used again.

The changes of one key are applied in the order of the calls. They are numbered for that, in the
column that orders the changes of a key (`circuits.inputs.upserts`), if the rows do not have it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from circuits import Circuit
from circuits.schema import WEIGHT
from circuits.types.safe_cast import cast_lossless
from streaming.errors import DatabaseError

__all__ = ["Transaction", "has_keys", "open_transaction"]

#: The column that numbers the changes of a transaction, for inputs with keys.
_SEQUENCE: Final = "sequence"

#: The open transactions of the current task or thread, the innermost one last.
_OPEN: ContextVar[tuple[Transaction, ...]] = ContextVar("transactions", default=())


class ChangeableDatabase(Protocol):
    """What a transaction needs of its database."""

    @property
    def circuit(self) -> Circuit:
        """The views."""
        ...

    def apply(self, changes: Mapping[str, pa.Table]) -> Mapping[str, pa.Table]:
        """Make a step of the rows of each input, and return the changed rows of each view."""
        ...


class Transaction:
    """The changes of a ``with`` block; create it with `Database.transaction`.

    Attributes:
        database: The database that it changes.
    """

    def __init__(self, database: ChangeableDatabase) -> None:
        self.database = database
        self._tables: dict[str, list[pa.Table]] = {}
        self._changes: Mapping[str, pa.Table] = {}
        self._token: Token[tuple[Transaction, ...]] | None = None

    @property
    def changes(self) -> Mapping[str, pa.Table]:
        """After the block: the changed rows of each view, with ``weight``; before, no views."""
        return self._changes

    def add(self, relation: str, table: pa.Table) -> None:
        """Add rows with weights; `Database.insert` and others call this.

        Raises:
            SchemaError: A column does not have the declared type, or is unknown.
        """
        schema = self.database.circuit.inputs[relation]
        schema.check_columns(table, () if (order := self._sequence(relation)) is None else (order,))
        types = {field.name: field.type for field in schema.fields}
        columns = {name: table.column(name) for name in table.column_names}
        columns |= {
            name: cast_lossless(column, types[name])
            for name, column in columns.items()
            if name in types
        }
        if WEIGHT not in columns:
            columns[WEIGHT] = pa.chunked_array([np.ones(table.num_rows, np.int64)])
        self._tables.setdefault(relation, []).append(pa.table(columns))

    def __enter__(self) -> Transaction:
        if self._token is not None:
            raise DatabaseError("this transaction is open already: begin another one")
        self._token = _OPEN.set((*_OPEN.get(), self))
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._token is not None
        _OPEN.reset(self._token)
        self._token = None
        added, self._tables = self._tables, {}
        if error is None and added:
            tables = {name: self._combine(name, parts) for name, parts in added.items()}
            self._changes = self.database.apply(tables)

    def _combine(self, relation: str, tables: list[pa.Table]) -> pa.Table:
        """Return the changes of an input as one table, numbered if the input needs an order."""
        order = self._sequence(relation)
        is_ordered = order is None or any(order in table.column_names for table in tables)
        if len(tables) > 1 and not is_ordered:
            tables = [
                table.append_column(order, pa.array(np.full(table.num_rows, number)))
                for number, table in enumerate(tables)
            ]
        return pa.concat_tables(tables, promote_options="default")

    def _sequence(self, relation: str) -> str | None:
        """Return the extra column that orders the changes of a key; None if there is none."""
        options = self.database.circuit.input_options.get(relation)
        if options is None or not options.keys:
            return None
        name = options.sequence or _SEQUENCE
        return None if name in self.database.circuit.inputs[relation].columns else name


def open_transaction(database: ChangeableDatabase) -> Transaction | None:
    """Return the innermost open transaction of the current task or thread for a database."""
    return next((t for t in reversed(_OPEN.get()) if t.database is database), None)


def has_keys(circuit: Circuit, relation: str) -> bool:
    """Return whether the rows of an input have a primary key."""
    options = circuit.input_options.get(relation)
    return options is not None and bool(options.keys)
