"""Checks that the command ``run`` makes before it starts Spark.

The checks change nothing: they create no folder, file or table, and only read state and targets.
They report every problem that they find, one line for each. If a check fails, the checks that need
its result are skipped.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa

from circuits import Circuit
from circuits.plan.traversal import read_relations
from circuits.schema import WEIGHT
from circuits.state.sliced_backfill import check_slices
from dbsp_wcoj import DbspWcojError
from streaming.cli.arguments.sink import (
    SinkArgument,
    assign_sinks,
    build_outputs,
    check_locations,
)
from streaming.cli.arguments.source import SourceArgument
from streaming.cli.arguments.state_location import StateLocation, check_folder
from streaming.cli.arguments.views import (
    DUCKDB,
    compile_query,
    dialect_of,
    without_weight,
)
from streaming.cli.command import error_message
from streaming.cli.state_inspection import writer_of
from streaming.cli.terminal.display import plural
from streaming.distributed.program_change import plan_cell_change
from streaming.errors import (
    EventsError,
    StateDamagedError,
    StateError,
    StateLockedError,
    StateMismatchError,
)
from streaming.sources.change_feeds.change_order import missing_order_warning
from streaming.state.directory_identity import IDENTITY_FILE, find_identity
from streaming.state.local_files import LOCK_TIMEOUT_S, is_locked_here
from streaming.state.manifest import list_batch_ids, read_manifest
from streaming.state.program_change import (
    ChangeOptions,
    check_allowed,
    check_sliced_start,
    is_of_same_plan,
    log_unused_rows,
    newest_version,
    select_options,
)
from streaming.state.view_definitions import DEFINITION_FILE, check_definition
from streaming.targets.target import CheckedTarget, ViewDelta

__all__ = [
    "Checks",
    "ProblemsError",
    "check_memory",
    "check_state",
    "check_targets",
    "check_unread_sources",
    "check_usable",
    "check_views",
    "materialized_views",
]

#: A size as Spark's JVM reads it.
_MEMORY_SIZE: Final = re.compile(r"\d+[kmgt]b?", re.IGNORECASE)


class ProblemsError(EventsError):
    """The checks of a run found problems; ``problems`` has one message for each."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__(tuple(problems))
        self.problems = tuple(problems)

    def __str__(self) -> str:
        return "; ".join(self.problems)


