"""The SQL front end: text to logical plans, ``plan_sql``.

sqlglot parses the text. This package resolves names and types and makes a logical plan. The plan
follows the text: FROM becomes a CrossJoin and each condition a Filter. `circuits.plan.rewrite`
turns these into N-way joins.

================= ====================================================================
`statements`      the tables, views and inserts of a text
`declarations`    CREATE TABLE: the inputs that a text declares (``computed_columns``)
`statement_edits` statements are added to a text, or cut out of it
`view_statements`    the statements of views as text
`flows`           CREATE FLOW: temporary views, which their streaming table reads
`sql_functions`   CREATE FUNCTION and CREATE MACRO: calls that are replaced by a body
`obstacles`       all errors of a text at once
`syntax`          sqlglot's parser, extended; the text, and errors that point into it
`binding`         name resolution, the clause that contains an expression, the plan so far
`expressions`     readers of expressions, from syntax trees to typed calls
`aggregation`     GROUP BY, aggregate functions, window functions
`queries`         SELECT, FROM and joins, subqueries, set operations, recursion
================= ====================================================================

Each folder imports only the folders above it in this table, and a contract checks this.

Where a new construct is added:

- in expressions: a reader in a module of `expressions`, and a line in that module's table;
- an item of FROM: ``queries.tables.FROM_ITEM_READERS``;
- a kind of query: ``queries.query.QUERY_PLANNERS``;
- a window function: the ``read_window`` of the clauses that `queries.select` makes;
- an aggregate: ``aggregation.aggregate_names``, and ``DEFINITIONS`` for its arguments.

Invariant: unsupported SQL raises an error that names the construct and its position; it never gives
a wrong answer. See `syntax.source` for the two checks that ensure this.

Semantics follow DuckDB. Names are compared without case. NULLs are last in both directions. ``/``
gives a double and ``//`` an integer. Division by zero gives NULL. A view has no order, so ORDER BY
without LIMIT is checked and dropped. LIMIT without ORDER BY takes the first rows in the order of
all columns.

Alternatives considered: sqlglot's ``qualify`` (see `circuits.sql.binding.scope`) and ``optimize``,
which decorrelates subqueries, but loses positions in the text and treats NULL in NOT IN
differently.
"""

from __future__ import annotations

from circuits.sql.data_statements import (
    RowQueries,
    Statement,
    ends_statement,
    read_row_queries,
    read_statement,
)
from circuits.sql.declarations import Declarations, TableDeclaration
from circuits.sql.flows import merge_flows
from circuits.sql.obstacles import Obstacle, find_obstacles
from circuits.sql.statement_edits import cut_view, join_statements
from circuits.sql.statements import (
    add_window_close,
    computed_tables,
    declared_by,
    plan_sql,
    split_statements,
)
from circuits.sql.syntax.source import SqlSource
from circuits.sql.view_statements import (
    ViewStatement,
    find_relations,
    streamed_relations,
    view_of_columns,
    view_statements,
    without_default_schemas,
    without_streams,
)

__all__ = [
    "Declarations",
    "Obstacle",
    "RowQueries",
    "SqlSource",
    "Statement",
    "TableDeclaration",
    "ViewStatement",
    "add_window_close",
    "computed_tables",
    "cut_view",
    "declared_by",
    "ends_statement",
    "find_obstacles",
    "find_relations",
    "join_statements",
    "merge_flows",
    "plan_sql",
    "read_row_queries",
    "read_statement",
    "split_statements",
    "streamed_relations",
    "view_of_columns",
    "view_statements",
    "without_default_schemas",
    "without_streams",
]
