"""The sub-commands of ``dbsp-wcoj``."""

from __future__ import annotations

import typer

from streaming.cli.profile import profile
from streaming.cli.rescale import rescale

__all__ = ["app"]

app = typer.Typer(
    name="dbsp-wcoj",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command()(profile)
app.command()(rescale)


@app.callback()
def commands() -> None:
    """Live SQL and Datalog views over changing data."""
