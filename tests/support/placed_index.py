"""Runs whose index is below or above their rows in memory, as that of `Run.with_index` may be.

The memory allocator chooses the place of an index, so a test cannot ask `Run.with_index` for one.
Here a single array has the index and a copy of the rows, in either order.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from dbsp_wcoj.kernels.storage import run_layout
from dbsp_wcoj.storage.run import Run
from dbsp_wcoj.zset import Int64Array

Place = Literal["below", "above"]


def place_index(run: Run, place: Place, max_words: int = 8) -> Run:
    """Return a mapped run with the same rows, and its index below or above them.

    A run that cannot have an index gets a copy of its header there.
    """
    words = run.to_words()
    header_words = run_layout.LEVEL_HEADERS + run_layout.LEVEL_HEADER_WORDS * run.arity
    # Room for a header and a directory on either side.
    room = header_words + max_words
    memory = np.empty(room + len(words) + room, np.int64)
    memory[room:][: len(words)] = words
    rows = Run.from_words(memory[room:][: len(words)], is_mapped=True)
    indexed = rows.with_index(max_words)
    header = rows.buffer[:header_words] if indexed.index is None else indexed.index
    index = memory[:room] if place == "below" else memory[-room:]
    index = index[: len(header)]
    index[:] = header
    address = _address_of(index)
    pointers = [run_layout.WEIGHT_SUMS, run_layout.DIRECTORY]
    for level in range(run.arity):
        entry = run_layout.LEVEL_HEADERS + run_layout.LEVEL_HEADER_WORDS * level
        pointers += [entry + run_layout.LEVEL_VALUES, entry + run_layout.LEVEL_OFFSETS]
    for pointer in pointers:  # the last one is the bitmap of a run of one column
        is_moved = indexed.index is not None and pointer == run_layout.DIRECTORY
        if index[pointer] and not is_moved:
            index[pointer] += (indexed.address - address) // 8
    placed = Run(rows.buffer, address, run.rows, run.max_abs_weight, is_mapped=True, index=index)
    assert (address < rows.address) == (place == "below")
    return placed


def _address_of(words: Int64Array) -> int:
    return int(words.__array_interface__["data"][0])
