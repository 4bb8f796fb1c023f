"""Random SQL that combines all constructs of `circuits.sql`, and random rows for it.

A file per group of constructs; each adds methods to the writer of the file before it:

    choices      the random choices, columns in scope, texts that differ between the engines
    expressions  literals, scalar functions, nested values, JSON, conditions
    windows      window functions and their frames
    aggregates   aggregate functions, grouping sets, HAVING
    sources      FROM: joins, ASOF joins, time windows, UNNEST, LATERAL, PIVOT
    queries      SELECT, subqueries, set operations, top-k, recursion, programs of views
    rows         the tables, and random changes of them

`tests.generators.sql_generator` is a smaller language, which the distributed engine supports whole,
drawn by Hypothesis, so that it shrinks a failing query.
"""
