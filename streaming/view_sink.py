"""ViewSink: a circuit as the function of ``foreachBatch``.

::

    circuit = compile_sql("SELECT city, count(*) AS n FROM r GROUP BY city", {"r": schema})
    sink = ViewSink(circuit, on_delta)
    changes.writeStream.foreachBatch(sink).option("checkpointLocation", ...).start()

Spark calls it with the rows of one micro-batch and a batch id: 0, 1, 2 ... without holes, at least
once each. The sink makes that exactly once, within this process:

1.  the next id: read the rows by one ``toArrow()``, prepare the step, commit it, publish the delta;
2.  the last id again (Spark was stopped or failed before it noted the commit): publish the same
    delta again and change nothing;
3.  any other id: ``BatchOrderError``, for state and checkpoint do not belong together.

Preparing changes nothing, so an error in a micro-batch leaves the state whole and the same
micro-batch may come again. ``on_delta`` runs after the commit; when it raises, the query stops,
and the restarted query publishes that delta once more: let it be idempotent by batch id.

Several relations are one stream, the union of their rows with a column ``relation``: so one batch
id is one consistent cut over all of them. A relation's rows use its own columns and ``weight``
(optional, +1 without; a retraction is -1); columns of other relations are not looked at. With
one relation there is no need for the tag. The order of rows in a micro-batch has no meaning.

Types are those that ``toArrow()`` gives: Spark's timestamp is ``timestamp("us")`` in the zone of
the session, which can be declared in any zone; timestamp_ntz has none; decimal(p, s) is
``decimal128(p, s)``. NULL is NULL. Arrays, maps and structs are refused (`circuits.schema`).

State lives in this object. After a restart of the process the views begin empty, so the checkpoint
has to be deleted with it; the error of rule 3 says so. Durable state has its place between
``prepare`` and ``commit`` in ``__call__``: write the prepared outputs and runs under the batch id,
then commit; recovering sets ``_last`` before the first micro-batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from circuits import Circuit, UnknownInputError
from circuits.schema import WEIGHT
from streaming.errors import BatchOrderError, UntaggedBatchError

__all__ = ["RELATION", "Published", "ViewSink"]

RELATION: Final = "relation"
QUERY_ID: Final = "sql.streaming.queryId"  # set by Spark for the thread that runs the micro-batch

OnDelta = Callable[[int, Mapping[str, pa.Table]], None]


@dataclass(frozen=True)
class Published:
    """The delta of every output of the circuit in one micro-batch."""

    query_id: str | None
    batch_id: int
    outputs: Mapping[str, pa.Table]


class ViewSink:
    """Feeds micro-batches to a circuit; give it to ``writeStream.foreachBatch``.

    Args:
        circuit: The views; from now on only this sink may step it.
        on_delta: Called with the batch id and the delta of each output (a table of changed rows
            with ``weight``), once per micro-batch and again for a replayed one.
        relation: The input that all rows belong to, when they carry no column ``relation``. Not
            needed when the circuit has one input.

    Raises:
        UnknownInputError: ``relation`` is no input of the circuit.
    """

    def __init__(
        self, circuit: Circuit, on_delta: OnDelta | None = None, *, relation: str | None = None
    ) -> None:
        if relation is not None:
            _check_input(circuit, relation)
        elif len(circuit.inputs) == 1:
            relation = next(iter(circuit.inputs))
        self.circuit = circuit
        self.on_delta = on_delta
        self.relation = relation
        self._last: Published | None = None

    @property
    def last(self) -> Published | None:
        """What the latest micro-batch changed; None before the first."""
        return self._last

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Apply one micro-batch.

        Raises:
            BatchOrderError: The id is neither the next one nor the last one.
            UntaggedBatchError: A row does not say to which relation it belongs.
            CircuitError: The rows do not fit the circuit. In all cases nothing has changed.
        """
        query_id = df.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
        if not self._is_replay(batch_id, query_id):
            step = self.circuit.prepare(self._decode(df.toArrow()))  # the one action on df
            step.commit()
            self._last = Published(query_id, batch_id, step.outputs)
        if self.on_delta is not None and self._last is not None:
            self.on_delta(batch_id, self._last.outputs)

    def _is_replay(self, batch_id: int, query_id: str | None) -> bool:
        last = self._last
        if last is None:
            if batch_id != 0:
                raise BatchOrderError(
                    f"the first micro-batch has id {batch_id}, not 0: the checkpoint is older than "
                    "this sink, which starts with empty views; delete the checkpoint to read the "
                    "source again from its beginning"
                )
            return False
        if query_id != last.query_id:
            raise BatchOrderError(
                f"micro-batch {batch_id} comes from query {query_id}, the views were built by "
                f"query {last.query_id}: one sink serves one query with one checkpoint; make a new "
                "circuit and sink for another"
            )
        if batch_id == last.batch_id:
            return True
        if batch_id == last.batch_id + 1:
            return False
        raise BatchOrderError(
            f"micro-batch {batch_id} follows {last.batch_id}; only {last.batch_id} again or "
            f"{last.batch_id + 1} can come now: the checkpoint was changed behind this sink; start "
            "again with an empty checkpoint and a new sink"
        )

    def _decode(self, table: pa.Table) -> dict[str, pa.Table]:
        """One table per relation, with its own columns and the weight."""
        if RELATION not in table.column_names:
            if self.relation is None:
                raise UntaggedBatchError(
                    f"the circuit reads {', '.join(self.circuit.inputs)} and the rows have columns "
                    f"{table.column_names}: add a column {RELATION!r} that names the relation of a "
                    "row, or give ViewSink(relation=...)"
                )
            return {self.relation: table}
        tags = table.column(RELATION)
        if not (pa.types.is_string(tags.type) or pa.types.is_large_string(tags.type)):
            raise UntaggedBatchError(
                f"column {RELATION!r} is of type {tags.type}; it must hold names of relations: "
                f"{', '.join(self.circuit.inputs)}"
            )
        if tags.null_count:
            raise UntaggedBatchError(
                f"{tags.null_count} of {len(tags)} rows have NULL in column {RELATION!r}; it must "
                f"be one of {', '.join(self.circuit.inputs)}"
            )
        tables = {}
        for name in pc.unique(tags).to_pylist():
            _check_input(self.circuit, name)
            mine = {*self.circuit.inputs[name].columns, WEIGHT}
            kept = [column for column in table.column_names if column in mine]
            tables[name] = table.select(kept).filter(pc.equal(tags, name))
        return tables


def _check_input(circuit: Circuit, name: str) -> None:
    if name not in circuit.inputs:
        raise UnknownInputError(
            f"{name!r} is not an input of the circuit; inputs are {', '.join(circuit.inputs)}: "
            "rename the relation or add its schema"
        )
