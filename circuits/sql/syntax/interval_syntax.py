"""Other spellings of intervals, replaced by INTERVAL before the tree is read.

::

    '1 day 02:03'::INTERVAL       INTERVAL '1 day 02:03'
    to_months(n)                  INTERVAL (n) MONTH; also to_years and other units of months
    generate_series(a, b, '1 day')  the step of a series of times
"""

from __future__ import annotations

import re
from typing import Final

from sqlglot import exp

__all__ = ["interval_of_text", "replace_intervals"]

_COUNT_AND_UNIT: Final = re.compile(r"\s*([+-]?\d+)\s*([A-Za-z]+)\s*")
_UNITS: Final = {
    "to_months": "MONTH",
    "to_quarters": "QUARTER",
    "to_years": "YEAR",
    "to_decades": "DECADE",
    "to_centuries": "CENTURY",
    "to_millennia": "MILLENNIUM",
}


def replace_intervals(tree: exp.Expr) -> exp.Expr:
    """Return a tree with INTERVAL in place of its other spellings."""
    for series in tree.find_all(exp.GenerateSeries):
        step = series.args.get("step")
        if isinstance(step, exp.Literal) and any(map(str.isalpha, step.name)):
            series.set("step", interval_of_text(step))
    for node in list(tree.find_all(exp.Cast, exp.Anonymous)):
        interval = _interval_of(node)
        if interval is None:
            continue
        interval.meta.update({**node.meta, **interval.meta})
        if node is tree:
            tree = interval
        else:
            node.replace(interval)
    return tree


def _interval_of(node: exp.Expr) -> exp.Interval | None:
    """Return the interval that a cast or a call stands for; None for others."""
    if isinstance(node, exp.Anonymous):
        unit = _UNITS.get(node.name.lower())
        if unit is None or len(node.expressions) != 1:
            return None
        return exp.Interval(this=exp.Paren(this=node.expressions[0]), unit=exp.Var(this=unit))
    if type(node) is not exp.Cast or node.to.this != exp.DType.INTERVAL:
        return None
    text = node.this
    is_literal = isinstance(text, exp.Literal) and text.is_string
    if not is_literal or node.to.args.get("expressions"):
        return None
    return interval_of_text(text)


def interval_of_text(text: exp.Literal) -> exp.Interval:
    """Return the interval of a text: of one number and unit if it has no others, else of all of it.

    >>> interval_of_text(exp.Literal.string("3 days")).sql()
    "INTERVAL '3' DAYS"
    >>> interval_of_text(exp.Literal.string("1 day 02:03")).sql()
    "INTERVAL '1 day 02:03'"
    """
    match = _COUNT_AND_UNIT.fullmatch(text.this)
    if match is None:
        return exp.Interval(this=text)
    count, unit = match.groups()
    return exp.Interval(this=exp.Literal.string(count), unit=exp.Var(this=unit.upper()))
