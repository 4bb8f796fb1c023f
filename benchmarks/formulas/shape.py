"""Writes the queries on which the formulas are compared.

::

    star     e1(x, y1), e2(x, y2), … en(x, yn)
    path     e1(v0, v1), e2(v1, v2), … en(vn-1, vn)
    cycle    the path, closed: vn is v0
    clique   an atom for each pair of k variables: n = 3, 6, 10 for k = 3, 4, 5

A query counts its rows, so its head is empty. With " listed" after the shape it lists them, and all
variables are in its head. In a self-join all atoms are of the relation ``e``.
"""

from __future__ import annotations

from itertools import combinations

__all__ = ["SHAPES", "atoms_of", "query_text"]

SHAPES = ("star", "path", "cycle", "clique")
LISTED = " listed"


def atoms_of(shape: str, n: int) -> list[tuple[str, str]]:
    """Return the two variables of each of the ``n`` atoms.

    >>> atoms_of("cycle", 3), atoms_of("clique", 3)
    ([('a', 'b'), ('b', 'c'), ('c', 'a')], [('a', 'b'), ('a', 'c'), ('b', 'c')])
    """
    names = "abcdefghijk"
    match shape.removesuffix(LISTED):
        case "star":
            return [("x", names[i]) for i in range(n)]
        case "path":
            return [(names[i], names[i + 1]) for i in range(n)]
        case "cycle":
            return [(names[i], names[(i + 1) % n]) for i in range(n)]
        case "clique":
            corners = next(k for k in range(2, 12) if k * (k - 1) // 2 >= n)
            return list(combinations(names[:corners], 2))[:n]
    raise ValueError(f"unknown shape {shape!r}; shapes: {', '.join(SHAPES)}")


def query_text(shape: str, n: int, *, selfjoin: bool) -> str:
    """Return the query; its relations are ``e1`` to ``en``, or ``e`` in a self-join.

    >>> query_text("path", 2, selfjoin=False)
    'n() :- e1(a, b), e2(b, c)'
    >>> query_text("path listed", 2, selfjoin=True)
    'q(a, b, c) :- e(a, b), e(b, c)'
    """
    pairs = atoms_of(shape, n)
    body = ", ".join(
        f"e{'' if selfjoin else i + 1}({left}, {right})" for i, (left, right) in enumerate(pairs)
    )
    if not shape.endswith(LISTED):
        return f"n() :- {body}"
    head = dict.fromkeys(name for pair in pairs for name in pair)
    return f"q({', '.join(head)}) :- {body}"
