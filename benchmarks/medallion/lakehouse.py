"""Lakehouse: the Delta tables of one run, and the pipeline that refreshes its views.

`RefreshedLake` refreshes and measures any pipeline over Delta tables; `Lakehouse` is the shop with
15 views.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Final

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from benchmarks.cost import Clock, Cost
from benchmarks.medallion.events import TABLES, Shop
from circuits import Circuit
from streaming.cli.arguments.pipeline_file import read_pipeline
from streaming.pipeline.definition import PipelineDefinition
from streaming.pipeline.pipeline import Pipeline
from streaming.pipeline.tables.source_table import KeptRows, Position, SourceTable, TableChanges
from streaming.sink.output import Output, list_outputs
from streaming.targets.delta import DeltaTarget
from streaming.targets.target import ViewDelta

SQL: Final = Path(__file__).parent / "sql"
#: The views of each layer, and the key of each of their tables; tables of bronze are appended to.
KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    **{f"bronze_{name}": () for name in TABLES},
    **{f"silver_{name}": ("id",) for name in TABLES},
    "gold_sales": ("state", "category"),
    "gold_customers": ("id",),
    "gold_ratings": ("id",),
    "gold_low_stock": ("product",),
    "gold_best_products": ("category", "place"),
}


@dataclass(frozen=True)
class RefreshCost:
    """The time of one refresh, and the rows that it read and wrote.

    Attributes:
        whole: The seconds of the whole refresh.
        read: Wall seconds to read the changes of the source tables; None if unknown.
        write: Wall seconds from the first write to a target to the last one; None if unknown.
        rows_read: The rows that were read.
        rows_written: The rows that were written to all targets.
    """

    whole: Cost
    read: float | None
    write: float | None
    rows_read: int
    rows_written: int


class RefreshedLake:
    """Source tables and target tables of Delta, with durable state, in one folder.

    Args:
        folder: An empty folder.
        pipeline_file: The name of the pipeline file; its source tables are ``tables/NAME``, and
            its target tables ``lake/VIEW``.
    """

    def __init__(self, folder: Path, pipeline_file: str) -> None:
        self.folder = folder
        self.pipeline_file = folder / pipeline_file
        self._reads: list[float] = []
        self._writes: list[float] = []

    def append(self, tables: Mapping[str, pa.Table]) -> None:
        """Append rows to source tables."""
        for name, table in tables.items():
            write_deltalake(self.folder / "tables" / name, table, mode="append")

    def files_of(self, table: str) -> list[str]:
        """Return the Parquet files of a source table."""
        return DeltaTable(self.folder / "tables" / table).file_uris()

    def rows_of(self, view: str) -> pa.Table:
        """Return the rows of the target table of a view."""
        return DeltaTable(self.folder / "lake" / view).to_pyarrow_table()

    def open_pipeline(self) -> Pipeline:
        """Open the pipeline; the time of its tables and targets is measured."""
        definition = read_pipeline(self.pipeline_file).definition
        tables = {name: _TimedTable(t, self._reads) for name, t in definition.tables.items()}
        return Pipeline(
            replace(
                definition,
                tables=tables,
                outputs=lambda circuit: self._outputs(definition, circuit),
            )
        )

    def refresh(self, pipeline: Pipeline) -> RefreshCost:
        """Refresh the views."""
        self._reads.clear()
        self._writes.clear()
        clock = Clock()
        refresh = pipeline.refresh()
        return RefreshCost(
            clock.read(),
            max(self._reads) - min(self._reads),
            max(self._writes) - min(self._writes),
            sum(rows for _, rows in refresh.read.values()),
            sum(refresh.written.values()),
        )

    def refresh_by_command(self) -> RefreshCost:
        """Refresh the views by the command line in a new process."""
        command = [sys.executable, "-m", "streaming.cli", "pipeline", "refresh", "--json"]
        before, start = _child_cpu(), perf_counter()
        process = subprocess.run(
            [*command, str(self.pipeline_file)], check=True, capture_output=True, text=True
        )
        cost = Cost(perf_counter() - start, _child_cpu() - before)
        report = json.loads(process.stdout)
        rows_read = sum(table["rows"] for table in report["read"].values())
        return RefreshCost(cost, None, None, rows_read, sum(report["written"].values()))

    def _outputs(self, definition: PipelineDefinition, circuit: Circuit) -> list[Output]:
        outputs = list_outputs(circuit.outputs, definition.outputs(circuit))
        return [replace(output, target=_timed(output, self._writes)) for output in outputs]


class Lakehouse(RefreshedLake):
    """Source tables and target tables of the shop.

    Args:
        folder: An empty folder.
        seed: The seed of the events.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        super().__init__(folder, "medallion.toml")
        self._shop = Shop(seed)

    def open(self, scale: float) -> None:
        """Write the first events and the pipeline file."""
        lines = [f'query = "{SQL}"', '[state]\npath = "state"', '[run]\ndialect = "spark"']
        lines += [f'[inputs.{name}]\npath = "tables/{name}"' for name in TABLES]
        for view, keys in KEYS.items():
            mode = f"keys = {list(keys)}" if keys else 'mode = "append"'
            lines.append(f'[[outputs]]\nview = "{view}"\ntarget = "delta"\npath = "lake/{view}"')
            lines.append(mode)
        self.pipeline_file.write_text("\n".join(lines))
        self.append(self._shop.open(scale))

    def append_hour(self) -> None:
        """Append the events of one more hour to the source tables."""
        self.append(self._shop.next_hour())


class _TimedTable:
    """A source table that notes the times at which each reading begins and ends."""

    def __init__(self, table: SourceTable, times: list[float]) -> None:
        self._table, self._times = table, times

    @property
    def item_column(self) -> str | None:
        return self._table.item_column

    @property
    def description(self) -> str:
        return self._table.description

    def schema(self) -> pa.Schema:
        return self._table.schema()

    def changes(self, position: Position, kept_rows: KeptRows) -> TableChanges | None:
        self._times.append(perf_counter())
        try:
            return self._table.changes(position, kept_rows)
        finally:
            self._times.append(perf_counter())

    def rows_at(self, position: Position) -> pa.Table:
        return self._table.rows_at(position)


class _TimedTarget(DeltaTarget):
    """A Delta table that notes the times at which each write begins and ends."""

    def __init__(self, path: str, times: list[float]) -> None:
        super().__init__(path)
        self._times = times

    def write(self, delta: ViewDelta) -> None:
        self._times.append(perf_counter())
        try:
            super().write(delta)
        finally:
            self._times.append(perf_counter())


def _child_cpu() -> float:
    """Return the CPU seconds of all processes that this one has started and that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _timed(output: Output, times: list[float]) -> _TimedTarget:
    assert isinstance(output.target, DeltaTarget)
    return _TimedTarget(output.target.path, times)
