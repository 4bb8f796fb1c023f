"""Circuit step: what a step will give and change, computed and not yet the state.

Between ``prepare`` and ``commit`` a durable sink writes: the ``outputs``, and what the step adds to
the state (`CircuitStep.state`, see `circuits.state.circuit_state`). If that fails the step is
abandoned, which takes back the codes that its values got, so that the same rows get the same codes
when they come again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final
from zlib import crc32

import numpy as np
import pyarrow as pa

from circuits.errors import StaleStepError
from circuits.inputs.rejected_rows import RejectedRows
from circuits.runtime.graph import GraphStep
from circuits.runtime.post_step_view import PostStepView
from circuits.runtime.writer_lock import WriterTurn
from circuits.state.circuit_state import StateStep, staged
from dbsp_wcoj import ZSet
from dbsp_wcoj.arguments import check_type

if TYPE_CHECKING:
    from circuits.circuit import Circuit

__all__ = ["PHASES", "CircuitStep", "digests_of"]

#: What preparing a step consists of: values to codes, the operators, codes to values.
PHASES: Final = ("encode", "step", "output")


@dataclass
class CircuitStep:
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
        return staged(self.step, stored)

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
        if before != after and circuit._graph.registry.lengths() == after:
            circuit._graph.registry.truncate(before)
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
        delta = self.step.deltas[circuit._graph.views[view]]
        return PostStepView(circuit.schema(view), circuit._codecs, integral, delta)

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
