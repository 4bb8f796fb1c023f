"""The sub-command ``explain``: print the plan of views; ``--analyze`` first runs a step."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
import typer
from rich.text import Text

from circuits import Circuit, Schema
from circuits.sql import find_obstacles
from streaming.cli.arguments.functions import load_functions
from streaming.cli.arguments.query_text import read_query
from streaming.cli.arguments.source import SourceArgument, parse_sources, read_rows
from streaming.cli.arguments.views import (
    compile_query,
    declarations_of,
    dialect_of,
    with_declarations,
    without_weight,
)
from streaming.cli.command import FAILED
from streaming.cli.terminal.display import console, plural, print_json, show_compilation
from streaming.errors import EventsError
from streaming.ui.drawing import Drawing

__all__ = ["explain"]

FORMATS: Final = ("text", "mermaid")
#: The counts and times in the drawing of a plan that has not run: they are all zero.
_UNMEASURED: Final = re.compile(
    r"  \[rows 0, 0\.00 ms\]|\n +ran 0 times: [^\n]*|\nAGM bound 0 rows[^\n]*"
    r"|\narrangements(?=\n)|  no runs; 0 bytes"
)


def explain(
    *,
    query: str,
    source: list[str] | None,
    analyze: bool,
    check: bool,
    format: str,
    dialect: str,
    functions: str | None,
    formula: str,
    json: bool,
) -> None:
    """Show the plan that runs: operators, joins with their terms, arrangements."""
    if format not in FORMATS:
        raise EventsError(f"--format {format!r} must be one of {', '.join(FORMATS)}")
    sources = parse_sources(source) if source else {}
    if check:
        _show_obstacles(query, sources, dialect, functions, json=json)
        return
    declarations = declarations_of(query, dialect)
    for notice in declarations.notices:
        console(stderr=True).print(f"note: {notice}", style="note", markup=False, soft_wrap=True)
    sources = with_declarations(sources, declarations)
    schemas = {name: _schema(argument) for name, argument in sources.items()}
    input_options = {name: argument.input_options() for name, argument in sources.items()}
    circuit = compile_query(
        query,
        schemas,
        dialect=dialect,
        functions=functions,
        formula=formula,
        input_options={
            name: options for name, options in input_options.items() if options is not None
        },
    )
    if analyze:
        with show_compilation(console(stderr=True)):  # the kernels that this step needs
            tables = {name: read_rows(argument) for name, argument in sources.items()}
            circuit.step(tables, now=datetime.now(UTC))
    if json:
        print_json(_to_json(circuit))
    elif format == "mermaid":
        console().file.write(circuit.explain("mermaid") + "\n")
    else:
        text = circuit.explain()
        console().print(_style(text if analyze else _UNMEASURED.sub("", text)), soft_wrap=True)
        if dialect_of(circuit) is not None:
            console().print(f"\nSQL dialect: {dialect}", style="note")


def _show_obstacles(
    query: str,
    sources: Mapping[str, SourceArgument],
    dialect: str,
    functions: str | None,
    *,
    json: bool,
) -> None:
    """Print every obstacle of a text in SQL; the exit status is 1 if there is one."""
    parsed = read_query(query)
    if not parsed.is_sql:
        raise EventsError("--check reads SQL: name a file .sql, or give SQL")
    relations = {
        name: Schema.of(name, _schema(argument)).fields for name, argument in sources.items()
    }
    obstacles = find_obstacles(
        parsed.text,
        relations,
        name=parsed.name,
        dialect=dialect,
        functions=load_functions(functions),
    )
    if json:
        print_json({"dialect": dialect, "obstacles": [asdict(obstacle) for obstacle in obstacles]})
    else:
        for obstacle in obstacles:
            place = f"line {obstacle.line}, column {obstacle.column}, {obstacle.statement}:"
            text = Text(f"{place} {obstacle.message}\n{obstacle.excerpt}\n")
            text.stylize("name", 0, len(place))
            console().print(text, soft_wrap=True)
        places = plural(len(obstacles), "obstacle") if obstacles else "no obstacle"
        console().print(
            f"{places} in SQL dialect {dialect}", style="error" if obstacles else "good"
        )
    if obstacles:
        raise typer.Exit(FAILED)


def _schema(source: SourceArgument) -> pa.Schema:
    schema = source.schema()
    if schema is None:
        raise EventsError(
            f"--source {source.name}: only Spark knows its columns: add schema=src long, dst long"
        )
    return without_weight(schema)


def _to_json(circuit: Circuit) -> dict[str, Any]:
    drawing = Drawing.of(circuit)
    boxes = drawing.picture["boxes"]
    totals = drawing.operator_totals(circuit)
    # The boxes of the views follow those of the operators, and have no totals.
    operators = [
        {"name": box["name"], "kind": box["kind"], "what": box["label"], "rows": rows, "ms": ms}
        for box, (rows, ms) in zip(boxes, totals, strict=False)
    ]
    lines = [(line["from"], line["to"]) for line in drawing.picture["lines"]]
    for number, operator in enumerate(operators):
        operator["reads"] = [boxes[start]["name"] for start, end in lines if end == number]
    views = {box["name"]: boxes[box["operator"]]["name"] for box in boxes if box["kind"] == "view"}
    return {
        "dialect": dialect_of(circuit),
        "operators": operators,
        "views": views,
        "text": circuit.explain(),
    }


def _style(text: str) -> Text:
    styled = Text(text)
    # A line of one word is the name of a view; #1 is the number of an operator.
    styled.highlight_regex(r"(?m)^(?![# ]|formula|AGM|arrangements|└|├|│)\S+$", "name")
    styled.highlight_regex(r"[└├│]─*", "note")
    styled.highlight_regex(r"\[rows [^\]]*\]|\(drawn above\)", "note")
    styled.highlight_regex(r"(?m)^#\S+:|(?<=─ )#\d+'*|(?<=─ )input", "total")
    styled.highlight_regex(r"(?m)^ +(bind|read|ran)\b.*$", "note")
    styled.highlight_regex(r"\bdelta\b|\bd\d+\b", "good")
    return styled
