"""Expressions: one file per family of constructs, from syntax trees to `circuits.plan.expressions`.

Each file ends with a table from a class of syntax trees, or the name of a function, to the function
that reads it; `readers` joins these tables. Aggregates and window functions are in
`circuits.sql.aggregation`.
"""
