"""Program change: start a sink on a state directory that has the state of other views.

::

    manifests/<N>.json         the last version, with the fingerprint of the old program
    programs/<hash>.json       the text of each program that a kept version belongs to
    manifests/<N + 1>.json     the first version of the new program

The sink compiles the old program from its text, loads the last version into it, and moves the state
to the new program in memory (`circuits.state.program_change`). Nothing is written before the next
micro-batch: its version has the state that was taken over, the new state, and the published rows of
new and changed views beside those of the micro-batch. So the rename of one manifest commits the
change, and the batch id makes the targets receive it once. After a crash before the rename, the
directory is still one of the old program, and the next start repeats the change; after the rename,
it is one of the new program. `state.json` and `views.json` describe the newest version. After a
crash before they are written again, the next start repairs them: it finds the text of the newest
program by the fingerprint in the manifest.

A sink that runs changes its program in the same way (`streaming.sink.view_changes`), but from the
state in memory instead of the last version. Several such changes before the next micro-batch are
committed as one.

Alternative considered: a version without a micro-batch. Batch ids are Spark's, so such a version
would have no id of its own, and targets could not tell a replay of it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, Protocol

import pyarrow as pa

from circuits import Circuit, ProgramChangeError, UserFunction
from circuits.circuit_spec import CircuitSpec
from circuits.state.circuit_state import find_different_parts
from circuits.state.given_rows import GivenRows
from circuits.state.program_change import ComputedRows, ProgramChange
from circuits.state.registry import is_row_ids
from circuits.state.replanned_state import load_replanned_state
from circuits.user_functions import check_functions
from dbsp_wcoj.errors import DbspWcojError
from streaming.errors import StateDamagedError, StateError, StateMismatchError
from streaming.state.directory_identity import (
    check_not_unfinished,
    find_identity,
    has_same_relations,
)
from streaming.state.files import Files, read_small_file, replace_atomically
from streaming.state.manifest import Manifest, ProgramLink, list_batch_ids, read_manifest
from streaming.state.open_files import open_files
from streaming.state.verified_files import MappedFiles, read_state
from streaming.state.view_definitions import (
    DEFINITION_FILE,
    encode_definition,
    read_definition,
)

__all__ = [
    "AppliedChange",
    "ChangeOptions",
    "PendingChange",
    "add_outputs",
    "apply_change",
    "change_program",
    "check_allowed",
    "check_backfill",
    "check_sliced_start",
    "compute_change",
    "current_options",
    "definition_name",
    "find_other_program",
    "finish_change",
    "is_of_same_plan",
    "list_old_programs",
    "log_unused_rows",
    "newest_version",
    "plan_change",
    "program_file",
    "read_program",
    "select_options",
    "stored_circuit",
    "write_programs",
]

PROGRAMS: Final = "programs"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ChangeOptions:
    """How a sink changes the program of its state directory.

    Attributes:
        allow_drop: True to drop what cannot be computed again later: views, materialized views, and
            rows of inputs that no view needs any more. Without it, such a change raises an error
            that lists them.
        backfill: Rows of inputs that new views need and that the state does not keep: a batch
            DataFrame or an Arrow table per input, with exactly the rows that the input has after
            the last micro-batch. It is read once, when the sink starts or `ViewSink.add_view` is
            called.
        backfill_batch_id: The micro-batch after which the rows of ``backfill`` are; None to rely on
            the caller. It is required if the views have not changed, and a target has lost their
            rows or this version of the package computes them by another plan, because a job may
            start again with the rows of an earlier change.
        renames: At a start: new names of views, each with the old name: the view goes on under its
            new name. A renamed view that is not listed counts as a removed one and a new one.
        rows_per_batch: With this limit, new views are computed in slices, those of
            `ViewSink.add_view` and those of a sink that starts: a micro-batch reads at most so many
            kept or given rows for them. They are published when they have all rows.
        seconds_per_batch: As ``rows_per_batch``, a limit of the seconds that the slices of one
            micro-batch take together. The smallest slice is one row, which may take longer.

    Raises:
        StateError: A limit is not a positive number, or ``backfill_batch_id`` is not the number of
            a micro-batch or given without ``backfill``.
    """

    allow_drop: bool = False
    backfill: Mapping[str, Any] = field(default_factory=dict)
    renames: Mapping[str, str] = field(default_factory=dict)
    rows_per_batch: int | None = None
    seconds_per_batch: float | None = None
    backfill_batch_id: int | None = None

    def __post_init__(self) -> None:
        for name, types in (("rows_per_batch", int), ("seconds_per_batch", (int, float))):
            limit = getattr(self, name)
            is_number = isinstance(limit, types) and not isinstance(limit, bool)
            if limit is not None and not (is_number and limit > 0):
                kind = "whole number" if types is int else "number"
                raise StateError(f"{name}={limit!r}: give a positive {kind}, or None for no limit")
        batch_id = self.backfill_batch_id
        if batch_id is None:
            return
        if not isinstance(batch_id, int) or isinstance(batch_id, bool) or batch_id < 0:
            raise StateError(
                f"backfill_batch_id={batch_id!r}: give the number of the micro-batch after which "
                "the rows of backfill are, 0 or more"
            )
        if not self.backfill:
            raise StateError(f"backfill_batch_id={batch_id}: also give the rows, backfill={{...}}")

    @property
    def is_sliced(self) -> bool:
        """True if new views are computed in slices."""
        return self.rows_per_batch is not None or self.seconds_per_batch is not None

    def after(self, earlier: ChangeOptions, views: Collection[str]) -> ChangeOptions:
        """Return the options of an earlier change and this one, as those of one change.

        Args:
            earlier: The options of the earlier change.
            views: The views of the last program.
        """
        renames = {new: old for new, old in earlier.renames.items() if new in views}
        return ChangeOptions(
            earlier.allow_drop or self.allow_drop,
            {**earlier.backfill, **self.backfill},
            {**renames, **self.renames},
        )

    def with_tables(self) -> ChangeOptions:
        """Return the options with Arrow tables instead of DataFrames."""
        return replace(self, backfill={k: _table_of(k, v) for k, v in self.backfill.items()})


class EarlyFiles(Protocol):
    """State in files that no version names yet: `streaming.state.records.early_state`."""

    def added_to(self, manifest: Manifest) -> Manifest:
        """Return a version together with this state."""
        ...


@dataclass(frozen=True)
class AppliedChange:
    """A change of the program that is made in memory.

    Attributes:
        change: The change.
        outputs: The rows that views publish because of the change, besides the micro-batch.
        views_with_slices: The new views of which earlier micro-batches have published a part.
        early: The state of the new views that is in files already; None if there is none.
    """

    change: ProgramChange
    outputs: Mapping[str, pa.Table]
    views_with_slices: Collection[str] = ()
    early: EarlyFiles | None = None

    @property
    def link(self) -> ProgramLink:
        """Which old view each new view continues."""
        continued = {
            view.view: view.old_view
            for view in self.change.views
            if view.old_view is not None and view.kind != "replaced"
        }
        continued |= {view: view for view in self.views_with_slices}
        return ProgramLink(continued, self.change.has_same_inputs)

    def outputs_after(self, earlier: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
        """Return the outputs together with those of an earlier change that is not committed yet."""
        outputs = dict(self.outputs)
        for view in self.change.views:
            if view.old_view is None or view.old_view not in earlier or view.kind == "replaced":
                continue
            rows = earlier[view.old_view]
            if view.view in outputs:  # the difference to the old view, which `earlier` changes
                rows = self.change.new.add_tables(view.view, [rows, outputs[view.view]])
            outputs[view.view] = rows
        return outputs


@dataclass(frozen=True)
class PendingChange:
    """A change of the program that the next micro-batch commits.

    Attributes:
        manifest: The last version, without the parts of the state that are not taken over.
        outputs: The rows that views publish because of the change, besides the micro-batch.
        link: Which old view each new view continues.
        old_fingerprint: The fingerprint of the old program.
    """

    manifest: Manifest
    outputs: Mapping[str, pa.Table]
    link: ProgramLink
    old_fingerprint: str

    @staticmethod
    def of(manifest: Manifest, applied: AppliedChange) -> PendingChange:
        """Return the change of the program of a version.

        Args:
            manifest: The version, as the old program has loaded it.
            applied: The change.
        """
        return PendingChange(
            _next_manifest(manifest, applied),
            applied.outputs,
            applied.link,
            manifest.fingerprint,
        )

    def then(self, applied: AppliedChange) -> PendingChange:
        """Return this change followed by a second one, as one change."""
        return PendingChange(
            _next_manifest(self.manifest, applied),
            applied.outputs_after(self.outputs),
            self.link.then(applied.link),
            self.old_fingerprint,
        )


def add_outputs(
    circuit: Circuit, deltas: Mapping[str, pa.Table], changed: Mapping[str, pa.Table]
) -> dict[str, pa.Table]:
    """Return the deltas of a step together with the rows of views that have changed.

    Args:
        circuit: The circuit of the step.
        deltas: The deltas of the step.
        changed: The outputs of a `PendingChange`, which the step commits.
    """
    added = {view: circuit.add_tables(view, [rows, deltas[view]]) for view, rows in changed.items()}
    return {**deltas, **added}


def plan_change(
    files: Files,
    manifest: Manifest,
    circuit: Circuit,
    options: ChangeOptions,
    *,
    unwritten: Collection[str] = (),
    map_files: Callable[[Manifest], MappedFiles] | None = None,
    load: Callable[[Circuit], object] | None = None,
    dropped: Collection[str] = (),
) -> ProgramChange:
    """Compare the program of a version with that of a circuit; load the version, change nothing.

    Args:
        files: The directory.
        manifest: The version.
        circuit: The new program.
        options: What the change may do.
        unwritten: Views of the old program whose rows no target holds, so that they count as
            views that were not published before.
        map_files: Returns the files of a version that need not be read; None to read all.
        load: Loads the version into the circuit of its program; by default from its files.
        dropped: The views that are removed on purpose.

    Raises:
        StateMismatchError: The old program cannot be compiled again, or cannot be compared; or the
            directory has another format.
        StateDamagedError: The version is damaged.
        ProgramChangeError: The options do not fit the programs.
    """
    old = Circuit(
        read_program(files, manifest, circuit.spec.functions, accepts_other_plan=load is None)
    )
    find_identity(files, old)  # raises: the directory has another format
    lacking: Collection[str] | None = None
    try:
        if load is None:
            mapped = None if map_files is None else map_files(manifest)
            state = read_state(files, manifest, mapped=mapped)
            if is_of_same_plan(manifest, old):
                old.load(state)
            else:
                lacking = load_replanned_state(old, state)
        else:
            load(old)
    except DbspWcojError as error:
        if isinstance(error, StateDamagedError):
            raise
        raise StateMismatchError(
            f"version {manifest.batch_id} of state directory {files.location} cannot be loaded "
            f"({error}): open it once with the version of the package that wrote it"
        ) from error
    return ProgramChange(
        old,
        circuit,
        published=manifest.outputs.keys() - set(unwritten),
        renames=options.renames,
        given=options.backfill.keys(),
        dropped=dropped,
        lacking=lacking,
    )


def change_program(
    files: Files,
    manifest: Manifest,
    circuit: Circuit,
    options: ChangeOptions,
    now: int | None,
    unwritten: Mapping[str, str] = MappingProxyType({}),
    map_files: Callable[[Manifest], MappedFiles] | None = None,
    load: Callable[[Circuit], object] | None = None,
    dropped: Collection[str] = (),
) -> PendingChange:
    """Load a version of another program into a circuit; nothing is written.

    Args:
        files: The directory.
        manifest: The version.
        circuit: The new program.
        options: What the change may do.
        now: The time in microseconds since 1970, if the circuit reads it.
        unwritten: The views whose targets hold none of their rows, with their names in the version;
            the whole views are written to the targets.
        map_files: As for `plan_change`.
        load: As for `plan_change`.
        dropped: As for `plan_change`.

    Raises:
        StateMismatchError: The change drops something that ``options`` do not allow; or as
            `plan_change`.
        ProgramChangeError: Rows that are needed are neither kept nor given.
        StateDamagedError: The version is damaged.
    """
    change = plan_change(
        files,
        manifest,
        circuit,
        options,
        unwritten=unwritten.values(),
        map_files=map_files,
        load=load,
        dropped=dropped,
    )
    where = f"state directory {files.location}"
    applied = apply_change(
        change, options, now, where=where, batch_id=manifest.batch_id, unwritten=unwritten
    )
    for view in unwritten:
        log.warning(
            "view %r: its target holds none of its rows, so the whole view is written with "
            "micro-batch %d",
            view,
            manifest.batch_id + 1,
        )
    return PendingChange.of(manifest, applied)


def apply_change(
    change: ProgramChange,
    options: ChangeOptions,
    now: int | None,
    *,
    where: str,
    batch_id: int | None,
    unwritten: Collection[str] = (),
) -> AppliedChange:
    """Make a change in memory; nothing is written.

    Args:
        change: The change.
        options: What the change may do.
        now: The time in microseconds since 1970, if the new program reads it.
        where: The place of the state, for messages.
        batch_id: The last micro-batch; None before the first one.
        unwritten: As for `change_program`.

    Raises:
        StateMismatchError: The change drops something that ``options`` do not allow.
        ProgramChangeError: Rows that are needed are neither kept nor given.
    """
    computed = compute_change(
        change, options, now, where=where, batch_id=batch_id, unwritten=unwritten
    )
    return finish_change(change, computed, where=where, batch_id=batch_id)


def compute_change(
    change: ProgramChange,
    options: ChangeOptions,
    now: int | None,
    *,
    where: str,
    batch_id: int | None,
    unwritten: Collection[str] = (),
) -> ComputedRows:
    """Compute the rows of a change; neither circuit changes.

    The arguments and errors are those of `apply_change`.
    """
    check_allowed(change, options, where=where, batch_id=batch_id, unwritten=unwritten)
    tables = {name: _table_of(name, options.backfill[name]) for name in change.given_inputs}
    return change.compute(tables, now=now)


def finish_change(
    change: ProgramChange, computed: ComputedRows, *, where: str, batch_id: int | None
) -> AppliedChange:
    """Make a change with its rows, the result of `compute_change`.

    The arguments and errors are those of `apply_change`.
    """
    outputs = change.finish(computed)
    if change.is_replanned and change.rows_to_read:
        log.warning(
            "%s: this version of the package computes the views by another plan than the one that "
            "wrote the state; their state was computed again from %d rows that it has",
            where,
            change.rows_to_read,
        )
    log.info(
        "micro-batch %d changes the views of %s: %s",
        0 if batch_id is None else batch_id + 1,
        where,
        ", ".join(
            [f"{view.view} {view.kind}" for view in change.views]
            + [f"{name} removed" for name in change.removed_views]
        ),
    )
    return AppliedChange(change, outputs)


def check_allowed(
    change: ProgramChange,
    options: ChangeOptions,
    *,
    where: str,
    batch_id: int | None,
    unwritten: Collection[str] = (),
) -> None:
    """Check that a change can be applied.

    Args:
        change: The change.
        options: What the change may do.
        where: The place of the state, for messages.
        batch_id: The last micro-batch; None before the first one.
        unwritten: As for `change_program`.

    Raises:
        StateMismatchError: It drops something that ``options`` do not allow.
        ProgramChangeError: Rows that are needed are neither kept nor given.
    """
    if change.losses and not options.allow_drop:
        raise StateMismatchError(
            f"{where} has the state of other views, and these would drop "
            f"{'; '.join(change.losses)}. Use the views that the state was made with; or allow it "
            "with ChangeOptions(allow_drop=True), --allow-drop on the command line; or, if the "
            "view only has another name, give ChangeOptions(renames={'new name': 'old name'})"
        )
    if change.missing:
        first, reasons = min(change.missing), "; ".join(change.missing.values())
        if change.is_replanned:
            reasons = (
                "this version of the package computes the views by another plan than the one that "
                f"wrote the state, so it has to compute their state again: {reasons}"
            )
        if unwritten:
            names = ", ".join(map(repr, sorted(unwritten)))
            reasons = (
                f"the targets of {names} hold none of their rows, so the whole views must be "
                f"computed: {reasons}"
            )
        raise ProgramChangeError(
            f"{where}: {reasons}: give the rows once as of micro-batch {batch_id}, "
            f"ChangeOptions(backfill={{{first!r}: frame}}, backfill_batch_id={batch_id}), "
            f"--backfill {first}=FILE --backfill-batch-id {batch_id} on the command line; "
            'or declare InputOptions(keep="all") for an input from the start, which keeps its rows '
            "for later views"
        )


def select_options(options: ChangeOptions, manifest: Manifest, circuit: Circuit) -> ChangeOptions:
    """Return the options of a start, without those of a change that a version has committed.

    A job may start again with the options of its last change. Given rows without a batch id are
    used only if the version has other views, because they may be those of an earlier version.

    Args:
        options: The options.
        manifest: The version.
        circuit: The whole circuit with which the job starts.
    """
    if manifest.fingerprint == circuit.fingerprint:
        options = replace(options, renames={})
        if options.backfill_batch_id is None:
            options = replace(options, backfill={})
    if options.backfill_batch_id not in (None, manifest.batch_id):
        options = replace(options, backfill={}, backfill_batch_id=None)
    return options


def log_unused_rows(options: ChangeOptions, selected: ChangeOptions, manifest: Manifest) -> None:
    """Log a warning if `select_options` has left out given rows."""
    if not options.backfill or selected.backfill:
        return
    number = options.backfill_batch_id
    found = "without backfill_batch_id" if number is None else f"those after micro-batch {number}"
    log.warning(
        "backfill: the given rows are %s and are not used; needed are those after micro-batch %d, "
        "with this number, if rows are needed",
        found,
        manifest.batch_id,
    )


def is_of_same_plan(manifest: Manifest, circuit: Circuit) -> bool:
    """Return True if a version has the views of a circuit, and its state has the same parts.

    Another version of this package may compute equal views by another plan.
    """
    if manifest.fingerprint != circuit.fingerprint:
        return False
    return manifest.cells is not None or not find_different_parts(
        circuit.graph, manifest.traces.keys(), manifest.dictionaries.keys()
    )


def write_programs(files: Files, circuit: Circuit, pending: PendingChange) -> None:
    """Write the texts of both programs, before the manifest of the change.

    Raises:
        OSError: The file system failed.
    """
    old_file = program_file(pending.old_fingerprint)
    if files.size(old_file) is None:
        replace_atomically(files, old_file, read_small_file(files, DEFINITION_FILE))
    replace_atomically(files, program_file(circuit.fingerprint), encode_definition(circuit.spec))
    files.sync_folder(PROGRAMS)


def list_old_programs(files: Files, fingerprints: Collection[str]) -> list[str]:
    """Return the files of programs to which no version belongs any more.

    Args:
        files: The directory.
        fingerprints: The fingerprints of the programs of all versions.

    Raises:
        OSError: The file system failed.
    """
    kept = set(map(program_file, fingerprints))
    return [name for name in files.names(PROGRAMS) if name not in kept]


def newest_version(files: Files, *, state_id: str | None = None) -> Manifest | None:
    """Return the newest version of a directory; None if it has none.

    Raises:
        StateDamagedError: Its manifest is damaged, or the directory is an unfinished clone.
        OSError: The file system failed.
    """
    newest = max(list_batch_ids(files), default=None)
    if newest is None:
        check_not_unfinished(files)
        return None
    return read_manifest(files, newest, state_id=state_id)


def definition_name(files: Files, manifest: Manifest) -> str:
    """Return the name of the file with the text of the views of a version."""
    name = program_file(manifest.fingerprint)
    return DEFINITION_FILE if files.size(name) is None else name


def program_file(fingerprint: str) -> str:
    """Return the name of the file with the text of a program."""
    return f"{PROGRAMS}/{fingerprint}.json"


def read_program(
    files: Files,
    manifest: Manifest,
    functions: Mapping[str, UserFunction],
    *,
    accepts_other_plan: bool = False,
) -> CircuitSpec:
    """Compile the program of a version.

    Args:
        files: The directory.
        manifest: The version.
        functions: The user-defined functions that the views call, by lower-case name.
        accepts_other_plan: True to return the views also if this version of the package compiles
            them to another plan, so that the fingerprint is not that of the version.

    Raises:
        StateDamagedError: The file of the views is damaged or missing.
        StateMismatchError: The program cannot be compiled again, or gets another fingerprint.
    """
    name = definition_name(files, manifest)
    try:
        spec = read_definition(files, functions, name=name)
    except (StateMismatchError, StateDamagedError):
        raise
    except StateError as error:
        raise StateMismatchError(
            f"state directory {files.location} has other views, and these cannot be compiled to "
            f"compare them: {error}; start with the views that the state was made with"
        ) from error
    if spec.fingerprint == manifest.fingerprint:
        return spec
    if accepts_other_plan:
        circuit = Circuit(spec)
        identity = find_identity(files, circuit)
        if name != DEFINITION_FILE or (identity and has_same_relations(identity, circuit)):
            return spec
    raise StateMismatchError(
        f"{files.location}/{name} has other views than version {manifest.batch_id}, or this "
        "version of the package compiles them differently, so the change of the views cannot "
        "be computed: start once with the views and the version of the package that wrote it; a "
        "state in cells can be converted with that version, dbsp-wcoj rescale STATE --embedded, "
        "and then goes on with this one"
    )


def check_backfill(options: ChangeOptions, inputs: Collection[str]) -> None:
    """Check that rows are given for inputs only, also if the views have not changed.

    Raises:
        ProgramChangeError: A name is not an input.
    """
    for name in options.backfill:
        if name not in inputs:
            raise ProgramChangeError(
                f"backfill: {name!r} is not an input; inputs are {', '.join(inputs)}: rename it"
            )


def stored_circuit(state_dir: Any, functions: Mapping[str, UserFunction] | None = None) -> Circuit:
    """Return a circuit of the views of a state directory, without rows.

    A job whose views were changed while it ran can be started again with this circuit.

    Args:
        state_dir: The location, as for `streaming.ViewSink`.
        functions: The user-defined functions that the views call.

    Raises:
        StateError: The directory has no version yet, or cannot be read.
        StateMismatchError, StateDamagedError: The views cannot be compiled again.
    """
    files = open_files(state_dir)
    checked = check_functions(functions)
    manifest = newest_version(files)
    if manifest is None:
        raise StateError(
            f"state directory {files.location} has no version yet: compile the views from their "
            "text"
        )
    return Circuit(read_program(files, manifest, checked, accepts_other_plan=True))


def find_other_program(state_dir: Any, spec: CircuitSpec) -> CircuitSpec | None:
    """Return the program of a state directory if it is another one; None if it has no version.

    Args:
        state_dir: The location, as for `streaming.ViewSink`.
        spec: The program to compare with; its functions are those that both call.

    Raises:
        StateError: The directory cannot be read.
        StateMismatchError, StateDamagedError: The program cannot be compiled again.
    """
    files = open_files(state_dir)
    manifest = newest_version(files)
    if manifest is None or manifest.fingerprint == spec.fingerprint:
        return None
    stored = read_program(files, manifest, spec.functions, accepts_other_plan=True)
    return None if stored.fingerprint == spec.fingerprint else stored


def current_options(options: ChangeOptions, state_dir: Any) -> ChangeOptions:
    """Return the options of a start with other views, without given rows of another version.

    A warning is logged if there are such rows.

    Args:
        options: The options.
        state_dir: The location of a state with versions.

    Raises:
        StateError: The directory cannot be read.
    """
    manifest = newest_version(open_files(state_dir))
    if manifest is None or options.backfill_batch_id in (None, manifest.batch_id):
        return options
    selected = replace(options, backfill={}, backfill_batch_id=None)
    log_unused_rows(options, selected, manifest)
    return selected


def check_sliced_start(stored: CircuitSpec, new: CircuitSpec, options: ChangeOptions) -> None:
    """Check that a job can start with a program while it computes the views of another in slices.

    Whether all its views are unchanged or new, `circuits.state.sliced_backfill` checks.

    Args:
        stored: The program of the state directory.
        new: The other program.
        options: The options of the change.

    Raises:
        StateMismatchError: It cannot.
    """
    dropped = sorted({*stored.outputs} - {*new.outputs})
    if (stored.schemas, stored.input_options) != (new.schemas, new.input_options):
        obstacle = "the inputs or their options differ from those of the state directory"
    elif options.renames:
        obstacle = "views are renamed"
    elif dropped:
        obstacle = f"views are dropped: {', '.join(dropped)}"
    else:
        return
    raise StateMismatchError(
        f"{obstacle}, so the new views cannot be computed in slices: leave out rows_per_batch and "
        "seconds_per_batch (--slice-seconds), so that they are computed at once"
    )


def _next_manifest(manifest: Manifest, applied: AppliedChange) -> Manifest:
    """Return the version with the parts of the state that the new program has in files."""
    reused = _reused_manifest(manifest, applied.change)
    return reused if applied.early is None else applied.early.added_to(reused)


def _reused_manifest(manifest: Manifest, change: ProgramChange) -> Manifest:
    """Return the version with the parts that the new program takes over under the same name."""
    reused = {name for name, old_name in change.reused_traces.items() if name == old_name}
    dictionaries = {
        name
        for name in {*manifest.dictionaries, *manifest.dictionary_lengths}
        if not is_row_ids(name) or name in change.reused_row_ids
    }
    return replace(
        manifest,
        traces={name: orders for name, orders in manifest.traces.items() if name in reused},
        dictionaries={
            name: parts for name, parts in manifest.dictionaries.items() if name in dictionaries
        },
        dictionary_lengths={
            name: length
            for name, length in manifest.dictionary_lengths.items()
            if name in dictionaries
        },
    )


def _table_of(name: str, rows: Any) -> pa.Table:
    """Return the rows of a backfill as an Arrow table; a DataFrame is read by ``toArrow``."""
    if isinstance(rows, GivenRows):
        return rows.table()
    table = rows.toArrow() if hasattr(rows, "toArrow") else rows
    if not isinstance(table, pa.Table):
        raise ProgramChangeError(
            f"backfill of {name!r} is a {type(rows).__name__}: give a batch DataFrame of Spark, or "
            "an Arrow table such as pa.table(...) or pa.Table.from_pandas(...)"
        )
    return table
