"""Failing rows: find the rows that make a step fail, by trying parts of the micro-batch.

An error of a row by itself (NULL, a type) is seen before the circuit. Other errors show only when
the step is computed: an expression without a value for a row, a weight that leaves int64, two
changes of a key without an order. The rows are halved until each failing row is isolated. First
each part is tried by itself. If the remaining rows fail only together, parts are then tried on top
of the good rows::

    alone(rows):     if the step of rows succeeds:            rows are kept
                     elif there is one row:                   it is a failing row
                     else:                                    alone(first half); alone(second)

    together(rows):  if the step of good ∪ rows succeeds:     good = good ∪ rows
                     elif there is one row:                   it is a failing row
                     else:                                    together(first half); together(second)

A good row is lost only if its step cannot succeed without the failing rows (a weight that leaves
int64 and returns). Where rows fail only together, the choice depends on their order: of two rows
that overflow a sum, or that change a key without an order, the first is good and the second fails.

Cost: for p rows that fail alone, steps of O(rows · log p) rows in total; for p that fail only
together, O(p · log(rows / p)) steps of up to all rows. That can take hours, so the search is
bounded: by `MAX_FAILING_ROWS` rows, and by `MAX_TRIED_ROWS_PER_ROW` tried rows. A micro-batch with
more failing rows needs a correction of the view or of the source. Nothing is committed. An error
that occurs without any rows is not the error of a row and is raised unchanged.

A row whose step alone exceeds the limits on rows or bytes (`circuits.StepLimits`) is a failing row.
Rows that exceed them only together are not, since none of them is wrong: that error is raised, as
are the errors of the time and memory limits. Such steps are slow to try, so the search ends after
`MAX_LIMIT_HITS` of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from circuits import StepLimitError
from dbsp_wcoj.errors import DbspWcojError

__all__ = ["MAX_FAILING_ROWS", "FailingRow", "IsolatedRows", "isolate_failing_rows"]

Tables = Mapping[str, pa.Table]
Attempt = Callable[[Tables], object]

MAX_FAILING_ROWS: Final = 1000  # that are isolated in a micro-batch
MAX_TRIED_ROWS_PER_ROW: Final = 100  # rows of all tried steps, per row of the micro-batch
MIN_TRIED_ROWS: Final = 20_000_000  # the bound for a small micro-batch
STEP_COST_ROWS: Final = 2000  # the fixed cost of a step, as a number of rows
MAX_LIMIT_HITS: Final = 50  # steps that exceed a limit on rows or bytes
#: Limits that a single row may exceed.
ROW_LIMITS: Final = ("max_step_rows", "max_step_bytes")


@dataclass(frozen=True)
class FailingRow:
    """A row that makes the step fail, and the error."""

    relation: str
    row: pa.Table
    error: DbspWcojError


@dataclass(frozen=True)
class IsolatedRows:
    """Rows whose step succeeds, and rows that make it fail.

    Attributes:
        good: The rows of each relation.
        bad: The failing rows.
        complete: True if each row is in one of both; otherwise the search reached its bound.
    """

    good: Mapping[str, pa.Table]
    bad: list[FailingRow]
    complete: bool


def isolate_failing_rows(
    tables: Tables, attempt: Attempt, *, max_failing: int = MAX_FAILING_ROWS
) -> IsolatedRows:
    """Split the rows into those whose step succeeds and those that make it fail.

    Args:
        tables: The rows of each relation.
        attempt: Computes the step of some rows, without side effects; raises if that fails.
        max_failing: The search stops at this number of failing rows.

    Raises:
        DbspWcojError: The step fails without any rows.
        StepLimitError: Rows exceed a limit only together, or exceed a time or memory limit.

    >>> def attempt(tables):
    ...     if 0 in tables["r"].column("x").to_pylist():
    ...         raise DbspWcojError("0 has no inverse")
    >>> found = isolate_failing_rows({"r": pa.table({"x": [3, 0, 4, 0]})}, attempt)
    >>> found.good["r"].to_pylist(), [str(one.error) for one in found.bad]
    ([{'x': 3}, {'x': 4}], ['0 has no inverse', '0 has no inverse'])
    """
    no_rows = {name: table.slice(0, 0) for name, table in tables.items()}
    attempt(no_rows)
    rows = sum(table.num_rows for table in tables.values())
    search = _Search(attempt, max_failing, max(MAX_TRIED_ROWS_PER_ROW * rows, MIN_TRIED_ROWS))
    remaining = {
        name: search.keep_good(no_rows, name, table, alone=True) for name, table in tables.items()
    }
    if not search.complete or search.error_of(remaining, alone=False) is None:
        return IsolatedRows(remaining, search.bad, search.complete)
    good = dict(no_rows)
    for name, table in remaining.items():
        good[name] = search.keep_good(good, name, table, alone=False)
    return IsolatedRows(good, search.bad, search.complete)


@dataclass
class _Search:
    """Tries parts of a micro-batch, within bounds."""

    attempt: Attempt
    max_failing: int
    tried_rows_left: int
    bad: list[FailingRow] = field(default_factory=list)
    limit_hits: int = 0

    @property
    def complete(self) -> bool:
        """Return whether no bound has been reached."""
        return (
            len(self.bad) < self.max_failing
            and self.tried_rows_left > 0
            and self.limit_hits <= MAX_LIMIT_HITS
        )

    def error_of(self, tables: Tables, *, alone: bool) -> DbspWcojError | None:
        """Return the error of a step; None if it succeeds.

        Raises:
            StepLimitError: The error is not that of a single row.
        """
        self.tried_rows_left -= STEP_COST_ROWS + sum(table.num_rows for table in tables.values())
        try:
            self.attempt(tables)
        except StepLimitError as error:
            if not alone or error.limit not in ROW_LIMITS:
                raise
            self.limit_hits += 1
            return error
        except DbspWcojError as error:
            return error
        return None

    def keep_good(self, others: Tables, name: str, table: pa.Table, *, alone: bool) -> pa.Table:
        """Return the rows of a table whose steps succeed, alone or on top of other rows."""
        kept = [table.slice(0, 0)]
        pending = [(0, table.num_rows)]  # first row and number of rows of parts, a stack
        while pending and self.complete:
            start, rows = pending.pop()
            part = table.slice(start, rows)
            tried = part if alone else pa.concat_tables([*kept, part])
            error = self.error_of({**others, name: tried}, alone=alone) if rows else None
            if error is None:
                kept.append(part)
            elif rows == 1:
                self.bad.append(FailingRow(name, part, error))
            else:
                half = rows // 2
                pending += [(start + half, rows - half), (start, half)]
        return pa.concat_tables(kept)
