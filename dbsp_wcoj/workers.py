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
running any more.

Without workers, for one task, and in a thread that is observed (`dbsp_wcoj.observer`), the calling
thread does all the work. Small steps pass no tasks, so they wake no other thread.

Alternatives considered: passing the workers as an argument from the step to each sort and merge. It
would add a parameter to every function in between. The tasks of an executor alone: a task that
waits for other tasks would block a thread of the pool, so nested tasks could wait for each other.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from heapq import heapreplace
from threading import get_ident
from typing import Any, Final, NamedTuple, TypeVar

from dbsp_wcoj.arguments import check_type
from dbsp_wcoj.errors import DbspWcojError
from dbsp_wcoj.observer import OBSERVERS, current_observer

__all__ = [
    "MIN_DIVIDED_CANDIDATES",
    "MIN_DIVIDED_ROWS",
    "MIN_PARALLEL_ROWS",
    "TASKS_PER_THREAD",
    "Job",
    "Workers",
    "check_stopped",
    "count_shares",
    "current_workers",
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
#: A join of so many rows of a delta is divided all the same if it has so many candidates: values
#: that are proposed or looked up.
MIN_DIVIDED_ROWS: Final = 1 << 12
MIN_DIVIDED_CANDIDATES: Final = 1 << 16

R = TypeVar("R")


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

    __slots__ = ("_changed", "_executor", "_helpers", "_jobs", "threads")

    def __init__(self, executor: Executor, threads: int) -> None:
        check_type("threads", threads, int, "a number of threads")
        if threads < 1:
            raise DbspWcojError(f"threads={threads}: give 1 or more")
        self._executor = executor
        self.threads = threads
        # Held to read or change the jobs; notified when a task is added or the last one ends.
        self._changed = threading.Condition()
        self._jobs: list[Job] = []
        self._helpers = 0  # threads of the executor that work, or are about to

    def run(self, tasks: Sequence[Callable[[], R]]) -> list[R]:
        """Call functions, some of them at the same time, and return their results in order.

        Raises:
            The first error of a task, in the order of the tasks; later tasks may not have run.
        """
        with self.open_job() as job:
            for task in tasks:
                job.add(task)
            return job.finish()

    def open_job(self) -> Job:
        """Return a job without tasks, for a ``with`` statement in which `Job.finish` is called."""
        return Job(self, _LOCAL.job)

    def add(self, job: Job, task: Callable[[], Any]) -> None:
        """Add a task to a job; see `Job.add`."""
        with self._changed:
            if not job.added:
                self._jobs.append(job)
            job.unclaimed.append(_Task(job, job.added, task))
            job.added += 1
            needs_helper = job.added > 1 and self._helpers < self.threads - 1
            self._helpers += needs_helper
            if self._helpers:
                self._changed.notify_all()
        if needs_helper:
            try:
                self._executor.submit(self._help)
            except BaseException as error:
                with self._changed:
                    self._helpers -= 1
                if not isinstance(error, RuntimeError):  # it is shut down: work alone
                    raise

    def finish(self, job: Job) -> None:
        """Run the tasks of a job and of the jobs in it until all of them have ended."""
        while True:
            with self._changed:
                while (task := self._take(job)) is None and job.running:
                    self._changed.wait()
            if task is None:
                return
            self._execute(task)

    def close(self, job: Job) -> None:
        """Forget a job whose tasks have ended."""
        with self._changed:
            if job in self._jobs:
                self._jobs.remove(job)

    def stop(self, job: Job) -> None:
        """Begin no more tasks of a job, and wait until those that run have ended."""
        interrupt: KeyboardInterrupt | None = None
        while True:
            try:
                with self._changed:
                    for other in self._jobs:
                        if other.is_in(job):
                            other.is_stopped = True
                            other.unclaimed.clear()
                            other.running.discard(get_ident())
                    self._changed.notify_all()
                    while job.running:
                        self._changed.wait()
                break
            except KeyboardInterrupt as error:  # a second one does not leave tasks behind
                interrupt = error
        if interrupt is not None:
            raise interrupt

    def _help(self) -> None:
        """Run tasks of any job, in a thread of the executor, until there are none."""
        is_over = False
        try:
            with working_with(self):
                while True:
                    with self._changed:
                        task = self._take(None)
                        if task is None:
                            # Under the same lock: a task that is added now gets another helper.
                            self._helpers -= 1
                            is_over = True
                            return
                    self._execute(task)
        finally:
            if not is_over:
                with self._changed:
                    self._helpers -= 1

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
            with self._changed:
                job.errors[number] = error
                job.unclaimed.clear()  # those before it have begun, and one of them may also fail
            if not isinstance(error, Exception):
                raise
        finally:
            _LOCAL.job = before
            with self._changed:
                job.running.discard(get_ident())
                if not job.running:
                    self._changed.notify_all()


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
    """

    __slots__ = (
        "_workers",
        "added",
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

    def add(self, task: Callable[[], Any]) -> None:
        """Let a thread run a function as soon as one is free."""
        if not self.errors:
            self._workers.add(self, task)

    def __enter__(self) -> Job:
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        try:
            if error_type is not None:  # an interrupt of this thread may leave tasks behind
                self._workers.stop(self)
        finally:
            self._workers.close(self)

    def finish(self) -> list[Any]:
        """Run the tasks until all have ended; return their results in the order of `add`.

        Raises:
            The first error of a task, in the order of the tasks.
        """
        self._workers.finish(self)
        # No reference cycle is left: tracebacks refer to frames, and these to large arrays.
        results, self.results = self.results, {}
        if not self.errors:
            return [results[number] for number in range(self.added)]
        error = self.errors[min(self.errors)]
        self.errors.clear()
        try:
            raise error
        finally:
            del error, results

    def is_in(self, other: Job) -> bool:
        """Return whether this is a job or was opened by one of its tasks."""
        job: Job | None = self
        while job is not None and job is not other:
            job = job.outer
        return job is not None


class _Task(NamedTuple):
    job: Job
    number: int
    function: Callable[[], Any]


class _Local(threading.local):
    workers: Workers | None = None
    job: Job | None = None  # that of the task that the thread runs


_LOCAL: Final = _Local()


class _StoppedError(Exception):
    """Ends a task whose result is not needed; the caller of the job raises another error."""


def check_stopped() -> None:
    """End the current task if its result is not needed; long tasks call this at intervals."""
    job = _LOCAL.job
    if job is not None and job.is_stopped:
        raise _StoppedError


def current_workers() -> Workers | None:
    """Return the workers that this thread may use; None if it works alone."""
    workers = _LOCAL.workers
    if workers is None or workers.threads < 2:
        return None
    return None if OBSERVERS and current_observer() is not None else workers


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

    It is used like a function: a generator would take 1 µs longer for each step.
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
