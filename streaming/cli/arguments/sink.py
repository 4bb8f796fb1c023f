"""Parse the option ``--sink``: the target to which the changes of a view are written.

::

    [VIEW=]console                          rows on the terminal; as JSON lines with --json
    [VIEW=]parquet:FOLDER                   a file for each micro-batch
    [VIEW=]delta:FOLDER                     a Delta table
    [VIEW=]iceberg:NAMESPACE.TABLE          a table of the default catalog of pyiceberg
    [VIEW=]sqlite:FILE[#TABLE]              a table of SQLite
    [VIEW=]duckdb:FILE[#TABLE]              a table of DuckDB
    [VIEW=]postgres:DSN[#TABLE]             a table of PostgreSQL; DSN may be empty (PGHOST, ...)

Append ``,keys=nr,region`` for one row per key instead of changes, ``,mode=append`` for rows without
weights, of a view that loses no rows, or ``,mode=complete`` for the whole view in each micro-batch.
``{view}`` in a folder, an Iceberg table and a table of a database stands for the name of the view.
If several views share a sink and there is no ``{view}``, the name is appended. The last ``#`` that
is not within single quotes begins the table of a database, as in ``postgres:host=h
application_name='a#b'#t``. If a database does not answer, the write is retried at most
``,retry_attempts=20`` times within ``,retry_seconds=120``. Put a password into PGPASSWORD or a
password file, because other users of the machine can read the arguments of a command.
"""

from __future__ import annotations

import errno
import importlib.util
import json
import math
import os
import re
import sqlite3
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, TypeAlias

from circuits import Circuit
from circuits.schema import WEIGHT
from circuits.types.functions.casting.text_formatting import format_unrepresentable
from streaming.errors import TargetError
from streaming.redaction import redact
from streaming.sink.output import Output
from streaming.targets.console import ConsoleTarget
from streaming.targets.delta import DeltaTarget
from streaming.targets.folder_checks import check_writable
from streaming.targets.iceberg import IcebergTarget
from streaming.targets.iceberg_catalog import IcebergCatalog
from streaming.targets.output_mode import OUTPUT_MODES, OutputMode
from streaming.targets.parquet import ParquetTarget
from streaming.targets.retry import Retry
from streaming.targets.sql import SqlTarget
from streaming.targets.target import Target, ViewDelta, expand_template

__all__ = [
    "DATABASES",
    "KINDS",
    "JsonLines",
    "SinkArgument",
    "assign_sinks",
    "build_outputs",
    "check_locations",
    "output_mode_of",
    "retry_of",
]

KINDS: Final = ("console", "parquet", "delta", "iceberg", "sqlite", "duckdb", "postgres")
#: The package and the extra that a kind needs.
PACKAGES: Final = {
    "delta": ("deltalake", "sinks"),
    "iceberg": ("pyiceberg", "iceberg"),
    "postgres": ("psycopg", "sinks"),
    "duckdb": ("duckdb", "sinks"),
}
OPTIONS: Final = ("keys", "mode", "retry_attempts", "retry_seconds")
DATABASE_FILES: Final = ("sqlite", "duckdb")
DATABASES: Final = (*DATABASE_FILES, "postgres")
#: Time limit for the connection to a server.
CONNECT_TIMEOUT_S: Final = 10
_OPTION: Final = re.compile(rf",(?=(?:{'|'.join(OPTIONS)})=)")
_QUOTED: Final = re.compile(r"'(?:[^'\\]|\\.)*'")
_UNKNOWN_OPTION: Final = re.compile(r",([A-Za-z_]\w*)=")
_HOW_TO_RETRY: Final = "write retry_attempts=N, 1 or more, and retry_seconds=SECONDS"
#: The kind of a sink and its path, or the kind, the database and the table.
Location: TypeAlias = tuple[str, ...]


