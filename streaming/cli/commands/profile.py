"""The sub-command ``profile``: print how much time each part of a query's steps takes."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
from rich.console import Console

from circuits import Circuit
from streaming.cli.arguments.source import parse_sources, read_plain_rows
from streaming.cli.arguments.views import compile_query, dialect_of
from streaming.cli.profiling.measure import measure
from streaming.cli.profiling.rows import generate_graph, split_stream
from streaming.cli.profiling.tables import as_json, show
from streaming.cli.terminal.display import console, print_json
from streaming.errors import EventsError
from streaming.state.open_files import open_files
from streaming.state.store import Store

__all__ = ["profile", "read_tables"]


def profile(
    *,
    query: str,
    source: list[str] | None,
    rows: int,
    skew: float,
    batch: int,
    steps: int,
    dialect: str,
    functions: str | None,
    formula: str,
    threads: int | None,
    write: bool,
    state_dir: Path | None,
    seed: int,
    json: bool,
) -> None:
    """Run a query's steps and print where their time goes, by phase, term and level."""
    progress = Console(stderr=True, style="dim")
    with ExitStack() as stack:
        tables = read_tables(source or [], rows=rows, skew=skew, seed=seed)
        schemas = {name: table.schema for name, table in tables.items()}
        stream = split_stream(tables, batch=batch, steps=steps, seed=seed)
        circuit = compile_query(
            query,
            schemas,
            dialect=dialect,
            functions=functions,
            formula=formula,
            threads=threads,
        )
        if dialect_of(circuit) is not None and not json:
            progress.print(f"SQL dialect: {dialect}")
        store = None
        if write or state_dir is not None:
            folder = state_dir or Path(stack.enter_context(tempfile.TemporaryDirectory()))
            store = _store(folder, circuit)
            stack.callback(store.close)
        result = measure(
            circuit,
            stream,
            store=store,
            report=_progress_printer(progress, json),
        )
    if json:
        print_json(as_json(result))
    else:
        show(result, console())


def _progress_printer(progress: Console, quiet: bool) -> Callable[[str], None]:
    return (lambda text: None) if quiet or not progress.is_terminal else progress.print


def read_tables(texts: list[str], *, rows: int, skew: float, seed: int) -> dict[str, pa.Table]:
    """Read the relations that ``--source`` names, or generate a graph if there is none.

    Raises:
        EventsError: A text names no file, or the file cannot be read.
    """
    if not texts:
        return {"e": generate_graph(rows, skew, seed)}
    return {name: read_plain_rows(source) for name, source in parse_sources(texts).items()}


def _store(folder: Path, circuit: Circuit) -> Store:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise EventsError(f"--state-dir {folder}: exists and is not empty; name a new directory")
    return Store(open_files(folder), circuit)
