"""Workers: results and errors in the order of the tasks, nested tasks, interrupts."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbsp_wcoj import DbspWcojError
from dbsp_wcoj.workers import (
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
        try:
            while True:
                check_stopped()
        finally:
            ended.set()

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
        try:
            while True:
                check_stopped()
        finally:
            ended.set()

    with InterruptedExecutor(2) as executor, working_with(Workers(executor, 3)):
        with pytest.raises(KeyboardInterrupt):
            run_tasks([work] * 3)
        assert ended.is_set()
        assert run_tasks([int] * 5) == [0] * 5


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
