"""Verdict: every answer of a run compared with the truth; a difference ends it with status 1."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import typer

from benchmarks.result import Result, terminal


@dataclass
class Verdict:
    """Known truths, the number of comparisons made, and what differed.

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
        """Learn a truth from sources that must agree; None is a source that does not know."""
        known = [source for source in sources if source is not None]
        self.truths[name] = known[0]
        for other in known[1:]:
            self.compare(f"{name} by another source", name, other)

    def compare(self, what: str, truth: str, found: int) -> None:
        """Compare an answer with a truth that is known."""
        self.comparisons += 1
        if found != self.truths[truth]:
            self.differences.append(f"{what}: {found}, but {truth} is {self.truths[truth]}")

    def close(self, result: Result, path: Path | None) -> None:
        """Show the result and write it, or exit with status 1 when any answer differed."""
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
