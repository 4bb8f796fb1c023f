"""CSV texts, and the schemas of CSV and JSON texts, in dialect spark."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from sqlglot import exp

from circuits.errors import SchemaError
from circuits.plan.expressions import Expression, Literal
from circuits.sql.binding.clause import Clause
from circuits.sql.expressions.named_functions import Builder, fixed, literal_text, named
from circuits.types.ddl import schema_of_ddl

__all__ = ["BUILDERS"]


def _from_csv(clause: Clause, node: exp.Expr, value: Expression, schema: Expression) -> Expression:
    schema_text = literal_text(clause, node, schema, "a schema")
    try:
        row_type = pa.struct(list(schema_of_ddl(schema_text)))
    except (SchemaError, ValueError) as error:
        raise clause.source.error(node, str(error)) from None
    return clause.call(node, "from_csv", value, Literal(None, row_type))


BUILDERS: Final[dict[str, Builder]] = {
    "from_csv": fixed(2, _from_csv),
    "to_csv": fixed(1, lambda clause, node, value: clause.call(node, "to_csv", value)),
    "schema_of_csv": named("schema_of_csv"),
    "schema_of_json": named("schema_of_json"),
}
