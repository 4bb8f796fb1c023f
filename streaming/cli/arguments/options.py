"""Options: the words that several sub-commands share. Nothing heavy is imported here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, TypeAlias

import typer

__all__ = [
    "FORMULAS",
    "PAGE_PORT",
    "Debug",
    "FormulaName",
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
    "Threads",
    "TokenFile",
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
FormulaName: TypeAlias = Annotated[
    str, typer.Option(metavar="NAME", help=f"Delta formula: {', '.join(FORMULAS)}.")
]
Threads: TypeAlias = Annotated[int, typer.Option(metavar="N", min=1, help="Threads of the joins.")]
Seed: TypeAlias = Annotated[int, typer.Option(metavar="N", help="Of what is drawn at random.")]
Debug: TypeAlias = Annotated[bool, typer.Option("--debug", help="Show where an error comes from.")]
Json: TypeAlias = Annotated[
    bool, typer.Option("--json", help="JSON for scripts, instead of tables.")
]

PlainSources: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--source",
        metavar="NAME=PATH",
        help="A relation, from a Parquet, CSV or JSON file, an edge list (.txt, .txt.gz) or a "
        "folder of them; also schema=. One for each relation. Without any, a generated graph "
        "e(src, dst).",
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
        "--ui-host", metavar="HOST", help="Where; visitors from other machines need a token."
    ),
]
TokenFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--ui-token-file",
        metavar="FILE",
        help="Holds the token that visitors sign in with; made with a random one if it does not "
        "exist. Else the variable DBSP_WCOJ_UI_TOKEN.",
        show_default=False,
    ),
]


def _refuse_token(value: str | None) -> None:
    if value is not None:
        raise typer.BadParameter(
            "the arguments of a process can be read by every user of its machine; give "
            "--ui-token-file FILE (it is made with a random token if it does not exist), or set "
            "the variable DBSP_WCOJ_UI_TOKEN, and choose another token"
        )


#: As it was once; refused with what to do instead.
OldToken: TypeAlias = Annotated[
    str | None,
    typer.Option("--ui-token", hidden=True, callback=_refuse_token),
]
