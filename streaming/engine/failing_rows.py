"""Failing rows: find the rows that make a step fail, by trying parts of the micro-batch.

Most invalid rows (a NULL, a value of the wrong type) are detected before the circuit. Other errors
occur only when the step is computed: a division by zero, a sum of weights outside int64, two
changes of a key without an order. To find the rows, the micro-batch is halved until each failing
row is isolated. First each part is tried by itself. If the remaining rows fail only together, parts
are then tried together with the good rows::

    alone(rows):     if the step of rows succeeds:            rows are kept
                     elif there is one row:                   it is a failing row
                     else:                                    alone(first half); alone(second)

    together(rows):  if the step of good ∪ rows succeeds:     good = good ∪ rows
                     elif there is one row:                   it is a failing row
                     else:                                    together(first half); together(second)

A good row is rejected only if its step cannot succeed without the failing rows (a sum of weights
that overflows only without them). If rows fail only together, the choice depends on their order: of
two rows that overflow a sum, or that change a key without an order, the first is good and the
second fails.

Cost: for p rows that fail alone, steps of O(rows · log p) rows in total; for p that fail only
together, O(p · log(rows / p)) steps of up to all rows. That could take hours, so the search stops
after `MAX_FAILING_ROWS` failing rows, or `MAX_TRIED_ROWS_PER_ROW` tried rows per row. If there are
more failing rows, the view or the source must be corrected. The search commits nothing. An error
that also occurs without any rows is not caused by a row and is raised unchanged.

A row whose step alone exceeds the limits on rows or bytes (`circuits.StepLimits`) is a failing row.
Rows that exceed them only together are not failing rows: that error is raised, as are the errors of
the time and memory limits. Such steps are slow to try, so the search ends after `MAX_LIMIT_HITS` of
them.
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

MAX_FAILING_ROWS: Final = 1000  # isolated in one micro-batch
# The limit on the rows of all tried steps together: this many per row of the micro-batch, and at
# least MIN_TRIED_ROWS_LIMIT.
MAX_TRIED_ROWS_PER_ROW: Final = 100
MIN_TRIED_ROWS_LIMIT: Final = 20_000_000
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
        good: The rows of each relation whose step succeeds.
        bad: The failing rows.
        is_complete: True if every row is in ``good`` or ``bad``; False if a limit was reached.
    """

    good: Mapping[str, pa.Table]
    bad: list[FailingRow]
    is_complete: bool


def isolate_failing_rows(
    tables: Tables, attempt: Attempt, *, max_failing: int = MAX_FAILING_ROWS
) -> IsolatedRows:
    """Split the rows into those whose step succeeds and those that make it fail.

    Args:
        tables: The rows of each relation.
        attempt: Computes the step of some rows, without side effects; raises if that fails.
        max_failing: The maximum number of failing rows; then the search stops.

    Raises:
        DbspWcojError: The step fails without any rows.
        StepLimitError: Rows exceed a limit only together, or exceed a time or memory limit.

    >>> def attempt(tables):
    ...     if 0 in tables["r"].column("x").to_pylist():
    ...         raise DbspWcojError("0 has no inverse")
    >>> rows = isolate_failing_rows({"r": pa.table({"x": [3, 0, 4, 0]})}, attempt)
    >>> rows.good["r"].to_pylist(), [str(row.error) for row in rows.bad]
    ([{'x': 3}, {'x': 4}], ['0 has no inverse', '0 has no inverse'])
    """
    no_rows = {name: table.slice(0, 0) for name, table in tables.items()}
    attempt(no_rows)
    rows = sum(table.num_rows for table in tables.values())
    search = _Search(attempt, max_failing, max(MAX_TRIED_ROWS_PER_ROW * rows, MIN_TRIED_ROWS_LIMIT))
    remaining = {
        name: search.keep_good(no_rows, name, table, alone=True) for name, table in tables.items()
    }
    if not search.is_complete or search.error_of(remaining, alone=False) is None:
        return IsolatedRows(remaining, search.bad, search.is_complete)
    good = dict(no_rows)
    for name, table in remaining.items():
        good[name] = search.keep_good(good, name, table, alone=False)
    return IsolatedRows(good, search.bad, search.is_complete)


@dataclass
class _Search:
    """Tries parts of a micro-batch, within limits."""

    attempt: Attempt
    max_failing: int
    tried_rows_left: int
    bad: list[FailingRow] = field(default_factory=list)
    limit_hits: int = 0

    @property
    def is_complete(self) -> bool:
        """Return whether the search has stayed within its limits."""
        return (
            len(self.bad) < self.max_failing
            and self.tried_rows_left > 0
            and self.limit_hits <= MAX_LIMIT_HITS
        )

    def error_of(self, tables: Tables, *, alone: bool) -> DbspWcojError | None:
        """Return the error of a step; None if it succeeds.

        Raises:
            StepLimitError: The limit is exceeded by several rows together, or limits time or
                memory.
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
        """Return the rows of a table whose steps succeed.

        Args:
            others: Rows of the other relations, which belong to every tried step.
            name: The relation of the table.
            table: The rows to try.
            alone: True to try each part by itself; False to try it with the good rows before it.
        """
        good = [table.slice(0, 0)]
        pending = [(0, table.num_rows)]  # a stack of parts: first row and number of rows
        while pending and self.is_complete:
            start, rows = pending.pop()
            part = table.slice(start, rows)
            tried = part if alone else pa.concat_tables([*good, part])
            error = self.error_of({**others, name: tried}, alone=alone) if rows else None
            if error is None:
                good.append(part)
            elif rows == 1:
                self.bad.append(FailingRow(name, part, error))
            else:
                half = rows // 2
                pending += [(start + half, rows - half), (start, half)]
        return pa.concat_tables(good)
