"""LSQB: nine subgraph queries over a social network, as SQL views over its relations.

The texts are those of the Labelled Subgraph Query Benchmark, for relations that have a file each:
`knows` is used in both directions and a message is a post or a comment, both are views that the
queries read. LSQB is by the Linked Data Benchmark Council; what is measured here on a sample of
its network is no LDBC benchmark result.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

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


def load(folder: Path) -> dict[str, pa.Table]:
    """The relations, by the names of their Parquet files."""
    return {path.stem: pq.read_table(path) for path in sorted(folder.glob("*.parquet"))}


def generated(people: int, seed: int) -> dict[str, pa.Table]:
    """A small network for q3, q6 and q9, for where the sample is not; no claim is made on it."""
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


def statements(*queries: str) -> str:
    """The text that creates the views which these queries read, and then theirs.

    >>> statements("q6").splitlines()[0], statements("q6").count("CREATE VIEW")
    ('CREATE VIEW knows AS ', 2)
    """
    words = _words(QUERIES[query] for query in queries)
    views = {name: text for name, text in VIEWS.items() if name in words}
    views |= {query: QUERIES[query] for query in queries}
    return "\n".join(f"CREATE VIEW {name} AS {text};" for name, text in views.items())


def read_by(relations: Mapping[str, pa.Table], *queries: str) -> dict[str, pa.Table]:
    """Those of the relations that these queries read."""
    words = _words([statements(*queries)])
    return {name: table for name, table in relations.items() if name in words}


def _words(texts: Iterable[str]) -> set[str]:
    return {word for text in texts for word in re.findall(r"\w+", text)}
