"""The command ``python -m benchmarks.growth``: runs the parts, and fits growth exponents."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.engine import warm_up
from benchmarks.growth.dimensions import (
    Setting,
    measure_by_delta,
    measure_by_skew,
    measure_by_state,
    measure_by_threads,
    measure_by_views,
)
from benchmarks.growth.fit import fit_exponent
from benchmarks.options import check_names
from benchmarks.result import Result, Row, terminal
from benchmarks.verdict import Verdict

CLAIM = (
    "At a fixed delta and degree, a step takes at most twice as long over 10⁸ rows of state as "
    "over 10⁶"
)
STATE, DELTA, SKEW, VIEWS, THREADS = "State", "Delta", "Skew", "Views", "Threads"
EXPONENTS = "Growth exponents"
PARTS = ("state", "delta", "skew", "views", "threads")


@dataclass(frozen=True)
class Sizes:
    """The sizes of all parts; the dicts map the rows of a step to the number of steps."""

    state: tuple[int, ...]  # rows of state of the part state, over uniform edges
    skewed_state: tuple[int, ...]  # the same, over skewed edges
    state_steps: dict[int, int]
    other_state: int  # rows of state of the parts delta, skew, views and threads
    delta_steps: dict[int, int]
    exponents: tuple[float, ...]
    views: tuple[int, ...]
    threads: tuple[int, ...]
    threads_steps: dict[int, int]
    batch: int
    steps: int


FULL = Sizes(
    state=(100_000, 1_000_000, 10_000_000, 100_000_000),
    skewed_state=(100_000, 1_000_000, 10_000_000, 100_000_000),
    state_steps={1: 2_000, 100: 200, 1_000: 40},
    other_state=1_000_000,
    delta_steps={1: 2_000, 10: 400, 100: 100, 1_000: 40, 10_000: 10, 100_000: 3},
    exponents=(0.0, 0.25, 0.5, 0.75, 1.0),
    views=(1, 2, 4, 8, 16),
    threads=(1, 2),
    threads_steps={10_000: 10, 100_000: 3},
    batch=1_000,
    steps=40,
)
QUICK = Sizes(
    state=(10_000, 100_000),
    skewed_state=(10_000,),
    state_steps={1: 100, 1_000: 3},
    other_state=20_000,
    delta_steps={1: 50, 100: 5, 5_000: 2},
    exponents=(0.0, 1.0),
    views=(1, 4),
    threads=(1, 2),
    threads_steps={5_000: 2},
    batch=100,
    steps=5,
)


def main(
    part: Annotated[
        list[str], typer.Option(help=f"Parts to run, of {', '.join(PARTS)}; all by default.")
    ] = list(PARTS),  # noqa: B006
    max_rows: Annotated[int, typer.Option(help="Leave out states of more rows.")] = 10**9,
    quick: Annotated[bool, typer.Option(help="Small sizes.")] = False,
    seed: int = 0,
    json: Annotated[Path | None, typer.Option(help="Write the result here.")] = None,
) -> None:
    """Measure; exit status 1 if an answer is wrong."""
    check_names(part, PARTS, "part")
    measure(QUICK if quick else FULL, part=part, max_rows=max_rows, seed=seed, json=json)


def measure(sizes: Sizes, *, part: list[str], max_rows: int, seed: int, json: Path | None) -> None:
    """Run the parts, each with its table, and fit the growth exponents."""
    verdict = Verdict()
    tables: dict[str, list[Row]] = {}
    result = Result("growth", CLAIM, tables)
    setting = Setting(seed, verdict, terminal().print)
    warm_up(max(sizes.threads))
    size, batch, steps = sizes.other_state, sizes.batch, sizes.steps
    fits: list[Row] = []
    if "state" in part:
        tables[STATE] = []
        for skew, all_sizes in ((0.0, sizes.state), (0.75, sizes.skewed_state)):
            state_sizes = tuple(state_size for state_size in all_sizes if state_size <= max_rows)
            rows = measure_by_state(state_sizes, sizes.state_steps, skew=skew, setting=setting)
            tables[STATE] += rows
            if not rows:
                continue
            for batch_size in sizes.state_steps:
                batch_rows = [row for row in rows if row["batch"] == batch_size]
                title = f"{batch_rows[0]['graph']}, steps of {batch_size:,}"
                fits.append(fit_exponent(title, batch_rows, "rows", "step ms"))
            title = f"{batch_rows[0]['graph']}, memory"
            fits.append(fit_exponent(title, batch_rows, "rows", "MB"))
    if "delta" in part:
        tables[DELTA] = measure_by_delta(size, sizes.delta_steps, setting=setting)
        fits.append(fit_exponent("delta", tables[DELTA], "batch", "step ms"))
    if "skew" in part:
        tables[SKEW] = measure_by_skew(size, sizes.exponents, batch, steps, setting=setting)
        fits.append(fit_exponent("skew", tables[SKEW], "candidates/row", "step ms"))
    if "views" in part:
        tables[VIEWS] = measure_by_views(size, sizes.views, batch, steps, setting=setting)
        fits.append(fit_exponent("views", tables[VIEWS], "views", "step ms"))
        fits.append(fit_exponent("views", tables[VIEWS], "views", "MB"))
    if "threads" in part:
        tables[THREADS] = measure_by_threads(
            size, sizes.threads, sizes.threads_steps, setting=setting
        )
        fits.append(fit_exponent("threads", tables[THREADS], "threads", "step ms"))
    tables[EXPONENTS] = fits
    verdict.close(result, json)


if __name__ == "__main__":
    typer.run(main)
