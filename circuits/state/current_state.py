"""Current state: the operators and dictionaries of a circuit, and who may change them.

A writer takes a turn, prepares a step, and commits or abandons it. Several steps may be prepared at
one version; the first one that is committed takes effect, and the others become stale::

    take turn  ->  prepare (adds codes to the dictionaries)  ->  commit: version + 1, publish
                                                             ->  abandon: remove the codes

A load keeps the operators, and replaces only their state, if it can (`replace_state`): to build and
plan them again takes much longer for a small state.

Invariant: readers only use the published `CircuitVersion`, which a commit replaces by one
assignment. A commit that fails half-way leaves the state undefined. Then every method raises
`BrokenCircuitError`, until the state is replaced as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from circuits.errors import BrokenCircuitError, StaleStepError
from circuits.runtime.circuit_version import CircuitVersion
from circuits.runtime.graph import Graph, GraphStep
from circuits.runtime.operators.integrate import Integrate
from circuits.runtime.writer_lock import WriterLock, WriterTurn
from circuits.state.circuit_state import State, load_codecs, load_state, replace_state
from circuits.state.dictionary_sweep import DictionarySweeper
from circuits.types.codecs.codec import Codecs
from dbsp_wcoj.storage.run import Run
from dbsp_wcoj.storage.trace import ColumnOrder
from dbsp_wcoj.values.array_memory import ArrayMemory

__all__ = ["CurrentState", "GraphBuilder", "PreparedStep"]

#: Builds the operators without state, and those of them that keep materialized relations.
GraphBuilder = Callable[[Codecs], tuple[Graph, dict[str, Integrate]]]


class PreparedStep(Protocol):
    """A computed step; `circuits.circuit.CircuitStep` describes the attributes."""

    graph_step: GraphStep
    version: int
    lengths: tuple[Mapping[str, int], Mapping[str, int]]
    turn: WriterTurn | None
    is_abandoned: bool


class CurrentState:
    """The state of a circuit; any thread may call the methods.

    Args:
        build: Builds the operators, now and for each state that needs other ones.
        before_replace: Is called with each graph that replaces the current one, before it does.

    Attributes:
        codecs: The dictionaries of values; a step may be adding to them.
        graph: The operators with their state; a step may be writing to it.
        integrals: The operators that keep the materialized relations, by name.
        published: The state after the last commit, even if a later commit has failed.
        version: The number of commits and replacements so far.
        turns: The turns of the writers.
    """

    def __init__(self, build: GraphBuilder, before_replace: Callable[[Graph], None]) -> None:
        self.turns = WriterLock()
        self.version = 0
        self.codecs = Codecs()
        self.graph, self.integrals = build(self.codecs)
        self.published = CircuitVersion.of(self.graph)
        self._build = build
        self._before_replace = before_replace
        self._sweeper = DictionarySweeper(self.graph)
        # True while a commit runs, and after a commit that failed: writers must not start then.
        self._is_undefined = False
        # True after a commit that failed. While a commit runs, readers have the state before it.
        self._has_commit_failed = False
        self._is_ended = False
        self._keeps_values = False
        # True if operators have codes of constants, which may be others in another state.
        self._has_constants = any(map(len, self.codecs.interners.values()))
        # True if another circuit may have the same dictionaries or traces.
        self._is_shared = False

    @property
    def committed(self) -> CircuitVersion:
        """The state after the last commit, for readers in any thread; O(1).

        Raises:
            BrokenCircuitError: An earlier commit failed half-way.
        """
        self.check_readable()
        return self.published

    def check_readable(self) -> None:
        """Raise an error if a commit failed; for readers, and for writers before they wait."""
        if self._has_commit_failed:
            self.check_writable()

    def check_writable(self) -> None:
        """Raise an error if no step can be prepared or committed."""
        if self._is_ended:
            raise BrokenCircuitError(
                "the state of this circuit has moved to a circuit of other views: step that one"
            )
        if self._is_undefined:
            raise BrokenCircuitError(
                "an earlier commit or load failed half-way: restore a snapshot, or build a new "
                "circuit and feed it again"
            )

    def check_step(self, step: PreparedStep) -> None:
        """Check that a step can still be committed.

        Raises:
            StaleStepError: Another step was committed since, or it was abandoned.
            BrokenCircuitError: An earlier commit failed half-way.
        """
        self.check_readable()
        if step.is_abandoned:
            raise StaleStepError("this step was abandoned: prepare it again")
        if self.version != step.version:
            raise StaleStepError(
                f"this step was prepared at version {step.version} and the circuit is at "
                f"{self.version}: prepare it again"
            )

    def truncate_dictionaries(self) -> dict[str, int]:
        """Remove the codes of steps that were dropped; return the lengths of the dictionaries.

        The caller has one turn.
        """
        registry = self.graph.registry
        lengths, committed = registry.lengths(), self.published.lengths
        # Each turn but that of the caller is of a step which this thread has prepared, and which
        # still needs its codes.
        if lengths == committed or self.turns.open_turns > 1:
            return lengths
        registry.truncate(committed)
        return registry.lengths()

    def commit(self, step: PreparedStep) -> None:
        """Make a prepared step the state.

        Raises:
            StaleStepError, BrokenCircuitError: As `check_step`.
            BusyCircuitError: This thread is preparing another step at this moment.
        """
        self.turns.run_exclusively(self._commit, step)

    def _commit(self, step: PreparedStep) -> None:
        self.check_writable()
        self.check_step(step)
        self._is_undefined = True
        try:
            step.graph_step.commit()
            self.published = self.published.after(step.graph_step)
            if not self._keeps_values and self._sweeper.advance(self.published):
                self.published = self.published.with_dictionaries()
        except BaseException:
            self._has_commit_failed = True
            self.turns.end_before(self.version + 1)  # no prepared step can be committed any more
            raise
        self.version += 1  # from here on the step cannot be abandoned
        self._is_undefined = False
        self.turns.end_before(self.version)

    def abandon(self, step: PreparedStep) -> None:
        """Give up a prepared step, and remove the codes that it added if no other step has any."""
        self.turns.run_exclusively(self._abandon, step)

    def _abandon(self, step: PreparedStep) -> None:
        if step.is_abandoned or self.version != step.version or self._is_undefined:
            return
        step.is_abandoned = True
        before, after = step.lengths
        if before != after and self.graph.registry.lengths() == after:
            self.graph.registry.truncate(before)
        self.turns.end(step.turn)

    def load(self, state: State, timeout: float | None) -> None:
        """Replace all state; this also repairs a state that a failed commit left undefined.

        Raises:
            SnapshotError: The state does not fit; nothing has changed.
            BusyCircuitError: Another thread still makes a step when ``timeout`` is over.
        """
        if self._is_undefined:
            self.turns.run_exclusively(self._end_broken_turns)
        turn = self.turns.take(timeout)
        try:
            codecs = load_codecs(state)
            if self.turns.run_exclusively(self._replace_state, state, codecs):
                return
            graph, integrals = self._build(codecs)
            load_state(graph, state)
            committed = CircuitVersion.of(graph)
            self.turns.run_exclusively(
                self._replace, codecs, graph, integrals, committed, is_loaded=True
            )
            self._is_shared = False
        finally:
            self.turns.end(turn)

    def _replace_state(self, state: State, codecs: Codecs) -> bool:
        """Load a state into the operators that there are; return False if it needs other ones."""
        if self._is_undefined or self._is_shared or self._has_constants:
            return False
        replace_all = replace_state(self.graph, state, codecs)
        if replace_all is None:
            return False
        self._is_undefined = True
        try:
            graph = replace_all()
            committed = CircuitVersion.of(graph)
            self._replace(graph.codecs, graph, self.integrals, committed, is_loaded=True)
        except BaseException:
            self._has_commit_failed = True
            self.turns.end_before(self.version + 1)  # no prepared step can be committed any more
            raise
        return True

    def adopt(
        self,
        codecs: Codecs,
        graph: Graph,
        integrals: dict[str, Integrate],
        timeout: float | None,
    ) -> None:
        """Make a graph with its state the state; see `Circuit.adopt`.

        Values that nothing refers to any more are removed by later commits, not now: after an error
        the circuit that the dictionaries come from still needs all of them.

        Raises:
            BusyCircuitError: As `load`; nothing has changed.
        """
        turn = self.turns.take(timeout)
        try:
            committed = CircuitVersion.of(graph)
            self.turns.run_exclusively(
                self._replace, codecs, graph, integrals, committed, is_loaded=False
            )
            self._is_shared = True
        finally:
            self.turns.end(turn)

    def _end_broken_turns(self) -> None:
        """End the turns of an undefined state: the steps prepared in them are lost."""
        # No commit runs at the same time, so an undefined state is that of a failed commit.
        if self._is_undefined:
            self.turns.end_before(self.version + 1)

    def _replace(
        self,
        codecs: Codecs,
        graph: Graph,
        integrals: dict[str, Integrate],
        committed: CircuitVersion,
        *,
        is_loaded: bool,
    ) -> None:
        self._before_replace(graph)
        codecs.memos.clear()  # those of the expressions of earlier programs
        sweeper = DictionarySweeper(graph)
        if is_loaded and sweeper.sweep_loaded(committed):
            committed = committed.with_dictionaries()
        self.codecs, self.graph, self.integrals = codecs, graph, integrals
        self.published, self._sweeper = committed, sweeper
        self.version += 1
        self._is_undefined = self._has_commit_failed = self._is_ended = False
        self._keeps_values = False
        self.turns.end_before(self.version)

    def replace_runs(self, runs: Mapping[str, Mapping[ColumnOrder, Sequence[Run]]]) -> None:
        """Replace the runs of some arrangements; see `Circuit.replace_runs`."""
        self.turns.run_exclusively(self._replace_runs, runs)

    def _replace_runs(self, runs: Mapping[str, Mapping[ColumnOrder, Sequence[Run]]]) -> None:
        self.check_writable()
        for name, arrangements in runs.items():
            self.graph.traces[name].replace_runs(arrangements)
        self.published = self.published.with_runs(runs.keys())

    def move_dictionaries(self, memories: Mapping[str, ArrayMemory]) -> None:
        """Move the values of dictionaries to other memory; see `Circuit.move_dictionaries`."""
        self.turns.run_exclusively(self._move_dictionaries, memories)

    def _move_dictionaries(self, memories: Mapping[str, ArrayMemory]) -> None:
        self.check_writable()
        try:
            for name, memory in memories.items():
                self.graph.registry.dictionaries[name].move(memory)
        finally:
            self.published = self.published.with_dictionaries()

    def keep_values(self, is_kept: bool) -> None:
        """Remove no values from the dictionaries until this is called with False, or a `load`."""
        self._sweeper.stop()
        self._keeps_values = is_kept
        self._is_shared |= is_kept

    def keep_codes(self) -> None:
        """Keep the codes that were added to the dictionaries since the last commit."""
        self.published = self.published.with_dictionaries()

    def end(self) -> None:
        """Accept no more steps, because another circuit goes on with this state."""
        self._is_ended = True
        self._is_shared = True
        self._sweeper.stop()

    def undo_end(self) -> None:
        """Accept steps again; see `Circuit.undo_end`."""
        self._is_ended = False

    @property
    def is_ended(self) -> bool:
        """True after `end`, until a state is loaded."""
        return self._is_ended
