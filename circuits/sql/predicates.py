"""Conditions: comparisons, connectives, IS, IN, BETWEEN, LIKE.

EXISTS and IN with a subquery are semijoins (`circuits.sql.subqueries`), so they have no reader that
returns a value. They are supported as conditions, also inside AND, OR and NOT
(`circuits.sql.disjunctions`). Inside any other expression they raise an error here.
"""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from circuits.plan.expressions import Expression, Literal
from circuits.sql.clause import Clause, Reader

__all__ = ["READERS"]


def _comparison_reader(function: str) -> Reader:
    def read(clause: Clause, node: exp.Binary) -> Expression:
        clause.source.allow_arguments(node, "this", "expression")
        for side in (node.left, node.right):
            if isinstance(side, exp.Tuple):
                raise clause.source.unsupported(
                    side, "a comparison of rows", "compare column by column"
                )
            if isinstance(side, exp.Any | exp.All):
                raise _not_a_condition_error(clause, side, side.key.upper())
        return clause.call(node, function, clause.read(node.left), clause.read(node.right))

    return read


def _connective_reader(function: str) -> Reader:
    def read(clause: Clause, node: exp.Connector) -> Expression:
        # ``a AND b AND c`` is nested to the left. A loop, because a chain of a thousand conditions
        # is a thousand levels deep.
        operands: list[exp.Expr] = []
        left: exp.Expr = node
        while isinstance(left, type(node)):
            clause.source.allow_arguments(left, "this", "expression")
            operands.append(left.right)
            left = left.left
        operands.append(left)
        conditions = [clause.read_condition(operand) for operand in reversed(operands)]
        return clause.call(node, function, *conditions)

    return read


def _read_not(clause: Clause, node: exp.Not) -> Expression:
    clause.source.allow_arguments(node, "this")
    return clause.call(node, "not", clause.read_condition(node.this))


def _read_is_distinct_from(clause: Clause, node: exp.NullSafeNEQ) -> Expression:
    sides = clause.read_arguments(node, "this", "expression")
    return clause.call(node, "not", clause.call(node, "same", *sides))


def _read_is(clause: Clause, node: exp.Is) -> Expression:
    clause.source.allow_arguments(node, "this", "expression")
    if isinstance(node.expression, exp.Null):
        return clause.call(node, "is_null", clause.read(node.this))
    if isinstance(node.expression, exp.Boolean):
        condition = clause.read_condition(node.this)
        if not node.expression.this:
            condition = clause.call(node, "not", condition)
        return clause.call(node, "is_true", condition)
    raise clause.source.unsupported(node.expression, f"IS {node.expression.sql()}")


def _read_between(clause: Clause, node: exp.Between) -> Expression:
    value, low, high = clause.read_arguments(node, "this", "low", "high")
    return clause.call(
        node, "and", clause.call(node, "ge", value, low), clause.call(node, "le", value, high)
    )


def _read_in(clause: Clause, node: exp.In) -> Expression:
    if node.args.get("query"):
        raise _not_a_condition_error(clause, node, "IN (subquery)")
    clause.source.allow_arguments(node, "this", "expressions")
    if isinstance(node.this, exp.Tuple):
        raise clause.source.unsupported(
            node, "IN of rows with a list", "join VALUES, or compare column by column"
        )
    if not node.expressions:
        raise clause.source.error(node, "IN () has no values; give it at least one")
    value = clause.read(node.this)
    items = [clause.read(item) for item in node.expressions]
    if all(isinstance(item, Literal) for item in items):
        return clause.call(node, "in", value, *items)
    equal = [clause.call(node, "eq", value, item) for item in items]
    return equal[0] if len(equal) == 1 else clause.call(node, "or", *equal)


def _refuse_exists(clause: Clause, node: exp.Exists) -> Expression:
    raise _not_a_condition_error(clause, node, "EXISTS", "exists")


def _not_a_condition_error(
    clause: Clause, node: exp.Expr, construct: str, word: str = ""
) -> Exception:
    return clause.source.unsupported(
        node,
        f"{construct} inside of an expression of {clause.name}",
        "make it a condition of WHERE, joined to others by AND, OR and NOT only",
        word,
    )


def _like_reader(function: str) -> Reader:
    def read(clause: Clause, node: exp.Expr) -> Expression:
        clause.source.allow_arguments(node, "this", "expression", "negate")
        value, pattern = clause.read(node.this), clause.read(node.args["expression"])
        matches = clause.call(node, function, value, pattern)
        return clause.call(node, "not", matches) if node.args.get("negate") else matches

    return read


def _read_escape(clause: Clause, node: exp.Escape) -> Expression:
    """Read ``x [NOT] LIKE p ESCAPE c``; sqlglot puts NOT inside of the ESCAPE."""
    clause.source.allow_arguments(node, "this", "expression")
    functions = {exp.Like: "like", exp.ILike: "ilike"}
    like, is_negated = node.this, isinstance(node.this, exp.Not)
    if is_negated:
        clause.source.allow_arguments(like, "this")
        like = like.this
    if type(like) not in functions or like.args.get("negate"):
        raise clause.source.unsupported(node, f"ESCAPE after {like.key.upper()}")
    value, pattern = clause.read_arguments(like, "this", "expression")
    escape = clause.read(node.expression)
    matches = clause.call(node, functions[type(like)], value, pattern, escape)
    return clause.call(node, "not", matches) if is_negated else matches


READERS: Final[dict[type[exp.Expr], Reader]] = {
    exp.And: _connective_reader("and"),
    exp.Between: _read_between,
    exp.EQ: _comparison_reader("eq"),
    exp.Escape: _read_escape,
    exp.Exists: _refuse_exists,
    exp.GT: _comparison_reader("gt"),
    exp.GTE: _comparison_reader("ge"),
    exp.ILike: _like_reader("ilike"),
    exp.In: _read_in,
    exp.Is: _read_is,
    exp.LT: _comparison_reader("lt"),
    exp.LTE: _comparison_reader("le"),
    exp.Like: _like_reader("like"),
    exp.NEQ: _comparison_reader("ne"),
    exp.Not: _read_not,
    exp.NullSafeEQ: _comparison_reader("same"),
    exp.NullSafeNEQ: _read_is_distinct_from,
    exp.Or: _connective_reader("or"),
}
