"""Workers: the threads that share the work of one step.

The engine creates no threads. A caller lends it those of an executor::

    with working_with(Workers(executor, threads=4)):
        delta = view.step({"e": edges})

Code with much independent work passes it as a list of tasks to `run_tasks`. A task may run tasks
itself. The calling thread takes tasks too, and while it waits for the last ones, it takes those
that they run. So no thread waits for a task that nobody has begun, and none is idle while a task of
its own job waits.

Tasks begin in their order, so the first error in this order is the error that one thread would
raise. When `run_tasks` returns or raises an error, an interrupt included, none of its tasks is
running any more, and none begins later.

Interrupts: every lock is a built-in lock, which a KeyboardInterrupt releases at the end of a
``with`` statement, and a thread holds none while it waits. A `threading.Condition` would not do:
its methods are Python code, so an interrupt can leave its lock held. The ``submit`` of the executor
should keep to the same rule.

Without workers, for one task, and in a thread that is observed (`dbsp_wcoj.observer`), the calling
thread does all the work. Small steps pass no tasks, so they wake no other thread.

Alternatives considered: passing the workers as an argument from the step to each sort and merge. It
would add a parameter to every function in between. The tasks of an executor alone: a task that
waits for other tasks would block a thread of the pool, so nested tasks could wait for each other.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from heapq import heapreplace
from threading import Lock, get_ident
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from dbsp_wcoj.arguments import check_type
from dbsp_wcoj.errors import DbspWcojError
from dbsp_wcoj.observer import OBSERVERS, current_observer

__all__ = [
    "MIN_DIVIDED_ROWS",
    "MIN_DIVIDED_WORK",
    "MIN_PARALLEL_ROWS",
    "TASKS_PER_THREAD",
    "Job",
    "Workers",
    "check_stopped",
    "count_jobs",
    "count_shares",
    "current_workers",
    "raise_interrupt",
    "run_tasks",
    "working_with",
]

#: Work that can be divided at will is divided into this many tasks per thread. With fewer, threads
#: would wait for the longest task; each task costs some 50 µs.
TASKS_PER_THREAD: Final = 4
#: Fewer rows are not divided among threads: that would take longer than the work. It takes up to
#: half a millisecond, because a thread that is woken waits until the other one gives up the lock of
#: the interpreter.
MIN_PARALLEL_ROWS: Final = 1 << 15
#: A join of so many rows of a delta is divided all the same if it does so much work: values that
#: are proposed or looked up.
MIN_DIVIDED_ROWS: Final = 1 << 12
MIN_DIVIDED_WORK: Final = 1 << 16

R = TypeVar("R")


class Executor(Protocol):
    """Calls functions in threads: any `concurrent.futures.Executor`, for example."""

    def submit(self, function: Callable[[object], None], argument: object, /) -> object:
        """Call a function in another thread."""


class Workers:
    """Some threads of an executor, and the thread that calls `run`.

    Several threads may call it at the same time.

    Args:
        executor: Runs the tasks that the calling thread does not take itself.
        threads: How many threads work at once, the calling thread included; at least one.

    Raises:
        DbspWcojError: ``threads`` is less than one.

    >>> from concurrent.futures import ThreadPoolExecutor
    >>> with ThreadPoolExecutor(1) as executor:
    ...     Workers(executor, threads=2).run([lambda: 1, lambda: 2, lambda: 3])
    [1, 2, 3]
    """

    __slots__ = ("_executor", "_helpers", "_jobs", "_lock", "_process", "threads")

    def __init__(self, executor: Executor, threads: int) -> None:
        check_type("threads", threads, int, "a number of threads")
        if threads < 1:
            raise DbspWcojError(f"threads={threads}: give 1 or more")
        self._executor = executor
        self.threads = threads
        self._begin_process()

    def _begin_process(self) -> None:
        self._process = os.getpid()
        # Held to read or change the jobs and the helpers.
        self._lock = Lock()
        self._jobs: list[Job] = []
        # One object for each thread of the executor that works, or is about to.
        self._helpers: set[object] = set()

    def run(self, tasks: Sequence[Callable[[], R]]) -> list[R]:
        """Call functions, some of them at the same time, and return their results in order.

        Raises:
            The first error of a task, in the order of the tasks; later tasks may not have run.
        """

        def begin(job: Job) -> None:
            for task in tasks:
                job.add(task)

        return self.run_job(begin)

    def run_job(self, begin: Callable[[Job], None]) -> list[Any]:
        """Run the tasks that a function adds to a job; return their results in the order of `add`.

        Args:
            begin: Adds the first tasks, which may add further ones.

        Raises:
            The first error of a task, in the order of the tasks; later tasks may not have run.
        """
        if self._process != os.getpid():  # a fork has copied the jobs of other threads
            self._begin_process()
        job = Job(self, _LOCAL.job)
        _LOCAL.jobs += 1
        try:
            begin(job)
            return self._finish(job)
        except BaseException:
            interrupt: KeyboardInterrupt | None = None
            while True:
                # In this frame: a second interrupt comes before a called function begins, too.
                try:
                    self._stop(job)
                    break
                except KeyboardInterrupt as error:
                    interrupt = error
            if interrupt is None:
                raise
            try:
                raise interrupt from None
            finally:
                del interrupt  # no reference cycle is left

    def add(self, job: Job, task: Callable[[], Any]) -> None:
        """Add a task to a job; see `Job.add`."""
        helper = None
        try:
            with self._lock:
                if job.errors or job.must_stop():
                    return
                if not job.added:
                    self._jobs.append(job)
                job.unclaimed.append(_Task(job, job.added, task))
                job.added += 1
                if job.added > 1 and len(self._helpers) < self.threads - 1:
                    helper = object()
                    self._helpers.add(helper)
                _wake_up(job)
            if helper is not None:
                self._executor.submit(self._help, helper)
        except BaseException as error:
            with self._lock:
                self._helpers.discard(helper)
            if not isinstance(error, RuntimeError):  # no thread can start: work without it
                raise

    def _finish(self, job: Job) -> list[Any]:
        """Run the tasks of a job and of the jobs in it until all have ended; return the results."""
        while True:
            with self._lock:
                task = self._take(job)
                if task is None and not job.running:
                    if job in self._jobs:
                        self._jobs.remove(job)
                    break
            if task is None:
                job.changed.acquire()
            else:
                self._execute(task)
        if job.must_stop():
            raise _StoppedError
        # No reference cycle is left: tracebacks refer to frames, and these to large arrays.
        results, job.results = job.results, {}
        if not job.errors:
            return [results[number] for number in range(job.added)]
        error = job.errors[min(job.errors)]
        job.errors.clear()
        try:
            raise error
        finally:
            del error, results

    def _stop(self, job: Job) -> None:
        """Begin no more tasks of a job, and wait until those that run have ended."""
        _LOCAL.job = job.outer
        while True:
            with self._lock:
                job.is_stopped = True
                inner = [other for other in self._jobs if other.is_in(job)]
                for other in inner:
                    other.unclaimed.clear()
                    other.running.discard(get_ident())
                    _wake_up(other)
                if not any(other.running for other in inner):
                    self._jobs = [other for other in self._jobs if other not in inner]
                    break
            job.changed.acquire()
        job.results.clear()
        job.errors.clear()

    def _help(self, helper: object) -> None:
        """Run tasks of any job, in a thread of the executor, until there are none."""
        try:
            with working_with(self):
                while True:
                    with self._lock:
                        # False if an interrupt came after the executor had got this function.
                        task = self._take(None) if helper in self._helpers else None
                        if task is None:
                            # Under the same lock: a task that is added now gets another helper.
                            self._helpers.discard(helper)
                            return
                    self._execute(task)
        finally:
            with self._lock:
                self._helpers.discard(helper)

    def _take(self, job: Job | None) -> _Task | None:
        """Return a task that has not begun: of a job or one in it, or of any; the lock is held."""
        for other in reversed(self._jobs):  # the innermost one, for which others wait
            if other.unclaimed and (job is None or other.is_in(job)):
                other.running.add(get_ident())
                return other.unclaimed.popleft()
        return None

    def _execute(self, task: _Task) -> None:
        job, number, function = task
        before, _LOCAL.job = _LOCAL.job, job
        try:
            job.results[number] = function()
        except BaseException as error:
            with self._lock:
                job.errors[number] = error
                job.unclaimed.clear()  # those before it have begun, and one of them may also fail
            if not isinstance(error, Exception):
                raise
        finally:
            _LOCAL.job = before
            with self._lock:
                job.running.discard(get_ident())
                if not job.running:
                    _wake_up(job)


def _wake_up(job: Job) -> None:
    """Let the threads look again that wait for a job or one around it; the lock is held."""
    waiting: Job | None = job
    while waiting is not None:
        if waiting.changed.locked():
            waiting.changed.release()
        waiting = waiting.outer


class Job:
    """Tasks that workers run; a task may add further tasks to its job.

    Attributes:
        added: The number of tasks so far.
        unclaimed: The tasks that have not begun.
        running: The threads that run a task.
        results: The results of tasks, by number.
        errors: The errors of tasks, by number. After an error no further task begins.
        is_stopped: True if no task is needed any more.
        outer: The job of the task that opened this one; None if no task did.
        changed: Released if a task is added or the last one ends, in this job or in one of its
            tasks. The thread that opened the job acquires it to wait.
    """

    __slots__ = (
        "_workers",
        "added",
        "changed",
        "errors",
        "is_stopped",
        "outer",
        "results",
        "running",
        "unclaimed",
    )

    def __init__(self, workers: Workers, outer: Job | None) -> None:
        self._workers = workers
        self.outer = outer
        self.added = 0
        self.unclaimed: deque[_Task] = deque()
        self.running: set[int] = set()
        self.results: dict[int, Any] = {}
        self.errors: dict[int, BaseException] = {}
        self.is_stopped = False
        self.changed = Lock()
        self.changed.acquire()

    def add(self, task: Callable[[], Any]) -> None:
        """Let a thread run a function as soon as one is free, unless the result is not needed."""
        self._workers.add(self, task)

    def is_in(self, other: Job) -> bool:
        """Return whether this is a job or was opened by one of its tasks."""
        job: Job | None = self
        while job is not None and job is not other:
            job = job.outer
        return job is not None

    def must_stop(self) -> bool:
        """Return whether the results of this job, or of one around it, are not needed."""
        job: Job | None = self
        while job is not None and not job.is_stopped:
            job = job.outer
        return job is not None


class _Task(NamedTuple):
    job: Job
    number: int
    function: Callable[[], Any]


class _Local(threading.local):
    workers: Workers | None = None
    job: Job | None = None  # that of the task that the thread runs
    jobs: int = 0  # how many it has run


_LOCAL: Final = _Local()


class _StoppedError(Exception):
    """Ends a task whose result is not needed; the caller of the job raises another error."""


def check_stopped() -> None:
    """End the current task if its result is not needed; long tasks call this at intervals."""
    job = _LOCAL.job
    if job is not None and job.must_stop():
        raise _StoppedError


def current_workers() -> Workers | None:
    """Return the workers that this thread may use; None if it works alone."""
    workers = _LOCAL.workers
    if workers is None or workers.threads < 2:
        return None
    return None if OBSERVERS and current_observer() is not None else workers


def raise_interrupt(error: BaseException) -> None:
    """Raise the interrupt that has caused an error, if one has.

    The code of Numba that calls a kernel turns an interrupt into a `SystemError`, or into several.

    Raises:
        KeyboardInterrupt: The error has this cause.
    """
    cause: BaseException | None = error
    while isinstance(cause, SystemError):
        cause = cause.__cause__
    if cause is not error and isinstance(cause, KeyboardInterrupt):
        raise KeyboardInterrupt from error


def count_jobs() -> int:
    """Return how many jobs this thread has run so far, with any workers."""
    return _LOCAL.jobs


def run_tasks(tasks: Sequence[Callable[[], R]]) -> list[R]:
    """Call functions and return their results in order, at the same time if there are workers.

    Raises:
        The first error of a task, in the order of the tasks; later tasks may not have run.

    >>> run_tasks([lambda: 1, lambda: 2])
    [1, 2]
    """
    workers = current_workers() if len(tasks) > 1 else None
    return [task() for task in tasks] if workers is None else workers.run(tasks)


class working_with:
    """Let the code in this thread use some workers; None for no other threads.

    It is used like a function: a generator would take 1 µs longer for each step. An interrupt at
    the end of the ``with`` statement may leave the workers to the thread. That changes no result,
    and the next step uses its own workers.

    Args:
        workers: The workers, or None.
    """

    __slots__ = ("_before", "_workers")

    def __init__(self, workers: Workers | None) -> None:
        self._workers = workers

    def __enter__(self) -> None:
        self._before, _LOCAL.workers = _LOCAL.workers, self._workers

    def __exit__(self, *_: object) -> None:
        _LOCAL.workers = self._before


def count_shares(costs: Sequence[int], threads: int) -> list[int]:
    """Return the work of each thread if each one takes the next task whenever it is free.

    It is the counted work of threads that this machine need not have.

    Args:
        costs: The work of each task, in the order of the tasks: rows or proposals, for example.
        threads: The number of threads.

    Complexity:
        O(tasks * log threads).

    >>> count_shares([5, 1, 1, 1, 1], threads=2)
    [4, 5]
    """
    shares = [0] * threads
    for cost in costs:
        heapreplace(shares, shares[0] + cost)
    return sorted(shares)
