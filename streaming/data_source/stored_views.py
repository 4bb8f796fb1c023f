"""Stored views: reads views and their changes from a state directory, without Spark.

::

    version      0      1      2      3      one for each micro-batch
    rows         the whole view, if it is materialized, in each version that is kept
    changes      d0     d1     d2     d3     the table that the sink published for a version

Law, for a view in output mode ``delta``: the rows of version n and the changes of versions n + 1 to
m add up to the rows of version m.

Reading takes no lock and changes nothing, so the query that writes the directory can go on. The
sink keeps the last ``keep`` versions and removes older ones.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import pyarrow as pa

from circuits import Circuit
from streaming.distributed.cell_views import read_stored_view
from streaming.errors import StateDamagedError, StateError
from streaming.state.manifest import LastChanges, Manifest, list_batch_ids, read_manifest
from streaming.state.open_files import open_files
from streaming.state.program_change import read_program
from streaming.state.reader import load, read_unlocked
from streaming.state.version_summary import read_summary
from streaming.targets.output_mode import MODE_KEY

__all__ = ["Position", "StoredViews", "ViewInVersion"]

#: Stands for the version of the last change before the first one, as in a manifest.
NO_CHANGE: Final = -1


class ViewInVersion(NamedTuple):
    """A version, and the name that a view had in it."""

    batch_id: int
    view: str


class Position(NamedTuple):
    """How far a reader has read the changes of a view.

    Attributes:
        batch_id: The last version that was read; -1 if none was.
        last_change: The last version up to it in which the view has changes; -1 if there is none,
            None if it is not known.
        state_id: The id of the state directory.
    """

    batch_id: int
    last_change: int | None
    state_id: str


class StoredViews:
    """The views of a state directory.

    Args:
        location: The directory, as for `streaming.ViewSink`.

    Raises:
        StateError: The location is not usable.
    """

    def __init__(self, location: Any) -> None:
        self._files = open_files(location)

    def versions(self) -> list[int]:
        """Return the batch ids of the versions that are kept, in ascending order.

        Raises:
            StateError: The directory cannot be read.
        """
        try:
            return sorted(list_batch_ids(self._files))
        except OSError as error:
            raise self._unreadable(error) from error

    def newest(self) -> int:
        """Return the batch id of the newest version.

        Raises:
            StateError: There is no version, or the directory cannot be read.
        """
        versions = self.versions()
        if not versions:
            raise self._empty()
        return versions[-1]

    def schema(self, view: str, batch_id: int) -> pa.Schema:
        """Return the columns of a view in a version.

        Raises:
            UnknownViewError: The version has no such view.
            StateError: As for `rows`.
        """
        return self._circuit(self._manifest(batch_id)).schema(view).arrow_columns

    def rows(self, view: str, batch_id: int) -> pa.Table:
        """Return a whole view with the column ``weight``.

        Raises:
            UnknownViewError: The version has no such view, or the view is not materialized.
            StateMismatchError: The views cannot be compiled again.
            StateDamagedError: A file is damaged.
            StateError: The version is not kept or cannot be read.

        Complexity:
            O(bytes of the state): the files of the version are read and verified.
        """
        return read_unlocked(self._files, lambda _: self._rows(view, batch_id), lambda: batch_id)

    def newest_rows(self, view: str) -> pa.Table:
        """Return the rows of the newest version, also if the writer removes it meanwhile.

        Raises:
            As for `rows`.
        """

        def read(batch_id: int | None) -> pa.Table:
            assert batch_id is not None
            return self._rows(view, batch_id)

        return read_unlocked(self._files, read, self.newest)

    def _rows(self, view: str, batch_id: int) -> pa.Table:
        manifest = self._manifest(batch_id)
        circuit = self._circuit(manifest)
        circuit.views.trace(view)  # an error before the files are read
        try:
            if manifest.cells is not None:
                return read_stored_view(self._files, circuit, manifest, view)
            load(self._files, circuit, batch_id, lambda _: manifest)
        except (FileNotFoundError, StateDamagedError) as error:
            raise self._explained(batch_id, error) from error
        except OSError as error:
            raise self._unreadable(error) from error
        return circuit.views[view]

    def changes(self, view: str, batch_id: int) -> pa.Table:
        """Return the table that the sink published for a view in a version, with ``weight``.

        Raises:
            StateDamagedError: A file is damaged.
            StateError: The version is not kept or cannot be read, or has no changes of the view,
                because its output mode is ``complete``, for example.

        Complexity:
            O(bytes of the tables that the version published).
        """
        manifest = self._manifest(batch_id)
        try:
            table = read_summary(self._files, manifest).outputs.get(view)
        except (FileNotFoundError, StateDamagedError) as error:
            raise self._explained(batch_id, error) from error
        except OSError as error:
            raise self._unreadable(error) from error
        if table is None:
            raise self._unknown(view, manifest)
        mode = (table.schema.metadata or {}).get(MODE_KEY, b"delta").decode()
        if mode.startswith("complete"):
            raise StateError(
                f"view {view!r} is published as a whole (mode 'complete'), not by its changes: "
                "read it as a batch, or publish it in mode 'delta'"
            )
        return table.replace_schema_metadata(None)

    def position(self, view: str, batch_id: int) -> Position:
        """Return the position of a reader that has read a view up to and including a version.

        Args:
            view: The name of the view in this version, or in the newest one. A view that was added
                later has no changes up to this version.
            batch_id: The version.

        Raises:
            StateError: The version is not kept, or neither it nor the newest one has such a view.
        """
        manifest = self._manifest(batch_id)
        name = self._name_in(view, manifest)
        last = NO_CHANGE if name is None else self._last_changes(name, manifest).last
        return Position(batch_id, last, manifest.state_id)

    def position_before(self, view: str, batch_id: int) -> Position:
        """Return the position of a reader whose next changes are those of a version.

        The arguments and errors are those of `position`.
        """
        manifest = self._manifest(batch_id)
        name = self._name_in(view, manifest)
        last: int | None = NO_CHANGE
        if name is not None:
            changes = self._last_changes(name, manifest)
            last = changes.previous if changes.last == batch_id else changes.last
        return Position(batch_id - 1, last, manifest.state_id)

    def changed_versions(self, view: str, after: Position, until: int) -> list[ViewInVersion]:
        """Return the versions with changes of a view, in ascending order.

        Args:
            view: The name of the view in version ``until``, or in the newest one; earlier versions
                may have another name. A view that was added after ``until`` has no changes.
            after: The versions up to this position have been read.
            until: The last version.

        Raises:
            StateError: One of these versions is no longer kept, or the changes do not continue the
                rows that have been read.
        """
        name = self._name_in(view, self._manifest(until))
        if name is None:
            return []
        view = name
        found: list[ViewInVersion] = []
        previous: int | None = None
        for batch_id in range(until, after.batch_id, -1):
            manifest = self._manifest(batch_id)
            if manifest.state_id != after.state_id:
                raise StateError(
                    f"{self._files.location} was replaced by another state directory, whose "
                    "versions do not continue those that were read before: start the reading query "
                    "again with a new checkpoint, and replace its result"
                )
            changes = self._last_changes(view, manifest)
            if changes.last in (batch_id, None):
                found.append(ViewInVersion(batch_id, view))
            previous = changes.previous if changes.last == batch_id else changes.last
            link = manifest.link
            if link is not None and view in link.views:
                view = link.views[view]
            elif previous == NO_CHANGE:
                break  # no earlier version has rows of this view
        if None not in (previous, after.last_change) and previous != after.last_change:
            whole = found[-1].batch_id if found else until
            raise StateError(
                f"version {whole} of {self._files.location} has the whole view "
                f"{view!r} again, because it was added or replaced, and its changes do not "
                "continue those that were read before: start the reading query again with a new "
                "checkpoint, and replace its result"
            )
        return found[::-1]

    def _name_in(self, view: str, manifest: Manifest) -> str | None:
        """Return the name of a view in a version; None if it was added after this version.

        Args:
            view: Its name in this version, or in the newest one.
            manifest: The version.

        Raises:
            StateError: Neither of them has such a view, or a version cannot be read.

        Complexity:
            O(later versions) if the version has no view of this name.
        """
        if view in manifest.outputs or view in manifest.changes:
            return view
        newest = self.newest()
        self._last_changes(view, self._manifest(newest))  # an error if it has no such view
        for batch_id in range(newest, manifest.batch_id, -1):
            link = self._manifest(batch_id).link
            if link is not None and view in link.views:
                view = link.views[view]
        return view if view in manifest.outputs or view in manifest.changes else None

    def _last_changes(self, view: str, manifest: Manifest) -> LastChanges:
        if view in manifest.changes:
            return manifest.changes[view]
        if view in manifest.outputs:
            return LastChanges(None, None)  # an earlier release wrote the version
        raise self._unknown(view, manifest)

    def _manifest(self, batch_id: int) -> Manifest:
        try:
            return read_manifest(self._files, batch_id)
        except (FileNotFoundError, StateDamagedError) as error:
            raise self._explained(batch_id, error) from error
        except OSError as error:
            raise self._unreadable(error) from error

    def _circuit(self, manifest: Manifest) -> Circuit:
        return Circuit(read_program(self._files, manifest, {}))

    def _explained(self, batch_id: int, error: Exception) -> StateError:
        """Return the error of a version that was removed, perhaps while it was read."""
        versions = self.versions()
        if not versions:
            return self._empty()
        if batch_id in versions:
            return error if isinstance(error, StateError) else StateDamagedError(str(error))
        return StateError(
            f"{self._files.location} does not keep version {batch_id}, it keeps versions "
            f"{versions[0]} to {versions[-1]}: read a version that is kept, or give the sink that "
            "writes it a larger keep=. A streaming query that has fallen behind starts again with "
            "a new checkpoint"
        )

    def _empty(self) -> StateError:
        return StateError(
            f"{self._files.location} has no version of a state: give the state_dir of a ViewSink "
            "that has committed a micro-batch, as an absolute path"
        )

    def _unknown(self, view: str, manifest: Manifest) -> StateError:
        return StateError(
            f"version {manifest.batch_id} of {self._files.location} has no changes of a view "
            f"{view!r}; it has those of {', '.join(manifest.outputs) or 'no view'}"
        )

    def _unreadable(self, error: OSError) -> StateError:
        return StateError(f"state directory {self._files.location} cannot be read: {error}")
