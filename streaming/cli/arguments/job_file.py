"""Read a job file: the query, inputs, outputs and options of ``dbsp-wcoj run`` in TOML.

::

    query = "rings.sql"                 # a file .sql or .dl, or the text of the query

    [inputs.pay]                        # one table per relation
    path = "in/payments"                # files: a folder, a file or a pattern
    schema = "src long, dst long, ts timestamp"
    keys = ["src", "dst"]
    sequence = "ts"
    retain = "ts 7 days"

    [inputs.accounts]                   # any source of Spark, with its options
    format = "kafka"
    feed = "debezium"
    schema = "nr long, owner string"
    options = { subscribe = "accounts", "kafka.bootstrap.servers" = "broker:9092" }

    [[outputs]]
    view = "rings"                      # without view: all views that no other output names
    target = "sqlite"                   # console, parquet, delta, iceberg, sqlite, duckdb, postgres
    path = "rings.db"                   # a folder or a file; for postgres: dsn = "host=db"
    table = "rings"                     # of a database; for iceberg "shop.rings", without path
    keys = ["a", "b", "c"]              # one row per key; or mode = "complete"

    [state]
    path = "state"

    [ui]                                # serve the live page; or enabled = false
    port = 8765

=============== ==================================================================================
table           keys
=============== ==================================================================================
(top level)     ``query``
inputs.NAME     ``path``, ``format``, ``schema``, ``select``, ``feed``, ``keys``, ``sequence``,
                ``strict``, ``retain``, ``on_expiry``, ``lateness``,
                ``keep``, ``options``; as the option ``--source``
outputs         ``view``, ``target``, ``path``, ``dsn``, ``table``, ``mode``, ``keys``,
                ``retry_attempts``, ``retry_seconds``; as the option ``--sink``
run             ``once``, ``every``, ``bad_rows``, ``cells``, ``dialect``, ``functions``,
                ``formula``, ``threads``, ``memory``, ``stop_timeout``
state           ``path``, ``checkpoint``, ``mode``, ``dead_letter_days``, ``dead_letter_size``,
                ``memory_limit``; as ``--state``, ``--state-mode`` and the options of the same names
spark           settings of Spark by their full names; as the option ``--conf``
limits          ``max_step_rows``, ``max_step_bytes``, ``max_seconds``
ui              ``enabled``, ``port``, ``host``, ``token_file``
metrics         ``port``, ``host``, ``max_commit_age``
=============== ==================================================================================

Paths are relative to the folder of the job file, so a job is the same from every working directory.
An option on the command line replaces the value in the file (`RunOptions`). All problems of a file
are reported at once, each with the key, the value and how to fix it. Keep passwords out of the
file; use PGPASSWORD or a password file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

from streaming.cli.arguments.checks import Checks
from streaming.cli.arguments.query_text import query_file
from streaming.cli.arguments.session_settings import check_setting
from streaming.cli.arguments.sink import DATABASES, KINDS, SinkArgument, output_mode_of, retry_of
from streaming.cli.arguments.source import SETTINGS, SourceArgument
from streaming.cli.arguments.toml_table import TomlTable, read_toml
from streaming.targets.output_mode import OUTPUT_MODES

__all__ = ["Job", "is_job_file", "read_job", "read_outputs"]

JOB_SUFFIX: Final = ".toml"
MAX_PORT: Final = 65_535


@dataclass(frozen=True)
class Job:
    """The contents of a job file.

    Attributes:
        query: The query, or the path of its file.
        sources: The inputs by relation.
        sinks: The outputs in order.
        options: Values for other options of ``run``, by their names.
        labels: The names of these options in error messages.
        spark_settings: Settings of Spark.
    """

    query: str
    sources: Mapping[str, SourceArgument] = field(default_factory=dict)
    sinks: tuple[SinkArgument, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    spark_settings: Mapping[str, str] = field(default_factory=dict)


def is_job_file(query: str) -> bool:
    """Return whether the argument QUERY names a job file.

    >>> is_job_file("jobs/rings.toml"), is_job_file("rings.sql")
    (True, False)
    """
    return query.lower().endswith(JOB_SUFFIX) and "\n" not in query and "\0" not in query


def read_job(path: Path, checks: Checks) -> Job:
    """Read a job file; report its problems to ``checks``.

    Raises:
        EventsError: The file cannot be read, or is not TOML.
    """
    root = TomlTable(read_toml(path), path, "", checks)
    query = root.text("query")
    if query is None and "query" not in root:
        root.report("query", 'the key is missing: add query = "views.sql", or the text of a query')
    sources = {name: source for name, source in _read_inputs(root) if source is not None}
    sinks = tuple(read_outputs(root))
    options: dict[str, Any] = {}
    labels: dict[str, str] = {}
    for name, keys in OPTIONS.items():
        table = root.table(name)
        for key, (option, read) in keys.items():
            value = read(table, key)
            if value is not None:
                options[option], labels[option] = value, table.label(key)
        table.report_unknown_keys()
    if "ui" in root:
        options.setdefault("ui", True)
    spark_settings = root.options("spark")
    for key in spark_settings:
        with checks.check():
            check_setting(key, label=f"{root.label('spark')}: {key}")
    root.report_unknown_keys()
    if query is not None and (file := query_file(query)) is not None:
        query = str(path.parent / file)
    return Job(query or "", sources, sinks, options, labels, spark_settings)


def _read_inputs(root: TomlTable) -> Iterator[tuple[str, SourceArgument | None]]:
    """Read the tables ``inputs.NAME``."""
    inputs = root.table("inputs")
    for name in inputs.names:
        table = inputs.table(name)
        yield name, _read_input(name, table)


def _read_input(name: str, table: TomlTable) -> SourceArgument | None:
    if not name.isidentifier():
        table.report("", "is not a name: write letters, digits and _, as in [inputs.pay]")
    path = table.path("path")
    keys = table.texts("keys")
    strict = table.flag("strict")
    settings = {} if strict is None else {"strict": str(strict).lower()}
    for key in SETTINGS:
        if key not in ("keys", "strict") and (value := table.text(key)) is not None:
            settings[key] = value
    options = table.options("options")
    if not table.report_unknown_keys():
        return None
    with table.checks.check():
        return SourceArgument.of(
            name,
            path or "",
            options=options,
            keys=keys or (),
            settings=settings,
            label=table.label(),
        )
    return None


def read_outputs(root: TomlTable) -> Iterator[SinkArgument]:
    """Read the array of tables ``outputs``."""
    for table in root.tables("outputs"):
        view = table.text("view")
        kind = table.choice("target", KINDS)
        if kind is None and "target" not in table:
            table.report("target", f"the key is missing: write one of {', '.join(KINDS)}")
        if kind in ("postgres", "iceberg"):
            location = table.text("dsn" if kind == "postgres" else "table")
        else:
            location = table.path("path")
        name = table.text("table") if kind in DATABASES else None
        mode, keys = table.choice("mode", OUTPUT_MODES), table.texts("keys")
        attempts = table.integer("retry_attempts", minimum=1)
        seconds = table.number("retry_seconds")
        if not table.report_unknown_keys() or kind is None:
            continue
        with table.checks.check():
            yield SinkArgument(
                kind,
                location or "",
                name or "",
                view,
                output_mode_of(mode, keys, label=table.label()),
                retry_of(kind, attempts, seconds, label=table.label()),
                table.label(),
            )


_Reader: TypeAlias = Callable[[TomlTable, str], Any]
#: For each table and key of the file: the option of ``run``, and the method that reads its value.
OPTIONS: Final[Mapping[str, Mapping[str, tuple[str, _Reader]]]] = {
    "run": {
        "once": ("once", TomlTable.flag),
        "every": ("every", TomlTable.text),
        "bad_rows": ("bad_rows", TomlTable.text),
        "cells": ("cells", partial(TomlTable.integer, minimum=1)),
        "dialect": ("dialect", TomlTable.text),
        "functions": ("functions", TomlTable.functions),
        "formula": ("formula", TomlTable.text),
        "threads": ("threads", partial(TomlTable.integer, minimum=1)),
        "memory": ("memory", TomlTable.text),
        "stop_timeout": ("stop_timeout", TomlTable.number),
    },
    "state": {
        "path": ("state", TomlTable.path),
        "checkpoint": ("checkpoint", TomlTable.file),
        "mode": ("state_mode", TomlTable.text),
        "dead_letter_days": ("dead_letter_days", TomlTable.number),
        "dead_letter_size": ("dead_letter_size", TomlTable.size),
        "memory_limit": ("memory_limit", TomlTable.size),
    },
    "limits": {
        "max_step_rows": ("max_step_rows", TomlTable.integer),
        "max_step_bytes": ("max_step_bytes", TomlTable.size),
        "max_seconds": ("max_seconds", TomlTable.number),
    },
    "ui": {
        "enabled": ("ui", TomlTable.flag),
        "port": ("ui_port", partial(TomlTable.integer, maximum=MAX_PORT)),
        "host": ("ui_host", TomlTable.text),
        "token_file": ("ui_token_file", TomlTable.file),
    },
    "metrics": {
        "port": ("metrics_port", partial(TomlTable.integer, maximum=MAX_PORT)),
        "host": ("metrics_host", TomlTable.text),
        "max_commit_age": ("max_commit_age", TomlTable.number),
    },
}
