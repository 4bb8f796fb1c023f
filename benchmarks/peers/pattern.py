"""The counted patterns: atoms over one relation of edges, and their texts in each peer's language.

A pattern is a list of atoms ``e(x, y)`` over distinct loop-free directed edges, with comparisons.
The order of its atoms suits a left-deep plan of binary joins: each atom shares a variable with the
atoms before it, and an atom whose variables are both bound comes as early as possible. So a system
that joins in the order of the text gets a good order. Systems that plan by themselves, as this
engine, Kùzu and DuckDB do, do not depend on it.

The deltas of the SQL peers are the terms of the collapsed formula,
``old_1 ... old_{i-1} d_i new_{i+1} ... new_n``, the same that the engine uses by default.

This module and `systems` import neither numba nor pyarrow: they also run in the environments of
their own that some peers need.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dbsp_wcoj.cached_property import cached_property

Atom = tuple[str, str]
Comparison = tuple[str, str, str]


@dataclass(frozen=True)
class Pattern:
    """Atoms and comparisons under a name; the answer is the number of rows.

    >>> TRIANGLES.datalog
    'n() :- e(a, b), e(b, c), e(a, c)'
    >>> TRIANGLES.sql(["o", "d", "n"])
    'FROM o t0, d t1, n t2 WHERE t1.src = t0.dst AND t2.src = t0.src AND t2.dst = t1.dst'
    """

    name: str
    atoms: tuple[Atom, ...]
    comparisons: tuple[Comparison, ...] = ()

    @property
    def datalog(self) -> str:
        """The query of this engine."""
        return f"n() :- {self.body}"

    @property
    def body(self) -> str:
        """Atoms and comparisons, as the tables show them."""
        atoms = [f"e({x}, {y})" for x, y in self.atoms]
        return ", ".join(atoms + [" ".join(comparison) for comparison in self.comparisons])

    @cached_property
    def variables(self) -> tuple[str, ...]:
        """The variables, in the order of their first occurrence."""
        return tuple(dict.fromkeys(variable for atom in self.atoms for variable in atom))

    def sql(self, relations: Sequence[str]) -> str:
        """Return FROM and WHERE; the atoms read ``relations`` as ``t0``, ``t1``, ..."""
        first: dict[str, str] = {}
        equalities: list[str] = []
        for position, atom in enumerate(self.atoms):
            for variable, column in zip(atom, ("src", "dst"), strict=True):
                cell = f"t{position}.{column}"
                if variable in first:
                    equalities.append(f"{cell} = {first[variable]}")
                else:
                    first[variable] = cell
        comparisons = [f"{first[x]} {_SQL[sign]} {first[y]}" for x, sign, y in self.comparisons]
        tables = ", ".join(f"{relation} t{i}" for i, relation in enumerate(relations))
        return f"FROM {tables} WHERE {' AND '.join(equalities + comparisons)}"

    @property
    def count_sql(self) -> str:
        """The SQL query that counts from scratch, over the table ``e``."""
        return f"SELECT count(*) {self.sql(['e'] * len(self.atoms))}"

    @property
    def delta_sql(self) -> str:
        """The SQL query of the change of the count, by the terms of the collapsed formula.

        It reads the tables ``o`` (old), ``d`` (delta) and ``n`` (new), with weights ``w``.
        """
        weight = " * ".join(f"t{i}.w" for i in range(len(self.atoms)))
        terms = [
            f"SELECT coalesce(sum({weight}), 0) AS w {self.sql(relations)}"
            for relations in self.terms
        ]
        return f"SELECT sum(w) FROM ({' UNION ALL '.join(terms)})"

    @property
    def terms(self) -> list[list[str]]:
        """For each delta term, the table that each atom reads: ``o``, ``d`` or ``n``."""
        size = len(self.atoms)
        return [["o"] * i + ["d"] + ["n"] * (size - i - 1) for i in range(size)]

    def order_from(self, start: int) -> list[int]:
        """Return the positions of the atoms: ``start``, then by the fewest new variables.

        >>> TRIANGLES.order_from(1)
        [1, 0, 2]
        """
        order, bound = [start], set(self.atoms[start])
        while len(order) < len(self.atoms):
            remaining = [i for i in range(len(self.atoms)) if i not in order]
            following = min(remaining, key=lambda i: (len(set(self.atoms[i]) - bound), i))
            order.append(following)
            bound |= set(self.atoms[following])
        return order

    def cypher(self, *, binary: bool) -> str:
        """Return a Cypher query of one MATCH; with ``binary`` of one MATCH for each atom.

        Several MATCH clauses make Kùzu join the atoms one after the other.

        >>> TRIANGLES.cypher(binary=False)
        'MATCH (a:N)-[:E]->(b:N), (b)-[:E]->(c:N), (a)-[:E]->(c) RETURN count(*)'
        """
        bound: list[str] = []
        parts: list[str] = []
        for x, y in self.atoms:
            ends = [variable if variable in bound else f"{variable}:N" for variable in (x, y)]
            bound += [variable for variable in (x, y) if variable not in bound]
            parts.append(f"({ends[0]})-[:E]->({ends[1]})")
            if binary:
                parts[-1] = f"MATCH {parts[-1]} WITH {', '.join(bound)}"
        condition = " AND ".join(f"{x}.id {_SQL[sign]} {y}.id" for x, sign, y in self.comparisons)
        text = " ".join(parts) if binary else f"MATCH {', '.join(parts)}"
        if binary:
            text = text.rpartition(" WITH ")[0]
        return f"{text}{f' WHERE {condition}' if condition else ''} RETURN count(*)"


_SQL = {"<": "<", "!=": "<>"}


def ring(length: int) -> Pattern:
    """Return the pattern of cycles over ``length`` different nodes.

    Each cycle is counted once, from its smallest node.

    >>> ring(4).body
    'e(a, b), e(b, c), e(c, d), e(d, a), a < b, a < c, a < d, b != d'
    """
    nodes = "abcdfg"[:length]  # `e` is the relation
    atoms = tuple((x, nodes[(i + 1) % length]) for i, x in enumerate(nodes))
    from_smallest = tuple(("a", "<", node) for node in nodes[1:])
    different = tuple(
        (x, "!=", y) for i, x in enumerate(nodes[1:]) for y in nodes[1:][i + 2 :]
    )  # neighbours differ already: no edge is a loop
    return Pattern(f"{length}-rings", atoms, from_smallest + different)


TRIANGLES = Pattern("triangles", (("a", "b"), ("b", "c"), ("a", "c")))
CLIQUES = Pattern(
    "4-cliques", (("a", "b"), ("b", "c"), ("a", "c"), ("a", "d"), ("b", "d"), ("c", "d"))
)
# Two paths from a to c over different middle nodes.
DIAMONDS = Pattern(
    "diamonds",
    (("a", "b"), ("b", "c"), ("a", "d"), ("d", "c")),
    (("b", "<", "d"), ("a", "!=", "c")),
)

PATTERNS = {
    pattern.name: pattern
    for pattern in (TRIANGLES, CLIQUES, DIAMONDS, *(ring(length) for length in (3, 4, 5, 6)))
}
