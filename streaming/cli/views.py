"""Views: a query of the command line, as a circuit."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import Executor
from pathlib import Path
from typing import Final

import pyarrow as pa

from circuits import Circuit, Rules, compile_datalog, compile_sql
from circuits.schema import WEIGHT
from dbsp_wcoj import Formula
from dbsp_wcoj.limits import DEFAULT_LIMITS, StepLimits
from streaming.errors import EventsError

__all__ = ["circuit_of", "name_of", "without_weight"]

SQL_WORDS: Final = ("select", "with", "create", "from", "(", "--", "/*")
PARTS_PER_THREAD: Final = 16


def circuit_of(
    query: str,
    schemas: Mapping[str, pa.Schema],
    *,
    formula: str = str(Formula.collapsed),
    executor: Executor | None = None,
    threads: int = 1,
    materialize: bool | Collection[str] = False,
    rules: Mapping[str, Rules] | None = None,
    outputs: Collection[str] | None = None,
    limits: StepLimits = DEFAULT_LIMITS,
) -> Circuit:
    """The circuit of a text, or of the file that it names; a plain SELECT has the file's name.

    Raises:
        EventsError: The file cannot be read, or is not UTF-8.
        DbspWcojError: The text cannot be compiled.
    """
    path = _file(query)
    text = query
    if path is not None:
        try:
            text = path.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            raise EventsError(
                f"{path}: byte {error.start} ({error.object[error.start]:#04x}) is not UTF-8: save "
                "the file as UTF-8"
            ) from None
        except OSError as error:
            raise EventsError(f"{path}: {error.strerror or error}") from None
    is_sql = text.lstrip().lower().startswith(SQL_WORDS) if path is None else path.suffix == ".sql"
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
    if is_sql:
        return compile_sql(text, schemas, name=name_of(query), **common)  # type: ignore[arg-type]
    return compile_datalog(text, schemas, **common)  # type: ignore[arg-type]


def name_of(query: str) -> str:
    """What a plain SELECT is called: after its file, or ``view``.

    >>> name_of("views/triangles.sql"), name_of("SELECT 1")
    ('triangles', 'view')
    """
    path = _file(query)
    return path.stem if path is not None and path.stem.isidentifier() else "view"


def without_weight(schema: pa.Schema) -> pa.Schema:
    """The columns of a relation, of which ``weight`` is none."""
    return pa.schema([field for field in schema if field.name != WEIGHT])


def _file(query: str) -> Path | None:
    return Path(query) if query.endswith((".sql", ".dl")) and "\n" not in query else None
