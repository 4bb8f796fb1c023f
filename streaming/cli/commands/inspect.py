"""The sub-command ``inspect``: print the contents of a state directory."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from streaming.cli.command import FAILED
from streaming.cli.state_inspection import inspect_state
from streaming.cli.terminal.display import (
    amount,
    console,
    milliseconds,
    plain_table,
    print_json,
    size,
)

__all__ = ["inspect"]


def inspect(*, state_dir: Path, check: bool, letters: int, json: bool) -> None:
    """Show versions, arrangements, sizes and dead letters of a state directory.

    Raises:
        typer.Exit: The newest version is damaged.
    """
    found = inspect_state(state_dir, check=check, letters=letters)
    if json:
        print_json(found)
    else:
        _show(found, console())
    versions = found["versions"]
    if versions and versions[-1]["damage"] is not None:
        raise typer.Exit(FAILED)


def _show(found: dict[str, Any], terminal: Console) -> None:
    terminal.print(f"[total]{found['location']}[/]", soft_wrap=True)
    writer = found["writer"]
    usage = "nobody writes to it" if writer is None else f"process {writer or '?'} writes to it"
    terminal.print(f"[note]{found['id'] or 'its identity cannot be read'}; {usage}[/]")
    for name, columns in found["inputs"].items():
        terminal.print(f"input [name]{name}[/] [note]{columns}[/]", soft_wrap=True)
    if found["views"]:
        terminal.print("views " + ", ".join(f"[name]{name}[/]" for name in found["views"]))
    whole = [one for one in found["versions"] if one["damage"] is None]
    if whole and whole[-1]["cells"] is not None:
        terminal.print(f"distributed over {amount(whole[-1]['cells'])} cells")
    last = found["last_batch"]
    if last is not None:
        rows = sum(last["rows_in"].values())
        terminal.print(
            f"last micro-batch {last['batch_id']:,}: {amount(rows)} rows in "
            f"{milliseconds(last['seconds']['all'])} ms, {size(last['bytes_written'])} written"
        )
    terminal.print()
    if not found["versions"]:
        terminal.print("no version so far", style="warning")
    else:
        terminal.print(_versions(found["versions"]))
    for one in found["versions"]:
        if one["damage"] is not None:
            terminal.print(f"[error]version {one['batch']:,}:[/]", end=" ")
            terminal.print(one["damage"], markup=False, soft_wrap=True)
    if found["arrangements"]:
        terminal.print()
        terminal.print(_arrangements(found["arrangements"], found["bytes"]))
    terminal.print()
    _letters(found["letters"], terminal)


def _versions(versions: list[dict[str, Any]]) -> Table:
    table = plain_table("Versions")
    table.add_column("batch", justify="right", style="name")
    table.add_column("written")
    table.add_column("files", justify="right")
    table.add_column("size", justify="right")
    table.add_column("")
    for one in reversed(versions):
        is_whole = one["damage"] is None
        state = Text("whole", style="good") if is_whole else Text("damaged", style="error")
        if "written" not in one:
            table.add_row(amount(one["batch"]), "", "", "", state)
            continue
        written = datetime.fromtimestamp(one["written"]).strftime("%Y-%m-%d %H:%M:%S")
        table.add_row(
            amount(one["batch"]), written, amount(one["files"]), size(one["bytes"]), state
        )
    return table


def _arrangements(pieces: list[dict[str, Any]], sizes: dict[str, int]) -> Table:
    table = plain_table("State of the newest version that is whole")
    table.add_column("arrangement")
    for name in ("rows", "pieces", "size"):
        table.add_column(name, justify="right")
    table.add_column("", min_width=20)
    max_bytes = max(one["bytes"] for one in pieces) or 1
    for one in sorted(pieces, key=lambda one: -one["bytes"]):
        order = "" if one["order"] is None else f" [note]\\[{','.join(map(str, one['order']))}][/]"
        kind = " [note]values[/]" if one["kind"] == "values" else ""
        table.add_row(
            f"{one['name']}{order}{kind}",
            amount(one["rows"]),
            amount(one["pieces"]),
            size(one["bytes"]),
            Text("█" * round(20 * one["bytes"] / max_bytes), style="name"),
        )
    table.add_section()
    folders = ", ".join(
        f"{name}/ {size(count)}" for name, count in sizes.items() if name != "state"
    )
    table.add_row("all", "", "", size(sizes["state"]), Text(f"on disk: {folders}", style="note"))
    return table


def _letters(letters: dict[str, Any], terminal: Console) -> None:
    if not letters["total"] and not letters["reasons"]:
        terminal.print("no dead letters", style="note")
        return
    table = plain_table(f"Dead letters: {amount(letters['total'])}")
    table.add_column("rows", justify="right")
    table.add_column("relation", style="name")
    table.add_column("reason", overflow="fold")
    for one in letters["reasons"]:
        table.add_row(amount(one["rows"]), one["relation"] or "–", Text(one["reason"]))
    terminal.print(table)
    if letters["newest"]:
        terminal.print()
        newest = plain_table("The newest")
        newest.add_column("batch", justify="right", style="note")
        newest.add_column("row", overflow="fold", max_width=100)
        for one in letters["newest"]:
            newest.add_row(amount(one["batch_id"] or 0), Text(one["row"] or ""))
        terminal.print(newest)
