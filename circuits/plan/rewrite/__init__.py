"""Rewrite rules: pure functions from a logical plan to the physical plan that runs.

`pipeline` applies the rules. CrossJoin, Filter, Map, Semijoin and OuterJoin become flat blocks
(`select_block`), and each block becomes one N-way join with its filters, maps and differences
(`join_planning`). Semijoins and outer joins become atoms of that join (`semijoins`,
`outer_joins`). A left join that asks for unmatched rows becomes an antijoin (`unmatched_rows`).
Nothing here holds state or processes rows.
"""
