"""The metrics file is renamed when it is long, and does not grow while that fails."""

from __future__ import annotations

import pytest

from streaming.state.local_files import LocalFiles
from streaming.state.records import metrics_file
from streaming.state.records.metrics_file import MetricsFile

LINE = "0123456789\n"


@pytest.fixture(autouse=True)
def small_limit(monkeypatch):
    monkeypatch.setattr(metrics_file, "MAX_METRICS_FILE_BYTES", 5 * len(LINE))


def test_a_long_file_is_renamed_and_both_files_have_all_lines(tmp_path):
    metrics = MetricsFile(LocalFiles(tmp_path))
    for number in range(8):
        metrics.append(LINE)
        if number == 3:
            metrics = MetricsFile(LocalFiles(tmp_path))
            metrics.read_size()
    assert (tmp_path / "metrics.jsonl.1").read_text() == 6 * LINE
    assert (tmp_path / "metrics.jsonl").read_text() == 2 * LINE


def test_a_long_file_that_cannot_be_renamed_does_not_grow(tmp_path):
    (tmp_path / "metrics.jsonl.1").mkdir()  # in the way
    metrics = MetricsFile(LocalFiles(tmp_path))
    failures = 0
    for _ in range(50):
        try:
            metrics.append(LINE)
        except OSError:
            failures += 1
    assert failures == 44
    assert (tmp_path / "metrics.jsonl").read_text() == 6 * LINE
    (tmp_path / "metrics.jsonl.1").rmdir()
    metrics.append(LINE)
    assert (tmp_path / "metrics.jsonl").read_text() == LINE


def test_a_long_file_that_was_removed_by_hand_is_begun_again(tmp_path):
    metrics = MetricsFile(LocalFiles(tmp_path))
    for _ in range(6):
        metrics.append(LINE)
    (tmp_path / "metrics.jsonl").unlink()
    metrics.append(LINE)
    assert (tmp_path / "metrics.jsonl").read_text() == LINE
