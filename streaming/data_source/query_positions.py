"""Query positions: the last micro-batch of each query that writes into an input, in bounded space.

A position maps the id of each query to "micro-batch id@time of planning". When Spark plans a
micro-batch, it writes the time into the checkpoint, in milliseconds since 1970. A micro-batch that
it repeats has the same time.

Each new checkpoint is a new query, so only the positions of `MAX_QUERIES` queries are kept. The
queries whose last micro-batches were planned first are forgotten. The item with the key `FORGOTTEN`
has the greatest time among their last micro-batches.

Invariant: no micro-batch that Spark repeats is applied twice. If queries were forgotten, a query
without an item is accepted only as a new one: with micro-batch 0, planned after that time. The
first micro-batch of a query writes an item even if it has no rows, so a micro-batch other than 0
without an item belongs to a forgotten query. A forgotten query repeats micro-batch 0 with its old
time.

Items of earlier versions have no time. They are kept, beyond `MAX_QUERIES`, until their query
writes again.
"""

from __future__ import annotations

from typing import Final

from streaming.database.positions import Position
from streaming.errors import BatchOrderError

__all__ = ["FORGOTTEN", "MAX_QUERIES", "advance", "is_applied"]

#: The number of queries whose micro-batches an input remembers.
MAX_QUERIES: Final = 1000
#: The key of the item with the greatest time of planning among the forgotten micro-batches.
FORGOTTEN: Final = ""


def is_applied(position: Position, query: str, batch_id: int, planned_ms: int) -> bool:
    """Return whether the state contains a micro-batch.

    Args:
        position: The position of the input.
        query: The id of the query.
        batch_id: The id of the micro-batch.
        planned_ms: When Spark planned it.

    Raises:
        BatchOrderError: The query has written a later micro-batch, or it may be forgotten.

    >>> is_applied({"a": "3@70"}, "a", 3, 70), is_applied({"a": "3@70"}, "a", 4, 80)
    (True, False)
    """
    if query in position:
        last, _ = _parse(position[query])
        if batch_id < last:
            raise BatchOrderError(
                f"micro-batch {batch_id} is older than the last one, {last}: the checkpoint was "
                "replaced by an older copy; put back the newest one"
            )
        return batch_id == last
    if FORGOTTEN in position and (batch_id or planned_ms <= int(position[FORGOTTEN])):
        raise BatchOrderError(
            f"micro-batch {batch_id} of query {query} may be in the state: more than "
            f"{MAX_QUERIES} other queries have written since, so its position was forgotten; give "
            "the query a new checkpoint, and let it read only rows that are not in the state"
        )
    return False


def advance(position: Position, query: str, batch_id: int, planned_ms: int) -> dict[str, str]:
    """Return the position after a micro-batch for which `is_applied` has returned False.

    The arguments are those of `is_applied`.

    >>> advance({"a": "3@70"}, "b", 0, 80)
    {'a': '3@70', 'b': '0@80'}
    """
    changed = {**position, query: f"{batch_id}@{planned_ms}"}
    times = {item: _parse(value)[1] for item, value in changed.items() if item != FORGOTTEN}
    known = sorted(
        (time, item) for item, time in times.items() if time is not None and item != query
    )
    forgotten = known[: max(len(known) + 1 - MAX_QUERIES, 0)]
    for time, item in forgotten:
        del changed[item]
        changed[FORGOTTEN] = str(max(time, int(changed.get(FORGOTTEN, 0))))
    return changed


def _parse(value: str) -> tuple[int, int | None]:
    """Return the id of a micro-batch, and when Spark planned it, if that is known."""
    batch_id, _, time = value.partition("@")
    return int(batch_id), int(time) if time else None
