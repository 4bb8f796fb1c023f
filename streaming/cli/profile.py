"""The sub-command ``profile``: where the time of a query's steps goes.

Exit status 0: measured. 2: the query or its data cannot be used; one line on the error output says
why.
"""

from __future__ import annotations

import json as json_format
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Final

import pyarrow as pa
import typer
from rich.console import Console

from circuits import Circuit, compile_datalog, compile_sql
from dbsp_wcoj import DbspWcojError, Formula
from streaming.errors import EventsError
from streaming.profiling.measure import measured
from streaming.profiling.rows import generated, read, stream_of
from streaming.profiling.tables import as_json, show
from streaming.state.files import files_of
from streaming.state.store import Store

__all__ = ["profile"]

REFUSED: Final = 2
SQL_WORDS: Final = ("select", "with", "create", "from", "(")
PARTS_PER_THREAD: Final = 16


def profile(
    query: Annotated[
        str, typer.Argument(help="SQL, Datalog rules, or a file .sql or .dl with either.")
    ],
    given: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            metavar="NAME=FILE",
            help="A relation, from a Parquet or CSV file; repeatable. Without any, a generated "
            "graph e(src, dst).",
        ),
    ] = None,
    rows: Annotated[int, typer.Option(min=10, help="Edges of the generated graph.")] = 100_000,
    skew: Annotated[
        float, typer.Option(min=0.0, max=0.95, help="Of the generated graph's ends; 0 is uniform.")
    ] = 0.5,
    batch: Annotated[int, typer.Option(min=1, help="Rows of a step.")] = 1_000,
    steps: Annotated[
        int, typer.Option(min=1, help="Steps that insert; as many delete the same rows again.")
    ] = 20,
    formula: Annotated[str, typer.Option(help=f"Delta formula: auto, {', '.join(Formula)}.")] = str(
        Formula.collapsed
    ),
    threads: Annotated[int, typer.Option(min=1, help="Threads of the joins.")] = 1,
    write: Annotated[
        bool, typer.Option("--write", help="Write each step to files as the durable sink does.")
    ] = False,
    state_dir: Annotated[
        Path | None,
        typer.Option(help="Where; a new directory. A temporary one when not given.", metavar="DIR"),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the generated graph and the order of rows.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="JSON instead of tables.")] = False,
) -> None:
    """Run a query's steps and print where their time goes, by phase, term and level."""
    console, progress = _wide(Console()), Console(stderr=True, style="dim")
    try:
        with ExitStack() as stack:
            tables = _tables(given or [], rows=rows, skew=skew, seed=seed)
            schemas = {name: table.schema for name, table in tables.items()}
            stream = stream_of(tables, batch=batch, steps=steps, seed=seed)
            executor = stack.enter_context(ThreadPoolExecutor(threads)) if threads > 1 else None
            circuit = _circuit(query, schemas, formula, executor, threads)
            store = None
            if write or state_dir is not None:
                folder = state_dir or Path(stack.enter_context(tempfile.TemporaryDirectory()))
                store = _store(folder, circuit)
                stack.callback(store.close)
            found = measured(
                circuit, stream, store=store, parallel=threads > 1, say=_said(progress, json)
            )
    except (DbspWcojError, OSError, pa.ArrowException) as error:
        typer.echo(f"error: {' '.join(str(error).split())}", err=True)
        raise typer.Exit(REFUSED) from error
    if json:
        typer.echo(json_format.dumps(as_json(found), indent=1))
    else:
        show(found, console)


def _wide(console: Console) -> Console:
    """The terminal; wide enough for the tables when the output is none."""
    return console if console.is_terminal else Console(width=140)


def _said(progress: Console, quiet: bool) -> Callable[[str], None]:
    return (lambda text: None) if quiet or not progress.is_terminal else progress.print


def _tables(given: list[str], *, rows: int, skew: float, seed: int) -> dict[str, pa.Table]:
    if not given:
        return {"e": generated(rows, skew, seed)}
    tables: dict[str, pa.Table] = {}
    for one in given:
        name, equals, path = one.partition("=")
        if not name or not equals or not path:
            raise EventsError(f"--input {one!r}: give a name and a file, NAME=FILE")
        if name in tables:
            raise EventsError(f"--input {one!r}: relation {name!r} was given before")
        tables[name] = read(Path(path))
    return tables


def _circuit(
    query: str,
    schemas: dict[str, pa.Schema],
    formula: str,
    executor: ThreadPoolExecutor | None,
    threads: int,
) -> Circuit:
    """The circuit of a text, or of the file that it names."""
    path = Path(query) if query.endswith((".sql", ".dl")) else None
    if path is not None:
        try:
            query = path.read_text()
        except OSError as error:
            raise EventsError(f"{path}: {error.strerror or error}") from None
    sql = query.lstrip().lower().startswith(SQL_WORDS) if path is None else path.suffix == ".sql"
    parts = 1 if executor is None else threads * PARTS_PER_THREAD
    compiled = compile_sql if sql else compile_datalog
    return compiled(query, schemas, formula=formula, executor=executor, parts=parts)


def _store(folder: Path, circuit: Circuit) -> Store:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise EventsError(f"--state-dir {folder}: is there and not empty; name a new directory")
    return Store(files_of(folder), circuit)
