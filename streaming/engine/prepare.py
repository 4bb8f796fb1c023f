"""Prepare the step of a micro-batch in which some rows may be invalid.

A row is invalid if it cannot be decoded, if an input rejects it (`circuits.inputs`), or if it makes
the step fail (`streaming.engine.failing_rows`). The policy for invalid rows is "fail", which raises
an error, or "dead_letter", which keeps each of them apart with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType

import numpy as np
import pyarrow as pa

from circuits import BrokenCircuitError, Circuit, CircuitStep, StepLimitError
from circuits.inputs import RejectedRows
from circuits.schema import WEIGHT
from dbsp_wcoj.errors import DbspWcojError
from streaming.engine.failing_rows import (
    MAX_FAILING_ROWS,
    ROW_LIMITS,
    FailingRow,
    isolate_failing_rows,
)
from streaming.errors import RowError
from streaming.sources.dead_letters import BadRowPolicy, DeadLetters, apply_policy

__all__ = ["PreparedBatch", "prepare_batch"]

#: Rows that an input rejects for these reasons are dead letters under either policy. A late row is
#: older than the watermark, which is not an error of the stream.
EXPECTED_REASONS = ("late",)


@dataclass(frozen=True)
class PreparedBatch:
    """A prepared step.

    Attributes:
        step: The step.
        tables: The rows of each relation that the step has, before the options of inputs apply.
        dead_letters: The rows that are not part of the step.
        digests: A checksum of the rows of each input, to compare a replay with. Empty if failing
            rows were isolated, because then the rows of the step are not those of the source.
    """

    step: CircuitStep
    tables: Mapping[str, pa.Table]
    dead_letters: DeadLetters
    digests: Mapping[str, int]


def prepare_batch(
    circuit: Circuit,
    tables: Mapping[str, pa.Table],
    dead_letters: DeadLetters,
    *,
    bad_rows: BadRowPolicy,
    batch_id: int,
    watermarks: Mapping[str, datetime] = MappingProxyType({}),
    now: datetime | None = None,
) -> PreparedBatch:
    """Prepare the step of the rows that the circuit accepts.

    Args:
        circuit: Computes the step; nothing is committed.
        tables: The rows of each relation.
        dead_letters: Rows that could not be decoded.
        bad_rows: The policy for invalid rows.
        batch_id: The micro-batch.
        watermarks: For each input with lateness or retention, the time before which no rows are
            expected.
        now: The time of the micro-batch; needed if a view reads ``now()``.

    Raises:
        RowError: There are invalid rows, and the policy is to fail.
        StepLimitError: The step exceeds its limits; with the policy "dead_letter" only if no single
            row exceeds them.
        CircuitError: The rows together do not fit the circuit.
    """

    def prepare(part: Mapping[str, pa.Table]) -> CircuitStep:
        return circuit.prepare(part, watermarks, now=now)

    digests: Mapping[str, int] = {}
    try:
        step = prepare(tables)
        # 0 if there are no rows: a replay is not compared if there are no checksums.
        digests = step.digests or dict.fromkeys(circuit.inputs, 0)
    except BrokenCircuitError:
        raise
    except DbspWcojError as error:
        if isinstance(error, StepLimitError) and not _may_be_row_error(error, bad_rows):
            raise
        good, failing = _isolate(prepare, tables, error, bad_rows, batch_id)
        if not len(failing):
            raise error
        dead_letters = apply_policy(dead_letters + failing, bad_rows=bad_rows, batch_id=batch_id)
        step, tables = prepare(good), good
    try:
        expected, invalid = _rejected_rows(step)
        dead_letters = apply_policy(dead_letters + invalid, bad_rows=bad_rows, batch_id=batch_id)
        return PreparedBatch(step, tables, dead_letters + expected.with_batch_id(batch_id), digests)
    except BaseException:
        step.abandon()
        raise


def _may_be_row_error(error: StepLimitError, bad_rows: BadRowPolicy) -> bool:
    """Return whether to search for single rows that exceed the limit, which takes many steps."""
    return bad_rows == "dead_letter" and error.limit in ROW_LIMITS


def _isolate(
    prepare: Callable[[Mapping[str, pa.Table]], CircuitStep],
    tables: Mapping[str, pa.Table],
    error: DbspWcojError,
    bad_rows: BadRowPolicy,
    batch_id: int,
) -> tuple[Mapping[str, pa.Table], DeadLetters]:
    """Return the rows whose step succeeds, and the failing rows as dead letters.

    Raises:
        RowError: There are too many failing rows to isolate.
    """

    def attempt(part: Mapping[str, pa.Table]) -> None:
        prepare(part).abandon()

    # Under the policy "fail" one row is enough for the message.
    max_failing = MAX_FAILING_ROWS if bad_rows == "dead_letter" else 1
    rows = isolate_failing_rows(tables, attempt, max_failing=max_failing)
    if bad_rows == "dead_letter" and not rows.is_complete:
        if not rows.bad and isinstance(error, StepLimitError):
            raise error
        first = str(rows.bad[0].error) if rows.bad else "the rows fail only together"
        raise RowError(
            f"micro-batch {batch_id}: too many rows make the step fail: {len(rows.bad)} were "
            f"found, and at most {MAX_FAILING_ROWS} are isolated; the first error: {first}; "
            "nothing of the micro-batch was applied: correct the view or the source, or use "
            "smaller micro-batches"
        )
    tables_of_failing = [_failing_row_letter(row).table for row in rows.bad]
    return rows.good, DeadLetters(pa.concat_tables([DeadLetters.empty().table, *tables_of_failing]))


def _failing_row_letter(failing: FailingRow) -> DeadLetters:
    row, weights = failing.row, None
    if WEIGHT in row.column_names:
        row, weights = row.drop_columns([WEIGHT]), row.column(WEIGHT)
    return DeadLetters.from_rows(failing.relation, row, str(failing.error), weights)


def _rejected_rows(step: CircuitStep) -> tuple[DeadLetters, DeadLetters]:
    """Return the rows that inputs rejected: the expected ones, and the invalid ones."""
    expected, invalid = DeadLetters.empty(), DeadLetters.empty()
    for name, groups in step.rejected.items():
        for rejected in groups:
            letters = _rejected_letters(name, rejected)
            if rejected.reason in EXPECTED_REASONS:
                expected += letters
            else:
                invalid += letters
    return expected, invalid


def _rejected_letters(name: str, rejected: RejectedRows) -> DeadLetters:
    weights = rejected.table.column(WEIGHT)
    return DeadLetters.from_rows(
        name,
        rejected.table.drop_columns([WEIGHT]),
        rejected.message,
        np.asarray(weights.to_numpy(), np.int64),
    )
