"""Writes the LSQB queries as joins of atoms, for peers whose input is joins and not SQL.

The count of a query is a sum of joins with signs. An antijoin is the join without the negated atom,
minus the join with it, because all rows of a relation are distinct. The delta of a count is the sum
of the deltas of its joins, with one term for each atom. q7 is left out: its outer join counts a
message without replies once, which no sum of joins does.

The order of atoms suits a left-deep plan: each atom shares a variable with the atoms before it, and
selective atoms come early. Columns are named by their positions. Like `pattern`, this module
imports neither numba nor pyarrow.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

Atom = tuple[str, tuple[str, ...]]

# For each view the relations that it is the union of, and whether their two columns are swapped.
PARTS: Final[dict[str, tuple[tuple[str, bool], ...]]] = {
    "knows": (("Person_knows_Person", False), ("Person_knows_Person", True)),
    "Message_hasTag_Tag": (("Post_hasTag_Tag", False), ("Comment_hasTag_Tag", False)),
    "Message_hasCreator_Person": (
        ("Post_hasCreator_Person", False),
        ("Comment_hasCreator_Person", False),
    ),
    "Comment_replyOf_Message": (
        ("Comment_replyOf_Post", False),
        ("Comment_replyOf_Comment", False),
    ),
    "Person_likes_Message": (("Person_likes_Post", False), ("Person_likes_Comment", False)),
}


@dataclass(frozen=True)
class Conjunction:
    """A join: its atoms, pairs of variables that must differ, and the sign of its count in the sum.

    >>> q6 = JOINS["q6"][0]
    >>> q6.sql(["o", "d", "n"])[:45]
    'FROM o_knows t0, d_knows t1, n_Person_hasInte'
    """

    atoms: tuple[Atom, ...]
    unequal: tuple[tuple[str, str], ...] = ()
    sign: int = 1

    def sql(self, states: Sequence[str]) -> str:
        """Return FROM and WHERE over tables with columns a, b, as ``t0``, ``t1``, ...

        Args:
            states: For each atom the prefix of its table: ``o`` (old), ``d`` (delta), ``n`` (new).
        """
        first: dict[str, str] = {}
        conditions: list[str] = []
        for position, (_, variables) in enumerate(self.atoms):
            for variable, column in zip(variables, "ab", strict=False):
                cell = f"t{position}.{column}"
                if variable in first:
                    conditions.append(f"{cell} = {first[variable]}")
                first.setdefault(variable, cell)
        conditions += [f"{first[x]} <> {first[y]}" for x, y in self.unequal]
        tables = (
            f"{state}_{relation} t{i}"
            for i, (state, (relation, _)) in enumerate(zip(states, self.atoms, strict=True))
        )
        return f"FROM {', '.join(tables)} WHERE {' AND '.join(conditions)}"


_Q5: Final = (
    ("Comment_replyOf_Message", ("c", "m")),
    ("Comment_hasTag_Tag", ("c", "u")),
    ("Message_hasTag_Tag", ("m", "t")),
)
_Q6: Final = (
    ("knows", ("a", "b")),
    ("knows", ("b", "c")),
    ("Person_hasInterest_Tag", ("c", "t")),
)

JOINS: Final[dict[str, tuple[Conjunction, ...]]] = {
    "q1": (
        Conjunction(
            (
                ("Comment_replyOf_Post", ("c", "p")),
                ("Forum_containerOf_Post", ("f", "p")),
                ("Forum", ("f",)),
                ("Comment_hasTag_Tag", ("c", "t")),
                ("Tag_hasType_TagClass", ("t", "k")),
                ("Forum_hasMember_Person", ("f", "a")),
                ("Person_isLocatedIn_City", ("a", "i")),
                ("City_isPartOf_Country", ("i", "l")),
            )
        ),
    ),
    "q2": (
        Conjunction(
            (
                ("Comment_replyOf_Post", ("c", "p")),
                ("Comment_hasCreator_Person", ("c", "a")),
                ("Post_hasCreator_Person", ("p", "b")),
                ("knows", ("a", "b")),
            )
        ),
    ),
    "q3": (
        Conjunction(
            (
                ("knows", ("a", "b")),
                ("Person_isLocatedIn_City", ("a", "i")),
                ("Person_isLocatedIn_City", ("b", "j")),
                ("City_isPartOf_Country", ("i", "l")),
                ("City_isPartOf_Country", ("j", "l")),
                ("knows", ("b", "c")),
                ("knows", ("c", "a")),
                ("Person_isLocatedIn_City", ("c", "k")),
                ("City_isPartOf_Country", ("k", "l")),
            )
        ),
    ),
    "q4": (
        Conjunction(
            (
                ("Person_likes_Message", ("l", "m")),
                ("Message_hasCreator_Person", ("m", "a")),
                ("Message_hasTag_Tag", ("m", "t")),
                ("Comment_replyOf_Message", ("c", "m")),
            )
        ),
    ),
    "q5": (Conjunction(_Q5, (("t", "u"),)),),
    "q6": (Conjunction(_Q6, (("a", "c"),)),),
    "q8": (
        Conjunction(_Q5, (("t", "u"),)),
        Conjunction((*_Q5, ("Comment_hasTag_Tag", ("c", "t"))), (("t", "u"),), -1),
    ),
    "q9": (
        Conjunction(_Q6, (("a", "c"),)),
        Conjunction((*_Q6[:2], ("knows", ("a", "c")), _Q6[2]), (("a", "c"),), -1),
    ),
}


def union_parts(relation: str) -> tuple[tuple[str, bool], ...]:
    """Return an entry of `PARTS`; a relation that is no view is its own only part."""
    return PARTS.get(relation, ((relation, False),))


def delta_sql(query: str, changed: Collection[str]) -> str:
    """Return SQL for the change of the count: the terms of the collapsed formula.

    Tables are prefixed ``o`` (old), ``d`` (delta) and ``n`` (new), and have a weight ``w``. Terms
    of relations without changed rows are left out.

    >>> delta_sql("q6", {"Person_hasInterest_Tag"}).count("UNION ALL")
    0
    """
    terms = list(_terms(query, changed)) or ["SELECT 0 AS w"]
    return f"SELECT sum(w) FROM ({' UNION ALL '.join(terms)})"


def _terms(query: str, changed: Collection[str]) -> Iterator[str]:
    for join in JOINS[query]:
        size = len(join.atoms)
        weight = " * ".join(f"t{i}.w" for i in range(size))
        for position, (relation, _) in enumerate(join.atoms):
            if any(part in changed for part, _ in union_parts(relation)):
                states = ["o"] * position + ["d"] + ["n"] * (size - position - 1)
                yield f"SELECT coalesce(sum({weight}), 0) * {join.sign} AS w {join.sql(states)}"
