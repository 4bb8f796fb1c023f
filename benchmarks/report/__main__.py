"""Renders the tables and plots of the documentation from the result files ``results/*.json``.

README.md gets one plot and one table, docs/benchmarks.md and docs/comparison.md the tables of
`selections`, and benchmarks/README.md all tables and all plots (`charts`). The text between two
markers is replaced. ``--check`` changes nothing and exits with status 1 if a file differs from the
result files. It does not draw the plots again, because each contains a digest of its data.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Final

import typer

from benchmarks.report.charts import CHARTS, Chart
from benchmarks.report.plots import draw, file_names, is_drawn
from benchmarks.report.selections import (
    COMPARISON_TABLES,
    HEADLINES,
    OTHERS_FASTER,
    PAGE_TABLES,
    README_CHART,
    SECTIONS,
    Selection,
)
from benchmarks.result import Cell, Result, Row, format_cell, terminal

PLOTS = Path("docs") / "pictures" / "benchmarks"
BEGIN = "<!-- benchmarks: begin (python -m benchmarks.report) -->"
END = "<!-- benchmarks: end -->"

_CHECKOUT = Path(__file__).parents[2]
_MAX_UNFOLDED_ROWS = 12  # a longer table is folded
_MAX_ROWS = 300  # a longer table is in the result file only
# The facts in the line about the machine, with the words after each value.
_MACHINE = {"processor": "", "cores": "cores", "memory GB": "GB of memory"}
# The facts in the line about the run below the tables of a result, and the words before them.
_FACTS = {
    **{"commit": "commit ", "date": "", "processor": "", "cores": "cores "},
    "memory GB": "memory GB ",
}


class MarkerError(Exception):
    """A page lacks the markers between which the tables go."""


def main(
    root: Annotated[Path, typer.Option(help="The checkout.")] = _CHECKOUT,
    check: Annotated[bool, typer.Option(help="Only compare.")] = False,
) -> None:
    """Render the result files into the pages and the plots."""
    results = read_results(root / "benchmarks" / "results")
    plots = root / PLOTS
    console = terminal()
    stale = [chart for chart in charts_with_data(results) if not is_drawn(chart, results, plots)]
    obsolete = obsolete_plots(results, plots)
    tables_by_page = {
        root / "README.md": readme_section(results),
        root / "docs" / "benchmarks.md": page_tables(results),
        root / "docs" / "comparison.md": comparison_tables(results),
        root / "benchmarks" / "README.md": all_tables(results),
    }
    changed = {
        path: new_text
        for path, tables in tables_by_page.items()
        if (new_text := with_tables(path.read_text(), tables, path.name)) != path.read_text()
    }
    if check:
        for path in [*changed, *(plots / chart.name for chart in stale), *obsolete]:
            console.print(f"differs from the result files: {path.relative_to(root)}")
        raise typer.Exit(int(bool(changed or stale or obsolete)))
    for chart in stale:
        draw(chart, results, plots)
        console.print(f"drew {chart.name}")
    for path in obsolete:
        path.unlink()
    for path, new_text in changed.items():
        path.write_text(new_text)
        console.print(f"changed {path.relative_to(root)}")
    for selection in (*PAGE_TABLES, *COMPARISON_TABLES):
        if selection.result in results and not selection.rows(results):
            console.print(f"[yellow]nothing to show[/] of {selection.result}: {selection.table}")


def read_results(folder: Path) -> dict[str, Result]:
    """Read the results of a folder, named after their files, in the order of the sections."""
    results = {path.stem: Result.read(path) for path in sorted(folder.glob("*.json"))}
    order = [name for name in SECTIONS if name in results]
    return {
        name: results[name] for name in [*order, *(name for name in results if name not in order)]
    }


def charts_with_data(results: Mapping[str, Result]) -> list[Chart]:
    """Return the charts whose tables have rows."""
    return [chart for chart in CHARTS if chart.panels(results)]


def obsolete_plots(results: Mapping[str, Result], folder: Path) -> list[Path]:
    """Return the plots in the folder that belong to no chart with data."""
    current = {name for chart in charts_with_data(results) for name in file_names(chart)}
    return [path for path in sorted(folder.glob("*.*")) if path.name not in current]


def readme_section(results: Mapping[str, Result]) -> str:
    """Render the section of README.md: one plot and one table."""
    rows = [row for headline in HEADLINES for row in headline.rows(results)]
    shown = dict.fromkeys(headline.result for headline in HEADLINES if headline.rows(results))
    lines = [
        line
        for chart in charts_with_data(results)
        if chart.name == README_CHART
        for line in (_picture(chart, PLOTS.as_posix()), "")
    ]
    lines += [_table(rows)] if rows else []
    return "\n".join([*lines, *_machines({name: results[name] for name in shown})])


# Tables that list only the rows that miss their target by most.
_SELECTED_BY_VERDICT: Final = frozenset({"Worst choices"})


def page_tables(results: Mapping[str, Result]) -> str:
    """Render the tables and plots of docs/benchmarks.md."""
    lines: list[str] = []
    shown: dict[str, Result] = {}
    for name in dict.fromkeys(selection.result for selection in PAGE_TABLES):
        selections = [
            selection
            for selection in PAGE_TABLES
            if selection.result == name and selection.rows(results)
        ]
        if selections:
            shown[name] = results[name]
            claim = f"{_claim(results[name])}{_count_met(results[name])}"
            lines += [f"## {SECTIONS[name]}", "", claim, ""]
            for chart in charts_with_data(results):
                if chart.result == name and chart.on_page:
                    lines += [_picture(chart, "pictures/benchmarks"), ""]
            lines += [
                _captioned_table(selection, results, _other_machine(selection.table, results[name]))
                for selection in selections
            ]
            if all(_other_machine(selection.table, results[name]) for selection in selections):
                del shown[name]
    return "\n".join([*lines, *_machines(shown)])


def comparison_tables(results: Mapping[str, Result]) -> str:
    """Render the tables of docs/comparison.md, each with its command, date and versions."""
    lines: list[str] = []
    for title, selections in (
        ("Figures", COMPARISON_TABLES),
        ("Measured: where another system is faster", OTHERS_FASTER),
    ):
        shown = [selection for selection in selections if selection.rows(results)]
        lines += [f"## {title}", ""] if shown else []
        for selection, following in zip_longest(shown, shown[1:]):
            result = results[selection.result]
            lines.append(_captioned_table(selection, results))
            if selection.table in _origins(result.machine):
                lines += _conditions(selection.result, result, selection.table)
            elif following is None or following.result != selection.result:
                lines += _conditions(selection.result, result)
    return "\n".join(lines)


def all_tables(results: Mapping[str, Result]) -> str:
    """Render benchmarks/README.md: claim, conditions, plots and tables of every result.

    The versions that most results have are stated once.
    """
    all_versions = [_versions(result) for result in results.values()]
    usual = max(all_versions, key=all_versions.count, default="")
    sections = [_section(name, result, results, usual) for name, result in results.items()]
    return "\n".join([f"Versions, where a result names no others: {usual}.\n", *sections])


def with_tables(page: str, tables: str, name: str = "README.md") -> str:
    """Return the text of a page with other tables between the markers.

    Raises:
        MarkerError: A marker is missing, or they are in the wrong order.

    >>> with_tables(f"above {BEGIN} old {END} below", "new") == f"above {BEGIN}\\nnew\\n{END} below"
    True
    """
    above, begin, after_begin = page.partition(BEGIN)
    _, end, below = after_begin.partition(END)
    if not begin or not end:
        raise MarkerError(f"{name} needs the lines {BEGIN!r} and {END!r}, in this order")
    return f"{above}{BEGIN}\n{tables}\n{END}{below}"


def _captioned_table(
    selection: Selection, results: Mapping[str, Result], addition: str = ""
) -> str:
    return f"{selection.caption}{addition}:\n\n{_table(selection.rows(results))}"


def _other_machine(table: str, result: Result) -> str:
    """Name the machine and the day of a table, if another processor ran it than the others.

    >>> machine = {"processor": "Xeon", "LIVE by": "python -m a, commit b1, 2026-11-22, EPYC"}
    >>> _other_machine("LIVE", Result("peers", "", {}, machine))
    ' (measured on EPYC; 2026-11-22)'
    """
    _, _, run = _origins(result.machine).get(table, "").rpartition(", commit ")
    match run.split(", ", 2):
        case [_, date, processor] if processor != result.machine.get("processor"):
            return f" (measured on {processor}; {date[:10]})"
    return ""


def _section(name: str, result: Result, results: Mapping[str, Result], usual_versions: str) -> str:
    lines = [f"### {SECTIONS.get(name, name)}", "", _claim(result), ""]
    for chart in charts_with_data(results):
        if chart.result == name:
            lines += [_picture(chart, "../docs/pictures/benchmarks"), ""]
    for title, rows in result.tables.items():
        if rows:
            lines += _table_or_fold(title, rows)
    return "\n".join([*lines, *_conditions(name, result, usual_versions=usual_versions)])


def _machines(results: Mapping[str, Result]) -> Iterator[str]:
    """Yield a line for each machine, with the first and the last date.

    If there are several machines, a line names the sections that were measured on its machine.
    """
    names_by_machine: dict[tuple[Cell, ...], list[str]] = {}
    for name, result in results.items():
        machine = tuple(result.machine.get(fact) for fact in _MACHINE)
        names_by_machine.setdefault(machine, []).append(name)
    for machine, names in names_by_machine.items():
        dates = [format_cell(results[name].machine.get("date"))[:10] for name in names]
        sections = ", ".join(f'"{SECTIONS.get(name, name)}"' for name in names)
        subject = f"{sections}: measured" if len(names_by_machine) > 1 else "Measured"
        days = " to ".join(dict.fromkeys((min(dates), max(dates))))
        facts = [
            f"{format_cell(value)} {_MACHINE[name]}".strip()
            for name, value in zip(_MACHINE, machine, strict=True)
            if value is not None
        ]
        yield f"<sub>{subject} on {', '.join(facts)}; {days}.</sub>\n"


def _claim(result: Result) -> str:
    return result.claim if result.claim.endswith(".") else f"{result.claim}."


def _count_met(result: Result) -> str:
    """Return a sentence that says how many targets a result meets; empty without targets.

    >>> rows = [{"met": True}, {"met": False, "hubs met": True}, {"met": None}]
    >>> _count_met(Result("live", "", {"LIVE": rows}, {}))
    ' Of 3 targets, 2 are met.'
    """
    verdicts = [
        value
        for title, rows in result.tables.items()
        if title not in _SELECTED_BY_VERDICT
        for row in rows
        for name, value in row.items()
        if name.split()[-1] == "met" and isinstance(value, bool)
    ]
    if not verdicts:
        return ""
    met = sum(verdicts)
    if met == len(verdicts):
        return " All targets are met."
    return f" Of {len(verdicts)} targets, {met} {'is' if met == 1 else 'are'} met."


def _versions(result: Result) -> str:
    """Return the versions of the packages of a run."""
    return ", ".join(
        f"{name} {value}"
        for name, value in result.machine.items()
        if isinstance(value, str) and value[:1].isdigit() and name not in ("date", "commit")
    )


def _conditions(
    name: str, result: Result, table: str = "", *, usual_versions: str = ""
) -> Iterator[str]:
    """Yield the command and the facts of a result; or of a table, if another run measured it.

    The versions are left out if they are the usual ones.
    """
    machine = result.machine
    origins = _origins(machine)
    command = format_cell(machine.get("command") or f"python -m benchmarks.{result.benchmark}")
    facts = [
        f"{_FACTS[name]}{format_cell(machine[name])}"
        for name in _FACTS
        if machine.get(name) is not None
    ]
    if table:
        command, *origin = origins[table].split(", commit ")
        own = "".join(f"commit {fact}; " for fact in origin)
        facts = [f"{own}last run of the file: {', '.join(facts)}"]
    else:
        facts += _describe_origins(origins)
        if run := machine.get("run seconds"):
            facts.append(f"ran {format_cell(run)} s")
    yield f"`{_typed(command)}`"
    versions = _versions(result)
    added = "" if versions == usual_versions else f" {versions}."
    yield f"<sub>{name}.json: {', '.join(facts)}.{added}</sub>\n"


def _typed(command: str) -> str:
    """Return a recorded command as one can type it: paths outside are names of files.

    >>> _typed("python -m benchmarks.live --graph '…/wiki-Vote.parquet' --rmat 20 8000000")
    'python -m benchmarks.live --graph wiki-Vote.parquet --rmat 20 8000000'
    """
    return shlex.join(word.replace("…/", "") for word in shlex.split(command))


def _origins(machine: Mapping[str, Cell]) -> dict[str, str]:
    """Return the run of each table that was copied from another one.

    >>> _origins({"BULK by": "python -m a, commit b1, 2026-11-22, EPYC", "cores": 2})
    {'BULK': 'python -m a, commit b1, 2026-11-22, EPYC'}
    """
    return {
        name.removesuffix(" by"): format_cell(origin).replace("…/", "")
        for name, origin in machine.items()
        if name.endswith(" by")
    }


def _describe_origins(origins: Mapping[str, str]) -> list[str]:
    """Name the tables of other runs, and these runs.

    >>> _describe_origins({"BULK": "one", "Plans": "one", "LIVE": "two"})
    ['tables "BULK", "Plans" by one', 'table "LIVE" by two']
    """
    tables: dict[str, list[str]] = {}
    for table, origin in origins.items():
        tables.setdefault(origin, []).append(f'"{table}"')
    return [
        f"table{'s' * (len(names) > 1)} {', '.join(names)} by {origin}"
        for origin, names in tables.items()
    ]


def _picture(chart: Chart, folder: str) -> str:
    """Return the HTML of a plot, in a light and a dark version; the browser chooses."""
    light, dark = file_names(chart)
    return (
        f'<picture><source media="(prefers-color-scheme: dark)" srcset="{folder}/{dark}">'
        f'<img alt="{chart.title}" src="{folder}/{light}"></picture>'
    )


def _table_or_fold(title: str, rows: list[Row]) -> list[str]:
    if len(rows) <= _MAX_UNFOLDED_ROWS:
        return [f"**{title}**", "", _table(rows)]
    if len(rows) > _MAX_ROWS:
        return [f"**{title}**: {len(rows):,} rows, in the result file only.", ""]
    summary = f"<details><summary><b>{title}</b>, {len(rows)} rows</summary>"
    return [summary, "", _table(rows), "</details>", ""]


def _table(rows: list[Row]) -> str:
    """Render a Markdown table; columns without any value are left out."""
    names = dict.fromkeys(name for row in rows for name in row)
    columns = [name for name in names if any(row.get(name) is not None for row in rows)]
    lines = [
        f"| {' | '.join(columns)} |",
        f"|{'|'.join(' --: ' if _is_number(rows, name) else ' --- ' for name in columns)}|",
        *(f"| {' | '.join(_cell(row.get(name)) for name in columns)} |" for row in rows),
    ]
    return "\n".join(lines) + "\n"


def _cell(cell: Cell) -> str:
    return format_cell(cell).replace("|", "\\|")


def _is_number(rows: list[Row], column: str) -> bool:
    values: list[Cell] = [row[column] for row in rows if row.get(column) is not None]
    return sum(isinstance(value, int | float) for value in values) * 2 > len(values)


if __name__ == "__main__":
    typer.run(main)
