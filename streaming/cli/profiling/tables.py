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

#: In which order phases are shown; others as they came, after "graph".
ORDER: Final = (
    *("encode", "sort", "build runs", "graph", "plan", JOIN, "collect"),
    *("decode", "write", "merge", "commit", "other"),
)
MEANINGS: Final = {
    "encode": "values to codes",
    "sort": "deltas sorted, equal rows added up",
    "build runs": "deltas arranged in each column order",
    "graph": "between the operators",
    "plan": "choosing and readying terms",
    JOIN: "the generic join, all terms",
    "collect": "what joins give, sorted and added up",
    "decode": "codes to values",
    "write": "deltas and state to files, synced",
    "merge": "the upkeep of arrangements",
    "commit": "making the step the state",
    "other": "what no phase claims, the profiler's own time among it",
}
_BAR: Final = 20


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
        "Candidates are values proposed in a run of a term, once for each piece of a relation that "
        "is looked in; look-ups those made of them in other atoms. The bound is the AGM bound of "
        "the query so far, for the sizes of the pieces together.",
        "Time by level is sampled; levels that are summed together count as the first of them."
        if sampled
        else "Levels have no times: they are sampled where one thread joins, and for long enough.",
    ]
    console.print("\n".join(notes), style="dim")


def as_json(profile: Profile) -> dict[str, Any]:
    """Plain dicts, lists, numbers and texts."""
    return asdict(profile)


def _phases(profile: Profile) -> Table:
    table = Table(title="Where a step's time goes", title_justify="left")
    table.add_column("phase")
    for name in ("ms/step", "%", "calls/step", "rows/step"):
        table.add_column(name, justify="right")
    table.add_column("", min_width=_BAR)
    table.add_column("what", style="dim")
    positions = {name: position for position, name in enumerate(ORDER)}
    after_graph = positions["graph"] + 0.5  # where operators are listed
    for part in sorted(profile.parts, key=lambda part: positions.get(part.phase, after_graph)):
        table.add_row(
            part.phase,
            _ms(part.ms),
            f"{100 * part.share:.1f}",
            f"{part.calls:,.4g}" if part.calls else "",
            f"{part.rows:,.0f}" if part.rows else "",
            "█" * round(_BAR * part.share),
            MEANINGS.get(part.phase, "an operator"),
        )
    return table


def _levels(profile: Profile, name: str, query: str) -> Table:
    table = Table(title=f"Join {name} by term and level\n{query}", title_justify="left")
    table.add_column("term")
    table.add_column("level")
    for column in ("ms/step", "candidates", "look-ups", "AGM bound", "% of it"):
        table.add_column(column, justify="right")
    for term in profile.terms:
        if term.join != name:
            continue
        table.add_row(f"{term.term}", "", f"[bold]{_ms(term.ms)}[/]", end_section=not term.levels)
        for place, level in enumerate(term.levels):
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
                end_section=place == len(term.levels) - 1,
            )
    return table


def _state(profile: Profile) -> Table:
    table = Table(title="State", title_justify="left")
    table.add_column("arrangement")
    for name in ("rows", "runs", "bytes", "bytes/row", "by 8 a column"):
        table.add_column(name, justify="right")
    for arrangement in profile.state:
        by_row = arrangement.bytes / arrangement.rows if arrangement.rows else 0.0
        table.add_row(
            arrangement.name,
            *_counts((arrangement.rows, arrangement.runs, arrangement.bytes)),
            f"{by_row:.3g}",
            f"{by_row / (8 * arrangement.columns):.2f}",
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