@dataclass(frozen=True)
class SinkArgument:
    """A target for the changes of views.

    Attributes:
        kind: One of ``KINDS``.
        location: A folder, a file, or the connection string of a database; empty for the console.
        table: The table of a database, which may contain ``{view}``. If empty, the table has the
            name of the view.
        view: The view that is written to the sink. If None, all views that have no other sink.
        output_mode: The output mode, and its keys.
        retry: How often, and how long, a write to a database is retried.
        label: The name of the sink in error messages.
        catalog: The catalog of Iceberg tables; None for the default one of ``pyiceberg``.
    """

    kind: str
    location: str = ""
    table: str = ""
    view: str | None = None
    output_mode: OutputMode = field(default_factory=OutputMode)
    retry: Retry = field(default_factory=Retry, repr=False)
    label: str = field(default="--sink", repr=False, compare=False)
    catalog: IcebergCatalog | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise TargetError(
                f"{self.label}: unknown sink {self.kind!r}; sinks: console, parquet:FOLDER, "
                "delta:FOLDER, iceberg:NAMESPACE.TABLE, sqlite:FILE, duckdb:FILE, postgres:DSN"
            )
        if self.kind in ("parquet", "delta", "iceberg", *DATABASE_FILES) and not self.location:
            raise TargetError(f"{self.label}: name the location, {self.kind}:LOCATION")
        if self.kind in DATABASE_FILES and "{view}" in self.location:
            raise TargetError(
                f"{self.label}: the views of a sink are tables of one file: name the table of "
                f"each, {self.kind}:FILE#{{view}}"
            )
        if self.kind == "console" and self.location:
            raise TargetError(f"{self.label}: the console has no location; write console")
        package, extra = PACKAGES.get(self.kind, ("", ""))
        if package and importlib.util.find_spec(package) is None:
            raise TargetError(
                f"{self.label} needs the package {package}, which is not installed: run pip "
                f"install 'dbsp-wcoj[{extra}]'"
            )

    @classmethod
    def parse(cls, text: str) -> SinkArgument:
        """Parse a value of ``--sink``.

        Raises:
            TargetError: The text is not a sink, or a package is not installed.

        >>> SinkArgument.parse("waiting=sqlite:shop.db#open,keys=nr")
        SinkArgument(kind='sqlite', location='shop.db', table='open', view='waiting', \
output_mode=OutputMode(mode='upsert', keys=('nr',)))
        >>> SinkArgument.parse("console").view
        """
        label = f"--sink {text!r}"
        sink, *options = _OPTION.split(text)
        view: str | None = None
        view_match = re.match(r"([A-Za-z_]\w*)=", sink)
        if view_match:
            view, sink = view_match[1], sink[view_match.end() :]
        kind, colon, location = sink.partition(":")
        if kind == "console" and colon:
            raise TargetError(f"{label}: the console has no location; write console")
        unknown = _UNKNOWN_OPTION.search(location)
        if unknown and kind in KINDS:
            raise TargetError(
                f"{label}: unknown option {unknown[1]}=; options: "
                f"{', '.join(f'{name}=' for name in OPTIONS)}"
            )
        table = ""
        if kind in DATABASES:
            location, table = _split_table(location)
        values: dict[str, str] = {}
        for option in options:
            key, _, value = option.partition("=")
            if key in values:
                raise TargetError(f"{label}: {key} is given twice")
            values[key] = value
        keys = tuple(re.split(r"[,\s]+", values["keys"].strip())) if "keys" in values else None
        try:
            attempts = int(values["retry_attempts"]) if "retry_attempts" in values else None
            seconds = float(values["retry_seconds"]) if "retry_seconds" in values else None
        except ValueError:
            raise TargetError(f"{label}: {_HOW_TO_RETRY}") from None
        return cls(
            kind,
            location,
            table,
            view,
            output_mode_of(values.get("mode"), keys, label=label),
            retry_of(kind, attempts, seconds, label=label),
            label,
        )

    def text(self) -> str:
        """Return the value of the option without the view and without secrets."""
        location = f":{self.location}" if self.location else ""
        table = f"#{self.table}" if self.table else ""
        mode = "" if self.output_mode.mode == "delta" else f", {self.output_mode}"
        return redact(f"{self.kind}{location}{table}{mode}")

    def locations(self, views: Sequence[str]) -> dict[str, Location]:
        """Return the location of each view, to compare it with those of other sinks.

        Views on the console have no location.

        Args:
            views: The views that share the sink.
        """
        if self.kind == "console":
            return {}
        location, table = self._templates(views)
        if self.kind in DATABASES:
            if self.kind in DATABASE_FILES:
                location = os.path.abspath(location)
            return {
                view: (self.kind, location, expand_template(table, view, quoted=False))
                for view in views
            }
        if self.kind == "iceberg":
            return {
                view: (self.kind, expand_template(location, view, quoted=False)) for view in views
            }
        return {
            view: (self.kind, os.path.abspath(expand_template(location, view))) for view in views
        }

    def exists(self) -> bool:
        """Return False if the target is a file of a database that is not created yet, else True.

        Raises:
            OSError: The file cannot be created.
        """
        if self.kind not in DATABASE_FILES:
            return True
        path = Path(self.location)
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "is a folder; name a file", str(path))
        if not path.parent.exists():  # databases do not create folders
            raise FileNotFoundError(errno.ENOENT, "the folder does not exist", str(path.parent))
        check_writable(path.parent)
        return path.exists()

    def target(self, views: Sequence[str], *, json: bool) -> Target:
        """Create the target for these views."""
        if self.kind == "console":
            return JsonLines() if json else ConsoleTarget()
        location, table = self._templates(views)
        match self.kind:
            case "parquet":
                return ParquetTarget(location)
            case "delta":
                return DeltaTarget(location)
            case "iceberg":
                catalog = self.catalog or IcebergCatalog()
                return IcebergTarget(location, catalog=catalog.name, properties=catalog.properties)
            case "sqlite":
                connect, address = lambda: sqlite3.connect(location), location
            case "duckdb":
                connect, address = lambda: _duckdb(location), location
            case _:
                connect, address = lambda: _postgres(location), _address(location)
        return SqlTarget(connect, table, retry=self.retry, address=address)

    def _templates(self, views: Sequence[str]) -> tuple[str, str]:
        """Return location and table; one of them contains ``{view}`` if several views share it."""
        location, table = self.location, self.table or "{view}"
        if self.kind in DATABASES:
            if len(views) > 1 and "{view}" not in table:
                table += "_{view}"
        elif len(views) > 1 and "{view}" not in location:
            separator = "." if self.kind == "iceberg" else "/"
            location = f"{location.rstrip(separator)}{separator}{{view}}"
        return location, table


