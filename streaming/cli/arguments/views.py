"""Compile the query of a command.

A query in SQL can declare its inputs (CREATE TABLE), with columns, a primary key and a watermark.
The arguments ``schema=``, ``keys=`` and ``lateness=`` of a source take precedence over these.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final

import pyarrow as pa

from circuits import Circuit, InputOptions, SqlNotice, compile_datalog, compile_sql
from circuits.schema import WEIGHT
from circuits.sql import Declarations, declared_by
from dbsp_wcoj import Formula
from dbsp_wcoj.limits import DEFAULT_LIMITS, StepLimits
from streaming.cli.arguments.functions import load_functions
from streaming.cli.arguments.query_text import read_query, view_name
from streaming.cli.arguments.source import SourceArgument

__all__ = [
    "DUCKDB",
    "compile_query",
    "declarations_of",
    "dialect_of",
    "view_name",
    "with_declarations",
    "without_weight",
]

DUCKDB: Final = "duckdb"


def compile_query(
    query: str,
    schemas: Mapping[str, pa.Schema],
    *,
    dialect: str = DUCKDB,
    functions: str | None = None,
    formula: str = str(Formula.collapsed),
    threads: int | None = None,
    materialize: bool | Collection[str] = False,
    input_options: Mapping[str, InputOptions] | None = None,
    outputs: Collection[str] | None = None,
    limits: StepLimits = DEFAULT_LIMITS,
) -> Circuit:
    """Compile a query, or the file that it names; a plain SELECT becomes a view named as the file.

    The options are those of `circuits.compile_sql`; ``functions`` is the value of ``--functions``.

    Raises:
        EventsError: The file cannot be read or is not a query, or functions cannot be loaded.
        DbspWcojError: The query cannot be compiled.
    """
    parsed = read_query(query)
    options = {
        "formula": formula,
        "threads": threads,
        "materialize": materialize,
        "input_options": input_options,
        "outputs": outputs,
        "limits": limits,
        "functions": load_functions(functions),
    }
    if parsed.is_sql:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SqlNotice)  # the commands report `declarations_of`
            return compile_sql(
                parsed.text,
                schemas,
                name=parsed.name,
                dialect=dialect,
                **options,  # type: ignore[arg-type]
            )
    return compile_datalog(parsed.text, schemas, **options)  # type: ignore[arg-type]


def dialect_of(circuit: Circuit) -> str | None:
    """Return the SQL dialect of the views; None if they are not in SQL."""
    source = circuit.spec.source
    return source.dialect if source is not None and source.language == "sql" else None


def declarations_of(query: str, dialect: str = DUCKDB) -> Declarations:
    """Return the tables that a query declares, and the notices about their parts.

    Raises:
        EventsError: The file cannot be read, or is not a query.
        SqlError: The text is not valid SQL, or a declaration is not.
    """
    parsed = read_query(query)
    return declared_by(parsed.text, dialect) if parsed.is_sql else Declarations()


def with_declarations(
    sources: Mapping[str, SourceArgument], declarations: Declarations
) -> dict[str, SourceArgument]:
    """Return the sources with the columns, primary keys and lateness that the query declares.

    ``keys=`` and ``lateness=`` of a source take precedence here; ``schema=`` does when the schema
    of the source is read.
    """
    tables = {name.casefold(): table for name, table in declarations.inputs.items()}
    declared_sources = {}
    for name, source in sources.items():
        table = tables.get(name.casefold())
        if table is not None:
            settings = dict(source.settings)
            if table.lateness is not None:
                column, bound = table.lateness
                settings.setdefault("lateness", f"{column} {bound}")
            source = replace(
                source,
                declared=table.schema,
                keys=source.keys or table.keys,
                settings=settings,
            )
        declared_sources[name] = source
    return declared_sources


def without_weight(schema: pa.Schema) -> pa.Schema:
    """Return the columns of a relation without ``weight``."""
    return pa.schema([field for field in schema if field.name != WEIGHT])
