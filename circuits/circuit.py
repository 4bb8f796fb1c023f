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
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Executor
from itertools import chain, pairwise
from time import perf_counter
from typing import Any

import pyarrow as pa

from circuits.circuit_spec import CircuitSpec, SourceText, chosen
from circuits.errors import (
    BrokenCircuitError,
    CircuitError,
    InputOptionsError,
    MissingRowError,
    TextError,
    UnknownViewError,
)
from circuits.inputs.checked_input import CheckedInput, unretained
from circuits.inputs.finality import group_functions
from circuits.inputs.input_options import InputOptions, check_options
from circuits.inputs.rejected_rows import MISSING
from circuits.inputs.tables import Rows, check_input, tables_of
from circuits.limits import bounded
from circuits.plan.fixpoint import MAX_ITERATIONS
from circuits.plan.nodes import Fields, Plan
from circuits.runtime.circuit_step import PHASES, CircuitStep, digests_of
from circuits.runtime.circuit_version import CircuitVersion
from circuits.runtime.graph import Graph, watermark_of
from circuits.runtime.incrementalize import incrementalize
from circuits.runtime.one_shot import Engine, answered
from circuits.runtime.operators.integrate import Integrate
from circuits.runtime.operators.join import JoinOptions
from circuits.runtime.plan_drawing import mermaid, tree
from circuits.runtime.views import Views
from circuits.runtime.writer_lock import WriterLock, WriterTurn
from circuits.schema import Schema, SchemaLike, arrow_schemas, schemas_of
from circuits.state.circuit_state import State, codecs_of, fill
from circuits.state.registry import relation_trace
from circuits.state.snapshot import Snapshot, restored, taken
from circuits.types.codecs.codec import Codecs
from dbsp_wcoj import Formula, Relations, Trace, ZSet
from dbsp_wcoj.arguments import check_type
from dbsp_wcoj.limits import DEFAULT_LIMITS, Budget, StepLimits
from dbsp_wcoj.planning.formula_candidates import formula_of

__all__ = ["Circuit", "CircuitStep", "StepObserver"]

#: Is told of an operator before it is evaluated: its name, its kind, the views it is a part of.
StepObserver = Callable[[str, str, tuple[str, ...]], object]


