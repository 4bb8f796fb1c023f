"""A stand-in for the DataFrame of a micro-batch, whose tasks run in this process.

It divides the rows into partitions, and runs each task a random number of times on a random worker,
as Spark may, and takes the result of one attempt.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from pyspark.sql.types import StringType, StructField, StructType

from streaming.distributed.execution import job_tasks
from tests.streaming.distributed.test_attempts import Context

Run = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class LocalCluster(Context):
    """Runs jobs in this process, with a context for those that begin with rows of the driver.

    Attributes:
        bytes_to_driver: The bytes that the driver has received of the last job on a frame.
        frame_jobs: The number of these jobs.
    """

    def __init__(self, seed: int = 0, attempts: tuple[int, ...] = (1, 1, 2)) -> None:
        super().__init__(seed)
        self.attempts = attempts
        self.bytes_to_driver = 0
        self.frame_jobs = 0
        self._attempt = 0

    def frame(self, table: pa.Table, partitions: int = 2) -> LocalFrame:
        """Return a frame of some rows."""
        size = -(-table.num_rows // partitions) or 1
        parts = [table.slice(n * size, size).to_batches() for n in range(partitions)]
        return LocalFrame(self, lambda: parts, table.schema)

    def run_task(
        self, run: Run, partition: int, batches: list[pa.RecordBatch]
    ) -> list[pa.RecordBatch]:
        """Run the attempts of a task; return the result of one."""
        function = pickle.dumps(run)
        results = []
        for _ in range(self.rng.choice(self.attempts)):
            self._attempt += 1
            attempt = self._attempt

            def identity(level: int, attempt: int = attempt) -> tuple[int, str]:
                return partition, f"{level}.{partition}.{attempt}"

            with self.worker(), patch.object(job_tasks, "_identity", identity):
                results.append([*pickle.loads(function)(iter(batches))])
        return self.rng.choice(results)


class LocalFrame:
    """The part of a DataFrame that a job uses."""

    def __init__(
        self,
        cluster: LocalCluster,
        parts: Callable[[], list[list[pa.RecordBatch]]],
        schema: pa.Schema | None = None,
    ) -> None:
        self.cluster, self._parts, self._schema = cluster, parts, schema
        conf = SimpleNamespace(
            get=lambda name, default: default, set=lambda name, value: None, unset=lambda name: None
        )
        self.sparkSession = SimpleNamespace(sparkContext=cluster, conf=conf, _jsparkSession=cluster)

    @property
    def columns(self) -> list[str]:
        assert self._schema is not None
        return list(self._schema.names)

    @property
    def schema(self) -> StructType:
        """Columns of texts, so that rows may be large."""
        names = [] if self._schema is None else self._schema.names
        return StructType([StructField(name, StringType()) for name in names])

    def mapInArrow(self, run: Run, schema: Any) -> LocalFrame:  # Spark's name
        def parts() -> list[list[pa.RecordBatch]]:
            before = self._parts()
            numbers = list(range(len(before)))
            self.cluster.rng.shuffle(numbers)
            results = {n: self.cluster.run_task(run, n, before[n]) for n in numbers}
            return [results[n] for n in sorted(results)]

        return LocalFrame(self.cluster, parts)

    def repartitionById(self, count: int, column: Any) -> LocalFrame:  # Spark's name
        def parts() -> list[list[pa.RecordBatch]]:
            batches = [batch for part in self._parts() for batch in part]
            self.cluster.rng.shuffle(batches)
            result: list[list[pa.RecordBatch]] = [[] for _ in range(count)]
            for batch in batches:
                for row in range(batch.num_rows):
                    result[batch.column("task")[row].as_py()].append(batch.slice(row, 1))
            return result

        return LocalFrame(self.cluster, parts)

    def toArrow(self) -> pa.Table:  # Spark's name
        self.cluster.frame_jobs += 1
        batches = [batch for part in self._parts() for batch in part]
        table = pa.Table.from_batches(batches, None if batches else self._schema)
        self.cluster.bytes_to_driver = table.nbytes
        return table
