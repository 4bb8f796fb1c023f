"""Sink: where the changes of views go, as it is named on the command line.

::

    [VIEW=]console                          rows on the terminal; as JSON lines with --json
    [VIEW=]parquet:FOLDER                   a file for each micro-batch
    [VIEW=]delta:FOLDER                     a Delta table
    [VIEW=]sqlite:FILE[#TABLE]              a table of SQLite
    [VIEW=]postgres:DSN[#TABLE]             a table of PostgreSQL; DSN may be empty (PGHOST, ...)

and then ``,keys=nr,region`` for one row per key instead of changes, or ``,mode=complete`` for the
whole view each time. ``{view}`` in a place stands for the name of the view; where several views
share a sink and a place has none, it is added. A database that does not answer is tried again, at
most ``,retry_attempts=20`` times within ``,retry_seconds=120``. A password belongs into PGPASSWORD
or a password file, as other users of the machine can read the words of a command.
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
from streaming.targets.target import Target, ViewDelta, place_of

__all__ = ["KINDS", "JsonLines", "SinkArgument", "check_places", "outputs_of_sinks", "sinks_of"]

KINDS: Final = ("console", "parquet", "delta", "sqlite", "postgres")
PACKAGES: Final = {"delta": "deltalake", "postgres": "psycopg"}
OPTIONS: Final = ("keys", "mode", "retry_attempts", "retry_seconds")
DATABASES: Final = ("sqlite", "postgres")
#: Seconds after which a server that does not answer at all cannot be reached.
CONNECT_SECONDS: Final = 10
_OPTION: Final = re.compile(rf",(?=(?:{'|'.join(OPTIONS)})=)")
_UNKNOWN: Final = re.compile(r",([A-Za-z_]\w*)=")


@dataclass(frozen=True)
class SinkArgument:
    """A place for the changes of views.

    Attributes:
        kind: One of ``KINDS``.
        place: What follows the colon.
        view: The only view that it takes; None for all that have no sink of their own.
        output: In which form it takes them.
        retry: How long a database is waited for.
    """

    kind: str
    place: str = ""
    view: str | None = None
    output: OutputMode = field(default_factory=OutputMode)
    retry: Retry = field(default_factory=Retry, repr=False)

    @classmethod
    def parse(cls, text: str) -> SinkArgument:
        """The sink that a text names.

        Raises:
            TargetError: It names none, or a package is not installed.

        >>> SinkArgument.parse("waiting=sqlite:shop.db#open,keys=nr")
        Sink(kind='sqlite', place='shop.db#open', view='waiting', \
output=OutputMode(mode='upsert', keys=('nr',)))
        >>> SinkArgument.parse("console").view
        """
        head, *options = _OPTION.split(text)
        view: str | None = None
        found = re.match(r"([A-Za-z_]\w*)=", head)
        if found:
            view, head = found[1], head[found.end() :]
        kind, colon, place = head.partition(":")
        if kind not in KINDS:
            raise TargetError(
                f"--sink {text!r}: there is no sink {kind!r}; there are console, parquet:FOLDER, "
                "delta:FOLDER, sqlite:FILE, postgres:DSN"
            )
        if kind in ("parquet", "delta", "sqlite") and not place:
            raise TargetError(f"--sink {text!r}: say where, {kind}:PLACE")
        package = PACKAGES.get(kind)
        if package is not None and importlib.util.find_spec(package) is None:
            raise TargetError(
                f"--sink {text!r} needs the package {package}, which is not installed: run pip "
                "install 'dbsp-wcoj[sinks]'"
            )
        if kind == "console" and colon:
            raise TargetError(f"--sink {text!r}: the console has no place; write console")
        unknown = _UNKNOWN.search(place)
        if unknown:
            raise TargetError(
                f"--sink {text!r}: there is no option {unknown[1]}=; there are "
                f"{', '.join(f'{one}=' for one in OPTIONS)}"
            )
        given = _given(text, options)
        return cls(kind, place, view, _output(text, given), _retry(text, kind, given))

    def text(self) -> str:
        """As it is written, without view and secrets."""
        colon = ":" if self.place else ""
        form = "" if self.output.mode == "delta" else f", {self.output}"
        return redacted(f"{self.kind}{colon}{self.place}{form}")

    def places(self, views: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Where each of the views that share it goes, comparable among sinks; not the console."""
        if self.kind == "console":
            return {}
        place, table = self._templates(views)
        if self.kind in DATABASES:
            if self.kind == "sqlite":
                place = os.path.abspath(place)
            return {view: (self.kind, place, place_of(table, view, quoted=False)) for view in views}
        return {view: (self.kind, os.path.abspath(place_of(place, view))) for view in views}

    def is_there(self) -> bool:
        """Return whether the target exists already; SQLite may still have to create its file.

        Raises:
            OSError: It could not be made.
        """
        if self.kind != "sqlite":
            return True
        path = Path(self.place.partition("#")[0])
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "is a folder; name a file", str(path))
        if not path.parent.exists():  # SQLite makes no folders
            raise FileNotFoundError(errno.ENOENT, "there is no such folder", str(path.parent))
        check_writable(path.parent)
        return path.exists()

    def target(self, views: Sequence[str], *, json: bool) -> Target:
        """What takes the changes of these views."""
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
        """Place and table, with ``{view}`` where several views share them."""
        place, table = self.place, "{view}"
        if self.kind in DATABASES:
            place, mark, named = place.partition("#")
            table = named if mark else table
            if len(views) > 1 and "{view}" not in table:
                table += "_{view}"
        elif len(views) > 1 and "{view}" not in place:
            place = f"{place.rstrip('/')}/{{view}}"
        return place, table


