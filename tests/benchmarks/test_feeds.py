"""The benchmark of change feeds: its events are plain, and a wrong answer is found."""

import pytest

from benchmarks import feeds
from benchmarks.verdict import Verdict


@pytest.mark.parametrize("name", list(feeds.FEEDS))
def test_the_events_of_each_format_are_decoded_without_spark_and_compared(name):
    verdict = Verdict()
    row = feeds.measure(verdict, name, feeds.TEMPLATES, 1)
    assert row["events"] == feeds.TEMPLATES and row["bytes per event"] > 400
    assert not verdict.differences


def test_one_seed_gives_the_same_events():
    assert feeds.events_of(feeds.maxwell, 3) == feeds.events_of(feeds.maxwell, 3)


@pytest.mark.parametrize("name", list(feeds.FLAT_FEEDS))
def test_the_rows_of_each_flat_feed_are_decoded_without_spark_and_counted(name):
    verdict = Verdict()
    row = feeds.measure_flat(verdict, name, feeds.TEMPLATES, 1)
    assert row["rows"] == feeds.TEMPLATES
    assert not verdict.differences
