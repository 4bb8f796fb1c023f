"""The operators ``||`` and ``-`` of JSON as in PostgreSQL.

JSON is text here. An operand is JSON if its expression says so, or if it is a column whose name the
program declares as JSON, in a table or as the alias of an expression.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from sqlglot import exp

from circuits.plan.expressions import Expression
from circuits.sql.binding.clause import Clause, Reader
from circuits.sql.expressions import dates, scalar_functions
from circuits.sql.expressions.json_values import is_json

__all__ = ["READERS"]


def _is_json(clause: Clause, node: exp.Expr) -> bool:
    node = node.unnest()
    if is_json(node) or (isinstance(node, exp.DPipe | exp.Sub) and _is_json(clause, node.this)):
        return True
    if not isinstance(node, exp.Column):
        return False
    name = node.name.casefold()
    for tree in clause.source.parse():
        for column in tree.find_all(exp.ColumnDef):
            kind = column.args.get("kind")
            is_json_type = kind is not None and kind.this in (exp.DType.JSON, exp.DType.JSONB)
            if is_json_type and column.name.casefold() == name:
                return True
        for alias in tree.find_all(exp.Alias):
            if alias.alias.casefold() == name and is_json(alias.this):
                return True
    return False


def _read_pipe(clause: Clause, node: exp.DPipe) -> Expression:
    if not (_is_json(clause, node.left) or _is_json(clause, node.right)):
        return scalar_functions.READERS[exp.DPipe](clause, node)
    clause.source.allow_arguments(node, "this", "expression", "safe")
    return clause.call(node, "json_concat", clause.read(node.left), clause.read(node.right))


def _read_minus(clause: Clause, node: exp.Sub) -> Expression:
    if not _is_json(clause, node.left):
        return dates.READERS[exp.Sub](clause, node)
    left, right = clause.read_arguments(node, "this", "expression")
    if pa.types.is_integer(right.type):
        return clause.call(node, "json_delete_position", left, right)
    return clause.call(node, "json_delete_name", left, right)


READERS: Final[dict[type[exp.Expr], Reader]] = {exp.DPipe: _read_pipe, exp.Sub: _read_minus}
