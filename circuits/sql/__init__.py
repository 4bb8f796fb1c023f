"""The SQL front end: text to logical plans, ``plan_sql``.

sqlglot parses the text. This package resolves names and types and makes a logical plan. The plan is
naive on purpose: FROM is a CrossJoin and a condition is a Filter, in the order of the text.
`circuits.plan.rewrite` makes N-way joins of them.

============= ======================================================================
`statements`  the views of a text
`query`       queries: SELECT, set operations (`set_operations`), `values`, `recursion`
`select`      a SELECT from its rows to its columns; `grouping`, `ordering`, `row_number`
`tables`      FROM and joins; `select_builder` is the plan that grows, `scope` has the names in it
`conditions`  WHERE and ON; `subqueries` has EXISTS, IN, ANY, ALL and scalar subqueries
`expressions` scalar expressions; `predicates`, `scalar_functions`, `dates`, `types`
`source`      the text, errors that point into it, the guard against constructs that nobody reads
============= ======================================================================

Invariant: unsupported SQL raises an error that names the construct and its place; it never gives
a wrong answer. Each reader of a syntax tree therefore names all arguments of a node that it reads
(``SqlSource.accept``), and any other argument raises an error.

Semantics follow DuckDB. Names have no case. NULLs are last in both directions. ``/`` gives a double
and ``//`` an integer. Division by zero gives NULL. A view has no order, so ORDER BY without LIMIT
is checked and dropped. LIMIT without ORDER BY takes the first rows in the order of all columns.

Alternatives considered: sqlglot's ``qualify`` (see `circuits.sql.scope`) and ``optimize``, which
decorrelates subqueries, but loses places in the text and treats NULL in NOT IN differently.
"""

from __future__ import annotations

from circuits.sql.statements import plan_sql

__all__ = ["plan_sql"]
