"""Kernels of the generic join: they extend prefixes, intersect lists and sum innermost variables.

All of them share these terms and arguments (`join_layout` has the layouts):

program        the compiled plan of a join; one block of words per level
level          the join binds the variable of level 0 first, then level 1, and so on
atom           a relation of the join. It is the sum of its runs: sorted arrays, stored as tries
participant    an atom that contains the variable of a level. It is complete at the level if this is
               the last of its columns that the join needs
slot           the number of a run, counted through all atoms
state          the stack of a running join
cursors        the part of the stack that has a cursor per slot and depth: the position of the run
               among the values of its column ``depth`` that extend the current prefix
level_states   the part of the stack that has the bound value and the sum of each level
counters       the counts of work of a level, for the profiler

The names ``block``, ``participant`` and ``cursor`` are positions or addresses in ``program`` and
``state``.

Arguments are int64. Arrays are passed as addresses of their first word.
"""
