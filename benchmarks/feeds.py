"""Measures how many change events per CPU second a sink decodes to rows.

Claim: the events of Debezium, Maxwell and Canal and the rows of append, upsert and Delta feeds, of
20 columns, are decoded at 300,000 per CPU second or more. Events in JSON take at most 3 times the
time in which pyarrow.json parses the same bytes on one thread, and a micro-batch of one event takes
less than 20 CPU milliseconds.

A quarter of the changes are deletes, a quarter updates, the others inserts. The measured part
begins with the Arrow table that Spark returns, and ends with the tables of the relations. The rows
are compared with those that the json module reads. All events are plain; Spark decodes others.
"""

from __future__ import annotations

import io
import json as json_module
import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as arrow_json
import typer

from benchmarks.cost import Clock, median
from benchmarks.result import Result, Row
from benchmarks.verdict import Verdict
from circuits.schema import Schema
from streaming.sources.change_feeds import (
    AppendFeed,
    CanalFeed,
    ChangeFeed,
    DebeziumFeed,
    DeltaFeed,
    Encoding,
    MaxwellFeed,
    UpsertFeed,
)
from streaming.sources.change_feeds.compiled.feed_reader import FeedReader

CLAIM: Final = "300,000 events of 20 columns per CPU second, at most 3 times the time of a parser"
TABLE: Final = "Change feeds"
FLAT_TABLE: Final = "Feeds of rows"
TARGET_RATE: Final = 300_000
TARGET_RATIO: Final = 3.0
TARGET_MS: Final = 20.0
TEMPLATES: Final = 2_000  # different events; they are repeated
REPETITIONS: Final = 5
SCHEMA: Final = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        *[(f"n{i}", pa.int64()) for i in range(5)],
        *[(f"s{i}", pa.string()) for i in range(6)],
        *[(f"f{i}", pa.float64()) for i in range(2)],
        *[(f"d{i}", pa.decimal128(12, 2)) for i in range(2)],
        ("flag", pa.bool_()),
        ("day", pa.date32()),
        ("local", pa.timestamp("us")),
        ("at", pa.timestamp("us", "UTC")),
    ]
)
Image = dict[str, Any]


def image(numbers: random.Random) -> Image:
    """Return a random row, as Debezium writes it."""
    row: Image = {"id": numbers.randrange(10**9)}
    row |= {f"n{i}": numbers.randrange(10**6) for i in range(5)}
    row |= {f"s{i}": f"name {numbers.randrange(10**5)}" for i in range(6)}
    row |= {f"f{i}": numbers.randrange(10**6) / 100 for i in range(2)}
    row |= {f"d{i}": f"{numbers.randrange(10**5)}.{numbers.randrange(100):02}" for i in range(2)}
    row |= {"flag": numbers.random() < 0.5, "day": f"2024-05-{numbers.randrange(1, 29):02}"}
    row |= {"local": f"2024-05-17 18:00:{numbers.randrange(60):02}.{numbers.randrange(10**6):06}"}
    return row | {"at": f"2024-05-17T18:00:{numbers.randrange(60):02}Z"}


def debezium(op: str, before: Image | None, after: Image | None, place: int) -> Image:
    source = {"version": "3.0", "connector": "postgresql", "name": "shop", "ts_ms": place}
    source |= {"db": "shop", "schema": "public", "table": "orders", "txId": place, "lsn": place}
    return {"before": before, "after": after, "source": source, "op": op, "ts_ms": place}


def maxwell(op: str, before: Image | None, after: Image | None, place: int) -> Image:
    kind = {"c": "insert", "u": "update", "d": "delete"}[op]
    event = {"database": "shop", "table": "orders", "type": kind, "ts": place, "xid": place}
    event["data"] = after or before
    if before and after:
        event["old"] = {name: before[name] for name in before if before[name] != after[name]}
    return event


def canal(op: str, before: Image | None, after: Image | None, place: int) -> Image:
    def texts(row: Image | None) -> Image:
        return {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in (row or {}).items()
        }

    kind = {"c": "INSERT", "u": "UPDATE", "d": "DELETE"}[op]
    event = {"database": "shop", "table": "orders", "type": kind, "isDdl": False, "id": place}
    old = [texts(before)] if op == "u" else None
    return event | {"es": place, "data": [texts(after or before)], "old": old}


FEEDS: Final[dict[str, tuple[ChangeFeed, Callable[..., Image]]]] = {
    "debezium": (DebeziumFeed(encoding=Encoding("text", epoch_days=True)), debezium),
    "maxwell": (MaxwellFeed(), maxwell),
    "canal": (CanalFeed(), canal),
}


def events_of(write: Callable[..., Image], seed: int) -> tuple[list[str], int, int]:
    """Return events, the number of their rows, and the sum of ``id`` times weight."""
    numbers = random.Random(seed)
    texts, rows, total = [], 0, 0
    for place in range(TEMPLATES):
        op = "ccud"[place % 4]
        before = image(numbers) if op in "ud" else None
        after = image(numbers) if op != "d" else None
        texts.append(json_module.dumps(write(op, before, after, place)))
        rows += (before is not None) + (after is not None)
        total += (after["id"] if after else 0) - (before["id"] if before else 0)
    return texts, rows, total


