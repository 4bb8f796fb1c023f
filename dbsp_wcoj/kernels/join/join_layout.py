"""The layout of a join program and of the state of a running join, for the kernels and Python.

A *program* is one int64 array: the part of a join that is fixed when its query is planned. The
*state* is the stack of the kernel. All of it is in one array, so a join can stop when its output
buffer is full and resume later. A *source* says which runs an atom reads: those of a spine (by the
address of its table), the delta run of this step, or both. These are the old version of the
relation, its delta, and the new version, so one kernel serves all three.
"""

# program[...]
ATOMS = 0
LEVELS = 1  # variables that are bound one by one
EMITTED_LEVELS = 2  # the first EMITTED_LEVELS levels make a row, the levels after them are summed
HEAD_SIZE = 3  # columns of the head
HEAD_LEVELS = 4  # position of a list: the level of each head column
MAX_ATOM_DEPTH = 5  # largest number of bound columns of an atom
SPLIT_LEVEL = 6  # level whose values may be restricted to a range, to share the work
BLOCKS = 7  # position of a list: the position of each level's block, and of the end of the last one
ATOM_DEPTHS = 8  # position of a list: the number of bound columns of each atom
# The atom whose rows bind the first DRIVER_LEVELS levels (`dbsp_wcoj.kernels.join.delta_rows`).
DRIVER = 9
DRIVER_LEVELS = 10
# 1 if the result is one sum and no part of it is memoized, so summands can be deferred
# (`dbsp_wcoj.kernels.join.narrow_lists`).
CAN_DEFER = 11
# Address of the kernel that sums over all rows of the driver (`dbsp_wcoj.kernels.join.row_sums`), 0
# while it is not linked, or NO_KERNEL if the join does not have this form.
ROW_SUM_KERNEL = 12
NO_KERNEL = -1
PROGRAM_WORDS = 13

# The block of a level: MEMO_KIND, MEMO_LEVEL, SUM_KIND, SUM_KERNEL, the number of participants,
# (atom, depth, whether the atom is complete) for each, the number of comparisons, (operator,
# CONSTANT or VARIABLE, constant or level, shift) for each: the value is compared with the constant,
# or with the value of the level plus the shift. SUM_KERNEL is the address of the kernel that
# computes the sum (`dbsp_wcoj.kernels.join.calls`), or 0.
MEMO_KIND = 0
MEMO_LEVEL = 1
SUM_KIND = 2
SUM_KERNEL = 3
PARTICIPANTS = 4
PARTICIPANT_WORDS = 3
COMPARISON_WORDS = 4

# block[SUM_KIND]:
# - SUM_NONE: the values are listed.
# - SUM_LAST: the sum over the innermost variable.
# - SUM_PAIRS: the sum over this variable and the innermost one after it.
# - SUM_CYCLE: the same if the two variables close a cycle (`dbsp_wcoj.kernels.join.cycle_sums`).
# - SUM_CLIQUE: the same if they close a clique (`dbsp_wcoj.kernels.join.clique_sums`). One more
#   block then follows after the last level's: that of the innermost variable, without the atom that
#   binds both variables.
SUM_NONE, SUM_LAST, SUM_PAIRS, SUM_CYCLE, SUM_CLIQUE = range(5)

# block[MEMO_KIND]: how the sum over this and all later levels is memoized.
# - MEMO_NONE: not at all.
# - MEMO_VALUE: it depends on the variable of level MEMO_LEVEL only, and is kept for each of its
#   values.
# - MEMO_PREFIX: the last variable that it depends on is at level MEMO_LEVEL, and it is kept until
#   that level or an earlier one binds its next value.
MEMO_NONE, MEMO_VALUE, MEMO_PREFIX = range(3)

LESS, AT_MOST, GREATER, AT_LEAST, EQUAL, UNEQUAL = range(6)
CONSTANT, VARIABLE = range(2)

# sources[atom, ...]
TABLE = 0
READS_DELTA = 1
DELTA_INDEX = 2
SOURCE_WORDS = 3

# state[...]
LEVEL = 0  # the level that runs
IS_ENTERING = 1  # 1 if the cursors of that level are not set yet
TOTAL = 2  # the sum so far
ROWS_WRITTEN = 3  # rows of the output in this call
ACTIVE_DRIVER_LEVELS = 4  # number of levels that rows of the driver bind in this join
BINDINGS = 5  # number of values that were bound so far
# The first slot of each atom, and the number of slots. After them are the level states, one per
# level and one more, and after these the cursors of the slots.
FIRST_SLOT = 6

