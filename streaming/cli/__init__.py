"""The command ``dbsp-wcoj``.

::

    app                 the sub-commands, put together
    declared, options   their words; nothing that is slow to import
    command, usage      how a declared command is done, and how errors look; with spark_error
    terminal            colours, tables, numbers

    demo                the demo
    run                 views over live sources; with source, frames, sink, query, dashboard
    replay              a file of changes through views; with changes_file
    explain, views      the plan of a query; a query as a circuit; with ddl
    inspect, inspection what is in a state directory
    rescale             a state directory between one process and cells on executors
    profile, bench      where the time of a step goes; formulas compared
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from streaming import extras
from streaming.installation import check_streaming

__all__ = ["main"]

EXTRA: Final = ("rich", "typer")

check_streaming()


def main() -> None:
    """Run the command line, or say how to install what it needs."""
    extras.run(_app, "cli", EXTRA)


def _app() -> Callable[[], object]:
    from streaming.cli.app import app

    return app
