"""COLLATE in comparisons and ORDER BY, replaced by functions before the tree is read.

A text that is compared without regard to case is compared in lower case::

    s COLLATE NOCASE = 'A'              lower(s) = lower('A')
    ORDER BY s COLLATE UTF8_LCASE       ORDER BY lower(s)
    s COLLATE NOCASE.NOACCENT IN (...)  strip_accents(lower(s)) IN (...)

Elsewhere (as a column, in GROUP BY, in a call of a function) COLLATE would change later
comparisons, or the value that stands for equal texts. There it is an error when it is read.
"""

from __future__ import annotations

from typing import Final

from sqlglot import exp

__all__ = ["replace_collations"]

# The functions of a collation, by its parts in lower case.
_DUCKDB_PARTS: Final = {"nocase": "lower", "noaccent": "strip_accents"}
_SPARK_PARTS: Final = {"utf8_lcase": "lower"}

# Nodes whose operands are all compared with each other, with the names of these operands.
_COMPARISONS: Final[dict[type[exp.Expr], tuple[str, ...]]] = {
    **dict.fromkeys((exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE), ("this", "expression")),
    **dict.fromkeys((exp.NullSafeEQ, exp.NullSafeNEQ, exp.Like), ("this", "expression")),
    exp.Between: ("this", "low", "high"),
    exp.In: ("this", "expressions"),
    exp.Ordered: ("this",),
}


def replace_collations(tree: exp.Expr, *, is_spark: bool) -> exp.Expr:
    """Return a tree with functions in place of the collations of comparisons and sort keys.

    A collation that cannot be replaced stays, and is an error when it is read.
    """
    for collation in list(tree.find_all(exp.Collate)):
        operand: exp.Expr = collation
        while isinstance(operand.parent, exp.Paren):
            operand = operand.parent
        node = operand.parent
        names = _COMPARISONS.get(type(node), ()) if node is not None else ()
        functions = _functions_of(collation, _SPARK_PARTS if is_spark else _DUCKDB_PARTS)
        if node is None or operand.arg_key not in names or not functions:
            continue
        if any(node.args.get(name) for name in ("query", "unnest", "field")):
            continue  # x IN (SELECT ...)
        operands = [part for name in names for part in _as_list(node.args.get(name))]
        if any(_has_other_collation(part, collation) for part in operands):
            continue
        for part in operands:
            _apply_functions(part, functions)
    return tree


def _functions_of(collation: exp.Collate, parts: dict[str, str]) -> list[str]:
    """Return the functions of a collation; none if one of its parts is unknown."""
    name = collation.expression
    words = [part.name for part in name.parts] if isinstance(name, exp.Column) else [name.name]
    functions = [parts.get(word.casefold(), "") for word in words]
    return functions if all(functions) else []


def _as_list(value: object) -> list[exp.Expr]:
    if isinstance(value, list):
        return value
    return [value] if isinstance(value, exp.Expr) else []


def _has_other_collation(operand: exp.Expr, collation: exp.Collate) -> bool:
    inner = operand.unnest()
    return isinstance(inner, exp.Collate) and inner.expression != collation.expression


def _apply_functions(operand: exp.Expr, functions: list[str]) -> None:
    """Replace an operand by calls over it, without its collation."""
    value = operand.unnest()
    if isinstance(value, exp.Collate):
        value = value.this
    result: exp.Expr = value.copy()
    for function in functions:
        call = exp.Lower(this=result) if function == "lower" else _call(function, result)
        call.meta.update(value.meta)
        result = call
    operand.replace(result)


def _call(function: str, argument: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this=function, expressions=[argument])
