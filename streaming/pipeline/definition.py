"""PipelineDefinition: the views, source tables, targets and state of a pipeline; compiled by it.

A source table whose rows the state keeps with their item (`SourceTable.item_column`) has an input
with one more column, and a temporary view with the name of the table, so that views do not see this
column::

    CREATE TEMPORARY VIEW orders AS SELECT nr, item FROM orders__rows

A table that is read by ``STREAM(orders)`` is append-only: a refresh fails if one of its rows is
deleted or updated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final, TypeAlias

import pyarrow as pa

from circuits import (
    Circuit,
    CircuitOptions,
    CircuitSpec,
    InputOptions,
    SqlError,
    UnsupportedSqlError,
    UserFunction,
)
from circuits.compile import spec_of_sql
from circuits.plan.nodes import Field
from circuits.plan.traversal import iter_nodes, read_relations
from circuits.schema import Schema
from circuits.sql import (
    Obstacle,
    SqlSource,
    ViewStatement,
    declared_by,
    find_obstacles,
    split_statements,
    streamed_relations,
    view_of_columns,
    view_statements,
    without_default_schemas,
    without_streams,
)
from dbsp_wcoj.cached_property import cached_property
from dbsp_wcoj.limits import DEFAULT_LIMITS, StepLimits
from streaming.database.positions import POSITIONS, POSITIONS_SCHEMA
from streaming.errors import EventsError, SourceTableError
from streaming.pipeline.recomputation import (
    Policy,
    RecomputedView,
    ViewComputer,
    blank_statements,
    dependents_of,
    is_of_spark,
    key_of,
    obstacles_of,
    relations_read,
    views_below,
)
from streaming.pipeline.spark_views import SparkViews
from streaming.pipeline.sql_files import SqlFiles
from streaming.pipeline.tables.source_table import SourceTable
from streaming.sink.output import Outputs

__all__ = ["CompiledPipeline", "PipelineDefinition"]

NO_SCHEMAS: Final[Mapping[str, pa.Schema]] = {}
_ROWS_SUFFIX: Final = "__rows"
# The texts whose obstacles are kept: `find_problems` and `compile` need those of the same texts.
_KEPT_OBSTACLES: Final = 8
# The name of each source table and recomputed view, with its columns.
_Relations: TypeAlias = tuple[tuple[str, tuple[Field, ...]], ...]


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
        policy: Which views Spark computes as a whole, if the dialect is that of Spark: "auto" for
            those that the circuit cannot maintain, "incremental" for none, "full"
            for all that are not temporary.
        computer: Computes them.
    """

    files: SqlFiles
    tables: Mapping[str, SourceTable]
    state: str
    outputs: Callable[[Circuit], Outputs] = lambda circuit: None
    dialect: str = "duckdb"
    functions: Mapping[str, UserFunction] = field(default_factory=dict)
    limits: StepLimits = DEFAULT_LIMITS
    memory_limit: int | None = None
    policy: Policy = "auto"
    computer: ViewComputer = field(default_factory=SparkViews)

    def find_problems(self) -> list[str]:
        """Return every problem of the files and the source tables; empty if there is none.

        A view whose table cannot be read has no further problem. A construct that the circuit lacks
        is no problem if Spark computes the view. If a file cannot be read as SQL, the tables that
        the other files lack are not reported, because it may create them.
        """
        problems: list[str] = []
        schemas: dict[str, pa.Schema] = {}
        for name, table in self.tables.items():
            try:
                schemas[name] = table.schema()
            except SourceTableError as error:
                problems.append(f"source table {name!r}: {error}")
        unread = {name.casefold() for name in self.tables.keys() - schemas.keys()}
        effects = [f"unknown table {name!r}" for name in unread]
        unreadable = dict(self.files.find_unreadable(self.dialect))
        if unreadable:
            effects += ["unknown table ", "the text has no view", "the text has no statement"]
            effects += ["create flow is not", "create streaming table without"]
        for file, message in unreadable.items():
            problems.append(f"{file}, {message}")
        text = self.files.text_without(unreadable)
        views = view_statements(text, self.dialect) if self._may_recompute else []
        computable = [view for view in views if is_of_spark(view)]
        for obstacle in self._find_obstacles(text, schemas):
            is_computed = any(obstacles_of(view, text, [obstacle]) for view in computable)
            if obstacle.is_fault_of_text or not is_computed:
                message = obstacle.message.casefold()
                if not any(effect in message for effect in effects):
                    problems.append(self._describe(obstacle))
        with suppress(SqlError):  # then it is one of the obstacles
            problems += self._problems_of_declared_tables()
        return problems

    def compile(self, stored: Mapping[str, pa.Schema] = NO_SCHEMAS) -> CompiledPipeline:
        """Compile the views to one circuit.

        Args:
            stored: The columns of recomputed views by their keys, so that Spark need not start.

        Raises:
            SourceTableError: The columns of a source table cannot be read.
            EventsError: A table is declared, and has no source or ``removed_files = "delete"``; or
                all views are temporary.
            SqlError: The SQL does not compile.
            RecomputationError: Spark refuses a view, too.
        """
        if problems := self._problems_of_declared_tables():
            raise EventsError(problems[0])
        schemas = {name: table.schema() for name, table in self.tables.items()}
        spec, inputs, recomputed = self._plan_all(schemas, stored)
        if not spec.outputs:
            raise EventsError(
                "no view has a target, because all views are temporary: write CREATE VIEW instead "
                "of CREATE TEMPORARY VIEW for one"
            )
        # Targets, readers and recomputed views need the views whole.
        read = {name for view in recomputed.values() for name in view.reads}
        needed = {*spec.materialized, *spec.outputs, *(inputs.get(name, name) for name in read)}
        options = replace(spec.options, materialize=needed)
        circuit = Circuit(replace(spec, options=options))
        timed = frozenset(name for name in recomputed if _reads_now(name, circuit, recomputed))
        columns = {name: frozenset(schema.names) for name, schema in schemas.items()}
        return CompiledPipeline(circuit, inputs, columns, self._append_only(), recomputed, timed)

    def _plan_all(
        self, schemas: Mapping[str, pa.Schema], stored: Mapping[str, pa.Schema]
    ) -> tuple[CircuitSpec, dict[str, str], dict[str, RecomputedView]]:
        """Return the plans of the views, the input of each source table, and recomputed views.

        The search for views to recompute plans all views, so it is left out if none is needed.
        """
        if self.policy != "full":
            with suppress(UnsupportedSqlError) if self._may_recompute else nullcontext():
                return *self._plan(self.files.text, schemas, {}), {}
        text, recomputed = self._plan_recomputation(schemas, stored)
        return *self._plan(text, schemas, recomputed), recomputed

    def _plan(
        self,
        text: str,
        schemas: Mapping[str, pa.Schema],
        recomputed: Mapping[str, RecomputedView],
    ) -> tuple[CircuitSpec, dict[str, str]]:
        """Return the plans of the views of a text, and the input of each source table.

        Temporary views are no outputs, even if there is no other view.
        """
        declared = {name.casefold() for name in self._declared_inputs}
        inputs = {name: name for name in self.tables}
        columns: dict[str, pa.Schema] = {POSITIONS: POSITIONS_SCHEMA}
        materialized = [POSITIONS]
        for name, table in self.tables.items():
            if table.item_column is not None:
                inputs[name] = f"{name}{_ROWS_SUFFIX}"
                materialized.append(inputs[name])
                item = pa.field(table.item_column, pa.string())
                columns[inputs[name]] = schemas[name].append(item)
                text += view_of_columns(
                    name, inputs[name], schemas[name].names, dialect=self.dialect
                )
            elif name.casefold() not in declared:
                columns[name] = schemas[name]
        for name, view in recomputed.items():
            materialized.append(view.input)
            columns[view.input] = view.schema
            text += view_of_columns(
                name,
                view.input,
                view.schema.names,
                is_temporary=view.statement.is_temporary,
                dialect=self.dialect,
            )
        # A key that SQL declares would make an update of a row two changes of one key.
        without_keys = {n: InputOptions() for n, keys in self._declared_inputs.items() if keys}
        options = CircuitOptions(
            materialize=materialized, input_options=without_keys, limits=self.limits
        )
        parsed = SqlSource(text, self.dialect)
        declarations = declared_by(parsed)
        spec = spec_of_sql(parsed, declarations, columns, options, functions=self.functions)
        temporary = {name.casefold() for name in declarations.temporary_views}
        outputs = [name for name in spec.plans if name.casefold() not in temporary]
        return replace(spec, options=replace(spec.options, outputs=outputs)), inputs

    @property
    def _may_recompute(self) -> bool:
        """True if Spark may compute views as a whole, which it reads in its own dialect."""
        return self.policy != "incremental" and self.dialect == "spark"

    def _plan_recomputation(
        self, schemas: Mapping[str, pa.Schema], stored: Mapping[str, pa.Schema]
    ) -> tuple[str, dict[str, RecomputedView]]:
        """Return the text without the views that are recomputed, and these views in order.

        The views are found from the tables upwards: the columns of a view that is recomputed are
        known only when everything that it reads is compiled.
        """
        text = self.files.text
        recomputed: dict[str, RecomputedView] = {}
        views = view_statements(text, self.dialect)
        views_by_name = {view.name: view for view in views}
        while True:
            known = {**schemas, **{name: view.schema for name, view in recomputed.items()}}
            rest = [view for view in views if view.name not in recomputed]
            done = blank_statements(text, (views_by_name[name] for name in recomputed))
            reasons = self._reasons(rest, done, known)
            if not reasons:
                return done, recomputed
            above = dependents_of(reasons, rest)
            ready = [name for name in reasons if name.casefold() not in above]
            if not ready:
                raise EventsError(
                    f"the views {', '.join(reasons)} read each other and need recomputation, "
                    "which is not possible: break the cycle"
                )
            left_out = [v for v in rest if v.name in reasons or v.name.casefold() in above]
            rest_text = blank_statements(done, left_out)
            relations = {**known, **self._columns_of_views(rest_text, schemas, recomputed)}
            for name in ready:
                recomputed[name] = self._recomputed(
                    views_by_name[name], reasons[name], relations, views, stored
                )

    def _columns_of_views(
        self,
        text: str,
        schemas: Mapping[str, pa.Schema],
        recomputed: Mapping[str, RecomputedView],
    ) -> dict[str, pa.Schema]:
        """Return the columns of the views of a text, and of recomputed views."""
        if not split_statements(text, self.dialect) and not recomputed:
            return {}
        plans = self._plan(text, schemas, recomputed)[0].plans
        return {name: Schema(name, plan.fields).arrow_columns for name, plan in plans.items()}

    def _reasons(
        self, views: Sequence[ViewStatement], text: str, schemas: Mapping[str, pa.Schema]
    ) -> dict[str, str]:
        """Return why views have to be recomputed, by view."""
        if self.policy == "full":
            return {
                view.name: 'policy = "full"'
                for view in views
                if not view.is_temporary and is_of_spark(view)
            }
        obstacles = self._find_obstacles(text, schemas)
        reasons = {}
        for view in views:
            found = obstacles_of(view, text, obstacles)
            if found and not any(obstacle.is_fault_of_text for obstacle in found):
                file, line = self.files.place(found[0].line)
                reasons[view.name] = f"{file}, line {line}: {found[0].message}"
        return reasons

    def _recomputed(
        self,
        view: ViewStatement,
        reason: str,
        relations: Mapping[str, pa.Schema],
        views: Sequence[ViewStatement],
        stored: Mapping[str, pa.Schema],
    ) -> RecomputedView:
        view = without_default_schemas(without_streams(view, self.dialect), self.dialect)
        reads = relations_read(view, relations)
        read = {name: relations[name] for name in reads}
        key = key_of(view, read, views_below(view, views))
        schema = stored[key] if key in stored else self.computer.schema_of(view, read)
        tables = frozenset(
            name
            for name in self.tables
            if name.casefold() in view.words or view.name.casefold() in dependents_of([name], views)
        )
        return RecomputedView(view, reason, reads, schema, key, tables)

    def _find_obstacles(self, text: str, schemas: Mapping[str, pa.Schema]) -> tuple[Obstacle, ...]:
        if not split_statements(text, self.dialect):
            return ()
        relations = ((name, Schema.of(name, schema).fields) for name, schema in schemas.items())
        return self._obstacles(text, tuple(relations))

    @cached_property
    def _obstacles(self) -> Callable[[str, _Relations], tuple[Obstacle, ...]]:
        @lru_cache(_KEPT_OBSTACLES)
        def find(text: str, relations: _Relations) -> tuple[Obstacle, ...]:
            found = find_obstacles(
                text, dict(relations), dialect=self.dialect, functions=self.functions
            )
            return tuple(found)

        return find

    @cached_property
    def _declared_inputs(self) -> dict[str, tuple[str, ...]]:
        """The key of each table that the text declares with columns."""
        inputs = declared_by(self.files.text, self.dialect).inputs
        return {name: table.keys for name, table in inputs.items()}

    def _problems_of_declared_tables(self) -> list[str]:
        tables = {name.casefold(): table for name, table in self.tables.items()}
        problems = []
        for name in self._declared_inputs:
            table = tables.get(name.casefold())
            if table is None:
                problems.append(
                    f"table {name!r} is declared and has no source: add [inputs.{name}] with its "
                    "path"
                )
            elif table.item_column is not None:
                problems.append(
                    f'table {name!r} has removed_files = "delete", so CREATE TABLE cannot declare '
                    'it: remove the statement, and give the columns as schema = "..." in '
                    f"[inputs.{name}]"
                )
        return problems

    def _append_only(self) -> frozenset[str]:
        """Return the tables that are read by ``STREAM(name)``."""
        streamed = streamed_relations(self.files.text, self.dialect)
        return frozenset(name for name in self.tables if name.casefold() in streamed)

    def _describe(self, obstacle: Obstacle) -> str:
        file, line = self.files.place(obstacle.line)
        kind = "" if obstacle.is_fault_of_text else " (the engine lacks this)"
        place = f"{file}, line {line}, column {obstacle.column}, {obstacle.statement}"
        return f"{place}: {obstacle.message}{kind}"


