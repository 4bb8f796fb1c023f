"""Expressions: one file per family of constructs, from syntax trees to `circuits.plan.expressions`.

Each file ends with a table from a class of syntax trees, or the name of a function, to the function
that reads it; `readers` joins these tables. What depends on the rows of a group or a partition is
in `circuits.sql.aggregation`.
"""