# One cursor per slot (a run of an atom) and depth (a column of the run): one cache line.
LOW = 0  # position of the first value that extends the bound prefix
HIGH = 1  # position after the last such value
POSITION = 2  # of the next value to read
END = 3  # position after the last value that the comparisons allow
VALUES = 4  # address of the values of the column
OFFSETS = 5  # address of their offsets, which say where the children of each value begin
# At the last column, which has no offsets: the word LIST_BITMAPS of the spine's table, if the run
# is the oldest one of a spine, else 0.
LIST_BITMAPS = OFFSETS
RUN = 6  # address of the run
IS_MATCHED = 7  # 1 if the cursor is on the value being bound
CURSOR_WORDS = 8
CURSOR_BYTES = 8 * CURSOR_WORDS

# level_state[...]
VALUE = 0  # the bound value
WEIGHT = 1  # the weight of the prefix before it
PROPOSER = 2  # the participant that proposes values
IS_MEMOIZED = 3  # 1 while the sum from this level on is computed to be memoized
TOTAL_BEFORE = 4  # while IS_MEMOIZED: the total before that sum
WEIGHT_BEFORE = 5  # and the weight of the prefix, by which the sum is multiplied at its end
BINDING = 6  # the number of the value that is bound, in the order of all bindings
MEMO_BINDING = 7  # the BINDING of level MEMO_LEVEL for which the sum in MEMO_PREFIX_SUM is valid
MEMO_PREFIX_SUM = 8
LEVEL_STATE_WORDS = 9

# counters[level, ...]
PROPOSALS = 0
INTERSECTIONS = 1
COUNTER_WORDS = 2
COUNTER_BYTES = 8 * COUNTER_WORDS

# Status that the join kernel returns. After FULL or PAUSED, call it again with ``is_resumed`` = 1.
DONE, FULL, OVERFLOW, PAUSED = range(4)

# Values bound or proposed before a join pauses, so that its caller can check its time limit.
MAX_WORK_PER_CALL = 1 << 24
UNLIMITED_WORK = (1 << 63) - 1

# memo[...]: a hash table of sums
GENERATION = 0  # the number of the running join
FIRST_MEMO_ENTRY = 1
# memo_entry[...]
MEMO_KEY = 0  # value of the variable that the sum depends on
MEMO_OWNER = 1  # join and level that the entry belongs to
MEMO_SUM = 2
MEMO_ENTRY_WORDS = 3
MAX_MEMO_ENTRIES = 1 << 15
MEMO_WORDS = FIRST_MEMO_ENTRY + MEMO_ENTRY_WORDS * MAX_MEMO_ENTRIES

# Number of values that the bitmap of a join covers: a quarter of the bits of a typical second-level
# cache.
BITMAP_BITS = 1 << 23
BITMAP_WORDS = BITMAP_BITS >> 6
# Maximum number of values in a list that a join builds.
LIST_WORDS = 1 << 15

# bitmap_buffer[...]: the bitmap, then:
FIRST_LIST = BITMAP_WORDS  # space for two lists, each with LIST_WORDS values and LIST_WORDS weights
SECOND_LIST = FIRST_LIST + 2 * LIST_WORDS
SCRATCH = SECOND_LIST + 2 * LIST_WORDS  # 3 * LIST_WORDS words (`dbsp_wcoj.kernels.join.lists`)
PACKED_RUN = SCRATCH + 3 * LIST_WORDS  # address of a packed run (`packed_lists`), 0 for none
NARROW_LISTS = PACKED_RUN + 1  # address of narrow lists (`narrow_lists`), 0 for none
SUBGRAPH = NARROW_LISTS + 1  # address of an induced subgraph (`induced_subgraph`), 0 for none
# How many times a join looked for the bitmap of a long list of a run without bitmaps, and the last
# such run (`long_lists`).
LIST_MISSES = SUBGRAPH + 1
MISSED_RUN = LIST_MISSES + 1
BITMAP_BUFFER_WORDS = MISSED_RUN + 1
# After so many misses, the bitmaps of the missed run are built.
MAX_LIST_MISSES = 16


def state_words(atoms: int, levels: int, slots: int, depths: int) -> int:
    """Return the size in words of the state of a join over ``slots`` runs in total."""
    cursors = CURSOR_WORDS * slots * max(depths, 1)
    return FIRST_SLOT + atoms + 1 + LEVEL_STATE_WORDS * (levels + 1) + cursors
