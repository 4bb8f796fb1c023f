"""Compile the query of a command."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import Executor
from typing import Final

import pyarrow as pa

from circuits import Circuit, InputOptions, compile_datalog, compile_sql
from circuits.schema import WEIGHT
from dbsp_wcoj import Formula
from dbsp_wcoj.limits import DEFAULT_LIMITS, StepLimits
from streaming.cli.arguments.query_text import read_query, view_name

__all__ = ["compile_query", "view_name", "without_weight"]

PARTS_PER_THREAD: Final = 16


def compile_query(
    query: str,
    schemas: Mapping[str, pa.Schema],
    *,
    formula: str = str(Formula.collapsed),
    executor: Executor | None = None,
    threads: int = 1,
    materialize: bool | Collection[str] = False,
    input_options: Mapping[str, InputOptions] | None = None,
    outputs: Collection[str] | None = None,
    limits: StepLimits = DEFAULT_LIMITS,
) -> Circuit:
    """Compile a query, or the file that it names; a plain SELECT becomes a view named as the file.

    Raises:
        EventsError: The file cannot be read, or is not a query.
        DbspWcojError: The query cannot be compiled.
    """
    parsed = read_query(query)
    parts = 1 if executor is None else threads * PARTS_PER_THREAD
    options = {
        "formula": formula,
        "executor": executor,
        "parts": parts,
        "materialize": materialize,
        "input_options": input_options,
        "outputs": outputs,
        "limits": limits,
    }
    if parsed.is_sql:
        return compile_sql(parsed.text, schemas, name=parsed.name, **options)  # type: ignore[arg-type]
    return compile_datalog(parsed.text, schemas, **options)  # type: ignore[arg-type]


def without_weight(schema: pa.Schema) -> pa.Schema:
    """Return the columns of a relation without ``weight``."""
    return pa.schema([field for field in schema if field.name != WEIGHT])