class JsonLines:
    """Writes each changed row as a line of JSON to standard output."""

    def write(self, delta: ViewDelta) -> None:
        """Write a micro-batch; after a restart the last micro-batch may be written again."""
        for row in format_unrepresentable(delta.table).to_pylist():
            weight = row.pop(WEIGHT)
            line = {"view": delta.view, "batch": delta.batch_id, "weight": weight, "row": row}
            sys.stdout.write(_as_json(line) + "\n")
        sys.stdout.flush()


def _as_json(line: Mapping[str, Any]) -> str:
    """Return a line as JSON, which has no NaN and no infinities: they become texts."""
    try:
        return json.dumps(line, ensure_ascii=False, default=str, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(line), ensure_ascii=False, default=str)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    return [_finite(part) for part in value] if isinstance(value, list | tuple) else value


def assign_sinks(sinks: Sequence[SinkArgument], circuit: Circuit) -> dict[str, SinkArgument]:
    """Return the sink of each view that has one.

    Raises:
        TargetError: A sink names an unknown view, or a view has two sinks.
    """
    sink_of_view: dict[str, SinkArgument] = {}
    general_sinks: list[SinkArgument] = []
    for sink in sinks:
        if sink.view is None:
            general_sinks.append(sink)
        elif sink.view not in circuit.outputs:
            raise TargetError(
                f"{sink.label}: unknown view {sink.view!r}; views: {', '.join(circuit.outputs)}"
            )
        elif sink.view in sink_of_view:
            raise TargetError(f"{sink.label}: view {sink.view!r} has a sink already")
        else:
            sink_of_view[sink.view] = sink
    if len(general_sinks) > 1:
        raise TargetError(
            f"{len(general_sinks)} sinks name no view, and only one may: name the view of each, "
            f"VIEW={general_sinks[0].kind}..."
        )
    remaining_views = [view for view in circuit.outputs if view not in sink_of_view]
    if not general_sinks:
        return sink_of_view
    return sink_of_view | dict.fromkeys(remaining_views, general_sinks[0])


def build_outputs(sinks: Mapping[str, SinkArgument], *, json: bool = False) -> list[Output]:
    """Create the targets; return the outputs of the views, for ``ViewSink``."""
    targets: dict[int, Target] = {}
    for sink in sinks.values():
        if id(sink) not in targets:
            views = [view for view, other in sinks.items() if other is sink]
            targets[id(sink)] = sink.target(views, json=json)
    return [
        Output(view, targets[id(sink)], sink.output_mode.mode, sink.output_mode.keys)
        for view, sink in sinks.items()
    ]


