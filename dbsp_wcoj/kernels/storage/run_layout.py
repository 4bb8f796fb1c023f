"""The layout of a run buffer: the only file that knows the word offsets.

A run of arity ``k`` is one int64 array::

    header | level 0: values, offsets | ... | level k-1: values | directory | cumulative weights |
        bitmap

- ``values[l]`` holds the trie nodes of level ``l``; siblings are strictly increasing.
- ``offsets[l]`` (``n_l + 1`` words, absent at the leaves) says where the children of a node start.
  In a level with one node per row the offsets are 0, 1, 2, …; all such levels share the offsets of
  level k-2.
- The values of the last level can be *narrow* if there are two or more columns and all of them fit
  in 32 bits: signed 32-bit numbers, two per word, the first one at the lower address. The unused
  half of the last word is zero. Dictionary codes and numbers of vertices fit. All other values are
  words. A run that is built from rows has narrow values if they fit, a merge of two runs if both
  have them; `dbsp_wcoj.storage.key_runs` writes words.
- The *directory* finds a value at level 0 in constant expected time: entry ``j`` is the first node
  whose value is at least ``lowest + (j << shift)``.
- A run of one column may have a *bitmap* of its values (`dbsp_wcoj.kernels.storage.bitmap`).
- Weights are stored as running sums (``rows + 1`` words), so the weight of any range of leaves,
  hence of any subtree, is one subtraction. A run whose weights are all equal stores that weight
  once; insertions (1) and deletions (-1) make such runs.

A pointer of zero means that the section is absent. All positions are words from the start of the
buffer, so a buffer can be written to a file and mapped again without change. Functions that read a
run by its address also accept a copy of its header and directory elsewhere in memory
(`dbsp_wcoj.storage.run.Run.with_index`); then positions may be negative.
"""

ARITY = 0  # number of columns
ROWS = 1  # number of rows
MAX_ABS_WEIGHT = 2
WEIGHT_SUMS = 3  # where the running sums start, 0 if all weights are equal
DIRECTORY = 4
DIRECTORY_SHIFT = 5
LOWEST_VALUE = 6
DIRECTORY_SIZE = 7
UNIFORM_WEIGHT = 8  # the weight of every row if WEIGHT_SUMS is 0
LEVEL_HEADERS = 9

# The header entry of a level; it starts at LEVEL_HEADERS + LEVEL_HEADER_WORDS * level.
LEVEL_NODES = 0  # number of nodes
LEVEL_VALUES = 1  # where their values start, plus NARROW if they are narrow
LEVEL_OFFSETS = 2  # where their offsets start
LEVEL_HEADER_WORDS = 3

# Added to the position of narrow values. Positions are between -NARROW / 2 and NARROW / 2.
NARROW_SHIFT = 50
NARROW = 1 << NARROW_SHIFT

# Where the bitmap of a run of one column starts, 0 if it has none. Its only level has no offsets.
BITMAP = LEVEL_HEADERS + LEVEL_OFFSETS
# A run whose directory has a greater shift has no bitmap.
MAX_BITMAP_SHIFT = 6

# A level 0 with fewer nodes is searched without a directory.
MIN_DIRECTORY_NODES = 32
