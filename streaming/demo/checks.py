"""Compare the demo's totals with a recount, an oracle and published figures.

Each comparison is of one total, or of the counts of all nodes, after some number of changes. The
number of comparisons is counted and shown, so a check that compared nothing cannot be mistaken for
one that found everything equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

import numpy as np

from streaming.demo.events import ChangeStream, Integers
from streaming.demo.oracle import Oracle
from streaming.demo.recount import recount
from streaming.demo.triangles import PER_NODE, CurrentViews

__all__ = ["Checks", "Difference", "choose_recounts"]


@dataclass(frozen=True)
class Difference:
    """One total that differs from the expected value."""

    against: str
    position: int
    total: str
    actual: object
    expected: object

    def __str__(self) -> str:
        return (
            f"after {self.position:,} changes {self.total} is {self.actual}, "
            f"but {self.expected} according to the {self.against}"
        )


@dataclass
class Checks:
    """The comparisons so far.

    Attributes:
        stream: The changes, for the recount.
        recount_positions: When to recount, each as a number of changes.
        oracle: Expected totals, compared after every micro-batch.
        published: Expected totals after the last change.
        compared: The number of comparisons with each source of expected values.
        differences: The comparisons that differ.
        recount_count: The number of recounts so far.
    """

    stream: ChangeStream
    recount_positions: frozenset[int]
    oracle: Oracle | None = None
    published: Mapping[str, int] = field(default_factory=dict)
    compared: dict[str, int] = field(default_factory=dict)
    differences: list[Difference] = field(default_factory=list)
    recount_count: int = 0

    def compare(self, position: int, views: CurrentViews) -> None:
        """Compare the totals after a number of changes with all expected values."""
        actual = asdict(views.counts)
        if position in self.recount_positions:
            self._recount(position, actual, views)
        if self.oracle is not None:
            for name, expected in self.oracle.at(position).items():
                self._compare("oracle", position, name, actual[name], expected)
        if position == len(self.stream):
            for name, expected in self.published.items():
                self._compare("published figure", position, name, actual[name], expected)

    @property
    def total(self) -> int:
        """The number of comparisons."""
        return sum(self.compared.values())

    def _recount(self, position: int, actual: Mapping[str, int], views: CurrentViews) -> None:
        expected = recount(*self.stream.live_after(position))
        for name, value in actual.items():
            self._compare("recount", position, name, value, getattr(expected, name))
        for view in PER_NODE:
            counts = views.per_node(view)
            self._compare_nodes(position, view, counts, getattr(expected, view))
        self.recount_count += 1

    def _compare(
        self, against: str, position: int, name: str, actual: object, expected: object
    ) -> None:
        self.compared[against] = self.compared.get(against, 0) + 1
        if actual != expected:
            self.differences.append(Difference(against, position, name, actual, expected))

    def _compare_nodes(
        self,
        position: int,
        view: str,
        actual: tuple[Integers, Integers],
        expected: tuple[Integers, Integers],
    ) -> None:
        if all(np.array_equal(a, b) for a, b in zip(actual, expected, strict=True)):
            self._compare("recount", position, view, True, True)  # counts one comparison
            return
        actual_counts, expected_counts = (
            {int(k): int(v) for k, v in zip(*counts, strict=True)} for counts in (actual, expected)
        )
        first_node = min(
            node
            for node in {*actual_counts, *expected_counts}
            if actual_counts.get(node) != expected_counts.get(node)
        )
        self._compare(
            "recount",
            position,
            f"{view} of {first_node}",
            actual_counts.get(first_node, 0),
            expected_counts.get(first_node, 0),
        )


def choose_recounts(cuts: Integers, count: int) -> frozenset[int]:
    """Choose ``count`` evenly spaced ends of micro-batches (``cuts``), and the last one."""
    indices = np.arange(1, count + 1) * (len(cuts) - 1) // (count + 1)
    return frozenset(int(cuts[i]) for i in (*indices, len(cuts) - 1))
