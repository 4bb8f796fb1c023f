"""The benchmark tables of README.md, rendered from ``results/*.json``; no figure is ever typed.

The text between two markers is replaced; ``--check`` changes nothing and exits with status 1 when
it is not what the result files say.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.result import Cell, Result, Row, terminal, text

BEGIN = "<!-- benchmarks: begin (python -m benchmarks.report) -->"
END = "<!-- benchmarks: end -->"

_HERE = Path(__file__).parent


class MarkerError(Exception):
    """README.md has no place for the tables."""


def main(
    readme: Annotated[Path, typer.Option(help="The file to change.")] = _HERE.parent / "README.md",
    results: Annotated[Path, typer.Option(help="Folder of result files.")] = _HERE / "results",
    check: Annotated[bool, typer.Option(help="Only compare.")] = False,
) -> None:
    """Render the result files into README.md."""
    before = readme.read_text()
    after = replaced(before, markdown([read(path) for path in sorted(results.glob("*.json"))]))
    if check:
        raise typer.Exit(int(before != after))
    readme.write_text(after)
    terminal().print(f"{readme.name} {'is as it was' if before == after else 'changed'}")


def read(path: Path) -> Result:
    """A result file."""
    fields = json.loads(path.read_text())
    return Result(**fields)


def markdown(results: list[Result]) -> str:
    """All results: claim, machine, tables."""
    return "\n".join(_section(result) for result in results)


def replaced(readme: str, tables: str) -> str:
    """The text with what stands between the markers replaced.

    Raises:
        MarkerError: A marker is missing, or they are in the wrong order.

    >>> replaced(f"above {BEGIN} old {END} below", "new") == f"above {BEGIN}\\nnew\\n{END} below"
    True
    """
    above, begin, rest = readme.partition(BEGIN)
    _, end, below = rest.partition(END)
    if not begin or not end:
        raise MarkerError(f"README.md needs the lines {BEGIN!r} and {END!r}, in this order")
    return f"{above}{BEGIN}\n{tables}\n{END}{below}"


def _section(result: Result) -> str:
    machine = result.machine
    conditions = f"{machine['processor']}, {machine['cores']} cores, {machine['date']}"
    tables = "\n".join(_table(title, rows) for title, rows in result.tables.items() if rows)
    return f"{result.claim} (`python -m benchmarks.{result.benchmark}`; {conditions}).\n\n{tables}"


def _table(title: str, rows: list[Row]) -> str:
    """A Markdown table; columns without any value are left out."""
    columns = [name for name in rows[0] if any(row[name] is not None for row in rows)]
    lines = [
        f"| {' | '.join(columns)} |",
        f"|{'|'.join(' --: ' if _is_number(rows, name) else ' --- ' for name in columns)}|",
        *(f"| {' | '.join(text(row[name]) for name in columns)} |" for row in rows),
    ]
    return f"**{title}**\n\n" + "\n".join(lines) + "\n"


def _is_number(rows: list[Row], column: str) -> bool:
    values: list[Cell] = [row[column] for row in rows if row[column] is not None]
    return sum(isinstance(value, int | float) for value in values) * 2 > len(values)


if __name__ == "__main__":
    typer.run(main)
