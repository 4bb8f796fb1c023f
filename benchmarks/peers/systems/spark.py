"""Spark in local mode: delta SQL, recount, and chained stream-stream joins.

``delta`` runs the terms of the collapsed formula per step as one job. Each term starts at the
changed rows, joins in the order that binds the fewest new variables, and broadcasts its
intermediate rows, so the edges are never shuffled. The edges are cached as a DataFrame, and the
changes since then are a small table; when these reach a tenth of the edges, the edges are cached
again. ``recompute`` joins the same tables from scratch, as Spark plans it. ``streams`` is one
streaming query over Parquet files that joins the stream with itself; it takes inserts only, and
each step is one file and one micro-batch.

For LSQB, Spark runs the query again. A relation consists of its loaded rows, cached, without the
rows deleted since (an antijoin with a few rows), and with the rows inserted since.

Spark has as many cores and shuffle partitions as the benchmark has threads. The heap is three
quarters of the memory. Adaptive execution is off, because it only costs time for jobs this small.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from benchmarks import lsqb
from benchmarks.peers.pattern import Pattern
from benchmarks.peers.systems import Edges, Resources
from streaming import start_session

_CHECKPOINT_FILE_MANAGER = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.localRelationThreshold": "0",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "500000",
    "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINT_FILE_MANAGER,
}


class _Tables:
    """The edges as a cached DataFrame, and a small table of later changes, with weights."""

    def __init__(self, spark: SparkSession, pattern: Pattern, edges: Edges, method: str) -> None:
        self._spark, self._pattern, self._method = spark, pattern, method
        self._cached: DataFrame | None = None
        self._cached_rows = _arrow(edges, np.ones(edges.shape[1], np.int64))
        self._cache()
        self._count = self._recount()

    def step(self, edges: Edges, weights: NDArray[np.int64]) -> int:
        delta = _arrow(edges, weights)
        if self._method == "delta":
            self._count += self._change_of_count(delta)
        self._changes = pa.concat_tables([self._changes, delta])
        if self._changes.num_rows > max(1_000, self._cached_rows.num_rows // 10):
            self._compact()
        if self._method == "recompute":
            self._count = self._recount()
        return self._count

    def _change_of_count(self, delta: pa.Table) -> int:
        """Run the terms of the collapsed formula."""
        old, changed = self._edges(), self._frame(delta)
        frames = {"o": old, "d": changed, "n": old.unionByName(changed)}
        terms = []
        for start, names in enumerate(self._pattern.terms):
            order = self._pattern.order_from(start)
            relations = [frames[name] for name in names]
            terms.append(_joined(self._pattern, order, relations, broadcast=True))
        return _total(reduce(DataFrame.unionByName, terms))

    def _recount(self) -> int:
        size = len(self._pattern.atoms)
        relations = [self._edges()] * size
        return _total(_joined(self._pattern, list(range(size)), relations, broadcast=False))

    def _edges(self) -> DataFrame:
        assert self._cached is not None
        if not self._changes.num_rows:
            return self._cached
        return self._cached.unionByName(self._frame(self._changes))

    def _compact(self) -> None:
        """Cache the edges with the changes so far."""
        rows = pa.concat_tables([self._cached_rows, self._changes])
        summed = rows.group_by(["src", "dst"]).aggregate([("w", "sum")])
        summed = summed.rename_columns(["src", "dst", "w"])
        self._cached_rows = summed.filter(pa.compute.not_equal(summed["w"], 0))
        self._cache()

    def _cache(self) -> None:
        previous, self._cached = self._cached, self._frame(self._cached_rows).cache()
        self._cached.count()
        if previous is not None:
            previous.unpersist()
        self._changes = self._cached_rows.slice(0, 0)

    def _frame(self, rows: pa.Table) -> DataFrame:
        return self._spark.createDataFrame(rows)


class _Streams:
    """A streaming query that joins the edges with themselves; ``step`` writes a file for it."""

    def __init__(self, spark: SparkSession, pattern: Pattern, resources: Resources) -> None:
        self._count, self._files = 0, 0
        self._folder = resources.folder / "stream"
        self._folder.mkdir()
        edges = [
            spark.readStream.schema("src BIGINT, dst BIGINT, w BIGINT")
            .option("maxFilesPerTrigger", "1")
            .parquet(str(self._folder))
            for _ in pattern.atoms
        ]
        joined = _joined(pattern, list(range(len(pattern.atoms))), edges, broadcast=False)
        self._query = (
            joined.writeStream.foreachBatch(self._add)
            .option("checkpointLocation", str(resources.folder / "checkpoint"))
            .start()
        )

    def step(self, edges: Edges, weights: NDArray[np.int64]) -> int:
        hidden = self._folder / f".{self._files}"  # Spark ignores it until it is renamed
        pq.write_table(_arrow(edges, weights), hidden)
        hidden.rename(self._folder / f"{self._files:09}.parquet")
        self._files += 1
        self._query.processAllAvailable()
        return self._count

    def stop(self) -> None:
        self._query.stop()

    def _add(self, rows: DataFrame, batch: int) -> None:
        self._count += rows.count()


class _Views:
    """The relations and views of an LSQB query as temporary views."""

    def __init__(self, spark: SparkSession, query: str, relations: lsqb.Relations) -> None:
        self._spark, self._query = spark, lsqb.QUERIES[query]
        self._loaded: dict[str, DataFrame] = {}
        self._changes: dict[str, pa.Table] = {}
        for name, rows in relations.items():
            self._loaded[name] = spark.createDataFrame(rows).cache()
            self._loaded[name].count()
            self._loaded[name].createOrReplaceTempView(name)
            self._changes[name] = _with_weight(rows.slice(0, 0), 1)
        self._texts = lsqb.views_of(query)
        self._create_views()

    def change(self, rows: Mapping[str, pa.Table], weight: int) -> None:
        for name, table in rows.items():
            columns = table.column_names
            all_changes = pa.concat_tables([self._changes[name], _with_weight(table, weight)])
            summed = all_changes.group_by(columns).aggregate([("w", "sum")])
            summed = summed.rename_columns([*columns, "w"])
            self._changes[name] = summed.filter(pa.compute.not_equal(summed["w"], 0))
            self._current(name, columns).createOrReplaceTempView(name)
        self._create_views()

    def count(self) -> int:
        first: Any = self._spark.sql(self._query).first()
        return int(first["n"])

    def _current(self, name: str, columns: list[str]) -> DataFrame:
        """Return the loaded rows of a relation with its changes so far."""
        changes, rows = self._changes[name], self._loaded[name]
        deleted = changes.filter(pa.compute.less(changes["w"], 0)).select(columns)
        inserted = changes.filter(pa.compute.greater(changes["w"], 0)).select(columns)
        if deleted.num_rows:
            deleted_rows = sf.broadcast(self._spark.createDataFrame(deleted))
            rows = rows.join(deleted_rows, columns, "left_anti")
        if inserted.num_rows:
            rows = rows.unionByName(self._spark.createDataFrame(inserted))
        return rows

    def _create_views(self) -> None:
        """Create the views again: a temporary view reads the relations as of its creation."""
        for name, text in self._texts.items():
            self._spark.sql(f"CREATE OR REPLACE TEMP VIEW {name} AS {text}")


@contextmanager
def maintainer(
    pattern: Pattern, edges: Edges, resources: Resources, *, method: str
) -> Iterator[_Tables | _Streams]:
    with (
        _session(resources) as spark,
        session_maintainer(
            spark, pattern, edges, resources, method=method
        ) as maintainer_in_session,
    ):
        yield maintainer_in_session


def prepare(query: str, relations: lsqb.Relations, resources: Resources) -> None:
    """Start the session and run a query in it, before loading is timed."""
    _start(resources).range(1).count()


@contextmanager
def view(
    query: str, relations: lsqb.Relations, resources: Resources, *, method: str
) -> Iterator[_Views]:
    with _session(resources) as spark:
        yield session_view(spark, query, relations)


def session_view(spark: SparkSession, query: str, relations: lsqb.Relations) -> _Views:
    """Open a `view` in a session that runs already."""
    return _Views(spark, query, relations)


@contextmanager
def session_maintainer(
    spark: SparkSession, pattern: Pattern, edges: Edges, resources: Resources, *, method: str
) -> Iterator[_Tables | _Streams]:
    """Open a `maintainer` in a session that runs already."""
    if method != "streams":
        yield _Tables(spark, pattern, edges, method)
        return
    streams = _Streams(spark, pattern, resources)
    streams.step(edges, np.ones(edges.shape[1], np.int64))
    yield streams
    streams.stop()


@contextmanager
def _session(resources: Resources) -> Iterator[SparkSession]:
    spark = _start(resources)
    yield spark
    spark.stop()


def _start(resources: Resources) -> SparkSession:
    """Start the session, or return the one that runs."""
    return start_session(
        "peers",
        cores=resources.threads,
        memory=f"{(resources.memory >> 20) * 3 // 4}m",
        log=resources.folder / "spark.log",
        settings=_SETTINGS,
    )


def _joined(
    pattern: Pattern, order: list[int], relations: list[DataFrame], *, broadcast: bool
) -> DataFrame:
    """Join the atoms in this order; the result is a column ``w``, the product of the weights.

    With ``broadcast``, the rows joined so far are broadcast to the next atom.
    """
    with_hint: Callable[[DataFrame], DataFrame] = sf.broadcast if broadcast else lambda frame: frame
    rows: DataFrame | None = None
    bound: set[str] = set()
    for position in order:
        x, y = pattern.atoms[position]
        atom = relations[position].select(
            sf.col("src").alias(x), sf.col("dst").alias(y), sf.col("w").alias("v")
        )
        bound_before, bound = bound, bound | {x, y}
        if rows is None:
            rows = atom.withColumnRenamed("v", "w")
        else:
            rows = with_hint(rows).join(atom, [name for name in (x, y) if name in bound_before])
            rows = rows.select(*sorted(bound), (sf.col("w") * sf.col("v")).alias("w"))
        for a, sign, b in pattern.comparisons:
            if {a, b} <= bound and not {a, b} <= bound_before:
                is_less = sf.col(a) < sf.col(b)
                rows = rows.where(is_less if sign == "<" else sf.col(a) != sf.col(b))
    assert rows is not None
    return rows.select("w")


def _total(rows: DataFrame) -> int:
    first: Any = rows.agg(sf.sum("w")).first()
    return int(first[0] or 0)


def _arrow(edges: Edges, weights: NDArray[np.int64]) -> pa.Table:
    return pa.table({"src": edges[0], "dst": edges[1], "w": weights})


def _with_weight(rows: pa.Table, weight: int) -> pa.Table:
    return rows.append_column("w", pa.array(np.full(rows.num_rows, weight)))
