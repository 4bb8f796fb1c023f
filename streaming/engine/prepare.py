"""Prepare the step of a micro-batch from rows of which some may be bad."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
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

#: Reasons for which an input rejects a row under either policy: a late row has no effect, and that
#: is not an error of the stream.
EXPECTED_REASONS = ("late",)


@dataclass(frozen=True)
class PreparedBatch:
    """A step, the rows that are not part of it, and checksums of the rows that are.

    ``digests`` is empty if failing rows were isolated by trying: a replay of the micro-batch
    cannot be compared then.
    """

    step: CircuitStep
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
) -> PreparedBatch:
    """Prepare the step of the rows that the circuit accepts.

    Args:
        circuit: Computes the step; nothing is committed.
        tables: The rows of each relation.
        dead_letters: Rows that were rejected before.
        bad_rows: The policy for rows that the circuit does not accept.
        batch_id: The micro-batch.
        watermarks: Times before which no rows of an input are expected any more.

    Raises:
        RowError: There are such rows, and the policy is to fail.
        StepLimitError: The step exceeds its limits; with "dead_letter" only if no row alone
            does.
        CircuitError: The rows together do not fit the circuit.
    """
    digests: Mapping[str, int] = {}
    try:
        step = circuit.prepare(tables, watermarks)
        digests = step.digests
    except BrokenCircuitError:
        raise
    except DbspWcojError as error:
        if isinstance(error, StepLimitError) and not _may_be_row_error(error, bad_rows):
            raise
        good, failing = _isolate(circuit, tables, error, bad_rows, watermarks, batch_id)
        if not len(failing):
            raise error
        dead_letters = apply_policy(dead_letters + failing, bad_rows=bad_rows, batch_id=batch_id)
        step = circuit.prepare(good, watermarks)
    try:
        expected, bad = _rejected_rows(step)
        kept = apply_policy(dead_letters + bad, bad_rows=bad_rows, batch_id=batch_id)
        return PreparedBatch(step, kept + expected.with_batch_id(batch_id), digests)
    except BaseException:
        step.abandon()
        raise


def _may_be_row_error(error: StepLimitError, bad_rows: BadRowPolicy) -> bool:
    """Return whether to search for a row that alone exceeds the limit: it takes many long steps."""
    return bad_rows == "dead_letter" and error.limit in ROW_LIMITS


def _isolate(
    circuit: Circuit,
    tables: Mapping[str, pa.Table],
    error: DbspWcojError,
    bad_rows: BadRowPolicy,
    watermarks: Mapping[str, datetime],
    batch_id: int,
) -> tuple[Mapping[str, pa.Table], DeadLetters]:
    """Return the rows whose step succeeds, and the failing rows as dead letters.

    Raises:
        RowError: There are too many failing rows to isolate.
    """

    def attempt(part: Mapping[str, pa.Table]) -> None:
        circuit.prepare(part, watermarks).abandon()

    # Under the policy "fail" one row is enough for the message.
    max_failing = MAX_FAILING_ROWS if bad_rows == "dead_letter" else 1
    found = isolate_failing_rows(tables, attempt, max_failing=max_failing)
    failing = DeadLetters(
        pa.concat_tables([DeadLetters.empty().table, *(_letter(one).table for one in found.bad)])
    )
    if bad_rows == "dead_letter" and not found.complete:
        if not found.bad and isinstance(error, StepLimitError):
            raise error
        first = str(found.bad[0].error) if found.bad else "together"
        raise RowError(
            f"micro-batch {batch_id}: more rows make the step fail than are isolated "
            f"({len(found.bad)} were found, at most {MAX_FAILING_ROWS} are), the first: {first}; "
            "nothing of the micro-batch was applied: correct the view or the source, or use "
            "smaller micro-batches"
        )
    return found.good, failing


def _letter(one: FailingRow) -> DeadLetters:
    rows = one.row.drop_columns([WEIGHT]) if WEIGHT in one.row.column_names else one.row
    weights = one.row.column(WEIGHT) if WEIGHT in one.row.column_names else None
    return DeadLetters.from_rows(one.relation, rows, str(one.error), weights)


def _rejected_rows(step: CircuitStep) -> tuple[DeadLetters, DeadLetters]:
    """Return the rows that inputs rejected: the expected ones, and the bad ones."""
    expected, bad = DeadLetters.empty(), DeadLetters.empty()
    for name, refused in chain.from_iterable(
        ((name, one) for one in many) for name, many in step.rejected.items()
    ):
        letters = _letters(name, refused)
        if refused.reason in EXPECTED_REASONS:
            expected += letters
        else:
            bad += letters
    return expected, bad


def _letters(name: str, refused: RejectedRows) -> DeadLetters:
    weights = refused.table.column(WEIGHT)
    return DeadLetters.from_rows(
        name,
        refused.table.drop_columns([WEIGHT]),
        refused.message,
        np.asarray(weights.to_numpy(), np.int64),
    )
