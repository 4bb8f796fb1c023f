"""Positions: the offsets up to which the sources have been read, as rows of the state.

The circuit has an input of its own for the positions; no view reads it. A step changes the
positions together with the rows of the sources, so one manifest commits both: no change is lost,
and none is applied twice. A position belongs to an input of the circuit, not to a table. An input
that the pipeline did not have before has no position, so its source is read from the beginning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

import pyarrow as pa

from circuits.schema import WEIGHT

__all__ = ["POSITIONS", "POSITIONS_SCHEMA", "Position", "position_changes", "read_positions"]

#: For each item of a source, such as a file, a string that identifies the version that was read.
Position: TypeAlias = Mapping[str, str]
#: The name of the input that has the positions.
POSITIONS: Final = "source_positions"
POSITIONS_SCHEMA: Final = pa.schema(
    [pa.field(name, pa.string(), nullable=False) for name in ("input", "item", "position")]
)


def read_positions(rows: pa.Table) -> dict[str, dict[str, str]]:
    """Return the position of each input that has one.

    Args:
        rows: The rows of the input `POSITIONS`.
    """
    positions: dict[str, dict[str, str]] = {}
    columns = (rows.column(name).to_pylist() for name in POSITIONS_SCHEMA.names)
    for name, item, position in zip(*columns, strict=True):
        positions.setdefault(name, {})[item] = position
    return positions


def position_changes(old: Mapping[str, Position], new: Mapping[str, Position]) -> pa.Table:
    """Return the changed rows of the input `POSITIONS`, with ``weight``.

    Args:
        old: The positions in the state.
        new: The new positions, by input. An empty position removes that of the input. An input that
            is not listed keeps its position.

    >>> position_changes({"orders": {"": "a:3"}}, {"orders": {"": "a:4"}}).to_pylist()
    [{'input': 'orders', 'item': '', 'position': 'a:3', 'weight': -1}, \
{'input': 'orders', 'item': '', 'position': 'a:4', 'weight': 1}]
    """
    rows: list[tuple[str, str, str, int]] = []
    for name, position in new.items():
        before = old.get(name, {})
        changed = {item for item in {*before, *position} if before.get(item) != position.get(item)}
        for item in sorted(changed):
            for items, weight in ((before, -1), (position, 1)):
                if item in items:
                    rows.append((name, item, items[item], weight))
    schema = POSITIONS_SCHEMA.append(pa.field(WEIGHT, pa.int64()))
    columns = zip(*rows, strict=True) if rows else [[]] * len(schema)
    return (
        pa.table([pa.array(column) for column in columns], schema=schema)
        if rows
        else (schema.empty_table())
    )
