"""Measures the time from a state directory to a sink that has completed its next micro-batch.

The view of triangles over random edges ``e(src, dst)`` is built in twenty micro-batches, so that
each arrangement consists of several files. Then the circuit, the store and the sink are created
again, as in a new process: the files are memory-mapped, their checksums are compared, and a
micro-batch of 100 rows is processed. "Cold" is the same after the operating system has dropped the
files from memory, so that they are read from disk. "Rebuild" is one step with all rows, which are
in memory already; no source is read.

At the end the restarted view and the rebuilt view must have the same count.
"""

from __future__ import annotations

import gc
import pickle
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.result import Row
from benchmarks.sink.graph import (
    Integers,
    changes_table,
    count_change,
    micro_batch_of,
    triangles_circuit,
)
from benchmarks.sink.page_cache import drop_from_page_cache
from benchmarks.verdict import Verdict
from circuits import Circuit
from streaming import ViewSink

BATCHES = 20
NEXT_ROWS = 100  # rows of the first micro-batch after a restart
TARGET_ROWS, TARGET_SECONDS = 10_000_000, 2.0
DEGREE = 4  # edges of a node


def measure_restart(folder: Path, *, rows: int, strings: bool, seed: int, verdict: Verdict) -> Row:
    """Build a state of ``rows`` rows, restart it warm and cold, and rebuild it; return the row."""
    random = np.random.default_rng(seed)
    nodes = max(rows // DEGREE, 20)
    source, target = (random.integers(0, nodes, rows + 2 * NEXT_ROWS) for _ in range(2))
    circuit = triangles_circuit(pa.string() if strings else None)
    spec = pickle.dumps(circuit.spec)
    start = time.perf_counter()
    sink = ViewSink(circuit, state_dir=folder)
    total = 0
    for number, row_numbers in enumerate(np.array_split(np.arange(rows), BATCHES)):
        sink(micro_batch_of(_table(source[row_numbers], target[row_numbers], strings)), number)
        total += _last_change_of_count(sink)
    built_s = time.perf_counter() - start
    file_sizes = [path.stat().st_size for path in (folder / "data").iterdir()]
    sink.close()
    del sink, circuit
    restarts = []
    for restart, is_cold in enumerate((False, True)):
        gc.collect()
        if is_cold:
            drop_from_page_cache(folder)
        next_rows = slice(rows + restart * NEXT_ROWS, rows + (restart + 1) * NEXT_ROWS)
        table = _table(source[next_rows], target[next_rows], strings)
        start = time.perf_counter()
        sink = ViewSink(Circuit(pickle.loads(spec)), state_dir=folder)
        sink(micro_batch_of(table), BATCHES + restart)
        seconds = time.perf_counter() - start
        load_s = seconds - _seconds_without_load(sink)
        restarts.append((load_s, seconds))
        total += _last_change_of_count(sink)
        sink.close()
        del sink
    gc.collect()
    everything = _table(source, target, strings)
    rebuilt: Circuit = Circuit(pickle.loads(spec))
    start = time.perf_counter()
    output = rebuilt.step({"e": everything})
    rebuild_s = time.perf_counter() - start
    case = f"triangles of {rows:,} rows of {'strings' if strings else 'int64'}, rebuilt"
    verdict.set_truth(case, count_change(output["triangles"]))
    verdict.compare("built in pieces and restarted twice", case, total)
    (warm_load_s, warm_total_s), (cold_load_s, _) = restarts
    return {
        "rows": rows,
        "columns": "string" if strings else "int64",
        "files": len(file_sizes),
        "MB": sum(file_sizes) / 1e6,
        "restart s": warm_load_s,
        "with a first micro-batch s": warm_total_s,
        "target s": TARGET_SECONDS if rows == TARGET_ROWS else None,
        "met": warm_total_s < TARGET_SECONDS if rows == TARGET_ROWS else None,
        "cold s": cold_load_s,
        "built in micro-batches s": built_s,
        "rebuild s": rebuild_s,
        "times faster": rebuild_s / warm_load_s,
    }


def _seconds_without_load(sink: ViewSink) -> float:
    """Return the seconds of the last micro-batch without those of loading."""
    seconds = sink.metrics[-1].seconds
    return seconds["all"] - seconds["load"]


def _last_change_of_count(sink: ViewSink) -> int:
    assert sink.last is not None
    return count_change(sink.last.outputs["triangles"])


def _table(source: Integers, target: Integers, strings: bool) -> pa.Table:
    table = changes_table(source, target)
    if not strings:
        return table
    for column in range(2):
        numbers = pa.array(np.char.zfill(table.column(column).to_numpy().astype(str), 10))
        named = pa.compute.binary_join_element_wise("account-", numbers, "")
        table = table.set_column(column, table.column_names[column], named)
    return table
