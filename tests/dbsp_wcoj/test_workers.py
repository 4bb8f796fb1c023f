"""Workers: results and errors in the order of the tasks, nested tasks, interrupts."""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from circuits.runtime.threads import workers_of
from dbsp_wcoj import DbspWcojError
from dbsp_wcoj.workers import (
    Job,
    Workers,
    check_stopped,
    count_shares,
    current_workers,
    run_tasks,
    working_with,
)
from tests.generators.strategies import LAW
from tests.support.working_threads import working_threads

TIMEOUT = 60.0


def run_until_stopped(ended: threading.Event) -> None:
    """Run until the job of this task is stopped, and say so."""
    try:
        while True:
            check_stopped()
    finally:
        ended.set()


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_results_have_the_order_of_the_tasks_and_tasks_may_run_tasks(threads):
    def total(first: int) -> int:
        return sum(run_tasks([lambda i=i: first + i for i in range(10)]))

    with working_threads(threads):
        found = run_tasks([lambda k=k: total(k) for k in range(20)])

    assert found == [10 * k + 45 for k in range(20)]


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_the_error_of_the_first_task_that_fails_is_raised(threads):
    def fail(number: int) -> int:
        if number in (7, 8, 20):
            raise ValueError(number)
        return number

    with working_threads(threads):
        for _ in range(50):
            with pytest.raises(ValueError, match=r"^7$"):
                run_tasks([lambda k=k: fail(k) for k in range(30)])
        assert run_tasks([int, int]) == [0, 0]


def test_two_tasks_run_at_the_same_time():
    meeting = threading.Barrier(2, timeout=TIMEOUT)
    with working_threads(2):
        assert sorted(run_tasks([meeting.wait, meeting.wait])) == [0, 1]


def test_a_waiting_thread_takes_the_tasks_of_the_task_that_it_waits_for():
    meeting = threading.Barrier(2, timeout=TIMEOUT)
    begun = threading.Event()

    def long() -> list[int]:
        begun.set()
        return run_tasks([meeting.wait, meeting.wait])  # only two threads exist

    def short() -> None:
        assert begun.wait(TIMEOUT)

    with working_threads(2):
        assert sorted(run_tasks([long, short])[0]) == [0, 1]


def test_an_interrupt_ends_the_other_tasks_before_it_is_raised():
    begun, ended = threading.Event(), threading.Event()
    main = threading.get_ident()

    def interrupt() -> None:
        if threading.get_ident() != main:
            work()
        assert begun.wait(TIMEOUT)
        raise KeyboardInterrupt

    def work() -> None:
        if threading.get_ident() == main:
            interrupt()
        begun.set()
        run_until_stopped(ended)

    with working_threads(2):
        with pytest.raises(KeyboardInterrupt):
            run_tasks([interrupt, work, pytest.fail])
        assert ended.is_set()
        assert run_tasks([int, int]) == [0, 0]


def test_an_interrupt_while_tasks_are_added_leaves_none_running():
    begun, ended = threading.Event(), threading.Event()

    class InterruptedExecutor(ThreadPoolExecutor):
        calls = 0

        def submit(self, *arguments, **options):
            self.calls += 1
            if self.calls == 2:
                assert begun.wait(TIMEOUT)
                raise KeyboardInterrupt
            return super().submit(*arguments, **options)

    def work() -> None:
        begun.set()
        run_until_stopped(ended)

    with InterruptedExecutor(2) as executor, working_with(Workers(executor, 3)):
        with pytest.raises(KeyboardInterrupt):
            run_tasks([work] * 3)
        assert ended.is_set()
        assert run_tasks([int] * 5) == [0] * 5


def test_a_task_that_is_not_needed_adds_no_further_task_and_opens_no_job():
    begun, stopped = threading.Event(), threading.Event()
    main = threading.get_ident()
    found: list[object] = []

    def work(job: Job) -> None:
        if threading.get_ident() == main:
            assert begun.wait(TIMEOUT)
            raise KeyboardInterrupt
        begun.set()
        while True:
            try:
                check_stopped()
            except Exception:
                break
        job.add(lambda: found.append("added"))
        try:
            run_tasks([lambda: found.append("nested")] * 3)
        finally:
            stopped.set()

    def begin(job: Job) -> None:
        for _ in range(2):
            job.add(lambda: work(job))

    with working_threads(2):
        workers = current_workers()
        with pytest.raises(KeyboardInterrupt):
            workers.run_job(begin)
        assert stopped.is_set()
        assert found == []
        assert run_tasks([int] * 5) == [0] * 5


