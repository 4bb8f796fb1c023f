"""Window nodes: their labels, and the rewrites that drop calls and push filters down."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from circuits.plan.node import PlanNode
from circuits.plan.nodes import Field
from circuits.plan.rewrite.pipeline import rewrite_plan
from circuits.plan.window import Window
from circuits.sql.statements import plan_sql

RELATIONS = {"e": tuple(Field(name, pa.int64()) for name in "ktxyz")}


def windows_of(text: str) -> list[Window]:
    """The windows of a query after all rewrites, from the top."""
    plan = rewrite_plan(plan_sql(text, RELATIONS)["view"])
    return [node for node in nodes_of(plan) if isinstance(node, Window)]


def nodes_of(plan: PlanNode) -> Iterator[PlanNode]:
    yield plan
    for node in plan.inputs:
        yield from nodes_of(node)


def calls_of(text: str) -> list[list[str]]:
    return [[call.function for call in window.calls] for window in windows_of(text)]


INNER = (
    "SELECT k, t, rank() OVER w AS r, sum(x) OVER w AS s, max(y) OVER (PARTITION BY k) AS m "
    "FROM e WINDOW w AS (PARTITION BY k ORDER BY t)"
)


def test_calls_of_one_window_share_a_node():
    assert calls_of(INNER) == [["max"], ["rank", "sum"]]


@pytest.mark.parametrize(
    ("columns", "expected"),
    [("k, r", [["rank"]]), ("k, s", [["sum"]]), ("k, t", [])],
)
def test_calls_that_are_not_read_are_dropped(columns, expected):
    assert calls_of(f"SELECT {columns} FROM ({INNER}) q") == expected


def test_a_window_keeps_the_columns_that_are_read_and_no_others():
    (window,) = windows_of("SELECT t, lag(x) OVER (PARTITION BY k ORDER BY t) AS n FROM e")

    assert [field.name for field in window.input.fields] == ["t", "k", "x"]


def test_a_filter_of_partition_columns_is_below_the_window():
    windows = windows_of(f"SELECT t, r, m FROM ({INNER}) q WHERE k = 1 AND t > 2")

    below = [node.label() for node in nodes_of(windows[-1])]
    assert len(windows) == 2
    assert any("k = 1" in label for label in below)
    assert not any("t > 2" in label for label in below)


def test_a_label_has_the_calls_as_sql_writes_them():
    (window,) = windows_of(
        "SELECT sum(x) OVER (PARTITION BY k ORDER BY t DESC ROWS BETWEEN 2 PRECEDING AND CURRENT "
        "ROW EXCLUDE TIES) AS n, lag(x, 2) OVER (PARTITION BY k ORDER BY t DESC) AS m FROM e"
    )

    assert window.label() == (
        "window sum(x) rows between 2 preceding and current row exclude ties, lag(x, 2) "
        "over (partition by k order by t desc)"
    )
