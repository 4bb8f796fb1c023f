"""The words of all sub-commands: arguments, options, one sentence each. The work is elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from streaming.cli.arguments.options import (
    FORMULAS,
    PAGE_PORT,
    Debug,
    FormulaName,
    Host,
    Json,
    MaxSeconds,
    MaxStepBytes,
    MaxStepRows,
    OldToken,
    PagePort,
    PlainSources,
    QueryText,
    Rows,
    Seed,
    Skew,
    Threads,
    TokenFile,
    Ui,
)
from streaming.cli.command import implemented_in

__all__ = ["bench", "explain", "inspect", "profile", "replay", "rescale", "run"]

COLLAPSED: Final = "collapsed"
TRIANGLES: Final = "triangles(a, b, c) :- e(a, b), e(b, c), e(a, c)."


@implemented_in("streaming.cli.commands.run")
def run(
    context: typer.Context,
    query: Annotated[
        str,
        typer.Argument(
            metavar="QUERY",
            help="SQL, Datalog rules, a file .sql or .dl with either, or a job file .toml, which "
            "also names inputs, outputs and options. Options on the command line win over the "
            "job file.",
            show_default=False,
        ),
    ],
    source: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=PATH[,KEY=VALUE...]",
            help="A relation: files, or any source of Spark by its options (format=kafka,...); "
            "also schema=, select=, feed=, keys=, sequence=, strict=, retain=, on_expiry=. One for "
            "each relation.",
            show_default=False,
        ),
    ] = None,
    sink: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[VIEW=]KIND[:PLACE]",
            help="Where changes go: console, parquet:DIR, delta:DIR, sqlite:FILE#TABLE, "
            "postgres:DSN#TABLE; then ,keys=COLUMN for a row per key, or ,mode=complete.",
            show_default=False,
        ),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Keeps state and Spark's checkpoint, so that the next run goes on from there.",
            show_default=False,
        ),
    ] = None,
    state_mode: Annotated[
        str,
        typer.Option(
            metavar="OCTAL",
            help="Permission bits of the folder under --state when it is created, as 750.",
        ),
    ] = "700",
    once: Annotated[bool, typer.Option("--once", help="Read what is there, then end.")] = False,
    every: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="How often a micro-batch begins: '5 seconds'.", show_default=False
        ),
    ] = None,
    bad_rows: Annotated[
        str, typer.Option(metavar="POLICY", help="fail, or dead_letter: aside, under --state.")
    ] = "fail",
    cells: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Run the views as so many cells on Spark's executors.",
            show_default=False,
        ),
    ] = None,
    formula: FormulaName = COLLAPSED,
    threads: Threads = 1,
    max_step_rows: MaxStepRows = None,
    max_step_bytes: MaxStepBytes = None,
    max_seconds: MaxSeconds = None,
    memory: Annotated[
        str, typer.Option(metavar="SIZE", help="Of Spark; the views' state is not in there.")
    ] = "2g",
    ui: Ui = False,
    ui_port: PagePort = PAGE_PORT,
    ui_host: Host = "127.0.0.1",
    ui_token_file: TokenFile = None,
    ui_token: OldToken = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Only check query, sources, sinks, databases, state and ports; start nothing.",
        ),
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Also phases, offsets, and what Spark logs.")
    ] = False,
    log_format: Annotated[
        str, typer.Option(metavar="NAME", help="Of the error output: text, or json for machines.")
    ] = "text",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Keep views of a query up to date while its sources change."""


@implemented_in("streaming.cli.commands.replay")
def replay(
    query: QueryText,
    source: Annotated[
        list[str],
        typer.Option(
            metavar="[NAME=]PATH[,KEY=VALUE...]",
            help="The changes: a Parquet, CSV or JSON file, perhaps with weight (or op: 1, -1, "
            "insert, delete, ...) and relation. Without NAME= the relation is that column's, or "
            "named after the file. Also schema=, keys=, strict=, retain=.",
            show_default=False,
        ),
    ],
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,...",
            help="Of the relation, where the file has others.",
            show_default=False,
        ),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Equal values are one transaction, which is never cut.",
            show_default=False,
        ),
    ] = None,
    batch: Annotated[int, typer.Option(metavar="N", min=1, help="Rows of a step, about.")] = 1_000,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="New folder for the views at the end, a Parquet file of each.",
            show_default=False,
        ),
    ] = None,
    pause: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, help="Wait after a step, to look on.")
    ] = 0.0,
    formula: FormulaName = COLLAPSED,
    threads: Threads = 1,
    max_step_rows: MaxStepRows = None,
    max_step_bytes: MaxStepBytes = None,
    max_seconds: MaxSeconds = None,
    ui: Ui = False,
    ui_port: PagePort = PAGE_PORT,
    ui_host: Host = "127.0.0.1",
    ui_token_file: TokenFile = None,
    ui_token: OldToken = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Replay a file of changes through views, step by step."""


@implemented_in("streaming.cli.commands.explain")
def explain(
    query: QueryText,
    source: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=PATH | NAME=schema=...",
            help="A relation: files, or its columns, 'e=schema=src long, dst long'.",
            show_default=False,
        ),
    ],
    analyze: Annotated[
        bool,
        typer.Option("--analyze", help="Run it over all rows of the files, and show what it did."),
    ] = False,
    format: Annotated[str, typer.Option(metavar="NAME", help="text or mermaid.")] = "text",
    formula: FormulaName = COLLAPSED,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Show the plan that runs: operators, joins with their terms, arrangements."""


