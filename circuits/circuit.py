"""Circuit: views over changing relations, stepped together and all or nothing.

A step takes a table of changed rows per input and returns one per view. Values are encoded at the
edge, operators work on Z-sets of codes (`circuits.runtime.graph`), and their output is decoded. By
the chain rule, the circuit of the incremental operators is the incremental circuit::

    Σ outputs of step(d_t)  =  view(Σ d_t)

Invariant: a step is all or nothing. ``prepare`` encodes and validates every table, then computes
every delta without changing state; ``commit`` installs the new state. An error before ``commit``
leaves the circuit unchanged. An error inside ``commit``, such as running out of memory, breaks the
circuit: it must be restored or built again.

``prepare`` and ``commit`` are separate so that a durable sink can write in between: the outputs,
and the state that the step adds (`CircuitStep.state`, see `circuits.state.circuit_state`). If the
write fails, the sink abandons the step. This removes the values that the step added to
dictionaries, so that the same rows get the same codes when they come again.

Threads: one writer at a time (`circuits.runtime.writer_lock`), and any number of readers. A read
uses one version to its end: the one that was current when it began
(`circuits.runtime.circuit_version`).

`circuits.compile_sql` and `circuits.compile_datalog` build circuits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from html import escape
from itertools import chain, pairwise
from time import perf_counter
from typing import Any, Final, TypeVar

import pyarrow as pa

from circuits.circuit_spec import CircuitSpec
from circuits.errors import (
    CircuitError,
    MissingRowError,
    TextError,
    UnknownViewError,
)
from circuits.inputs.checked_input import CheckedInput
from circuits.inputs.encoded_inputs import (
    EncodedInputs,
    digests_of,
    encode_inputs,
    microseconds_of,
)
from circuits.inputs.encoded_rows import EncodedRows
from circuits.inputs.finality import check_finality
from circuits.inputs.rejected_rows import MISSING, RejectedRows
from circuits.inputs.tables import Rows
from circuits.limits import name_limit_errors
from circuits.phases import COMMIT
from circuits.plan.node import PlanNode
from circuits.runtime.circuit_version import CircuitVersion
from circuits.runtime.graph import Graph, GraphStep, watermark_of
from circuits.runtime.incrementalize import incrementalize
from circuits.runtime.one_shot import answer_query, stored_relations
from circuits.runtime.operator_names import operator_kind
from circuits.runtime.operators.integrate import Integrate
from circuits.runtime.operators.join import JoinOptions
from circuits.runtime.plan_drawing import draw_mermaid, draw_tree
from circuits.runtime.post_step_view import PostStepView
from circuits.runtime.state_sizes import StateSize, state_sizes
from circuits.runtime.threads import workers_of
from circuits.runtime.views import Views
from circuits.runtime.writer_lock import WriterTurn
from circuits.schema import Schema, schemas_of
from circuits.sql import computed_tables
from circuits.state.circuit_state import State, StateStep, step_state
from circuits.state.coded_columns import field_codecs
from circuits.state.current_state import CurrentState
from circuits.state.snapshot import Snapshot, open_snapshot, take_snapshot
from circuits.types.codecs.codec import Codecs
from circuits.user_functions import UserFunction, check_functions
from dbsp_wcoj import Relations, ZSet
from dbsp_wcoj.arguments import check_type
from dbsp_wcoj.cached_property import cached_property
from dbsp_wcoj.limits import Budget
from dbsp_wcoj.observer import observed
from dbsp_wcoj.planning.formula_candidates import parse_formula
from dbsp_wcoj.storage.run import Run
from dbsp_wcoj.storage.trace import ColumnOrder, Staged, TraceStep
from dbsp_wcoj.values.array_memory import ArrayMemory
from dbsp_wcoj.workers import MIN_PARALLEL_ROWS, raise_interrupt, run_tasks, working_with

__all__ = ["PREPARE_PHASES", "Circuit", "CircuitStep", "StepObserver"]

#: The keys of `CircuitStep.seconds`: values to codes, the operators, codes to values. Observers see
#: the finer phases of `circuits.phases`.
PREPARE_PHASES: Final = ("encode", "step", "output")

R = TypeVar("R")

#: Called before an operator is evaluated, with its name, its kind and the views it is part of.
StepObserver = Callable[[str, str, tuple[str, ...]], object]


class Circuit:
    """Views over changing relations, maintained by deltas.

    All methods may be called from several threads. ``step``, ``prepare``, ``restore`` and ``load``
    are writers: a thread waits for its turn while another thread makes a step, from ``prepare``
    until the step is committed, abandoned or dropped. All other methods are readers: they never
    wait, and see the state after the last commit.

    Args:
        spec: The plans, inputs and options.
        clock: Returns seconds, for the times in `explain` and for ``limits.max_seconds``.

    Attributes:
        spec: The spec that the circuit was built from.
        inputs: The schema of each input relation, by name.
        plans: The plan of each view, by name.
        outputs: The views that ``step`` returns.
        materialized: The views and inputs that are kept whole.
        input_options: The options of the inputs that have any, by name.
        limits: The rows, bytes and seconds that a step, or a query, may use.
        fingerprint: A hash of the inputs, the views and the names of the materialized relations. A
            circuit can load the state of a circuit with the same fingerprint.

    Raises:
        SchemaError: A schema has a column of a type that is not supported.
        CircuitError: A view is nested too deeply.
        InputOptionsError: The options of an input do not fit its schema, or a view does not allow
            the retention of its inputs (`circuits.inputs.finality`).

    >>> from circuits import compile_sql
    >>> circuit = compile_sql("SELECT src FROM e", {"e": "src bigint, dst bigint"})
    >>> circuit.step({"e": [{"src": 1, "dst": 2}, {"src": 1, "dst": 3}]})["view"].to_pylist()
    [{'src': 1, 'weight': 2}]
    >>> circuit
    <Circuit of view from e: 1 step>
    """

    def __init__(
        self,
        spec: CircuitSpec,
        *,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        check_type("spec", spec, CircuitSpec, "a CircuitSpec, or call compile_sql(...)")
        options = spec.options
        self.spec = spec
        self.inputs = schemas_of(spec.schemas)
        self.plans = spec.plans
        self.outputs = spec.outputs
        self.materialized = spec.materialized
        self.input_options = spec.input_options
        self.limits = options.limits
        self._schemas = {name: Schema(name, plan.fields) for name, plan in self.plans.items()}
        self._join_options = JoinOptions(parse_formula(options.formula), options.max_iterations)
        self._workers = workers_of(options.threads)
        self._clock = clock
        self._observer: StepObserver | None = None
        try:
            # For each input with ``on_expiry="keep"``: the functions of its event time that views
            # group by.
            self._group_functions = check_finality(self.plans, self.inputs, self.input_options)
            self._event_times = spec.event_times
            self.fingerprint = spec.fingerprint
            self._state = CurrentState(self.build_graph, self._observe_graph)
            # The names of the traces of materialized relations, the same in any graph of the plans.
            names = self.graph.registry.names
            self._traces = {
                name: names[id(integral.trace)] for name, integral in self._state.integrals.items()
            }
        except RecursionError:
            raise CircuitError(
                "a view is nested too deeply; put parts of it in views of their own"
            ) from None

    @property
    def threads(self) -> int:
        """The number of threads that share the work of a large step."""
        return 1 if self._workers is None else self._workers.threads

    @property
    def graph(self) -> Graph:
        """The operators with their state; a step may be writing to it."""
        return self._state.graph

    @property
    def codecs(self) -> Codecs:
        """The dictionaries of values; a step may be adding to them."""
        return self._state.codecs

    def __repr__(self) -> str:
        steps = self._state.published.steps
        keeps = f", keeps {', '.join(self.materialized)}" if self.materialized else ""
        return (
            f"<Circuit of {', '.join(self.plans) or 'no views'} from "
            f"{', '.join(self.inputs) or 'no inputs'}: {steps:,} step{'s' * (steps != 1)}{keeps}>"
        )

    def _repr_html_(self) -> str:
        """The inputs and views as a table, for notebooks."""
        version = self._state.published
        rows = []
        for name, schema in {**self.inputs, **self._schemas}.items():
            columns = ", ".join(f"{field.name} {field.type}" for field in schema.fields)
            row_count = version.trace(self._traces[name]).rows if name in self._traces else None
            cells = (
                "view" if name in self._schemas else "input",
                name,
                columns,
                "not kept" if row_count is None else f"{row_count:,}",
            )
            rows.append("".join(f"<td>{escape(cell)}</td>" for cell in cells))
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        return (
            f"<p>{escape(repr(self))}</p><table><thead><tr><th></th><th>name</th><th>columns</th>"
            f"<th>rows</th></tr></thead><tbody>{body}</tbody></table>"
        )

    def step(
        self,
        tables: Mapping[str, Rows],
        watermarks: Mapping[str, Any] | None = None,
        *,
        now: datetime | pa.TimestampScalar | None = None,
        timeout: float | None = None,
    ) -> dict[str, pa.Table]:
        """Apply one step of changes and return the delta of every output.

        Args:
            tables: The rows of each input relation, with an optional integer column ``weight``; a
                relation without rows does not change. Rows are a `pa.Table` or RecordBatches, a
                frame (of pandas, polars or DuckDB: anything with ``__arrow_c_stream__``), or a
                list of dicts, in which a missing key is NULL (`circuits.inputs.tables`).
            watermarks: As for `prepare`.
            now: As for `prepare`.
            timeout: As for `prepare`.

        Returns:
            A table of the changed rows with their ``weight``, for every output.

        Raises:
            UnknownInputError, SchemaError: A table does not fit its input; nothing has changed.
            EvaluationError: An expression has no value for a row; nothing has changed.
            IterationError: A recursion has not converged; nothing has changed.
            StepLimitError: The step uses more than ``limits`` allow; nothing has changed.
            StepMemoryError: The step runs out of memory; nothing has changed.
            WeightOverflowError: A weight would leave int64; nothing has changed.
            MissingRowError: A strict input gets a deletion of a row that does not exist; nothing
                has changed. Other rejected rows are left out; `prepare` returns them.
            BusyCircuitError: As `prepare`; nothing has changed.

        Complexity:
            That of the incremental operators: for joins, the AGM bound of the delta terms; for
            linear operators, the size of the delta. Nothing is proportional to the state.

        >>> import pandas
        >>> from circuits import compile_sql
        >>> people = compile_sql("SELECT name FROM p WHERE age > 20", {"p": "name text, age int"})
        >>> people.step({"p": pandas.DataFrame({"name": ["ann"], "age": [30]})})["view"].to_pylist()
        [{'name': 'ann', 'weight': 1}]
        >>> people.step({"p": [{"name": "bob", "age": 40}, {"name": "eve"}]})["view"].to_pylist()
        [{'name': 'bob', 'weight': 1}]
        >>> people.step({"p": [{"nmae": "bob", "age": 40}]})
        Traceback (most recent call last):
        circuits.errors.SchemaError: relation 'p': the table has surplus or repeated \
