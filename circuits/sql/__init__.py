"""The SQL front end: text to logical plans, ``plan_sql``.

sqlglot parses the text. This package resolves names and types and makes a logical plan. The plan
follows the text: FROM becomes a CrossJoin and each condition a Filter. `circuits.plan.rewrite`
turns these into N-way joins.

================= ==================================================================
`statements`      the tables, views and inserts of a text
`declarations`    CREATE TABLE: the inputs that a text declares
`obstacles`       all errors of a text at once
`query`           kinds of queries: SELECT, `set_operations`, `values`, parentheses
`select`          a SELECT after WHERE; `grouping`, `ordering`, `row_number`
`select_builder`  the plan of a SELECT while it is read, with its names (`scope`)
`tables`          FROM and joins
`conditions`      WHERE and ON; `subqueries`, `disjunctions` (subqueries inside OR)
`recursion`       WITH RECURSIVE
`readers`         the table of all constructs in expressions: `literals`, `expressions`,
                  `casts`, `predicates`, `scalar_functions`, `dates`
`clause`          the clause that contains an expression, which looks up the readers
`environment`     the names that a query can use: relations, views, WITH
`source`          the text, errors that point into it, checks that no part is ignored
`parsing`         sqlglot's parser, which also keeps words of the text for errors
================= ==================================================================

Where a new construct is added:

- in expressions: a reader in a module of `readers`, and a line in that module's table;
- an item of FROM: ``tables.FROM_ITEM_READERS``;
- a kind of query: ``query.QUERY_PLANNERS``;
- a window function: the ``read_window`` of the clauses that `select` makes;
- an aggregate: ``aggregate_names``, and ``aggregate_calls.DEFINITIONS`` for its arguments.

Invariant: unsupported SQL raises an error that names the construct and its position; it never gives
a wrong answer. See `source` for the two checks that ensure this.

Semantics follow DuckDB. Names are compared without case. NULLs are last in both directions. ``/``
gives a double and ``//`` an integer. Division by zero gives NULL. A view has no order, so ORDER BY
without LIMIT is checked and dropped. LIMIT without ORDER BY takes the first rows in the order of
all columns.

Alternatives considered: sqlglot's ``qualify`` (see `circuits.sql.scope`) and ``optimize``, which
decorrelates subqueries, but loses positions in the text and treats NULL in NOT IN differently.
"""

from __future__ import annotations

from circuits.sql.declarations import Declarations, TableDeclaration
from circuits.sql.obstacles import Obstacle, find_obstacles
from circuits.sql.statements import declared_by, plan_sql

__all__ = [
    "Declarations",
    "Obstacle",
    "TableDeclaration",
    "declared_by",
    "find_obstacles",
    "plan_sql",
]
