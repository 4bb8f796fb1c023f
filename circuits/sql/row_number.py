"""Top-k per group: ``row_number() OVER (PARTITION BY p ORDER BY o)``, bounded by a constant.

The bound is in QUALIFY, or in the WHERE around a query in FROM (or WITH). Both forms are a TopK,
which reads the first rows of each group only. If the number is selected, a Window numbers the rows
that the TopK keeps. Without a bound, row_number() is a Window over all rows
(`circuits.sql.windows`). So is a second row_number() of the same query.

Below an outer, semi or anti join a bound in WHERE has another meaning, and is not used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeGuard

from sqlglot import exp

from circuits.sql.environment import Environment, RankRange, RankRanges
from circuits.sql.expressions import Clause
from circuits.sql.ordering import read_order
from circuits.sql.rows import conjuncts_of
from circuits.sql.selection import Rank
from circuits.sql.windows import Windows

__all__ = ["find_bounded_ranks", "is_rank", "read_bound", "read_rank"]

FLIPPED: Final[dict[type[exp.Expr], type[exp.Expr]]] = {
    exp.EQ: exp.EQ,
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
}


def is_rank(node: exp.Expr) -> TypeGuard[exp.Window]:
    """Return whether a node is a call of row_number()."""
    return isinstance(node, exp.Window) and isinstance(node.this, exp.RowNumber)


def read_rank(clause: Clause, node: exp.Window, bounds: RankRange, windows: Windows) -> Rank:
    """Return the rank of a row_number() with these bounds."""
    source = clause.source
    source.accept(node.this)
    partition, order, frame = windows.parts(clause, node)
    if frame is not None:
        # A row_number() reads no frame.
        source.accept(frame, "kind", "start", "start_side", "end", "end_side")
    keys = tuple(clause.read(key) for key in partition)
    return Rank(keys, read_order(source, order, clause.read) if order else (), bounds)


def read_bound(node: exp.Expr) -> tuple[exp.Expr, RankRange] | None:
    """Return the expression that a condition bounds by integers, and the range of ranks."""
    if isinstance(node, exp.Between):
        low, high = _integer_value(node.args["low"]), _integer_value(node.args["high"])
        if low is None or high is None or node.args.get("symmetric"):
            return None
        return node.this, RankRange(max(low, 1), high)
    kind = type(node)
    if kind not in FLIPPED:
        return None
    value, limit = node.this, _integer_value(node.args["expression"])
    if limit is None:
        value, limit, kind = node.args["expression"], _integer_value(node.this), FLIPPED[kind]
    if limit is None:
        return None
    if kind is exp.EQ:
        return value, RankRange(max(limit, 1), limit)
    if kind in (exp.LT, exp.LTE):
        return value, RankRange(1, limit - (kind is exp.LT))
    return None


def find_bounded_ranks(
    environment: Environment, node: exp.Select
) -> tuple[dict[int, RankRanges], dict[int, exp.Column]]:
    """Return the ranks that WHERE keeps of the tables in FROM, and the conditions that bound them.

    Both are keyed by the ``id`` of a node: of the table, and of the condition.
    """
    where, joins = node.args.get("where"), node.args.get("joins") or []
    changed = any(join.args.get("side") or join.kind in ("SEMI", "ANTI") for join in joins)
    clause = node.args.get("from_")
    if where is None or clause is None or changed:
        return {}, {}
    tables = [clause.this, *(join.this for join in joins)]
    ranked = {id(table): set(_rank_names(environment, table)) for table in tables}
    ranks: dict[int, RankRanges] = {}
    done: dict[int, exp.Column] = {}
    for part in conjuncts_of(where.this):
        value, bounds = read_bound(part) or (None, None)
        if not isinstance(value, exp.Column) or bounds is None:
            continue
        environment.source.accept(value, "this", "table")
        name = value.name.casefold()
        named = value.table.casefold()
        matches = [
            table
            for table in tables
            if name in ranked[id(table)] and named in ("", table.alias_or_name.casefold())
        ]
        if len(matches) == 1 and id(matches[0]) not in ranks:
            ranks[id(matches[0])] = {name: bounds}
            done[id(part)] = value
            environment.source.accept(part, "this", "expression", "low", "high")
    return ranks, done


def _rank_names(environment: Environment, table: exp.Expr) -> Iterator[str]:
    """Yield the names of the columns of a query in FROM that are a row_number()."""
    alias = table.args.get("alias")
    if alias is not None and alias.args.get("columns"):
        return
    query: exp.Expr = table
    if isinstance(table, exp.Table):
        common = environment.find_common_table(table)
        if common is None or common.node.args["alias"].args.get("columns"):
            return
        query = common.node.this
    while isinstance(query, exp.Subquery) and not _is_followed(query):
        query = query.this
    if isinstance(query, exp.Select) and not _is_followed(query):
        for item in query.expressions:
            if isinstance(item, exp.Alias) and is_rank(item.this):
                yield item.alias.casefold()


def _is_followed(query: exp.Expr) -> bool:
    """Return whether a clause after the list would read other rows if the bound came first."""
    return any(query.args.get(name) for name in ("distinct", "qualify", "limit", "offset"))


def _integer_value(node: exp.Expr) -> int | None:
    if isinstance(node, exp.Literal) and not node.is_string and node.this.isdecimal():
        return int(node.this)
    return None
