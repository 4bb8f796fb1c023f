"""Friend triangles per person, while friendships begin and end.

A triangle is three people who are all friends of each other. The number of triangles of a person
measures how closely the person's friends are connected. The data are from the karate club that
Wayne Zachary observed in the 1970s: 34 people and 78 friendships, until the instructor and the
president quarrelled and the club split in two.

::

    python examples/friend_triangles.py
"""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import pyarrow as pa

from circuits import Circuit, compile_sql

FRIENDS = """
    1-2 1-3 1-4 1-5 1-6 1-7 1-8 1-9 1-11 1-12 1-13 1-14 1-18 1-20 1-22 1-32 2-3 2-4 2-8 2-14 2-18
    2-20 2-22 2-31 3-4 3-8 3-9 3-10 3-14 3-28 3-29 3-33 4-8 4-13 4-14 5-7 5-11 6-7 6-11 6-17 7-17
    9-31 9-33 9-34 10-34 14-34 15-33 15-34 16-33 16-34 19-33 19-34 20-34 21-33 21-34 23-33 23-34
    24-26 24-28 24-30 24-33 24-34 25-26 25-28 25-32 26-32 27-30 27-34 28-34 29-32 29-34 30-33 30-34
    31-33 31-34 32-33 32-34 33-34
"""
INSTRUCTOR, PRESIDENT = 1, 34
WITH_THE_INSTRUCTOR = {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 17, 18, 20, 22}

VIEWS = """
    CREATE VIEW knows AS SELECT a, b FROM friends UNION ALL SELECT b, a FROM friends;

    CREATE VIEW triangles AS
        SELECT ab.a AS person, count(*) AS n
        FROM knows ab
        JOIN knows bc ON bc.a = ab.b
        JOIN knows ca ON ca.a = bc.b AND ca.b = ab.a
        WHERE ab.b < bc.b  -- count the other two people in one order only
        GROUP BY ab.a
"""

Pairs = set[tuple[int, int]]


def main() -> None:
    """Insert all friendships, delete those that the quarrel ends, and insert two new ones."""
    friends = pa.schema({"a": pa.int64(), "b": pa.int64()})
    circuit = compile_sql(VIEWS, {"friends": friends}, outputs=["triangles"], materialize=True)
    friendships: Pairs = {
        (int(a), int(b)) for a, b in (pair.split("-") for pair in FRIENDS.split())
    }
    ended = {
        (a, b) for a, b in friendships if (a in WITH_THE_INSTRUCTOR) != (b in WITH_THE_INSTRUCTOR)
    }

    print("The club, with all its friendships:")
    show(circuit, apply(circuit, friendships, 1), friendships)

    print(f"\nThe quarrel: {len(ended)} friendships between the two sides end.")
    show(circuit, apply(circuit, ended, -1), friendships - ended)

    print("\nPersons 3 and 9, who are friends, make peace with 33.")
    restored = {(3, 33), (9, 33)}
    show(circuit, apply(circuit, restored, 1), friendships - ended | restored)


def apply(circuit: Circuit, pairs: Pairs, weight: int) -> pa.Table:
    """Insert (weight 1) or delete (-1) friendships in one step; return the delta of the view."""
    a, b = zip(*sorted(pairs), strict=True)
    table = pa.table({"a": a, "b": b, "weight": [weight] * len(pairs)})
    return circuit.step({"friends": table})["triangles"]


def show(circuit: Circuit, delta: pa.Table, friends: Pairs) -> None:
    """Print the people in most triangles; compare the view with a count over all triples."""
    view = {row["person"]: row["n"] for row in circuit.views["triangles"].to_pylist()}
    for person, n in sorted(view.items(), key=lambda item: (-item[1], item[0]))[:4]:
        role = {INSTRUCTOR: "instructor", PRESIDENT: "president"}.get(person, "")
        print(f"  person {person:2}  {'▲' * n} {n} {role}".rstrip())
    changed_people = len({row["person"] for row in delta.to_pylist()})
    print(f"  {sum(view.values()) // 3} triangles in all; {changed_people} people's counts changed")

    expected: Counter[int] = Counter()
    for triple in combinations(range(1, 35), 3):
        if friends.issuperset(combinations(triple, 2)):
            expected.update(triple)
    assert view == expected, "the view differs from a count over all triples"


if __name__ == "__main__":
    main()
