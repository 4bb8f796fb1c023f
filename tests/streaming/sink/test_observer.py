"""Observers receive the events of a sink in order, whatever other observers do."""

from __future__ import annotations

import pickle

import pytest

from streaming import BatchOrderError, SinkObserver, ViewSink
from tests.streaming.sink.test_view_sink import Frame
from tests.support.fed_sink import batch, views


class RecordingObserver(SinkObserver):
    def __init__(self):
        self.events = []

    def batch_started(self, batch_id):
        self.events.append(("started", batch_id))

    def batch_completed(self, published, metrics):
        assert published.batch_id == metrics.batch_id
        assert set(metrics.rows_out) == set(published.outputs)
        self.events.append(("replayed" if metrics.replayed else "completed", published.batch_id))

    def batch_failed(self, batch_id, error):
        self.events.append((type(error).__name__, batch_id))


class FailingObserver(SinkObserver):
    def batch_started(self, batch_id):
        raise ValueError("no")

    batch_completed = batch_failed = batch_started


def test_each_micro_batch_starts_and_completes_or_fails():
    events = RecordingObserver()
    sink = ViewSink(views(), observers=[FailingObserver(), events])
    sink(Frame(batch(0), "q"), 0)
    sink(Frame(batch(0), "q"), 0)
    with pytest.raises(BatchOrderError):
        sink(Frame(batch(2), "q"), 2)
    assert events.events == [
        ("started", 0),
        ("completed", 0),
        ("started", 0),
        ("replayed", 0),
        ("started", 2),
        ("BatchOrderError", 2),
    ]


def test_a_pickled_sink_leaves_its_observers_behind(tmp_path):
    events = RecordingObserver()
    with_observer = ViewSink(views(), state_dir=tmp_path, observers=[events])
    copy = pickle.loads(pickle.dumps(with_observer))
    copy(Frame(batch(0), "q"), 0)
    copy.close()
    assert events.events == []
