"""State directories of each format, as small fixtures that all later versions of the package open.

A fixture is a directory that a version of the package wrote: three micro-batches of a program with
strings, row ids, groups, a recursion, keys and retention. A test copies it, goes on with the next
micro-batches, and compares the views with those of a fresh load. A new format needs a new fixture::

    python -m tests.support.state_formats        # writes the fixture of the current format
"""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from circuits import Circuit, InputOptions, Retention, compile_sql
from streaming import ViewSink
from streaming.state.directory_identity import FORMAT_VERSION
from tests.streaming.sink.test_view_sink import Frame

__all__ = ["ALL", "FIXTURES", "STORED", "feed", "program", "tables_of", "write_fixture"]

FIXTURES = Path(__file__).parents[1] / "streaming" / "state" / "formats"
STORED = 3  # micro-batches in a fixture
ALL = 6
START = datetime(2026, 1, 1, tzinfo=UTC)
TEXT = """
    CREATE VIEW paths AS
        SELECT x.src, y.dst, x.name, y.note FROM link x JOIN link y ON x.dst = y.src;
    CREATE VIEW names AS SELECT name, count(*) AS n, min(note) AS first FROM link GROUP BY name;
    CREATE VIEW reach AS
        WITH RECURSIVE r(a, b) AS (
            SELECT src, dst FROM link UNION SELECT r.a, link.dst FROM r JOIN link ON r.b = link.src
        ) SELECT a, b FROM r;
    CREATE VIEW recent AS SELECT nr, city, at FROM orders WHERE city <> 'none';
    CREATE VIEW cities AS SELECT city, sum(price) AS total FROM orders GROUP BY city;
"""
SCHEMAS = {
    "link": "src bigint not null, dst bigint not null, name string, note string",
    "orders": "nr bigint not null, city string, price decimal(9, 2), at timestamp not null",
}


def program() -> Circuit:
    options = {"orders": InputOptions(keys=["nr"], retain=Retention("at", "10 days"))}
    return compile_sql(TEXT, SCHEMAS, materialize=True, input_options=options)


def rows_of(number: int) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of a micro-batch."""
    links = [
        {"src": (number + k) % 4, "dst": (3 * number + k) % 5, "name": f"n{k}", "note": f"{number}"}
        for k in range(3)
    ]
    orders = [
        {
            "nr": (number + 2 * k) % 5,
            "city": ["Rome", "Oslo", None][(number + k) % 3],
            "price": number + k,
            "at": START + timedelta(days=4 * number + k),
        }
        for k in range(2)
    ]
    return {"link": links, "orders": orders}


def tables_of(number: int) -> dict[str, pa.Table]:
    circuit = program()
    return {
        name: pa.Table.from_pylist(rows, circuit.inputs[name].arrow_columns)
        for name, rows in rows_of(number).items()
    }


def feed(sink: ViewSink, number: int) -> None:
    parts = []
    tables = tables_of(number)
    fields = [field for table in tables.values() for field in table.schema]
    for name, table in tables.items():
        columns = {"relation": pa.array([name] * table.num_rows)}
        for field in fields:
            is_own = field.name in table.column_names
            columns[field.name] = (
                table.column(field.name) if is_own else pa.nulls(table.num_rows, field.type)
            )
        parts.append(pa.table(columns))
    sink(Frame(pa.concat_tables(parts), "q"), number)


def write_fixture(folder: Path) -> None:
    """Write the state directory after the stored micro-batches."""
    shutil.rmtree(folder, ignore_errors=True)
    sink = ViewSink(program(), state_dir=folder, keep=2)
    for number in range(STORED):
        feed(sink, number)
    sink.close()
    for name in ("lock", "metrics.jsonl"):
        (folder / name).unlink(missing_ok=True)


if __name__ == "__main__":
    write_fixture(FIXTURES / str(FORMAT_VERSION))
