"""The sub-command ``plan-change``: what a change of the views does to a state directory.

The *program* of a state directory is its views, inputs and options (`circuits.circuit_spec`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import typer
from rich.table import Table
from rich.text import Text

from circuits import Circuit, InputOptions
from circuits.circuit_spec import CircuitSpec
from circuits.runtime.state_names import StateNames
from circuits.state.program_change import ProgramChange
from circuits.state.sliced_backfill import find_slice_obstacle
from streaming.cli.arguments.functions import load_functions
from streaming.cli.arguments.query_text import query_file
from streaming.cli.arguments.source import SourceArgument, parse_sources
from streaming.cli.arguments.views import (
    DUCKDB,
    compile_query,
    declarations_of,
    with_declarations,
    without_weight,
)
from streaming.cli.command import FAILED
from streaming.cli.terminal.display import amount, console, plain_table, print_json, size
from streaming.distributed.program_change import plan_cell_change
from streaming.errors import EventsError, StateError
from streaming.state import program_change
from streaming.state.manifest import Manifest
from streaming.state.open_files import open_files
from streaming.state.program_change import ChangeOptions

__all__ = ["plan_change"]

ACTION_STYLES = {"reuse": "good", "backfill": "name", "drop": "warning"}


def plan_change(
    *,
    state_dir: str,
    query: str,
    source: list[str] | None,
    dialect: str | None,
    functions: str | None,
    json: bool,
) -> None:
    """Show what a state keeps, computes and drops if a job starts with other views.

    Raises:
        EventsError: The first argument is a file of SQL or Datalog.
        StateError: The directory has no version.
        typer.Exit: A job would need another option for the change: ``--allow-drop`` for what it
            loses, ``--backfill`` for rows that new views need and the state does not keep.
    """
    path = query_file(state_dir)
    if path is not None and path.is_file():
        language = "Datalog" if path.suffix.lower() == ".dl" else "SQL"
        raise EventsError(
            f"{state_dir} is a file of {language}, not a state directory: write the state "
            "directory first, then the views, as in dbsp-wcoj plan-change state/ views.sql"
        )
    files = open_files(state_dir)
    manifest = program_change.newest_version(files)
    if manifest is None:
        raise StateError(f"state directory {state_dir} has no version: any views can start with it")
    old = program_change.read_program(
        files, manifest, load_functions(functions), accepts_other_plan=True
    )
    new = _compile(query, old, parse_sources(source) if source else {}, dialect, functions)
    change = plan_cell_change(files, manifest, new, ChangeOptions())
    contents = _describe(change, manifest)
    if json:
        print_json(contents)
    else:
        _show(contents)
    if change.losses or change.missing:
        raise typer.Exit(FAILED)


def _compile(
    query: str,
    old: CircuitSpec,
    sources: Mapping[str, SourceArgument],
    dialect: str | None,
    functions: str | None,
) -> Circuit:
    """Compile the new views.

    An input that the query declares or ``sources`` name has the options that are given there, and
    the columns, if they are given there. Everything else of the inputs is as in the old program.
    """
    if dialect is None:
        dialect = DUCKDB if old.source is None else old.source.dialect
    declarations = declarations_of(query, dialect)
    declared = {name.casefold() for name in declarations.inputs}
    schemas: dict[str, pa.Schema] = {
        name: schema for name, schema in old.schemas.items() if name.casefold() not in declared
    }
    options: dict[str, InputOptions] = {
        name: value for name, value in old.input_options.items() if name.casefold() not in declared
    }
    for name, argument in with_declarations(sources, declarations).items():
        schema = argument.schema()
        # Two inputs must not differ only in case: the source replaces the input of the old program.
        same = next(
            (old_name for old_name in schemas if old_name.casefold() == name.casefold()), ""
        )
        old_schema = schemas.pop(same, None)
        options.pop(same, None)
        if schema is None and old_schema is None:
            raise EventsError(f"--source {name}: add its columns, as in schema=src long, dst long")
        schemas[name] = old_schema if schema is None else without_weight(schema)
        given = argument.input_options()
        if given is not None:
            options[name] = given

    def compile_with(materialize: list[str]) -> Circuit:
        return compile_query(
            query,
            schemas,
            dialect=dialect or DUCKDB,
            functions=functions,
            formula=str(old.options.formula),
            materialize=materialize,
            input_options=options,
        )

    # Only the compiled circuit shows which of the old materialized relations still exist.
    circuit = compile_with([])
    names = [name for name in old.materialized if name in {*circuit.inputs, *circuit.plans}]
    return compile_with(names) if names else circuit


def _describe(change: ProgramChange, manifest: Manifest) -> dict[str, Any]:
    """Return the plan as JSON values."""
    old_names, new_names = StateNames(change.old.graph), StateNames(change.new.graph)
    traces = []
    for trace in change.traces:
        names = old_names if trace.action == "drop" else new_names
        part = names.part(trace.name)
        traces.append(
            {
                "name": names.name(trace.name),
                "action": trace.action,
                "label": "" if part is None else part.description,
                "views": [] if part is None else list(part.views),
                "rows": trace.rows,
                "bytes": trace.bytes,
            }
        )
    return {
        "batch": manifest.batch_id,
        "views": {view.view: view.kind for view in change.views}
        | dict.fromkeys(change.removed_views, "removed"),
        "state": traces,
        "rows_to_read": change.rows_to_read,
        "seconds": round(change.estimated_seconds, 3),
        "slices": _describe_slices(change, manifest),
        "losses": change.losses,
        "missing": [
            f"{reason}: give them once with run --backfill {name}=FILE"
            for name, reason in change.missing.items()
        ],
    }


def _describe_slices(change: ProgramChange, manifest: Manifest) -> str:
    """Return how many micro-batches compute the new views; empty if there are none."""
    if not any(view.kind == "new" for view in change.views):
        return ""
    at_once = "the first micro-batch of a job that starts with these views computes them at once"
    obstacle = find_slice_obstacle(change)
    if obstacle is not None:
        return f"{at_once}; slices are not possible: {obstacle}"
    condition = ""
    if manifest.cells is not None:
        condition = " if the driver keeps the rows of the inputs that they read (keep=all)"
    return (
        f"{at_once}; with --slice-seconds, or by add_view of a running sink, they can be computed "
        f"in slices{condition}, and published in slices, except to an output in mode complete, "
        "which receives all rows with each micro-batch, and to a function without a parameter "
        "is_whole, which receives them at once"
    )


def _show(contents: Mapping[str, Any]) -> None:
    terminal = console()
    table = plain_table("Views")
    table.add_column("view", style="name", overflow="fold")
    table.add_column("change")
    for view, kind in contents["views"].items():
        table.add_row(view, kind)
    terminal.print(table)
    terminal.print()
    terminal.print(_state_table(contents["state"]))
    terminal.print()
    terminal.print(
        f"after micro-batch {contents['batch']:,}: {amount(contents['rows_to_read'])} rows of the "
        f"state to read, about {contents['seconds']:,.1f} s; nothing was changed"
    )
    if contents["slices"]:
        terminal.print(f"new views: {contents['slices']}", markup=False, soft_wrap=True)
    for loss in contents["losses"]:
        terminal.print("[warning]drops[/] ", end="")
        terminal.print(loss, markup=False, soft_wrap=True)
    if contents["losses"]:
        terminal.print("run needs --allow-drop for this", style="note")
    for missing in contents["missing"]:
        terminal.print("[error]missing[/] ", end="")
        terminal.print(missing, markup=False, soft_wrap=True)


def _state_table(traces: list[dict[str, Any]]) -> Table:
    table = plain_table("State")
    table.add_column("action")
    table.add_column("state", overflow="fold")
    table.add_column("for views", style="note", overflow="fold")
    table.add_column("rows", justify="right")
    table.add_column("size", justify="right")
    for trace in traces:
        table.add_row(
            Text(trace["action"], style=ACTION_STYLES[trace["action"]]),
            Text.assemble((trace["name"], "name"), (f" {trace['label']}", "note")),
            Text(", ".join(trace["views"])),
            "" if trace["rows"] is None else amount(trace["rows"]),
            "" if trace["bytes"] is None else size(trace["bytes"]),
        )
    return table
