"""The command ``dbsp-wcoj``.

::

    app                 the sub-commands, put together
    command             how a declared sub-command is run, and how its errors are reported
    arguments/          declarations, options: the arguments of all sub-commands and their help
                        source, sink, query_text, limits, ...: parse the values of arguments
                        job_file, run_options: a run in TOML; checks: everything before Spark starts
    commands/           the work of each sub-command: demo, run, replay, explain, inspect, compact,
                        rescale, profile, bench
    terminal/           tables, progress, log lines, the wording of errors
    profiling/          measure the steps of a query, and show where their time goes
    benchmark/          compare formulas: repeated measurements, confidence intervals, plots
    streaming_query     run one streaming query of Spark until it ends
    state_inspection    read a state directory without its lock

Help must appear at once, so ``app`` and ``arguments.declarations`` import nothing that is slow.
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
    """Run the command line, or report how to install a missing package."""
    extras.run(_app, "cli", EXTRA)


def _app() -> Callable[[], object]:
    from streaming.cli.app import app

    return app
