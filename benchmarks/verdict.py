"""Compares every answer of a benchmark with the truth; a difference ends it with status 1."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import typer

from benchmarks.result import Result, terminal


@dataclass
class Verdict:
    """The truths by name, the number of comparisons, and the differences.

    >>> verdict = Verdict()
    >>> verdict.set_truth("graph", 3)
    >>> verdict.compare("engine", "graph", 4)
    >>> verdict.differences
    ['engine: 4, but graph is 3']
    """

    truths: dict[str, int] = field(default_factory=dict)
    comparisons: int = 0
    differences: list[str] = field(default_factory=list)

    def set_truth(self, name: str, *sources: int | None) -> None:
        """Set a truth from sources that must agree; a source without a value is None."""
        first, *others = (source for source in sources if source is not None)
        self.truths[name] = first
        for value in others:
            self.compare(f"{name} by another source", name, value)

    def compare(self, subject: str, truth: str, answer: int) -> None:
        """Compare the answer of ``subject``, such as a system, with the truth of this name."""
        self.comparisons += 1
        if answer != self.truths[truth]:
            self.differences.append(f"{subject}: {answer}, but {truth} is {self.truths[truth]}")

    def close(self, result: Result, path: Path | None) -> None:
        """Show the result, and write it, or exit with status 1 if an answer differs."""
        console = terminal()
        result.show(console)
        for difference in self.differences:
            console.print(f"[red]wrong[/] {difference}")
        console.print(f"{self.comparisons} answers compared, {len(self.differences)} differ")
        if self.differences:
            raise typer.Exit(1)
        if path is not None:
            result.write(path)
            console.print(f"wrote {path}")
