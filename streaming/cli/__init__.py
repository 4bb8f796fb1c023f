"""The command ``dbsp-wcoj``: one file for each sub-command.

::

    app       the sub-commands, put together
    profile   where the time of a step goes
    rescale   a state directory between one process and cells on executors
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from streaming import extras

__all__ = ["main"]

EXTRA: Final = ("rich", "typer")


def main() -> None:
    """Run the command line, or say how to install what it needs."""
    extras.run(_app, "cli", EXTRA)


def _app() -> Callable[[], object]:
    from streaming.cli.app import app

    return app
