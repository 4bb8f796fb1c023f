"""Observation: the phases of a step report to an observer, while there is one.

A phase is a part of a step, such as sorting a delta or merging runs. Code that is a phase asks for
the current observer and tells it when the phase begins and ends::

    observer = current_observer() if OBSERVERS else None
    if observer is not None:
        observer.begin_phase(MERGE)
    ...                                     # the work
    if observer is not None:
        observer.end_phase(rows)

The work is in a ``try`` and the end in its ``finally``, so that phases nest also after an error.
`observed` is a decorator that does the same for a whole function, and costs more. The engine has no
clock: an observer that measures time brings its own (`dbsp_wcoj.execution.profiler`).

`observing` sets the observer of the current thread only: tasks on the threads of an executor and
steps on other threads are not observed.

Cost while no thread is observed: about 50 ns for each written-out phase, 0.1 µs for each call of a
decorated function. A step of one row takes 5 to 30 µs, so its phases are written out.

Alternatives considered: replacing the methods from outside while a profiler is active costs nothing
otherwise, but it changes the code of other threads, depends on private names, and hides from a
reader that a function is a phase. An observer passed as an argument would add a parameter to every
function between `DeltaQuery.step` and the constructor of a Z-set. A `ContextVar` needs a call for
each check, where the truth of `OBSERVERS` needs none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from threading import get_ident
from typing import Any, Final, ParamSpec, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

__all__ = [
    "BUILD_RUNS",
    "COLLECT",
    "JOIN",
    "MERGE",
    "OBSERVERS",
    "PLAN",
    "SORT",
    "Observer",
    "current_observer",
    "observed",
    "observing",
]

# The phases of the core; `circuits` and `streaming` have phases of their own.
SORT: Final = "sort"
BUILD_RUNS: Final = "build runs"
PLAN: Final = "plan"
JOIN: Final = "join"
COLLECT: Final = "collect"
MERGE: Final = "merge"

P = ParamSpec("P")
R = TypeVar("R")


class Observer(Protocol):
    """Receives the phases and the terms of steps. No method may raise an error.

    Calls nest: the last one that began ends first, also after an error. The phase `JOIN` has no
    `begin_phase`; the terms of a join report themselves.
    """

    def begin_phase(self, phase: str) -> None:
        """A phase begins."""
        ...

    def end_phase(self, rows: int) -> None:
        """The phase that began last ends; ``rows`` are its input rows, 0 if not counted."""
        ...

    def begin_term(self, term: object, *, resumed: bool) -> None:
        """The execution of a `dbsp_wcoj.execution.physical_term.PhysicalTerm` begins.

        A term that returns its result in chunks pauses after each chunk, and resumes when the
        caller requests the next one.

        Args:
            term: The term.
            resumed: True if the execution resumes.
        """
        ...

    def end_term(self) -> None:
        """The execution of the current term ends or pauses."""
        ...

    def begin_kernel(self, state: npt.NDArray[np.int64]) -> None:
        """The join kernel of the current term begins in this thread.

        Args:
            state: The state that the kernel writes (`dbsp_wcoj.kernels.join.progress_board`).
        """
        ...

    def end_kernel(self) -> None:
        """The join kernel has ended. After an error only `end_term` is called."""
        ...


#: The observer of each observed thread, by the thread's identifier. Usually empty, which callers
#: test first, because that is the cheapest check. Only `observing` changes it.
OBSERVERS: Final[dict[int, Observer]] = {}


def current_observer() -> Observer | None:
    """The observer of this thread, or None."""
    return OBSERVERS.get(get_ident())


@contextmanager
def observing(observer: Observer) -> Iterator[None]:
    """Report the phases in this thread to an observer; an outer observer does not see them.

    Enter and leave it in one thread.

    >>> from dbsp_wcoj import DeltaQuery, ZSet
    >>> class Printing:
    ...     def begin_phase(self, phase):
    ...         print("begin", phase)
    ...
    ...     def end_phase(self, rows):
    ...         print("end", rows)
    >>> with observing(Printing()):
    ...     delta = ZSet.from_rows([(2, 1), (1, 2)])
    begin sort
    end 2
    """
    thread = get_ident()
    outer = OBSERVERS.get(thread)
    OBSERVERS[thread] = observer
    try:
        yield
    finally:
        if outer is None:
            del OBSERVERS[thread]
        else:
            OBSERVERS[thread] = outer


def observed(
    phase: str, rows: Callable[[tuple[Any, ...], Any], int] | None = None
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a function a phase.

    Args:
        phase: The name of the phase.
        rows: Computes the rows of a call from its positional arguments and its result.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def call(*arguments: P.args, **options: P.kwargs) -> R:
            observer = current_observer() if OBSERVERS else None
            if observer is None:
                return function(*arguments, **options)
            observer.begin_phase(phase)
            count = 0
            try:
                result = function(*arguments, **options)
                count = 0 if rows is None else rows(arguments, result)
            finally:
                observer.end_phase(count)
            return result

        return call

    return decorate
