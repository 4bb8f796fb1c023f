"""Counts the work of small maintained queries, and compares it with the recorded counts.

Claim: no count grows. The counts are proposals, intersections, joins, rows sorted, rows put into
runs, rows moved by merging, runs, and bytes of state. They are the same on every machine and in
every run, so a difference is a change of the engine and not noise. Other benchmarks measure time.

Inputs: `benchmarks.work_cases`. The record is ``results/work.json``. A larger count, or another
answer, ends the run with status 1. ``--record`` records a smaller count, or a larger one that is
intended, and renders the tables.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from benchmarks.report import __main__ as report
from benchmarks.result import Cell, Result, Row, terminal
from benchmarks.work_cases import COUNTED, case_names, count_work

CLAIM = "Counted work, the same on every machine: no count grows"
TABLE = "Counted work"
RECORD = Path(__file__).parent / "results" / "work.json"


def main(
    record: Annotated[bool, typer.Option(help="Record the new counts.")] = False,
    only: Annotated[str, typer.Option(help="Cases with this in their name.")] = "",
    json: Annotated[Path, typer.Option(help="Where the record is.")] = RECORD,
) -> None:
    """Count; exit status 1 if a count has grown."""
    console = terminal()
    chosen = [case for case in case_names() if only in case]
    if not chosen:
        raise typer.BadParameter(f"unknown case {only!r}; cases: {'; '.join(case_names())}")
    if record and only:
        raise typer.BadParameter("record all cases together, without --only")
    result = Result("work", CLAIM, {})
    rows = [count_work(case).row(case) for case in chosen]
    result.tables[TABLE] = rows
    recorded = read_record(json)
    changes = [
        change for row in rows for change in compare_counts(row, recorded.get(str(row["case"])))
    ]
    result.show(console)
    Result("work", CLAIM, {"Changes": changes}).show(console)
    grown = [change for change in changes if change["is"] != "better"]
    console.print(
        f"{len(rows)} cases, {len(changes)} counts changed, {len(grown)} of them for the worse"
    )
    if record:
        result.write(json)
        console.print(f"wrote {json.name}")
        if json == RECORD:
            report.main()
    elif grown:
        console.print("if intended (say why in the commit): python -m benchmarks.work --record")
        raise typer.Exit(1)
    elif changes:
        console.print("an improvement: python -m benchmarks.work --record")


def read_record(path: Path) -> dict[str, Row]:
    """Read the recorded counts by case; empty without a record."""
    if not path.is_file():
        return {}
    return {str(row["case"]): row for row in Result.read(path).tables[TABLE]}


def compare_counts(row: Row, recorded: Row | None) -> list[Row]:
    """Return the differences from the record.

    >>> compare_counts({"case": "a", "joins": 3}, {"case": "a", "joins": 4})
    [{'case': 'a', 'count': 'joins', 'recorded': 4, 'now': 3, 'is': 'better'}]
    """
    if recorded is None:
        return [_change(row, "", None, None, "not recorded")]
    changes = []
    for name, new_count in row.items():
        recorded_count = recorded.get(name)
        if name == "case" or new_count == recorded_count:
            continue
        if name not in COUNTED:
            changes.append(_change(row, name, recorded_count, new_count, "another answer"))
        elif (
            isinstance(recorded_count, int)
            and isinstance(new_count, int)
            and new_count < recorded_count
        ):
            changes.append(_change(row, name, recorded_count, new_count, "better"))
        else:
            changes.append(_change(row, name, recorded_count, new_count, "worse"))
    return changes


def _change(row: Row, count: str, recorded_count: Cell, new_count: Cell, kind: str) -> Row:
    return {
        "case": row["case"],
        "count": count,
        "recorded": recorded_count,
        "now": new_count,
        "is": kind,
    }


if __name__ == "__main__":
    typer.run(main)
