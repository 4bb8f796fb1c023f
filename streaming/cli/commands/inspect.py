"""The sub-command ``inspect``: print the contents of a state directory."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dbsp_wcoj.planning.explain import arrangement_name
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


def inspect(*, state_dir: str, check: bool, letters: int, json: bool) -> None:
    """Show versions, arrangements, sizes and dead letters of a state directory.

    Raises:
        typer.Exit: The newest version is damaged.
    """
    contents = inspect_state(state_dir, check=check, letters=letters)
    if json:
        print_json(contents)
    else:
        _show(contents, console())
    versions = contents["versions"]
    if versions and versions[-1]["damage"] is not None:
        raise typer.Exit(FAILED)


def _show(contents: dict[str, Any], terminal: Console) -> None:
    terminal.print(f"[total]{contents['location']}[/]", soft_wrap=True)
    writer = contents["writer"]
    usage = "no process writes to it" if writer is None else f"process {writer or '?'} writes to it"
    id = f"id {contents['id']}" if contents["id"] else "its id cannot be read"
    terminal.print(f"[note]{id}; {usage}[/]")
    for name, columns in contents["inputs"].items():
        terminal.print(f"input [name]{name}[/] [note]{columns}[/]", soft_wrap=True)
    if contents["views"]:
        terminal.print("views " + ", ".join(f"[name]{name}[/]" for name in contents["views"]))
    intact = [version for version in contents["versions"] if version["damage"] is None]
    if intact and intact[-1]["cells"] is not None:
        terminal.print(f"distributed over {amount(intact[-1]['cells'])} cells")
    last = contents["last_batch"]
    if last is not None:
        rows = sum(last["rows_in"].values())
        terminal.print(
            f"last micro-batch {last['batch_id']:,}: {amount(rows)} rows in "
            f"{milliseconds(last['seconds']['all'])} ms, {size(last['bytes_written'])} written"
        )
        if last.get("heap_bytes") or last.get("mapped_bytes"):
            terminal.print(
                f"state: heap {size(last['heap_bytes'])}, mapped {size(last['mapped_bytes'])}"
            )
    terminal.print()
    if not contents["versions"]:
        terminal.print("no version so far", style="warning")
    else:
        terminal.print(_versions(contents["versions"]))
    for version in contents["versions"]:
        if version["damage"] is not None:
            terminal.print(f"[error]version {version['batch']:,}:[/]", end=" ")
            terminal.print(version["damage"], markup=False, soft_wrap=True)
    if contents["arrangements"]:
        terminal.print()
        terminal.print(_state_table(contents["arrangements"], contents["bytes"]))
    terminal.print()
    _show_dead_letters(contents["dead_letters"], terminal)


def _versions(versions: list[dict[str, Any]]) -> Table:
    table = plain_table("Versions")
    table.add_column("batch", justify="right", style="name")
    table.add_column("written")
    table.add_column("files", justify="right")
    table.add_column("size", justify="right")
    table.add_column("")
    for version in reversed(versions):
        is_intact = version["damage"] is None
        status = Text("intact", style="good") if is_intact else Text("damaged", style="error")
        if "written" not in version:
            table.add_row(amount(version["batch"]), "", "", "", status)
            continue
        written = datetime.fromtimestamp(version["written"]).strftime("%Y-%m-%d %H:%M:%S")
        table.add_row(
            amount(version["batch"]),
            written,
            amount(version["files"]),
            size(version["bytes"]),
            status,
        )
    return table


def _state_table(arrangements: list[dict[str, Any]], sizes: dict[str, int]) -> Table:
    """Return a table of the arrangements and dictionaries, the largest first."""
    table = plain_table("State of the newest intact version")
    table.add_column("state", overflow="fold")
    table.add_column("for views", style="note", overflow="fold")
    for name in ("rows", "segments", "size"):
        table.add_column(name, justify="right")
    table.add_column("", min_width=20)
    max_bytes = max(entry["bytes"] for entry in arrangements) or 1
    for entry in sorted(arrangements, key=lambda entry: -entry["bytes"]):
        table.add_row(
            _describe_entry(entry),
            Text(", ".join(entry["views"])),
            amount(entry["rows"]),
            amount(entry["segments"]),
            size(entry["bytes"]),
            Text("█" * round(20 * entry["bytes"] / max_bytes), style="name"),
        )
    table.add_section()
    folders = ", ".join(
        f"{name}/ {size(count)}" for name, count in sizes.items() if name != "state"
    )
    on_disk = Text(f"on disk: {folders}", style="note")
    table.add_row("all", "", "", "", size(sizes["state"]), on_disk)
    return table


def _describe_entry(entry: dict[str, Any]) -> Text:
    """Describe an arrangement by its name, as `explain` shows it, and the work of its operator."""
    order = entry["order"]
    name = entry["name"] if order is None else arrangement_name(entry["name"], order)
    kind = "dictionary" if order is None else ""
    details = " of ".join(filter(None, (kind, entry["label"])))
    return Text.assemble((name, "name"), (f" {details}" if details else "", "note"))


def _show_dead_letters(dead_letters: dict[str, Any], terminal: Console) -> None:
    if not dead_letters["total"] and not dead_letters["reasons"]:
        terminal.print("no dead letters", style="note")
        return
    table = plain_table(f"Dead letters: {amount(dead_letters['total'])}")
    table.add_column("rows", justify="right")
    table.add_column("relation", style="name")
    table.add_column("reason", overflow="fold")
    for entry in dead_letters["reasons"]:
        table.add_row(amount(entry["rows"]), entry["relation"] or "–", Text(entry["reason"]))
    terminal.print(table)
    if dead_letters["newest"]:
        terminal.print()
        newest = plain_table("The newest")
        newest.add_column("batch", justify="right", style="note")
        newest.add_column("row", overflow="fold", max_width=100)
        for letter in dead_letters["newest"]:
            newest.add_row(amount(letter["batch_id"] or 0), Text(letter["row"] or ""))
        terminal.print(newest)
