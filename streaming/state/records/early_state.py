"""Early state: the state of new views in files, before a version names them.

::

    slice of a backfill   data/<slice>-<n>.arrow   what the slice adds to the new traces
    change of the views   manifest                 names these files, beside those of the old state

The micro-batch that commits a change writes the state of the new views. With a backfill in slices
(`circuits.state.sliced_backfill`), each slice writes what it adds, so that this micro-batch writes
only its own delta. No manifest names the files before, so a crash leaves files that the next start
removes, and the backfill begins again.

If a file cannot be written, the early files are removed, and the micro-batch that commits the
change writes the whole state of the new views, as without slices. A trace that the old views also
have is not written early, because it is in their files.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace

from circuits.runtime.graph import GraphStep
from circuits.state.circuit_state import StateStep, step_state
from circuits.state.program_change import ProgramChange
from circuits.state.registry import is_row_ids
from dbsp_wcoj.storage.trace import Trace
from streaming.errors import StateDamagedError
from streaming.state.compaction import Compactor
from streaming.state.files import Files, MappableFiles, remove_files
from streaming.state.manifest import Manifest
from streaming.state.versions import DATA
from streaming.state.writer import Writer

__all__ = ["EarlyState"]

log = logging.getLogger(__name__)


class EarlyState:
    """The state of the new views of a change.

    Args:
        files: The state directory.
        change: The change.
        stem: The beginning of the names of the files.
        is_safe: Returns False if files that no version names may be removed at any moment.
        on_written: Receives the writer of each slice after it has written its files, to count their
            bytes.
        mappable_files: The state directory, to merge the parts of many slices in maps of files;
            None to merge them in memory.
    """

    def __init__(
        self,
        files: Files,
        change: ProgramChange,
        stem: str,
        is_safe: Callable[[], bool],
        on_written: Callable[[Writer], None],
        mappable_files: MappableFiles | None = None,
    ) -> None:
        self._files = files
        self._mappable_files = mappable_files
        self._change = change
        self._stem = stem
        self._is_safe = is_safe
        self._on_written = on_written
        self._manifest: Manifest | None = None
        self.is_given_up = False

    def write(self, step: GraphStep) -> None:
        """Write what a slice adds, before its commit.

        Complexity:
            The rows of the step, and merges as for a version.
        """
        if not (self.is_given_up or self._is_safe()):
            log.warning("the state of new views is not written in slices, and stays in memory")
            self.discard()
        if self.is_given_up:
            return
        stem = f"{DATA}/{self._stem}-{uuid.uuid4().hex[:12]}"
        # A compactor that is never started: large parts are merged after the change, except a few
        # at a time when there are too many of them.
        compactor = Compactor(self._files, self._mappable_files)
        writer = Writer(self._files, self._manifest, stem, compactor)
        try:
            state = self._state_of(step)
            writer.add(state)
            manifest = writer.make_manifest(state, 0, state_id="", fingerprint="")
        except (OSError, StateDamagedError) as error:
            writer.undo()
            self.discard()
            log.warning("the state of new views is not written in slices: %s", error)
            return
        except BaseException:
            writer.undo()
            raise
        self._on_written(writer)
        old, self._manifest = self._manifest, manifest
        self._remove(old, but=manifest)

    @property
    def manifest(self) -> Manifest | None:
        """The files of the new traces after the last slice; None if there are none."""
        return self._manifest

    @property
    def traces(self) -> Mapping[str, Trace]:
        """The traces that the files have, as of the last slice; none if there are no files."""
        if self._manifest is None:
            return {}
        reused = self._change.reused_traces
        traces = self._change.graph.traces
        return {name: trace for name, trace in traces.items() if name not in reused}

    def added_to(self, manifest: Manifest) -> Manifest:
        """Return a version together with the early state."""
        early = self._manifest
        if early is None or self.is_given_up or not self._is_complete(early):
            self.discard()
            return manifest
        return replace(
            manifest,
            traces={**early.traces, **manifest.traces},
            dictionaries={**early.dictionaries, **manifest.dictionaries},
            dictionary_lengths={**early.dictionary_lengths, **manifest.dictionary_lengths},
            files={**early.files, **manifest.files},
        )

    def discard(self) -> None:
        """Remove the files; the change then writes the whole state."""
        self.is_given_up = True
        manifest, self._manifest = self._manifest, None
        self._remove(manifest)

    def _state_of(self, step: GraphStep) -> StateStep:
        """Return the part of a step that the old views do not have."""
        dictionaries = step.graph.registry.dictionaries
        lengths = {
            name: len(dictionary)
            for name, dictionary in dictionaries.items()
            if not is_row_ids(name) or name in self._change.reused_row_ids
        }
        if self._manifest is not None:
            lengths |= self._manifest.dictionary_lengths
        state = step_state(step, lengths)
        reused = self._change.reused_traces
        return replace(
            state,
            runs={name: runs for name, runs in state.runs.items() if name not in reused},
            orders={name: orders for name, orders in state.orders.items() if name not in reused},
        )

    def _is_complete(self, manifest: Manifest) -> bool:
        """Return True if no file is missing."""
        try:
            sizes = {name: self._files.size(name) for name in manifest.files}
        except (OSError, StateDamagedError):
            return False
        return all(sizes[name] == file.size for name, file in manifest.files.items())

    def _remove(self, old: Manifest | None, but: Manifest | None = None) -> None:
        """Remove the files that only an old manifest names."""
        kept = {} if but is None else but.files
        unused = [name for name in ({} if old is None else old.files) if name not in kept]
        with contextlib.suppress(OSError, StateDamagedError):
            remove_files(self._files, unused)
