"""Dictionary memory: keeps the values of dictionaries in scratch files instead of in memory.

A dictionary gives an integer code to each distinct string, binary, wide decimal or
late-materialized row. Its interner (`dbsp_wcoj.values.interner`) consists of arrays::

    strings    the bytes of all values, the offset at which each value ends, and, if values were
               removed, the codes of the others
    slots      the hash table from values to codes: 16 to 32 bytes for each value

To save memory, the arrays of the largest dictionaries are moved to writable memory maps of files
without a name (scratch files). First the strings are moved, because they are read only when a value
is decoded or compared. If this is not enough, the slots are moved; they are read whenever a value
is encoded. From then on, new values are added in these maps. A sweep, which removes unused values,
also allocates its new arrays there.

The files have no name, so no other process changes or truncates them, and the system deletes them
when the process ends. The dictionary files of the state directory stay the only durable copy.

Cost: the bytes of a dictionary are copied once when it is moved. The disk has its values twice, in
the state directory and in the scratch files.

Alternatives considered: mapping the dictionary files of the state directory. A dictionary has up to
fifty parts there. Merges replace them, and they still contain the values that a sweep has removed.
So each look-up would first have to find the part that contains a code, and a file could be removed
only when no reader uses it. In a scratch file, the arrays have the same layout as in memory, and
access takes the same time as long as their pages are in memory.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final, NamedTuple

from dbsp_wcoj.values.array_memory import ArrayMemory
from dbsp_wcoj.values.interner import Interner
from dbsp_wcoj.zset import Int64Array
from streaming.state.files import MappableFiles
from streaming.state.manifest import Manifest
from streaming.state.mapped.scratch_arrays import ScratchArrays
from streaming.state.versions import DATA

__all__ = ["DictionaryMemory", "DictionarySize"]

# The slots of the smallest hash table. The number of slots is a power of two; after a load, at most
# 7 of 16 are in use. A slot has 8 bytes.
_MIN_SLOTS: Final = 64

log = logging.getLogger(__name__)


class DictionarySize(NamedTuple):
    """The bytes of a dictionary on the heap; while an array grows, both its copies count.

    Attributes:
        strings: The bytes of the values, their end offsets, and their codes.
        slots: The bytes of the hash table.
    """

    strings: int
    slots: int

    @staticmethod
    def of(dictionary: Interner) -> DictionarySize:
        """Return the size of a dictionary; 0 if it has no values."""
        if not dictionary.string_count:
            return DictionarySize(0, 0)
        return DictionarySize(dictionary.string_heap_bytes, dictionary.slot_heap_bytes)

    @staticmethod
    def in_version(manifest: Manifest, name: str) -> DictionarySize:
        """Return a lower bound of the size of a dictionary of a version after it is loaded."""
        references = manifest.dictionaries[name]
        rows = sum(part.rows for part in references)
        slots = _MIN_SLOTS
        while 16 * rows > 7 * slots:
            slots *= 2
        return DictionarySize(sum(part.size for part in references), 8 * slots)


class DictionaryMemory:
    """The scratch files of the dictionaries of a circuit.

    Args:
        files: The state directory.
        min_bytes: Smaller arrays are not moved.

    Attributes:
        is_in_use: True after `choose` has chosen a dictionary.
    """

    def __init__(self, files: MappableFiles, min_bytes: int) -> None:
        self._location = files.location
        self._arrays = ScratchArrays(files, DATA, is_random=True)
        self._min_bytes = min_bytes
        # True after an error, until the next call of `choose`: the disk may be full.
        self._has_failed = False
        self.is_in_use = False

    def choose(self, sizes: Mapping[str, DictionarySize], excess: float) -> dict[str, ArrayMemory]:
        """Choose the arrays to move so that at least ``excess`` bytes are freed, if possible.

        Args:
            sizes: The size of each dictionary.
            excess: The bytes to free; 0 or less for none.

        Returns:
            For the name of each chosen dictionary, the memory to which its arrays are to be moved
            (`Interner.move`).
        """
        self._has_failed = False
        memories: dict[str, ArrayMemory] = {}
        for field in DictionarySize._fields:
            memory = ArrayMemory(**{field: self._allocate})
            bytes_of = {name: getattr(size, field) for name, size in sizes.items()}
            for name in sorted(bytes_of, key=bytes_of.__getitem__, reverse=True):
                if excess <= 0 or bytes_of[name] < max(self._min_bytes, 1):
                    break
                memories[name] = memory.or_else(memories.get(name, ArrayMemory()))
                excess -= bytes_of[name]
        self.is_in_use |= bool(memories)
        return memories

    def release_pages(self) -> None:
        """Remove the pages of the scratch files from the memory of this process."""
        self._arrays.release_pages()

    def _allocate(self, words: int) -> Int64Array | None:
        if self._has_failed:
            return None
        try:
            return self._arrays.allocate(words)
        except OSError as error:
            self._has_failed = True
            log.warning(
                "state directory %s: %d bytes of a dictionary are in memory instead of in a file: "
                "%s; this is tried again in the next micro-batch",
                self._location,
                8 * words,
                error,
            )
            return None
