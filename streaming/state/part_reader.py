"""Part reader: reads and verifies stored parts that are merged with others.

A merge writes the rows of its parts again, with a new checksum. So each file is compared with its
checksum before it is merged, even if this process has written it: damage must not be copied into a
file that counts as intact.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dbsp_wcoj.storage.run import Run
from dbsp_wcoj.values.coded_strings import CodedStrings
from streaming.errors import StateDamagedError
from streaming.state.files import Files, MappableFiles, MappedMemory
from streaming.state.manifest import FileChecksum
from streaming.state.segment import SegmentPart, decode_segment, part_name
from streaming.state.segment_references import SegmentReference, StateKey
from streaming.state.verified_files import (
    decode_run,
    decode_strings,
    find_part,
    map_verified,
    read_verified,
)

__all__ = ["PartReader", "name_of_parts"]


class PartReader:
    """Reads parts; each file is read once.

    Args:
        files: The directory.
        checksums: The checksum of each file that has parts to read.
        mappable_files: The directory, to map the files; None to read them to memory.
        min_mapped_bytes: Smaller files are read to memory in any case.
    """

    def __init__(
        self,
        files: Files,
        checksums: Mapping[str, FileChecksum],
        mappable_files: MappableFiles | None = None,
        min_mapped_bytes: int = 0,
    ) -> None:
        self._files = files
        self._min_mapped_bytes = min_mapped_bytes
        self._mappable_files = mappable_files
        self._maps: list[MappedMemory] = []
        self._checksums = checksums
        self._segments: dict[str, list[SegmentPart]] = {}

    def read_part(self, key: StateKey, reference: SegmentReference) -> SegmentPart:
        """Read a part of an arrangement or dictionary.

        Raises:
            StateDamagedError: Its file is damaged.
        """
        if reference.file not in self._segments:
            try:
                data = self._read_file(reference.file)
            except StateDamagedError as error:
                raise StateDamagedError(
                    f"{error}: start the query again to continue from an intact version, if "
                    "there is one"
                ) from error
            self._segments[reference.file] = decode_segment(
                data, f"{self._files.location}/{reference.file}"
            )
        name, parts = name_of_parts(key), self._segments[reference.file]
        part = find_part(self._files, parts, reference, name)
        return replace(part, name=name) if reference.stored_name else part

    def release_pages(self) -> None:
        """Remove the pages of mapped files from the memory of this process."""
        for mapped in self._maps:
            mapped.release_pages()

    def _read_file(self, name: str) -> memoryview:
        expected = self._checksums[name]
        if self._mappable_files is None or expected.size < self._min_mapped_bytes:
            return read_verified(self._files, name, expected)
        self._maps.append(map_verified(self._mappable_files, name, expected))
        return self._maps[-1].memory

    def read_run(self, key: StateKey, reference: SegmentReference) -> Run:
        """Read a part of an arrangement.

        Raises:
            StateDamagedError: Its file is damaged.
        """
        part = self.read_part(key, reference)
        return decode_run(self._files, part, reference, on_chunk=self.release_pages)

    def read_strings(self, key: StateKey, reference: SegmentReference) -> CodedStrings:
        """Read a part of a dictionary.

        Raises:
            StateDamagedError: Its file is damaged.
        """
        return decode_strings(self._files, self.read_part(key, reference), reference)


def name_of_parts(key: StateKey) -> str:
    """Return the name that the parts of an arrangement or dictionary have in their files."""
    name, order = key
    return name if order is None else part_name(name, order)
