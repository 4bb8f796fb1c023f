"""Options: the words that several sub-commands share. Nothing heavy is imported here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, TypeAlias

import typer

__all__ = [
    "FORMULAS",
    "PAGE_PORT",
    "Debug",
    "File",
    "FormulaName",
    "Given",
    "Host",
    "Json",
    "MaxSeconds",
    "MaxStepBytes",
    "MaxStepRows",
    "PagePort",
    "QueryText",
    "Rows",
    "Seed",
    "Skew",
    "Threads",
    "Token",
    "Ui",
]

#: As in `dbsp_wcoj.Formula`, and a choice among them; the tests compare.
FORMULAS: Final = (
    *("auto", "expanded", "collapsed", "flipped"),
    *("recursive", "recursive_collapsed", "recursive_flipped"),
)
#: As in `streaming.ui.page`.
PAGE_PORT: Final = 8765

QueryText: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="QUERY",
        help="SQL, Datalog rules, or a file .sql or .dl with either.",
        show_default=False,
    ),
]
File: TypeAlias = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="Parquet, CSV or JSON: the rows of a relation, perhaps with weight (or op: 1, -1, "
        "insert, delete, ...) and relation.",
        show_default=False,
    ),
]
FormulaName: TypeAlias = Annotated[
    str, typer.Option(metavar="NAME", help=f"Delta formula: {', '.join(FORMULAS)}.")
]
Threads: TypeAlias = Annotated[int, typer.Option(metavar="N", min=1, help="Threads of the joins.")]
Seed: TypeAlias = Annotated[int, typer.Option(metavar="N", help="Of what is drawn at random.")]
Debug: TypeAlias = Annotated[bool, typer.Option("--debug", help="Show where an error comes from.")]
Json: TypeAlias = Annotated[
    bool, typer.Option("--json", help="JSON for scripts, instead of tables.")
]

Given: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        metavar="NAME=FILE",
        help="A relation, from a Parquet or CSV file; repeatable. Without any, a generated "
        "graph e(src, dst).",
        show_default=False,
    ),
]
Rows: TypeAlias = Annotated[
    int, typer.Option(metavar="N", min=10, help="Edges of the generated graph.")
]
Skew: TypeAlias = Annotated[
    float,
    typer.Option(
        metavar="X", min=0.0, max=0.95, help="Of the generated graph's ends; 0 is uniform."
    ),
]

MaxStepRows: TypeAlias = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=0,
        help="Rows that an operator may make in a step beyond those given; 0 for no limit. "
        "Default: 50,000,000.",
        show_default=False,
    ),
]
MaxStepBytes: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE",
        help="Bytes that a step may make, as in 4G; 0 for no limit. Default: a third of the "
        "memory.",
        show_default=False,
    ),
]
MaxSeconds: TypeAlias = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        min=0,
        help="That a step may take. Default: no limit.",
        show_default=False,
    ),
]

Ui: TypeAlias = Annotated[bool, typer.Option("--ui", help="Serve a live page on this machine.")]
PagePort: TypeAlias = Annotated[
    int, typer.Option("--ui-port", metavar="PORT", min=0, max=65535, help="0: any that is free.")
]
Host: TypeAlias = Annotated[
    str,
    typer.Option(
        "--ui-host", metavar="HOST", help="Where; other machines come in with a token only."
    ),
]
Token: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--ui-token",
        metavar="TEXT",
        help="What visitors have to know.",
        envvar="DBSP_WCOJ_UI_TOKEN",
        show_default=False,
    ),
]
