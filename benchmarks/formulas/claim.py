"""Compares three claims about the recursive formulas with the measurements.

The claims: a recursive formula "does fewer joins (only about half as many)", but "this only
amortizes after 5 relations are involved", and "the simpler formula might actually be faster in
practice". The answers are generated from the counted joins, work and times. A time within 10 % is
a tie.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from benchmarks.formulas.tables import (
    FASTER_RATIO,
    RECURSIVE,
    Contest,
    Key,
    as_number,
    contests,
    joins_by_n,
    step_ms,
)
from benchmarks.result import Row

__all__ = ["compare_claims"]

# The number of relations from which on the claim says that recursion pays.
CLAIMED_RELATIONS = 5


def compare_claims(rows: Sequence[Row]) -> list[Row]:
    """Return a row for each claim, with the measured answer."""
    return [
        {
            "claim": "the recursion does about half the joins, but only after 5 relations",
            "measured": "with n relations, these have fewer joins than `collapsed`: "
            + "; ".join(_compare_joins(rows)),
        },
        {
            "claim": "the simpler formula might actually be faster in practice",
            "measured": "; ".join(_compare_times(rows)),
        },
        {"claim": "the number of relations decides", "measured": "; ".join(_faster_cases(rows))},
    ]


def _compare_joins(rows: Sequence[Row]) -> Iterator[str]:
    """Yield from which number of relations each recursive formula does fewer joins."""
    table = joins_by_n(rows)
    for changed, case in (("all", "where all relations change"), ("one", "where one changes")):
        table_rows = [row for row in table if row["changed"] == changed]
        if not table_rows:
            continue
        last = table_rows[-1]
        formulas = []
        for name in RECURSIVE:
            fewer = [
                row for row in table_rows if as_number(row[name]) < as_number(row["collapsed"])
            ]
            if fewer:
                formulas.append(
                    f"`{name}` from n = {fewer[0]['n']} on "
                    f"({last[name]} against {last['collapsed']} at n = {last['n']})"
                )
        yield f"{case}, {', '.join(formulas) or 'none'}"


def _compare_times(rows: Sequence[Row]) -> Iterator[str]:
    """Yield how often `collapsed` is as fast as the best recursive formula."""
    for is_below, atoms in (
        (True, f"less than {CLAIMED_RELATIONS}"),
        (False, f"{CLAIMED_RELATIONS} and more"),
    ):
        ratios = [
            ratio
            for key, contest in contests(rows)
            if (as_number(key[1]) < CLAIMED_RELATIONS) == is_below
            and (ratio := _ratio(contest)) is not None
        ]
        if ratios:
            simpler = sum(ratio >= FASTER_RATIO for ratio in ratios)
            yield (
                f"of {len(ratios):,} cases of {atoms} atoms `collapsed` is as fast as the best "
                f"recursion or faster in {simpler:,}, and in the median the recursion takes "
                f"{median(ratios):.2g} times as long"
            )


def _faster_cases(rows: Sequence[Row]) -> Iterator[str]:
    """Yield for each shape in how many cases a recursive formula is faster."""
    shapes: dict[str, list[tuple[Key, Contest]]] = {}
    for key, contest in contests(rows):
        if _ratio(contest) is not None:
            shapes.setdefault(str(key[0]), []).append((key, contest))
    for shape, cases in shapes.items():
        won = [(key, contest) for key, contest in cases if (_ratio(contest) or 1.0) < FASTER_RATIO]
        sentence = f"{shape}: a recursion is faster in {len(won)} of {len(cases)} cases"
        if won:
            best = min(_ratio(contest) or 1.0 for _, contest in won)
            atoms = ", ".join(map(str, sorted({int(as_number(key[1])) for key, _ in won})))
            work = min(_work(contest) for _, contest in won)
            sentence += (
                f" (with {atoms} relations), by up to {1 / best:.2g} times, and in each of "
                f"these `collapsed` counts about {work:,.0f} or more proposals and intersections a "
                "step"
            )
        yield sentence


def _ratio(contest: Contest) -> float | None:
    """Return the time of the best recursive formula divided by that of `collapsed`, if both ran."""
    collapsed_ms = step_ms(contest, "collapsed")
    recursive_ms = [ms for name in RECURSIVE if (ms := step_ms(contest, name)) is not None]
    return min(recursive_ms) / collapsed_ms if recursive_ms and collapsed_ms else None


def _work(contest: Contest) -> float:
    row = contest["collapsed"]
    return as_number(row["proposals/step"]) + as_number(row["intersections/step"])
