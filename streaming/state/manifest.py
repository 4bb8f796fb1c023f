"""Manifest: the state after one batch id, described in one small file.

It names each file of the version with its size and checksum, the rows of the files that are the
parts of each arrangement and table, and the micro-batch: the digests of its inputs, the files of
its published tables, the number of dead letters. A version exists from the rename of its manifest;
files without a manifest are garbage. The manifest of a distributed circuit contains the manifests
of its cells (`streaming.state.cell_versions`), so that one rename commits all of them.

The file is one line of JSON, then one line with the CRC-32 of the first, so that a manifest that
was cut short or changed is detected (`streaming.state.checksums`). A checksum does not prove who
wrote the file, so its content is checked as well: it must be of the batch id in its name and of its
directory, each file is in ``data/`` or ``outputs/``, and ``parent`` is the checksum of its parent
version, so that a version of another history is detected. ``epoch`` and ``owner`` are those of the
writer (`streaming.state.ownership`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from streaming.errors import StateDamagedError
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
from streaming.state.files import Files, read_small_file
from streaming.state.segment_references import SegmentReference

__all__ = [
    "MANIFESTS",
    "FileChecksum",
    "Manifest",
    "list_batch_ids",
    "manifest_name",
    "parse_manifest_name",
    "read_cell_manifest",
    "read_manifest",
]

MANIFESTS: Final = "manifests"
MANIFEST_SUFFIX: Final = ".json"
BATCH_ID_DIGITS: Final = 20
#: The only names that a manifest can give, so that none leads out of the directory.
_FILE: Final = re.compile(r"(?:data|outputs)/[A-Za-z0-9][A-Za-z0-9._-]{0,200}")
_CRC_LIMIT: Final = 1 << 32


@dataclass(frozen=True, slots=True)
class FileChecksum:
    """The expected size of a file in bytes and its CRC-32."""

    size: int
    crc: int


@dataclass(frozen=True)
class Manifest:
    """The state after one micro-batch.

    Attributes:
        batch_id: The micro-batch.
        query_id: The checkpoint that numbers it (Spark's id of the query, kept in the checkpoint).
        steps: Steps of the circuit.
        traces: The parts of each arrangement, by the name of the trace and its column order.
        tables: The parts of each table of values.
        lengths: The number of values in each table.
        watermarks: The watermark of each input with retention.
        plans: The variable orders of the joins.
        digests: A checksum of the rows of each input.
        outputs: The files of each view's delta, in order.
        dead_letters: The number of dead letters so far, including this micro-batch.
        files: The size and checksum of each file.
        state_id: The id of the directory (`streaming.state.directory_identity`).
        fingerprint: The fingerprint of the circuit.
        cells: The cells of a distributed circuit; None if it is embedded.
        epoch: The number of the writer; 0 in directories of earlier releases.
        owner: The token of the writer.
        parent: The checksum of the manifest of the parent version; None for the first version, or
            if an earlier release wrote it.
        checksum: The checksum of this manifest, where it was read from a file.
    """

    batch_id: int
    query_id: str | None
    steps: int
    traces: Mapping[str, Mapping[tuple[int, ...], tuple[SegmentReference, ...]]]
    tables: Mapping[str, tuple[SegmentReference, ...]]
    lengths: Mapping[str, int]
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
    checksum: int = field(default=0, compare=False)

    @property
    def file_names(self) -> set[str]:
        """All files of the version, also those of the cells."""
        names = set(self.files)
        for cell in self._cell_manifests.values():
            names |= read_cell_manifest(cell).files.keys()
        return names

    @property
    def _cell_manifests(self) -> Mapping[tuple[int, int], bytes]:
        return {} if self.cells is None else self.cells.manifests

    @property
    def data_files(self) -> list[str]:
        """The files of the state itself, without those of the outputs."""
        outputs = {name for names in self.outputs.values() for name in names}
        return [name for name in self.files if name not in outputs]

    @property
    def sizes(self) -> dict[str, tuple[int, int]]:
        """Rows and bytes of each arrangement and table, in all parts and cells together."""
        sizes = {
            f"{name} [{','.join(map(str, order))}]": references
            for name, orders in self.traces.items()
            for order, references in orders.items()
        } | dict(self.tables)
        found = {
            name: (sum(p.rows for p in references), sum(p.size for p in references))
            for name, references in sizes.items()
        }
        for (stage, _), cell in self._cell_manifests.items():
            for name, (rows, size) in read_cell_manifest(cell).sizes.items():
                known = found.get(f"stage {stage} {name}", (0, 0))
                found[f"stage {stage} {name}"] = known[0] + rows, known[1] + size
        return found

    def to_bytes(self) -> bytes:
        """Return the content of the file."""
        numbers = {name: i for i, name in enumerate(self.files)}

        def references(parts: tuple[SegmentReference, ...]) -> list[list[int]]:
            return [[numbers[p.file], p.row, p.rows, p.size] for p in parts]

        body = {
            "batch_id": self.batch_id,
            "query_id": self.query_id,
            "steps": self.steps,
            "traces": {
                name: {",".join(map(str, order)): references(p) for order, p in orders.items()}
                for name, orders in self.traces.items()
            },
            "tables": {name: references(parts) for name, parts in self.tables.items()},
            "lengths": dict(self.lengths),
            "watermarks": dict(self.watermarks),
            "plans": self.plans,
            "digests": dict(self.digests),
            "outputs": {name: list(files) for name, files in self.outputs.items()},
            "dead_letters": self.dead_letters,
            "files": {name: [mark.size, mark.crc] for name, mark in self.files.items()},
            "state_id": self.state_id,
            "fingerprint": self.fingerprint,
            "epoch": self.epoch,
            "owner": self.owner,
            "parent": self.parent,
        }
        if self.cells is not None:
            body["cells"] = self.cells.body
        return encode_checked(body)

    @staticmethod
    def of(data: bytes, name: str) -> Manifest:
        """Read the content of a file.

        Raises:
            StateDamagedError: It was cut short or changed.
        """
        body = decode_checked(data, name)
        try:
            return _manifest(body, checksum_of(data))
        except (AttributeError, KeyError, TypeError, ValueError, IndexError) as error:
            raise StateDamagedError(
                f"{name} is no manifest of this version ({type(error).__name__}: {error}): restore "
                "the state directory from a copy, or delete it together with the checkpoint"
            ) from error


def _manifest(body: Mapping[str, Any], seal: int) -> Manifest:
    """Read a manifest from JSON values, and check each value."""
    files = {_file_name(name): _mark(*mark) for name, mark in parse_items(body["files"])}
    names = list(files)

    def references(parts: Any) -> tuple[SegmentReference, ...]:
        return tuple(
            SegmentReference(
                names[parse_count(f)], parse_count(row), parse_count(rows), parse_count(size)
            )
            for f, row, rows, size in parts
        )

    cells = CellVersions.of(body["cells"]) if "cells" in body else None
    for cell in () if cells is None else cells.manifests.values():
        if read_cell_manifest(cell).cells is not None:
            raise ValueError("a cell that has cells")
    outputs = {view: parse_texts(given) for view, given in parse_items(body["outputs"])}
    for name in (name for given in outputs.values() for name in given):
        if name not in files:
            raise ValueError(f"no mark of {name!r}")
    return Manifest(
        batch_id=parse_count(body["batch_id"]),
        query_id=None if body["query_id"] is None else parse_text(body["query_id"]),
        steps=parse_count(body["steps"]),
        traces={
            trace: {
                tuple(parse_count(int(column)) for column in order.split(",")): references(parts)
                for order, parts in parse_items(orders)
            }
            for trace, orders in parse_items(body["traces"])
        },
        tables={table: references(parts) for table, parts in parse_items(body["tables"])},
        lengths={table: parse_count(length) for table, length in parse_items(body["lengths"])},
        watermarks={name: parse_int64(mark) for name, mark in parse_items(body["watermarks"])},
        plans=body["plans"],
        digests={name: parse_int64(digest) for name, digest in parse_items(body["digests"])},
        outputs=outputs,
        dead_letters=parse_count(body["dead_letters"]),
        files=files,
        state_id=parse_text(body["state_id"]),
        fingerprint=parse_text(body["fingerprint"]),
        cells=cells,
        epoch=parse_count(body.get("epoch", 0)),
        owner=parse_text(body.get("owner", "")),
        parent=None if body.get("parent") is None else parse_count(body["parent"]),
        checksum=seal,
    )


def _file_name(name: str) -> str:
    if not _FILE.fullmatch(name):
        raise ValueError(f"{name[:80]!r} is no file of a version")
    return name


def _mark(size: Any, crc: Any) -> FileChecksum:
    if parse_count(crc) >= _CRC_LIMIT:
        raise ValueError(f"{crc} is no CRC-32")
    return FileChecksum(parse_count(size), crc)


@lru_cache(maxsize=1024)
def read_cell_manifest(data: bytes) -> Manifest:
    """Read the manifest of a cell; cached, because few of them change between versions."""
    return Manifest.of(data, "the manifest of a cell")


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
    return sorted(n for n in map(parse_manifest_name, files.names(MANIFESTS)) if n is not None)


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
    found = Manifest.of(read_small_file(files, name), path)
    if found.batch_id != batch_id:
        raise StateDamagedError(
            f"{path} is the manifest of micro-batch {found.batch_id}: a file was copied or renamed "
            "by hand; restore the state directory from a copy, or delete it together with the "
            "checkpoint"
        )
    if state_id is not None and found.state_id != state_id:
        raise StateDamagedError(
            f"{path} is of another state directory (id {found.state_id!r}, here {state_id!r}): "
            "restore the state directory from a copy, or delete it together with the checkpoint"
        )
    return found
