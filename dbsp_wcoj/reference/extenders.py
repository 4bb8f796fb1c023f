"""Prefix extenders: the interface between a relation and the generic join.

A join binds one variable after the other. *Level* ``k`` is the ``k``-th variable of the order, and
a *prefix* contains values for the levels ``0 … k-1``. An extender answers three questions about a
prefix: how many values of the next variable it has (``count``), which ones (``propose``), and which
of some values it accepts (``intersect``). Such values are *extensions*. The extender with the
smallest count proposes and the others intersect; because this is decided for each prefix, the join
is worst-case optimal [1].

`RelationExtender` stores weighted rows in a trie: nested sorted dictionaries, one for each level.
Looking up a prefix follows one key per level, and a proposal lists the keys of one dictionary.
Conditions and the connectives or, and, not are extenders as well
(`dbsp_wcoj.reference.connectives`).

Extenders can be combined because of this law: ``intersect(prefix, extensions)`` keeps an extension
only if the extended prefix can still satisfy the extender. So it keeps none if the prefix alone
cannot satisfy it.

This is the readable form of the join, for any ordered Python values; tests compare the compiled
join with it. Alternatives considered: one sorted list of rows with binary search. It is smaller,
but each look-up takes a logarithmic number of comparisons in Python, and it counts rows, not
extensions.

References:
    [1] Ngo, Ré, Rudra. Skew Strikes Back. SIGMOD Record 42(4), 2013, section 3. arXiv:1310.3314
    [2] Ammar, McSherry, Salihoglu, Joglekar. Distributed Evaluation of Subgraph Queries. PVLDB
        11(6), 2018 (count, propose, intersect).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from operator import index
from typing import Any, Protocol, Self, TypeAlias

from sortedcontainers import SortedDict

from dbsp_wcoj.errors import (
    ArityError,
    ColumnTypeError,
    UnsafeVariableError,
    VariableOrderError,
    WeightError,
)
from dbsp_wcoj.query import Atom, Constant, Variable

__all__ = ["Prefix", "PrefixExtender", "RelationExtender", "Row"]

Row: TypeAlias = tuple[Any, ...]
Prefix: TypeAlias = Sequence[Any]


class PrefixExtender(Protocol):
    """A participant of the generic join, on some of its levels.

    A participant without variables, such as an atom of constants, participates in level 0.
    """

    @property
    def levels(self) -> tuple[int, ...]:
        """The levels in which it participates, ascending, at least one."""

    def participates(self, level: int) -> bool:
        """Return whether it participates in this level."""

    def count(self, prefix: Prefix) -> float:
        """An upper bound of the extensions of ``propose``; infinite if it cannot propose."""

    def propose(self, prefix: Prefix) -> list[Any]:
        """All extensions of ``prefix``, each once."""

    def intersect(self, prefix: Prefix, extensions: Sequence[Any]) -> list[Any]:
        """The extensions that it accepts after ``prefix``, in their order."""


class RelationExtender:
    """A weighted relation, as a trie in the order of its levels.

    Args:
        relation: Weight by row, or just rows (weight 1 each). The weights of equal rows are
            summed, and rows of weight zero are dropped.
        levels: The level of each column. Columns of one level must be equal, as in ``e(x, x)``.

    Raises:
        ArityError: A row has not exactly one value per level.
        WeightError: A weight is not an integer.
        ColumnTypeError: The values of a level have no order, such as 1 and "a".

    Complexity:
        O(n log n) for n rows.

    >>> edges = RelationExtender([("a", "b"), ("a", "c"), ("b", "c")], [0, 1])
    >>> edges.count(()), edges.propose(("a",)), edges.intersect(("b",), ["b", "c"])
    (2, ['b', 'c'], ['c'])
    """

    __slots__ = ("_trie", "_variables", "levels")

    levels: tuple[int, ...]

    def __init__(self, relation: Mapping[Row, int] | Iterable[Row], levels: Sequence[int]) -> None:
        weights: Mapping[Row, int] = (
            relation if isinstance(relation, Mapping) else Counter(relation)
        )
        self._variables = tuple(sorted(set(levels)))
        self.levels = self._variables or (0,)
        columns = [levels.index(level) for level in self._variables]
        # Pairs of columns of one level: the first one, and a later one.
        repeats = [
            (levels.index(level), column)
            for column, level in enumerate(levels)
            if levels.index(level) != column
        ]
        # The weights of the rows, with one column for each level.
        weight_by_values: dict[Row, int] = {}
        for row, weight in weights.items():
            if len(row) != len(levels):
                raise ArityError(
                    f"row {row!r} has {len(row)} values for {len(levels)} columns; give one each"
                )
            integer = _to_integer(weight, row)
            if integer and all(row[first] == row[repeated] for first, repeated in repeats):
                weight_by_values[tuple(row[column] for column in columns)] = integer
        self._trie = _trie(weight_by_values, self._variables)

    @classmethod
    def for_atom(cls, atom: Atom, relation: Mapping[Row, int], order: Sequence[str]) -> Self:
        """Build the extender of an atom from the rows that match its constants.

        Args:
            atom: Relation name and terms.
            relation: Weight by row, in the column order of the terms.
            order: Variable order of the join.

        Raises:
            ArityError: A row has another arity than the atom.
            VariableOrderError: A variable of the atom is not in ``order``.
            WeightError: A weight is not an integer.
            ColumnTypeError: The values of a level have no order.

        Complexity:
            O(n log n) for n rows.

        >>> from dbsp_wcoj.query import Query
        >>> atom = Query.parse("q(x) :- r(x, 7, x)").body[0]
        >>> relation = {(1, 7, 1): 2, (1, 8, 1): 5, (2, 7, 3): 9}
        >>> extender = RelationExtender.for_atom(atom, relation, ["w", "x"])
        >>> extender.levels, extender.propose((0,)), extender.weight((0, 1))
        ((1,), [1], 2)
        """
        missing = [name for name in atom.variables if name not in order]
        if missing:
            raise VariableOrderError(
                f"variables {missing} of '{atom}' are not in the order {list(order)}; add them"
            )
        levels: list[int] = []
        columns: list[int] = []
        fixed: list[tuple[int, Any]] = []
        for column, term in enumerate(atom.terms):
            if isinstance(term, Variable):
                levels.append(order.index(term.name))
                columns.append(column)
            elif isinstance(term, Constant):
                fixed.append((column, term.value))
        rows: dict[Row, int] = {}
        for row, weight in relation.items():
            if len(row) != atom.arity:
                raise ArityError(
                    f"row {row!r} has {len(row)} values, but '{atom}' has arity {atom.arity}; "
                    f"give rows of that arity"
                )
            if all(row[column] == value for column, value in fixed):
                rows[tuple(row[column] for column in columns)] = weight
        return cls(rows, levels)

    def participates(self, level: int) -> bool:
        """Return whether a column has this level."""
        return level in self.levels

    def count(self, prefix: Prefix) -> float:
        """The number of distinct values that `propose` returns.

        Complexity:
            O(len(prefix)).
        """
        node = self._node(prefix)
        if self._variables:
            return len(node)
        return math.inf if node else 0

    def propose(self, prefix: Prefix) -> list[Any]:
        """The values at the next level below ``prefix``, ascending.

        Raises:
            UnsafeVariableError: The relation has no variables, so it can only intersect.

        Complexity:
            O(len(prefix) + extensions).
        """
        node = self._node(prefix)
        if node and not self._variables:
            raise UnsafeVariableError(
                f"level {len(prefix)} meets only an atom without variables; bind it in an atom"
            )
        return list(node) if node else []

    def intersect(self, prefix: Prefix, extensions: Sequence[Any]) -> list[Any]:
        """The extensions that are below ``prefix``, in their order.

        Complexity:
            O(len(prefix) + len(extensions)).
        """
        node = self._node(prefix)
        if self._variables:
            return [extension for extension in extensions if extension in node]
        return list(extensions) if node else []

    def weight(self, row: Prefix) -> int:
        """The weight of the relation's row within a row over the whole variable order; 0 if absent.

        Complexity:
            O(arity).

        >>> RelationExtender({("b", "a"): -2}, [2, 0]).weight(("a", "x", "b"))
        -2
        """
        return int(self._node(row) or 0)

    def _node(self, prefix: Prefix) -> Any:
        """The sub-trie below the columns that ``prefix`` binds; a weight below the last one."""
        node = self._trie
        for level in self._variables:
            if level >= len(prefix):
                break
            node = node.get(prefix[level])
            if node is None:
                return {}
        return node

    def _check(self) -> None:
        """Assert that depths ascend, no sub-trie is empty, and weights are non-zero integers."""

        def check(node: Any, depth: int) -> None:
            if depth == 0:
                assert type(node) is int and node != 0
                return
            assert list(node) == sorted(node) and len(node) > 0
            for child in node.values():
                check(child, depth - 1)

        if self._trie:
            check(self._trie, len(self._variables))


def _to_integer(weight: Any, row: Row) -> int:
    try:
        return index(weight)
    except TypeError:
        raise WeightError(
            f"weight {weight!r} of row {row!r} is not an integer; weights are integers"
        ) from None


def _trie(weights: Mapping[Row, int], levels: Sequence[int]) -> Any:
    """Return the trie of rows: sorted dictionaries, nested once per level, of the weights.

    Without levels, the trie is the weight of the empty row.
    """
    if not levels:
        return weights.get((), 0)
    children: defaultdict[Any, dict[Row, int]] = defaultdict(dict)
    for (value, *later_values), weight in weights.items():
        children[value][tuple(later_values)] = weight
    try:
        return SortedDict((value, _trie(rows, levels[1:])) for value, rows in children.items())
    except TypeError as error:
        raise ColumnTypeError(
            f"level {levels[0]} holds values without an order: {error}; use one type per column"
        ) from None
