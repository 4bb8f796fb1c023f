"""Verified files: read the files of a version, and check their checksums and positions.

A checksum detects accidents but does not prove who wrote a file. Kernels trust the positions in
runs and dictionaries. So this module checks all positions, once for each part that is read:
whatever a file contains, no memory outside of it is accessed.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import NamedTuple

from circuits.state.circuit_state import State
from dbsp_wcoj.errors import DbspWcojError
from dbsp_wcoj.storage.run import Run
from dbsp_wcoj.values.array_memory import ArrayMemory
from dbsp_wcoj.values.coded_strings import CodedStrings
from streaming.errors import StateDamagedError
from streaming.state.files import Files, MappableFiles, MappedMemory
from streaming.state.manifest import FileChecksum, Manifest
from streaming.state.segment import SegmentPart, decode_segment, part_name, read_string_part
from streaming.state.segment_references import SegmentReference
from streaming.state.string_parts import StoredStrings

__all__ = [
    "FileCache",
    "MappedFiles",
    "check_size",
    "check_strings",
    "decode_run",
    "decode_strings",
    "map_verified",
    "read_state",
    "read_verified",
]

#: The files that have been read, by name: the checksum and the parts of each.
FileCache = dict[str, tuple[FileChecksum, list[SegmentPart]]]


def read_verified(files: Files, name: str, expected: FileChecksum) -> memoryview:
    """Read a file and compare its checksum; O(bytes).

    Raises:
        StateDamagedError: It is missing, cut short or changed.
    """
    check_size(files, name, expected)
    data = files.read(name)
    _compare_checksum(files, name, zlib.crc32(data), expected)
    return data


def _compare_checksum(files: Files, name: str, crc: int, expected: FileChecksum) -> None:
    """Compare the checksum of a file with that of the manifest.

    Raises:
        StateDamagedError: They differ.
    """
    if crc != expected.crc:
        raise StateDamagedError(
            f"{files.location}/{name} has the checksum {crc:08x}, it was written with "
            f"{expected.crc:08x}"
        )


def map_verified(files: MappableFiles, name: str, expected: FileChecksum) -> MappedMemory:
    """Map a file and compare its checksum; O(bytes), but little memory.

    Raises:
        StateDamagedError: It is missing, cut short or changed.
    """
    check_size(files, name, expected)
    # First, because a directory of copies replaces a damaged copy.
    _compare_checksum(files, name, files.checksum(name), expected)
    return files.map(name, expected.size)


def check_size(files: Files, name: str, expected: FileChecksum) -> None:
    """Check that a file exists and has its size.

    Raises:
        StateDamagedError: It is missing, or has another size.
    """
    path = f"{files.location}/{name}"
    size = files.size(name)
    if size is None:
        raise StateDamagedError(f"{path} is missing")
    if size != expected.size:
        raise StateDamagedError(f"{path} has {size} bytes, it was written with {expected.size}")


class MappedFiles(NamedTuple):
    """The files of a version that need not be read before it is loaded.

    Attributes:
        cache: The files.
        memories: The memory for the values of each dictionary, by default memory of the process.
        release_pages: Gives back the pages of the files of dictionaries.
    """

    cache: FileCache
    memories: Mapping[str, ArrayMemory]
    release_pages: Callable[[], None]


def read_state(
    files: Files,
    manifest: Manifest,
    cache: FileCache | None = None,
    *,
    mapped: MappedFiles | None = None,
    min_mapped_bytes: int | None = None,
) -> State:
    """Return the state of a version as views of its files; nothing is copied.

    Args:
        files: The directory.
        manifest: The version.
        cache: Files of this directory that need not be read again, because files never change;
            this function adds the files of the version.
        mapped: Verified files of the version; ``cache`` is not used then.
        min_mapped_bytes: Files of at least this size are mapped, if the directory can do this, so
            that they take no memory of the process; None to read all files.

    Raises:
        StateDamagedError: A file is missing, cut short or changed.

    Complexity:
        O(bytes) of the files that are not in the cache, for their checksums.
    """
    mapped = mapped or MappedFiles({} if cache is None else cache, {}, lambda: None)
    cache = mapped.cache
    parts_by_file, new_files = {}, set()
    for name in manifest.data_files:
        expected = manifest.files[name]
        if name not in cache or cache[name][0] != expected:
            if (
                min_mapped_bytes is None
                or expected.size < min_mapped_bytes
                or not isinstance(files, MappableFiles)
            ):
                data = read_verified(files, name, expected)
                parts = decode_segment(data, f"{files.location}/{name}")
            else:
                parts = _map_large_parts(files, name, expected, min_mapped_bytes)
            cache[name] = expected, parts
            new_files.add(name)
        parts_by_file[name] = cache[name][1]

    def read_run(reference: SegmentReference, expected_name: str) -> Run:
        part = find_part(files, parts_by_file[reference.file], reference, expected_name)
        return decode_run(files, part, reference, is_new=reference.file in new_files)

    def find_strings(reference: SegmentReference, expected_name: str) -> tuple[SegmentPart, int]:
        part = find_part(files, parts_by_file[reference.file], reference, expected_name)
        if reference.file in new_files:
            check_strings(files, part, reference)
        return part, reference.rows

    _check_lengths(files, manifest)
    return State(
        steps=manifest.steps,
        traces={
            name: {
                order: [read_run(reference, part_name(name, order)) for reference in references]
                for order, references in orders.items()
            }
            for name, orders in manifest.traces.items()
        },
        dictionaries={
            name: StoredStrings(
                [find_strings(reference, name) for reference in references], mapped.release_pages
            )
            for name, references in manifest.dictionaries.items()
        },
        watermarks=manifest.watermarks,
        plans=manifest.plans,
        lengths=manifest.dictionary_lengths,
        values_after_sweep=manifest.values_after_sweep,
        memories=mapped.memories,
    )


def _map_large_parts(
    files: MappableFiles, name: str, expected: FileChecksum, min_bytes: int
) -> list[SegmentPart]:
    """Return the parts of a file: large ones as maps of it, the others in memory; O(bytes)."""
    memory = map_verified(files, name, expected).memory
    return [
        part
        if part.size >= min_bytes
        else SegmentPart(part.name, part.words.copy(), part.bytes.copy())
        for part in decode_segment(memory, f"{files.location}/{name}", is_mapped=True)
    ]


def find_part(
    files: Files, parts: list[SegmentPart], reference: SegmentReference, expected_name: str
) -> SegmentPart:
    """Return the part of a file that a manifest refers to, with the name that it has there.

    Raises:
        StateDamagedError: The file has no such part.
    """
    expected_name = reference.stored_name or expected_name
    part = parts[reference.position] if reference.position < len(parts) else None
    if part is None or part.name != expected_name or part.size != reference.size:
        actual = "nothing" if part is None else f"{part.size} bytes of {part.name!r}"
        raise StateDamagedError(
            f"{files.location}/{reference.file} has {actual} at position {reference.position}, and "
            f"the manifest expects {reference.size} bytes of {expected_name!r}"
        )
    return part


def decode_run(
    files: Files,
    part: SegmentPart,
    reference: SegmentReference,
    *,
    is_new: bool = True,
    on_chunk: Callable[[], object] = lambda: None,
) -> Run:
    """Decode a part as a run; O(words) to check its positions if it is new.

    Args:
        files: The directory.
        part: The part.
        reference: What the manifest says about it.
        is_new: True if the positions are to be checked.
        on_chunk: Called after some megabytes are checked, for example to release their pages.

    Raises:
        StateDamagedError: It is not a run, or its number of rows differs from the manifest.
    """
    try:
        run = Run.from_words(part.words, is_mapped=part.is_mapped)
        damage = run.find_damage(on_chunk) if is_new else ""
    except DbspWcojError as error:
        damage = str(error)
    if not damage and run.rows != reference.rows:
        damage = f"it has {run.rows} rows, the manifest expects {reference.rows}"
    if damage:
        raise StateDamagedError(
            f"{files.location}/{reference.file}: {part.name!r} at position {reference.position} "
            f"is not a run: {damage}"
        )
    return run


def decode_strings(files: Files, part: SegmentPart, reference: SegmentReference) -> CodedStrings:
    """Decode a part as strings; O(strings) to check them.

    Raises:
        StateDamagedError: They are not strings, or their number differs from the manifest.
    """
    check_strings(files, part, reference)
    strings = read_string_part(part, reference.rows)
    assert strings is not None
    return strings


def check_strings(files: Files, part: SegmentPart, reference: SegmentReference) -> None:
    """Check that a part has strings with ascending offsets and codes; O(strings).

    Raises:
        StateDamagedError: They are not strings, or their number differs from the manifest.
    """
    if not StoredStrings([(part, reference.rows)]).are_valid:
        raise StateDamagedError(
            f"{files.location}/{reference.file}: {part.name!r} at position {reference.position} "
            f"does not contain {reference.rows} strings"
        )


def _check_lengths(files: Files, manifest: Manifest) -> None:
    for name, references in manifest.dictionaries.items():
        strings = sum(reference.rows for reference in references)
        expected = manifest.dictionary_lengths.get(name, 0)
        if strings > expected:
            raise StateDamagedError(
                f"version {manifest.batch_id} of state directory {files.location} has {strings} "
                f"strings of {name!r}, and the manifest expects at most {expected}"
            )
