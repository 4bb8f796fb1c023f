"""Parse the option ``--sink``: the target that receives the changes of a view.

::

    [VIEW=]console                          rows on the terminal; as JSON lines with --json
    [VIEW=]parquet:FOLDER                   a file for each micro-batch
    [VIEW=]delta:FOLDER                     a Delta table
    [VIEW=]sqlite:FILE[#TABLE]              a table of SQLite
    [VIEW=]postgres:DSN[#TABLE]             a table of PostgreSQL; DSN may be empty (PGHOST, ...)

Append ``,keys=nr,region`` for one row per key instead of changes, or ``,mode=complete`` for the
whole view in each micro-batch. ``{view}`` in a place stands for the name of the view; if several
views share a sink and its place has no ``{view}``, the name is appended. If a database does not
answer, the write is retried at most ``,retry_attempts=20`` times within ``,retry_seconds=120``. Put
a password into PGPASSWORD or a password file, because other users of the machine can read the
arguments of a command.
"""

from __future__ import annotations

import errno
import importlib.util
import json
import os
import re
import sqlite3
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from circuits import Circuit
from circuits.schema import WEIGHT
from circuits.types.functions.text_formatting import readable
from streaming.errors import TargetError
from streaming.redacted import redacted
from streaming.sink.output import Output
from streaming.targets.console import ConsoleTarget
from streaming.targets.delta import DeltaTarget
from streaming.targets.folder_checks import check_writable
from streaming.targets.output_mode import OutputMode
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
    "check_places",
    "output_of",
    "retry_of",
]

KINDS: Final = ("console", "parquet", "delta", "sqlite", "postgres")
PACKAGES: Final = {"delta": "deltalake", "postgres": "psycopg"}
OPTIONS: Final = ("keys", "mode", "retry_attempts", "retry_seconds")
DATABASES: Final = ("sqlite", "postgres")
#: Time limit for the connection to a server.
CONNECT_TIMEOUT_S: Final = 10
_OPTION: Final = re.compile(rf",(?=(?:{'|'.join(OPTIONS)})=)")
_UNKNOWN: Final = re.compile(r",([A-Za-z_]\w*)=")
_HOW_TO_RETRY: Final = "write retry_attempts=N, 1 or more, and retry_seconds=SECONDS"


