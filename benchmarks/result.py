"""The result of a benchmark: tables of plain rows, written as JSON and shown on the terminal.

All benchmarks use this format. The terminal, the JSON file, the Markdown pages and the plots are
rendered from the same rows, so no figure is typed by hand. A file also has the machine, its load,
the versions, the date, the command, the duration and the commit, with a mark if source files had
changed since the commit (rendered files do not count).
"""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import perf_counter
from typing import Any

from rich.console import Console
from rich.table import Table

Cell = str | int | float | bool | None
Row = dict[str, Cell]

# The versions of these packages are recorded, if they are installed.
_PACKAGES = (
    *("numpy", "numba", "pyarrow", "pyspark", "kuzu", "real_ladybug", "ladybug", "duckdb"),
    *("pathway", "pydbsp", "networkx", "igraph", "clingo"),
)
_ROOT = Path(__file__).parents[1]
_ROW_DEPTH = 2  # lists and dicts below this depth, such as a row of a table, are one line of JSON
# Files that benchmarks write; git is asked for changes of all other files.
_RENDERED = (
    ":!benchmarks/results",
    ":!README.md",
    ":!benchmarks/README.md",
    ":!docs/benchmarks.md",
    ":!docs/pictures/benchmarks",
)


@dataclass(frozen=True)
class Result:
    """The tables of a benchmark, the claim that they test, and the machine that ran it.

    Create it before the first measurement: it notes the load of the machine, and the time that the
    run takes counts from here. ``started`` is the clock `time.perf_counter`.
    """

    benchmark: str
    claim: str
    tables: dict[str, list[Row]]
    machine: dict[str, Cell] = field(default_factory=lambda: conditions())
    started: float = field(default_factory=perf_counter, repr=False, compare=False)

    def write(self, path: Path) -> None:
        """Write the result as JSON, with the seconds since the object was created."""
        machine = {**self.machine, "run seconds": round(perf_counter() - self.started)}
        fields = {
            "benchmark": self.benchmark,
            "claim": self.claim,
            "tables": self.tables,
            "machine": machine,
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(as_json(fields))

    @classmethod
    def read(cls, path: Path) -> Result:
        """Read a result that `write` has written."""
        return cls(**json.loads(path.read_text()))

    def show(self, console: Console | None = None) -> None:
        """Print every table with rows."""
        console = console or terminal()
        for title, rows in self.tables.items():
            if rows:
                table = Table(*rows[0], title=title, title_justify="left")
                for row in rows:
                    table.add_row(*(format_cell(cell) for cell in row.values()))
                console.print(table)


def as_json(fields: Mapping[str, Any]) -> str:
    """Format the fields of a result as JSON, with a line for each row of a table.

    >>> tables = {"Times": [{"n": 1}, {"n": 2}], "Sizes": []}
    >>> print(as_json({"benchmark": "race", "tables": tables}))
    {
     "benchmark": "race",
     "tables": {
      "Times": [
       {"n": 1},
       {"n": 2}
      ],
      "Sizes": []
     }
    }
    <BLANKLINE>
    """

    def encode(value: object, depth: int) -> str:
        if not value or not isinstance(value, dict | list) or depth > _ROW_DEPTH:
            return json.dumps(value, ensure_ascii=False)
        items = (
            [f"{json.dumps(name)}: {encode(item, depth + 1)}" for name, item in value.items()]
            if isinstance(value, dict)
            else [encode(item, depth + 1) for item in value]
        )
        opening, closing = "{}" if isinstance(value, dict) else "[]"
        indent = "\n" + " " * depth
        return f"{opening}{indent} {f',{indent} '.join(items)}{indent}{closing}"

    return encode(fields, 0) + "\n"


def copy_missing_tables(result: Result, earlier: Result) -> None:
    """Copy the tables of an earlier result that this one lacks, and record their origin.

    >>> machine = {"command": "run", "commit": "a1", "date": "2026-11-22", "processor": "EPYC"}
    >>> old = Result("peers", "", {"BULK": [{"n": 1}], "LIVE": [{"n": 2}]}, machine)
    >>> new = Result("peers", "", {"BULK": [{"n": 3}]}, {"commit": "b2"})
    >>> copy_missing_tables(new, old)
    >>> new.tables, new.machine["LIVE by"]
    ({'BULK': [{'n': 3}], 'LIVE': [{'n': 2}]}, 'run, commit a1, 2026-11-22, EPYC')
    """
    machine = earlier.machine
    origin = f"{machine.get('command')}, commit {machine.get('commit')}, {machine.get('date')}"
    origin += f", {machine['processor']}" if machine.get("processor") else ""
    for name, rows in earlier.tables.items():
        if name not in result.tables:
            result.tables[name] = rows
            result.machine[f"{name} by"] = machine.get(f"{name} by", origin)


def find_table(results: Mapping[str, Result], result: str, table: str) -> list[Row]:
    """Return the rows of a table of a result; none if the result or the table does not exist."""
    return results[result].tables.get(table, []) if result in results else []


def terminal() -> Console:
    """Return a console; if the output is not a terminal, one that is wide enough for a table."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(width=160, highlight=False)


def conditions() -> dict[str, Cell]:
    """Return machine, load, versions, commit and command at this moment."""
    versions = {name: _version(name) for name in _PACKAGES}
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": commit(),
        "command": command(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory GB": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "system": f"{platform.system()} {platform.release()}",
        "load average before": round(os.getloadavg()[0], 2),
        "Python": platform.python_version(),
        **{name: number for name, number in versions.items() if number is not None},
    }


def commit(root: Path = _ROOT) -> str | None:
    """Return the commit, with "+ changes" if a source file differs; None without a repository.

    Changes of result files, pages and plots are ignored, because the first of several benchmarks
    changes them.
    """
    name = _git(root, "describe", "--always", "--tags", "--abbrev=10")
    if name is None:
        return None
    changed = _git(root, "status", "--porcelain", "--", ".", *_RENDERED)
    return f"{name} + changes" if changed else name


def command() -> str:
    """Return the command line, with paths relative to the checkout and none of this machine.

    >>> command().startswith("python ")
    True
    """
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    script = Path(sys.argv[0]).name
    program = ["-m", spec.name.removesuffix(".__main__")] if spec is not None else [script]
    return shlex.join(["python", *program, *map(portable, sys.argv[1:])])


def portable(argument: str) -> str:
    """Return an argument as one would type it in any checkout.

    >>> portable("--threads"), portable(str(_ROOT / "benchmarks")), portable("/elsewhere/graph")
    ('--threads', 'benchmarks', '…/graph')
    """
    option, equals, path = argument.rpartition("=") if argument[:2] == "--" else ("", "", argument)
    if not Path(path).is_absolute():
        return argument
    inside = Path(path).is_relative_to(_ROOT)
    return option + equals + (os.path.relpath(path, _ROOT) if inside else f"…/{Path(path).name}")


def format_cell(cell: Cell) -> str:
    """Format a cell: three significant digits, separators for thousands, "" for None.

    >>> [format_cell(cell) for cell in (1234567, 0.012345, 43.21, 4321.5, None, True)]
    ['1,234,567', '0.0123', '43.2', '4,322', '', 'yes']
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


def _git(root: Path, *arguments: str) -> str | None:
    try:
        return subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


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
