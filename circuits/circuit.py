"""Circuit: views over changing relations, stepped together and all or nothing.

A step takes a table of changed rows per input and gives one per view. Values are
encoded at the edge, operators work on Z-sets of codes (`circuits.runtime.graph`), and what comes
out is decoded again. By the chain rule the circuit of incremental operators is the incremental
circuit::

    Σ outputs of step(d_t)  =  view(Σ d_t)

Invariant: a step is all or nothing. ``prepare`` encodes and validates every table, then computes
every delta without touching state; ``commit`` swaps the new state in. An error before ``commit``
leaves the circuit as it was; one inside ``commit`` (out of memory, say) closes it for good.
``prepare`` and ``commit`` are apart so that a durable sink can write the delta in between.

Threads: one writer at a time (`circuits.runtime.writer_lock`), and any number of readers, each of
which sees the last committed version to the end of its read (`circuits.runtime.circuit_version`).

Make one with `circuits.compile_sql` or `circuits.compile_datalog`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from itertools import chain, pairwise
from time import perf_counter
from typing import Any, Final
from zlib import crc32

import numpy as np
import pyarrow as pa

from circuits.circuit_spec import CircuitSpec
from circuits.errors import (
    BrokenCircuitError,
    CircuitError,
    InputOptionsError,
    MissingRowError,
    StaleStepError,
    TextError,
    UnknownViewError,
)
from circuits.inputs.checked_input import CheckedInput, unretained
from circuits.inputs.finality import group_functions
from circuits.inputs.rejected_rows import MISSING, RejectedRows
from circuits.inputs.tables import Rows, check_input, tables_of
from circuits.limits import bounded
from circuits.plan.nodes import Fields
from circuits.runtime.circuit_version import CircuitVersion
from circuits.runtime.graph import Graph, GraphStep, watermark_of
from circuits.runtime.incrementalize import incrementalize
from circuits.runtime.one_shot import answer_query
from circuits.runtime.operators.integrate import Integrate
from circuits.runtime.operators.join import JoinOptions
from circuits.runtime.plan_drawing import draw_mermaid, draw_tree
from circuits.runtime.post_step_view import PostStepView
from circuits.runtime.views import Views
from circuits.runtime.writer_lock import WriterLock, WriterTurn
from circuits.schema import Schema, schemas_of
from circuits.state.circuit_state import State, StateStep, codecs_of, load_state, step_state
from circuits.state.registry import relation_trace
from circuits.state.snapshot import Snapshot, open_snapshot, take_snapshot
from circuits.types.codecs.codec import Codecs
from dbsp_wcoj import Relations, Trace, ZSet
from dbsp_wcoj.arguments import check_type
from dbsp_wcoj.limits import Budget
from dbsp_wcoj.planning.formula_candidates import parse_formula
from dbsp_wcoj.storage.trace import Staged, TraceStep

__all__ = ["PHASES", "Circuit", "CircuitStep", "StepObserver"]

#: The phases of preparing a step: values to codes, the operators, codes to values.
PHASES: Final = ("encode", "step", "output")

#: Is told of an operator before it is evaluated: its name, its kind, the views it is a part of.
StepObserver = Callable[[str, str, tuple[str, ...]], object]


class Circuit:
    """Views over changing relations, maintained by deltas.

    All methods may be called from several threads. ``step``, ``prepare``, ``restore`` and ``load``
    are writers: a thread waits for its turn while another one makes a step, from its ``prepare``
    until that is committed, abandoned or dropped. All other methods are readers: they wait for
    nobody, and see the state after the last commit.

    Args:
        spec: The plans, inputs and options.
        executor: A thread pool for the joins of large steps; None uses the calling thread alone.
        clock: Returns seconds, for the times in `explain` and for ``limits.max_seconds``.

    Attributes:
        definition: The spec that the circuit was built from.
        inputs: The schema of each input relation, by name.
        plans: The plan of each view, by name.
        outputs: The views that ``step`` returns.
        materialized: The views and inputs that are kept whole.
        input_options: The options of the inputs that have any, by name.
        limits: The rows, bytes and seconds that a step, or a query, may use.
        fingerprint: All fingerprints of the spec as one.
        graph: The operators with their state; a step may be writing to it.
        codecs: The dictionaries of values; a step may be adding to them.

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
        executor: Executor | None = None,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        check_type("spec", spec, CircuitSpec, "a CircuitSpec, or call compile_sql(...)")
        options = spec.options
        self.definition = spec
        self.inputs = schemas_of(spec.schemas)
        self.plans = spec.plans
        self.outputs = spec.outputs
        self.materialized = spec.materialized
        self.input_options = spec.input_options
        self.limits = options.limits
        self._schemas = {name: Schema(name, plan.fields) for name, plan in self.plans.items()}
        self._join_options = JoinOptions(
            parse_formula(options.formula), executor, options.parts, options.max_iterations
        )
        self._clock = clock
        self._version = 0
        # Set during a commit, and for good if the commit fails.
        self._broken = False
        # Set if a commit failed. Readers are refused only then.
        self._lost = False
        self._observed: list[tuple[str, str, tuple[str, ...]]] | None = None
        self._turns = WriterLock()
        self.codecs = Codecs()
        try:
            self._groups = group_functions(self.plans, self.inputs, self.input_options)
            self.fingerprint = spec.fingerprint
            self.graph, self._integrals = self._build_graph(self.codecs)
            self._committed = CircuitVersion.of(self.graph)
            # The names of the traces of materialized relations, the same in any graph of the plans.
            names = self.graph.registry.names
            self._traces = {name: names[id(one.trace)] for name, one in self._integrals.items()}
        except RecursionError:
            raise CircuitError(
                "a view is nested too deeply; put parts of it in views of their own"
            ) from None

    def __repr__(self) -> str:
        steps = self._committed.steps
        kept = f", keeps {', '.join(self.materialized)}" if self.materialized else ""
        return (
            f"<Circuit of {', '.join(self.plans) or 'no views'} from "
            f"{', '.join(self.inputs) or 'no inputs'}: {steps:,} step{'s' * (steps != 1)}{kept}>"
        )

    def _repr_html_(self) -> str:
        """The inputs and views as a table, for notebooks."""
        version = self._committed
        rows = []
        for name, schema in {**self.inputs, **self._schemas}.items():
            columns = ", ".join(f"{field.name} {field.type}" for field in schema.fields)
            kept = version.trace(self._traces[name]).rows if name in self._traces else None
            cells = (
                "view" if name in self._schemas else "input",
                name,
                columns,
                "not kept" if kept is None else f"{kept:,}",
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
        timeout: float | None = None,
    ) -> dict[str, pa.Table]:
        """Apply the changes of one moment and return the change of every output.

        Args:
            tables: The rows of each input relation, with an optional integer column ``weight``; a
                relation without rows does not change. Rows are a `pa.Table` or RecordBatches, a
                frame (of pandas, polars or DuckDB: anything with ``__arrow_c_stream__``), or a
                list of dicts, in which a missing key is NULL (`circuits.inputs.tables`).
            watermarks: As for `prepare`.
            timeout: As for `prepare`.

        Returns:
            For every output a table of the changed rows, with ``weight``.

        Raises:
            UnknownInputError, SchemaError: A table is refused; nothing has changed.
            EvaluationError: An expression has no value for a row; nothing has changed.
            IterationError: A recursion does not end; nothing has changed.
            StepLimitError: The step uses more than ``limits`` allow; nothing has changed.
            StepMemoryError: The step needs more memory than there is; nothing has changed.
            WeightOverflowError: A weight would leave int64; nothing has changed.
            MissingRowError: A strict input is to lose what it does not have; nothing has changed.
                Other rows that rules refuse are left out; `prepare` says which.
            BusyCircuitError: As `prepare`; nothing has changed.

        >>> import pandas
        >>> from circuits import compile_sql
        >>> people = compile_sql("SELECT name FROM p WHERE age > 20", {"p": "name text, age int"})
        >>> people.step({"p": pandas.DataFrame({"name": ["ann"], "age": [30]})})["view"].to_pylist()
        [{'name': 'ann', 'weight': 1}]
        >>> people.step({"p": [{"name": "bob", "age": 40}, {"name": "eve"}]})["view"].to_pylist()
        [{'name': 'bob', 'weight': 1}]
        >>> people.step({"p": [{"nmae": "bob", "age": 40}]})
        Traceback (most recent call last):
        circuits.errors.SchemaError: relation 'p': surplus or repeated columns in ['name', 'age', \
'nmae']: 'nmae'; it needs name, age and may have weight
        """
        prepared = self.prepare(tables, watermarks, timeout=timeout)
        for refused in chain.from_iterable(prepared.refused.values()):
            if refused.reason == MISSING:
                prepared.abandon()
                raise MissingRowError(refused.message)
        prepared.commit()
        return prepared.outputs

    def prepare(
        self,
        tables: Mapping[str, Rows],
        watermarks: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
    ) -> CircuitStep:
        """Validate and compute a step; the state changes at ``commit`` and not before.

        The step has the turn to write until it is committed, abandoned, or nothing refers to it
        any more; other threads wait for that. One thread may prepare several steps at one state:
        the first that is committed counts, and the others are stale.

        Args:
            tables: As for `step`.
            watermarks: For retained inputs, a time of the column's type: rows before it, less
                the duration, are not expected any more and leave.
            timeout: Seconds to wait for another thread's step; 0 for not at all, None for as long
                as it takes.

        Raises:
            InputOptionsError: A watermark is of another type, or of an input without retention.
            BusyCircuitError: Another thread makes a step, and ``timeout`` is over; or this thread
                is within one. Nothing has happened.
            CircuitError: As `step`, but `MissingRowError`: rows are in ``refused`` instead.
        """
        self._check_whole()
        turn = self._turns.take(timeout)
        try:
            given = {} if watermarks is None else watermarks
            return self._turns.exclusively(self._prepared, tables, given, turn)
        except BaseException:
            self._turns.end(turn)
            raise

    def _prepared(
        self, tables: Mapping[str, Rows], watermarks: Mapping[str, Any], turn: WriterTurn
    ) -> CircuitStep:
        self._check_writable()
        known, marks = self._known(), self.graph.marks
        times = [self._clock()]
        budget = Budget(self.limits, self._clock)
        try:
            with bounded(self.graph, budget):
                given, moved = self._encoded(
                    tables, watermarks, self.codecs, self.graph.checked_inputs
                )
                times.append(self._clock())
                step = self.graph.prepare(given, moved, budget)
                times.append(self._clock())
                outputs = {}
                for name in self.outputs:
                    number = self.graph.views[name]
                    budget.start_operator(number)
                    delta = step.deltas[number]
                    outputs[name] = self._schemas[name].to_table(delta, self.codecs)
                refused = {
                    name: [
                        self.graph.checked_inputs[name].told(rows, marks.get(watermark_of(name)))
                        for rows in many
                    ]
                    for name, many in step.refused.items()
                }
        except BaseException:
            self.graph.registry.truncate(known)  # a step that is refused leaves no codes behind
            raise
        times.append(self._clock())
        return CircuitStep(
            outputs,
            step,
            self,
            self._version,
            given,
            (known, self.graph.registry.lengths()),
            refused,
            {name: b - a for name, (a, b) in zip(PHASES, pairwise(times), strict=True)},
            turn,
        )

    def _known(self) -> dict[str, int]:
        """The lengths of the tables of codes; those of steps that were dropped are taken back."""
        registry = self.graph.registry
        lengths, committed = registry.lengths(), self._committed.lengths
        if lengths == committed or self._turns.taken > 1:
            return lengths
        registry.truncate(committed)
        return registry.lengths()

    def digests(self, tables: Mapping[str, Rows]) -> dict[str, int]:
        """The checksums that a step of these rows has (`CircuitStep.digests`), without the step.

        Raises:
            As `prepare`, for what is wrong with the tables.
        """
        codecs = self.committed.codecs()
        rules = {
            name: CheckedInput(self.inputs[name], rules, codecs, Relations())
            for name, rules in self.input_options.items()
        }
        return digests_of(self._encoded(tables, {}, codecs, rules)[0])

    def schema(self, name: str) -> Schema:
        """The columns of an input or a view.

        Raises:
            UnknownViewError: There is none of that name.
        """
        check_type("name", name, str, "the name of an input or a view")
        found = self._schemas.get(name) or self.inputs.get(name)
        if found is None:
            known = ", ".join([*self.inputs, *self._schemas])
            raise UnknownViewError(
                f"{name!r} is no input or view of the circuit; known are {known}"
            )
        return found

    @property
    def fingerprints(self) -> Mapping[str, str]:
        """What state depends on, per input, view and for what is kept; see `CircuitSpec`."""
        return self.definition.fingerprints

    @property
    def recursions(self) -> tuple[tuple[str, ...], ...]:
        """The names of the relations of each recursion; none without recursive views."""
        return tuple(nested.names for nested in self.graph.recursions)

    @property
    def views(self) -> Views:
        """The materialized views and inputs as they are now: a mapping from names to tables.

        All are of the version that is the last one when ``views`` is asked for, and stay so. Each
        is put together when it is asked for, in O(rows).

        Raises:
            BrokenCircuitError: An earlier commit failed half-way.
        """
        return self._views(self.committed)

    @property
    def committed(self) -> CircuitVersion:
        """The state after the last commit, for readers in any thread; O(1).

        Raises:
            BrokenCircuitError: An earlier commit failed half-way.
        """
        self._check_whole()
        return self._committed

    def query(self, text: str, *, dialect: str = "duckdb") -> pa.Table:
        """Answer a query from the state as it is, without registering a view.

        It reads the last committed version and leaves nothing behind: no codes, no arrangements.

        Args:
            text: A SELECT, or Datalog rules, of which the last head is the answer; over the
                materialized views and inputs, and the inputs that a join reads whole.
            dialect: The dialect of a SELECT.

        Returns:
            A table of the rows, with ``weight``.

        Raises:
            SqlError, DatalogError: The text, or what it asks for, is not there or not supported.
            CircuitError: A recursion does not end.
            StepLimitError: The query uses more than ``limits`` of the circuit allow a step.
            BrokenCircuitError: An earlier commit failed half-way.

        Complexity:
            That of the query: joins are worst-case optimal, and read arrangements where there are.
        """
        check_type("text", text, str, "a SELECT or Datalog rules as a text")
        check_type("dialect", dialect, str, "the name of a dialect of sqlglot")
        state = self.committed
        kept = self._kept(state)
        try:
            return answer_query(
                text,
                kept,
                state.codecs(),
                dialect=dialect,
                joining=self._join_options,
                budget=Budget(self.limits, self._clock),
            )
        except TextError as error:
            missing = [name for name in (*self.inputs, *self._schemas) if name not in kept]
            if any(re.search(rf"\b{re.escape(name)}\b", text) for name in missing):
                error.add_note(
                    f"kept are {', '.join(kept) or 'none'}; {', '.join(missing)} can be asked for "
                    "in a circuit made with materialize=True"
                )
            raise

    def observe(self, observer: StepObserver | None) -> None:
        """Have a function told of each operator before a step evaluates it, or of none any more.

        It is called in the thread of the step, as ``observer(name, kind, views)``: the operator's
        name as in `explain`, what it does, and the views that it is a part of. It must not raise.
        Complexity: O(1) for each operator of a step, O(operators · views) once.
        """
        if observer is None:
            self.graph.observer = None
            return
        if self._observed is None:
            views = self.graph.views_of()
            self._observed = [
                (node.name, type(node.plan).__name__.lower(), views[number])
                for number, node in enumerate(self.graph.nodes)
            ]
        operators = self._observed
        self.graph.observer = lambda number: observer(*operators[number])

    def explain(self, format: str = "text") -> str:
        """The operators that run, with the rows and the time that each has taken so far.

        Args:
            format: "text" for a tree per view, "mermaid" for a drawing.

        Raises:
            CircuitError: There is no such format.
        """
        check_type("format", format, str, "'text' or 'mermaid'")
        drawings = {"text": draw_tree, "mermaid": draw_mermaid}
        if format not in drawings:
            raise CircuitError(f"no format {format!r}; formats are {', '.join(drawings)}")
        return drawings[format](self._committed)

    def snapshot(self) -> Snapshot:
        """All state after the last commit, as a value that can be pickled: O(state)."""
        return take_snapshot(self.committed, self.fingerprint)

    def restore(self, snapshot: Snapshot, *, timeout: float | None = None) -> None:
        """Go back, or on, to the state of a snapshot of a circuit with the same views.

        The formula and the number of threads may differ.

        Args:
            snapshot: What `snapshot` gave.
            timeout: As for `prepare`.

        Raises:
            SnapshotError: The snapshot is of other views or inputs; nothing has changed.
            BusyCircuitError: As `prepare`; nothing has changed.
        """
        self.load(open_snapshot(snapshot, self.fingerprint), timeout=timeout)

    def load(self, state: State, *, timeout: float | None = None) -> None:
        """Replace all state, also that of a circuit that broke.

        The state may be of a circuit with another formula, other parts and outputs. Whether it
        is of the same views and inputs is for the caller to know (`fingerprint`); it is refused if
        it does not have the traces that these need. Steps that are prepared become stale.

        Args:
            state: What to go on from.
            timeout: As for `prepare`.

        Raises:
            SnapshotError: The state does not fit; nothing has changed.
            BusyCircuitError: As `prepare`; nothing has changed.

        Complexity:
            O(runs + bytes of the tables), and planning the joins. With another formula also O(rows)
            for each arrangement that is not in the state.
        """
        check_type("state", state, State, "a State")
        if self._broken:
            self._turns.exclusively(self._void)
        turn = self._turns.take(timeout)
        try:
            codecs = codecs_of(state)
            graph, integrals = self._build_graph(codecs)
            load_state(graph, state)
            committed = CircuitVersion.of(graph)
            self._turns.exclusively(self._replace, codecs, graph, integrals, committed)
        finally:
            self._turns.end(turn)
        self._turns.end_all()

    def _void(self) -> None:
        """End the turns of a circuit that broke: what was prepared in them is lost."""
        if self._broken:
            self._turns.end_all()

    def _replace(
        self,
        codecs: Codecs,
        graph: Graph,
        integrals: dict[str, Integrate],
        committed: CircuitVersion,
    ) -> None:
        self.codecs, self.graph, self._integrals = codecs, graph, integrals
        self._committed = committed
        self._version += 1
        self._broken = self._lost = False

    def _build_graph(self, codecs: Codecs) -> tuple[Graph, dict[str, Integrate]]:
        """The operators, without state, and those that keep what is materialized."""
        fields = {name: schema.fields for name, schema in self.inputs.items()}
        graph = incrementalize(
            self.plans, fields, codecs=codecs, joining=self._join_options, clock=self._clock
        )
        inputs = {name: graph.add_input(name, columns) for name, columns in fields.items()}
        for name, rules in self.input_options.items():
            groups = self._groups.get(name, ())
            graph.add_checked_input(
                name, CheckedInput(self.inputs[name], rules, codecs, graph.relations, groups)
            )
        numbers = {**inputs, **graph.views}
        return graph, {
            name: graph.integrate(numbers[name], retained=name in self._groups)
            for name in self.materialized
        }

    def _views(self, state: CircuitVersion) -> Views:
        return Views(state, self._traces, {**self.inputs, **self._schemas})

    def _kept(self, state: CircuitVersion) -> dict[str, tuple[Fields, Trace]]:
        """The relations whose rows are in the state, with all their columns."""
        kept: dict[str, tuple[Fields, Trace]] = {}
        views = self._views(state)
        joined = state.graph.relations.traces
        for name, schema in {**self.inputs, **self._schemas}.items():
            if name in views:
                kept[name] = (schema.fields, views.trace(name))
            elif name in self.inputs and name in joined and schema.arity:
                kept[name] = (schema.fields, state.trace(relation_trace(name)))
        return kept

    def _check_whole(self) -> None:
        """Refuse to read, or to wait for a turn, if a commit failed half-way."""
        if self._lost:
            self._check_writable()

    def _check_writable(self) -> None:
        if self._broken:
            raise BrokenCircuitError(
                "an earlier commit failed half-way: restore a snapshot, or build a new circuit and "
                "feed it again"
            )

    def _encoded(
        self,
        tables: Mapping[str, Rows],
        watermarks: Mapping[str, Any],
        codecs: Codecs,
        rules: Mapping[str, CheckedInput],
    ) -> tuple[dict[str, ZSet], dict[str, int]]:
        """The rows given, and the horizons that they and the watermarks move to.

        Args:
            tables: By input.
            watermarks: By input.
            codecs: They give the codes.
            rules: Of inputs, with these codecs.
        """
        given: dict[str, ZSet] = {}
        moved: dict[str, int] = {}
        if not isinstance(watermarks, Mapping):
            raise InputOptionsError(
                f"watermarks are a mapping from inputs to times, not {type(watermarks).__name__}: "
                'give {"name of the input": time}'
            )
        for name, value in watermarks.items():
            check_input(name, self.inputs)
            if name not in rules:
                raise unretained(name)
            moved[name] = rules[name].watermark(value)
        schemas = self.definition.schemas
        for name, table in tables_of(tables, schemas).items():
            if name not in rules:
                given[name] = self.inputs[name].to_zset(table, codecs)
                continue
            given[name], horizon = rules[name].read(table)
            if horizon is not None:
                moved[name] = max(horizon, moved.get(name, horizon))
        return given, moved


