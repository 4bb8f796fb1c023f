"""Positions: how far each source has been read, as rows of the state.

A circuit has an input for them that no view reads. A step changes them together with the rows of
the sources, so both are committed by one manifest: no
change is lost, and none is applied twice. A position belongs to an input, not to a table: an input
that is new, because the pipeline has changed, has none, and is read from the beginning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

import pyarrow as pa

from circuits.schema import WEIGHT

__all__ = ["POSITIONS", "POSITIONS_SCHEMA", "Position", "position_changes", "read_positions"]

#: For each item of a source, such as a file, a text that says which content was read.
Position: TypeAlias = Mapping[str, str]
#: The name of the input.
POSITIONS: Final = "source_positions"
POSITIONS_SCHEMA: Final = pa.schema(
    [pa.field(name, pa.string(), nullable=False) for name in ("input", "item", "position")]
)


def read_positions(rows: pa.Table) -> dict[str, dict[str, str]]:
    """Return the position of each input that has one.

    Args:
        rows: The rows of the input.
    """
    positions: dict[str, dict[str, str]] = {}
    columns = (rows.column(name).to_pylist() for name in POSITIONS_SCHEMA.names)
    for name, item, position in zip(*columns, strict=True):
        positions.setdefault(name, {})[item] = position
    return positions


def position_changes(old: Mapping[str, Position], new: Mapping[str, Position]) -> pa.Table:
    """Return the changed rows of the input, with ``weight``.

    Args:
        old: The positions in the state.
        new: The positions of the inputs that have changed; an empty one removes it.

    >>> position_changes({"orders": {"": "a:3"}}, {"orders": {"": "a:4"}}).to_pylist()
    [{'input': 'orders', 'item': '', 'position': 'a:3', 'weight': -1}, \
{'input': 'orders', 'item': '', 'position': 'a:4', 'weight': 1}]
    """
    rows: list[tuple[str, str, str, int]] = []
    for name, position in new.items():
        before = old.get(name, {})
        changed = {item for item in {*before, *position} if before.get(item) != position.get(item)}
        for item in sorted(changed):
            for state, weight in ((before, -1), (position, 1)):
                if item in state:
                    rows.append((name, item, state[item], weight))
    schema = POSITIONS_SCHEMA.append(pa.field(WEIGHT, pa.int64()))
    columns = zip(*rows, strict=True) if rows else [[]] * len(schema)
    return (
        pa.table([pa.array(column) for column in columns], schema=schema)
        if rows
        else (schema.empty_table())
    )
