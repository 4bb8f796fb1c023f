"""Backfill: compute state that is not stored, from rows that are.

All rows of a node, with all its columns, are taken from the state of the old program if an equal
node of it has them (`circuits.state.reuse`, `circuits.state.kept_rows`). Otherwise the node is
computed from the rows of its inputs, as in a first step (`Graph.backfill`), and so on down to the
input relations. Only the nodes on this way are computed::

    new view v = join(e, f)      e, f: rows that other joins read    ->  one first step of the join
    new view w = count(v)        v is materialized                   ->  one first step of the count

An input that the old program did not have is empty, unless the caller gives rows. Rows of an input
are adapted to its new columns: a wider type is cast, a new nullable column is NULL. Columns that no
computed node reads are left out. So an input can be used even if the state has only some of its
columns.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from circuits.errors import ProgramChangeError, SchemaError
from circuits.inputs.checked_input import CheckedInput
from circuits.plan.nodes import Field, Fixpoint
from circuits.runtime.graph import GraphStep
from circuits.runtime.read_columns import read_columns
from circuits.state.kept_rows import KeptRows, StoredRows
from circuits.state.registry import relation_trace
from circuits.state.reuse import Reuse
from circuits.types.codecs.arrow_buffers import NULL
from circuits.types.codecs.codec import Codecs
from circuits.types.safe_cast import cast_lossless
from dbsp_wcoj import ZSet
from dbsp_wcoj.cached_property import cached_property
from dbsp_wcoj.zset import consolidated_rows

__all__ = ["Backfill", "MissingRows", "check_kept_rows"]


@dataclass(frozen=True)
class MissingRows:
    """Rows of an input that a backfill needs and that the state does not have.

    Attributes:
        input: The name of the input.
        columns: The columns that are needed.
        reason: Why the kept rows are not enough.
    """

    input: str
    columns: tuple[str, ...]
    reason: str


class Backfill:
    """The rows that a graph needs besides the state that it takes over.

    Args:
        reuse: The equal nodes of the old graph, which has its state, and of the new graph, which
            has none.
        kept: The rows in the state of the old graph.
        required: The positions of the new nodes of which all rows are needed.
        computed: The positions of the new nodes that have to be computed, because their state is
            new.
        given: The columns of the rows that the caller has, by the name of the input.

    Attributes:
        stored: The rows to read from the old state, by the position of the new node.
        tables: The names of the inputs to read from the caller, by position.
        missing: The rows that neither the old state nor the caller has.

    Complexity:
        O(nodes); nothing is read before `run`.
    """

    def __init__(
        self,
        reuse: Reuse,
        kept: KeptRows,
        required: Collection[int],
        computed: Collection[int],
        given: Mapping[str, Sequence[Field]] | None = None,
    ) -> None:
        self._reuse = reuse
        self._kept = kept
        self._graph = reuse.new
        self._old_inputs = {
            node.name: position for position, node in enumerate(reuse.old.nodes) if node.is_input
        }
        self._given = given or {}
        self._computed = set(computed)
        self._needed: set[int] = set()
        self.stored: dict[int, StoredRows] = {}
        self.tables: dict[int, str] = {}
        self.missing: list[MissingRows] = []
        # The columns that computed nodes read, of each input that is read.
        self._columns: dict[int, frozenset[int]] = {}
        pending = sorted({*required, *computed})
        while pending:
            position = pending.pop()
            if position not in self._needed:
                self._needed.add(position)
                pending += self._inputs_of(position)
        for position in sorted(self._needed):
            if self._graph.nodes[position].is_input:
                self._find_input(position, required)

    @property
    def is_empty(self) -> bool:
        """True if nothing is needed."""
        return not self._needed

    @property
    def rows(self) -> int:
        """The number of rows to read from the state."""
        return sum(stored.trace.rows for stored in self.stored.values())

    def run(self, rows_given: Mapping[str, ZSet], codecs: Codecs, now: int | None) -> GraphStep:
        """Compute the rows; the step is not committed.

        Args:
            rows_given: The rows of the inputs in ``tables``, by the name of the input.
            codecs: The codecs of both graphs.
            now: The time of the rows, if a node reads it.

        Raises:
            ProgramChangeError: Rows do not fit the new columns of their input.
        """
        rows = {position: stored.rows() for position, stored in self.stored.items()}
        rows |= {position: rows_given[name] for position, name in self.tables.items()}
        return self.run_slice(rows, codecs, now)

    def run_slice(self, rows: Mapping[int, ZSet], codecs: Codecs, now: int | None) -> GraphStep:
        """Compute the change for some of the rows to read; the step is not committed.

        Args:
            rows: Changes of the nodes in ``stored``, decoded, and of the inputs in ``tables``, by
                position.
            codecs: As for `run`.
            now: As for `run`; it never goes back.

        Raises:
            ProgramChangeError: Rows do not fit the new columns of their input.
        """
        nodes = self._graph.nodes
        contents = {position: nodes[position].empty for position in (*self._columns, *self.stored)}
        for position, changed in rows.items():
            if nodes[position].is_input:
                columns = self._source_columns(position)
                changed = self._adapted(position, changed, columns, codecs)
            contents[position] = changed
        return self._graph.backfill(contents, self._needed, now, self._skipped_traces)

    @cached_property
    def _skipped_traces(self) -> frozenset[int]:
        """The nodes in ``stored`` whose traces a slice must not fill.

        The change takes them over from the old graph, and no computed join reads them.
        """
        nodes, traces = self._graph.nodes, self._graph.traces
        read: set[int] = set()
        for position in self._readers:
            if type(nodes[position].plan) in self._graph.operators.joins:
                read.update(nodes[position].inputs)
            circuit = self._graph.nested_circuits.get(position)
            if circuit is not None:
                read.update(circuit.outside)
        unread = set()
        for position in self.stored.keys() - read:
            name = relation_trace(nodes[position].state_name)
            old_name = self._reuse.traces.get(name)
            if old_name is not None:
                old_orders = self._reuse.old.traces[old_name].orders
                if {*traces[name].orders} <= {*old_orders}:
                    unread.add(position)
        return frozenset(unread)

    def _source_columns(self, position: int) -> Sequence[Field]:
        """Return the columns of the rows that are read for an input."""
        name = self._graph.nodes[position].name
        if position in self.tables:
            return self._given[name]
        old_fields = self._reuse.old.nodes[self._old_inputs[name]].plan.fields
        return [old_fields[column] for column in self.stored[position].columns]

    def read_columns(self, position: int) -> frozenset[int]:
        """Return the columns of an input that computed nodes read."""
        return self._columns[position]

    def _inputs_of(self, position: int) -> Sequence[int]:
        """Return the nodes whose rows a node is computed from; none if its rows are stored."""
        node = self._graph.nodes[position]
        if node.is_input:
            return ()
        if position not in self._computed and position in self._reuse.nodes:
            stored = self._kept.find(self._reuse.nodes[position])
            if stored is not None:
                self.stored[position] = stored
                return ()
        if isinstance(node.plan, Fixpoint) and node.operator is None:
            return self._graph.nested_circuits[position].outside
        return node.inputs

    def _find_input(self, position: int, required: Collection[int]) -> None:
        """Find rows with all columns of an input that computed nodes read."""
        node = self._graph.nodes[position]
        fields = node.plan.fields
        columns = read_columns(self._graph.nodes, required, position, self._readers)
        self._columns[position] = columns
        names = tuple(fields[column].name for column in sorted(columns))
        old_position = self._old_inputs.get(node.name)
        candidates = [] if old_position is None else self._kept.find_columns(old_position)
        reason = "its old views do not keep whole rows of it"
        if old_position is not None:
            for stored in candidates:
                reason = self._reason_against(position, old_position, stored)
                if not reason:
                    self.stored[position] = stored
                    return
        if node.name in self._given:
            given_names = {field.name for field in self._given[node.name]}
            absent = [name for name in names if name not in given_names]
            if not absent:
                self.tables[position] = node.name
                return
            reason = f"the given rows do not have {', '.join(absent)}"
        if old_position is None:
            return  # a new input: all its rows are still to come
        self.missing.append(MissingRows(node.name, names, reason))

    @property
    def _readers(self) -> set[int]:
        """The positions of the nodes that are computed, with those inside recursions."""
        readers = self._needed - self.stored.keys()
        for position in list(readers):
            circuit = self._graph.nested_circuits.get(position)
            if circuit is not None:
                readers |= {*circuit.order}
        return readers

    def _reason_against(self, position: int, old_position: int, stored: StoredRows) -> str:
        """Return why stored rows are not enough for an input; empty if they are."""
        fields = self._graph.nodes[position].plan.fields
        old_columns = self._old_columns(old_position)
        absent, unknown = [], []
        for column in sorted(self._columns[position]):
            field = fields[column]
            old_column = old_columns.get(field.name)
            if old_column is None:
                if not field.nullable:
                    unknown.append(field.name)
            elif old_column not in stored.columns:
                absent.append(field.name)
        if unknown:
            return (
                f"{', '.join(unknown)} is new and NOT NULL, so the kept rows have no value for it"
            )
        if absent:
            return f"the kept rows do not have {', '.join(absent)}"
        return ""

    def _old_columns(self, old_position: int) -> dict[str, int]:
        fields = self._reuse.old.nodes[old_position].plan.fields
        return {field.name: column for column, field in enumerate(fields)}

    def _adapted(self, position: int, rows: ZSet, columns: Sequence[Field], codecs: Codecs) -> ZSet:
        """Return rows with other columns as rows of an input; columns are found by name."""
        node = self._graph.nodes[position]
        if tuple(columns) == tuple(node.plan.fields):
            return rows
        indices = {field.name: index for index, field in enumerate(columns)}
        codes = np.full((len(node.plan.fields), len(rows)), NULL)
        for column in self._columns[position]:
            field = node.plan.fields[column]
            index = indices.get(field.name)
            if index is not None:
                codes[column] = _cast(
                    node.name, rows.row_array[index], columns[index], field, codecs
                )
        return consolidated_rows(codes, rows.weight_array.copy())


def _cast(name: str, codes: np.ndarray, old: Field, new: Field, codecs: Codecs) -> np.ndarray:
    """Return the codes of a column of an input in its new type."""
    if not new.nullable and (codes == NULL).any():
        raise ProgramChangeError(
            f"input {name!r}: column {new.name!r} is NOT NULL now, and {(codes == NULL).sum()} of "
            "the kept rows have NULL: declare it nullable, or delete these rows before the change"
        )
    if old.type == new.type:
        return codes
    values = codecs.codec(old.type).decode(np.ascontiguousarray(codes))
    try:
        cast = cast_lossless(pa.chunked_array([values]), new.type)
    except SchemaError as error:
        raise ProgramChangeError(
            f"input {name!r}: column {new.name!r} was {old.type} and is {new.type}, and the kept "
            f"rows cannot be cast: {error}"
        ) from error
    return codecs.codec(new.type).encode(cast)


def check_kept_rows(name: str, checked: CheckedInput, rows: ZSet) -> None:
    """Check that the kept rows of an input fit its new options.

    Raises:
        ProgramChangeError: A key has several rows, or a strict input has negative weights.
    """
    duplicates = checked.duplicate_keys(rows)
    if duplicates:
        raise ProgramChangeError(
            f"input {name!r}: {duplicates} of its {len(rows)} rows have the key "
            f"({', '.join(checked.options.keys)}) of another row: an input with keys has one row "
            "per key; delete the others before the change, or choose other keys"
        )
    if checked.options.strict and (rows.weight_array < 0).any():
        raise ProgramChangeError(
            f"input {name!r}: {(rows.weight_array < 0).sum()} rows have a negative weight, which a "
            "strict input cannot have: insert the missing rows before the change"
        )
