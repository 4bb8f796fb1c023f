"""Limits of one step: how many rows, bytes and seconds it may use before it raises an error.

Without limits, a step whose result does not fit in memory would end the whole process. `StepLimits`
has the limits of each step, and a `Budget` counts how much of them one step has used::

    rows      of one operator, before equal rows are consolidated   <= input rows + max_step_rows
    bytes     of the results of all operators together              <= input bytes + max_step_bytes
    seconds   since the step began                                  <= max_seconds

The input rows of a step do not count, so a first load of any size passes: the limits are for the
rows that the step adds to its input. Rows are counted where a buffer grows, after each chunk of up
to 65,536 rows and before the next chunk is computed. So counting costs nothing per row. An operator
exceeds a limit by at most one chunk per thread. Each of several running operators may use all that
the finished ones have left of ``max_step_bytes``. The kernels do not know the limits. They return
after every chunk, and after a fixed amount of work without output
(`dbsp_wcoj.kernels.join.join_layout.MAX_WORK_PER_CALL`); their caller then checks the budget.

The budget has no clock of its own: the caller passes one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Final, NamedTuple

from dbsp_wcoj.arguments import check_type
from dbsp_wcoj.errors import LimitError

__all__ = ["DEFAULT_LIMITS", "Budget", "StepLimits", "Usage"]

WORD_BYTES: Final = 8


@dataclass(frozen=True)
class StepLimits:
    """The limits of one step. A limit of None is switched off.

    Attributes:
        max_step_rows: Rows that one operator may produce in a step, in addition to the number of
            input rows of the step. All iterations of a recursion count together.
        max_step_bytes: Bytes of the results of all operators of a step, in addition to the bytes
            of its input rows. A row takes 8 bytes per column and 8 for its weight; sorting takes
            about as much again for a short time.
        max_seconds: Seconds that a step may take. Off by default, since a large first load may
            take long.

    Raises:
        LimitError: A limit is not a positive number, or not a whole one where rows or bytes are
            counted.

    >>> StepLimits(max_step_rows=1_000_000, max_seconds=30)
    StepLimits(max_step_rows=1000000, max_step_bytes=8589934592, max_seconds=30)
    >>> StepLimits.off()
    StepLimits(max_step_rows=None, max_step_bytes=None, max_seconds=None)
    >>> StepLimits(max_step_rows=0)
    Traceback (most recent call last):
    ...
    dbsp_wcoj.errors.LimitError: max_step_rows=0 is not a positive whole number; give one, or None \
for no limit
    """

    max_step_rows: int | None = 50_000_000
    max_step_bytes: int | None = 8 << 30
    max_seconds: float | None = None

    def __post_init__(self) -> None:
        for name, types, expected in (
            ("max_step_rows", (int,), "positive whole number"),
            ("max_step_bytes", (int,), "positive whole number"),
            ("max_seconds", (int, float), "positive number"),
        ):
            value = getattr(self, name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, types) or not value > 0:
                raise LimitError(
                    f"{name}={value!r} is not a {expected}; give one, or None for no limit", name
                )

    @staticmethod
    def off() -> StepLimits:
        """Limits that are all switched off."""
        return StepLimits(None, None, None)


#: The limits of a circuit by default.
DEFAULT_LIMITS: Final = StepLimits()


class Usage(NamedTuple):
    """The resources that a step has used when one of its operators begins, and its limits.

    Attributes:
        start: The time at which the step began.
        input_rows: Its input rows.
        max_rows: The rows that an operator may produce.
        max_bytes: The bytes of the results of all operators.
        bytes: The bytes of the results of the operators that have finished.
    """

    start: float
    input_rows: int
    max_rows: int
    max_bytes: int
    bytes: int


class Budget:
    """Counts how much of its limits one step has used.

    Threads that compute parts of one operator may share a budget. Operators that run at the same
    time have one each (`for_concurrent_operator`).

    Args:
        limits: The limits.
        clock: Returns a time in seconds; without a clock ``max_seconds`` is not checked.
        usage: What the step has used so far; by default nothing.

    Attributes:
        operator: The number of the running operator, for error messages; the caller of
            `start_operator` chooses the numbers. After `finish_operator`, and without a deadline,
            setting it is all that `start_operator` would do for an operator without rows.
        peak_bytes: The largest number of bytes that an operator had produced just before it
            finished. Afterwards only its result counts.

    >>> budget = Budget(StepLimits(max_step_rows=100))
    >>> budget.add_input_rows(rows=50, columns=2)
    >>> budget.add_rows(150, 2)
    >>> budget.add_rows(1, 2)
    Traceback (most recent call last):
    ...
    dbsp_wcoj.errors.LimitError: 151 rows of one result, and max_step_rows=100 allows 150 for a \
