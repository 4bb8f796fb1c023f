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
    target = "sqlite"                   # console, parquet, delta, sqlite, postgres
    path = "rings.db"                   # a folder or a file; for postgres: dsn = "host=db"
    table = "rings"
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

import json
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

from streaming.cli.arguments.checks import Checks
from streaming.cli.arguments.query_text import query_file
from streaming.cli.arguments.sink import DATABASES, KINDS, SinkArgument, output_mode_of, retry_of
from streaming.cli.arguments.source import SETTINGS, SourceArgument
from streaming.errors import EventsError

__all__ = ["Job", "is_job_file", "read_job"]

JOB_SUFFIX: Final = ".toml"
#: The maximum size of a job file; a longer file is probably not a job file.
MAX_JOB_BYTES: Final = 4 << 20
MAX_PORT: Final = 65_535
MAX_INT64: Final = 2**63 - 1


@dataclass(frozen=True)
class Job:
    """The contents of a job file.

    Attributes:
        query: The query, or the path of its file.
        sources: The inputs by relation.
        sinks: The outputs in order.
        options: Values for other options of ``run``, by their names.
        labels: The names of these options in error messages.
    """

    query: str
    sources: Mapping[str, SourceArgument] = field(default_factory=dict)
    sinks: tuple[SinkArgument, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)


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
    root = _Table(_parse(path), path, "", checks)
    query = root.text("query")
    if query is None and "query" not in root:
        root.report("query", 'the key is missing: add query = "views.sql", or the text of a query')
    sources = {name: source for name, source in _read_inputs(root) if source is not None}
    sinks = tuple(_read_outputs(root))
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
    root.report_unknown_keys()
    if query is not None and (file := query_file(query)) is not None:
        query = str(path.parent / file)
    return Job(query or "", sources, sinks, options, labels)


