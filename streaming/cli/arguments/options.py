"""The options that several sub-commands share; this module imports nothing that is slow."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

import typer

__all__ = [
    "FORMULAS",
    "LOCAL_HOST",
    "PAGE_PORT",
    "Debug",
    "Dialect",
    "FormulaName",
    "Functions",
    "Host",
    "Json",
    "MaxSeconds",
    "MaxStepBytes",
    "MaxStepRows",
    "OldToken",
    "PagePort",
    "PlainSources",
    "QueryText",
    "Rows",
    "Seed",
    "Skew",
    "StateFolder",
    "StepCount",
    "StepRows",
    "Threads",
    "TokenFile",
    "Ui",
    "optional",
]

#: An option whose help shows no default, because it has none or the help text explains it.
optional: Final[Any] = partial(typer.Option, show_default=False)

#: The values of `dbsp_wcoj.Formula`, and ``auto``; a test compares them.
FORMULAS: Final = (
    *("auto", "expanded", "collapsed", "flipped"),
    *("recursive", "recursive_collapsed", "recursive_flipped"),
)
#: The port in `streaming.ui.page`; a test compares them.
PAGE_PORT: Final = 8765
#: The default address of the live page and of the metrics: this machine only.
LOCAL_HOST: Final = "127.0.0.1"

QueryText: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="QUERY",
        help="SQL, Datalog rules, or a file .sql or .dl with either.",
        show_default=False,
    ),
]
FormulaName: TypeAlias = Annotated[
    str, typer.Option(metavar="NAME", help=f"Delta formula: {', '.join(FORMULAS)}.")
]
Dialect: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="SQL dialect of the query: duckdb, spark, or another one of sqlglot, which then has "
        "the semantics of DuckDB.",
    ),
]
StateFolder: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="DIR",
        help="A state directory: a path, or a URI such as s3://bucket/folder.",
        show_default=False,
    ),
]
Functions: TypeAlias = Annotated[
    str | None,
    optional(
        metavar="MODULE:NAME",
        help="User-defined functions: a module or FILE.py of Python, and the name of a dict of "
        "functions in it.",
    ),
]
Threads: TypeAlias = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        help="Number of threads that share the work of a large step; by default the number of "
        "cores.",
    ),
]
StepRows: TypeAlias = Annotated[
    int, typer.Option(metavar="N", min=1, help="Approximate number of rows of a step.")
]
StepCount: TypeAlias = Annotated[
    int,
    typer.Option(
        metavar="N",
        min=1,
        help="Number of steps that insert rows; as many later steps delete the same rows.",
    ),
]
Seed: TypeAlias = Annotated[int, typer.Option(metavar="N", help="Seed of the random numbers.")]
Debug: TypeAlias = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Json: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print JSON for scripts, instead of tables.")
]

PlainSources: TypeAlias = Annotated[
    list[str] | None,
    optional(
        "--source",
        metavar="NAME=PATH",
        help="A relation: a Parquet, CSV or JSON file, an edge list (.txt, .txt.gz), or a folder "
        "of such files; also schema=. Repeat the option for each relation. Without the option, a "
        "graph e(src, dst) is generated.",
    ),
]
Rows: TypeAlias = Annotated[
    int, typer.Option(metavar="N", min=10, help="Number of edges of the generated graph.")
]
Skew: TypeAlias = Annotated[
    float,
    typer.Option(metavar="X", min=0.0, max=0.95, help="Skew of the generated graph; 0 is uniform."),
]

MaxStepRows: TypeAlias = Annotated[
    int | None,
    optional(
        metavar="N",
        min=0,
        help="Rows that an operator may produce in a step beyond its input; 0 for no limit. "
        "Default: 50,000,000.",
    ),
]
MaxStepBytes: TypeAlias = Annotated[
    str | None,
    optional(
        metavar="SIZE",
        help="Bytes that a step may produce, as in 4G; 0 for no limit. Default: a third of the "
        "memory.",
    ),
]
MaxSeconds: TypeAlias = Annotated[
    float | None,
    optional(metavar="SECONDS", min=0, help="Duration that a step may take. Default: no limit."),
]

Ui: TypeAlias = Annotated[bool, typer.Option("--ui", help="Serve a live page on this machine.")]
PagePort: TypeAlias = Annotated[
    int,
    typer.Option(
        "--ui-port",
        metavar="PORT",
        min=0,
        max=65535,
        help="Port of the live page; 0 for any free port.",
    ),
]
Host: TypeAlias = Annotated[
    str,
    typer.Option(
        "--ui-host",
        metavar="HOST",
        help="Address of the live page; visitors from other machines need a token.",
    ),
]
TokenFile: TypeAlias = Annotated[
    Path | None,
    optional(
        "--ui-token-file",
        metavar="FILE",
        help="File with the token that visitors sign in with; created with a random token if it "
        "does not exist. Default: the variable DBSP_WCOJ_UI_TOKEN.",
    ),
]


def _refuse_token(value: str | None) -> None:
    if value is not None:
        raise typer.BadParameter(
            "the arguments of a process can be read by every user of its machine; give "
            "--ui-token-file FILE (it is created with a random token if it does not exist), or set "
            "the variable DBSP_WCOJ_UI_TOKEN, and choose another token"
        )


#: A removed option; refused with a hint.
OldToken: TypeAlias = Annotated[
    str | None,
    typer.Option("--ui-token", hidden=True, callback=_refuse_token),
]
