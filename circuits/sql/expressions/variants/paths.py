"""Parts of a VARIANT: paths such as ``$.a[0]``, and subscripts."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Final

from sqlglot import exp

from circuits.plan.expressions import Expression
from circuits.sql.binding.clause import Clause
from circuits.sql.expressions.literals import string_literal

__all__ = ["part_at", "read_path", "read_variant_subscript"]

_STEP: Final = re.compile(r"""\.([^.\[]+)|\[(\d+)\]|\['([^']*)'\]|\["([^"]*)"\]""")


def part_at(
    clause: Clause, node: exp.Expr, value: Expression, steps: Sequence[str | int]
) -> Expression:
    """Return the part of a VARIANT at a path; NULL if there is none.

    Args:
        clause: The clause with the path.
        node: The expression with the path, for errors.
        value: The VARIANT.
        steps: The path: names of members, and positions of elements from 0.
    """
    if not steps:
        return value
    return clause.call(node, "variant_at", value, string_literal(json.dumps(list(steps))))


def read_path(clause: Clause, node: exp.Expr, path: exp.Expr) -> list[str | int]:
    """Return the steps of a constant path.

    Raises:
        SqlError: The path is malformed.
        UnsupportedSqlError: The path is not constant.
    """
    if not isinstance(path, exp.Literal) or not path.is_string:
        raise clause.source.unsupported(
            node, "a path that is not constant", "write it as '$.name[0]'"
        )
    clause.source.allow_arguments(path, "this", "is_string")
    text, steps = path.this, list[str | int]()
    position = 1  # after the $
    while position < len(text):
        match = _STEP.match(text, position)
        if match is None:
            break
        name, index, *quoted = match.groups()
        names = (found for found in (name, *quoted) if found is not None)
        steps.append(int(index) if index else next(names))
        position = match.end()
    if not text.startswith("$") or position < len(text):
        raise clause.source.error(node, f"the path {text!r} is malformed; write it as '$.name[0]'")
    return steps


def read_variant_subscript(
    clause: Clause, node: exp.Expr, value: Expression, subscript: exp.Expr
) -> Expression:
    """Read ``v['name']`` or ``v[1]``; positions begin with 1, in Snowflake with 0.

    Raises:
        SqlError: The dialect is spark.
        UnsupportedSqlError: The subscript is not a constant text or integer.
    """
    source = clause.source
    if source.is_spark:
        raise source.error(
            node, "a VARIANT has no subscripts in Spark; write v:name[0] or variant_get(v, '$[0]')"
        )
    is_negative = isinstance(subscript, exp.Neg)
    literal = subscript.this if is_negative else subscript
    is_name = isinstance(subscript, exp.Literal) and subscript.is_string
    if not is_name and not (isinstance(literal, exp.Literal) and literal.is_int):
        raise source.unsupported(
            node,
            "a subscript of a VARIANT that is not constant",
            "write v['name'] or v[1], or cast the VARIANT to a list or map",
        )
    source.mark_read(subscript)
    if is_name:
        return part_at(clause, node, value, [literal.this])
    first = 0 if source.dialect == "snowflake" else 1
    position = -1 if is_negative else int(literal.this) - first  # -1 has no element
    return part_at(clause, node, value, [position])
