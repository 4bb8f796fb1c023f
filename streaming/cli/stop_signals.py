"""Signals that end a process while Spark runs: Ctrl-C and SIGTERM.

An interrupted call to Java breaks the connection to Spark, and Spark can then not be stopped. So
while Spark runs, the first signal is only recorded. The process ends at the next `check`, at the
end of the context, or in a part that calls no Java (`StopSignals.interrupt_at_once`).
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

__all__ = ["StopSignals", "defer_signals"]

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class StopSignals:
    """The signals that have arrived in a context of `defer_signals`.

    Args:
        on_first_signal: Called at the first signal.
    """

    def __init__(self, on_first_signal: Callable[[], object]) -> None:
        self._on_first_signal = on_first_signal
        self._has_arrived = False
        self._interrupts = False  # True in `interrupt_at_once`
        self._was_interrupted = False  # whether a signal arrived there

    @property
    def has_arrived(self) -> bool:
        """True if a signal has arrived."""
        return self._has_arrived

    def check(self) -> None:
        """Interrupt the caller if a signal has arrived.

        Raises:
            KeyboardInterrupt: A signal has arrived.
        """
        if self._has_arrived:
            raise KeyboardInterrupt

    @contextmanager
    def interrupt_at_once(self) -> Iterator[None]:
        """Let a signal interrupt the context, which must not call Java.

        Raises:
            KeyboardInterrupt: A signal arrives in the context, or has arrived before. This replaces
                an error: code in C that calls Python, such as the compiler of the kernels, drops
                the interrupt and may then fail.
        """
        self.check()
        self._interrupts, self._was_interrupted = True, False
        try:
            yield
        except Exception as error:
            if self._was_interrupted:
                raise KeyboardInterrupt from error
            raise
        finally:
            self._interrupts = False
        if self._was_interrupted:
            raise KeyboardInterrupt

    def record(self, number: int, frame: FrameType | None) -> None:
        """Record the first signal; interrupt at a second one, or in `interrupt_at_once`."""
        self._was_interrupted |= self._interrupts
        if self._interrupts or self._has_arrived:
            raise KeyboardInterrupt
        self._has_arrived = True
        self._on_first_signal()


@contextmanager
def defer_signals(on_first_signal: Callable[[], object]) -> Iterator[StopSignals]:
    """Defer signals that arrive in the context; a second one interrupts at once.

    Spark's launcher, for example, leaves a JVM behind when it is interrupted.

    Args:
        on_first_signal: Called at the first signal.

    Raises:
        KeyboardInterrupt: Ctrl-C or SIGTERM arrived in the context. This replaces an error in the
            context, because a signal to the whole process group also ends Spark's JVM.
    """
    signals = StopSignals(on_first_signal)
    previous_handlers = {number: signal.signal(number, signals.record) for number in SIGNALS}
    try:
        yield signals
    except Exception as error:
        if signals.has_arrived:
            raise KeyboardInterrupt from error
        raise
    finally:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)
    signals.check()
