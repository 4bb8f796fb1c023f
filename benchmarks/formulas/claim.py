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
    RECURSIVE,
    Contest,
    Key,
    as_number,
    contests,
    joins_by_n,
    step_ms,
)
from benchmarks.result import Row

__all__ = ["judge_claims"]

FASTER = 0.9
CLAIMED = 5


def judge_claims(rows: Sequence[Row]) -> list[Row]:
    """Return a row for each claim, with the measured answer."""
    return [
        {
            "claim": "the recursion does about half the joins, but only after 5 relations",
            "measured": "; ".join(_joins(rows)),
        },
        {
            "claim": "the simpler formula might actually be faster in practice",
            "measured": "; ".join(_times(rows)),
        },
        {"claim": "the number of relations decides", "measured": "; ".join(_where(rows))},
    ]


def _joins(rows: Sequence[Row]) -> Iterator[str]:
    """Yield from which number of relations each recursive formula does fewer joins."""
    table = joins_by_n(rows)
    for changed, said in (("all", "where all relations change"), ("one", "where one changes")):
        counted = [row for row in table if row["changed"] == changed]
        if not counted:
            continue
        last = counted[-1]
        for name in RECURSIVE:
            fewer = [row for row in counted if as_number(row[name]) < as_number(row["collapsed"])]
            if not fewer:
                yield f"{said}, `{name}` never does fewer"
                continue
            yield (
                f"{said}, `{name}` does fewer than `collapsed` from n = {fewer[0]['n']} on, "
                f"{last[name]} against {last['collapsed']} at n = {last['n']}"
            )


def _times(rows: Sequence[Row]) -> Iterator[str]:
    """Yield how often `collapsed` is as fast as the best recursive formula."""
    for few, said in ((True, f"less than {CLAIMED}"), (False, f"{CLAIMED} and more")):
        compared = [
            ratio
            for key, contest in contests(rows)
            if (as_number(key[1]) < CLAIMED) == few and (ratio := _ratio(contest)) is not None
        ]
        if compared:
            simpler = sum(ratio >= FASTER for ratio in compared)
            yield (
                f"of {len(compared):,} cases of {said} atoms `collapsed` is as fast as the best "
                f"recursion or faster in {simpler:,}, and in the median the recursion takes "
                f"{median(compared):.2g} times as long"
            )


def _where(rows: Sequence[Row]) -> Iterator[str]:
    """Yield for each shape in how many cases a recursive formula is faster."""
    shapes: dict[str, list[tuple[Key, Contest]]] = {}
    for key, contest in contests(rows):
        if _ratio(contest) is not None:
            shapes.setdefault(str(key[0]), []).append((key, contest))
    for shape, compared in shapes.items():
        won = [(key, c) for key, c in compared if (_ratio(c) or 1.0) < FASTER]
        said = f"{shape}: a recursion is faster in {len(won)} of {len(compared)} cases"
        if won:
            best = min(_ratio(contest) or 1.0 for _, contest in won)
            ns = ", ".join(map(str, sorted({int(as_number(key[1])) for key, _ in won})))
            work = min(_work(contest) for _, contest in won)
            said += (
                f" (n = {ns}), by up to {1 / best:.2g} times, and in none where `collapsed` counts "
                f"less than {work:,.0f} proposals and intersections a step"
            )
        yield said


def _ratio(contest: Contest) -> float | None:
    """Return the time of the best recursive formula divided by that of `collapsed`, if both ran."""
    plain = step_ms(contest, "collapsed")
    others = [found for name in RECURSIVE if (found := step_ms(contest, name)) is not None]
    return min(others) / plain if others and plain else None


def _work(contest: Contest) -> float:
    row = contest["collapsed"]
    return as_number(row["proposals/step"]) + as_number(row["intersections/step"])