@dataclass(frozen=True)
class SinkArgument:
    """A target for the changes of views.

    Attributes:
        kind: One of ``KINDS``.
        place: A folder, a file, or the connection string of a database; empty for the console.
        table: The table of a database, perhaps with ``{view}``; empty for the name of the view.
        view: The only view that the sink receives; None for all views without a sink.
        output: The output mode.
        retry: How often, and how long, a write to a database is retried.
        label: How error messages name the sink.
    """

    kind: str
    place: str = ""
    table: str = ""
    view: str | None = None
    output: OutputMode = field(default_factory=OutputMode)
    retry: Retry = field(default_factory=Retry, repr=False)
    label: str = field(default="--sink", repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise TargetError(
                f"{self.label}: there is no sink {self.kind!r}; there are console, parquet:FOLDER, "
                "delta:FOLDER, sqlite:FILE, postgres:DSN"
            )
        if self.kind in ("parquet", "delta", "sqlite") and not self.place:
            raise TargetError(f"{self.label}: name the place, {self.kind}:PLACE")
        if self.kind == "console" and self.place:
            raise TargetError(f"{self.label}: the console has no place; write console")
        package = PACKAGES.get(self.kind)
        if package is not None and importlib.util.find_spec(package) is None:
            raise TargetError(
                f"{self.label} needs the package {package}, which is not installed: run pip "
                "install 'dbsp-wcoj[sinks]'"
            )

    @classmethod
    def parse(cls, text: str) -> SinkArgument:
        """Parse a value of ``--sink``.

        Raises:
            TargetError: The text is not a sink, or a package is not installed.

        >>> SinkArgument.parse("waiting=sqlite:shop.db#open,keys=nr")
        SinkArgument(kind='sqlite', place='shop.db', table='open', view='waiting', \
output=OutputMode(mode='upsert', keys=('nr',)))
        >>> SinkArgument.parse("console").view
        """
        label = f"--sink {text!r}"
        head, *options = _OPTION.split(text)
        view: str | None = None
        found = re.match(r"([A-Za-z_]\w*)=", head)
        if found:
            view, head = found[1], head[found.end() :]
        kind, colon, place = head.partition(":")
        if kind == "console" and colon:
            raise TargetError(f"{label}: the console has no place; write console")
        unknown = _UNKNOWN.search(place)
        if unknown and kind in KINDS:
            raise TargetError(
                f"{label}: there is no option {unknown[1]}=; there are "
                f"{', '.join(f'{one}=' for one in OPTIONS)}"
            )
        table = ""
        if kind in DATABASES:
            place, _, table = place.partition("#")
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
            place,
            table,
            view,
            output_of(values.get("mode"), keys, label=label),
            retry_of(kind, attempts, seconds, label=label),
            label,
        )

    def text(self) -> str:
        """Return the value of the option without the view and without secrets."""
        place = f":{self.place}" if self.place else ""
        table = f"#{self.table}" if self.table else ""
        form = "" if self.output.mode == "delta" else f", {self.output}"
        return redacted(f"{self.kind}{place}{table}{form}")

    def places(self, views: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Return the place of each view, comparable with those of other sinks; none for a console.

        Args:
            views: The views that share the sink.
        """
        if self.kind == "console":
            return {}
        place, table = self._templates(views)
        if self.kind in DATABASES:
            if self.kind == "sqlite":
                place = os.path.abspath(place)
            return {
                view: (self.kind, place, expand_template(table, view, quoted=False))
                for view in views
            }
        return {view: (self.kind, os.path.abspath(expand_template(place, view))) for view in views}

    def exists(self) -> bool:
        """Return whether the target exists already; only a file of SQLite may not.

        Raises:
            OSError: The file cannot be created.
        """
        if self.kind != "sqlite":
            return True
        path = Path(self.place)
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "is a folder; name a file", str(path))
        if not path.parent.exists():  # SQLite makes no folders
            raise FileNotFoundError(errno.ENOENT, "there is no such folder", str(path.parent))
        check_writable(path.parent)
        return path.exists()

    def target(self, views: Sequence[str], *, json: bool) -> Target:
        """Create the target for these views."""
        if self.kind == "console":
            return JsonLines() if json else ConsoleTarget()
        place, table = self._templates(views)
        match self.kind:
            case "parquet":
                return ParquetTarget(place)
            case "delta":
                return DeltaTarget(place)
            case "sqlite":
                return SqlTarget(
                    lambda: sqlite3.connect(place), table, retry=self.retry, address=place
                )
        return SqlTarget(lambda: _postgres(place), table, retry=self.retry, address=_address(place))

    def _templates(self, views: Sequence[str]) -> tuple[str, str]:
        """Place and table, with ``{view}`` if several views share them."""
        place, table = self.place, self.table or "{view}"
        if self.kind in DATABASES:
            if len(views) > 1 and "{view}" not in table:
                table += "_{view}"
        elif len(views) > 1 and "{view}" not in place:
            place = f"{place.rstrip('/')}/{{view}}"
        return place, table


class JsonLines:
    """Writes each changed row as a line of JSON to standard output."""

    def write(self, delta: ViewDelta) -> None:
        """Write a micro-batch; after a restart the last one may be written again."""
        for row in readable(delta.table).to_pylist():
            weight = row.pop(WEIGHT)
            line = {"view": delta.view, "batch": delta.batch_id, "weight": weight, "row": row}
            sys.stdout.write(json.dumps(line, ensure_ascii=False, default=str) + "\n")
        sys.stdout.flush()


def assign_sinks(sinks: Sequence[SinkArgument], circuit: Circuit) -> dict[str, SinkArgument]:
    """Return the sink of each view that has one.

    Raises:
        TargetError: A sink names an unknown view, or a view has two sinks.
    """
    found: dict[str, SinkArgument] = {}
    others: list[SinkArgument] = []
    for sink in sinks:
        if sink.view is None:
            others.append(sink)
        elif sink.view not in circuit.outputs:
            raise TargetError(
                f"{sink.label}: there is no view {sink.view!r}; views are "
                f"{', '.join(circuit.outputs)}"
            )
        elif sink.view in found:
            raise TargetError(f"{sink.label}: view {sink.view!r} has a sink already")
        else:
            found[sink.view] = sink
    if len(others) > 1:
        raise TargetError(
            f"{len(others)} sinks are for all views: name the view of each, "
            f"VIEW={others[0].kind}..."
        )
    rest = [view for view in circuit.outputs if view not in found]
    return found | dict.fromkeys(rest, others[0]) if others else found


def build_outputs(sinks: Mapping[str, SinkArgument], *, json: bool = False) -> list[Output]:
    """Create the targets; return the outputs of the views, for ``ViewSink``."""
    made: dict[int, Target] = {}
    for sink in sinks.values():
        if id(sink) not in made:
            views = [view for view, other in sinks.items() if other is sink]
            made[id(sink)] = sink.target(views, json=json)
    return [
        Output(view, made[id(sink)], sink.output.mode, sink.output.keys)
        for view, sink in sinks.items()
    ]


def check_places(sinks: Mapping[str, SinkArgument], folders: Sequence[Path]) -> None:
    """Check that no two sinks share a place, and that no source reads what a sink writes.

    Args:
        sinks: The sink of each view.
        folders: The paths that sources read.

    Raises:
        TargetError: Two views, or a view and a source, share a place.
    """
    owners: dict[tuple[str, ...], str] = {}
    for sink in dict.fromkeys(sinks.values()):
        views = [view for view, other in sinks.items() if other is sink]
        for view, place in sink.places(views).items():
            other = owners.setdefault(place, view)
            if other != view:
                raise TargetError(
                    f"{sink.label}: views {other!r} and {view!r} have one place, {sink.text()}: "
                    "name a place for each, or put {view} into it"
                )
            if sink.kind in DATABASES:
                continue
            for folder in folders:
                if Path(place[1]) == Path(os.path.abspath(folder)):
                    raise TargetError(
                        f"{sink.label}: view {view!r} is written to {folder}, which a source "
                        "reads: name another folder"
                    )


def output_of(mode: str | None, keys: Sequence[str] | None, *, label: str) -> OutputMode:
    """Return the output mode; the default is ``upsert`` with keys, and ``delta`` without.

    Raises:
        TargetError: The mode is unknown, or it does not go with the keys.
    """
    mode = mode or ("delta" if keys is None else "upsert")
    if mode == "upsert" and keys is not None:
        return OutputMode("upsert", keys)
    if mode == "complete" and keys is None:
        return OutputMode("complete")
    if mode == "delta" and keys is None:
        return OutputMode()
    raise TargetError(
        f"{label}: write mode=delta, mode=complete, or keys=COLUMN for one row per key"
    )


def retry_of(kind: str, attempts: int | None, seconds: float | None, *, label: str) -> Retry:
    """Return how a database of this kind is retried; None stands for the default.

    Raises:
        TargetError: The kind is no database, or a number is out of range.
    """
    values = {"retry_attempts": attempts, "retry_seconds": seconds}
    names = [name for name, value in values.items() if value is not None]
    if not names:
        return Retry()
    if kind not in DATABASES:
        raise TargetError(f"{label}: {', '.join(names)} is for {' and '.join(DATABASES)} only")
    default = Retry()
    try:
        return Retry(
            default.max_attempts if attempts is None else attempts,
            default.max_seconds if seconds is None else seconds,
        )
    except TargetError:
        raise TargetError(f"{label}: {_HOW_TO_RETRY}") from None


def _postgres(dsn: str) -> Any:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    if "connect_timeout" in conninfo_to_dict(dsn) or "PGCONNECT_TIMEOUT" in os.environ:
        return psycopg.connect(dsn)
    return psycopg.connect(dsn, connect_timeout=CONNECT_TIMEOUT_S)


def _address(dsn: str) -> str:
    """Host, port and database of a connection string; empty if it cannot be parsed."""
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    try:
        found = conninfo_to_dict(dsn)
    except psycopg.Error:
        return ""
    host = found.get("host") or os.environ.get("PGHOST") or "the local socket"
    port = found.get("port") or os.environ.get("PGPORT") or "5432"
    database = found.get("dbname") or os.environ.get("PGDATABASE")
    named = f", database {database}" if database else ""
    return redacted(f"'{host}'")[1:-1] + f":{port}{named}"
