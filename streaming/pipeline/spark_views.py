"""SparkViews: computes whole views in a Spark session, which starts when it is first needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from circuits.schema import WEIGHT
from circuits.sql import ViewStatement
from circuits.types.arrow_types import empty_table
from dbsp_wcoj.cached_property import cached_property
from streaming.errors import RecomputationError
from streaming.session import start_session
from streaming.targets.column_types import convert_columns, lake_type

__all__ = ["SparkViews"]


class SparkViews:
    """Computes views by ``spark.sql``; the rows of their relations pass through this process.

    Args:
        session: Returns the session; by default the active one, or a new local one.
    """

    def __init__(self, session: Callable[[], SparkSession] | None = None) -> None:
        self._start = session or _active_session

    @cached_property
    def _session(self) -> SparkSession:
        return self._start()

    def schema_of(self, view: ViewStatement, relations: Mapping[str, pa.Schema]) -> pa.Schema:
        tables = {name: empty_table(schema) for name, schema in relations.items()}
        return self._rows(view, tables, is_empty=True).schema

    def rows_of(self, view: ViewStatement, relations: Mapping[str, pa.Table]) -> pa.Table:
        return self._rows(view, {name: _without_weight(table) for name, table in relations.items()})

    def _rows(
        self, view: ViewStatement, tables: Mapping[str, pa.Table], *, is_empty: bool = False
    ) -> pa.Table:
        spark = self._session
        names = [*tables, view.name]
        try:
            for name, table in tables.items():
                self._frame(name, table).createOrReplaceTempView(f"`{name}`")
            spark.sql(
                f"CREATE OR REPLACE TEMPORARY VIEW `{view.name}` {view.columns} AS {view.query}"
            )
            frame = spark.table(f"`{view.name}`")
            rows: pa.Table = (frame.limit(0) if is_empty else frame).toArrow()
            return rows
        except PySparkException as error:
            reason = " ".join(str(error).split("\n\nJVM stacktrace")[0].split())
            raise RecomputationError(f"view {view.name!r}: Spark refuses it: {reason}") from error
        finally:
            for name in names:
                spark.catalog.dropTempView(name)

    def _frame(self, name: str, table: pa.Table) -> DataFrame:
        table = convert_columns(table, lake_type, subject=f"relation {name!r}")
        schema = from_arrow_schema(table.schema, prefer_timestamp_ntz=True)
        return self._session.createDataFrame(table, schema)


def _active_session() -> SparkSession:
    return SparkSession.getActiveSession() or start_session("dbsp-wcoj pipeline")


def _without_weight(table: pa.Table) -> pa.Table:
    """Return a table in which each row is as often as its weight says."""
    weights = table.column(WEIGHT).to_numpy()
    rows = table.drop_columns([WEIGHT])
    if (weights == 1).all():
        return rows
    return rows.take(pa.array(np.repeat(np.arange(len(weights)), weights)))
