"""Writer lock: lets one thread at a time write to a circuit.

There are two mechanisms. A turn is the right of a thread to write::

    turn     a thread has a turn from `prepare` until the step is committed, abandoned or freed
    mutex    a thread holds the mutex while it computes, commits or abandons a step

A thread that asks for a turn waits until no other thread has one. A turn ends when it is garbage
collected, so a prepared step that is dropped without a commit blocks no other thread. The turn of a
thread that has terminated blocks no other thread either. One thread can have several turns at once:
it may prepare several steps from the same state, and the first one that is committed takes effect.

The mutex alone keeps the state consistent; turns only decide which thread waits. Readers need
neither.

Interrupts: the locks are built-in locks in ``with`` statements, so a KeyboardInterrupt releases
them. A turn that an interrupt leaves behind ends when the stack frames that refer to it are freed.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Condition, Lock, Thread, current_thread, get_ident
from time import monotonic
from typing import Final, ParamSpec, TypeVar
from weakref import ref

from circuits.errors import BusyCircuitError, CircuitError

__all__ = ["WriterLock", "WriterTurn"]

P = ParamSpec("P")
R = TypeVar("R")

#: A dropped turn notifies nobody, so a waiting thread checks again at this interval.
POLL_INTERVAL_S: Final = 0.05


class WriterTurn:
    """The right of a thread to prepare a step. It exists as long as it is referenced.

    Attributes:
        thread: The thread.
        version: The version of the state from which the step is prepared; None until the thread has
            the mutex.
    """

    __slots__ = ("__weakref__", "thread", "version")

    def __init__(self, thread: Thread) -> None:
        self.thread = thread
        self.version: int | None = None


class WriterLock:
    """The turns of all threads at one circuit, and its mutex."""

    def __init__(self) -> None:
        # Held for a moment to read or change the list of turns.
        self._turns_lock = Lock()
        self._turn_ended = Condition(self._turns_lock)
        self._turns: list[ref[WriterTurn]] = []
        self._waiting_threads = 0
        self._mutex = Lock()
        # The id of the thread that holds the mutex.
        self._mutex_thread: int | None = None

    def take(self, timeout: float | None = None) -> WriterTurn:
        """Wait until no other thread has a turn, and return one for this thread.

        Args:
            timeout: Seconds to wait; 0 does not wait, None waits without a limit.

        Raises:
            BusyCircuitError: Another thread still has a turn when the timeout is over.
            CircuitError: ``timeout`` is not a number of seconds.
        """
        if timeout is not None and not timeout >= 0:
            raise CircuitError(
                f"timeout={timeout!r}: give seconds, 0 not to wait, or None to wait as long as it "
                "takes"
            )
        turn = WriterTurn(current_thread())
        with self._turns_lock:
            if self._turns:
                self._wait(turn.thread, timeout)
            self._turns.append(ref(turn))
        return turn

    def end(self, turn: WriterTurn | None) -> None:
        """End a turn. Nothing happens if it has ended already."""
        with self._turns_lock:
            self._turns = [other for other in self._turns if other() not in (None, turn)]
            if self._waiting_threads:
                self._turn_ended.notify_all()

    def end_before(self, version: int) -> None:
        """End the turns of steps prepared from earlier versions; they cannot be committed any more.

        The caller holds the mutex. A thread that waits for the mutex keeps its turn, because its
        step will be prepared from the current version.
        """
        with self._turns_lock:
            self._turns = [
                reference
                for reference in self._turns
                if (turn := reference()) is not None
                and (turn.version is None or turn.version >= version)
            ]
            if self._waiting_threads:
                self._turn_ended.notify_all()

    @property
    def open_turns(self) -> int:
        """The number of turns that have not ended."""
        return sum(turn() is not None for turn in self._turns.copy())

    def run_exclusively(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call ``work`` while no other thread can compute, commit or abandon a step.

        Raises:
            BusyCircuitError: This thread is already computing a step, and a callback or a signal
                handler has called this method.
        """
        # An interrupt can release the mutex without resetting the thread id, so check both.
        if self._mutex_thread == get_ident() and self._mutex.locked():
            raise BusyCircuitError(
                "this thread is already making a step of the circuit, and steps do not nest: make "
                "the next step after this one"
            )
        with self._mutex:
            return self._run_with_thread_id(work, *args, **kwargs)

    def _run_with_thread_id(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        self._mutex_thread = get_ident()
        try:
            return work(*args, **kwargs)
        finally:
            self._mutex_thread = None

    def _wait(self, thread: Thread, timeout: float | None) -> None:
        """Wait until no other thread has a turn; the caller holds ``_turns_lock``."""
        end = None if timeout is None else monotonic() + timeout
        self._waiting_threads += 1
        try:
            while (other := self._other_writer(thread)) is not None:
                remaining_s = POLL_INTERVAL_S if end is None else end - monotonic()
                if remaining_s <= 0:
                    raise BusyCircuitError(
                        f"thread {other.name!r} is making a step, and this one has waited "
                        f"{timeout:g} s to write: wait longer (timeout=), or have that step "
                        "committed or abandoned"
                    )
                self._turn_ended.wait(min(remaining_s, POLL_INTERVAL_S))
        finally:
            self._waiting_threads -= 1

    def _other_writer(self, thread: Thread) -> Thread | None:
        """Return another live thread that has a turn, or None. Removes freed turns."""
        turns = [(reference, reference()) for reference in self._turns]
        self._turns = [reference for reference, turn in turns if turn is not None]
        for _, turn in turns:
            if turn is not None and turn.thread is not thread and turn.thread.is_alive():
                return turn.thread
        return None
