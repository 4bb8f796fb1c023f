"""Verified files: read files of the state and check their checksums and positions.

A checksum detects accidents but does not prove who wrote a file. Kernels trust the positions in
runs and tables, so they are checked here, once for each part that is read: for any content of a
file, no memory outside of it is accessed.
"""

from __future__ import annotations

import zlib

import numpy as np
import numpy.typing as npt

from circuits.state.circuit_state import State
from dbsp_wcoj.errors import DbspWcojError
from dbsp_wcoj.storage.run import Run
from streaming.errors import StateDamagedError
from streaming.state.files import Files
from streaming.state.manifest import FileChecksum, Manifest
from streaming.state.segment import SegmentPart, decode_segment, part_name
from streaming.state.segment_references import SegmentReference

__all__ = ["Known", "check_size", "decode_run", "decode_strings", "read_state", "read_verified"]

Words = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

#: The parts of files that have been read, by name, with the checksum of the file.
Known = dict[str, tuple[FileChecksum, list[SegmentPart]]]


def read_verified(files: Files, name: str, mark: FileChecksum) -> memoryview:
    """Read a file and compare its checksum; O(bytes).

    Raises:
        StateDamagedError: It is missing, cut short or changed.
    """
    check_size(files, name, mark)
    data = files.read(name)
    crc = zlib.crc32(data)
    if crc != mark.crc:
        raise StateDamagedError(
            f"{files.location}/{name} has the checksum {crc:08x}, it was written with "
            f"{mark.crc:08x}"
        )
    return data


def check_size(files: Files, name: str, mark: FileChecksum) -> None:
    """Check that a file exists and has its size.

    Raises:
        StateDamagedError: It is missing, or has another size.
    """
    path = f"{files.location}/{name}"
    size = files.size(name)
    if size is None:
        raise StateDamagedError(f"{path} is missing")
    if size != mark.size:
        raise StateDamagedError(f"{path} has {size} bytes, it was written with {mark.size}")


def read_state(files: Files, manifest: Manifest, known: Known | None = None) -> State:
    """Return the state of a version as views of its files; nothing is copied.

    Args:
        files: The directory.
        manifest: The version.
        known: Files of this directory that need not be read again, because files never change;
            the files of the version are added to it.

    Raises:
        StateDamagedError: A file is missing, cut short or changed.

    Complexity:
        O(bytes) of the files that are not known, for their checksums.
    """
    read = {} if known is None else known
    parts, new = {}, set()
    for name in manifest.data_files:
        mark = manifest.files[name]
        if name not in read or read[name][0] != mark:
            data = read_verified(files, name, mark)
            read[name] = mark, decode_segment(data, f"{files.location}/{name}")
            new.add(name)
        parts[name] = read[name][1]

    def run(reference: SegmentReference, title: str) -> Run:
        part = find_part(files, parts[reference.file], reference, title)
        return decode_run(files, part, reference, is_new=reference.file in new)

    def strings(reference: SegmentReference, title: str) -> tuple[Words, Bytes]:
        part = find_part(files, parts[reference.file], reference, title)
        return decode_strings(files, part, reference, is_new=reference.file in new)

    _check_lengths(files, manifest)
    return State(
        steps=manifest.steps,
        traces={
            name: {
                order: [run(reference, part_name(name, order)) for reference in reference]
                for order, reference in orders.items()
            }
            for name, orders in manifest.traces.items()
        },
        dictionaries={
            name: [strings(reference, name) for reference in reference]
            for name, reference in manifest.tables.items()
        },
        watermarks=manifest.watermarks,
        plans=manifest.plans,
    )


def find_part(
    files: Files, parts: list[SegmentPart], reference: SegmentReference, title: str
) -> SegmentPart:
    """Return the part of a file that a manifest refers to.

    Raises:
        StateDamagedError: The file has no such part.
    """
    part = parts[reference.row] if reference.row < len(parts) else None
    if part is None or part.name != title or part.size != reference.size:
        found = "nothing" if part is None else f"{part.size} bytes of {part.name!r}"
        raise StateDamagedError(
            f"{files.location}/{reference.file} has {found} in row {reference.row}, the version "
            f"has {reference.size} bytes of {title!r} there"
        )
    return part


def decode_run(
    files: Files, part: SegmentPart, reference: SegmentReference, *, is_new: bool = True
) -> Run:
    """Decode a part as a run; O(words) to check its positions if it is new.

    Raises:
        StateDamagedError: It is not a run, or its number of rows differs from the manifest.
    """
    try:
        run = Run.from_words(part.words)
        wrong = run.find_damage() if is_new else ""
    except DbspWcojError as error:
        wrong = str(error)
    if not wrong and run.rows != reference.rows:
        wrong = f"{run.rows} rows, the version has {reference.rows}"
    if wrong:
        raise StateDamagedError(
            f"{files.location}/{reference.file}: {part.name!r} in row {reference.row} "
            f"is no run: {wrong}"
        )
    return run


def decode_strings(
    files: Files, part: SegmentPart, reference: SegmentReference, *, is_new: bool = True
) -> tuple[Words, Bytes]:
    """Decode a part as strings, offsets and bytes; O(values) to check them if it is new.

    Raises:
        StateDamagedError: They are not strings, or their number differs from the manifest.
    """
    offsets, data = part.words, part.bytes
    right = len(offsets) == reference.rows + 1
    if right and is_new:
        right = offsets[0] == 0 and offsets[-1] == len(data) and bool((np.diff(offsets) >= 0).all())
    if not right:
        raise StateDamagedError(
            f"{files.location}/{reference.file}: {part.name!r} in row {reference.row} is no "
            f"table of {reference.rows} values"
        )
    return offsets, data


def _check_lengths(files: Files, manifest: Manifest) -> None:
    for name, references in manifest.tables.items():
        found = sum(reference.rows for reference in references)
        if found != manifest.lengths.get(name):
            raise StateDamagedError(
                f"version {manifest.batch_id} of state directory {files.location} has {found} "
                f"values of {name!r}, and a length of {manifest.lengths.get(name)}"
            )
