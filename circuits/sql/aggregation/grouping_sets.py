"""GROUP BY: its keys, and the grouping sets of ROLLUP, CUBE and GROUPING SETS.

::

    ROLLUP (a, b)                  (a, b), (a), ()
    CUBE (a, b)                    (a, b), (a), (b), ()
    GROUPING SETS (a, (b, c))      (a), (b, c); ROLLUP and CUBE may be parts of it
    a, ROLLUP (b)                  (a, b), (a): all combinations of the parts
    a, b WITH ROLLUP               the same as ROLLUP (a, b), in Spark; also WITH CUBE
    a, b GROUPING SETS ((a), ())   these sets, in Spark

With GROUP BY DISTINCT, each set counts once. ALL before keys has no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations, product
from typing import Final

from sqlglot import exp

from circuits.sql.syntax.source import SqlSource

__all__ = [
    "GroupingSets",
    "group_keys",
    "has_all_keys",
    "has_grouping_sets",
    "is_in_sets",
    "read_grouping_sets",
]

GroupingSets = list[frozenset[int]]
# Reads one key and returns its number.
ReadKey = Callable[[exp.Expr], int]

_MAX_SETS: Final = 4096


def read_grouping_sets(
    source: SqlSource, group: exp.Group, read_key: ReadKey
) -> GroupingSets | None:
    """Return the grouping sets of a GROUP BY; None if there is only the set of all keys.

    Args:
        source: The text.
        group: The clause.
        read_key: Adds a key and returns its number.

    Raises:
        UnsupportedSqlError: There are more than 4096 sets.
    """
    sets = _read_sets(source, group, read_key)
    is_distinct = group.args.get("all") is False  # None without DISTINCT and ALL
    return list(dict.fromkeys(sets)) if sets is not None and is_distinct else sets


def has_grouping_sets(group: exp.Group) -> bool:
    """Return whether a clause has GROUPING SETS, ROLLUP or CUBE, maybe in a subquery."""
    return group.find(exp.GroupingSets, exp.Rollup, exp.Cube) is not None


def has_all_keys(group: exp.Group) -> bool:
    """Return whether a clause is GROUP BY ALL, without keys."""
    return bool(group.args.get("all")) and not group.expressions


def _read_sets(source: SqlSource, group: exp.Group, read_key: ReadKey) -> GroupingSets | None:
    source.allow_arguments(group, "expressions", "all", "rollup", "cube", "grouping_sets")
    reader = _Reader(source, read_key)
    parts = [reader.sets_of(node) for node in group.expressions]
    suffixes = [
        node for name in ("rollup", "cube", "grouping_sets") for node in group.args.get(name) or ()
    ]
    if not suffixes:
        if not reader.has_sets:
            return None
        return _combine(source, group, parts)
    if reader.has_sets or len(suffixes) > 1:
        raise source.unsupported(suffixes[0], f"a second {source.describe(suffixes[0])}")
    keys_before_suffix = [keys for (keys,) in parts]  # without has_sets, each part is one set
    suffix = suffixes[0]
    source.allow_arguments(suffix, "expressions")
    if isinstance(suffix, exp.Rollup):
        return _rollup(keys_before_suffix)
    if isinstance(suffix, exp.Cube):
        return _cube(source, suffix, keys_before_suffix)
    return [keys for node in suffix.expressions for keys in reader.sets_of(node)]


def group_keys(group: exp.Group) -> list[exp.Expr]:
    """Return the keys of a GROUP BY, also those in grouping sets."""
    keys: list[exp.Expr] = []
    pending = list(group.iter_expressions())
    while pending:
        node = pending.pop()
        if isinstance(node, exp.Rollup | exp.Cube | exp.GroupingSets | exp.Tuple):
            pending += node.expressions
        else:
            keys.append(node)
    return keys


def is_in_sets(key: exp.Expr) -> bool:
    """Return whether a key of a GROUP BY is in a grouping set, a ROLLUP or a CUBE."""
    return key.find_ancestor(exp.Rollup, exp.Cube, exp.GroupingSets) is not None


class _Reader:
    """Reads the elements of a GROUP BY.

    Attributes:
        has_sets: True if one of them is more than a key: ROLLUP, CUBE, GROUPING SETS or ().
    """

    def __init__(self, source: SqlSource, read_key: ReadKey) -> None:
        self._source = source
        self._read_key = read_key
        self.has_sets = False

    def sets_of(self, node: exp.Expr) -> GroupingSets:
        """Return the grouping sets of one element."""
        if isinstance(node, exp.Rollup | exp.Cube | exp.GroupingSets):
            self.has_sets = True
            self._source.allow_arguments(node, "expressions")
            if isinstance(node, exp.GroupingSets):
                return [keys for part in node.expressions for keys in self.sets_of(part)]
            parts = [self._keys_of(part) for part in node.expressions]
            return (
                _rollup(parts) if isinstance(node, exp.Rollup) else _cube(self._source, node, parts)
            )
        if isinstance(node, exp.Tuple) and not node.expressions:
            self.has_sets = True
        return [self._keys_of(node)]

    def _keys_of(self, node: exp.Expr) -> frozenset[int]:
        if isinstance(node, exp.Tuple):
            self._source.allow_arguments(node, "expressions")
            return frozenset(self._read_key(part) for part in node.expressions)
        return frozenset((self._read_key(node),))


def _rollup(parts: Sequence[frozenset[int]]) -> GroupingSets:
    return [frozenset().union(*parts[:count]) for count in range(len(parts), -1, -1)]


def _cube(source: SqlSource, node: exp.Expr, parts: Sequence[frozenset[int]]) -> GroupingSets:
    if 2 ** len(parts) > _MAX_SETS:
        raise _too_many(source, node)
    return [
        frozenset().union(*combination)
        for count in range(len(parts), -1, -1)
        for combination in combinations(parts, count)
    ]


def _combine(source: SqlSource, node: exp.Expr, parts: Sequence[GroupingSets]) -> GroupingSets:
    total = 1
    for sets in parts:
        total *= len(sets)
    if total > _MAX_SETS:
        raise _too_many(source, node)
    return [frozenset().union(*combination) for combination in product(*parts)]


def _too_many(source: SqlSource, node: exp.Expr) -> Exception:
    return source.unsupported(
        node, f"a GROUP BY of more than {_MAX_SETS} grouping sets", "name the sets that you need"
    )
