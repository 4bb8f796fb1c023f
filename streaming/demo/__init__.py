"""The demo: live triangle counts over a real stream of changes, checked against recounts.

::

    events    a file of messages or changes -> one ordered change stream, split at transactions
    replay    the stream as Parquet files, read back by Spark's file source one file at a time
    triangles the views, a circuit; their current contents
    recount   the same counts from scratch by sparse matrix products; shares no code with the engine
    oracle    expected counts from a file
    checks    compares totals with recounts, oracle and published figures, and counts comparisons
    display   a live table in a terminal, plain lines elsewhere
    plot      the counts over time as a PNG
    command   the command line
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from streaming import extras

__all__ = ["EXTRA", "main"]

#: The packages of the extra ``demo`` that the demo imports.
EXTRA: Final = ("matplotlib", "pyspark", "rich", "scipy", "typer")


def main() -> None:
    """Run the command line, or report how to install a missing package."""
    extras.run(_app, "demo", EXTRA)


def _app() -> Callable[[], object]:
    from streaming.demo.command import app

    return app
