"""Positions of queries: each micro-batch is applied once, and their number is bounded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streaming.data_source import query_positions
from streaming.data_source.query_positions import FORGOTTEN, advance, is_applied
from streaming.errors import BatchOrderError

# The queries, each with whether its next micro-batch is new; the clock of the driver may go back.
CALLS = st.lists(
    st.tuples(st.sampled_from("abcdef"), st.booleans(), st.integers(-3, 5)), max_size=40
)


@given(CALLS, st.integers(1, 3))
def test_no_micro_batch_is_applied_twice_and_no_new_query_is_taken_for_an_old_one(
    calls, max_queries
):
    position: dict[str, str] = {}
    planned: dict[str, tuple[int, int]] = {}
    applied: set[tuple[str, int]] = set()
    clock = 10
    with_limit = query_positions.MAX_QUERIES
    query_positions.MAX_QUERIES = max_queries
    try:
        for query, is_next, seconds in calls:
            clock = max(clock + seconds, 0)
            if query not in planned:
                planned[query] = (0, clock)
            elif is_next and (query, planned[query][0]) in applied:
                planned[query] = (planned[query][0] + 1, clock)
            batch_id, time = planned[query]
            try:
                known = is_applied(position, query, batch_id, time)
            except BatchOrderError:
                assert FORGOTTEN in position
                continue
            assert known == ((query, batch_id) in applied)
            if not known:
                position = advance(position, query, batch_id, time)
                applied.add((query, batch_id))
            assert len(position) <= max_queries + 1
    finally:
        query_positions.MAX_QUERIES = with_limit


def test_positions_of_earlier_versions_are_kept_until_their_query_writes_again(monkeypatch):
    monkeypatch.setattr(query_positions, "MAX_QUERIES", 1)
    position = advance(advance({"old": "7"}, "a", 0, 1), "b", 0, 2)
    assert position == {"old": "7", FORGOTTEN: "1", "b": "0@2"}
    assert is_applied(position, "old", 7, 0)
    assert advance(position, "old", 8, 3) == {FORGOTTEN: "2", "old": "8@3"}
