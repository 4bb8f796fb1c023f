"""List packing: converts the lists of a run to bitmap words, for a join that reads them all.

`dbsp_wcoj.kernels.join.packed_lists` explains the packed form: one pair of words stands for all
values of a list within 64 numbers. A join intersects pairs faster than values if there are clearly
fewer pairs. Vertices that are numbered along links or by community have few pairs; numbers without
such an order have about as many pairs as values, and a pair takes twice the memory of a value.
Counts of all triangles, in CPU ms (AMD EPYC):

=========================== ============= ======== ======
graph                       pairs per row unpacked packed
=========================== ============= ======== ======
uk-2007-05-100000                    0.15      192     82
web-NotreDame                        0.32       84     44
soc-Epinions1                        0.69       53     43
RMAT, scale 16                       0.74       78     70
RMAT, scale 18                       0.81      553    629
RMAT, scale 20                       0.86     4972   6226
cnr-2000, random numbers             0.99      265    371
=========================== ============= ======== ======

So a run is packed if a sample of its values has at most `MAX_PAIRS_PER_ROW`.

Alternatives considered: bitmaps of hubs, which are vertices with edges to more than a 64th of the
others. In steps of 1,000 edges on RMAT 20, three quarters of the time go to reading lists from
memory. Only one vertex is a hub there, so its bitmap saves at most a tenth of that. To save a
quarter, lists eight times shorter would need bitmaps, which take 40 % more memory. And counting
each pair of lists only from the longer one, in two variable orders: it halves the time on RMAT 20,
but on real graphs with their own numbers the packed lists have fewer pairs than the shorter lists
have values.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from dbsp_wcoj.execution.join_buffers import address_of
from dbsp_wcoj.kernels.join.packed_lists import pack_run, packed_words
from dbsp_wcoj.storage.run import Run, first_values
from dbsp_wcoj.zset import Int64Array

__all__ = ["estimate_pairs_per_row", "pack_lists"]

MAX_PAIRS_PER_ROW: Final = 0.8
# The pairs are counted in this many pieces of a run.
SAMPLED_PIECES: Final = 16
VALUES_PER_PIECE: Final = 4096
# log2 of the number of values that one pair stands for at most.
PAIR_SHIFT: Final = 6


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
