"""Turns: who may change a circuit now, so that there is one writer at a time.

::

    turn         from `prepare` until the step is committed, abandoned or dropped
    exclusion    while a step is computed or committed

A thread that wants a turn waits until no other thread has one. A turn ends by itself with the last
reference to it, so a step that somebody prepares and forgets keeps nobody out; and the turn of a
thread that has ended keeps nobody out either. A thread can have several turns at once: several
steps prepared at one state, of which the first that is committed counts.

Exclusion is what keeps the state right; turns only say who waits. Readers take neither.

Interrupts: both locks are built-in ones in ``with`` statements, which a KeyboardInterrupt does not
leave locked, and a turn that an interrupt leaves behind is dropped with the frames that had it.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Condition, Lock, Thread, current_thread, get_ident
from time import monotonic
from typing import Final, ParamSpec, TypeVar
from weakref import ref

from circuits.errors import BusyCircuitError, CircuitError

__all__ = ["Turn", "Turns"]

P = ParamSpec("P")
R = TypeVar("R")

#: A dropped turn tells nobody, so those who wait look for themselves so often.
LOOK_EVERY_SECONDS: Final = 0.05


class Turn:
    """The right of a thread to prepare a step, as long as something refers to it."""

    __slots__ = ("__weakref__", "thread")

    def __init__(self, thread: Thread) -> None:
        self.thread = thread


class Turns:
    """The turns at one circuit."""

    def __init__(self) -> None:
        self._guard = Lock()
        self._changed = Condition(self._guard)
        self._turns: list[ref[Turn]] = []
        self._waiting = 0
        self._lock = Lock()
        # The thread that holds the lock.
        self._inside: int | None = None

    def take(self, timeout: float | None = None) -> Turn:
        """A turn of this thread, once no other thread has one.

        Args:
            timeout: Seconds to wait; 0 for not at all, None for as long as it takes.

        Raises:
            BusyCircuitError: Another thread still has its turn.
            CircuitError: ``timeout`` is no number of seconds.
        """
        if timeout is not None and not timeout >= 0:
            raise CircuitError(
                f"timeout={timeout!r}: give seconds, 0 not to wait, or None to wait as long as it "
                "takes"
            )
        turn = Turn(current_thread())
        with self._guard:
            if self._turns:
                self._wait(turn.thread, timeout)
            self._turns.append(ref(turn))
        return turn

    def end(self, turn: Turn | None) -> None:
        """Give a turn back; for one that has ended nothing happens."""
        with self._guard:
            self._turns = [one for one in self._turns if one() not in (None, turn)]
            if self._waiting:
                self._changed.notify_all()

    def end_all(self) -> None:
        """End all turns: what was prepared in them is out of date."""
        with self._guard:
            self._turns.clear()
            if self._waiting:
                self._changed.notify_all()

    @property
    def taken(self) -> int:
        """How many turns there are."""
        return sum(one() is not None for one in self._turns.copy())

    def exclusively(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Do some work while every other thread is kept from computing or committing a step.

        Raises:
            BusyCircuitError: This very thread is within a step (a callback, a signal handler).
        """
        if self._inside == get_ident() and self._lock.locked():
            raise BusyCircuitError(
                "this thread is within a step of the circuit, which cannot make another one: "
                "call it after the step"
            )
        with self._lock:
            return self._within(work, *args, **kwargs)

    def _within(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        self._inside = get_ident()
        try:
            return work(*args, **kwargs)
        finally:
            self._inside = None

    def _wait(self, thread: Thread, timeout: float | None) -> None:
        """Wait until no other thread has a turn, with the guard held."""
        end = None if timeout is None else monotonic() + timeout
        self._waiting += 1
        try:
            while (other := self._other(thread)) is not None:
                left = LOOK_EVERY_SECONDS if end is None else end - monotonic()
                if left <= 0:
                    raise BusyCircuitError(
                        f"thread {other.name!r} is making a step, and this one has waited "
                        f"{timeout:g} s for its turn: wait longer (timeout=), or have that step "
                        "committed or abandoned"
                    )
                self._changed.wait(min(left, LOOK_EVERY_SECONDS))
        finally:
            self._waiting -= 1

    def _other(self, thread: Thread) -> Thread | None:
        """The thread that has to be waited for; turns that were dropped are forgotten."""
        known = [(one, one()) for one in self._turns]
        self._turns = [one for one, turn in known if turn is not None]
        for _, turn in known:
            if turn is not None and turn.thread is not thread and turn.thread.is_alive():
                return turn.thread
        return None
