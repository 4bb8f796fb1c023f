"""Formula candidates: the delta formulas that the steps of a view may run.

A formula that the user names is the only candidate. With ``auto`` the candidates are `collapsed`
and, if its work is bounded, `recursive_collapsed`; each step then runs the one with the lower
measured work (`dbsp_wcoj.planning.adaptive_formula`). If the recursion is no candidate and the
query has symmetries, a `SymmetricFormula` is the only candidate: it runs one join where `collapsed`
runs one for each of several equal atoms. `dbsp_wcoj.formulas` explains the formulas.

`collapsed` is one generic join per changed atom, each worst-case optimal. A recursive formula (here
called a recursion) computes partial deltas ``D_i`` instead, each from the one before it. ``D_i`` is
the delta of the join of the first i atoms, which can be large. So a recursion is a candidate only
if, for each i, atom i + 1 contains all variables of ``D_i`` that are still needed. Then each row of
that atom joins with at most one row of ``D_i``, and the number of rows of the relations bounds the
work. Counts and sums over paths and stars have this property. Cycles, cliques, and joins with all
variables in the head do not have it: they always run `collapsed`. In measurements
(`benchmarks.formulas`), none of the four other formulas is faster than the faster one of these two,
except for noise.

A choice never changes the result of a step. Choices are not stored: a view that is restored from
stored state starts its measurements again. It can read that state whatever formulas ran before. In
memory the view needs the arrangements of both candidates, which `explain` lists; the recursion
usually needs the same ones as `collapsed`.

Alternatives considered: to decide by the number of atoms alone, as the numbers of joins suggest
(from five atoms on, a recursion does fewer). But a partial delta costs more than a join of a few
rows, so it slows down small steps for any number of atoms; and on cyclic queries the recursion has
no bound, whatever the number of atoms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal

from dbsp_wcoj.arguments import check_type
from dbsp_wcoj.errors import FormulaError
from dbsp_wcoj.formulas import CustomFormula, Formula, SymmetricFormula
from dbsp_wcoj.planning.adaptive_formula import AdaptiveFormula

__all__ = ["AUTO", "FormulaName", "describe_choice", "formula_candidates", "parse_formula"]

FormulaName = Formula | CustomFormula | Literal["auto"]

AUTO: Final = "auto"
# Over two atoms a recursion runs the same joins as `collapsed`.
MIN_RECURSION_ATOMS: Final = 3


def parse_formula(formula: object) -> FormulaName:
    """Return a formula given by its name, as `AUTO`, or as terms.

    Args:
        formula: A name; or a sequence of `dbsp_wcoj.formulas.DeltaTerm` or of their texts; or one
            text that contains ``+=``, as `dbsp_wcoj.formulas.CustomFormula.parse` reads it.

    Raises:
        FormulaError: The name is unknown, and the message lists the formulas; or the sum of the
            terms is not the delta of a join.

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
    name: FormulaName,
    atoms: Sequence[tuple[str, ...]],
    partial_columns: Callable[[int], tuple[str, ...]],
    symmetries: Sequence[tuple[int, ...]] = (),
) -> tuple[tuple[Formula | CustomFormula | SymmetricFormula, ...], str]:
    """Return the formulas that steps may run, and the reason if ``auto`` has only one.

    Args:
        name: A formula or `AUTO`.
        atoms: The variables of each atom.
        partial_columns: Returns the variables of the partial delta ``D_i``, for i from 1.
        symmetries: The symmetries of the query (`dbsp_wcoj.planning.symmetry`).

    >>> path, triangle = [("a", "b"), ("b", "c"), ("c", "d")], [("a", "b"), ("b", "c"), ("c", "a")]
    >>> formula_candidates("auto", path, lambda i: "abcd"[i])[0]
    (<Formula.collapsed: 'collapsed'>, <Formula.recursive_collapsed: 'recursive_collapsed'>)
    >>> formula_candidates("auto", triangle, {1: ("a", "b"), 2: ("a", "c")}.__getitem__)[1]
    'D1 of a recursion keeps a, b, and atom 2 lacks some of these'
    """
    if name != AUTO:
        return (name,), ""
    reason = _find_obstacle(atoms, partial_columns)
    if not reason:
        return (Formula.collapsed, Formula.recursive_collapsed), ""
    if len(symmetries) > 1:
        return (SymmetricFormula(tuple(symmetries)),), f"the query has {len(symmetries)} symmetries"
    return (Formula.collapsed,), reason


def _find_obstacle(
    atoms: Sequence[tuple[str, ...]], partial_columns: Callable[[int], tuple[str, ...]]
) -> str:
    """Return why a recursion is not a candidate; "" if it is one."""
    if len(atoms) < MIN_RECURSION_ATOMS:
        return f"a recursion over {len(atoms)} atoms shares no work"
    for i in range(1, len(atoms)):
        columns = partial_columns(i)
        if not set(columns) <= set(atoms[i]):
            return (
                f"D{i} of a recursion keeps {', '.join(columns)}, and atom {i + 1} lacks some of "
                "these"
            )
    return ""


def describe_choice(
    name: FormulaName,
    formulas: Sequence[Formula | CustomFormula | SymmetricFormula],
    reason: str,
    selections: Iterable[tuple[Sequence[str], AdaptiveFormula]],
) -> str:
    """Describe the formula for `explain`.

    Args:
        name: The formula, or `AUTO`.
        formulas: The candidates.
        reason: Why ``auto`` has only one candidate.
        selections: For each set of relations that changed together in a step: their names, and the
            formula selection of such steps.

    >>> describe_choice("auto", [Formula.collapsed], "this is an example", [])
    'auto: collapsed, because this is an example'
    """
    if name != AUTO:
        return str(name)
    if len(formulas) == 1:
        return f"auto: {formulas[0]}, because {reason}"
    lines = [
        f"auto: {' or '.join(map(str, formulas))}, by proposals and intersections per changed row"
    ]
    for changed, selection in selections:
        for binary_digits, cost in tuple(selection.costs.items()):
            measured = [
                f"{formula} {rate:,.1f} ({steps:,} steps)"
                for formula, rate, steps in zip(
                    formulas, cost.averages, cost.step_counts, strict=True
                )
                if rate is not None
            ]
            names = ", ".join(changed)
            rates = ", ".join(measured) or "not measured yet"
            min_rows = 1 << (binary_digits - 1)
            lines.append(f"  {names}, {min_rows:,} rows and more: {rates}")
    return "\n".join(lines)
