"""SQL to relational plans: ``plan_sql``.

sqlglot parses; everything after it is here, and is naive on purpose: FROM is a Cross, a condition
is a Filter, in the order of the text (`circuits.plan.rewrite` makes N-way joins of them).

============= ======================================================================
`statements`  the views of a text
`query`       SELECT, set operations (`setops`), VALUES
`select`      a SELECT from its rows to its columns; `grouping`, `ordering`, `ranks`
`tables`      FROM and joins; `rows` is the plan that grows, `scope` the names in it
`subqueries`  EXISTS, IN, ANY, ALL, scalar subqueries
`expressions` scalar expressions; `scalars`, `dates`, `types`
`source`      the text, errors that point into it, the guard against what is not understood
============= ======================================================================

The promise: a text gives the plan of what it means, or an error that names the construct and its
place; never a wrong answer. Therefore each reader of a syntax tree consumes all arguments of a
node (``Source.only``), and what it does not know it refuses.

Meanings follow DuckDB: names without case, NULLs last in both directions, ``/`` gives a double and
``//`` an integer, division by zero gives NULL. A view has no order, so ORDER BY without LIMIT is
checked and dropped; LIMIT without ORDER BY takes the first rows in the order of all columns.

The way not taken: sqlglot's ``qualify`` and ``optimize`` would resolve names and decorrelate, but
lose places in the text and have their own opinions on NULL in NOT IN.
"""

from __future__ import annotations

from circuits.sql.statements import plan_sql

__all__ = ["plan_sql"]
