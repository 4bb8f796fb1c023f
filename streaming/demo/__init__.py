"""The demo: live triangle counts over a real stream of changes, checked against recounts.

::

    events    a file of messages or changes -> one ordered change stream, cut at transaction ends
    replay    the stream as Parquet files, read back by Spark's file source one file at a time
    triangles the views, a circuit; their running totals
    recount   the same counts from scratch by sparse matrix products; shares no code with the engine
    oracle    expected counts from a file
    checks    compares totals with recounts, oracle and published figures, and counts comparisons
    display   a live table in a terminal, plain lines elsewhere
    plot      the counts over time as a PNG
    command   the command line
"""

from __future__ import annotations

import sys
from typing import Final

__all__ = ["main"]

EXTRA: Final = ("matplotlib", "rich", "typer")


def main() -> None:
    """Run the command line, or say how to install what it needs."""
    try:
        from streaming.demo.command import app
    except ModuleNotFoundError as error:
        if error.name not in EXTRA:
            raise
        sys.stderr.write(
            f"error: the demo needs the package {error.name}, which is not installed: "
            "run pip install 'dbsp-wcoj[demo]'\n"
        )
        sys.exit(2)
    app()
