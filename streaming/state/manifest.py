"""Manifest: the state after one batch id, described in one small file.

A manifest lists

- each file of the version, with its size and checksum;
- the parts of each arrangement (a relation in one column order) and of each dictionary (the codes
  of strings), by segment file and position (`streaming.state.segment_references`);
- about the micro-batch: the digests of its inputs, the files of its published tables, the number of
  dead letters.

A version exists from the rename of its manifest; files without a manifest are garbage. The manifest
of a distributed circuit contains the manifests of its cells (`streaming.state.cell_versions`), so
that one rename commits all of them.

The file is one line of JSON and one line with its checksum, so that a manifest that was cut short
or changed is detected (`streaming.state.checksums`). A checksum does not prove who wrote the file,
so the content is checked as well: the batch id is that of the file name, the id is that of the
directory, each listed file is in ``data/`` or ``outputs/``, and ``parent`` is the checksum of the
previous version's manifest, so that a version of another history is detected. ``epoch`` and
``owner`` identify the writer (`streaming.state.ownership`).
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Final, NamedTuple
from weakref import WeakValueDictionary

from streaming.errors import StateDamagedError, StateError
from streaming.state.cell_versions import CellVersions
from streaming.state.checksums import (
    checksum_of,
    decode_checked,
    encode_checked,
    parse_count,
    parse_int64,
    parse_items,
    parse_text,
    parse_texts,
)
from streaming.state.files import MAX_SMALL_FILE_BYTES, Bytes, Files, read_small_file
from streaming.state.segment import part_name
from streaming.state.segment_references import SegmentReference

__all__ = [
    "MANIFESTS",
    "FileChecksum",
    "LastChanges",
    "Manifest",
    "ProgramLink",
    "list_batch_ids",
    "manifest_name",
    "next_changes",
    "parse_manifest_name",
    "read_cell_manifest",
    "read_manifest",
]

MANIFESTS: Final = "manifests"
MANIFEST_SUFFIX: Final = ".json"
BATCH_ID_DIGITS: Final = 20
#: The only file names that a manifest may contain; none leads out of the directory.
_FILE_NAME: Final = re.compile(r"(?:data|outputs)/[A-Za-z0-9][A-Za-z0-9._-]{0,200}")
_CRC_LIMIT: Final = 1 << 32


@dataclass(frozen=True, slots=True)
class FileChecksum:
    """The expected size of a file in bytes and its CRC-32."""

    size: int
    crc: int

    @staticmethod
    def of(chunks: Iterable[Bytes]) -> FileChecksum:
        """Return the checksum of a file that consists of these chunks; O(bytes).

        >>> FileChecksum.of([b"one", b"two"]) == FileChecksum.of([b"onetwo"])
        True
        """
        size = crc = 0
        for chunk in chunks:
            size += memoryview(chunk).nbytes
            crc = zlib.crc32(chunk, crc)
        return FileChecksum(size, crc)


class LastChanges(NamedTuple):
    """The last micro-batches in which the published table of a view has rows.

    A target that does not hold ``previous`` has missed micro-batches, although those without rows
    are not written to every target.

    Attributes:
        previous: The last one before this version; -1 if there is none, so that the table of this
            version is the whole view; None if it is not known.
        last: The last one up to and including this version; -1 and None as in ``previous``.
    """

    previous: int | None
    last: int | None


@dataclass(frozen=True)
class ProgramLink:
    """How the views of a version continue those of the previous version, which has other views.

    Attributes:
        views: The views whose targets go on, each with its name in the previous version.
        has_same_inputs: True if both versions have the same checksum of the same rows.
    """

    views: Mapping[str, str]
    has_same_inputs: bool

    def then(self, later: ProgramLink) -> ProgramLink:
        """Return this change followed by a second one, as one change.

        >>> first, second = ProgramLink({"b": "a"}, True), ProgramLink({"c": "b", "d": "x"}, True)
        >>> first.then(second)
        ProgramLink(views={'c': 'a'}, has_same_inputs=True)
        """
        views = {new: self.views[old] for new, old in later.views.items() if old in self.views}
        return ProgramLink(views, self.has_same_inputs and later.has_same_inputs)


@dataclass(frozen=True)
class Manifest:
    """The state after one micro-batch.

    Attributes:
        batch_id: The micro-batch.
        query_id: The Spark query that numbers the micro-batches; its checkpoint has the same id.
        steps: The number of steps of the circuit so far.
        traces: The parts of each arrangement, by the name of its relation and its column order.
        dictionaries: The parts of each dictionary.
        dictionary_lengths: The number of codes of each dictionary, including removed ones.
        watermarks: The watermark of each input with lateness or retention, and the time of the
            micro-batch if a view reads ``now()``.
        plans: The variable orders of the joins.
        digests: A checksum of the rows of each input; empty if an earlier release wrote the
            version, whose checksums were others.
        outputs: The files of each published table, in order.
        changes: The last changes of each view; without those that an earlier release wrote.
        dead_letters: The number of dead letters so far, including this micro-batch.
        files: The size and checksum of each file.
        state_id: The id of the directory (`streaming.state.directory_identity`).
        fingerprint: The fingerprint of the circuit.
        cells: The cells of a distributed circuit; None if it is embedded.
        epoch: The number of the writer; 0 in directories of earlier releases.
        owner: The token of the writer.
        parent: The checksum of the previous version's manifest; None for the first version, or
            if an earlier release wrote it.
        values_after_sweep: The number of values in all dictionaries after the last sweep.
        link: The change of the views; None if the previous version has the same views.
        dead_letter_file: The file with the rejected rows of this micro-batch; None if there are
            none, or in a manifest of an earlier release. It is not in ``files``, because it may be
            removed while the version is kept, and remains when the version is removed.
        checksum: The checksum of this manifest, if it was read from a file.
    """

    batch_id: int
    query_id: str | None
    steps: int
    traces: Mapping[str, Mapping[tuple[int, ...], tuple[SegmentReference, ...]]]
    dictionaries: Mapping[str, tuple[SegmentReference, ...]]
    dictionary_lengths: Mapping[str, int]
    watermarks: Mapping[str, int]
    plans: Any
    digests: Mapping[str, int]
    outputs: Mapping[str, tuple[str, ...]]
    dead_letters: int
    files: Mapping[str, FileChecksum]
    state_id: str = ""
    fingerprint: str = ""
    cells: CellVersions | None = None
    epoch: int = 0
    owner: str = ""
    parent: int | None = None
    values_after_sweep: int = 0
    link: ProgramLink | None = None
    dead_letter_file: str | None = None
    changes: Mapping[str, LastChanges] = field(default_factory=dict)
    checksum: int = field(default=0, compare=False)

    @cached_property
    def all_files(self) -> Mapping[str, FileChecksum]:
        """The size and checksum of all files of the version and its cells; computed once.

        Each commit reads those of all versions that are kept.
        """
        files = dict(self.files)
        for cell in self._cell_manifests.values():
            files |= cell.files
        return files

    @cached_property
    def _cell_manifests(self) -> Mapping[tuple[int, int], Manifest]:
        """The manifests of the cells, which versions with equal cells share."""
        manifests = {} if self.cells is None else self.cells.manifests
        return {cell: read_cell_manifest(data) for cell, data in manifests.items()}

    @property
    def data_files(self) -> list[str]:
        """The files of the state itself, without those of the outputs."""
        outputs = {name for names in self.outputs.values() for name in names}
        return [name for name in self.files if name not in outputs]

    @cached_property
    def sizes(self) -> Mapping[str, tuple[int, int]]:
        """Rows and bytes of each arrangement and dictionary, summed over its parts and cells.

        They are computed once, so those of a cell that has not changed are not computed again.
        """
        references_by_name = {
            part_name(name, order): references
            for name, orders in self.traces.items()
            for order, references in orders.items()
        } | dict(self.dictionaries)
        sizes = {
            name: (
                sum(reference.rows for reference in references),
                sum(reference.size for reference in references),
            )
            for name, references in references_by_name.items()
        }
        for (stage, _), cell in self._cell_manifests.items():
            for cell_name, (rows, size) in cell.sizes.items():
                name = f"stage {stage} {cell_name}"
                total_rows, total_size = sizes.get(name, (0, 0))
                sizes[name] = total_rows + rows, total_size + size
        return sizes

    def encode(self) -> bytes:
        """Return the content of the manifest file.

        Raises:
            StateError: It is larger than `read_small_file` reads.
        """
        file_numbers = {name: i for i, name in enumerate(self.files)}

        def to_json(references: tuple[SegmentReference, ...]) -> list[list[int | str]]:
            return [
                [
                    file_numbers[reference.file],
                    reference.position,
                    reference.rows,
                    reference.size,
                    *([reference.stored_name] if reference.stored_name else []),
                ]
                for reference in references
            ]

        body = {
            "batch_id": self.batch_id,
            "query_id": self.query_id,
            "steps": self.steps,
            "traces": {
                name: {
                    ",".join(map(str, order)): to_json(references)
                    for order, references in orders.items()
                }
                for name, orders in self.traces.items()
            },
            "tables": {name: to_json(references) for name, references in self.dictionaries.items()},
            "lengths": dict(self.dictionary_lengths),
            "watermarks": dict(self.watermarks),
            "plans": self.plans,
            # Earlier releases wrote other checksums as "digests". They read these as no checksums.
            "digests": {},
            "row_digests": dict(self.digests),
            "outputs": {name: list(files) for name, files in self.outputs.items()},
            "dead_letters": self.dead_letters,
            "files": {name: [file.size, file.crc] for name, file in self.files.items()},
            "state_id": self.state_id,
            "fingerprint": self.fingerprint,
            "epoch": self.epoch,
            "owner": self.owner,
            "parent": self.parent,
            "values_after_sweep": self.values_after_sweep,
            "changes": {view: list(changes) for view, changes in self.changes.items()},
        }
        if self.cells is not None:
            body["cells"] = self.cells.to_json()
        if self.link is not None:
            body["link"] = [dict(self.link.views), self.link.has_same_inputs]
        if self.dead_letter_file is not None:
            body["dead_letter_file"] = self.dead_letter_file
        data = encode_checked(body)
        if len(data) > MAX_SMALL_FILE_BYTES:
            raise StateError(
                f"the manifest of micro-batch {self.batch_id} has {len(data):,} bytes, and the "
                f"most that is read again is {MAX_SMALL_FILE_BYTES:,}: use fewer cells or fewer "
                "views, or write larger micro-batches; nothing of this one was committed"
            )
        return data

    @staticmethod
    def decode(data: bytes, name: str) -> Manifest:
        """Read the content of a manifest file.

        Raises:
            StateDamagedError: It was cut short or changed.
        """
        body = decode_checked(data, name)
        try:
            return _parse_manifest(body, checksum_of(data))
        except (AttributeError, KeyError, TypeError, ValueError, IndexError) as error:
            raise StateDamagedError(
                f"{name} is not a valid manifest ({type(error).__name__}: {error}): restore "
                "the state directory from a copy, or delete it together with the checkpoint"
            ) from error


def next_changes(
    batch_id: int,
    rows: Mapping[str, int],
    manifest: Manifest | None,
    link: ProgramLink | None,
    first_slices: Collection[str] = (),
) -> dict[str, LastChanges]:
    """Return the last changes of the next version.

    Args:
        batch_id: The next version.
        rows: The number of rows of each published table.
        manifest: The version before; None if there is none.
        link: The views that the next version continues; None if it has the same views.
        first_slices: The views of which the next version publishes the first rows, whatever an
            earlier version has published under their names.

    >>> next_changes(0, {"v": 1, "w": 0}, None, None)
    {'v': LastChanges(previous=-1, last=0), 'w': LastChanges(previous=-1, last=-1)}
    """

    def previous_of(view: str) -> int | None:
        old_view = view if link is None else link.views.get(view)
        if manifest is None or old_view is None or view in first_slices:
            return -1
        return manifest.changes[old_view].last if old_view in manifest.changes else None

    changes = {}
    for view, count in rows.items():
        previous = previous_of(view)
        changes[view] = LastChanges(previous, batch_id if count else previous)
    return changes


def _parse_manifest(body: Mapping[str, Any], checksum: int) -> Manifest:
    """Read a manifest from JSON values, and check each value."""
    files = {
        _parse_file_name(name): _parse_checksum(*size_and_crc)
        for name, size_and_crc in parse_items(body["files"])
    }
    names = list(files)

    def parse_references(parts: Any) -> tuple[SegmentReference, ...]:
        return tuple(
            SegmentReference(
                names[parse_count(file)],
                parse_count(position),
                parse_count(rows),
                parse_count(size),
                *map(parse_text, stored_name),
            )
            for file, position, rows, size, *stored_name in parts
        )

    cells = CellVersions.from_json(body["cells"]) if "cells" in body else None
    for manifest_bytes in () if cells is None else cells.manifests.values():
        if read_cell_manifest(manifest_bytes).cells is not None:
            raise ValueError("a cell has cells")
    outputs = {view: parse_texts(names) for view, names in parse_items(body["outputs"])}
    for view_files in outputs.values():
        for name in view_files:
            if name not in files:
                raise ValueError(f"no checksum of {name!r}")
    return Manifest(
        batch_id=parse_count(body["batch_id"]),
        query_id=None if body["query_id"] is None else parse_text(body["query_id"]),
        steps=parse_count(body["steps"]),
        traces={
            trace: {
                tuple(parse_count(int(column)) for column in order.split(",")): parse_references(
                    parts
                )
                for order, parts in parse_items(orders)
            }
            for trace, orders in parse_items(body["traces"])
        },
        dictionaries={name: parse_references(parts) for name, parts in parse_items(body["tables"])},
        dictionary_lengths={
            name: parse_count(length) for name, length in parse_items(body["lengths"])
        },
        watermarks={name: parse_int64(time) for name, time in parse_items(body["watermarks"])},
        plans=body["plans"],
        digests={
            name: parse_int64(digest) for name, digest in parse_items(body.get("row_digests", {}))
        },
        outputs=outputs,
        dead_letters=parse_count(body["dead_letters"]),
        files=files,
        state_id=parse_text(body["state_id"]),
        fingerprint=parse_text(body["fingerprint"]),
        cells=cells,
        epoch=parse_count(body.get("epoch", 0)),
        owner=parse_text(body.get("owner", "")),
        parent=None if body.get("parent") is None else parse_count(body["parent"]),
        values_after_sweep=parse_count(body.get("values_after_sweep", 0)),
        link=_parse_link(*body["link"]) if "link" in body else None,
        dead_letter_file=(
            parse_text(body["dead_letter_file"]) if "dead_letter_file" in body else None
        ),
        changes={
            view: LastChanges(*map(_parse_change, ids))
            for view, ids in parse_items(body.get("changes", {}))
        },
        checksum=checksum,
    )


def _parse_link(views: Any, has_same_inputs: Any) -> ProgramLink:
    if not isinstance(has_same_inputs, bool):
        raise ValueError(f"{has_same_inputs!r} is not true or false")
    return ProgramLink({v: parse_text(old) for v, old in parse_items(views)}, has_same_inputs)


def _parse_change(batch_id: Any) -> int | None:
    return batch_id if batch_id is None or batch_id == -1 else parse_count(batch_id)


def _parse_file_name(name: str) -> str:
    if not _FILE_NAME.fullmatch(name):
        raise ValueError(f"{name[:80]!r} is not a file name of a version")
    return name


def _parse_checksum(size: Any, crc: Any) -> FileChecksum:
    if parse_count(crc) >= _CRC_LIMIT:
        raise ValueError(f"{crc} is not a CRC-32")
    return FileChecksum(parse_count(size), crc)


# The manifests of cells that versions in memory have, which may be more than the latest ones.
_CELLS_IN_USE: Final = WeakValueDictionary[bytes, Manifest]()


@lru_cache(maxsize=1024)
def read_cell_manifest(data: bytes) -> Manifest:
    """Read the manifest of a cell; cached, because few of them change between versions.

    The cache has those of the versions in memory, however many, and the latest 1,024 others.
    """
    manifest = _CELLS_IN_USE.get(data)
    if manifest is None:
        manifest = _CELLS_IN_USE[data] = Manifest.decode(data, "the manifest of a cell")
    return manifest


def manifest_name(batch_id: int) -> str:
    """Return the name of the manifest of a batch id; names sort like ids.

    >>> manifest_name(7)
    'manifests/00000000000000000007.json'
    """
    return f"{MANIFESTS}/{batch_id:0{BATCH_ID_DIGITS}}{MANIFEST_SUFFIX}"


def parse_manifest_name(name: str) -> int | None:
    """Return the batch id in the name of a manifest; None for another name.

    >>> parse_manifest_name(manifest_name(7)), parse_manifest_name("manifests/7.json.tmp")
    (7, None)
    """
    stem = name.removeprefix(f"{MANIFESTS}/").removesuffix(MANIFEST_SUFFIX)
    return int(stem) if len(stem) == BATCH_ID_DIGITS and stem.isdecimal() else None


def list_batch_ids(files: Files) -> list[int]:
    """Return the batch ids of the manifests in a directory, sorted."""
    batch_ids = map(parse_manifest_name, files.names(MANIFESTS))
    return sorted(batch_id for batch_id in batch_ids if batch_id is not None)


def read_manifest(files: Files, batch_id: int, *, state_id: str | None = None) -> Manifest:
    """Read the manifest of a batch id, and check its batch id and its directory.

    Args:
        files: The directory.
        batch_id: The micro-batch.
        state_id: The id of the directory; not checked if omitted.

    Raises:
        FileNotFoundError: The file is missing.
        StateDamagedError: It is damaged, or of another micro-batch or directory.
        OSError: The file system failed.
    """
    name = manifest_name(batch_id)
    path = f"{files.location}/{name}"
    manifest = Manifest.decode(read_small_file(files, name), path)
    if manifest.batch_id != batch_id:
        raise StateDamagedError(
            f"{path} is the manifest of micro-batch {manifest.batch_id}: a file was copied or "
            "renamed by hand; restore the state directory from a copy, or delete it together with "
            "the checkpoint"
        )
    if state_id is not None and manifest.state_id != state_id:
        raise StateDamagedError(
            f"{path} belongs to another state directory (id {manifest.state_id!r}, here "
            f"{state_id!r}): restore the state directory from a copy, or delete it together with "
            "the checkpoint"
        )
    return manifest
