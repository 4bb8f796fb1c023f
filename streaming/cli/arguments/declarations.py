"""The arguments and options of all sub-commands, with their help; the work is in ``commands``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from streaming.cli.arguments.options import (
    FORMULAS,
    LOCAL_HOST,
    PAGE_PORT,
    Debug,
    Dialect,
    FormulaName,
    Functions,
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
    StateFolder,
    StepCount,
    StepRows,
    Threads,
    TokenFile,
    Ui,
    optional,
)
from streaming.cli.command import implemented_in

__all__ = [
    "bench",
    "clone",
    "compact",
    "estimate",
    "explain",
    "inspect",
    "pipeline",
    "plan_change",
    "profile",
    "replay",
    "rescale",
    "run",
    "shell",
]

COLLAPSED: Final = "collapsed"
DUCKDB: Final = "duckdb"
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
        optional(
            metavar="NAME=PATH[,KEY=VALUE...]",
            help="A relation: files, or any source of Spark by its options (format=kafka,...). "
            "Also schema=, select=, feed=, keys=, sequence=, strict=, retain=, on_expiry=, "
            "lateness=, keep=. Repeat the option for each relation.",
        ),
    ] = None,
    sink: Annotated[
        list[str] | None,
        optional(
            metavar="[VIEW=]KIND[:LOCATION]",
            help="The target of the changes: console, parquet:DIR, delta:DIR, "
            "iceberg:NAMESPACE.TABLE, sqlite:FILE#TABLE, duckdb:FILE#TABLE, postgres:DSN#TABLE. "
            "Append ,keys=COLUMN for one row per key, ,mode=append for rows without weights, or "
            ",mode=complete.",
        ),
    ] = None,
    state: Annotated[
        str | None,
        optional(
            metavar="DIR",
            help="The folder of the state and Spark's checkpoint; the next run continues from it. "
            "For a state on S3: a URI such as s3://bucket/folder, and --checkpoint.",
        ),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        optional(
            metavar="DIR",
            help="The folder of Spark's checkpoint on a local disk. By default it is in the folder "
            "of --state.",
        ),
    ] = None,
    state_mode: Annotated[
        str,
        typer.Option(
            metavar="OCTAL",
            help="Permission bits of the state folder when it is created, as in 750.",
        ),
    ] = "700",
    once: Annotated[bool, typer.Option("--once", help="Read the existing rows, then end.")] = False,
    every: Annotated[
        str | None,
        optional(metavar="TIME", help="The time between two micro-batches, as in '5 seconds'."),
    ] = None,
    bad_rows: Annotated[
        str,
        typer.Option(
            metavar="POLICY",
            help="fail ends the run at a bad row; dead_letter writes it to a table of rejected "
            "rows in the folder of --state.",
        ),
    ] = "fail",
    dead_letter_days: Annotated[
        float,
        typer.Option(
            metavar="DAYS", min=0, help="Remove rejected rows after this many days; 0 for never."
        ),
    ] = 30.0,
    dead_letter_size: Annotated[
        str,
        typer.Option(
            metavar="SIZE",
            help="Remove the oldest rejected rows when all take more than this, as in 500M; 0 for "
            "no limit.",
        ),
    ] = "1G",
    memory_limit: Annotated[
        str | None,
        optional(
            metavar="SIZE",
            help="Keep at most this much of the state in memory, as in 4G; the rest is read from "
            "the files in the folder of --state. By default, all of it is in memory.",
        ),
    ] = None,
    cells: Annotated[
        int | None,
        optional(
            metavar="N", min=1, help="Run the views in this number of cells on Spark's executors."
        ),
    ] = None,
    dialect: Dialect = DUCKDB,
    functions: Functions = None,
    formula: FormulaName = COLLAPSED,
    threads: Threads = None,
    max_step_rows: MaxStepRows = None,
    max_step_bytes: MaxStepBytes = None,
    max_seconds: MaxSeconds = None,
    memory: Annotated[
        str,
        typer.Option(
            metavar="SIZE", help="Memory of Spark; it does not include the state of the views."
        ),
    ] = "2g",
    conf: Annotated[
        list[str] | None,
        optional(
            metavar="KEY=VALUE",
            help="A setting of Spark, as for spark-submit: spark.jars.packages=... adds the "
            "package of a source. Repeat the option for each setting.",
        ),
    ] = None,
    ui: Ui = False,
    ui_port: PagePort = PAGE_PORT,
    ui_host: Host = LOCAL_HOST,
    ui_token_file: TokenFile = None,
    ui_token: OldToken = None,
    metrics_port: Annotated[
        int | None,
        optional(
            metavar="PORT",
            min=0,
            max=65535,
            help="Serve /metrics for Prometheus, /healthz and /readyz on this port; 0 for any.",
        ),
    ] = None,
    metrics_host: Annotated[
        str,
        typer.Option(
            metavar="HOST",
            help="Address of --metrics-port; every machine that reaches it can read the metrics.",
        ),
    ] = LOCAL_HOST,
    max_commit_age: Annotated[
        float | None,
        optional(
            metavar="SECONDS",
            min=0,
            help="/healthz fails if the last commit is older; for a stream that always has rows.",
        ),
    ] = None,
    stop_timeout: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            min=0,
            help="After SIGTERM or Ctrl-C, wait so long for the end of the micro-batch.",
        ),
    ] = 30.0,
    backfill: Annotated[
        list[str] | None,
        optional(
            metavar="NAME=PATH[,KEY=VALUE...]",
            help="If the views have changed: files with all rows that an input has so far, which "
            "new views need and the state does not keep; plan-change lists them.",
        ),
    ] = None,
    backfill_batch_id: Annotated[
        int | None,
        optional(
            metavar="NUMBER",
            min=0,
            help="The last micro-batch whose rows --backfill has; needed if the views are the "
            "same, and a target has lost their rows or this version computes them by another plan.",
        ),
    ] = None,
    allow_drop: Annotated[
        bool,
        typer.Option(
            "--allow-drop",
            help="If the views have changed, drop what no later change could compute again; "
            "plan-change lists it.",
        ),
    ] = False,
    slice_seconds: Annotated[
        float | None,
        optional(
            metavar="SECONDS",
            help="If there are new views, compute them in slices, so long after each micro-batch, "
            "instead of all at once before the first one.",
        ),
    ] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Check query, sources, sinks, databases, state and ports; start nothing.",
        ),
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Also log phases, offsets, and Spark's own log.")
    ] = False,
    log_format: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Format of the error output: text, or json for machines."
        ),
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
        optional(
            metavar="[NAME=]PATH[,KEY=VALUE...]",
            help="The changes: a Parquet, CSV or JSON file. A column weight, or op (1, -1, insert, "
            "delete, ...), tells insertions from deletions. Without NAME=, the column relation "
            "names the relation of each row; without that column, the file name does. Also "
            "schema=, keys=, strict=, retain=, lateness=.",
        ),
    ],
    columns: Annotated[
        str | None,
        optional(metavar="NAME,...", help="The columns of the relation, if the file has more."),
    ] = None,
    by: Annotated[
        str | None,
        optional(
            metavar="COLUMN",
            help="Rows with equal values are one transaction, which is never split.",
        ),
    ] = None,
    batch: StepRows = 1_000,
    output: Annotated[
        Path | None,
        optional(metavar="DIR", help="A new folder for the final views, one Parquet file each."),
    ] = None,
    pause: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, help="Wait after each step, to watch it.")
    ] = 0.0,
    dialect: Dialect = DUCKDB,
    functions: Functions = None,
    formula: FormulaName = COLLAPSED,
    threads: Threads = None,
    max_step_rows: MaxStepRows = None,
    max_step_bytes: MaxStepBytes = None,
    max_seconds: MaxSeconds = None,
    ui: Ui = False,
    ui_port: PagePort = PAGE_PORT,
    ui_host: Host = LOCAL_HOST,
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
        list[str] | None,
        optional(
            metavar="NAME=PATH | NAME=schema=...",
            help="A relation: files, or its columns, as in 'e=schema=src long, dst long'; not "
            "needed if the query declares it by CREATE TABLE.",
        ),
    ] = None,
    analyze: Annotated[
        bool,
        typer.Option(
            "--analyze", help="Run the plan on all rows of the files, and show rows and times."
        ),
    ] = False,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="List everything in the SQL that does not compile; exit status 1."
        ),
    ] = False,
    format: Annotated[str, typer.Option(metavar="NAME", help="text or mermaid.")] = "text",
    dialect: Dialect = DUCKDB,
    functions: Functions = None,
    formula: FormulaName = COLLAPSED,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Show the plan that runs: operators, joins with their terms, arrangements."""


