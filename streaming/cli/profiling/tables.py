"""A profile as tables for a terminal, and as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from dbsp_wcoj.observer import JOIN
from streaming.cli.profiling.measure import Profile

__all__ = ["as_json", "show"]

#: The order in which phases are shown. Operators follow "graph", in the order of their first call.
ORDER: Final = (
    *("encode", "sort", "build runs", "graph", "plan", JOIN, "collect"),
    *("decode", "write", "merge", "commit", "other"),
)
DESCRIPTIONS: Final = {
    "encode": "convert values to codes",
    "sort": "sort deltas, and add up equal rows",
    "build runs": "arrange deltas in each column order",
    "graph": "pass deltas between operators",
    "plan": "choose and bind the terms of joins",
    JOIN: "run the generic join, all terms",
    "collect": "sort the results of joins, and add up equal rows",
    "decode": "convert codes to values",
    "write": "write deltas and state to files, and sync them",
    "merge": "merge the runs of arrangements",
    "commit": "make the step the current state",
    "other": "the remaining time, with that of the profiler itself",
}
_BAR_WIDTH: Final = 20


def show(profile: Profile, console: Console) -> None:
    """Print all tables."""
    console.print(
        f"{profile.steps} steps of {profile.batch:,.0f} rows over {profile.loaded:,} rows "
        f"(loaded in {profile.load_ms:,.0f} ms): median [bold]{_ms(profile.median_ms)} ms[/], "
        f"mean {_ms(profile.mean_ms)} ms, 99 % {_ms(profile.p99_ms)} ms; {profile.rows_out:,.4g} "
        f"rows out; mean while profiled {_ms(profile.profiled_ms)} ms"
    )
    if profile.written is not None:
        console.print(f"{profile.written:,.0f} bytes written in a step")
    console.print(_phases(profile))
    for name, query in profile.queries.items():
        if any(term.join == name for term in profile.terms):
            console.print(_levels(profile, name, query))
    console.print(_state(profile))
    sampled = any(level.seconds is not None for term in profile.terms for level in term.levels)
    notes = [
        "Candidates are the values that the atoms propose in one run of a term, counted once for "
        "each run of an arrangement that is read. Look-ups are the searches for candidates in "
        "other atoms. The bound is the AGM bound of the variables up to this level.",
        "The time of a level is sampled; the first of several summed levels has the time of all."
        if sampled
        else "Levels have no times, because the joins ran too shortly, or in several threads.",
    ]
    console.print("\n".join(notes), style="dim")


def as_json(profile: Profile) -> dict[str, Any]:
    """Return the profile as dicts, lists, numbers and texts."""
    return asdict(profile)


def _phases(profile: Profile) -> Table:
    table = Table(title="Where a step's time goes", title_justify="left")
    table.add_column("phase")
    for name in ("ms/step", "%", "calls/step", "rows/step"):
        table.add_column(name, justify="right")
    table.add_column("", min_width=_BAR_WIDTH)
    table.add_column("description", style="dim")
    positions = {name: position for position, name in enumerate(ORDER)}
    after_graph = positions["graph"] + 0.5  # the position of operators
    for part in sorted(profile.parts, key=lambda part: positions.get(part.phase, after_graph)):
        table.add_row(
            part.phase,
            _ms(part.ms),
            f"{100 * part.share:.1f}",
            f"{part.calls:,.4g}" if part.calls else "",
            f"{part.rows:,.0f}" if part.rows else "",
            "█" * round(_BAR_WIDTH * part.share),
            DESCRIPTIONS.get(part.phase, "an operator"),
        )
    return table


def _levels(profile: Profile, name: str, query: str) -> Table:
    table = Table(title=f"Join {name} by term and level\n{query}", title_justify="left")
    table.add_column("term")
    table.add_column("level")
    for column in ("ms/step", "candidates", "look-ups", "AGM bound", "% of bound"):
        table.add_column(column, justify="right")
    for term in profile.terms:
        if term.join != name:
            continue
        table.add_row(f"{term.term}", "", f"[bold]{_ms(term.ms)}[/]", end_section=not term.levels)
        for position, level in enumerate(term.levels):
            bound = level.bound
            seconds = None if level.seconds is None else 1000 * level.seconds * term.runs
            table.add_row(
                "",
                level.variable if level.is_listed else f"{level.variable} (summed)",
                "" if seconds is None else _ms(seconds),
                f"{level.proposals:,.0f}",
                f"{level.intersections:,.0f}",
                f"{bound:,.0f}" if bound < 1e9 else f"{bound:.2g}",
                f"{100 * level.proposals / bound:.3g}" if bound else "",
                end_section=position == len(term.levels) - 1,
            )
    return table


def _state(profile: Profile) -> Table:
    table = Table(title="State", title_justify="left")
    table.add_column("arrangement")
    for name in ("rows", "runs", "bytes", "bytes/row", "× 8 bytes per column"):
        table.add_column(name, justify="right")
    for arrangement in profile.state:
        bytes_per_row = arrangement.bytes / arrangement.rows if arrangement.rows else 0.0
        table.add_row(
            arrangement.name,
            *_counts((arrangement.rows, arrangement.runs, arrangement.bytes)),
            f"{bytes_per_row:.3g}",
            f"{bytes_per_row / (8 * arrangement.columns):.2f}",
        )
    rows, runs, size = (
        sum(getattr(arrangement, name) for arrangement in profile.state)
        for name in ("rows", "runs", "bytes")
    )
    table.add_row("all", *_counts((rows, runs, size)), "", "", style="bold")
    return table


def _counts(numbers: Iterable[int]) -> list[str]:
    return [f"{number:,}" for number in numbers]


def _ms(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
