"""Measures how evenly the groups of aggregates are divided among cells, with and without a hub.

Each task decodes a part of the edges, and computes the linear operators before the exchange. The
load of a cell is the number of rows that it receives, and the number of rows that it keeps. A group
has one result, in one cell: the cell keeps a few sums, or the first rows of all parts of the group
for min and max. The parts are in cells of an earlier stage. The cells of all stages with one number
count as one cell, because one worker runs them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.graph import Graph
from benchmarks.result import Row
from benchmarks.verdict import Verdict
from circuits import Circuit, compile_sql
from streaming.distributed.cell_state import circuit_stages
from streaming.distributed.execution.cell import cell_spec, group_by_destination, source_spec
from streaming.distributed.execution.placement import Integers
from streaming.distributed.execution.routing import CELL
from streaming.distributed.execution.stage_rows import (
    pack_relations,
    replicate_rows,
    split_relations,
)
from streaming.distributed.planning.grid_planning import stage_grid
from streaming.distributed.planning.stages import Stage, Stages

TARGET = 1.5  # largest load divided by the mean, of the rows that cells receive
EDGE = pa.schema([pa.field(name, pa.int64(), nullable=False) for name in ("src", "dst")])
TASKS = 8  # that decode rows

Tables = dict[str, list[pa.Table]]  # by destination


@dataclass(frozen=True)
class GroupQuery:
    """An aggregate of the edges by their source."""

    name: str
    text: str


QUERIES = (
    GroupQuery("count", "SELECT src, count(*) AS n FROM e GROUP BY src"),
    GroupQuery(
        "count, sum, avg",
        "SELECT src, count(*) AS n, sum(dst) AS s, avg(dst) AS a FROM e GROUP BY src",
    ),
    GroupQuery("min, max", "SELECT src, min(dst) AS a, max(dst) AS b FROM e GROUP BY src"),
)


def measure_groups(query: GroupQuery, graph: Graph, cells: int, verdict: Verdict) -> Row:
    """Return a row of the table.

    Args:
        query: The aggregate.
        graph: The edges.
        cells: The number of cells.
        verdict: Fails if the cells compute something else than one process.
    """
    circuit = compile_sql(query.text, {"e": EDGE})
    stages = circuit_stages(circuit)
    shuffled = graph.shuffled(0)
    sent: Tables = {}
    for task in range(TASKS):
        part = shuffled.take(slice(task, None, TASKS))
        rows = pa.table({"src": part.source, "dst": part.target}, EDGE)
        _add_outputs(sent, Circuit(source_spec(circuit.spec, stages)).step({"e": rows}))
    received, kept = np.zeros(cells, np.int64), np.zeros(cells, np.int64)
    for stage in stages.stages:
        grid = stage_grid(stage, cells)
        tables = {relation.name: sent[f"relation {relation.name}"] for relation in stage.relations}
        rows = replicate_rows(stage, pack_relations(stage, tables), grid)
        received += np.bincount(rows.column(CELL).to_numpy(), minlength=cells)
        kept += _step_cells(stage, stages, rows, cells, sent)
    result = pa.concat_tables(sent["view view"])
    whole = pa.table({"src": graph.source, "dst": graph.target}, EDGE)
    truth = f"{query.name} by source of {graph.name}"
    verdict.set_truth(truth, _checksum(circuit.step({"e": whole})["view"]))
    verdict.compare(f"{cells} cells", truth, _checksum(result))
    balance = float(received.max() / received.mean())
    return {
        "aggregates": query.name,
        "graph": graph.name,
        "cells": cells,
        "groups": result.num_rows,
        "rows": graph.edges,
        "rows sent": int(received.sum()),
        "received max/mean": balance,
        "kept max/mean": float(kept.max() / kept.mean()),
        "target": TARGET,
        "met": balance <= TARGET,
    }


def _step_cells(stage: Stage, stages: Stages, rows: pa.Table, cells: int, sent: Tables) -> Integers:
    """Return the number of rows that each cell keeps; add its outputs to the sent tables."""
    spec, kept = cell_spec(stage, stages), np.zeros(cells, np.int64)
    for cell in range(cells):
        circuit = Circuit(spec)
        of_cell = rows.filter(pc.equal(rows.column(CELL), cell))
        _add_outputs(sent, circuit.step(split_relations(stage, of_cell)))
        kept[cell] = sum(len(trace.to_zset()) for trace in circuit.graph.traces.values())
    return kept


def _add_outputs(sent: Tables, outputs: Mapping[str, pa.Table]) -> None:
    for destination, tables in group_by_destination(outputs).items():
        sent.setdefault(destination, []).extend(tables)


def _checksum(view: pa.Table) -> int:
    """Return a checksum of a view, whose rows are unique."""
    ordered = view.sort_by([(name, "ascending") for name in view.column_names])
    return crc32(repr([column.to_pylist() for column in ordered.columns]).encode())
