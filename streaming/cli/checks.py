"""Checks: what can be known to be wrong with a run before Spark starts.

All of it is looked at without changing anything: no folder, file or table is made, and state and
targets are only read. Every problem that is found is told, each in a line; a check that needs the
result of one that failed is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa

from circuits import Circuit
from circuits.schema import WEIGHT
from dbsp_wcoj import DbspWcojError
from streaming.changes.order import unordered
from streaming.cli.command import text_of
from streaming.cli.inspection import writer_of
from streaming.cli.sink import Sink, check_places, routes_of_sinks, sinks_of
from streaming.cli.source import Source, sources_of
from streaming.cli.terminal import plural
from streaming.cli.views import circuit_of, without_weight
from streaming.engine import check_outputs
from streaming.errors import (
    EventsError,
    StateDamagedError,
    StateError,
    StateLockedError,
    StateMismatchError,
)
from streaming.state.files import files_of
from streaming.state.identity import identity_of
from streaming.state.manifest import FOLDER, Manifest, batch_of
from streaming.targets.folder import check_writable
from streaming.targets.target import CheckedTarget, ViewDelta

__all__ = [
    "CHECKPOINT",
    "Checks",
    "ProblemsError",
    "check_free",
    "check_memory",
    "check_state",
    "check_targets",
    "check_views",
    "views_kept",
]

#: Spark's checkpoint, in the folder of ``--state``.
CHECKPOINT: Final = "checkpoint"
#: A location of another file system; as a path, its slashes are one.
_REMOTE: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_MEMORY: Final = re.compile(r"\d+[kmgt]b?", re.IGNORECASE)


class ProblemsError(EventsError):
    """What is wrong with a run, one text for each problem."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