@implemented_in("streaming.cli.commands.shell")
def shell(
    views: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE.sql]",
            help="Tables and views to begin with; without it, those of the state, or none.",
            show_default=False,
        ),
    ] = None,
    state: Annotated[
        str | None,
        optional(
            metavar="DIR",
            help="Keep the rows in this directory, or continue there; by default in memory.",
        ),
    ] = None,
    dialect: Dialect = DUCKDB,
    functions: Functions = None,
    debug: Debug = False,
) -> None:
    """Create tables and views, change rows, and see what changes, at a prompt or by a script."""


@implemented_in("streaming.cli.commands.pipeline")
def pipeline(
    action: Annotated[
        str,
        typer.Argument(
            metavar="refresh|run|explain|check",
            help="refresh: bring the views up to date once. run: again and again. explain: how "
            "each view is refreshed. check: list everything that is wrong.",
            show_default=False,
        ),
    ],
    file: Annotated[
        Path,
        typer.Argument(
            metavar="PIPELINE.toml",
            help="The files of SQL, the source tables, the targets and the state; or the "
            "specification of a declarative pipeline of Spark, spark-pipeline.yml.",
            show_default=False,
        ),
    ],
    every: Annotated[
        str | None,
        optional(metavar="TIME", help="The pause between two refreshes of run, as '5 seconds'."),
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="With explain: show the whole plan as well.")
    ] = False,
    allow_drop: Annotated[
        bool, typer.Option("--allow-drop", help="Drop views that the SQL does not have any more.")
    ] = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Refresh views over tables from files of SQL: read and write only what has changed."""


@implemented_in("streaming.cli.commands.estimate")
def estimate(
    query: QueryText,
    source: Annotated[
        list[str] | None,
        optional(
            metavar="NAME=PATH | NAME=schema=...",
            help="A relation: a file with a sample of its rows; or its columns, as in "
            "'e=schema=src long, dst long', for which rows are generated. Not needed if the query "
            "declares it by CREATE TABLE. Also keys=.",
        ),
    ] = None,
    rows: Annotated[
        list[str] | None,
        optional(
            metavar="NAME=NUMBER",
            help="The planned rows of a relation, as in orders=1e8; by default those of its file. "
            "Repeat the option for each relation.",
        ),
    ] = None,
    distinct: Annotated[
        list[str] | None,
        optional(
            metavar="NAME.COLUMN=NUMBER",
            help="The number of distinct values of a generated column, as in orders.city=5000; by "
            "default as many as rows. Repeatable.",
        ),
    ] = None,
    materialize: Annotated[
        list[str] | None,
        optional(metavar="NAME", help="A view or relation that is kept whole; repeatable."),
    ] = None,
    batch: StepRows = 1_000,
    sample: Annotated[
        int, typer.Option(metavar="N", min=1000, help="Rows of the largest relation in a sample.")
    ] = 200_000,
    dialect: Dialect = DUCKDB,
    functions: Functions = None,
    formula: FormulaName = COLLAPSED,
    seed: Seed = 0,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Estimate the memory and the step time of views over more rows, from samples that it runs."""


