"""Commits of a stream into an input that are killed, and repeated; ``python -m ... FOLDER SEED N``.

This process forks a child for each commit. A child dies by SIGKILL at a call to the state
directory: before, during or after it. Then another one writes the same micro-batch again, as Spark
does, and the view is compared with the rows of all micro-batches so far.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from random import Random
from unittest import mock

import pyarrow as pa

from streaming.data_source import input_stream_writer as module
from streaming.data_source.input_stream_writer import InputStreamWriter, WriteOptions
from streaming.data_source.stored_views import StoredViews
from streaming.database import database as database_module
from tests.support.killed_process import KillingFiles, Plan
from tests.support.pipeline_kills import run

VIEWS = """
CREATE TABLE orders (nr BIGINT, city TEXT);
CREATE VIEW cities AS SELECT city, count(*) AS n FROM orders GROUP BY city;
"""
MAX_CALLS = 14


def main(folder: Path, seed: str, count: int) -> None:
    random = Random(seed)
    options = options_of(folder)
    live: list[tuple[int, str]] = []
    kills = 0
    for batch_id in range(count):
        changes = [((batch_id * 10 + i, random.choice("abc")), 1) for i in range(3)]
        if live and random.random() < 0.5:
            changes.append((live.pop(random.randrange(len(live))), -1))
        live += [row for row, weight in changes if weight > 0]
        for _ in range(2):
            plan = Plan(random.randrange(MAX_CALLS), random.choice(["before", "during", "after"]))
            kills += not run(
                lambda p=plan, b=batch_id, c=changes: commit(options, p, b, c), may_die=True
            )
        run(lambda b=batch_id, c=changes: commit(options, Plan(None), b, c))
        run(lambda rows=live[:]: compare(options, rows))
    print(json.dumps({"kills": kills}))


def options_of(folder: Path) -> WriteOptions:
    checkpoint = folder / "checkpoint"
    (checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
    (checkpoint / "metadata").write_text('{"id": "q"}')
    return WriteOptions(str(folder / "state"), str(checkpoint), views=VIEWS)


def commit(options: WriteOptions, plan: Plan, batch_id: int, changes: list) -> None:
    """Write a micro-batch in two parts, and commit it."""

    def open_files(location):
        return KillingFiles(Path(location), plan)

    checkpoint = mock.Mock(query_id="q", planned_ms=lambda batch_id: batch_id)
    with (
        mock.patch.object(module, "open_files", open_files),
        mock.patch.object(database_module, "open_files", open_files),
        mock.patch.object(module, "Checkpoint", lambda location: checkpoint),
    ):
        writer = InputStreamWriter(options)
        messages = [
            writer.write(iter(rows_of(part).to_batches())) for part in (changes[:1], changes[1:])
        ]
        writer.commit(messages, batch_id)
    parts = [path for path in Path(options.state).glob("incoming-*/*") if path.is_file()]
    assert not parts, parts


def rows_of(changes: list) -> pa.Table:
    rows = [{"nr": nr, "city": city, "weight": weight} for (nr, city), weight in changes]
    schema = {"nr": pa.int64(), "city": pa.string(), "weight": pa.int64()}
    return pa.Table.from_pylist(rows, pa.schema(schema))


def compare(options: WriteOptions, live: list[tuple[int, str]]) -> None:
    stored = StoredViews(options.state)
    rows = stored.rows("cities", stored.newest()).to_pylist()
    counts = Counter(city for _, city in live)
    assert {row["city"]: row["n"] for row in rows} == counts, f"{rows}, expected {counts}"


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
