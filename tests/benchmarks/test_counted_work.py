"""No count of work of the engine grows; the counts are the same on every machine."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import typer

from benchmarks import work
from benchmarks.result import Result
from benchmarks.work_cases import Work, _graph, case_names, count_work, steps


def worse(case: str) -> list[str]:
    known = work.read_record(work.RECORD).get(case)
    changes = work.compare_counts(count_work(case).row(case), known)
    return [
        f"{c['count']}: {c['now']}, recorded {c['recorded']}"
        for c in changes
        if c["is"] != "better"
    ]


@pytest.mark.parametrize("case", case_names())
def test_a_case_does_no_more_work_than_is_recorded(case: str) -> None:
    assert worse(case) == [], "see python -m benchmarks.work"


def test_the_stream_ends_where_it_says_and_the_counts_of_triangles_are_those_of_matrices() -> None:
    edges: Counter[tuple[int, int]] = Counter()
    moved, before = 0, 0
    for graph, weight in steps(_graph()):
        weights = [weight] * graph.edges if isinstance(weight, int) else weight
        pairs = zip(graph.source.tolist(), graph.target.tolist(), strict=True)
        for pair, one in zip(pairs, weights, strict=True):
            edges[pair] += one
        matrix = np.zeros((256, 256), np.int64)
        for (source, target), many in edges.items():
            matrix[source, target] = many
        now = int(((matrix @ matrix) * matrix).sum())
        moved, before = moved + abs(now - before), now

    assert set(edges.values()) == {0, 1}
    assert count_work("triangles, counted").weight_out == moved


def small() -> Work:
    return Work(*range(1, 10))


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A record of cases that do `small`."""
    monkeypatch.setattr(work, "case_names", lambda: ("a", "b"))
    monkeypatch.setattr(work, "count_work", lambda case: small())
    work.main(record=True, json=tmp_path / "work.json")
    return tmp_path / "work.json"


def status(record: Path) -> int:
    try:
        work.main(json=record)
    except typer.Exit as stop:
        return stop.exit_code
    return 0


def test_what_is_as_recorded_is_good(record: Path) -> None:
    assert status(record) == 0


@pytest.mark.parametrize(("count", "expected"), [("joins", 3), ("bytes", 10), ("weight_out", 0)])
def test_one_more_of_anything_or_another_answer_ends_with_status_1(
    count: str, expected: int, record: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = Work(**{**vars(small()), count: expected})
    monkeypatch.setattr(work, "count_work", lambda case: changed)

    assert status(record) == 1


def test_less_is_reported_as_better_and_recorded_with_the_option(
    record: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(work, "count_work", lambda case: Work(**{**vars(small()), "merged": 1}))

    assert status(record) == 0
    assert "an improvement" in capsys.readouterr().out
    work.main(record=True, json=record)
    assert Result.read(record).tables[work.TABLE][0]["rows merged"] == 1


def test_a_case_that_is_not_recorded_ends_with_status_1(
    record: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "case_names", lambda: ("a", "new"))

    assert status(record) == 1


def test_a_part_is_not_recorded_and_no_case_is_an_error(record: Path) -> None:
    with pytest.raises(typer.BadParameter, match="all cases together"):
        work.main(record=True, only="a", json=record)
    with pytest.raises(typer.BadParameter, match="unknown case 'z'; cases: a; b"):
        work.main(only="z", json=record)