@implemented_in("streaming.cli.commands.inspect")
def inspect(
    state_dir: StateFolder,
    check: Annotated[
        bool, typer.Option("--check", help="Read every file and compare its checksum.")
    ] = False,
    letters: Annotated[
        int, typer.Option(metavar="N", min=0, help="The number of dead letters to show.")
    ] = 5,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Show versions, arrangements, sizes and dead letters of a state directory.

    The command changes and locks nothing. Exit status 1: the newest version is damaged.
    """


@implemented_in("streaming.cli.commands.rescale")
def rescale(
    state_dir: StateFolder,
    cells: Annotated[
        int | None,
        optional(metavar="N", min=1, help="Distribute the state over this number of cells."),
    ] = None,
    embedded: Annotated[
        bool, typer.Option("--embedded", help="Embed the state in one process.")
    ] = False,
    functions: Functions = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Convert the state of a stopped query to another number of cells, or to one process."""


@implemented_in("streaming.cli.commands.compact")
def compact(
    state_dir: StateFolder,
    functions: Functions = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Remove unused values and earlier versions from the state of a stopped query.

    The command merges all files of an arrangement or dictionary, and shows the sizes before and
    after. The query continues with its next micro-batch.
    """


@implemented_in("streaming.cli.commands.plan_change")
def plan_change(
    state_dir: StateFolder,
    query: QueryText,
    source: Annotated[
        list[str] | None,
        optional(
            metavar="NAME=SETTING[,SETTING...]",
            help="An input that is new or has changed: schema=, keys=, strict=, retain=, "
            "on_expiry=, lateness=, keep=. Other inputs are as before, or as the query declares.",
        ),
    ] = None,
    dialect: Annotated[
        str | None,
        optional(metavar="NAME", help="The SQL dialect of the query; by default that of DIR."),
    ] = None,
    functions: Functions = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Show what a state keeps, computes and drops if a job starts with other views.

    The command changes and locks nothing. Exit status 1: the change would be refused.
    """


@implemented_in("streaming.cli.commands.clone")
def clone(
    state_dir: StateFolder,
    copy: Annotated[
        str,
        typer.Argument(
            metavar="COPY", help="The new folder: a path, or a URI.", show_default=False
        ),
    ],
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Copy the state of a stopped query, to run it with other views and new targets beside it.

    Large files are hard links where the file system has them. In a bucket of S3, the service copies
    them. Every view of the copy writes all its rows to its target once.
    """


@implemented_in("streaming.cli.commands.profile")
def profile(
    query: QueryText,
    source: PlainSources = None,
    rows: Rows = 100_000,
    skew: Skew = 0.5,
    batch: StepRows = 1_000,
    steps: StepCount = 20,
    dialect: Dialect = DUCKDB,
    functions: Functions = None,
    formula: FormulaName = COLLAPSED,
    threads: Threads = None,
    write: Annotated[
        bool, typer.Option("--write", help="Write each step to files, like the durable sink.")
    ] = False,
    state_dir: Annotated[
        Path | None,
        optional(
            help="A new directory for these files; a temporary one by default.", metavar="DIR"
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
        optional(
            metavar="N",
            min=1,
            help="Number of rows of a step; repeatable. By default 1, 100 and 10000.",
        ),
    ] = None,
    formula: Annotated[
        list[str] | None,
        optional(
            metavar="NAME|FILE",
            help=f"One of {', '.join(FORMULAS)}, or a file of terms; repeatable. By default all.",
        ),
    ] = None,
    dialect: Dialect = DUCKDB,
    functions: Functions = None,
    steps: StepCount = 20,
    precision: Annotated[
        float,
        typer.Option(
            metavar="PERCENT",
            min=0.1,
            max=100,
            help="Repeat the steps until the 95 % interval of their median is within this "
            "percentage of it.",
        ),
    ] = 10,
    max_repetitions: Annotated[
        int, typer.Option(metavar="N", min=1, help="The maximum number of repetitions.")
    ] = 50,
    max_seconds: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            min=0,
            help="Time limit for all repetitions; each formula and step size may use an equal part "
            "of it, and is measured at least once.",
        ),
    ] = 60,
    seed: Seed = 0,
    export: Annotated[
        list[Path] | None,
        optional(
            metavar="FILE",
            help="Write query, seed, versions, machine and the time of every step: FILE.json or "
            "FILE.csv; repeatable.",
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        optional(
            metavar="FILE", help="Draw the times: FILE.png or FILE.svg. Needs the extra demo."
        ),
    ] = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Compare delta formulas and sizes of steps; triangles of a generated graph by default."""
