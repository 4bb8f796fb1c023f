"""Summarizes the rows of all cases in tables: joins by n, times, crossover, and ``auto``.

Times are divided by that of the fastest of the six formulas in the same case and batch size.
Medians are of these ratios, not of times of different cases.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from statistics import geometric_mean, median

from benchmarks.formulas.contest import AUTO, FORMULAS
from benchmarks.result import Cell, Row
from dbsp_wcoj.formulas import count_joins

__all__ = ["choice_table", "crossover_table", "joins_by_n", "times_table", "worst_choices"]

FIXED = tuple(name for name in FORMULAS if name != AUTO)
RECURSIVE = tuple(name for name in FIXED if name.startswith("recursive"))
# A formula is faster if its time is below this share of the other's; a smaller difference is a tie.
FASTER_RATIO = 0.9
# ``auto`` meets its target if its time is at most this multiple of the fastest formula's.
AUTO_TARGET = 1.1

# The rows of one case and batch size, by formula.
Contest = dict[str, Row]
# The case and batch size: shape, n, changed relations, data, batch.
Key = tuple[Cell, ...]


def contests(rows: Sequence[Row]) -> Iterator[tuple[Key, Contest]]:
    """Group the rows by case and batch size; yield each key with its rows by formula."""
    names = ("shape", "n", "changed", "data", "rows", "batch")
    for key, group in groupby(rows, key=lambda row: tuple(row[name] for name in names)):
        yield (*key[:4], key[5]), {str(row["formula"]): row for row in group}


def joins_by_n(rows: Sequence[Row]) -> list[Row]:
    """Return the joins of a step of each formula, on paths, by changed relations and n.

    Only batches of 100 rows and more count: in smaller ones the partial delta of a recursive
    formula can be empty, and the formula leaves out the joins of an empty delta.
    """
    row_by_key: dict[Key, Row] = {}
    for (shape, n, changed, _, batch), contest in contests(rows):
        if shape == "path" and changed != "self" and as_number(batch) >= 100:
            row = row_by_key.setdefault((changed, n), {"changed": changed, "n": n})
            for name in FIXED:
                joins = contest[name]["joins/step"] if name in contest else None
                row[name] = row.get(name) if joins is None else _without_fraction(joins)
    return sorted(row_by_key.values(), key=lambda row: (str(row["changed"]), as_number(row["n"])))


def times_table(rows: Sequence[Row]) -> list[Row]:
    """Return the median ratios to the fastest formula, by shape, n, changed relations and batch."""
    ratios: dict[Key, dict[str, list[float]]] = {}
    fastest: dict[Key, list[float]] = {}
    stopped: dict[Key, int] = {}
    for (shape, n, changed, _, batch), contest in contests(rows):
        if not any(step_ms(contest, name) for name in FIXED):
            continue
        key = (shape, "2 to 4" if as_number(n) <= 4 else "5 and more", changed, batch)
        for name in FORMULAS:
            ratio = contest[name]["ratio to the fastest"] if name in contest else None
            if ratio is not None:
                ratios.setdefault(key, {}).setdefault(name, []).append(float(ratio))
            elif name in FIXED:
                stopped[key] = stopped.get(key, 0) + 1
        fastest.setdefault(key, []).append(min(step_ms(contest, name) or 1e9 for name in FIXED))
    return [
        {
            **dict(zip(("shape", "n", "changed", "batch"), key, strict=True)),
            "cases": len(fastest[key]),
            "fastest ms": median(fastest[key]),
            **{
                # No median if the formula was stopped in half of the cases, or in more.
                name: median(ratios_of_key[name])
                if len(ratios_of_key.get(name, [])) * 2 > len(fastest[key])
                else None
                for name in FORMULAS
            },
            "stopped": stopped.get(key),
        }
        for key, ratios_of_key in ratios.items()
    ]


def crossover_table(rows: Sequence[Row]) -> list[Row]:
    """Return from which n on the best recursive formula beats `collapsed`: in joins, and in time.

    "from n" holds for that n and every larger one that was measured at the batch size.
    """
    # By shape, changed relations and batch; then by n; then by data: whether a recursive formula
    # has fewer joins than `collapsed`, and whether it is faster.
    recursion_wins: dict[Key, dict[int, dict[str, tuple[bool, bool]]]] = {}
    for (shape, n, changed, data, batch), contest in contests(rows):
        collapsed_ms = step_ms(contest, "collapsed")
        recursive_ms = [ms for name in RECURSIVE if (ms := step_ms(contest, name)) is not None]
        if collapsed_ms is None and not recursive_ms:
            continue
        middle_atom = int(as_number(n)) // 2
        changed_atoms = {middle_atom} if changed == "one" else None  # None: all atoms
        fewest = min(
            count_joins(name, int(as_number(n)), changed=changed_atoms) for name in RECURSIVE
        )
        has_fewer_joins = fewest < count_joins(
            "collapsed", int(as_number(n)), changed=changed_atoms
        )
        is_faster = collapsed_ms is None or (
            bool(recursive_ms) and min(recursive_ms) < FASTER_RATIO * collapsed_ms
        )
        by_n = recursion_wins.setdefault((shape, changed, batch), {})
        by_n.setdefault(int(as_number(n)), {}).setdefault(str(data), (has_fewer_joins, is_faster))
    return [
        {
            **dict(zip(("shape", "changed", "batch"), key, strict=True)),
            "measured n": ", ".join(map(str, sorted(by_n))),
            "fewer joins from n": _from(
                by_n, lambda by_data: all(fewer for fewer, _ in by_data.values())
            ),
            **{
                f"faster from n, {data}": _from(
                    {n: by_data for n, by_data in by_n.items() if data in by_data},
                    lambda by_data, data=data: by_data[data][1],  # type: ignore[misc]
                )
                for data in ("uniform", "skewed")
            },
        }
        for key, by_n in recursion_wins.items()
    ]


def choice_table(rows: Sequence[Row]) -> list[Row]:
    """Compare ``auto`` and each formula with the best formula of each case, over all cases."""
    measured = [
        contest for _, contest in contests(rows) if any(step_ms(contest, name) for name in FIXED)
    ]
    table: list[Row] = []
    for name in (AUTO, *FIXED):
        ratios = [
            float(row["ratio to the fastest"])
            for contest in measured
            if (row := contest.get(name)) is not None and row["ratio to the fastest"] is not None
        ]
        if ratios:
            table.append(
                {
                    "formula": name,
                    "cases": len(measured),
                    "stopped": len(measured) - len(ratios),
                    "within 10 %": sum(ratio <= AUTO_TARGET for ratio in ratios),
                    "mean ratio to the fastest": geometric_mean(ratios),
                    "worst": max(ratios),
                }
            )
    return table


def worst_choices(rows: Sequence[Row], max_rows: int = 10) -> list[Row]:
    """Return the cases in which ``auto`` is slowest relative to the fastest formula."""
    choices: list[Row] = []
    for (shape, n, changed, data, batch), contest in contests(rows):
        row = contest.get(AUTO)
        if row is None or not any(step_ms(contest, name) for name in FIXED):
            continue
        best = min(FIXED, key=lambda name: step_ms(contest, name) or 1e9)
        ratio = row["ratio to the fastest"]
        choices.append(
            {
                "shape": shape,
                "n": n,
                "changed": changed,
                "data": data,
                "batch": batch,
                "best formula": best,
                "best ms": step_ms(contest, best),
                "auto ms": row["ms/step p50"],
                "auto runs": _formula_of_auto(contest),
                "auto/fastest": ratio,
                "met": ratio is not None and float(ratio) <= AUTO_TARGET,
            }
        )
    choices.sort(key=lambda row: -float(row["auto/fastest"] or 1e9))
    return choices[:max_rows]


def _from(by_n: dict[int, dict[str, tuple[bool, bool]]], holds) -> Cell:  # type: ignore[no-untyped-def]
    """Return the smallest n from which on ``holds`` is true for every larger n; else "never"."""
    smallest: Cell = "never"
    for n in sorted(by_n, reverse=True):
        if not holds(by_n[n]):
            break
        smallest = n
    return smallest


def _formula_of_auto(contest: Contest) -> Cell:
    """Return the candidate of ``auto`` with the same counted work; None if it ran both in turn."""
    counts = ("proposals/step", "intersections/step")
    return next(
        (
            name
            for name in ("collapsed", "recursive_collapsed")
            if name in contest
            and all(contest[name][count] == contest[AUTO][count] for count in counts)
        ),
        None,
    )


def step_ms(contest: Contest, name: str) -> float | None:
    """Return the milliseconds of a step; None if the formula did not run."""
    row = contest.get(name)
    return None if row is None or row["ms/step p50"] is None else float(row["ms/step p50"])


def as_number(cell: Cell) -> float:
    """Return a cell as a number; an empty cell as 0."""
    return float(cell or 0)


def _without_fraction(cell: Cell) -> Cell:
    """Return a number as an int if it is whole."""
    number = as_number(cell)
    return int(number) if number == int(number) else number
