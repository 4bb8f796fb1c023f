"""No count of work of the engine grows; the counts are the same on every machine."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer

from benchmarks import work
from benchmarks.result import Result
from benchmarks.work_cases import Work, _graph, case_names, count_work, steps


def worse_counts(case: str) -> list[str]:
    """Run a case; describe the counts that are larger than recorded."""
    recorded = work.read_record(work.RECORD).get(case)
    changes = work.compare_counts(count_work(case).row(case), recorded)
    return [
        f"{change['count']}: {change['now']}, recorded {change['recorded']}"
        for change in changes
        if change["is"] != "better"
    ]


@pytest.mark.parametrize("case", case_names())
def test_a_case_does_no_more_work_than_is_recorded(case: str) -> None:
    assert worse_counts(case) == [], "see python -m benchmarks.work"


def test_the_stream_has_sets_of_edges_and_the_counts_of_triangles_are_those_of_matrices() -> None:
    edges: Counter[tuple[int, int]] = Counter()
    total_change, triangles = 0, 0
    for graph, weight in steps(_graph()):
        weights = [weight] * graph.edges if isinstance(weight, int) else weight
        pairs = zip(graph.source.tolist(), graph.target.tolist(), strict=True)
        for pair, pair_weight in zip(pairs, weights, strict=True):
            edges[pair] += pair_weight
        matrix = np.zeros((256, 256), np.int64)
        for (source, target), edge_weight in edges.items():
            matrix[source, target] = edge_weight
        previous, triangles = triangles, int(((matrix @ matrix) * matrix).sum())
        total_change += abs(triangles - previous)

    assert set(edges.values()) == {0, 1}
    assert count_work("triangles, counted").weight_out == total_change


def example_work() -> Work:
    """Return work whose nine counts differ."""
    return Work(*range(1, 10))


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A record of two cases that do `example_work`."""
    monkeypatch.setattr(work, "case_names", lambda: ("a", "b"))
    monkeypatch.setattr(work, "count_work", lambda case: example_work())
    work.main(record=True, json=tmp_path / "work.json")
    return tmp_path / "work.json"


def test_the_clock_of_the_run_starts_before_the_first_case(
    record: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []

    class WatchedResult(Result):
        def __init__(self, *args: Any, **fields: Any) -> None:
            events.append("clock")
            super().__init__(*args, **fields)

    def count_watched(case: str) -> Work:
        events.append("case")
        return example_work()

    monkeypatch.setattr(work, "Result", WatchedResult)
    monkeypatch.setattr(work, "count_work", count_watched)
    work.main(json=record)
    assert events[:2] == ["clock", "case"]


def run_status(record: Path) -> int:
    """Compare the work with the record; return the exit status."""
    try:
        work.main(json=record)
    except typer.Exit as stop:
        return stop.exit_code
    return 0


def test_equal_counts_end_with_status_0(record: Path) -> None:
    assert run_status(record) == 0


@pytest.mark.parametrize(("count", "expected"), [("joins", 3), ("bytes", 10), ("weight_out", 0)])
def test_a_larger_count_or_another_answer_ends_with_status_1(
    count: str, expected: int, record: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = Work(**{**vars(example_work()), count: expected})
    monkeypatch.setattr(work, "count_work", lambda case: changed)

    assert run_status(record) == 1


def test_a_smaller_count_is_reported_as_better_and_recorded_with_the_option(
    record: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        work, "count_work", lambda case: Work(**{**vars(example_work()), "merged": 1})
    )

    assert run_status(record) == 0
    assert "an improvement" in capsys.readouterr().out
    work.main(record=True, json=record)
    assert Result.read(record).tables[work.TABLE][0]["rows merged"] == 1


def test_a_case_that_is_not_recorded_ends_with_status_1(
    record: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "case_names", lambda: ("a", "new"))

    assert run_status(record) == 1


def test_some_cases_are_not_recorded_alone_and_an_unknown_case_is_refused(record: Path) -> None:
    with pytest.raises(typer.BadParameter, match="all cases together"):
        work.main(record=True, only="a", json=record)
    with pytest.raises(typer.BadParameter, match="unknown case 'z'; cases: a; b"):
        work.main(only="z", json=record)
