"""Sink: where the changes of views go, as it is named on the command line.

::

    [VIEW=]console                          rows on the terminal; as JSON lines with --json
    [VIEW=]parquet:FOLDER                   a file for each micro-batch
    [VIEW=]delta:FOLDER                     a Delta table
    [VIEW=]sqlite:FILE[#TABLE]              a table of SQLite
    [VIEW=]postgres:DSN[#TABLE]             a table of PostgreSQL; DSN may be empty (PGHOST, ...)

and then ``,keys=nr,region`` for one row per key instead of changes, or ``,mode=complete`` for the
whole view each time. ``{view}`` in a place stands for the name of the view; where several views
share a sink and a place has none, it is added.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sqlite3
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from circuits import Circuit
from circuits.functions.writing import readable
from circuits.schema import WEIGHT
from streaming.errors import TargetError
from streaming.outputs import Output, complete, upsert
from streaming.targets.console import ConsoleTarget
from streaming.targets.delta import DeltaTarget
from streaming.targets.parquet import ParquetTarget
from streaming.targets.sql import SqlTarget
from streaming.targets.target import Target, ViewDelta

__all__ = ["KINDS", "JsonLines", "Sink", "routes_of_sinks", "sinks_of"]

KINDS: Final = ("console", "parquet", "delta", "sqlite", "postgres")
PACKAGES: Final = {"delta": "deltalake", "postgres": "psycopg"}
_OPTION: Final = re.compile(r",(?=(?:keys|mode)=)")


@dataclass(frozen=True)
class Sink:
    """A place for the changes of views.

    Attributes:
        kind: One of ``KINDS``.
        place: What follows the colon.
        view: The only view that it takes; None for all that have no sink of their own.
        output: In which form it takes them.
    """

    kind: str
    place: str = ""
    view: str | None = None
    output: Output = field(default_factory=Output)

    @classmethod
    def parse(cls, text: str) -> Sink:
        """The sink that a text names.

        Raises:
            TargetError: It names none, or a package is not installed.

        >>> Sink.parse("waiting=sqlite:shop.db#open,keys=nr")
        Sink(kind='sqlite', place='shop.db#open', view='waiting', \
output=Output(mode='upsert', keys=('nr',)))
        >>> Sink.parse("console").view
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
        return cls(kind, place, view, _output(text, options))

    def target(self, views: Sequence[str], *, json: bool) -> Target:
        """What takes the changes of these views."""
        place, table = self.place, "{view}"
        if self.kind == "console":
            return JsonLines() if json else ConsoleTarget()
        if self.kind in ("sqlite", "postgres"):
            place, mark, named = place.partition("#")
            table = named if mark else table
        if len(views) > 1 and self.kind in ("sqlite", "postgres") and "{view}" not in table:
            table += "_{view}"
        if len(views) > 1 and self.kind in ("parquet", "delta") and "{view}" not in place:
            place = f"{place.rstrip('/')}/{{view}}"
        match self.kind:
            case "parquet":
                return ParquetTarget(place)
            case "delta":
                return DeltaTarget(place)
            case "sqlite":
                return SqlTarget(lambda: sqlite3.connect(place), table)
        return SqlTarget(lambda: _postgres(place), table)


class JsonLines:
    """Writes each changed row as a line of JSON to standard output."""

    def write(self, delta: ViewDelta) -> None:
        """Write the micro-batch; after a restart the last one may come again."""
        for row in readable(delta.table).to_pylist():
            weight = row.pop(WEIGHT)
            line = {"view": delta.view, "batch": delta.batch_id, "weight": weight, "row": row}
            sys.stdout.write(json.dumps(line, ensure_ascii=False, default=str) + "\n")
        sys.stdout.flush()


def sinks_of(texts: Sequence[str], circuit: Circuit) -> dict[str, Sink]:
    """The sink of each view that has one.

    Raises:
        TargetError: A text names none, a view that is not there, or one view twice.
    """
    found: dict[str, Sink] = {}
    others: list[Sink] = []
    for text in texts:
        sink = Sink.parse(text)
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


def routes_of_sinks(
    sinks: Mapping[str, Sink], *, json: bool = False
) -> tuple[dict[str, Target], dict[str, Output]]:
    """Targets and output forms by view, as ``ViewSink`` takes them."""
    made: dict[int, Target] = {}
    for sink in sinks.values():
        if id(sink) not in made:
            views = [view for view, other in sinks.items() if other is sink]
            made[id(sink)] = sink.target(views, json=json)
    targets = {view: made[id(sink)] for view, sink in sinks.items()}
    outputs = {view: sink.output for view, sink in sinks.items() if sink.output.mode != "delta"}
    return targets, outputs


def _output(text: str, options: Sequence[str]) -> Output:
    given = dict(option.split("=", 1) for option in options)
    mode = given.get("mode", "upsert" if "keys" in given else "delta")
    if "keys" in given and mode == "upsert":
        return upsert(*re.split(r"[,\s]+", given["keys"]))
    if mode == "complete" and "keys" not in given:
        return complete()
    if mode == "delta" and "keys" not in given:
        return Output()
    raise TargetError(
        f"--sink {text!r}: write mode=delta, mode=complete, or keys=COLUMN for one row per key"
    )


def _postgres(dsn: str) -> Any:
    import psycopg

    return psycopg.connect(dsn)
