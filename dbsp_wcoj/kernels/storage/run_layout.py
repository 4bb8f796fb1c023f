"""Where things are in a run buffer: the only place that knows the word offsets.

A run of arity ``k`` is one int64 array::

    header | level 0: values, offsets | ... | level k-1: values | directory | cumulative weights

- ``values[l]`` holds the trie nodes of level ``l``, siblings strictly increasing;
- ``offsets[l]`` (``n_l + 1`` words, absent at the leaves) says where the children of a node start;
- the *directory* answers "where is value v at level 0" in constant expected time: entry ``j`` is
  the first node whose value is at least ``lowest + (j << shift)``;
- weights are stored as running sums (``rows + 1`` words), so the weight of any range of leaves,
  hence of any subtree, is one subtraction. A run whose weights are all equal, as those of
  insertions (1) or deletions (-1) are, stores that weight once.

A pointer of zero means "section absent". All positions are words from the start of the buffer, so
a buffer can be written to a file and mapped again as it is.
"""

ARITY = 0
ROWS = 1
MAX_ABS_WEIGHT = 2
WEIGHT_SUMS = 3
DIRECTORY = 4
DIRECTORY_SHIFT = 5
LOWEST_VALUE = 6
DIRECTORY_SIZE = 7
UNIFORM_WEIGHT = 8  # the weight of every row, where WEIGHT_SUMS is 0
LEVEL_HEADERS = 9

# One level's entry in the header, from LEVEL_HEADERS + LEVEL_HEADER_WORDS * level on.
LEVEL_NODES = 0
LEVEL_VALUES = 1
LEVEL_OFFSETS = 2
LEVEL_HEADER_WORDS = 3

# Level 0 shorter than this is searched without a directory.
MIN_DIRECTORY_NODES = 32