@dataclass
class Checks:
    """Results of the checks so far.

    Attributes:
        problems: One line for each problem.
        passed: The subject and the result of each check that found no problem.
        warnings: Problems that may occur later in the run.
    """

    problems: list[str] = field(default_factory=list)
    passed: list[tuple[str, str]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @contextmanager
    def check(self, subject: str = "", result: str = "") -> Iterator[None]:
        """Run the body as one check: record its error as a problem, or the check as passed.

        Only errors of the package, the operating system and Arrow are recorded; others are raised.

        Args:
            subject: The subject of the check; if empty, a passed check is not recorded.
            result: A short description of the result.
        """
        try:
            yield
        except (DbspWcojError, OSError, pa.ArrowException) as error:
            self.problems.append(error_message(error))
        else:
            if subject:
                self.passed.append((subject, result))

    def end(self) -> None:
        """Report the problems.

        Raises:
            ProblemsError: At least one check failed.
        """
        if self.problems:
            raise ProblemsError(list(dict.fromkeys(self.problems)))


def check_views(
    checks: Checks,
    query: str,
    sources: Mapping[str, SourceArgument],
    sinks: Sequence[SinkArgument],
    *,
    formula: str,
    is_complete: bool = True,
    dialect: str = DUCKDB,
    functions: str | None = None,
) -> Circuit | None:
    """Check sources, query and sinks, as far as that is possible without Spark.

    Args:
        checks: Receives the results.
        query: The query, or the name of its file.
        sources: The sources by relation.
        sinks: The sinks.
        formula: The delta formula of the joins.
        is_complete: True if all sources and sinks could be parsed; else the query is not compiled.
        dialect: The SQL dialect of the query.
        functions: The value of ``--functions``.

    Returns:
        A circuit of the views without state. None if only Spark knows the columns of a source, or
        if a check failed up to the compilation of the query.
    """
    problems_before = len(checks.problems)
    schemas: dict[str, pa.Schema | None] = {}
    for name, source in sources.items():
        with checks.check():
            format, _ = source.format, source.feed  # both may raise an error
            source.check_spark()
            schemas[name] = source.schema()
            source.check_sequence(None if "select" in source.settings else schemas[name])
            _check_keys(source, schemas[name])
            if source.lacks_order(source.stream_schema()):
                checks.warnings.append(missing_order_warning(name))
            location = "" if source.path is None else f" in {source.path}"
            checks.passed.append(
                (f"source {name}", f"{format}{location}: {_columns(schemas[name])}")
            )
    if not is_complete or len(checks.problems) > problems_before:
        return None
    spark_only = [
        name
        for name, schema in schemas.items()
        if schema is None or "select" in sources[name].settings
    ]
    if spark_only:
        checks.passed.append(
            (
                "query",
                f"not compiled, as only Spark knows the columns of {', '.join(spark_only)}",
            )
        )
        return None
    circuit = None
    with checks.check():
        columns = {name: without_weight(schema) for name, schema in schemas.items() if schema}
        options = {}
        for name, source in sources.items():
            if (input_options := source.input_options()) is not None:
                options[name] = input_options
        compile_views = partial(
            compile_query,
            query,
            columns,
            dialect=dialect,
            functions=functions,
            input_options=options,
            formula=formula,
        )
        circuit = compile_views()
        views = materialized_views(assign_sinks(sinks, circuit))
        if views:  # compile again, since the state of a circuit depends on its materialized views
            circuit = compile_views(materialize=views)
        names = ", ".join(circuit.outputs)
        checks.passed.append(("query", f"{plural(len(circuit.outputs), 'view')}: {names}"))
        if dialect_of(circuit) is not None:
            checks.passed.append(("SQL dialect", dialect))
    if circuit is not None:
        with checks.check():
            _check_outputs(assign_sinks(sinks, circuit), circuit, sources)
    return circuit


def _check_keys(source: SourceArgument, schema: pa.Schema | None) -> None:
    """Check that the keys are columns of the source; the circuit checks the other options."""
    if source.input_options() is None or schema is None or "select" in source.settings:
        return
    for key in source.keys:
        if key not in schema.names:
            raise EventsError(
                f"{source.label}: keys={key} is not a column; columns: {', '.join(schema.names)}"
            )


def _check_outputs(
    sinks: Mapping[str, SinkArgument],
    circuit: Circuit,
    sources: Mapping[str, SourceArgument],
) -> None:
    """Check the output modes and locations of sinks against the views and against each other."""
    for view, sink in sinks.items():
        names = [name for name in circuit.schema(view).arrow.names if name != WEIGHT]
        sink.output_mode.check(view, names)
    folders = [source.path for source in sources.values() if source.path is not None]
    check_locations(sinks, folders)


def check_unread_sources(
    checks: Checks, circuit: Circuit, sources: Mapping[str, SourceArgument], *, is_continued: bool
) -> None:
    """Check that a view reads each source, or that the state keeps its rows.

    Args:
        checks: Receives the results.
        circuit: The views.
        sources: The sources by relation.
        is_continued: True if the state has a micro-batch. Then this is only a warning, because
            Spark refuses the checkpoint of the state with fewer sources.
    """
    read = set().union(*map(read_relations, circuit.plans.values()))
    for name, source in sources.items():
        if name in read or name in circuit.materialized:
            continue
        names = ", ".join(sorted(read)) or "nothing"
        problem = f"{source.label}: no view reads {name!r}; views read {names}"
        if is_continued:
            checks.warnings.append(f"{problem}, so its rows are read and then dropped")
        else:
            checks.problems.append(
                f"{problem}: correct its name, remove it, or add keep=all to keep its rows for "
                "later views"
            )


def materialized_views(sinks: Mapping[str, SinkArgument]) -> list[str]:
    """Return the views that the circuit must materialize, because a sink needs all their rows."""
    return [view for view, sink in sinks.items() if sink.output_mode.needs_view]


def check_state(
    checks: Checks,
    state: str,
    circuit: Circuit | None,
    cells: int | None,
    label: str = "--state",
    *,
    change: ChangeOptions | None = None,
    checkpoint: Path | None = None,
    checkpoint_label: str = "--checkpoint",
) -> tuple[str, int]:
    """Check the location of ``--state``, and compare the state in it with the views.

    Args:
        checks: Receives the results.
        state: The location.
        circuit: The views; None if they could not be compiled.
        cells: The number of cells on Spark's executors; None to run in one process.
        label: The name of the option in error messages.
        change: As for `check_usable`.
        checkpoint: The value of ``--checkpoint``.
        checkpoint_label: The name of this option in error messages.

    Returns:
        The id of the state directory, empty if it has none yet, and the newest micro-batch, or -1.
    """
    identity, newest = "", -1
    with checks.check():
        location = StateLocation.parse(state, label)
        if location.folder is not None:
            check_folder(location.folder, label)
        folder = location.checkpoint(checkpoint, checkpoint_label)
        if checkpoint is not None:
            check_folder(folder, checkpoint_label)
        try:
            batch_ids = list_batch_ids(location.files)
        except OSError as error:
            raise StateError(
                f"{label} {state} cannot be read: {error}; correct this, or name another location"
            ) from error
        has_views = any(
            location.files.size(name) is not None for name in (IDENTITY_FILE, DEFINITION_FILE)
        )
        if circuit is not None and (batch_ids or has_views):
            directory_id = check_usable(location, circuit, label, change=change)
            identity = directory_id or ""
        newest = max(batch_ids, default=-1)
        _check_versions(location, folder, newest, circuit, cells, label)
        checks.passed.append(
            ("state", f"{state}, {'new' if newest < 0 else f'at micro-batch {newest:,}'}")
        )
    return identity, newest


def check_usable(
    state: StateLocation,
    circuit: Circuit,
    label: str = "--state",
    *,
    change: ChangeOptions | None = None,
) -> str | None:
    """Check that views can go on from a state directory, and that no process writes to it.

    The sink checks the same, but only when it receives the first rows. That is too late here,
    because Spark has begun its checkpoint then. On S3, a process that writes is not known.

    Args:
        state: The location.
        circuit: The views.
        label: The name of the option in error messages.
        change: What a change of the views may do, and the rows that are given for it.

    Returns:
        The id of the directory; None if it has none yet.

    Raises:
        StateMismatchError: A change of the views drops state, or the directory has another dialect
            or other declarations of functions.
        ProgramChangeError: A change of the views needs rows that the state does not keep, or is not
            possible in slices.
        StateDamagedError: The file with the identity of the views is damaged.
        StateLockedError: Another process writes to the directory.
    """
    files = state.files
    check_definition(files, circuit.spec)
    identity = find_identity(files, circuit)
    manifest = None if identity is None else newest_version(files, state_id=identity.id)
    if manifest is not None and not is_of_same_plan(manifest, circuit):
        given = change or ChangeOptions()
        options = select_options(given, manifest, circuit)
        log_unused_rows(given, options, manifest)
        planned = plan_cell_change(files, manifest, circuit, options)
        check_allowed(
            planned,
            options,
            where=f"state directory {files.location}",
            batch_id=manifest.batch_id,
        )
        if options.is_sliced:
            check_sliced_start(planned.old.spec, circuit.spec, options)
            check_slices(planned)
    writer = None if state.folder is None else _wait_for_writer(state.folder)
    if writer is not None:
        raise StateLockedError(
            f"{label} {state.text}: process {writer or 'unknown'} writes to it: stop that process, "
            "or name another folder"
        )
    return None if identity is None else identity.id


def _wait_for_writer(folder: Path) -> int | None:
    """Return the process that writes to a directory, or None; wait for one that is stopping.

    The sink waits as long for the lock (`LocalFiles.lock`).
    """
    deadline = time.monotonic() + LOCK_TIMEOUT_S
    while (writer := writer_of(folder)) is not None:
        if is_locked_here(folder) or time.monotonic() > deadline:
            return writer
        time.sleep(0.05)
    return None


def _check_versions(
    state: StateLocation,
    checkpoint: Path,
    newest: int,
    circuit: Circuit | None,
    cells: int | None,
    label: str,
) -> None:
    """Compare the newest version, or -1, with the checkpoint and ``cells``."""
    commits = checkpoint / "commits"
    committed_ids = (
        [int(p.name) for p in commits.iterdir() if p.name.isdecimal()] if commits.is_dir() else []
    )
    committed = max(committed_ids, default=-1)
    if committed not in (newest, newest - 1):
        where = f"{checkpoint}" if state.folder is None else "Spark's checkpoint"
        raise StateMismatchError(
            f"{label} {state.text}: the state is at micro-batch {newest} and {where} at "
            f"{committed} (-1: none): one of them was deleted or restored from a copy. Restore "
            "both from one copy, or start again with an empty folder and empty targets"
        )
    if newest < 0 or circuit is None:
        return
    try:
        stored_cells = read_manifest(state.files, newest).cells
    except StateDamagedError:
        return  # the version before it may be usable; the sink checks that
    stored = None if stored_cells is None else stored_cells.count
    if stored != cells:
        current_mode = "in one process" if stored is None else f"in {stored} cells"
        run_option = "without --cells" if stored is None else f"with --cells {stored}"
        rescale_option = "--embedded" if cells is None else f"--cells {cells}"
        raise StateMismatchError(
            f"{label} {state.text}: the state is {current_mode}: run {run_option}, or convert the "
            f"state with dbsp-wcoj rescale {state.text} {rescale_option}"
        )


def check_targets(
    checks: Checks,
    sinks: Mapping[str, SinkArgument],
    circuit: Circuit,
    *,
    state_id: str,
    newest: int,
) -> None:
    """Check that targets can be reached, and that their tables and files fit the views."""
    for output in build_outputs(sinks):
        view, target, sink = output.view, output.target, sinks[output.view]
        with checks.check(f"sink {view}", sink.text()):
            rows = circuit.schema(view).empty_table
            delta = ViewDelta(view, newest + 1, rows, output.mode, tuple(output.keys), state_id)
            if isinstance(target, CheckedTarget) and sink.exists():
                target.check(delta)


def check_memory(text: str, label: str = "--memory") -> None:
    """Check the memory size for Spark.

    Raises:
        EventsError: The text is not a size.
    """
    if not _MEMORY_SIZE.fullmatch(text):
        raise EventsError(f"{label} {text!r}: write a number and a unit, as in 2g or 800m")


def _columns(schema: pa.Schema | None) -> str:
    if schema is None:
        return "columns known to Spark only"
    return ", ".join(f"{field.name} {field.type}" for field in schema)
