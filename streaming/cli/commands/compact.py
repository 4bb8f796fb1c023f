"""The sub-command ``compact``: write the state of a stopped query again, as small as it can be."""

from __future__ import annotations

from dataclasses import asdict

from streaming.cli.arguments.functions import load_functions
from streaming.cli.terminal.display import amount, console, plain_table, print_json, size
from streaming.distributed.cell_state import divide_circuit
from streaming.state.offline_compaction import StoredSize, compact_state
from streaming.state.open_files import open_files

__all__ = ["compact"]


def compact(*, state_dir: str, functions: str | None, json: bool) -> None:
    """Remove unused values and earlier versions from the state of a stopped query."""
    files = open_files(state_dir)
    result = compact_state(files, functions=load_functions(functions), divide=divide_circuit)
    if json:
        print_json(asdict(result))
        return
    table = plain_table()
    table.add_column("")
    for title in ("disk", "files", "rows", "values", "parts"):
        table.add_column(title, justify="right")
    table.add_row("before", *_cells(result.before))
    table.add_row("after", *_cells(result.after))
    console().print(table)
    console().print(f"version {result.batch_id:,} is the only one now", soft_wrap=True)


def _cells(stored: StoredSize) -> list[str]:
    counts = (stored.files, stored.rows, stored.values, stored.parts)
    return [size(stored.bytes), *map(amount, counts)]
