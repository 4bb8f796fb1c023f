"""PipelineDefinition: the views, source tables, targets and state of a pipeline; compiled by it.

A source table whose rows the state keeps with their item (`SourceTable.item_column`) has an input
with one more column, and a temporary view with the name of the table, so that views do not see this
column::

    CREATE TEMPORARY VIEW orders AS SELECT nr, item FROM orders__rows

A table that is read by ``STREAM(orders)`` is append-only: a refresh fails if one of its rows is
deleted or updated.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from circuits import Circuit, InputOptions, SqlNotice, UserFunction, compile_sql
from circuits.schema import Schema
from circuits.sql import (
    Obstacle,
    declared_by,
    find_obstacles,
    streamed_relations,
    view_of_columns,
)
from dbsp_wcoj.limits import DEFAULT_LIMITS, StepLimits
from streaming.errors import EventsError, SourceTableError
from streaming.pipeline.positions import POSITIONS, POSITIONS_SCHEMA
from streaming.pipeline.sql_files import SqlFiles
from streaming.pipeline.tables.source_table import SourceTable
from streaming.sink.output import Outputs

__all__ = ["CompiledPipeline", "PipelineDefinition"]

_ROWS_SUFFIX: Final = "__rows"


@dataclass(frozen=True)
class PipelineDefinition:
    """A pipeline as a user writes it.

    Attributes:
        files: The files of SQL.
        tables: The source table of each name.
        state: The location of the state, as ``state_dir`` of `streaming.ViewSink`.
        outputs: Returns the outputs of the views of a circuit.
        dialect: The dialect of the SQL.
        functions: The user-defined functions that the views call.
        limits: What a refresh may use.
        memory_limit: The bytes of the state that may be in memory; None for no limit.
    """

    files: SqlFiles
    tables: Mapping[str, SourceTable]
    state: str
    outputs: Callable[[Circuit], Outputs] = lambda circuit: None
    dialect: str = "duckdb"
    functions: Mapping[str, UserFunction] = field(default_factory=dict)
    limits: StepLimits = DEFAULT_LIMITS
    memory_limit: int | None = None

    def find_problems(self) -> list[str]:
        """Return every problem of the files and the source tables; empty if there is none.

        A view whose table cannot be read has no further problem.
        """
        problems: list[str] = []
        schemas: dict[str, pa.Schema] = {}
        for name, table in self.tables.items():
            try:
                schemas[name] = table.schema()
            except SourceTableError as error:
                problems.append(f"source table {name!r}: {error}")
        relations = {name: Schema.of(name, schema).fields for name, schema in schemas.items()}
        unread = {name.casefold() for name in self.tables.keys() - schemas.keys()}
        obstacles = find_obstacles(
            self.files.text, relations, dialect=self.dialect, functions=self.functions
        )
        for obstacle in obstacles:
            if not any(f"unknown table {name!r}" in obstacle.message.casefold() for name in unread):
                problems.append(self._describe(obstacle))
        if not obstacles:
            problems += self._missing_tables()
        return problems

    def compile(self) -> CompiledPipeline:
        """Compile the views to one circuit.

        Raises:
            SourceTableError: The columns of a source table cannot be read.
            EventsError: A table is declared and has no source, or the SQL does not compile.
        """
        if missing := self._missing_tables():
            raise EventsError(missing[0])
        declared = {name.casefold() for name in self._declared_inputs()}
        inputs = {name: name for name in self.tables}
        schemas: dict[str, pa.Schema] = {POSITIONS: POSITIONS_SCHEMA}
        materialized = [POSITIONS]
        text = self.files.text
        for name, table in self.tables.items():
            if table.item_column is not None:
                columns = table.schema()
                inputs[name] = f"{name}{_ROWS_SUFFIX}"
                materialized.append(inputs[name])
                schemas[inputs[name]] = columns.append(pa.field(table.item_column, pa.string()))
                text += view_of_columns(name, inputs[name], columns.names, dialect=self.dialect)
            elif name.casefold() not in declared:
                schemas[name] = table.schema()
        circuit = self._compile(text, schemas, materialized)
        # Targets and readers need the views whole.
        circuit = self._compile(text, schemas, [*materialized, *circuit.outputs])
        return CompiledPipeline(circuit, inputs, self._append_only())

    def _compile(
        self, text: str, schemas: Mapping[str, pa.Schema], materialized: list[str]
    ) -> Circuit:
        # A key that SQL declares would make an update of a row two changes of one key.
        declared = self._declared_inputs()
        without_keys = {name: InputOptions() for name, keys in declared.items() if keys}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SqlNotice)
            return compile_sql(
                text,
                schemas,
                dialect=self.dialect,
                materialize=materialized,
                input_options=without_keys,
                limits=self.limits,
                functions=self.functions,
            )

    def _declared_inputs(self) -> dict[str, tuple[str, ...]]:
        """Return the key of each table that the text declares with columns."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SqlNotice)
            inputs = declared_by(self.files.text, self.dialect).inputs
        return {name: table.keys for name, table in inputs.items()}

    def _missing_tables(self) -> list[str]:
        known = {name.casefold() for name in self.tables}
        return [
            f"table {name!r} is declared and has no source: add [inputs.{name}] with its path"
            for name in self._declared_inputs()
            if name.casefold() not in known
        ]

    def _append_only(self) -> frozenset[str]:
        """Return the tables that are read by ``STREAM(name)``."""
        streamed = streamed_relations(self.files.text, self.dialect)
        return frozenset(name for name in self.tables if name.casefold() in streamed)

    def _describe(self, obstacle: Obstacle) -> str:
        file, line = self.files.place(obstacle.line)
        kind = "" if obstacle.is_supported else " (the engine lacks this)"
        place = f"{file}, line {line}, column {obstacle.column}, {obstacle.statement}"
        return f"{place}: {obstacle.message}{kind}"


@dataclass(frozen=True)
class CompiledPipeline:
    """The circuit of a pipeline.

    Attributes:
        circuit: The views, without state.
        inputs: The input of each source table.
        append_only: The source tables of which no row may be deleted.
    """

    circuit: Circuit
    inputs: Mapping[str, str]
    append_only: frozenset[str]
