"""Verified: the bytes of a file, once they are known to be those that were written."""

from __future__ import annotations

import zlib

from circuits.state import State
from dbsp_wcoj.run import Run
from streaming.errors import StateDamagedError
from streaming.state.files import Files
from streaming.state.manifest import FileMark, Manifest
from streaming.state.pieces import Placed
from streaming.state.segment import Piece, read_segment

__all__ = ["Known", "check_size", "state_of", "verified"]

#: The pieces of files that have been read, by name, with the mark that they were read by.
Known = dict[str, tuple[FileMark, list[Piece]]]


def verified(files: Files, name: str, mark: FileMark) -> memoryview:
    """The memory of a file; O(bytes) for the checksum.

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


def check_size(files: Files, name: str, mark: FileMark) -> None:
    """Look whether a file is there, in its length.

    Raises:
        StateDamagedError: It is not.
    """
    path = f"{files.location}/{name}"
    size = files.size(name)
    if size is None:
        raise StateDamagedError(f"{path} is missing")
    if size != mark.size:
        raise StateDamagedError(f"{path} has {size} bytes, it was written with {mark.size}")


def state_of(files: Files, manifest: Manifest, known: Known | None = None) -> State:
    """The state of a version, as it lies in its files: nothing is copied or built.

    Args:
        files: The directory.
        manifest: The version.
        known: Files that need not be read again, as they never change; those of the version are
            added to it. They are of this directory.

    Raises:
        StateDamagedError: A file is missing, cut short or changed.

    Complexity:
        O(bytes) of the files that are not known, for their checksums.
    """
    read = {} if known is None else known
    pieces = {}
    for name in manifest.data_files:
        mark = manifest.files[name]
        if name not in read or read[name][0] != mark:
            read[name] = mark, read_segment(verified(files, name, mark))
        pieces[name] = read[name][1]

    def piece(placed: Placed) -> Piece:
        return pieces[placed.file][placed.row]

    return State(
        steps=manifest.steps,
        traces={
            name: {
                order: [Run.of_words(piece(place).words) for place in placed]
                for order, placed in orders.items()
            }
            for name, orders in manifest.traces.items()
        },
        tables={
            name: [(piece(place).words, piece(place).bytes) for place in placed]
            for name, placed in manifest.tables.items()
        },
        marks=manifest.marks,
        plans=manifest.plans,
    )