@implemented_in("streaming.cli.commands.inspect")
def inspect(
    state_dir: Annotated[
        Path, typer.Argument(metavar="DIR", help="A state directory.", show_default=False)
    ],
    check: Annotated[
        bool, typer.Option("--check", help="Read every file and compare its checksum.")
    ] = False,
    letters: Annotated[
        int, typer.Option(metavar="N", min=0, help="How many dead letters to show.")
    ] = 5,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Show versions, arrangements, sizes and dead letters of a state directory.

    Nothing is changed or locked. Exit status 1: the newest version is damaged.
    """


@implemented_in("streaming.cli.commands.rescale")
def rescale(
    state_dir: Annotated[
        str,
        typer.Argument(
            metavar="DIR",
            help="The state directory: a path, or a URI of pyarrow.",
            show_default=False,
        ),
    ],
    cells: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Distribute it over so many cells.", show_default=False
        ),
    ] = None,
    embedded: Annotated[
        bool, typer.Option("--embedded", help="Bring it into one process.")
    ] = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Move the state of a query that is stopped to another number of cells, or to one process."""


@implemented_in("streaming.cli.commands.profile")
def profile(
    query: QueryText,
    source: PlainSources = None,
    rows: Rows = 100_000,
    skew: Skew = 0.5,
    batch: Annotated[int, typer.Option(metavar="N", min=1, help="Rows of a step.")] = 1_000,
    steps: Annotated[
        int,
        typer.Option(
            metavar="N", min=1, help="Steps that insert; as many delete the same rows again."
        ),
    ] = 20,
    formula: FormulaName = COLLAPSED,
    threads: Threads = 1,
    write: Annotated[
        bool, typer.Option("--write", help="Write each step to files as the durable sink does.")
    ] = False,
    state_dir: Annotated[
        Path | None,
        typer.Option(
            help="Where; a new directory. A temporary one when not given.",
            metavar="DIR",
            show_default=False,
        ),
    ] = None,
    seed: Seed = 0,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Run a query's steps and print where their time goes, by phase, term and level."""


@implemented_in("streaming.cli.commands.bench")
def bench(
    query: QueryText = TRIANGLES,
    source: PlainSources = None,
    rows: Rows = 100_000,
    skew: Skew = 0.5,
    batch: Annotated[
        list[int] | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Rows of a step; repeatable. 1, 100 and 10000 when not given.",
            show_default=False,
        ),
    ] = None,
    formula: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME|FILE",
            help=f"One of {', '.join(FORMULAS)}, or a file of terms; repeatable. All when not "
            "given.",
            show_default=False,
        ),
    ] = None,
    steps: Annotated[
        int, typer.Option(metavar="N", min=1, help="Steps that insert; as many delete.")
    ] = 20,
    precision: Annotated[
        float,
        typer.Option(
            metavar="PERCENT",
            min=0.1,
            max=100,
            help="Repeat the steps until the 95 % interval of their median is within so many "
            "percent of it.",
        ),
    ] = 10,
    max_repetitions: Annotated[
        int, typer.Option(metavar="N", min=1, help="Repeat the steps at most so often.")
    ] = 50,
    max_seconds: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            min=0,
            help="For all repetitions; each formula and size has an equal part of them, and is "
            "measured at least once.",
        ),
    ] = 60,
    seed: Seed = 0,
    export: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Write query, seed, versions, machine and the time of every step: FILE.json or "
            "FILE.csv; repeatable.",
            show_default=False,
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Draw the times: FILE.png or FILE.svg. Needs the extra demo.",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Compare delta formulas and sizes of steps; triangles of a generated graph by default."""
