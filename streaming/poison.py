"""Poison: the rows that make a step fail, found by trying.

What is wrong with a row by itself (NULL, a type) is seen before the circuit. What remains shows
only when the step is computed: an expression without a value for a row, a weight that leaves int64.
Then the rows are halved until the failing ones are left alone::

    good = ∅;  take(rows):  if the step of good ∪ rows can be made:  good = good ∪ rows
                            elif there is one row:                   it is poison
                            else:                                    take(first half); take(second)

so that good rows are never lost, and which rows are taken depends on their order only where they
fail together (two that overflow a sum: the first is good, the second is poison).

Cost: O(p · log(rows / p)) steps for p poisoned rows, each of up to all rows. Nothing is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from dbsp_wcoj.errors import DbspWcojError

__all__ = ["Poisoned", "isolated"]

Tables = Mapping[str, pa.Table]
Try = Callable[[Tables], object]


@dataclass(frozen=True)
class Poisoned:
    """A row that makes the step fail, and how."""

    relation: str
    row: pa.Table
    error: DbspWcojError


def isolated(
    tables: Tables, attempt: Try, *, most: int | None = None
) -> tuple[dict[str, pa.Table], list[Poisoned]]:
    """Part the rows into those whose step can be made and those that make it fail.

    Args:
        tables: The rows of each relation.
        attempt: Makes the step of some of them, without consequences; raises where it cannot.
        most: Stop when so many are found; the good rows are then not all.

    >>> def attempt(tables):
    ...     if 0 in tables["r"].column("x").to_pylist():
    ...         raise DbspWcojError("0 has no inverse")
    >>> good, bad = isolated({"r": pa.table({"x": [3, 0, 4, 0]})}, attempt)
    >>> good["r"].to_pylist(), [str(one.error) for one in bad]
    ([{'x': 3}, {'x': 4}], ['0 has no inverse', '0 has no inverse'])
    """
    good: dict[str, pa.Table] = {name: table.slice(0, 0) for name, table in tables.items()}
    bad: list[Poisoned] = []
    # Pieces still to be taken, the next one last: relation, first row, rows.
    waiting = [(name, 0, table.num_rows) for name, table in reversed(list(tables.items()))]
    while waiting and (most is None or len(bad) < most):
        name, start, rows = waiting.pop()
        if not rows:
            continue
        piece = tables[name].slice(start, rows)
        more = pa.concat_tables([good[name], piece])
        try:
            attempt({**good, name: more})
        except DbspWcojError as error:
            if rows == 1:
                bad.append(Poisoned(name, piece, error))
            else:
                half = rows // 2
                waiting += [(name, start + half, rows - half), (name, start, half)]
        else:
            good[name] = more
    return good, bad