def _parse(path: Path) -> dict[str, Any]:
    """Parse the TOML file."""
    try:
        if not path.is_file() and path.exists():
            raise EventsError(f"{path} is not a regular file: name a job file")
        with path.open("rb") as file:
            data = file.read(MAX_JOB_BYTES + 1)
    except OSError as error:
        raise EventsError(f"{path}: {error.strerror or error}") from None
    if len(data) > MAX_JOB_BYTES:
        raise EventsError(f"{path} has more than {MAX_JOB_BYTES:,} bytes: name a job file")
    try:
        return tomllib.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise EventsError(f"{path} is not UTF-8 text: save the file as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise EventsError(f"{path} is not a TOML file: {error}") from None


def _read_inputs(root: _Table) -> Iterator[tuple[str, SourceArgument | None]]:
    """Read the tables ``inputs.NAME``."""
    inputs = root.table("inputs")
    for name in inputs.names:
        table = inputs.table(name)
        yield name, _read_input(name, table)


def _read_input(name: str, table: _Table) -> SourceArgument | None:
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


def _read_outputs(root: _Table) -> Iterator[SinkArgument]:
    """Read the array of tables ``outputs``."""
    for table in root.tables("outputs"):
        view = table.text("view")
        kind = table.choice("target", KINDS)
        if kind is None and "target" not in table:
            table.report("target", f"the key is missing: write one of {', '.join(KINDS)}")
        location = table.text("dsn") if kind == "postgres" else table.path("path")
        name = table.text("table") if kind in DATABASES else None
        mode, keys = table.choice("mode", ("delta", "upsert", "complete")), table.texts("keys")
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


class _Table:
    """A table of a job file: reads the values of keys, and reports those that are not valid.

    Args:
        values: The keys and values.
        file: The job file.
        name: The full name of the table; empty for the top level.
        checks: Receives the problems.
    """

    def __init__(self, values: Mapping[str, Any], file: Path, name: str, checks: Checks) -> None:
        self.checks = checks
        self._values, self._file, self._name = values, file, name
        self._keys: list[str] = []
        self._is_valid = True

    def __contains__(self, key: str) -> bool:
        return key in self._values

    @property
    def names(self) -> list[str]:
        """All keys of the table, in the order of the file."""
        return list(self._values)

    def label(self, key: str = "") -> str:
        """Return the file and the full name of a key, or of the table."""
        return f"{self._file}: {'.'.join(filter(None, (self._name, key)))}"

    def report(self, key: str, problem: str) -> None:
        """Report a problem of a key."""
        self._is_valid = False
        self.checks.problems.append(f"{self.label(key)}: {problem}")

    def report_unknown_keys(self) -> bool:
        """Report unknown keys; return whether the table has no problem."""
        for key in self._values:
            if key not in self._keys:
                similar = get_close_matches(key.lower(), self._keys, 1, 0.7)
                hint = f"; did you mean {similar[0]}?" if similar else ""
                self.report(key, f"unknown key; keys: {', '.join(self._keys)}{hint}")
        return self._is_valid

    def text(self, key: str) -> str | None:
        """Read a string."""
        text: str | None = self._read(key, lambda value: isinstance(value, str), 'text, as "..."')
        return text

    def choice(self, key: str, names: tuple[str, ...]) -> str | None:
        """Read a string that must be one of ``names``."""
        choices = f"one of {', '.join(json.dumps(name) for name in names)}"
        choice: str | None = self._read(key, lambda value: value in names, choices)
        return choice

    def texts(self, key: str) -> tuple[str, ...] | None:
        """Read a list of strings, or one string."""
        texts = self._read(key, _is_texts, 'names of columns, as ["a", "b"]')
        return None if texts is None else (texts,) if isinstance(texts, str) else tuple(texts)

    def path(self, key: str) -> str | None:
        """Read a path, relative to the folder of the job file, or a URI."""
        text = self.text(key)
        return text if not text or "://" in text else str(self._file.parent / text)

    def functions(self, key: str) -> str | None:
        """Read the name of functions; a file is relative to the folder of the job file."""
        text = self.text(key)
        is_file = text is not None and text.rpartition(":")[0].endswith(".py")
        return str(self._file.parent / text) if text is not None and is_file else text

    def file(self, key: str) -> Path | None:
        """Read the path of a local file or folder."""
        text = self.path(key)
        return None if text is None else Path(text)

    def flag(self, key: str) -> bool | None:
        """Read a boolean."""
        flag: bool | None = self._read(
            key, lambda value: isinstance(value, bool), "true or false, without quotes"
        )
        return flag

    def integer(self, key: str, *, minimum: int = 0, maximum: int = MAX_INT64) -> int | None:
        """Read an integer in a range."""
        has_maximum = maximum < MAX_INT64
        bounds = f"{minimum} to {maximum}" if has_maximum else f"{minimum} or more"
        integer: int | None = self._read(
            key,
            lambda value: _is_integer(value) and minimum <= value <= maximum,
            f"an integer, {bounds}",
        )
        return integer

    def number(self, key: str) -> float | None:
        """Read a number of seconds."""
        number = self._read(
            key,
            lambda value: (
                (_is_integer(value) or isinstance(value, float)) and 0 <= value < float("inf")
            ),
            "a number of seconds, 0 or more",
        )
        return None if number is None else float(number)

    def size(self, key: str) -> str | None:
        """Read a number of bytes: an integer, or text with a unit."""
        size = self._read(
            key,
            lambda value: isinstance(value, str) or (_is_integer(value) and value >= 0),
            'bytes, as 4000000 or "4G"',
        )
        return None if size is None else str(size)

    def table(self, key: str) -> _Table:
        """Read a table; a missing table is returned as an empty one."""
        table = self._read(key, lambda value: isinstance(value, dict), f"a table, as [{key}]")
        name = ".".join(filter(None, (self._name, key)))
        return _Table(table or {}, self._file, name, self.checks)

    def tables(self, key: str) -> list[_Table]:
        """Read an array of tables; a missing array is returned as an empty one."""
        tables = self._read(
            key,
            lambda value: (
                isinstance(value, list)
                and all(isinstance(table_values, dict) for table_values in value)
            ),
            f"an array of tables, as [[{key}]]",
        )
        return [
            _Table(table_values, self._file, f"{key}[{number}]", self.checks)
            for number, table_values in enumerate(tables or [], 1)
        ]

    def options(self, key: str) -> dict[str, str]:
        """Read a table of options for Spark; numbers and booleans become text.

        TOML reads ``a.b = 1`` as a table in a table; this method restores the option ``a.b``.
        """
        table = self._read(key, lambda value: isinstance(value, dict), f"a table, as [{key}]")
        options = {}
        for name, value in _flatten(table or {}):
            if isinstance(value, str | int | float):
                options[name] = str(value).lower() if isinstance(value, bool) else str(value)
            else:
                self.report(f"{key}.{name}", "write text, a number, true or false")
        return options

    def _read(self, key: str, is_valid: Callable[[Any], bool], expected: str) -> Any:
        """Return the value of a key; None if the key is missing or its value is not valid."""
        self._keys.append(key)
        value = self._values.get(key)
        if value is None or is_valid(value):
            return value
        value_text = json.dumps(value, default=str, ensure_ascii=False)
        self._is_valid = False
        self.checks.problems.append(f"{self.label(key)} = {value_text}: write {expected}")
        return None


def _flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the keys and values of nested tables, with dots in the keys."""
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_texts(value: object) -> bool:
    if isinstance(value, list):
        return bool(value) and all(isinstance(text, str) and text for text in value)
    return isinstance(value, str) and bool(value)


_Reader: TypeAlias = Callable[[_Table, str], Any]
#: For each table and key of the file: the option of ``run``, and the method that reads its value.
OPTIONS: Final[Mapping[str, Mapping[str, tuple[str, _Reader]]]] = {
    "run": {
        "once": ("once", _Table.flag),
        "every": ("every", _Table.text),
        "bad_rows": ("bad_rows", _Table.text),
        "cells": ("cells", partial(_Table.integer, minimum=1)),
        "dialect": ("dialect", _Table.text),
        "functions": ("functions", _Table.functions),
        "formula": ("formula", _Table.text),
        "threads": ("threads", partial(_Table.integer, minimum=1)),
        "memory": ("memory", _Table.text),
        "stop_timeout": ("stop_timeout", _Table.number),
    },
    "state": {
        "path": ("state", _Table.path),
        "checkpoint": ("checkpoint", _Table.file),
        "mode": ("state_mode", _Table.text),
        "dead_letter_days": ("dead_letter_days", _Table.number),
        "dead_letter_size": ("dead_letter_size", _Table.size),
        "memory_limit": ("memory_limit", _Table.size),
    },
    "limits": {
        "max_step_rows": ("max_step_rows", _Table.integer),
        "max_step_bytes": ("max_step_bytes", _Table.size),
        "max_seconds": ("max_seconds", _Table.number),
    },
    "ui": {
        "enabled": ("ui", _Table.flag),
        "port": ("ui_port", partial(_Table.integer, maximum=MAX_PORT)),
        "host": ("ui_host", _Table.text),
        "token_file": ("ui_token_file", _Table.file),
    },
    "metrics": {
        "port": ("metrics_port", partial(_Table.integer, maximum=MAX_PORT)),
        "host": ("metrics_host", _Table.text),
        "max_commit_age": ("max_commit_age", _Table.number),
    },
}
