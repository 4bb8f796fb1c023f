"""Result: what a benchmark found, as tables of plain rows; written as JSON, shown by rich.

One schema for all benchmarks: the terminal, the JSON file and the Markdown of README.md are three
renderings of the same rows, so no figure is ever typed.
"""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rich.console import Console
from rich.table import Table

Cell = str | int | float | bool | None
Row = dict[str, Cell]

_PACKAGES = ("numpy", "numba", "kuzu", "duckdb")


@dataclass(frozen=True)
class Result:
    """Named tables with the claim they test and the machine they ran on."""

    benchmark: str
    claim: str
    tables: dict[str, list[Row]]
    machine: dict[str, Cell] = field(default_factory=lambda: conditions())

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n")

    def show(self, console: Console | None = None) -> None:
        """Print every table with rows."""
        console = console or terminal()
        for title, rows in self.tables.items():
            if rows:
                table = Table(*rows[0], title=title, title_justify="left")
                for row in rows:
                    table.add_row(*(text(cell) for cell in row.values()))
                console.print(table)


def terminal() -> Console:
    """The terminal; wide enough for a table when the output is none."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(width=160, highlight=False)


def conditions() -> dict[str, Cell]:
    """Machine, load and versions at this moment."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load average before": round(os.getloadavg()[0], 2),
        "Python": platform.python_version(),
        **{name: _version(name) for name in _PACKAGES},
    }


def text(cell: Cell) -> str:
    """A cell for people: three digits that matter, thousands apart, nothing for None.

    >>> text(1234567), text(0.012345), text(43.21), text(4321.5), text(None), text(True)
    ('1,234,567', '0.0123', '43.2', '4,322', '', 'yes')
    """
    match cell:
        case None:
            return ""
        case bool():
            return "yes" if cell else "no"
        case int():
            return f"{cell:,}"
        case float():
            return f"{cell:,.0f}" if abs(cell) >= 1000 else f"{cell:.3g}"
        case _:
            return cell


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.is_file() else []
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
