"""Frozen objects: from the first micro-batch of a sink until the last sink is closed or deleted."""

from __future__ import annotations

import weakref
from unittest.mock import patch

import pyarrow as pa
import pytest

from circuits import compile_sql
from streaming import ViewSink
from streaming.sink import frozen_objects, view_sink
from streaming.sink.frozen_objects import FrozenObjects
from tests.streaming.sink.test_view_sink import Frame


class Collector:
    """A stand-in for the module `gc`; counts the frozen objects."""

    def __init__(self):
        self.frozen = 0
        self.calls = []

    def get_freeze_count(self):
        return self.frozen

    def freeze(self):
        self.frozen = 9
        self.calls.append("freeze")

    def unfreeze(self):
        self.frozen = 0
        self.calls.append("unfreeze")


class Owner:
    """Something that may be deleted."""


@pytest.fixture
def collector():
    collector = Collector()
    with patch.object(frozen_objects, "gc", collector):
        yield collector


def test_objects_are_frozen_until_the_last_owner_is_released(collector):
    objects, first, second = FrozenObjects(), Owner(), Owner()
    for _ in range(3):
        objects.hold(first)
        objects.hold(second)
    objects.release(first)
    assert collector.calls == ["freeze"]
    objects.release(second)
    objects.release(second)
    assert collector.calls == ["freeze", "unfreeze"]
    objects.hold(first)
    assert collector.calls == ["freeze", "unfreeze", "freeze"]


def test_an_owner_that_is_deleted_is_released(collector):
    objects, owner = FrozenObjects(), Owner()
    objects.hold(owner)
    del owner
    assert collector.calls == ["freeze", "unfreeze"]


def test_an_owner_that_is_held_and_released_repeatedly_has_no_more_finalizers(collector):
    objects, owner = FrozenObjects(), Owner()
    for _ in range(20):
        objects.hold(owner)
        objects.release(owner)
    assert weakref.getweakrefcount(owner) == 0


def test_objects_that_the_program_has_frozen_stay_frozen(collector):
    objects, owner = FrozenObjects(), Owner()
    collector.frozen = 5
    objects.hold(owner)
    objects.release(owner)
    assert collector.calls == []


def test_a_sink_freezes_objects_after_its_first_micro_batch(collector):
    schema = pa.schema([pa.field("a", pa.int64())])
    with patch.object(view_sink, "FROZEN_OBJECTS", FrozenObjects()):
        sink = ViewSink(compile_sql("SELECT a FROM t", {"t": schema}))
        assert collector.calls == []
        for number in range(3):
            sink(Frame(pa.table({"a": [number]}), "q"), number)
        assert collector.calls == ["freeze"]
        sink.close()
        assert collector.calls == ["freeze", "unfreeze"]
