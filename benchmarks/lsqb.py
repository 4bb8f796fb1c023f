"""The nine queries of LSQB over a social network, as SQL views over its relations.

The texts follow the Labelled Subgraph Query Benchmark of the Linked Data Benchmark Council. Each
relation has a file. `knows` is used in both directions, and a message is a post or a comment, so
views over the files define these relations. The figures on a sample of the network are not an LDBC
benchmark result.

A step names its rows by row numbers that count through all relations, one relation after the other.
So a step changes the relations in proportion to their sizes, and is the same in every system.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

Relations = Mapping[str, pa.Table]
Step = tuple[int, dict[str, pa.Table]]  # weight 1 inserts the rows, -1 deletes them

VIEWS: Final = {
    "knows": """
        SELECT person1, person2 FROM Person_knows_Person
        UNION ALL
        SELECT person2, person1 FROM Person_knows_Person""",
    "Message_hasTag_Tag": """
        SELECT post AS message, tag FROM Post_hasTag_Tag
        UNION ALL
        SELECT comment, tag FROM Comment_hasTag_Tag""",
    "Message_hasCreator_Person": """
        SELECT post AS message, person FROM Post_hasCreator_Person
        UNION ALL
        SELECT comment, person FROM Comment_hasCreator_Person""",
    "Comment_replyOf_Message": """
        SELECT comment, post AS message FROM Comment_replyOf_Post
        UNION ALL
        SELECT comment, parent FROM Comment_replyOf_Comment""",
    "Person_likes_Message": """
        SELECT person, post AS message FROM Person_likes_Post
        UNION ALL
        SELECT person, comment FROM Person_likes_Comment""",
}

QUERIES: Final = {
    "q1": """
        SELECT count(*) AS n
        FROM City_isPartOf_Country AS city
        JOIN Person_isLocatedIn_City AS person ON person.city = city.city
        JOIN Forum_hasMember_Person AS member ON member.person = person.person
        JOIN Forum ON Forum.forum = member.forum
        JOIN Forum_containerOf_Post AS post ON post.forum = Forum.forum
        JOIN Comment_replyOf_Post AS comment ON comment.post = post.post
        JOIN Comment_hasTag_Tag AS tagged ON tagged.comment = comment.comment
        JOIN Tag_hasType_TagClass AS tag ON tag.tag = tagged.tag""",
    "q2": """
        SELECT count(*) AS n
        FROM knows
        JOIN Comment_hasCreator_Person AS writer ON writer.person = knows.person1
        JOIN Comment_replyOf_Post AS reply ON reply.comment = writer.comment
        JOIN Post_hasCreator_Person AS poster
          ON poster.person = knows.person2 AND poster.post = reply.post""",
    "q3": """
        SELECT count(*) AS n
        FROM City_isPartOf_Country AS city_a
        JOIN City_isPartOf_Country AS city_b ON city_b.country = city_a.country
        JOIN City_isPartOf_Country AS city_c ON city_c.country = city_a.country
        JOIN Person_isLocatedIn_City AS a ON a.city = city_a.city
        JOIN Person_isLocatedIn_City AS b ON b.city = city_b.city
        JOIN Person_isLocatedIn_City AS c ON c.city = city_c.city
        JOIN knows AS ab ON ab.person1 = a.person AND ab.person2 = b.person
        JOIN knows AS bc ON bc.person1 = b.person AND bc.person2 = c.person
        JOIN knows AS ca ON ca.person1 = c.person AND ca.person2 = a.person""",
    "q4": """
        SELECT count(*) AS n
        FROM Message_hasTag_Tag AS tagged
        JOIN Message_hasCreator_Person AS writer ON writer.message = tagged.message
        JOIN Comment_replyOf_Message AS reply ON reply.message = tagged.message
        JOIN Person_likes_Message AS likes ON likes.message = tagged.message""",
    "q5": """
        SELECT count(*) AS n
        FROM Message_hasTag_Tag AS tagged
        JOIN Comment_replyOf_Message AS reply ON reply.message = tagged.message
        JOIN Comment_hasTag_Tag AS other ON other.comment = reply.comment
        WHERE tagged.tag <> other.tag""",
    "q6": """
        SELECT count(*) AS n
        FROM knows AS near
        JOIN knows AS far ON far.person1 = near.person2 AND far.person2 <> near.person1
        JOIN Person_hasInterest_Tag AS interest ON interest.person = far.person2""",
    "q7": """
        SELECT count(*) AS n
        FROM Message_hasTag_Tag AS tagged
        JOIN Message_hasCreator_Person AS writer ON writer.message = tagged.message
        LEFT JOIN Comment_replyOf_Message AS reply ON reply.message = tagged.message
        LEFT JOIN Person_likes_Message AS likes ON likes.message = tagged.message""",
    "q8": """
        SELECT count(*) AS n
        FROM Message_hasTag_Tag AS tagged
        JOIN Comment_replyOf_Message AS reply ON reply.message = tagged.message
        JOIN Comment_hasTag_Tag AS other ON other.comment = reply.comment
        LEFT JOIN Comment_hasTag_Tag AS same
          ON same.comment = reply.comment AND same.tag = tagged.tag
        WHERE tagged.tag <> other.tag AND same.tag IS NULL""",
    "q9": """
        SELECT count(*) AS n
        FROM knows AS near
        JOIN knows AS far ON far.person1 = near.person2 AND far.person2 <> near.person1
        JOIN Person_hasInterest_Tag AS interest ON interest.person = far.person2
        LEFT JOIN knows AS direct
          ON direct.person1 = near.person1 AND direct.person2 = far.person2
        WHERE direct.person1 IS NULL""",
}

# The published answers on the sample network.
ANSWERS: Final = {
    "q1": 1_807_953,
    "q2": 33_671,
    "q3": 7_536,
    "q4": 296_431,
    "q5": 452_762,
    "q6": 13_271_670,
    "q7": 612_689,
    "q8": 227_688,
    "q9": 11_803_138,
}


@dataclass(frozen=True)
class Network:
    """A social network: its relations, the queries that they answer, and published answers."""

    name: str
    relations: dict[str, pa.Table]
    queries: tuple[str, ...]
    answers: Mapping[str, int]


def load_network(folder: Path | None, *, people: int, seed: int) -> Network:
    """Read the network in the folder; without a folder, generate one of ``people`` people."""
    if folder is not None and folder.is_dir():
        return Network("LSQB sample", load(folder), tuple(QUERIES), ANSWERS)
    name = f"{people:,} generated people"
    return Network(name, generate_network(people, seed), ("q3", "q6", "q9"), {})


def load(folder: Path) -> dict[str, pa.Table]:
    """Read the relations, named after their Parquet files."""
    return {path.stem: pq.read_table(path) for path in sorted(folder.glob("*.parquet"))}


def generate_network(people: int, seed: int) -> dict[str, pa.Table]:
    """Generate a small network for q3, q6 and q9, used where the sample is missing."""
    random = np.random.default_rng(seed)
    cities = np.arange(people // 10 + 1)
    person = np.arange(people)
    first, second = random.integers(0, people, (2, 8 * people))
    knows = np.unique(np.stack([first, second], axis=1)[first < second], axis=0)
    interest = np.unique(random.integers(0, people, (10 * people, 2)), axis=0)
    return {
        "City_isPartOf_Country": pa.table({"city": cities, "country": cities % 4}),
        "Person_isLocatedIn_City": pa.table(
            {"person": person, "city": random.integers(0, len(cities), people)}
        ),
        "Person_knows_Person": pa.table({"person1": knows[:, 0], "person2": knows[:, 1]}),
        "Person_hasInterest_Tag": pa.table({"person": interest[:, 0], "tag": interest[:, 1]}),
    }


def view_statements(*queries: str) -> str:
    """Return CREATE VIEW statements of the views that the queries read, and of the queries.

    >>> view_statements("q6").splitlines()[0], view_statements("q6").count("CREATE VIEW")
    ('CREATE VIEW knows AS ', 2)
    """
    views = views_of(*queries) | {query: QUERIES[query] for query in queries}
    return "\n".join(f"CREATE VIEW {name} AS {text};" for name, text in views.items())


def views_of(*queries: str) -> dict[str, str]:
    """Return the views that the queries read, by name.

    >>> list(views_of("q6", "q1"))
    ['knows']
    """
    words = _words(QUERIES[query] for query in queries)
    return {name: text for name, text in VIEWS.items() if name in words}


def select_relations(relations: Relations, *queries: str) -> dict[str, pa.Table]:
    """Return the relations that the queries read."""
    words = _words([view_statements(*queries)])
    return {name: table for name, table in relations.items() if name in words}


def choose_rows(relations: Relations, rows: int, steps: int, seed: int) -> NDArray[np.int64]:
    """Draw ``rows`` row numbers for each step, none twice; fewer steps if there are not enough."""
    ends = _ends(relations)
    max_steps = int(ends[-1]) // rows
    row_numbers = np.random.default_rng(seed).permutation(ends[-1])
    return row_numbers[: min(steps, max_steps) * rows].reshape(-1, rows)


def take_rows(relations: Relations, row_numbers: NDArray[np.int64]) -> dict[str, pa.Table]:
    """Return the rows with these numbers, by relation.

    >>> take_rows({"e": pa.table({"a": [1, 2]}), "f": pa.table({"b": [3]})}, np.array([2]))["f"]
    pyarrow.Table
    b: int64
    ----
    b: [[3]]
    """
    names, ends = list(relations), _ends(relations)
    owners = np.searchsorted(ends, row_numbers, side="right")
    rows: dict[str, pa.Table] = {}
    for owner in np.unique(owners):
        table = relations[names[owner]]
        first = ends[owner] - table.num_rows
        rows[names[owner]] = table.take(row_numbers[owners == owner] - first)
    return rows


def alternate_changes(relations: Relations, row_numbers: NDArray[np.int64]) -> Iterator[Step]:
    """Yield steps that delete and insert in turn; each delete is undone after the next one.

    >>> table = {"e": pa.table({"a": [1, 2, 3]})}
    >>> steps = alternate_changes(table, np.array([[0], [2]]))
    >>> [(weight, rows["e"]["a"].to_pylist()) for weight, rows in steps]
    [(-1, [1]), (-1, [3]), (1, [1]), (1, [3])]
    """
    steps = [take_rows(relations, numbers) for numbers in row_numbers]
    for rows, previous_rows in zip(steps, [None, *steps], strict=False):
        yield -1, rows
        if previous_rows is not None:
            yield 1, previous_rows
    if steps:
        yield 1, steps[-1]


def _ends(relations: Relations) -> NDArray[np.int64]:
    """Return where the row numbers of each relation end."""
    return np.cumsum([table.num_rows for table in relations.values()])


def _words(texts: Iterable[str]) -> set[str]:
    return {word for text in texts for word in re.findall(r"\w+", text)}