@dataclass
class CircuitStep(Staged):
    """A computed step: the ``outputs`` it will have, and ``commit`` to make it the state.

    Attributes:
        outputs: The delta of every output.
        step: The deltas of all operators.
        circuit: What the step is of.
        version: The version of the circuit that it is for.
        given: The rows given per input, as encoded, before any rule of the input.
        lengths: The lengths of all tables of codes before and after preparing.
        refused: By input, the rows that its rules did not take; an input without any is not there.
        seconds: How long preparing took, by `PHASES`.
        turn: What keeps other threads from preparing a step until this one is over.
    """

    outputs: dict[str, pa.Table]
    step: GraphStep
    circuit: Circuit
    version: int
    given: Mapping[str, ZSet] = field(default_factory=dict)
    lengths: tuple[Mapping[str, int], Mapping[str, int]] = ({}, {})
    refused: Mapping[str, Sequence[RejectedRows]] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    turn: WriterTurn | None = None
    _abandoned: bool = field(default=False, init=False)

    @property
    def changes(self) -> Iterable[TraceStep]:
        """The staged deltas of all traces that change."""
        return self.step.changes

    def commit(self) -> None:
        """Make the step the state of the circuit; any thread may, also one that did not prepare it.

        Other threads read the state before the step until the moment in which this returns.

        Raises:
            StaleStepError: Another step was committed since, or this one already was, or it was
                abandoned.
            BrokenCircuitError: An earlier commit failed half-way.
            BusyCircuitError: This thread is preparing another step at this moment.
        """
        self.circuit._turns.exclusively(self._commit)
        self.circuit._turns.end_all()

    def _commit(self) -> None:
        circuit = self.circuit
        circuit._check_writable()
        self._check()
        circuit._broken = True
        try:
            self.step.commit()
            circuit._committed = circuit._committed.after(self.step)
        except BaseException:
            circuit._lost = True
            circuit._turns.end_all()  # nothing that was prepared can be committed any more
            raise
        circuit._version += 1  # from here on the step cannot be abandoned
        circuit._broken = False

    def state(self, stored: Mapping[str, int]) -> StateStep:
        """What the step adds to the state, to be written before the step is committed.

        Args:
            stored: How many values of each table are written already, by its name; 0 of others.

        Raises:
            StaleStepError: As `commit`.
            SnapshotError: A table is shorter than that.

        Complexity:
            O(arrangements of the circuit), and the values that are new to the tables.
        """
        self._check()
        check_type("stored", stored, Mapping, "a mapping from names of tables to lengths")
        return step_state(self.step, stored)

    def abandon(self) -> None:
        """Take back the codes that preparing gave; the step cannot be committed any more.

        The turn of the thread that prepared the step ends, so that another one can prepare its own.

        Codes are kept, which does no harm, if something else has got codes since. A step that
        is the state already stays so.
        """
        self.circuit._turns.exclusively(self._abandon)

    def _abandon(self) -> None:
        circuit = self.circuit
        if self._abandoned or circuit._version != self.version or circuit._broken:
            return
        self._abandoned = True
        before, after = self.lengths
        if before != after and circuit.graph.registry.lengths() == after:
            circuit.graph.registry.truncate(before)
        circuit._turns.end(self.turn)

    @property
    def missing_deletions(self) -> Mapping[str, int]:
        """By input, how many rows the step deletes more often than they are there.

        An input without ``strict`` keeps their negative weights, each of which swallows a later
        insert. The count is exact for an input that is materialized; of one that joins read it is
        a lower bound; inputs with keys, and inputs that no join reads, are not in it.
        """
        return self.step.missing

    def after(self, view: str) -> PostStepView:
        """A materialized view as it will be after the step.

        Raises:
            UnknownViewError: It is not there, or not materialized.
            StaleStepError: As `commit`.
        """
        self._check()
        circuit = self.circuit
        circuit.views.trace(view)
        integral = circuit._integrals[view]
        delta = self.step.deltas[circuit.graph.views[view]]
        return PostStepView(circuit.schema(view), circuit.codecs, integral, delta)

    @cached_property
    def digests(self) -> dict[str, int]:
        """A checksum per input of the rows given, the same for any order and chunks of them.

        Codes are part of it: it is for comparing with rows that were committed (a replay), not
        between circuits.
        """
        return digests_of(self.given)

    def _check(self) -> None:
        circuit = self.circuit
        circuit._check_whole()
        if self._abandoned:
            raise StaleStepError("this step was abandoned: prepare it again")
        if circuit._version != self.version:
            raise StaleStepError(
                f"this step was prepared at version {self.version} and the circuit is at "
                f"{circuit._version}: prepare it again"
            )


def digests_of(given: Mapping[str, ZSet]) -> dict[str, int]:
    """A checksum of each Z-set of codes."""
    return {name: _checksum(zset) for name, zset in given.items()}


def _checksum(zset: ZSet) -> int:
    if not len(zset):
        return 0
    return crc32(zset._weights.data, crc32(np.ascontiguousarray(zset._rows).data))
