"""Runs a benchmark that has parts: a temporary folder, the chosen parts, and one Spark session.

`benchmarks.scale` and `benchmarks.sink` use it. Parts that need no Spark run before the session
starts, so that its threads do not disturb them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.result import terminal
from benchmarks.verdict import Verdict
from streaming import start_session


@dataclass(frozen=True)
class PartsRun:
    """The options of one run, and what all its parts share.

    Attributes:
        folder: A folder for states and logs, empty at first.
        parts: The names of the parts to run.
        seed: The seed of all random choices.
        json: Where to write the result; None to write none.
        open_session: Opens a Spark session that logs to the given file.
        verdict: Compares the answers of all parts.
    """

    folder: Path
    parts: Collection[str]
    seed: int
    json: Path | None
    open_session: Callable[[Path], SparkSession]
    verdict: Verdict = field(default_factory=Verdict)

    def start_spark(self) -> SparkSession:
        """Open the Spark session; only its errors are printed."""
        session = self.open_session(self.folder / "spark.log")
        session.sparkContext.setLogLevel("ERROR")
        return session

    def report(self, message: str) -> None:
        """Print a line of progress."""
        terminal().print(message)


@contextmanager
def open_run(
    benchmark: str,
    parts: Collection[str],
    *,
    seed: int,
    json: Path | None,
    parent_folder: Path | None = None,
) -> Iterator[PartsRun]:
    """Open a run in a temporary folder, which is deleted at the end."""
    prefix = f"dbsp-wcoj-{benchmark}-"
    with tempfile.TemporaryDirectory(prefix=prefix, dir=parent_folder) as folder:
        yield PartsRun(
            Path(folder),
            parts,
            seed,
            json,
            lambda log: start_session(f"benchmarks.{benchmark}", log=log),
        )
