"""Aggregates the measured cases, so that the result file need not keep a row for each of them.

A run of all cases has about 4,000 rows: shape, atoms, what changes, data, batch size, formula. The
result file keeps quartiles of the times relative to the fastest formula, by atoms and by batch
size, and the medians of one slice that `benchmarks.report.charts` plots. The other tables of the
file (`benchmarks.formulas.tables`) are aggregates already.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import quantiles

from benchmarks.result import Cell, Row

__all__ = ["aggregate", "ratios", "times_by_atoms"]

PLOTTED_BATCH = 100


def aggregate(
    rows_of_atom_cases: Sequence[Row], rows_of_batch_cases: Sequence[Row]
) -> dict[str, list[Row]]:
    """Summarize the rows of all cases in tables of a result file.

    Args:
        rows_of_atom_cases: Rows of the cases that vary the number of atoms.
        rows_of_batch_cases: Rows of the cases that vary the batch size.
    """
    rows = [*rows_of_atom_cases, *rows_of_batch_cases]
    return {
        "Ratios by atoms": ratios(rows, ("shape", "n")),
        "Ratios by batch": ratios(rows, ("shape", "batch")),
        "Times by atoms": times_by_atoms(rows_of_atom_cases),
    }


def ratios(rows: Iterable[Row], by: Sequence[str]) -> list[Row]:
    """Compute quartiles of the times relative to the fastest formula, by group and formula.

    A ratio of None means that the formula was stopped.

    >>> cases = [("auto", 1.0), ("auto", 2.0), ("auto", 3.0), ("auto", None), ("flipped", 1.5)]
    >>> rows = [{"n": 5, "formula": name, "ratio to the fastest": ratio} for name, ratio in cases]
    >>> for row in ratios(rows, ["n"]):
    ...     print(*row.values())
    5 auto 4 1 1.5 2.0 2.5 3.0
    5 flipped 1 0 1.5 1.5 1.5 1.5
    """
    groups: dict[tuple[Cell, ...], list[Row]] = {}
    names = (*by, "formula")
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    return [
        {**dict(zip(names, key, strict=True)), **_summary(group)} for key, group in groups.items()
    ]


def times_by_atoms(rows: Iterable[Row]) -> list[Row]:
    """Select the median times of steps in which all relations change, at one batch size."""
    names = ("shape", "n", "data", "formula", "ms/step p50", "stopped")
    return [
        {name: row[name] for name in names}
        for row in rows
        if row["changed"] == "all" and row["batch"] == PLOTTED_BATCH
    ]


def _summary(group: Sequence[Row]) -> Row:
    """Count the cases, and compute quartiles of the ratios of those that were not stopped."""
    measured = [float(ratio) for row in group if (ratio := row["ratio to the fastest"]) is not None]
    summary: Row = {"cases": len(group), "stopped": len(group) - len(measured)}
    if measured:
        samples = measured * 2 if len(measured) == 1 else measured  # `quantiles` needs two
        low, middle, high = quantiles(samples, method="inclusive")
        summary |= {"25 %": low, "median": middle, "75 %": high, "worst": max(measured)}
    return summary