@dataclass(frozen=True)
class CompiledPipeline:
    """The circuit of a pipeline.

    Attributes:
        circuit: The views, without state.
        inputs: The input of each source table.
        columns: The columns that each source table has now.
        append_only: The source tables of which no row may be deleted.
        recomputed: The views that are computed as a whole, each after those that it reads.
        timed: Those of them that are above a maintained view that reads the current time, so that
            their rows may change in each refresh.
    """

    circuit: Circuit
    inputs: Mapping[str, str]
    columns: Mapping[str, frozenset[str]]
    append_only: frozenset[str]
    recomputed: Mapping[str, RecomputedView]
    timed: frozenset[str]


def _reads_now(name: str, circuit: Circuit, recomputed: Mapping[str, RecomputedView]) -> bool:
    """Return True if a view below a recomputed view is maintained and reads the current time."""
    pending: list[str] = [*recomputed[name].reads]
    seen: set[str] = set()
    while pending:
        relation = pending.pop()
        if relation in seen:
            continue
        seen.add(relation)
        if relation in recomputed:
            pending += recomputed[relation].reads
        elif relation in circuit.plans:
            plan = circuit.plans[relation]
            if any(node.reads_now for node in iter_nodes(plan)):
                return True
            pending += read_relations(plan)
    return False