def measure(verdict: Verdict, name: str, size: int, seed: int) -> Row:
    """Measure one format, and check its rows."""
    feed, write = FEEDS[name]
    texts, rows, total = events_of(write, seed)
    copies = size // TEMPLATES
    values = pa.array(texts * copies)
    batch = pa.table({"value": values})
    reader = FeedReader(feed, {"orders": Schema.of("orders", SCHEMA)}, {})
    lines = "\n".join(texts * copies).encode()
    options = arrow_json.ReadOptions(use_threads=False, block_size=2**22)
    decoding, parsing, single = [], [], []
    for _ in range(REPETITIONS + 1):
        clock = Clock()
        # Without a session: an event that is not plain would raise an error.
        table = reader.decode(batch, None).tables["orders"]
        decoding.append(clock.read())
        clock = Clock()
        arrow_json.read_json(io.BytesIO(lines), read_options=options)
        parsing.append(clock.read())
        clock = Clock()
        reader.decode(batch.slice(0, 1), None)
        single.append(clock.read())
    found = sum(table["id"][i].as_py() * table["weight"][i].as_py() for i in range(rows))
    verdict.set_truth(f"rows of {name}", rows * copies)
    verdict.compare("decoded", f"rows of {name}", table.num_rows)
    if copies == 1:
        verdict.set_truth(f"sum of ids of {name}", total)
        verdict.compare("decoded", f"sum of ids of {name}", found)
    rate = len(values) / median(decoding[1:]).cpu
    ratio = median(decoding[1:]).cpu / median(parsing[1:]).cpu
    fixed = 1000 * median(single[1:]).cpu
    return {
        "feed": name,
        "events": len(values),
        "bytes per event": round(len(lines) / len(values)),
        "events/CPU s": rate,
        "CPU µs per event": 1e6 / rate,
        "times pyarrow.json": ratio,
        "one event, CPU ms": fixed,
        "met": rate >= TARGET_RATE and ratio <= TARGET_RATIO and fixed < TARGET_MS,
    }


FLAT_FEEDS: Final[dict[str, ChangeFeed]] = {
    "append": AppendFeed(),
    "upsert": UpsertFeed(deleted="deleted", sequence="place"),
    "delta": DeltaFeed(),
}


def rows_of(seed: int) -> tuple[pa.Table, int]:
    """Return rows with the columns that flat feeds read, and how many of them are deleted."""
    numbers = random.Random(seed)
    rows = [image(numbers) for _ in range(TEMPLATES)]
    kinds = ["insert", "update_preimage", "update_postimage", "delete"] * (TEMPLATES // 4)
    columns = {f.name: pa.array([row[f.name] for row in rows]).cast(f.type) for f in SCHEMA}
    table = pa.table(columns)
    deleted = [kind == "delete" for kind in kinds]
    table = table.append_column("deleted", pa.array(deleted))
    table = table.append_column("_change_type", pa.array(kinds))
    table = table.append_column("_commit_version", pa.array(range(TEMPLATES)))
    return table.append_column("place", pa.array(range(TEMPLATES))), sum(deleted)


def measure_flat(verdict: Verdict, name: str, size: int, seed: int) -> Row:
    """Measure one feed of rows, and check the number of its deleted rows."""
    table, deleted = rows_of(seed)
    deleted = {"append": 0, "upsert": deleted, "delta": 2 * deleted}[name]
    copies = size // TEMPLATES
    batch = pa.concat_tables([table] * copies).combine_chunks()
    options = {"orders": SimpleNamespace(keys=("id",))} if name == "upsert" else {}
    inputs = {"orders": Schema.of("orders", SCHEMA)}
    reader = FeedReader(FLAT_FEEDS[name], inputs, options)
    decoding, single = [], []
    for _ in range(REPETITIONS + 1):
        clock = Clock()
        decoded = reader.decode(batch, None).tables["orders"]
        decoding.append(clock.read())
        clock = Clock()
        reader.decode(batch.slice(0, 1), None)
        single.append(clock.read())
    verdict.set_truth(f"deleted rows of {name}", deleted * copies)
    found = pc.sum(pc.less(decoded["weight"], 0)).as_py()
    verdict.compare("decoded", f"deleted rows of {name}", found)
    verdict.set_truth(f"rows of {name}", batch.num_rows)
    verdict.compare("decoded", f"rows of {name}", decoded.num_rows)
    rate = batch.num_rows / median(decoding[1:]).cpu
    fixed = 1000 * median(single[1:]).cpu
    return {
        "feed": name,
        "rows": batch.num_rows,
        "rows/CPU s": rate,
        "one row, CPU ms": fixed,
        "met": rate >= TARGET_RATE and fixed < TARGET_MS,
    }


def main(
    seed: Annotated[int, typer.Option(help="The seed of the random rows.")] = 1,
    quick: Annotated[bool, typer.Option("--quick", help="2,000 events.")] = False,
    json: Annotated[Path | None, typer.Option(help="Where to write the result.")] = None,
) -> None:
    """Measure all formats; exit status 1 if an answer is wrong."""
    verdict = Verdict()
    result = Result("feeds", CLAIM, {TABLE: [], FLAT_TABLE: []})
    for name in FEEDS:
        # The rows of few events are compared one by one, those of many by their number.
        row = measure(verdict, name, TEMPLATES, seed)
        if not quick:
            row = measure(verdict, name, 100 * TEMPLATES, seed)
        result.tables[TABLE].append(row)
    for name in FLAT_FEEDS:
        size = TEMPLATES if quick else 100 * TEMPLATES
        result.tables[FLAT_TABLE].append(measure_flat(verdict, name, size, seed))
    verdict.close(result, json)


if __name__ == "__main__":
    typer.run(main)
