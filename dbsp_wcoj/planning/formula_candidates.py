"""The candidates: the formulas that the steps of a view may run, and why these.

A formula that is named is the only one. With ``auto`` the formula_candidates are `collapsed` and,
if its work is bounded, `recursive_collapsed`; each step runs the one that costs less, by what was
counted (`dbsp_wcoj.planning.adaptive_formula`).

`collapsed` is one generic join per changed atom, each worst-case optimal. The recursions pass
partial deltas ``D_i`` on instead: joins of the first i atoms, as large as these are. So a recursion
is a candidate only where atom i + 1 holds all variables that ``D_i`` keeps, for each i. Each row of
that atom then meets one row of ``D_i`` at most, and the work is bounded by the rows of the
relations. Counts and sums over paths and stars are so. Cycles, cliques, and joins whose rows are
listed are not, and always run `collapsed`. Measured (`benchmarks.formulas`), the four other
formulas are nowhere better than the better one of these two, but for noise.

A choice never changes what a step gives. It is not stored: a view that goes on from stored state
begins to count anew, and can go on from the state of any formula. What it needs of memory is the
arrangements of both candidates, which `explain` lists; those of the recursion are those of
`collapsed` as a rule.

The way not taken: to decide by n alone, as counted joins suggest (from five atoms a recursion does
fewer). A partial delta costs more than a join of a few rows, so small steps are slower by it
whatever n is; and on cyclic queries no n makes up for the lost bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal

from dbsp_wcoj.arguments import check_type
from dbsp_wcoj.errors import FormulaError
from dbsp_wcoj.formulas import CustomFormula, Formula
from dbsp_wcoj.planning.adaptive_formula import AdaptiveFormula

__all__ = ["AUTO", "FormulaName", "describe_choice", "formula_candidates", "parse_formula"]

FormulaName = Formula | CustomFormula | Literal["auto"]

AUTO: Final = "auto"
# Of two atoms a recursion shares nothing.
FEWEST_ATOMS: Final = 3


def parse_formula(formula: object) -> FormulaName:
    """Return a formula given by its name, as `AUTO`, or as terms.

    Args:
        formula: A name; or a sequence of `dbsp_wcoj.formulas.Term` or of their texts; or one text
            that contains ``+=``, as `dbsp_wcoj.formulas.CustomFormula.parse` reads it.

    Raises:
        FormulaError: There is no such formula, and the message lists them; or the terms are not
            the delta of a join.

    >>> parse_formula("auto"), parse_formula("flipped")
    ('auto', <Formula.flipped: 'flipped'>)
    >>> str(parse_formula("D2 += d1 O2; D2 += N1 d2"))
    'D2 += d1 O2; D2 += N1 d2'
    >>> parse_formula("best")
    Traceback (most recent call last):
    ...
    dbsp_wcoj.errors.FormulaError: unknown formula 'best'; use one of auto, expanded, collapsed, \
flipped, recursive, recursive_collapsed, recursive_flipped
    """
    if isinstance(formula, CustomFormula):
        return formula
    check_type("formula", formula, (str, Sequence), "the name of a formula, or a list of terms")
    if not isinstance(formula, str):
        assert isinstance(formula, Sequence)
        return CustomFormula(formula)
    if formula == AUTO:
        return AUTO
    if "+=" in formula:
        return CustomFormula.parse(formula)
    try:
        return Formula(formula)
    except ValueError:
        names = ", ".join([AUTO, *Formula])
        raise FormulaError(f"unknown formula {formula!r}; use one of {names}") from None


def formula_candidates(
    name: FormulaName, atoms: Sequence[tuple[str, ...]], kept: Callable[[int], tuple[str, ...]]
) -> tuple[tuple[Formula | CustomFormula, ...], str]:
    """The formulas that steps may run, and why there is only one.

    Args:
        name: A formula or `AUTO`.
        atoms: The variables of each atom.
        kept: The variables that ``D_i`` keeps, by i from 1.

    >>> path, triangle = [("a", "b"), ("b", "c"), ("c", "d")], [("a", "b"), ("b", "c"), ("c", "a")]
    >>> formula_candidates("auto", path, lambda i: "abcd"[i])[0]
    (<Formula.collapsed: 'collapsed'>, <Formula.recursive_collapsed: 'recursive_collapsed'>)
    >>> formula_candidates("auto", triangle, {1: ("a", "b"), 2: ("a", "c")}.__getitem__)[1]
    'D1 of a recursion holds a, b, and atom 2 not all of these'
    """
    if name != AUTO:
        return (name,), ""
    if len(atoms) < FEWEST_ATOMS:
        return (Formula.collapsed,), f"a recursion over {len(atoms)} atoms shares nothing"
    for i in range(1, len(atoms)):
        if not set(kept(i)) <= set(atoms[i]):
            return (Formula.collapsed,), (
                f"D{i} of a recursion holds {', '.join(kept(i))}, and atom {i + 1} not all of these"
            )
    return (Formula.collapsed, Formula.recursive_collapsed), ""


def describe_choice(
    name: FormulaName,
    formulas: Sequence[Formula | CustomFormula],
    reason: str,
    chosen: Iterable[tuple[Sequence[str], AdaptiveFormula]],
) -> str:
    """For `explain`: the formula; of ``auto`` which one, and why.

    >>> describe_choice("auto", [Formula.collapsed], "of the sake of an example", [])
    'auto: collapsed, because of the sake of an example'
    """
    if name != AUTO:
        return str(name)
    if len(formulas) == 1:
        return f"auto: {formulas[0]}, because {reason}"
    names = " or ".join(map(str, formulas))
    lines = [f"auto: {names}, by proposals and intersections per changed row"]
    for changed, alternatives in chosen:
        for digits, counted in tuple(alternatives.known.items()):
            found = [
                f"{formula} {rate:,.1f} ({steps:,} steps)"
                for formula, rate, steps in zip(formulas, counted.average, counted.ran, strict=True)
                if rate is not None
            ]
            names = ", ".join(changed)
            lines.append(
                f"  {names}, {1 << (digits - 1):,} rows and more: {', '.join(found) or 'begun'}"
            )
    return "\n".join(lines)
