"""Cached properties of two classes that read each other, in two threads."""

from __future__ import annotations

import threading

from dbsp_wcoj.cached_property import cached_property


class Node:
    def __init__(self, child=None, meeting=None):
        self.child = child
        self.meeting = meeting

    def read_child(self):
        if self.meeting is not None:
            self.meeting.wait(timeout=60)  # both threads are within a property now
        return 0 if self.child is None else self.child.size + 1


class Join(Node):
    @cached_property
    def size(self):
        return self.read_child()


class Map(Node):
    @cached_property
    def size(self):
        return self.read_child()


def test_properties_that_read_each_other_in_two_threads_do_not_wait_for_ever():
    meeting = threading.Barrier(2)
    nodes = [Join(Map(Join()), meeting), Map(Join(Map()), meeting)]
    sizes = []
    threads = [
        threading.Thread(target=lambda node=node: sizes.append(node.size), daemon=True)
        for node in nodes
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert sizes == [2, 2]


def test_a_value_is_computed_once():
    node = Join(Map())
    assert (node.size, node.__dict__["size"]) == (1, 1)
    node.child = None
    assert node.size == 1
    assert isinstance(Join.size, cached_property)
