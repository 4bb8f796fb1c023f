"""The benchmark of threads: work, span and shares of tiny steps."""

from __future__ import annotations

from benchmarks import threads
from benchmarks.threads import SerialWorkers, triangles, wall_row, work_rows
from benchmarks.verdict import Verdict
from dbsp_wcoj.workers import Job


def test_the_span_is_the_longest_chain_of_tasks(monkeypatch):
    now = [0]
    monkeypatch.setattr("benchmarks.threads.time.thread_time", lambda: now[0])
    workers = SerialWorkers(8)

    def take(seconds: int) -> None:
        now[0] += seconds

    def step() -> None:
        take(1)
        workers.run([lambda: take(2), lambda: workers.run([lambda: take(3)] * 2)])
        workers.run_job(begin)

    def begin(job: Job) -> None:
        job.add(lambda: (take(1), job.add(lambda: take(2))))
        job.add(lambda: take(1))

    assert workers.measure(step) == (1 + 2 + 2 * 3 + 3 + 1, 1 + 3 + 3)


def test_a_case_has_the_state_of_one_thread_and_even_shares(monkeypatch):
    monkeypatch.setattr(threads, "EDGES", 20_000)
    monkeypatch.setattr(threads, "STEP_ROWS", 5_000)
    verdict = Verdict()
    rows, shares = work_rows("tiny", triangles("count(*) AS n", "", 0.2, seed=3), verdict)
    assert (verdict.comparisons, verdict.differences) == (threads.STEPS + 2, [])
    assert [row["step"] for row in rows] == ["load", "step"]
    assert all(0 < row["span ms"] <= row["work ms"] for row in rows)
    (share,) = shares
    assert share["2 threads"] < 1.2


def test_two_threads_compute_the_state_of_one(monkeypatch):
    monkeypatch.setattr(threads, "EDGES", 2_000)
    monkeypatch.setattr(threads, "STEP_ROWS", 500)
    verdict = Verdict()
    verdict.set_truth("tiny: as with one thread", True)
    row = wall_row("tiny", triangles("count(*) AS n", "", 0.2, seed=3), 1, verdict)
    assert (verdict.comparisons, verdict.differences) == (1, [])
    for kind in ("load", "step"):
        assert row[f"{kind} times faster"] > 0
