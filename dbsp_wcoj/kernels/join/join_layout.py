"""How a join plan and its running state are laid out for the join kernel.

A *program* is one int64 array: what is fixed when a query is planned. The *state* is the kernel's
stack: because all of it is in one array, a join stops when its output buffer is full and goes on
where it was. A *source* says which runs an atom reads: those of a spine (by the address of its
table), the run of this step's delta, or both; so old, delta and new are data.
"""

# program[...]
ATOMS = 0
LEVELS = 1  # variables that are bound one by one
EMITTED_LEVELS = 2  # the first EMITTED_LEVELS levels make a row, the levels after them are summed
HEAD_SIZE = 3
HEAD_LEVELS = 4  # where the level of each head column is listed
MAX_ATOM_DEPTH = 5  # largest number of bound columns of an atom
SPLIT_LEVEL = 6  # level whose values may be restricted to a range, to share the work
BLOCKS = 7  # where the start of each level's block is listed, and of one more
ATOM_DEPTHS = 8  # where the number of bound columns of each atom is listed
DRIVER = 9  # the atom whose rows bind the first DRIVER_LEVELS levels (`dbsp_wcoj.kernels.join.delta_rows`)
DRIVER_LEVELS = 10
PROGRAM_WORDS = 11

# A level's block: MEMO_KEY_LEVEL, SUM_KIND, SUM_KERNEL, participants, (atom, depth, last)*, comparisons,
# (operator, kind, value)*. MEMO_KEY_LEVEL is the level of the one bound variable that the sum over this
# level and all after it depends on, or -1: the sum is then remembered for each of its values.
# SUM_KERNEL is the address of the kernel that sums, 0 where none does
# (`dbsp_wcoj.kernels.join.calls`).
MEMO_KEY_LEVEL = 0
SUM_KIND = 1
SUM_KERNEL = 2
PARTICIPANTS = 3
PARTICIPANT_WORDS = 3
COMPARISON_WORDS = 3

# block[SUM_KIND]: listed; the innermost variable, summed; the one before it, with the innermost; that
# where the two close a cycle (`dbsp_wcoj.kernels.join.cycle_sums`); and where they close a clique
# (`dbsp_wcoj.kernels.join.clique_sums`): then one more block, after those of the levels, is the
# innermost variable's without the atom that comes from the one before it.
SUM_NONE, SUM_LAST, SUM_PAIRS, SUM_CYCLE, SUM_CLIQUE = range(5)

LESS, AT_MOST, GREATER, AT_LEAST, EQUAL, UNEQUAL = range(6)
CONSTANT, VARIABLE = range(2)

# sources[atom, ...]
TABLE = 0
READS_DELTA = 1
DELTA_INDEX = 2
SOURCE_WORDS = 3

# state[...]
LEVEL = 0
IS_ENTERING = 1
TOTAL = 2
ROWS_WRITTEN = 3
ACTIVE_DRIVER_LEVELS = 4  # how many levels the driver's rows bind in this join
FIRST_SLOT = 5  # words: slot_start[atoms + 1], levels, cells

# One cell per slot (a run of an atom) and depth: one cache line.
LOW = 0  # children of the bound prefix: [LOW, HIGH)
HIGH = 1
POSITION = 2  # cursor among them, after comparisons: [POSITION, END)
END = 3
VALUES = 4
OFFSETS = 5
RUN = 6
IS_MATCHED = 7  # 1 when the cursor is on the value being bound
CELL_WORDS = 8
CELL_BYTES = 8 * CELL_WORDS

# Per level: bound value, weight of the prefix before it, proposing participant; and where the sum
# from this level on is to be remembered: whether it is, the total and the weight before it.
VALUE = 0
WEIGHT = 1
PROPOSER = 2
IS_MEMOIZED = 3
TOTAL_BEFORE = 4
WEIGHT_BEFORE = 5
LEVEL_STATE_WORDS = 6

# counters[level, ...]
PROPOSALS = 0
INTERSECTIONS = 1
COUNTER_WORDS = 2
COUNTER_BYTES = 8 * COUNTER_WORDS

# The status that the join kernel returns. After FULL and PAUSED, call it again with ``resumed``.
DONE, FULL, OVERFLOW, PAUSED = range(4)

# Work after which a join pauses, so that its caller can look at a clock; and to never pause.
MAX_WORK_PER_CALL = 1 << 24
UNLIMITED_WORK = (1 << 63) - 1

# sums[...]: the number of the running join, then one entry per slot.
GENERATION = 0
FIRST_MEMO_ENTRY = 1
MEMO_KEY = 0  # value of the separator
MEMO_OWNER = 1  # which join and which level it belongs to
MEMO_SUM = 2
MEMO_ENTRY_WORDS = 3
MAX_MEMO_ENTRIES = 1 << 15
MEMO_WORDS = FIRST_MEMO_ENTRY + MEMO_ENTRY_WORDS * MAX_MEMO_ENTRIES

# Values that the bitmap of a join can tell apart: a quarter of a typical second-level cache's bits.
BITMAP_BITS = 1 << 23
BITMAP_WORDS = BITMAP_BITS >> 6

# Behind the bitmap: room for two products of lists, values and weights, and to work them out.
LIST_WORDS = 1 << 15
# Behind them: where a packed run is (`dbsp_wcoj.kernels.join.packed_lists`), 0 for none.
PACKED_RUN = BITMAP_WORDS + 7 * LIST_WORDS
BITMAP_BUFFER_WORDS = PACKED_RUN + 1


def state_words(atoms: int, levels: int, slots: int, depths: int) -> int:
    """Return the size of the state of a join over ``slots`` runs in all."""
    cells = CELL_WORDS * slots * max(depths, 1)
    return FIRST_SLOT + atoms + 1 + LEVEL_STATE_WORDS * (levels + 1) + cells