def check_locations(sinks: Mapping[str, SinkArgument], folders: Sequence[Path]) -> None:
    """Check that no two sinks share a location, and that no source reads the folder of a sink.

    Args:
        sinks: The sink of each view.
        folders: The paths that sources read, which may be patterns.

    Raises:
        TargetError: Two views, or a view and a source, share a location.
    """
    owners: dict[Location, str] = {}
    for sink in dict.fromkeys(sinks.values()):
        views = [view for view, other in sinks.items() if other is sink]
        for view, location in sink.locations(views).items():
            first_view = owners.setdefault(location, view)
            if first_view != view:
                raise TargetError(
                    f"{sink.label}: views {first_view!r} and {view!r} share one location, "
                    f"{sink.text()}: name a location for each, or put {{view}} into it"
                )
            if sink.kind in DATABASES:
                continue
            for folder in folders:
                if _reads_folder(os.path.abspath(folder), location[1]):
                    raise TargetError(
                        f"{sink.label}: view {view!r} is written to {folder}, which a source "
                        "reads: name another folder"
                    )


def _reads_folder(path: str, folder: str) -> bool:
    """Return whether a source at a path, which may be a pattern, reads files of a folder.

    >>> _reads_folder("/out", "/out"), _reads_folder("/out/*.parquet", "/out")
    (True, True)
    >>> _reads_folder("/o*/v/x?", "/out/v"), _reads_folder("/out/1.parquet", "/out")
    (True, False)
    """
    parent, name = os.path.split(path)
    is_pattern = any(character in name for character in "*?[{")
    return any(_matches(folder, each) for each in ([path, parent] if is_pattern else [path]))


def _matches(path: str, pattern: str) -> bool:
    """Return whether a path is equal to a pattern, or matches it folder by folder."""
    parts, patterns = Path(path).parts, Path(pattern).parts
    return path == pattern or (
        len(parts) == len(patterns) and all(map(fnmatchcase, parts, patterns))
    )


def output_mode_of(mode: str | None, keys: Sequence[str] | None, *, label: str) -> OutputMode:
    """Return the output mode; the default is ``upsert`` with keys, and ``delta`` without.

    Raises:
        TargetError: The mode is unknown, or it cannot be combined with the keys.
    """
    mode = mode or ("delta" if keys is None else "upsert")
    if mode == "upsert" and keys is not None:
        return OutputMode("upsert", keys)
    for known in OUTPUT_MODES:
        if mode == known != "upsert" and keys is None:
            return OutputMode(known)
    raise TargetError(
        f"{label}: write mode=delta, mode=append, mode=complete, or keys=COLUMN for one row per key"
    )


def retry_of(kind: str, attempts: int | None, seconds: float | None, *, label: str) -> Retry:
    """Return how often and how long writes are retried; None means the default.

    Raises:
        TargetError: The kind is not a database, or a number is out of range.
    """
    values = {"retry_attempts": attempts, "retry_seconds": seconds}
    names = [name for name, value in values.items() if value is not None]
    if not names:
        return Retry()
    if kind not in DATABASES:
        raise TargetError(f"{label}: {', '.join(names)} is for {', '.join(DATABASES)} only")
    default = Retry()
    try:
        return Retry(
            default.max_attempts if attempts is None else attempts,
            default.max_seconds if seconds is None else seconds,
        )
    except TargetError:
        raise TargetError(f"{label}: {_HOW_TO_RETRY}") from None


def _split_table(location: str) -> tuple[str, str]:
    """Return a database, and the table after the last ``#`` that is not within single quotes.

    >>> _split_table("host=h password='a#b'"), _split_table("a#b.db#t"), _split_table("a.db")
    (("host=h password='a#b'", ''), ('a#b.db', 't'), ('a.db', ''))
    """
    unquoted = _QUOTED.sub(lambda match: "'" * len(match[0]), location)
    place = unquoted.rfind("#")
    return (location, "") if place < 0 else (location[:place], location[place + 1 :])


def _duckdb(file: str) -> Any:
    import duckdb

    return duckdb.connect(file)


def _postgres(dsn: str) -> Any:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    if "connect_timeout" in conninfo_to_dict(dsn) or "PGCONNECT_TIMEOUT" in os.environ:
        return psycopg.connect(dsn)
    return psycopg.connect(dsn, connect_timeout=CONNECT_TIMEOUT_S)


def _address(dsn: str) -> str:
    """Return host, port and database of a connection string; empty if it cannot be parsed."""
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    try:
        parts = conninfo_to_dict(dsn)
    except psycopg.Error:
        return ""
    host = parts.get("host") or os.environ.get("PGHOST") or "the local socket"
    port = parts.get("port") or os.environ.get("PGPORT") or "5432"
    database = parts.get("dbname") or os.environ.get("PGDATABASE")
    database_text = f", database {database}" if database else ""
    return redact(f"'{host}'")[1:-1] + f":{port}{database_text}"