class Circuit:
    """Views over changing relations, maintained by deltas.

    All methods may be called from several threads. ``step``, ``prepare``, ``restore`` and ``load``
    are writers: a thread waits for its turn while another one makes a step, from its ``prepare``
    until that is committed, abandoned or dropped. All other methods are readers: they wait for
    nobody, and see the state after the last commit.

    Args:
        plans: The plan of each view, in an order in which views come after those they read.
        schemas: The columns of each input relation, as for `compile_sql`.
        outputs: The views that ``step`` returns; all of them when not given.
        materialize: Which views and inputs are kept whole, for `views` and `query`: a collection of
            names, or True for all.
        formula: The delta formula of every join; or "auto", by which each join chooses for itself.
        executor: Threads for the joins; none by default.
        parts: Into how many parts a delta is split over the executor.
        iterations: How often a recursion may go round in a step.
        rules: The rules of inputs that are not plain Z-sets (`circuits.inputs.input_options`), by
            name.
        source: The text that the plans were compiled from; None if there is none.
        limits: How many rows, bytes and seconds a step, or a query, may use.
        clock: Seconds, for the times in `explain` and for ``limits.max_seconds``.

    Raises:
        SchemaError: A schema has a column of a type that cannot be held.
        CircuitError: ``outputs`` or ``materialize`` name what is not there, or a view is nested
            too deeply.
        InputOptionsError: Rules do not go with the schema of their input, or a view with the
            retention of its inputs (`circuits.inputs.finality`).
    """

    def __init__(
        self,
        plans: Mapping[str, Plan],
        schemas: Mapping[str, SchemaLike],
        *,
        outputs: Collection[str] | None = None,
        materialize: bool | Collection[str] = False,
        formula: Formula | str = Formula.collapsed,
        executor: Executor | None = None,
        parts: int = 1,
        iterations: int = MAX_ITERATIONS,
        rules: Mapping[str, InputOptions] | None = None,
        source: SourceText | None = None,
        limits: StepLimits = DEFAULT_LIMITS,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        schemas = arrow_schemas(schemas)
        self.inputs = schemas_of(schemas)
        check_type("limits", limits, StepLimits, "StepLimits(...), or StepLimits.off()")
        check_type("parts", parts, int, "a number of parts")
        check_type("iterations", iterations, int, "a number of iterations")
        self.plans = dict(plans)
        known = [*self.inputs, *self.plans]
        self.outputs = chosen("outputs", self.plans if outputs is None else outputs, self.plans)
        kept = materialize
        if isinstance(kept, bool):
            kept = known if kept else ()
        self.materialized = chosen("materialize", kept, known)
        self._schemas = {name: Schema(name, plan.fields) for name, plan in plans.items()}
        self.rules = check_options({} if rules is None else rules, self.inputs)
        self._joining = JoinOptions(formula_of(formula), executor, parts, iterations)
        self.definition = CircuitSpec(
            self.plans,
            schemas,
            outputs=self.outputs,
            materialize=self.materialized,
            formula=formula_of(formula),
            parts=parts,
            iterations=iterations,
            rules=self.rules,
            source=source,
            limits=limits,
        )
        self.limits = limits
        self._clock = clock
        self._version = 0
        # While a commit is under way, and for good if it fails; readers only mind the latter.
        self._broken = False
        self._observed: list[tuple[str, str, tuple[str, ...]]] | None = None
        self._lost = False
        self._turns = WriterLock()
        self._codecs = Codecs()
        try:
            self._groups = group_functions(self.plans, self.inputs, self.rules)
            self.fingerprint = self.definition.fingerprint
            self._graph, self._integrals = self._built(self._codecs)
            self._committed = CircuitVersion.of(self._graph)
            # The traces of what is materialized, whose names are those of any graph of these plans.
            names = self._graph.registry.names
            self._traces = {name: names[id(one.trace)] for name, one in self._integrals.items()}
        except RecursionError:
            raise CircuitError(
                "a view is nested too deeply; put parts of it in views of their own"
            ) from None

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
        known, marks = self._known(), self._graph.marks
        times = [self._clock()]
        budget = Budget(self.limits, self._clock)
        try:
            with bounded(self._graph, budget):
                given, moved = self._encoded(tables, watermarks, self._codecs, self._graph.rules)
                times.append(self._clock())
                step = self._graph.prepare(given, moved, budget)
                times.append(self._clock())
                outputs = {}
                for name in self.outputs:
                    number = self._graph.views[name]
                    budget.begin(number)
                    delta = step.deltas[number]
                    outputs[name] = self._schemas[name].to_table(delta, self._codecs)
                refused = {
                    name: [
                        self._graph.rules[name].told(rows, marks.get(watermark_of(name)))
                        for rows in many
                    ]
                    for name, many in step.refused.items()
                }
        except BaseException:
            self._graph.registry.truncate(known)  # a step that is refused leaves no codes behind
            raise
        times.append(self._clock())
        return CircuitStep(
            outputs,
            step,
            self,
            self._version,
            given,
            (known, self._graph.registry.lengths()),
            refused,
            {name: b - a for name, (a, b) in zip(PHASES, pairwise(times), strict=True)},
            turn,
        )

    def _known(self) -> dict[str, int]:
        """The lengths of the tables of codes; those of steps that were dropped are taken back."""
        registry = self._graph.registry
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
            for name, rules in self.rules.items()
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
        return tuple(nested.names for nested in self._graph.recursions)

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

    def query(self, text: str, *, dialect: str = "duckdb", engine: Engine = "compiled") -> pa.Table:
        """Answer a query from the state as it is, without registering a view.

        It reads the last committed version and leaves nothing behind: no codes, no arrangements.

        Args:
            text: A SELECT, or Datalog rules, of which the last head is the answer; over the
                materialized views and inputs, and the inputs that a join reads whole.
            dialect: The dialect of a SELECT.
            engine: "compiled", or "reference" for one Datalog rule without aggregates, answered by
                the prefix extenders of its atoms, `or`, `and`, `not`, to compare with.

        Returns:
            A table of the rows, with ``weight``.

        Raises:
            SqlError, DatalogError: The text, or what it asks for, is not there or not supported.
            CircuitError: There is no such engine, or not for SQL; a recursion does not end.
            StepLimitError: The query uses more than ``limits`` of the circuit allow a step.
            BrokenCircuitError: An earlier commit failed half-way.

        Complexity:
            That of the query: joins are worst-case optimal, and read arrangements where there are.
        """
        check_type("text", text, str, "a SELECT or Datalog rules as a text")
        check_type("dialect", dialect, str, "the name of a dialect of sqlglot")
        check_type("engine", engine, str, "'compiled' or 'reference'")
        state = self.committed
        kept = self._kept(state)
        try:
            return answered(
                text,
                kept,
                state.codecs(),
                dialect=dialect,
                engine=engine,
                joining=self._joining,
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
            self._graph.observer = None
            return
        if self._observed is None:
            views = self._graph.views_of()
            self._observed = [
                (node.name, type(node.plan).__name__.lower(), views[number])
                for number, node in enumerate(self._graph.nodes)
            ]
        operators = self._observed
        self._graph.observer = lambda number: observer(*operators[number])

    def explain(self, format: str = "text") -> str:
        """The operators that run, with the rows and the time that each has taken so far.

        Args:
            format: "text" for a tree per view, "mermaid" for a drawing.

        Raises:
            CircuitError: There is no such format.
        """
        check_type("format", format, str, "'text' or 'mermaid'")
        drawings = {"text": tree, "mermaid": mermaid}
        if format not in drawings:
            raise CircuitError(f"no format {format!r}; formats are {', '.join(drawings)}")
        return drawings[format](self._committed)

    def snapshot(self) -> Snapshot:
        """All state after the last commit, as a value that can be pickled: O(state)."""
        return taken(self.committed, self.fingerprint)

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
        self.load(restored(snapshot, self.fingerprint), timeout=timeout)

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
            graph, integrals = self._built(codecs)
            fill(graph, state)
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
        self._codecs, self._graph, self._integrals = codecs, graph, integrals
        self._committed = committed
        self._version += 1
        self._broken = self._lost = False

    def _built(self, codecs: Codecs) -> tuple[Graph, dict[str, Integrate]]:
        """The operators, without state, and those that keep what is materialized."""
        fields = {name: schema.fields for name, schema in self.inputs.items()}
        graph = incrementalize(
            self.plans, fields, codecs=codecs, joining=self._joining, clock=self._clock
        )
        inputs = {name: graph.add_input(name, columns) for name, columns in fields.items()}
        for name, rules in self.rules.items():
            groups = self._groups.get(name, ())
            graph.add_rules(
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