@dataclass
class Checks:
    """Problems that were found, and what was found right.

    Attributes:
        problems: A line for each problem.
        passed: What was checked, and a few words on it.
        warnings: What may go wrong later.
    """

    problems: list[str] = field(default_factory=list)
    passed: list[tuple[str, str]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @contextmanager
    def check(self, what: str = "", found: str = "") -> Iterator[None]:
        """Note an error of the user or the machine as a problem, and its absence as passed."""
        try:
            yield
        except (DbspWcojError, OSError, pa.ArrowException) as error:
            self.problems.append(text_of(error))
        else:
            if what:
                self.passed.append((what, found))

    def end(self) -> None:
        """Report the problems.

        Raises:
            ProblemsError: There are some.
        """
        if self.problems:
            raise ProblemsError(list(dict.fromkeys(self.problems)))


def check_views(
    checks: Checks,
    query: str,
    texts: Sequence[str],
    sinks: Sequence[str],
    *,
    formula: str,
    cells: int | None,
) -> tuple[dict[str, Source], Circuit | None]:
    """Check sources, query and sinks, as far as they tell without Spark.

    Returns:
        The sources, and the views without state; no views where only Spark knows some columns, or
        where something is wrong.
    """
    sources: dict[str, Source] = {}
    before = len(checks.problems)
    with checks.check():
        sources = sources_of(texts)
    schemas: dict[str, pa.Schema | None] = {}
    for name, source in sources.items():
        with checks.check():
            form, _ = source.format, source.feed  # either may be an error
            source.check_spark()
            schemas[name] = source.schema()
            _check_rules(source, schemas[name])
            source.check_sequence(None if "select" in source.own else schemas[name])
            if source.lacks_order(schemas[name]):
                checks.warnings.append(unordered(name))
            place = "" if source.path is None else f" in {source.path}"
            checks.passed.append((f"source {name}", f"{form}{place}: {_columns(schemas[name])}"))
    for sink in sinks:
        with checks.check():
            Sink.parse(sink)
    if len(checks.problems) > before:
        return sources, None
    unknown = [
        name for name, schema in schemas.items() if schema is None or "select" in sources[name].own
    ]
    if unknown:
        checks.passed.append(
            ("query", f"not compiled, as only Spark knows the columns of {', '.join(unknown)}")
        )
        return sources, None
    circuit = None
    with checks.check():
        columns = {name: without_weight(schema) for name, schema in schemas.items() if schema}
        rules = {name: rule for name, one in sources.items() if (rule := one.rules()) is not None}
        circuit = circuit_of(query, columns, rules=rules, formula=formula)
        kept = views_kept(sinks_of(sinks, circuit))
        if kept:  # by which its state differs
            circuit = circuit_of(query, columns, rules=rules, formula=formula, materialize=kept)
        views = ", ".join(circuit.outputs)
        checks.passed.append(("query", f"{plural(len(circuit.outputs), 'view')}: {views}"))
    if circuit is not None:
        with checks.check():
            _check_forms(sinks_of(sinks, circuit), circuit, sources, cells)
    return sources, circuit


def _check_rules(source: Source, schema: pa.Schema | None) -> None:
    """Check that keys and columns of rules are columns; that they fit is for the circuit."""
    rules = source.rules()
    if rules is None or schema is None or "select" in source.own:
        return
    for key in source.keys:
        if key not in schema.names:
            raise EventsError(
                f"--source {source.name}: keys={key} is no column; columns are "
                f"{', '.join(schema.names)}"
            )


def _check_forms(
    sinks: Mapping[str, Sink], circuit: Circuit, sources: Mapping[str, Source], cells: int | None
) -> None:
    """Check forms and places of sinks against the views and each other."""
    for view, sink in sinks.items():
        names = [name for name in circuit.schema(view).arrow.names if name != WEIGHT]
        sink.output.check(view, names)
    if cells is not None and not circuit.recursions:
        check_outputs("distributed", {view: sink.output for view, sink in sinks.items()})
    folders = [one.path for one in sources.values() if one.path is not None]
    check_places(sinks, folders)


def views_kept(sinks: Mapping[str, Sink]) -> list[str]:
    """The views that sinks need whole, and a circuit has to materialize."""
    return [view for view, sink in sinks.items() if sink.output.needs_view]


def check_state(
    checks: Checks, state: Path, circuit: Circuit | None, cells: int | None
) -> tuple[str, int]:
    """Check the folder of ``--state``, and against the views what is in it.

    Returns:
        The identity of the state, empty if it has none yet, and the newest micro-batch, or -1.
    """
    identity, newest = "", -1
    with checks.check():
        if _REMOTE.match(str(state)):
            raise StateError(
                f"--state {state}: the command keeps state on a local disk; for other file systems "
                "write a job with ViewSink(state_dir=...)"
            )
        if state.exists() and not state.is_dir():
            raise StateError(f"--state {state}: is a file; name a folder")
        if str(state) in ("", ".") or not state.name:
            raise StateError(
                f"--state {state}: name a folder of its own, as in --state state/, since state and "
                "checkpoint have many files"
            )
        try:
            check_writable(state)
        except OSError as error:
            raise StateError(
                f"--state {state}: {error.filename} {error.strerror}: name a folder that this "
                "user may write to"
            ) from None
        if circuit is not None and state.is_dir():
            found = check_free(state, circuit)
            identity = found or ""
        newest = _check_versions(state, circuit, cells)
        checks.passed.append(
            ("state", f"{state}, {'new' if newest < 0 else f'at micro-batch {newest:,}'}")
        )
    return identity, newest


def check_free(state: Path, circuit: Circuit) -> str | None:
    """Refuse a state directory of other views, or of another process.

    The sink does so too, but only when there are rows, and Spark's checkpoint lies there as well.

    Returns:
        The identity of the directory; None if it has none yet.

    Raises:
        StateMismatchError, StateDamagedError: It belongs to other views, or cannot tell.
        StateLockedError: It is in use.
    """
    identity = identity_of(files_of(str(state)), circuit)
    writer = writer_of(state)
    if writer is not None:
        raise StateLockedError(
            f"--state {state}: process {writer or 'unknown'} writes to it: stop that one, or name "
            "another folder"
        )
    return None if identity is None else identity.id


def _check_versions(state: Path, circuit: Circuit | None, cells: int | None) -> int:
    """Check the newest version against checkpoint and cells; its micro-batch, or -1."""
    files = files_of(str(state))
    numbers = [number for name in files.names(FOLDER) if (number := batch_of(name)) is not None]
    newest = max(numbers, default=-1)
    commits = state / CHECKPOINT / "commits"
    done = (
        [int(p.name) for p in commits.iterdir() if p.name.isdecimal()] if commits.is_dir() else []
    )
    committed = max(done, default=-1)
    if committed not in (newest, newest - 1):
        raise StateMismatchError(
            f"--state {state}: the state is at micro-batch {newest} and Spark's checkpoint at "
            f"{committed} (-1: none): one of them was deleted or put back from a copy. Restore "
            "both from one copy, or begin again with an empty folder and empty targets"
        )
    if newest < 0 or circuit is None:
        return newest
    try:
        name = next(n for n in reversed(files.names(FOLDER)) if batch_of(n) == newest)
        found = Manifest.of(bytes(files.read(name)), name).cells
    except StateDamagedError:
        return newest  # the version before it may do, as the sink finds out
    count = None if found is None else found.count
    wanted = None if circuit.recursions else cells
    if count != wanted:
        is_now = "in one process" if count is None else f"in {count} cells"
        give = "without --cells" if count is None else f"with --cells {count}"
        move = "--embedded" if wanted is None else f"--cells {wanted}"
        raise StateMismatchError(
            f"--state {state}: the state is {is_now}: run {give}, or move it by dbsp-wcoj rescale "
            f"{state} {move}"
        )
    return newest


def check_targets(
    checks: Checks,
    sinks: Mapping[str, Sink],
    circuit: Circuit,
    *,
    state_id: str,
    newest: int,
) -> None:
    """Check that targets can be reached, and that what is there takes the views."""
    targets, _ = routes_of_sinks(sinks)
    for view, sink in sinks.items():
        target = targets[view]
        with checks.check(f"sink {view}", sink.text()):
            schema = circuit.schema(view).arrow
            delta = ViewDelta(
                view, newest + 1, schema.empty_table(), sink.output.mode, sink.output.keys, state_id
            )
            if isinstance(target, CheckedTarget) and sink.is_there():
                target.check(delta)


def check_memory(text: str) -> None:
    """Check a size that Spark is given.

    Raises:
        EventsError: It is none.
    """
    if not _MEMORY.fullmatch(text):
        raise EventsError(f"--memory {text!r}: write a number and a unit, as in 2g or 800m")


def _columns(schema: pa.Schema | None) -> str:
    if schema is None:
        return "columns known to Spark only"
    return ", ".join(f"{field.name} {field.type}" for field in schema)