step of 50 rows
    """

    __slots__ = (
        "_bytes",
        "_bytes_before",
        "_clock",
        "_input_rows",
        "_limits",
        "_lock",
        "_max_bytes",
        "_max_rows",
        "_operator_bytes",
        "_operator_rows",
        "_start",
        "has_deadline",
        "operator",
        "peak_bytes",
    )

    def __init__(
        self,
        limits: StepLimits,
        clock: Callable[[], float] | None = None,
        *,
        usage: Usage | None = None,
    ) -> None:
        check_type("limits", limits, StepLimits, "StepLimits(...), or StepLimits.off()")
        self._limits = limits
        self._clock = clock
        self._lock = Lock()
        self.has_deadline = limits.max_seconds is not None and clock is not None
        self._start = clock() if clock is not None else 0.0
        self._reset()
        self.operator: int | None = None
        if usage is not None:
            self._start, self._input_rows, self._max_rows, self._max_bytes, self._bytes = usage
            self._bytes_before = self._bytes

    def for_concurrent_operator(self, used_bytes: int) -> Budget:
        """Return a budget with the same limits, for an operator that runs beside others.

        Args:
            used_bytes: The bytes of the results of the operators that have finished since the last
                `add_concurrent`.
        """
        usage = Usage(
            self._start,
            self._input_rows,
            self._max_rows,
            self._max_bytes,
            self._bytes + used_bytes,
        )
        return Budget(self._limits, self._clock, usage=usage)

    @property
    def own_bytes(self) -> int:
        """The bytes of the results that a budget of `for_concurrent_operator` has counted."""
        return self._bytes - self._bytes_before

    def add_concurrent(self, other: Budget) -> None:
        """Count what an operator has used that has run beside others, in the program's order.

        Raises:
            LimitError: It would have exceeded a limit after the operators before it.
        """
        self.operator = other.operator
        self._operator_bytes = other.peak_bytes
        self._check()
        self._operator_bytes = 0
        self._bytes += other.own_bytes
        self._check()

    def restart(self) -> None:
        """Count from zero again, also the input rows; the time goes on."""
        self._reset()
        self.operator = None

    def _reset(self) -> None:
        limits = self._limits
        self._max_rows = _NO_LIMIT if limits.max_step_rows is None else limits.max_step_rows
        self._max_bytes = _NO_LIMIT if limits.max_step_bytes is None else limits.max_step_bytes
        self._input_rows = 0
        # The bytes of the results of finished operators, and those of them in ``usage``.
        self._bytes = self._bytes_before = 0
        self.peak_bytes = 0
        # The rows and bytes of the running operator so far.
        self._operator_rows = 0
        self._operator_bytes = 0

    def add_input_rows(self, rows: int, columns: int) -> None:
        """Count input rows of the step, which do not count against its limits."""
        self._input_rows += rows
        self._max_rows += rows
        self._max_bytes += WORD_BYTES * rows * (columns + 1)

    @property
    def operator_bytes(self) -> int:
        """The bytes that the running operator has produced so far."""
        return self._operator_bytes

    def start_operator(self, operator: int | None, rows: int = 0, size: int = 0) -> None:
        """Start to count for an operator.

        Args:
            operator: Its number, for error messages.
            rows: Rows that it has produced in earlier iterations of the step.
            size: Bytes that it has produced for earlier slices of the same rows.

        Raises:
            LimitError: The step has taken too long.
        """
        self.operator = operator
        self._operator_rows = rows
        self._operator_bytes = size
        if self.has_deadline:
            self.check_time()

    def add_rows(self, rows: int, columns: int) -> None:
        """Count rows that the running operator has just produced; called once per chunk.

        Raises:
            LimitError: A limit is exceeded.
        """
        with self._lock:
            self._operator_rows += rows
            self._operator_bytes += WORD_BYTES * rows * (columns + 1)
            if (
                self._operator_rows > self._max_rows
                or self._bytes + self._operator_bytes > self._max_bytes
            ):
                self._check()
        if self.has_deadline:
            self.check_time()

    def add_bytes(self, size: int) -> None:
        """Count bytes of values that the running operator has produced.

        Raises:
            LimitError: A limit is exceeded.
        """
        with self._lock:
            self._operator_bytes += size
            self._check()

    def finish_operator(self, rows: int, columns: int, added: int | None = None) -> None:
        """Finish counting for the running operator: from now on, only its result counts.

        Args:
            rows: All rows that it has produced in the step.
            columns: The number of columns of these rows.
            added: The number of these rows that are new since `start_operator`; by default all.

        Raises:
            LimitError: A limit is exceeded.
        """
        self._operator_rows = rows
        self.peak_bytes = max(self.peak_bytes, self._operator_bytes)
        self._operator_bytes = 0
        self._bytes += WORD_BYTES * (rows if added is None else added) * (columns + 1)
        if self._operator_rows > self._max_rows or self._bytes > self._max_bytes:
            self._check()
        self._operator_rows = 0  # as `start_operator` would, for the next operator

    def count_rows_left(self, rows: int, columns: int) -> int:
        """Return how many rows operators may add without exceeding a limit.

        Args:
            rows: The most rows of one of them.
            columns: The columns of all of them together.
        """
        bytes_left = self._max_bytes - self._bytes - self._operator_bytes
        # `finish_operator` counts a word more per row and operator, which has columns.
        return max(min(self._max_rows - rows, bytes_left // (2 * WORD_BYTES * columns)), 0)

    def check_time(self) -> None:
        """Compare the time with ``max_seconds``.

        Raises:
            LimitError: The step has taken too long.
        """
        if not self.has_deadline or self._clock is None:
            return
        seconds = self._clock() - self._start
        allowed = self._limits.max_seconds
        if allowed is not None and seconds > allowed:
            raise LimitError(
                f"{seconds:.1f} seconds, and max_seconds={allowed} allows no more",
                "max_seconds",
                allowed,
                seconds,
            )

    def _check(self) -> None:
        if self._operator_rows > self._max_rows:
            raise LimitError(
                f"{self._operator_rows:,} rows of one result, and max_step_rows="
                f"{self._limits.max_step_rows} allows {self._max_rows:,} for a step of "
                f"{self._input_rows:,} rows",
                "max_step_rows",
                self._limits.max_step_rows,
                self._operator_rows,
            )
        used = self._bytes + self._operator_bytes
        if used > self._max_bytes:
            raise LimitError(
                f"{used:,} bytes of results, and max_step_bytes={self._limits.max_step_bytes} "
                f"allows {self._max_bytes:,} for a step of {self._input_rows:,} rows",
                "max_step_bytes",
                self._limits.max_step_bytes,
                used,
            )


_NO_LIMIT: Final = 1 << 62
