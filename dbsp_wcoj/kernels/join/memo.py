"""Memoized sums: store the sum over the last variables of a join by the values it depends on.

Level i of a join binds the variable at position i of the variable order. In a chain
``r(a, b), s(b, c), t(c, d)`` the sum over c and d depends on b alone, and many values of a share
one b. The kernel stores the sum by (level, value of b) and computes it once::

    sum(b) = Σ over c, d of s(b, c) * t(c, d)

A sum may also depend on several earlier variables, or on the first one only. If it does not depend
on the variable just before it, it is stored until a variable that it depends on is bound again. An
example is the sum over d for two triangles with a common edge,
``e(a, b), e(a, c), e(b, c), e(a, d), e(b, d)``: it is the same for all c.

As long as no entry is overwritten, the work for an acyclic query is then bounded by the sizes of
the relations and not by the number of joined rows, as in Yannakakis' algorithm, without a separate
plan.

Sums by value are in a hash table, which is direct-mapped: a new entry overwrites the one at its
position. Each entry contains the number of its join and is valid for that join only, so the table
need not be cleared. The sums of the second kind are in the states of their levels.

Reference: Olteanu, Závodný. Size bounds for factorised representations of query results. TODS
40(1), 2015 (d-representations share what depends on the same values).

The package docstring, `dbsp_wcoj.kernels.join`, explains the arguments that all kernels share.
"""

import numpy as np

from dbsp_wcoj.kernels.compilation import inline_subroutine, subroutine
from dbsp_wcoj.kernels.join.join_layout import (
    BINDING,
    BINDINGS,
    FIRST_MEMO_ENTRY,
    GENERATION,
    LEVEL_STATE_WORDS,
    MAX_MEMO_ENTRIES,
    MEMO_BINDING,
    MEMO_ENTRY_WORDS,
    MEMO_KEY,
    MEMO_KIND,
    MEMO_LEVEL,
    MEMO_NONE,
    MEMO_OWNER,
    MEMO_PREFIX,
    MEMO_PREFIX_SUM,
    MEMO_SUM,
    VALUE,
)
from dbsp_wcoj.kernels.memory import load, store

# A join has fewer than 2**LEVEL_BITS levels.
LEVEL_BITS = 16


@inline_subroutine
def entry_position(value, level):
    """Return the position of the entry of a level for a value of the variable it depends on."""
    mixed = (np.uint64(value) + np.uint64(level)) * np.uint64(0x9E3779B97F4A7C15)
    return FIRST_MEMO_ENTRY + MEMO_ENTRY_WORDS * np.int64(
        (mixed >> np.uint64(40)) & np.uint64(MAX_MEMO_ENTRIES - 1)
    )


@inline_subroutine
def owner_tag(memo, level):
    """Return the tag of the entries of a level of the running join."""
    return (load(memo, GENERATION) << LEVEL_BITS) | level


@inline_subroutine
def bind(state, level_state, value):
    """Bind a value to the variable of a level, and give the binding a number of its own."""
    store(state, level_state + VALUE, value)
    store(state, BINDINGS, load(state, BINDINGS) + 1)
    store(state, level_state + BINDING, load(state, BINDINGS))


@inline_subroutine
def forget_sums(state, level_states, level_count):
    """Forget the sums that are stored in the level states, before a join starts."""
    store(state, BINDINGS, 0)
    for level in range(level_count):
        store(state, level_states + LEVEL_STATE_WORDS * level + MEMO_BINDING, 0)


@subroutine
def look_up_sum(program, state, level_states, memo, block, level):
    """Return ``(is_stored, sum)`` for the variables from a level on, given the bound values."""
    kind = load(program, block + MEMO_KIND)
    if kind == MEMO_NONE:
        return False, np.int64(0)
    key_state = level_states + LEVEL_STATE_WORDS * load(program, block + MEMO_LEVEL)
    if kind == MEMO_PREFIX:
        level_state = level_states + LEVEL_STATE_WORDS * level
        is_stored = load(state, level_state + MEMO_BINDING) == load(state, key_state + BINDING)
        return is_stored, load(state, level_state + MEMO_PREFIX_SUM)
    value = load(state, key_state + VALUE)
    entry = entry_position(value, level)
    is_stored = load(memo, entry + MEMO_OWNER) == owner_tag(memo, level)
    is_stored = is_stored and load(memo, entry + MEMO_KEY) == value
    return is_stored, load(memo, entry + MEMO_SUM)


@subroutine
def memoize_sum(program, state, level_states, memo, block, level, total):
    """Store the sum over the variables from a level on, given the bound values."""
    kind = load(program, block + MEMO_KIND)
    if kind == MEMO_NONE:
        return
    key_state = level_states + LEVEL_STATE_WORDS * load(program, block + MEMO_LEVEL)
    if kind == MEMO_PREFIX:
        level_state = level_states + LEVEL_STATE_WORDS * level
        store(state, level_state + MEMO_BINDING, load(state, key_state + BINDING))
        store(state, level_state + MEMO_PREFIX_SUM, total)
        return
    value = load(state, key_state + VALUE)
    entry = entry_position(value, level)
    store(memo, entry + MEMO_KEY, value)
    store(memo, entry + MEMO_OWNER, owner_tag(memo, level))
    store(memo, entry + MEMO_SUM, total)
