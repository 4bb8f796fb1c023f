"""The command ``dbsp-wcoj``: its sub-commands, examples and colours."""

from __future__ import annotations

from typing import Annotated, Final

import typer
from typer import rich_utils

from streaming.cli.arguments.declarations import (
    bench,
    clone,
    compact,
    estimate,
    explain,
    inspect,
    pipeline,
    plan_change,
    profile,
    replay,
    rescale,
    run,
    shell,
)
from streaming.cli.commands.demo import PASS_THROUGH, demo
from streaming.cli.terminal.usage import PlainGroup

__all__ = ["EXAMPLES", "app"]

#: An example for each sub-command; tests run them through the parser.
EXAMPLES: Final = {
    "demo": "dbsp-wcoj demo --window 36h",
    "run": "dbsp-wcoj run rings.sql --source pay=in/payments --state state/ --ui",
    "pipeline": "dbsp-wcoj pipeline refresh shop.toml",
    "shell": "dbsp-wcoj shell shop.sql --state state/",
    "explain": "dbsp-wcoj explain rings.sql --source 'pay=schema=src long, dst long'",
    "replay": "dbsp-wcoj replay rings.sql --source pay=changes.parquet --by ts",
    "estimate": "dbsp-wcoj estimate rings.sql --source pay=pay.parquet --rows pay=1e8",
    "inspect": "dbsp-wcoj inspect state/ --check",
    "plan-change": "dbsp-wcoj plan-change state/ rings.sql",
    "clone": "dbsp-wcoj clone state/ copy/",
    "compact": "dbsp-wcoj compact state/",
    "rescale": "dbsp-wcoj rescale state/ --cells 8",
    "profile": "dbsp-wcoj profile rings.sql --source pay=pay.parquet --batch 100",
    "bench": "dbsp-wcoj bench --source e=wiki-Vote.txt.gz --export times.json --plot times.svg",
}
COMMANDS: Final = {
    "demo": demo,
    "run": run,
    "replay": replay,
    "pipeline": pipeline,
    "shell": shell,
    "explain": explain,
    "estimate": estimate,
    "inspect": inspect,
    "plan-change": plan_change,
    "clone": clone,
    "compact": compact,
    "rescale": rescale,
    "profile": profile,
    "bench": bench,
}

app = typer.Typer(
    name="dbsp-wcoj",
    cls=PlainGroup,
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    epilog=f"Example: [cyan]{EXAMPLES['run']}[/]",
)
for name, command in COMMANDS.items():
    app.command(
        name,
        epilog=f"Example: [cyan]{EXAMPLES[name]}[/]",
        context_settings=PASS_THROUGH if name == "demo" else None,
    )(command)

# Thin dim boxes, names in one colour.
rich_utils.STYLE_OPTION = rich_utils.STYLE_SWITCH = rich_utils.STYLE_COMMANDS_TABLE_FIRST_COLUMN = (
    "cyan"
)
rich_utils.STYLE_NEGATIVE_OPTION = rich_utils.STYLE_NEGATIVE_SWITCH = "cyan"
rich_utils.STYLE_TYPES = rich_utils.STYLE_TYPES_SEPARATOR = "dim"
rich_utils.STYLE_USAGE = rich_utils.STYLE_HELPTEXT_FIRST_LINE = ""
rich_utils.STYLE_REQUIRED_LONG = rich_utils.STYLE_REQUIRED_SHORT = "yellow"


def _version(is_requested: bool) -> None:
    if is_requested:
        from importlib.metadata import version

        typer.echo(version("dbsp-wcoj"))
        raise typer.Exit


@app.callback()
def commands(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Live SQL and Datalog views over changing data."""
