"""Compare a delta query with the oracle after every step of a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from dbsp_wcoj import DeltaQuery, Query
from tests.generators.strategies import zsets
from tests.oracles import naive

Rows = Mapping[tuple[int, ...], int]


def assert_follows(
    view: DeltaQuery,
    query: Query,
    steps: Iterable[Mapping[str, Rows]],
    before_step: Callable[[], object] = lambda: None,
) -> None:
    """Assert that each change of a view leads from the oracle's answer before a step to the next.

    Args:
        view: The view of the query; its relations are empty.
        query: The query.
        steps: The changed rows of the relations in each step, with their weights.
        before_step: Called before each step.
    """
    relations: dict[str, Rows] = {name: {} for name in query.relations}
    before: Rows = {}
    for step in steps:
        before_step()
        change = view.step(zsets(step, query)).to_dict()
        for name, delta in step.items():
            relations[name] = naive.add(relations[name], delta)
        after = naive.evaluate(query, relations)
        assert naive.add(before, change) == after
        before = after