columns 'nmae'; the relation needs name, age and may have weight
        """
        prepared = self.prepare(tables, watermarks, now=now, timeout=timeout)
        for rejected in chain.from_iterable(prepared.rejected.values()):
            if rejected.reason == MISSING:
                prepared.abandon()
                raise MissingRowError(rejected.message)
        prepared.commit()
        return prepared.outputs

    def prepare(
        self,
        tables: Mapping[str, Rows],
        watermarks: Mapping[str, Any] | None = None,
        *,
        now: datetime | pa.TimestampScalar | None = None,
        timeout: float | None = None,
    ) -> CircuitStep:
        """Validate and compute a step; the state does not change before ``commit``.

        The step holds the turn to write until it is committed, abandoned, or no longer referred
        to; other threads wait until then. One thread may prepare several steps at one state: the
        first one that is committed takes effect, and the others become stale.

        Args:
            tables: As for `step`.
            watermarks: For inputs with lateness or retention, the watermark of the source, of the
                type of the event time column. With lateness, rows before it are late from the next
                step on. With retention only, rows expire that are older than the watermark by more
                than the duration of the retention.
            now: The time of the step, the value of ``now()`` in all views. It is needed if a view
                reads it (`reads_now`), and ignored otherwise. A time without a zone is in UTC. Time
                never goes back: instead of an earlier time, that of the previous step is used.
            timeout: Seconds to wait for the step of another thread; 0 does not wait, None waits
                without a limit.

        Raises:
            InputOptionsError: A watermark is of another type, or of an input without lateness
                and retention.
            BusyCircuitError: Another thread still makes a step when ``timeout`` is over, or this
                thread is already in a step.
            CircuitError: ``now`` is missing; or as `step`, except `MissingRowError`: these rows are
                in ``rejected``.
        """
        self._state.check_readable()
        if watermarks is None:
            watermarks = {}
        microseconds = microseconds_of(now) if self.reads_now else None
        turn = self._state.turns.take(timeout)
        try:
            return self._state.turns.run_exclusively(
                self._prepare, tables, watermarks, microseconds, turn
            )
        except BaseException:
            self._state.turns.end(turn)
            raise

    @property
    def reads_now(self) -> bool:
        """True if a view compares with ``now()``, so that `prepare` and `step` need a time."""
        return self.graph.reads_now

    @property
    def watermarks(self) -> dict[str, pa.Scalar]:
        """The watermark of each input with lateness or retention, after the last commit.

        An input without a watermark so far is left out.

        >>> from circuits import InputOptions, Lateness, compile_sql
        >>> options = {"e": InputOptions(lateness=Lateness("day", 2))}
        >>> circuit = compile_sql("SELECT day FROM e", {"e": "day bigint"}, input_options=options)
        >>> step = circuit.step({"e": [{"day": 10}]})
        >>> circuit.watermarks
        {'e': <pyarrow.Int64Scalar: 8>}
        """
        state = self.committed
        watermarks = {name: state.watermarks.get(watermark_of(name)) for name in self.input_options}
        return {
            name: state.graph.checked_inputs[name].decode_watermark(watermark)
            for name, watermark in watermarks.items()
            if watermark is not None
        }

    @property
    def emits_on_window_close(self) -> bool:
        """True if a view emits its rows when they are final (EMIT ON WINDOW CLOSE)."""
        return any(node.plan.reads_watermarks for node in self.graph.nodes)

    def _prepare(
        self,
        tables: Mapping[str, Rows],
        watermarks: Mapping[str, Any],
        now: int | None,
        turn: WriterTurn,
    ) -> CircuitStep:
        with working_with(self._workers):
            return self._compute(tables, watermarks, now, turn)

    def _compute(
        self,
        tables: Mapping[str, Rows],
        watermarks: Mapping[str, Any],
        now: int | None,
        turn: WriterTurn,
    ) -> CircuitStep:
        self._state.check_writable()
        turn.version = self._state.version
        dictionary_lengths = self._state.truncate_dictionaries()
        previous_watermarks = self.graph.watermarks
        times = [self._clock()]
        budget = Budget(self.limits, self._clock)
        try:
            with name_limit_errors(self.graph, budget):
                encoded = self._encode(tables, watermarks, self.graph.checked_inputs, self.codecs)
                times.append(self._clock())
                step = self.graph.prepare(encoded.zsets, encoded.watermarks, budget, now)
                times.append(self._clock())
                outputs = self._decode(step, budget)
                rejected = {
                    name: [
                        self.graph.checked_inputs[name].decode_rejected(
                            rows, previous_watermarks.get(watermark_of(name))
                        )
                        for rows in rejected_rows
                    ]
                    for name, rejected_rows in step.rejected.items()
                }
        except BaseException as error:
            self.graph.registry.truncate(dictionary_lengths)  # remove the codes of the failed step
            raise_interrupt(error)
            raise
        times.append(self._clock())
        return CircuitStep(
            outputs,
            step,
            self,
            self._state.version,
            encoded.zsets,
            (dictionary_lengths, self.graph.registry.lengths()),
            rejected,
            {
                phase: end - start
                for phase, (start, end) in zip(PREPARE_PHASES, pairwise(times), strict=True)
            },
            turn,
        )

    def _decode(self, step: GraphStep, budget: Budget) -> dict[str, pa.Table]:
        """Return the delta of each output as a table."""
        views = self.graph.views
        deltas = {name: step.deltas[views[name]] for name in self.outputs}
        tasks = []
        for name, delta in deltas.items():
            if len(delta) >= MIN_PARALLEL_ROWS:
                tasks.append(partial(self._schemas[name].to_table, delta, self.codecs))
        large: Iterator[pa.Table] = iter(())
        if len(tasks) > 1:
            budget.check_time()
            try:
                large = iter(run_tasks(tasks))
            except Exception as error:  # it comes again below, with the name of its view
                raise_interrupt(error)
        outputs = {}
        for name, delta in deltas.items():
            schema = self._schemas[name]
            if not len(delta.weight_array):
                outputs[name] = schema.empty_table
                continue
            budget.start_operator(views[name])
            table = next(large, None) if len(delta) >= MIN_PARALLEL_ROWS else None
            outputs[name] = schema.to_table(delta, self.codecs) if table is None else table
        return outputs

    def check_step(self, step: CircuitStep) -> None:
        """Check that a step can still be committed.

        Raises:
            StaleStepError, BrokenCircuitError: As `CircuitStep.commit`.
        """
        self._state.check_step(step)

    @observed(COMMIT)
    def commit_step(self, step: CircuitStep) -> None:
        """Make a prepared step the state; see `CircuitStep.commit`."""
        with working_with(self._workers):
            self._state.commit(step)

    def abandon_step(self, step: CircuitStep) -> None:
        """Give up a prepared step; see `CircuitStep.abandon`."""
        self._state.abandon(step)

    def view_after(self, step: CircuitStep, name: str) -> PostStepView:
        """Return a materialized view or input as it will be after a step: `CircuitStep.after`."""
        self.check_step(step)
        self.views.trace(name)  # an error if the view does not exist or is not materialized
        integral = self._state.integrals[name]
        delta = step.graph_step.deltas[self.graph.position_of(integral)]
        return PostStepView(self.schema(name), self.codecs, integral, delta)

    def digests(self, tables: Mapping[str, Rows]) -> dict[str, int]:
        """Return the checksums of these rows (`CircuitStep.digests`) without computing a step.

        Raises:
            As `prepare`, for faults of the tables.
        """
        codecs = self.committed.codecs()
        checked = {
            name: self._checked_input(name, codecs, Relations()) for name in self.input_options
        }
        return self._digests_of(self._encode(tables, {}, checked, codecs).zsets, checked, codecs)

    def digests_of_step(self, step: CircuitStep) -> dict[str, int]:
        """Return the checksums of the rows of a step; see `CircuitStep.digests`."""
        return self._digests_of(step.inputs, self.graph.checked_inputs, self.codecs)

    def _digests_of(
        self,
        zsets: Mapping[str, ZSet | EncodedRows],
        checked: Mapping[str, CheckedInput],
        codecs: Codecs,
    ) -> dict[str, int]:
        coded = {
            name: checked[name].coded_columns
            if name in checked
            else field_codecs(self.inputs[name].fields, codecs)
            for name in zsets
        }
        return digests_of(zsets, coded)

    def schema(self, name: str) -> Schema:
        """The columns of an input or a view.

        Raises:
            UnknownViewError: There is no input or view of that name.
        """
        check_type("name", name, str, "the name of an input or a view")
        schema = self._schemas.get(name) or self.inputs.get(name)
        if schema is None:
            known = ", ".join([*self.inputs, *self._schemas])
            raise UnknownViewError(
                f"{name!r} is no input or view of the circuit; known are {known}"
            )
        return schema

    def add_tables(self, name: str, tables: Iterable[pa.Table]) -> pa.Table:
        """Return the sum of some deltas of a view: each row once, with the sum of its weights.

        Raises:
            UnknownViewError: There is no view of that name.
            SchemaError: A table does not have the columns of the view.
        """
        schema, codecs = self.schema(name), self.committed.codecs()
        zsets = [schema.to_zset(table, codecs) for table in tables]
        return schema.to_table(sum(zsets, ZSet.empty(schema.arity)), codecs)

    @property
    def fingerprints(self) -> Mapping[str, str]:
        """The fingerprints of everything that state depends on; see `CircuitSpec`."""
        return self.spec.fingerprints

    @property
    def recursions(self) -> tuple[tuple[str, ...], ...]:
        """The names of the relations of each recursion; none without recursive views."""
        return tuple(nested.names for nested in self.graph.recursions)

    @property
    def views(self) -> Views:
        """The materialized views and inputs: a mapping from names to tables.

        All tables are of the version that is committed when this property is read. A table is
        built when its name is looked up, in O(rows).

        Raises:
            BrokenCircuitError: An earlier commit failed half-way.
        """
        return self._views_of(self.committed)

    @property
    def committed(self) -> CircuitVersion:
        """The state after the last commit, for readers in any thread; O(1).

        Raises:
            BrokenCircuitError: An earlier commit failed half-way.
        """
        return self._state.committed

    def query(
        self,
        text: str,
        *,
        dialect: str | None = None,
        functions: Mapping[str, UserFunction] | None = None,
    ) -> pa.Table:
        """Answer a query from the state as it is, without registering a view.

        The query reads the last committed version. It adds no codes and no arrangements.

        Args:
            text: A SELECT, or Datalog rules, whose last head is the answer. The text may read the
                materialized views and inputs, and the inputs that a join or an input option keeps
                whole.
            dialect: The dialect of a SELECT; by default that of the views.
            functions: User-defined functions that the query can call, besides those of the views.
                They are called for the rows of the query; to read the results that a view stores,
                select them from the view.

        Returns:
            A table of the rows, with ``weight``. With ORDER BY, in that order and each occurrence
            of a row apart.

        Raises:
            SqlError, DatalogError: The text is invalid, unsupported or names an unknown relation.
            CircuitError: A recursion has not converged.
            StepLimitError: The query uses more than ``limits`` of the circuit allow a step.
            BrokenCircuitError: An earlier commit failed half-way.

        Complexity:
            That of the query: joins are worst-case optimal, and use existing arrangements.
        """
        check_type("text", text, str, "a SELECT or Datalog rules as a text")
        source = self.spec.source
        if dialect is None:
            dialect = "duckdb" if source is None else source.dialect
        check_type("dialect", dialect, str, "the name of a dialect of sqlglot")
        state = self.committed
        stored = stored_relations(state, self._views_of(state), self.inputs, self._schemas)
        try:
            return answer_query(
                text,
                stored,
                state.codecs(),
                dialect=dialect,
                join_options=self._join_options,
                budget=Budget(self.limits, self._clock),
                functions=self.spec.functions | check_functions(functions),
                tables=self._computed_tables,
            )
        except TextError as error:
            missing = [name for name in (*self.inputs, *self._schemas) if name not in stored]
            if any(re.search(rf"\b{re.escape(name)}\b", text) for name in missing):
                error.add_note(
                    f"a query can read {', '.join(stored) or 'no relation'}; to read "
                    f"{', '.join(missing)} too, make the circuit with materialize=True"
                )
            raise

    def observe(self, observer: StepObserver | None) -> None:
        """Call a function before each operator that a step runs; None stops the calls.

        A step runs the inputs, the operators of which an input has changed, and those whose result
        or state depends on the time.

        The call is ``observer(name, kind, views)``, in the thread of the step: the name of the
        operator as in `explain`, its kind, and the views that it is part of. It must not raise an
        error. The calls go on after `load` and `restore`. Complexity: O(1) per operator of a step,
        and O(operators * views) once.
        """
        self._observer = observer
        self._observe_graph(self.graph)

    def _observe_graph(self, graph: Graph) -> None:
        """Let the operators of a graph call the observer."""
        observer = self._observer
        if observer is None:
            graph.observer = None
            return
        arguments = self._observer_arguments
        graph.observer = lambda position: observer(*arguments[position])

    @cached_property
    def _observer_arguments(self) -> list[tuple[str, str, tuple[str, ...]]]:
        """The arguments of a `StepObserver` by position: the same in any graph of the plans."""
        views = self.graph.views_of()
        return [
            (node.name, operator_kind(node.plan), views[position])
            for position, node in enumerate(self.graph.nodes)
        ]

    def explain(self, format: str = "text") -> str:
        """Return the operators that run, with the rows and the seconds of each so far.

        If an input has lateness or retention, the text ends with the state of each operator: the
        rows that it keeps, or that nothing bounds them.

        Args:
            format: "text" for a tree per view, "mermaid" for a drawing.

        Raises:
            CircuitError: The format does not exist.
        """
        check_type("format", format, str, "'text' or 'mermaid'")
        drawings = {"text": draw_tree, "mermaid": draw_mermaid}
        if format not in drawings:
            raise CircuitError(f"no format {format!r}; formats are {', '.join(drawings)}")
        return drawings[format](self._state.published)

    def state_sizes(self) -> list[StateSize]:
        """Return the rows that each operator keeps, and the bound of their number; O(runs).

        >>> from circuits import InputOptions, Lateness, compile_sql
        >>> circuit = compile_sql(
        ...     "SELECT date_trunc('hour', at) AS hour, count(*) AS n FROM clicks GROUP BY 1",
        ...     {"clicks": "at timestamp"},
        ...     input_options={"clicks": InputOptions(lateness=Lateness("at", "5 minutes"))},
        ... )
        >>> [size.bound for size in circuit.state_sizes()]
        ["groups with date_trunc('hour', at) >= date_trunc('hour', watermark of clicks)"]
        """
        return state_sizes(self._state.published)

    def snapshot(self) -> Snapshot:
        """Return all state after the last commit as a value that can be pickled; O(state)."""
        return take_snapshot(self.committed, self.fingerprint)

    def restore(self, snapshot: Snapshot, *, timeout: float | None = None) -> None:
        """Replace the state by that of a snapshot of a circuit with the same views.

        The formula and the number of threads may differ.

        Args:
            snapshot: A value that `snapshot` returned.
            timeout: As for `prepare`.

        Raises:
            SnapshotError: The snapshot is of other views or inputs; nothing has changed.
            BusyCircuitError: As `prepare`; nothing has changed.
        """
        self.load(open_snapshot(snapshot, self.fingerprint), timeout=timeout)

    def load(self, state: State, *, timeout: float | None = None) -> None:
        """Replace all state; this also repairs a broken circuit.

        The state may come from a circuit with another formula and other outputs. The caller
        makes sure that it belongs to the same views and inputs (`fingerprint`); a state without the
        traces that these need raises an error. Prepared steps become stale.

        Args:
            state: The new state.
            timeout: As for `prepare`.

        Raises:
            SnapshotError: The state does not fit; nothing has changed.
            BusyCircuitError: As `prepare`; nothing has changed.
            MemoryError: The circuit may be broken until the next load, as after an interrupt.

        Complexity:
            O(runs + bytes of the dictionaries). If the joins of the state are planned otherwise
            than those of the circuit, or a view has constant strings, the operators are built again
            as well. With another formula also O(rows) for each arrangement that is not in the
            state.
        """
        check_type("state", state, State, "a State")
        self._state.load(state, timeout)

    def with_spec(self, spec: CircuitSpec) -> Circuit:
        """Return a circuit of another program without rows, with the threads of this one."""
        options = replace(spec.options, threads=self.spec.options.threads)
        return Circuit(replace(spec, options=options), clock=self._clock)

    def replace_runs(self, runs: Mapping[str, Mapping[ColumnOrder, Sequence[Run]]]) -> None:
        """Replace the runs of some arrangements by others that have the same sum.

        A run is a sorted piece of a trace. The state stays the same, only its place changes, for
        example from memory to memory maps of files. The old runs are freed once no reader has a
        version with them.

        Args:
            runs: The runs, oldest first, by trace and column order, of the committed state.

        Raises:
            BrokenCircuitError: A commit has failed.

        Complexity:
            O(runs).
        """
        self._state.replace_runs(runs)

    def move_dictionaries(self, memories: Mapping[str, ArrayMemory]) -> None:
        """Move the values of some dictionaries to other memory, for example to maps of files.

        Args:
            memories: The memory for the values of each dictionary (`Interner.move`).

        Raises:
            BrokenCircuitError: A commit has failed.

        Complexity:
            O(bytes of the values).
        """
        self._state.move_dictionaries(memories)

    def run_exclusively(self, work: Callable[[], R]) -> R:
        """Call a function while no other thread computes, commits or abandons a step.

        For work that adds values to the dictionaries without a step.

        Raises:
            BusyCircuitError: This thread is computing a step.
        """
        return self._state.turns.run_exclusively(work)

    def keep_values(self, is_kept: bool) -> None:
        """Remove no values from the dictionaries while another circuit computes rows with them.

        Args:
            is_kept: False to remove them again. Loading a state does this as well.
        """
        self._state.keep_values(is_kept)

    def keep_codes(self) -> None:
        """Keep the codes that were added to the dictionaries since the last commit.

        Otherwise the next step removes them. No step may be prepared. O(dictionaries + traces).
        """
        self._state.keep_codes()

    def end(self) -> None:
        """Accept no more steps, because another circuit goes on with the state of this one."""
        self._state.end()

    def undo_end(self) -> None:
        """Accept steps again after `end`, because no other circuit goes on with the state."""
        self._state.undo_end()

    @property
    def is_ended(self) -> bool:
        """True after `end`, until a state is loaded."""
        return self._state.is_ended

    def adopt(
        self,
        codecs: Codecs,
        graph: Graph,
        integrals: dict[str, Integrate],
        *,
        timeout: float | None = None,
    ) -> None:
        """Make a graph with its state the state of this circuit, as `load` does.

        Args:
            codecs: The dictionaries of values of the graph.
            graph: A result of `build_graph`, with state (`circuits.state.program_change`).
            integrals: The other result.
            timeout: As for `prepare`.

        Raises:
            BusyCircuitError: As `prepare`; nothing has changed.
        """
        self._state.adopt(codecs, graph, integrals, timeout)

    @property
    def inputs_with_lateness(self) -> list[str]:
        """The inputs with lateness, whose old rows may leave the state."""
        return [name for name, options in self.input_options.items() if options.lateness]

    def build_graph(self, codecs: Codecs) -> tuple[Graph, dict[str, Integrate]]:
        """Build the operators without state, and return those that keep materialized relations.

        Args:
            codecs: The dictionaries of values.
        """
        fields = {name: schema.fields for name, schema in self.inputs.items()}
        graph = incrementalize(
            self.plans,
            fields,
            codecs=codecs,
            join_options=self._join_options,
            clock=self._clock,
            bounded_inputs=self.inputs_with_lateness,
        )
        input_positions = {name: graph.add_input(name, columns) for name, columns in fields.items()}
        for name in self.input_options:
            graph.add_checked_input(name, self._checked_input(name, codecs, graph.relations))
        positions = {**input_positions, **graph.views}
        # Views keep their results when a row of these inputs expires (`circuits.inputs.finality`).
        kept_inputs = self._group_functions.keys()
        integrals = {
            name: graph.integrate(positions[name], retained=name in kept_inputs)
            for name in self.materialized
        }
        graph.bound_state(self.spec.given_bounds)
        return graph, integrals

    @cached_property
    def _computed_tables(self) -> dict[str, PlanNode]:
        """The plans of the inputs that are declared with computed columns."""
        source = self.spec.source
        if source is None or source.language != "sql":
            return {}
        fields = {name: schema.fields for name, schema in self.inputs.items()}
        return computed_tables(
            source.text, fields, dialect=source.dialect, functions=self.spec.functions
        )

    def _checked_input(self, name: str, codecs: Codecs, relations: Relations) -> CheckedInput:
        return CheckedInput(
            self.inputs[name],
            self.input_options[name],
            codecs,
            relations,
            self._group_functions.get(name, ()),
            self._event_times.get(name),
        )

    def _views_of(self, state: CircuitVersion) -> Views:
        return Views(state, self._traces, {**self.inputs, **self._schemas})

    def _encode(
        self,
        tables: Mapping[str, Rows],
        watermarks: Mapping[str, Any],
        checked: Mapping[str, CheckedInput],
        codecs: Codecs,
    ) -> EncodedInputs:
        return encode_inputs(tables, watermarks, self.inputs, checked, codecs, self.graph)


@dataclass
class CircuitStep(Staged):
    """A computed step: its ``outputs``, and ``commit`` to make it the state.

    Attributes:
        outputs: The delta of every output.
        graph_step: The deltas of all operators.
        circuit: The circuit of the step.
        version: The version of the circuit at which the step was prepared.
        inputs: The encoded rows of each input, before its options apply.
        lengths: The lengths of all dictionaries before and after preparing.
        rejected: Per input, the rows that its options reject; inputs without any are left out.
        seconds: The seconds that preparing took, by `PREPARE_PHASES`.
        turn: The turn that keeps other threads from preparing a step until this one ends.
        is_abandoned: True after `abandon`; the step can no longer be committed.
    """

    outputs: dict[str, pa.Table]
    graph_step: GraphStep
    circuit: Circuit
    version: int
    inputs: Mapping[str, ZSet | EncodedRows] = field(default_factory=dict)
    lengths: tuple[Mapping[str, int], Mapping[str, int]] = ({}, {})
    rejected: Mapping[str, Sequence[RejectedRows]] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    turn: WriterTurn | None = None
    is_abandoned: bool = field(default=False, init=False)

    @property
    def changes(self) -> Iterable[TraceStep]:
        """The staged deltas of all traces that change."""
        return self.graph_step.changes

    def commit(self) -> None:
        """Make the step the state of the circuit; any thread may call this.

        Other threads read the state before the step until this returns.

        Raises:
            StaleStepError: Another step was committed since, or this one already was, or it was
                abandoned.
            BrokenCircuitError: An earlier commit failed half-way.
            BusyCircuitError: This thread is preparing another step at this moment.
        """
        self.circuit.commit_step(self)

    def state(self, stored: Mapping[str, int]) -> StateStep:
        """Return the part that the step adds to the state, to be written before the commit.

        Args:
            stored: By the name of a dictionary, how many of its values are written already. A
                dictionary that is not named has none.

        Raises:
            StaleStepError: As `commit`.
            SnapshotError: A dictionary has fewer values than ``stored`` says.

        Complexity:
            O(arrangements of the circuit + values that are new to the dictionaries).
        """
        self.circuit.check_step(self)
        check_type("stored", stored, Mapping, "a mapping from names of dictionaries to lengths")
        return step_state(self.graph_step, stored)

    def abandon(self) -> None:
        """Give up the step, and remove the codes that preparing added.

        The turn of the thread that prepared the step ends, so that another thread can prepare one.
        If another step has added codes since, the codes stay, which does no harm. A step that was
        committed stays the state.
        """
        self.circuit.abandon_step(self)

    def checked_delta(self, name: str) -> pa.Table | None:
        """Return the delta of an input after its options apply; None if it has no options.

        The rows of an input without options are its delta.

        Complexity:
            O(rows of the delta).
        """
        graph = self.graph_step.graph
        if name not in graph.checked_inputs:
            return None
        delta = self.graph_step.deltas[graph.position_of_input(name)]
        return self.circuit.inputs[name].to_table(delta, graph.codecs)

    @property
    def missing_deletions(self) -> Mapping[str, int]:
        """Per input, the number of rows that the step deletes more often than they exist.

        An input without ``strict`` keeps their negative weights, each of which cancels a later
        insertion. The count is exact for a materialized input and a lower bound for an input that
        joins read. Inputs with keys, and inputs that no join reads, are left out.
        """
        return self.graph_step.missing

    def after(self, view: str) -> PostStepView:
        """Return a materialized view or input as it will be after the step.

        Raises:
            UnknownViewError: There is no view or input of that name, or it is not materialized.
            StaleStepError: As `commit`.
        """
        return self.circuit.view_after(self, view)

    @cached_property
    def digests(self) -> dict[str, int]:
        """A checksum of the rows of each input, independent of their order and chunks.

        Columns that no view reads are left out. A replay of the step has the same checksums
        (`Circuit.digests`), also after a restart. Read them before the commit.
        """
        return self.circuit.digests_of_step(self)