def test_a_nested_task_ends_if_a_job_around_it_is_stopped():
    begun, ended = threading.Event(), threading.Event()
    main = threading.get_ident()

    def spin() -> None:
        if threading.get_ident() == main:
            raise KeyboardInterrupt
        begun.set()
        while True:
            check_stopped()

    def work() -> None:
        if threading.get_ident() == main:
            assert begun.wait(TIMEOUT)
            raise KeyboardInterrupt
        try:
            run_tasks([spin, spin])
        finally:
            ended.set()

    with working_threads(2):
        with pytest.raises(KeyboardInterrupt):
            run_tasks([work, work])
        assert ended.is_set()
        assert run_tasks([int] * 5) == [0] * 5


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("is_queued", [False, True])
def test_a_failed_start_of_a_thread_does_not_lower_the_number_of_threads(error, is_queued):
    class FailingExecutor(ThreadPoolExecutor):
        fails = 3

        def submit(self, *arguments, **options):
            if self.fails:
                self.fails -= 1
                if is_queued:
                    super().submit(*arguments, **options)
                raise error
            return super().submit(*arguments, **options)

    with FailingExecutor(1) as executor, working_with(Workers(executor, 2)):
        while executor.fails:
            with suppress(KeyboardInterrupt):
                assert run_tasks([int] * 3) == [0] * 3
        meeting = threading.Barrier(2, timeout=TIMEOUT)
        for _ in range(3):
            assert sorted(run_tasks([meeting.wait, meeting.wait])) == [0, 1]


@pytest.mark.parametrize("interrupts", [1, 2])
def test_interrupts_at_any_moment_leave_no_lock_task_or_thread_behind(interrupts):
    remaining, main = [0], threading.get_ident()
    begun: list[int] = []
    ended: list[int] = []

    def interrupt(*_: object) -> None:
        remaining[0] -= 1
        if remaining[0] <= 0:
            signal.setitimer(signal.ITIMER_REAL, 0)
        if remaining[0] >= 0:
            raise KeyboardInterrupt

    def task() -> None:
        if threading.get_ident() != main:
            begun.append(1)
            ended.append(1)

    def work() -> None:
        with working_with(workers):
            for _ in range(1000):
                run_tasks([task, lambda: run_tasks([task] * 3), task])

    workers = workers_of(3)
    unused = working_with(None)
    unused.__enter__()
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for number in range(200):
            remaining[0] = interrupts
            with suppress(KeyboardInterrupt):
                try:
                    signal.setitimer(signal.ITIMER_REAL, 1e-5 * (1 + number), 2e-5)
                    work()
                finally:
                    remaining[0] = 0
            count = len(begun)
            assert len(ended) == count
            signal.setitimer(signal.ITIMER_REAL, 0)
            assert len(begun) == count
            assert not workers._jobs
        meeting = threading.Barrier(3, timeout=TIMEOUT)
        with working_with(workers):
            assert sorted(run_tasks([meeting.wait] * 3)) == [0, 1, 2]
    finally:
        remaining[0] = 0
        signal.setitimer(signal.ITIMER_REAL, 0)
        unused.__exit__()  # an interrupt may have come before that of ``workers``
        time.sleep(0.01)  # a late signal is handled here, not by the default handler
        signal.signal(signal.SIGALRM, before)


def test_without_a_running_executor_the_calling_thread_does_all():
    executor = ThreadPoolExecutor(1)
    executor.shutdown()
    with working_with(Workers(executor, 3)):
        for _ in range(3):
            assert run_tasks([threading.get_ident] * 9) == [threading.get_ident()] * 9


def test_a_forked_process_works_alone():
    with working_threads(2):
        run_tasks([int, int])
        child = os.fork()
        if not child:  # the threads of the pool are not in this process
            os._exit(run_tasks([lambda: 3, lambda: 4]) != [3, 4])
        assert os.waitpid(child, 0)[1] == 0


def test_a_process_forked_while_threads_work_has_its_own_threads():
    workers = workers_of(2)
    forked, begun = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        assert forked.wait(TIMEOUT)

    def run() -> None:
        with working_with(workers):
            run_tasks([wait, wait])

    def meet() -> bool:
        meeting = threading.Barrier(2, timeout=TIMEOUT)
        with working_with(workers):
            return sorted(run_tasks([meeting.wait, meeting.wait])) == [0, 1]

    thread = threading.Thread(target=run)
    thread.start()
    assert begun.wait(TIMEOUT)
    child = os.fork()
    if not child:
        status = 1
        try:
            status = 0 if meet() else 1
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    forked.set()
    thread.join()
    assert meet()


def test_workers_are_those_of_the_thread_that_got_them():
    with working_threads(2):
        assert current_workers() is not None
        with ThreadPoolExecutor(1) as executor:
            assert executor.submit(current_workers).result() is None
        with working_with(None):
            assert current_workers() is None
        assert current_workers() is not None
    assert current_workers() is None
    with ThreadPoolExecutor(1) as executor, pytest.raises(DbspWcojError, match="1 or more"):
        Workers(executor, 0)


@LAW
@given(costs=st.lists(st.integers(0, 50), max_size=40), threads=st.integers(1, 9))
def test_shares_add_up_and_are_at_most_one_task_above_the_mean(costs, threads):
    shares = count_shares(costs, threads)
    assert (len(shares), sum(shares)) == (threads, sum(costs))
    assert max(shares) <= sum(costs) / threads + max(costs, default=0)
