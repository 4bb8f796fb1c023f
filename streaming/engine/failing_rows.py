"""Poison: the rows that make a step fail, found by trying.

What is wrong with a row by itself (NULL, a type) is seen before the circuit. What remains shows
only when the step is computed: an expression without a value for a row, a weight that leaves int64,
two changes of a key without an order. Rows are halved until the failing ones are left alone, first
each piece by itself, then, if the rows that are left fail only together, on top of the good ones::

    alone(rows):     if the step of rows can be made:         they are left
                     elif there is one row:                   it is poison
                     else:                                    alone(first half); alone(second)

    together(rows):  if the step of good ∪ rows can be made:  good = good ∪ rows
                     elif there is one row:                   it is poison
                     else:                                    together(first half); together(second)

A good row is lost only if its step cannot be made without the others (a weight that leaves int64
and is brought back). Which rows are taken depends on their order where they fail together: of two
that overflow a sum, or change a key without an order, the first is good and the second is poison.

Cost: of p rows that are poison by themselves, steps of O(rows · log p) rows in all; of p that are
only together, O(p · log(rows / p)) steps of up to all rows. That can be hours, so there is an end:
`MOST` rows, and `EFFORT`. Who has more of them has a view or a source to correct. Nothing is
committed. An error that is there without any row is not that of a row, and raised as it is.

A row whose step alone passes the limits on rows or bytes (`circuits.StepLimits`) is poison as any
other. Rows that pass them only together are not, since nothing is wrong with any of them: that
error is raised, as are those of time and of memory. Trying such steps is slow, so after
`MAX_LIMIT_HITS` of them the search ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from circuits import StepLimitError
from dbsp_wcoj.errors import DbspWcojError

__all__ = ["MOST", "FailingRows", "IsolatedRows", "isolate_failing_rows"]

Tables = Mapping[str, pa.Table]
Try = Callable[[Tables], object]

MOST: Final = 1000  # poisoned rows of a micro-batch
EFFORT: Final = 100  # times the rows, that steps may have in all
LEAST_EFFORT: Final = 20_000_000  # and for few rows, this many
STEP: Final = 2000  # rows that a step costs without any
MAX_LIMIT_HITS: Final = 50  # steps that may pass a limit of rows or bytes
#: Limits that a single row may pass on each attempt.
LIMITS_OF_ROWS: Final = ("max_step_rows", "max_step_bytes")


@dataclass(frozen=True)
class FailingRows:
    """A row that makes the step fail, and how."""

    relation: str
    row: pa.Table
    error: DbspWcojError


@dataclass(frozen=True)
class IsolatedRows:
    """Rows whose step can be made, and those that make it fail.

    Attributes:
        good: The rows of each relation.
        bad: The others.
        complete: Whether all rows are in one of both; else there were too many poisoned ones.
    """

    good: Mapping[str, pa.Table]
    bad: list[FailingRows]
    complete: bool


def isolate_failing_rows(tables: Tables, attempt: Try, *, most: int = MOST) -> IsolatedRows:
    """Part the rows into those whose step can be made and those that make it fail.

    Args:
        tables: The rows of each relation.
        attempt: Makes the step of some of them, without consequences; raises where it cannot.
        most: Stop when so many are found.

    Raises:
        DbspWcojError: The step cannot be made without any rows.
        StepLimitError: Rows pass a limit only together, or one of time or memory.

    >>> def attempt(tables):
    ...     if 0 in tables["r"].column("x").to_pylist():
    ...         raise DbspWcojError("0 has no inverse")
    >>> found = isolate_failing_rows({"r": pa.table({"x": [3, 0, 4, 0]})}, attempt)
    >>> found.good["r"].to_pylist(), [str(one.error) for one in found.bad]
    ([{'x': 3}, {'x': 4}], ['0 has no inverse', '0 has no inverse'])
    """
    nothing = {name: table.slice(0, 0) for name, table in tables.items()}
    attempt(nothing)
    rows = sum(table.num_rows for table in tables.values())
    search = _Search(attempt, most, max(EFFORT * rows, LEAST_EFFORT))
    left = {name: search.taken(nothing, name, table, alone=True) for name, table in tables.items()}
    if not search.complete or search.fits(left, alone=False) is None:
        return IsolatedRows(left, search.bad, search.complete)
    good = dict(nothing)
    for name, table in left.items():
        good[name] = search.taken(good, name, table, alone=False)
    return IsolatedRows(good, search.bad, search.complete)


@dataclass
class _Search:
    """Trying pieces, within bounds."""

    attempt: Try
    most: int
    effort: int
    bad: list[FailingRows] = field(default_factory=list)
    limit_hits: int = 0

    @property
    def complete(self) -> bool:
        """Whether nothing was left out so far."""
        return len(self.bad) < self.most and self.effort > 0 and self.limit_hits <= MAX_LIMIT_HITS

    def fits(self, tables: Tables, *, alone: bool) -> DbspWcojError | None:
        """The error of a step; None when it can be made.

        Raises:
            StepLimitError: It is not the error of a row.
        """
        self.effort -= STEP + sum(table.num_rows for table in tables.values())
        try:
            self.attempt(tables)
        except StepLimitError as error:
            if not alone or error.limit not in LIMITS_OF_ROWS:
                raise
            self.limit_hits += 1
            return error
        except DbspWcojError as error:
            return error
        return None

    def taken(self, others: Tables, name: str, table: pa.Table, *, alone: bool) -> pa.Table:
        """The rows of a table whose steps can be made, alone or together, with other rows."""
        taken = [table.slice(0, 0)]
        waiting = [(0, table.num_rows)]  # first row and rows of pieces, the next one last
        while waiting and self.complete:
            start, rows = waiting.pop()
            piece = table.slice(start, rows)
            given = piece if alone else pa.concat_tables([*taken, piece])
            error = self.fits({**others, name: given}, alone=alone) if rows else None
            if error is None:
                taken.append(piece)
            elif rows == 1:
                self.bad.append(FailingRows(name, piece, error))
            else:
                half = rows // 2
                waiting += [(start + half, rows - half), (start, half)]
        return pa.concat_tables(taken)
