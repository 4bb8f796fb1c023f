"""Rewrite rules: pure functions from a logical plan to the physical plan that runs.

`pipeline` applies the rules. Nested CrossJoin, Filter, Map, Semijoin and OuterJoin nodes become one
flat block (`select_block`), and each block becomes one N-way join (`join_planning`). An *atom* is
one input of that join. Semijoins and outer joins become atoms as well (`semijoins`, `outer_joins`).
A left join that keeps only unmatched rows becomes an antijoin (`unmatched_rows`). Nothing here
holds state or processes rows.
"""
