"""Views: a query of the command line, as a circuit."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import Executor
from typing import Final

import pyarrow as pa

from circuits import Circuit, InputOptions, compile_datalog, compile_sql
from circuits.schema import WEIGHT
from dbsp_wcoj import Formula
from dbsp_wcoj.limits import DEFAULT_LIMITS, StepLimits
from streaming.cli.arguments.query_text import name_of, read_query

__all__ = ["circuit_of", "name_of", "without_weight"]

PARTS_PER_THREAD: Final = 16


def circuit_of(
    query: str,
    schemas: Mapping[str, pa.Schema],
    *,
    formula: str = str(Formula.collapsed),
    executor: Executor | None = None,
    threads: int = 1,
    materialize: bool | Collection[str] = False,
    rules: Mapping[str, InputOptions] | None = None,
    outputs: Collection[str] | None = None,
    limits: StepLimits = DEFAULT_LIMITS,
) -> Circuit:
    """The circuit of a text, or of the file that it names; a plain SELECT has the file's name.

    Raises:
        EventsError: The file cannot be read, or is not UTF-8.
        DbspWcojError: The text cannot be compiled.
    """
    given = read_query(query)
    parts = 1 if executor is None else threads * PARTS_PER_THREAD
    common = {
        "formula": formula,
        "executor": executor,
        "parts": parts,
        "materialize": materialize,
        "rules": rules,
        "outputs": outputs,
        "limits": limits,
    }
    if given.is_sql:
        return compile_sql(given.text, schemas, name=given.name, **common)  # type: ignore[arg-type]
    return compile_datalog(given.text, schemas, **common)  # type: ignore[arg-type]


def without_weight(schema: pa.Schema) -> pa.Schema:
    """The columns of a relation, of which ``weight`` is none."""
    return pa.schema([field for field in schema if field.name != WEIGHT])