class JsonLines:
    """Writes each changed row as a line of JSON to standard output."""

    def write(self, delta: ViewDelta) -> None:
        """Write the micro-batch; after a restart the last one may come again."""
        for row in readable(delta.table).to_pylist():
            weight = row.pop(WEIGHT)
            line = {"view": delta.view, "batch": delta.batch_id, "weight": weight, "row": row}
            sys.stdout.write(json.dumps(line, ensure_ascii=False, default=str) + "\n")
        sys.stdout.flush()


def sinks_of(texts: Sequence[str], circuit: Circuit) -> dict[str, SinkArgument]:
    """The sink of each view that has one.

    Raises:
        TargetError: A text names none, a view that is not there, or one view twice.
    """
    found: dict[str, SinkArgument] = {}
    others: list[SinkArgument] = []
    for text in texts:
        sink = SinkArgument.parse(text)
        if sink.view is None:
            others.append(sink)
        elif sink.view not in circuit.outputs:
            raise TargetError(
                f"--sink {text!r}: there is no view {sink.view!r}; views are "
                f"{', '.join(circuit.outputs)}"
            )
        elif sink.view in found:
            raise TargetError(f"--sink {text!r}: view {sink.view!r} has a sink already")
        else:
            found[sink.view] = sink
    if len(others) > 1:
        raise TargetError(
            f"{len(others)} sinks are for all views: name the view of each, "
            f"VIEW={others[0].kind}..."
        )
    rest = [view for view in circuit.outputs if view not in found]
    return found | dict.fromkeys(rest, others[0]) if others else found


def outputs_of_sinks(sinks: Mapping[str, SinkArgument], *, json: bool = False) -> list[Output]:
    """Return the outputs of the views, as ``ViewSink`` takes them."""
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
    """Check that no two sinks are of one place, and that no source reads what a sink writes.

    Args:
        sinks: The sink of each view.
        folders: The places of files that sources read.

    Raises:
        TargetError: Two views, or a view and a source, have one place.
    """
    taken: dict[tuple[str, ...], str] = {}
    for sink in dict.fromkeys(sinks.values()):
        views = [view for view, other in sinks.items() if other is sink]
        for view, place in sink.places(views).items():
            other = taken.setdefault(place, view)
            if other != view:
                raise TargetError(
                    f"--sink: views {other!r} and {view!r} have one place, {sink.text()}: name a "
                    "place for each, or put {view} into it"
                )
            if sink.kind in DATABASES:
                continue
            for folder in folders:
                if Path(place[1]) == Path(os.path.abspath(folder)):
                    raise TargetError(
                        f"--sink: view {view!r} is written to {folder}, which a source reads: name "
                        "another folder"
                    )


def _given(text: str, options: Sequence[str]) -> dict[str, str]:
    given: dict[str, str] = {}
    for option in options:
        key, _, value = option.partition("=")
        if key in given:
            raise TargetError(f"--sink {text!r}: {key} is given twice")
        given[key] = value
    return given


def _output(text: str, given: Mapping[str, str]) -> OutputMode:
    mode = given.get("mode", "upsert" if "keys" in given else "delta")
    if "keys" in given and mode == "upsert":
        return OutputMode("upsert", re.split(r"[,\s]+", given["keys"].strip()))
    if mode == "complete" and "keys" not in given:
        return OutputMode("complete")
    if mode == "delta" and "keys" not in given:
        return OutputMode()
    raise TargetError(
        f"--sink {text!r}: write mode=delta, mode=complete, or keys=COLUMN for one row per key"
    )


def _retry(text: str, kind: str, given: Mapping[str, str]) -> Retry:
    numbers = {key: given[key] for key in ("retry_attempts", "retry_seconds") if key in given}
    if not numbers:
        return Retry()
    if kind not in DATABASES:
        raise TargetError(f"--sink {text!r}: {', '.join(numbers)} is of {' and '.join(DATABASES)}")
    default = Retry()
    try:
        return Retry(
            int(numbers.get("retry_attempts", default.max_attempts)),
            float(numbers.get("retry_seconds", default.max_seconds)),
        )
    except (ValueError, TargetError):
        raise TargetError(
            f"--sink {text!r}: write retry_attempts=N, 1 or more, and retry_seconds=SECONDS"
        ) from None


def _postgres(dsn: str) -> Any:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    if "connect_timeout" in conninfo_to_dict(dsn) or "PGCONNECT_TIMEOUT" in os.environ:
        return psycopg.connect(dsn)
    return psycopg.connect(dsn, connect_timeout=CONNECT_SECONDS)


def _address(dsn: str) -> str:
    """Host, port and database of a connection string; empty if it cannot be read."""
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
