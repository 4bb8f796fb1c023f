"""List packing: prepares the lists of a run for a join that reads them all.

For cycles, there are two forms. *Packed lists* (`dbsp_wcoj.kernels.join.packed_lists`) have one
pair of words for all values of a list within 64 numbers, and a join intersects pairs faster than
values if there are clearly fewer pairs. Vertices that are numbered along links or by community have
few pairs.
*Narrow lists* (`dbsp_wcoj.kernels.join.narrow_lists`) have the values themselves, in 32 bits, and
the join scans the shorter list of each pair. Counts of all triangles, in CPU ms (AMD EPYC):

=========================== ============= ======== ====== ======
graph                       pairs per row as is    packed narrow
=========================== ============= ======== ====== ======
uk-2007-05-100000                    0.16      192     84    138
cnr-2000                             0.22               83     99
web-NotreDame                        0.31       84     46     63
wiki-Vote                            0.56              5.5    5.0
soc-Epinions1                        0.68       53     39     32
RMAT, scale 16                       0.73       78     60     33
RMAT, scale 18                       0.82      519    589    205
RMAT, scale 20                       0.84     4924   5981   1419
=========================== ============= ======== ====== ======

So a run is packed if a sample of its values has at most `MAX_PAIRS_PER_ROW`, and narrow otherwise.
For cliques, the lists stay as they are, and the subgraphs that they induce are read instead
(`clique_lists`).

Alternatives considered: bitmaps of hubs, which are vertices with edges to more than a 64th of the
others. In steps of 1,000 edges on RMAT 20, three quarters of the time go to reading lists from
memory. Only one vertex is a hub there, so its bitmap saves at most a tenth of that. To save a
quarter, lists eight times shorter would need bitmaps, which take 40 % more memory.
An edge between two hubs would gain: three intersections of about 8,500 values each take 19 us as
lists, 11 us as lists tested in bitmaps of all 2**20 vertices, and 7 us as ANDs of such bitmaps.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from dbsp_wcoj.execution.join_buffers import CliqueLists, NarrowLists, address_of
from dbsp_wcoj.kernels.join.induced_subgraph import MIN_BASE_VALUES
from dbsp_wcoj.kernels.join.join_layout import BITMAP_BITS
from dbsp_wcoj.kernels.join.packed_lists import pack_run, packed_words
from dbsp_wcoj.kernels.storage.run_layout import DIRECTORY, WEIGHT_SUMS
from dbsp_wcoj.storage.run import Int32Array, Run, first_values
from dbsp_wcoj.zset import Int64Array

__all__ = [
    "clique_lists",
    "estimate_pairs_per_row",
    "narrow_lists",
    "pack_lists",
    "prepare_lists",
]

MAX_PAIRS_PER_ROW: Final = 0.5
# Positions and lengths of narrow lists have 32 bits.
MAX_NARROW_ROWS: Final = (1 << 31) - 1
# A longer list induces no subgraph, whose bitmaps take a bit for each pair of its values: 32 MB.
MAX_BASE_VALUES: Final = 1 << 14
# The pairs are counted in this many pieces of a run.
SAMPLED_PIECES: Final = 16
VALUES_PER_PIECE: Final = 4096
# log2 of the number of values that one pair stands for at most.
PAIR_SHIFT: Final = 6


def prepare_lists(run: Run, fixed: Run | None) -> Int64Array | NarrowLists | None:
    """Prepare the lists of a run for a join that reads all of them.

    Args:
        run: The run that closes a cycle.
        fixed: The run whose lists are intersected with its lists, often the same run; None if there
            are several.

    Returns:
        Packed or narrow lists, whichever is faster; None if the run can have neither.

    Complexity:
        O(rows) time.
    """
    packed = pack_lists(run)
    return narrow_lists(run, fixed) if packed is None and fixed is not None else packed


def narrow_lists(run: Run, fixed: Run) -> NarrowLists | None:
    """Return the values of the lists of two runs as numbers of 32 bits.

    Args:
        run: The run that closes a cycle.
        fixed: The run whose lists are intersected with its lists, often the same run.

    Returns:
        The values; None if they are too far apart for a bitmap, or if one of the runs cannot have
        narrow lists: it needs two columns and a uniform weight, and ``run`` a directory.

    Complexity:
        O(rows) time, and space for deferred intersections. If one of the runs does not store the
        values in 32 bits, they are copied: 4 bytes per row.
    """
    if not _can_be_narrow(run) or not _header(run)[DIRECTORY]:
        return None
    values = run.level_values(1)
    lowest, highest = int(values.min()), int(values.max())
    fixed_values = values
    if fixed is not run:
        if not _can_be_narrow(fixed):
            return None
        fixed_values = fixed.level_values(1)
        lowest = min(lowest, int(fixed_values.min()))
        highest = max(highest, int(fixed_values.max()))
    if highest - lowest >= BITMAP_BITS:
        return None
    nodes = len(run.level_values(0))
    if run.is_narrow and fixed.is_narrow:
        narrow, fixed_narrow = values.view(np.int32), fixed_values.view(np.int32)  # as they are
    else:
        try:
            narrow = _subtract(values, lowest)
            fixed_narrow = narrow if fixed is run else _subtract(fixed_values, lowest)
        except MemoryError:
            return None
        lowest = 0
    return NarrowLists(run.address, nodes, narrow, fixed.address, fixed_narrow, lowest)


def clique_lists(run: Run) -> CliqueLists | None:
    """Let a join count cliques in the subgraphs that the lists of a run induce.

    Args:
        run: The run that closes the cliques.

    Returns:
        Where the lists are; None if no list is long enough, or if the run cannot have subgraphs: it
        needs two columns and a uniform weight.

    Complexity:
        O(lists).
    """
    if not _can_be_narrow(run):
        return None
    _, list_starts = first_values(run)
    capacity = min(int(np.diff(list_starts).max()), MAX_BASE_VALUES)
    return CliqueLists(run.address, capacity) if capacity >= MIN_BASE_VALUES else None


def _header(run: Run) -> Int64Array:
    return run.buffer if run.index is None else run.index


def _can_be_narrow(run: Run) -> bool:
    has_rows = 0 < run.rows <= MAX_NARROW_ROWS
    return has_rows and run.arity == 2 and not _header(run)[WEIGHT_SUMS]


def _subtract(values: Int64Array | Int32Array, lowest: int) -> Int32Array:
    narrow = np.empty(len(values), np.int32)
    np.subtract(values, lowest, out=narrow, casting="unsafe", dtype=np.int64)
    return narrow


def pack_lists(run: Run) -> Int64Array | None:
    """Pack the lists of a run.

    Returns:
        The packed form, which contains the address of the run; None if it does not pay off, or if
        the run cannot be packed: it needs two columns, a uniform weight and a directory.

    Complexity:
        O(rows) time; at most about 26 bytes per row.
    """
    if run.arity != 2 or not run.rows or estimate_pairs_per_row(run) > MAX_PAIRS_PER_ROW:
        return None
    try:
        packed = np.empty(packed_words(len(run.level_values(0)), run.rows), np.int64)
    except MemoryError:
        return None
    return packed if pack_run(run.address, address_of(packed)) else None


def estimate_pairs_per_row(run: Run) -> float:
    """Estimate the number of pairs in the packed form of a run of two columns, for each row.

    Args:
        run: At least one row.

    Complexity:
        O(lists), and at most ``SAMPLED_PIECES * VALUES_PER_PIECE`` values are read.

    >>> import numpy as np
    >>> from dbsp_wcoj import ZSet
    >>> rows = [(0, value) for value in range(0, 6400, 32)]
    >>> round(estimate_pairs_per_row(Run.of(ZSet.from_rows(rows), np.arange(2))), 1)
    0.5
    """
    values = run.level_values(1)
    _, list_starts = first_values(run)
    last_start = max(len(values) - VALUES_PER_PIECE, 0)
    pairs = rows = 0
    for start in np.unique(np.linspace(0, last_start, SAMPLED_PIECES).astype(np.int64)).tolist():
        words = values[start : start + VALUES_PER_PIECE] >> PAIR_SHIFT
        begins_pair = np.ones(len(words), np.bool_)
        begins_pair[1:] = words[1:] != words[:-1]
        first, end = np.searchsorted(list_starts, (start, start + len(words))).tolist()
        begins_pair[list_starts[first:end] - start] = True
        pairs += int(np.count_nonzero(begins_pair))
        rows += len(words)
    return pairs / rows
