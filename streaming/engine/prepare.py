"""Preparing a step from the rows of a micro-batch, whatever is wrong with some of them."""

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
from streaming.engine.failing_rows import LIMITS_OF_ROWS, MOST, FailingRows, isolate_failing_rows
from streaming.errors import RowError
from streaming.sources.dead_letters import BadRows, DeadLetters, apply_policy

__all__ = ["PreparedBatch", "prepare_batch"]

#: Reasons of the rules of inputs for which a row is put aside whatever the policy: it came too
#: late to have an effect, which is no fault of the stream.
EXPECTED = ("late",)


@dataclass(frozen=True)
class PreparedBatch:
    """A step, the rows that are not in it, and checksums of those that are.

    ``digests`` is empty where rows had to be found out by trying: a replay of the micro-batch
    cannot be compared then.
    """

    step: CircuitStep
    letters: DeadLetters
    digests: Mapping[str, int]


def prepare_batch(
    circuit: Circuit,
    tables: Mapping[str, pa.Table],
    letters: DeadLetters,
    *,
    bad_rows: BadRows,
    batch_id: int,
    watermarks: Mapping[str, datetime] = MappingProxyType({}),
) -> PreparedBatch:
    """Prepare the step of the rows that can be taken.

    Args:
        circuit: What makes the step; nothing is committed.
        tables: The rows of each relation.
        letters: Rows that were put aside before.
        bad_rows: What becomes of rows that cannot be taken.
        batch_id: The micro-batch.
        watermarks: Times before which rows of an input are not expected any more.

    Raises:
        RowError: There are such rows, and the policy is to fail.
        StepLimitError: The step uses more than its limits allow; with "dead_letter" only if no
            row alone does.
        CircuitError: The rows together do not fit the circuit.
    """
    digests: Mapping[str, int] = {}
    try:
        step = circuit.prepare(tables, watermarks)
        digests = step.digests
    except BrokenCircuitError:
        raise
    except DbspWcojError as error:
        if isinstance(error, StepLimitError) and not _may_be_of_a_row(error, bad_rows):
            raise
        good, poison = _without_poison(circuit, tables, error, bad_rows, watermarks, batch_id)
        if not len(poison):
            raise error
        letters = apply_policy(letters + poison, bad_rows=bad_rows, batch_id=batch_id)
        step = circuit.prepare(good, watermarks)
    try:
        expected, bad = _refused(step)
        kept = apply_policy(letters + bad, bad_rows=bad_rows, batch_id=batch_id)
        return PreparedBatch(step, kept + expected.stamped(batch_id), digests)
    except BaseException:
        step.abandon()
        raise


def _may_be_of_a_row(error: StepLimitError, bad_rows: BadRows) -> bool:
    """Return whether to search for a row that alone exceeds the limit: it takes many long steps."""
    return bad_rows == "dead_letter" and error.limit in LIMITS_OF_ROWS


def _without_poison(
    circuit: Circuit,
    tables: Mapping[str, pa.Table],
    error: DbspWcojError,
    bad_rows: BadRows,
    watermarks: Mapping[str, datetime],
    batch_id: int,
) -> tuple[Mapping[str, pa.Table], DeadLetters]:
    """The rows that do not make the step fail, and the others.

    Raises:
        RowError: There are too many of the others to be found one by one.
    """

    def attempt(some: Mapping[str, pa.Table]) -> None:
        circuit.prepare(some, watermarks).abandon()

    # Where the policy is to fail, one row is enough to say why.
    found = isolate_failing_rows(tables, attempt, most=MOST if bad_rows == "dead_letter" else 1)
    poison = DeadLetters(
        pa.concat_tables([DeadLetters.none().table, *(_letter(one).table for one in found.bad)])
    )
    if bad_rows == "dead_letter" and not found.complete:
        if not found.bad and isinstance(error, StepLimitError):
            raise error
        first = str(found.bad[0].error) if found.bad else "together"
        raise RowError(
            f"micro-batch {batch_id}: more rows make the step fail than are looked for one by one "
            f"({len(found.bad)} were found, of up to {MOST}), the first: {first}; nothing of the "
            "micro-batch was applied: correct the view or the source, or take smaller micro-batches"
        )
    return found.good, poison


def _letter(one: FailingRows) -> DeadLetters:
    rows = one.row.drop_columns([WEIGHT]) if WEIGHT in one.row.column_names else one.row
    weights = one.row.column(WEIGHT) if WEIGHT in one.row.column_names else None
    return DeadLetters.of_rows(one.relation, rows, str(one.error), weights)


def _refused(step: CircuitStep) -> tuple[DeadLetters, DeadLetters]:
    """The rows that the rules of inputs refused: those that are no fault, and the others."""
    expected, bad = DeadLetters.none(), DeadLetters.none()
    for name, refused in chain.from_iterable(
        ((name, one) for one in many) for name, many in step.rejected.items()
    ):
        letters = _letters(name, refused)
        if refused.reason in EXPECTED:
            expected += letters
        else:
            bad += letters
    return expected, bad


def _letters(name: str, refused: RejectedRows) -> DeadLetters:
    weights = refused.table.column(WEIGHT)
    return DeadLetters.of_rows(
        name,
        refused.table.drop_columns([WEIGHT]),
        refused.message,
        np.asarray(weights.to_numpy(), np.int64),
    )
