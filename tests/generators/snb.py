"""Rows of the schema of the LDBC Social Network Benchmark, and parameters of its queries.

The network is small and seeded. Its numbers are not those of the benchmark: the aim is that every
join of `tests.generators.snb_queries` has partners, that some rows have none, and that values tie.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["parameters", "social_network"]

_DAY: Final = 24 * 3600 * 1_000_000
_FIRST_DAY: Final = 14_610  # 2010-01-01, in days since 1970
_DAY_COUNT: Final = 1000
_ID: Final = pa.int64()
_TEXT: Final = pa.string()
_TIME: Final = pa.timestamp("us")

Integers = npt.NDArray[np.int64]


def social_network(seed: int, persons: int = 40) -> dict[str, pa.Table]:
    """Return the rows of each table of a network with this number of persons."""
    return _Network(seed, persons).tables


class _Network:
    def __init__(self, seed: int, persons: int) -> None:
        self._random = np.random.default_rng(seed)
        self.tables: dict[str, pa.Table] = {}
        self._persons = 100 + np.arange(persons) * 3
        self._add_places()
        self._add_tags()
        self._add_people()
        self._add_messages()

    def _choose(self, values: Integers, count: int, skew: float = 2.0) -> Integers:
        """Return values, the first of them more often."""
        return values[(self._random.random(count) ** skew * len(values)).astype(np.int64)]

    def _names(self, prefix: str, count: int) -> list[str]:
        return [f"{prefix}_{number}" for number in range(count)]

    def _times(self, count: int) -> pa.Array:
        days = _FIRST_DAY + self._random.random(count) * _DAY_COUNT
        minutes = (days * 24 * 60).astype(np.int64)
        return pa.array(minutes * 60 * 1_000_000, _TIME)

    def _with_nulls(self, values: Integers, share: float) -> pa.Array:
        return pa.array(values, mask=self._random.random(len(values)) < share)

    def _pairs(self, left: Integers, right: Integers, count: int) -> tuple[Integers, Integers]:
        """Return distinct pairs, at most this number."""
        pairs = np.stack([self._choose(left, count, 1.5), self._choose(right, count)], axis=1)
        distinct = np.unique(pairs, axis=0)
        return distinct[:, 0], distinct[:, 1]

    def _add_places(self) -> None:
        countries, cities = np.arange(5), 10 + np.arange(12)
        self.tables["Country"] = pa.table({"id": countries, "name": self._names("Country", 5)})
        self.tables["City"] = pa.table(
            {
                "id": cities,
                "name": self._names("City", 12),
                "PartOfCountryId": self._choose(countries, 12),
            }
        )
        companies, universities = np.arange(8), np.arange(4)
        self.tables["Company"] = pa.table(
            {
                "id": companies,
                "name": self._names("Company", 8),
                "LocationPlaceId": self._choose(countries, 8),
            }
        )
        self.tables["University"] = pa.table(
            {
                "id": universities,
                "name": self._names("University", 4),
                "LocationPlaceId": self._choose(cities, 4),
            }
        )

    def _add_tags(self) -> None:
        classes, tags = np.arange(6), np.arange(20)
        parents = pa.array([None, *(int(self._random.integers(0, n)) for n in range(1, 6))], _ID)
        self.tables["TagClass"] = pa.table(
            {"id": classes, "name": self._names("Class", 6), "SubclassOfTagClassId": parents}
        )
        self.tables["Tag"] = pa.table(
            {
                "id": tags,
                "name": self._names("Tag", 20),
                "TypeTagClassId": self._choose(classes, 20),
            }
        )

    def _add_people(self) -> None:
        persons, count = self._persons, len(self._persons)
        cities = self.tables["City"]["id"].to_numpy()
        birthdays = self._random.integers(4000, 9000, count).astype(np.int32)
        self.tables["Person"] = pa.table(
            {
                "id": persons,
                "creationDate": self._times(count),
                "firstName": [f"First_{n}" for n in self._random.integers(0, 5, count)],
                "lastName": [f"Last_{n}" for n in self._random.integers(0, 9, count)],
                "gender": self._random.choice(["female", "male"], count),
                "birthday": pa.array(birthdays, pa.date32()),
                "LocationCityId": self._choose(cities, count, 1.3),
            }
        )
        a, b = self._pairs(persons, persons, count * 4)
        known = np.unique(np.stack([np.minimum(a, b), np.maximum(a, b)], axis=1)[a != b], axis=0)
        self.tables["Person_knows_Person"] = pa.table(
            {
                "Person1Id": known[:, 0],
                "Person2Id": known[:, 1],
                "creationDate": self._times(len(known)),
            }
        )
        tags = self.tables["Tag"]["id"].to_numpy()
        self._add_edge("Person_hasInterest_Tag", ("PersonId", persons), ("TagId", tags), count * 4)
        universities, companies = (
            self.tables[name]["id"].to_numpy() for name in ("University", "Company")
        )
        for name, target, ids, year in (
            ("Person_studyAt_University", "UniversityId", universities, "classYear"),
            ("Person_workAt_Company", "CompanyId", companies, "workFrom"),
        ):
            person, place = self._pairs(persons, ids, count * 2)
            years = self._random.integers(1990, 2012, len(person))
            self.tables[name] = pa.table({"PersonId": person, target: place, year: years})

    def _add_messages(self) -> None:
        persons, count = self._persons, len(self._persons)
        forums = 1000 + np.arange(count // 3)
        self.tables["Forum"] = pa.table(
            {
                "id": forums,
                "title": [f"Forum {n % 7}" for n in range(len(forums))],
                "creationDate": self._times(len(forums)),
                "ModeratorPersonId": self._with_nulls(self._choose(persons, len(forums)), 0.1),
            }
        )
        forum, member = self._pairs(forums, persons, count * 8)
        self.tables["Forum_hasMember_Person"] = pa.table(
            {"ForumId": forum, "PersonId": member, "creationDate": self._times(len(forum))}
        )
        posts = 10_000 + np.arange(count * 4)
        self.tables["Post"] = self._message_columns(posts).append_column(
            "ContainerForumId", pa.array(self._choose(forums, len(posts)))
        )
        with_image = self._random.random(len(posts)) < 0.2
        images = pa.array([f"photo{n}.jpg" for n in posts], mask=~with_image)
        contents = pa.array(self.tables["Post"]["content"].to_pylist(), _TEXT, mask=with_image)
        languages = pa.array(self._random.choice(["ar", "hu", "uz"], len(posts)), mask=with_image)
        self.tables["Post"] = (
            self.tables["Post"]
            .drop_columns("content")
            .append_column("content", contents)
            .append_column("imageFile", images)
            .append_column("language", languages)
        )
        comments = 20_000 + np.arange(count * 8)
        is_deep = np.arange(len(comments)) >= len(comments) // 2
        deep = comments[: len(comments) // 2]
        self.tables["Comment"] = (
            self._message_columns(comments)
            .append_column(
                "ParentPostId", pa.array(self._choose(posts, len(comments)), mask=is_deep)
            )
            .append_column(
                "ParentCommentId", pa.array(self._choose(deep, len(comments)), mask=~is_deep)
            )
        )
        tags = self.tables["Tag"]["id"].to_numpy()
        self._add_edge("Post_hasTag_Tag", ("PostId", posts), ("TagId", tags), len(posts) * 2)
        self._add_edge(
            "Comment_hasTag_Tag", ("CommentId", comments), ("TagId", tags), len(comments) * 2
        )
        for name, ids in (("Post", posts), ("Comment", comments)):
            person, message = self._pairs(persons, ids, len(ids) * 2)
            self.tables[f"Person_likes_{name}"] = pa.table(
                {
                    "PersonId": person,
                    f"{name}Id": message,
                    "creationDate": self._times(len(person)),
                }
            )

    def _message_columns(self, ids: Integers) -> pa.Table:
        lengths = self._random.choice([5, 39, 40, 79, 100, 160, 170], len(ids))
        countries = self.tables["Country"]["id"].to_numpy()
        return pa.table(
            {
                "id": ids,
                "creationDate": self._times(len(ids)),
                "content": [f"text {n}" for n in ids],
                "length": lengths,
                "CreatorPersonId": self._choose(self._persons, len(ids)),
                "LocationCountryId": self._choose(countries, len(ids)),
            }
        )

    def _add_edge(
        self, name: str, left: tuple[str, Integers], right: tuple[str, Integers], count: int
    ) -> None:
        a, b = self._pairs(left[1], right[1], count)
        self.tables[name] = pa.table({left[0]: a, right[0]: b})


def parameters(tables: Mapping[str, pa.Table], seed: int) -> dict[str, str]:
    """Return literals for the parameters of the queries: seeded, of values that are frequent."""
    random = np.random.default_rng(seed)
    names = {
        table: dict(zip(tables[table]["id"].to_pylist(), tables[table]["name"].to_pylist(),
                        strict=True))
        for table in ("City", "Company", "Country", "Tag", "TagClass")
    }  # fmt: skip

    def choose_two(table: str, column: str) -> list[int]:
        """Return two of the four most frequent values."""
        counts = tables[table][column].value_counts().to_pylist()
        counts.sort(key=lambda entry: (-entry["counts"], entry["values"]))
        return [int(counts[place]["values"]) for place in random.permutation(4)[:2]]

    def quote(table: str, number: int) -> str:
        return f"'{names[table][number]}'"

    person = choose_two("Person_knows_Person", "Person1Id")[0]
    friends = tables["Person_knows_Person"]["Person2Id"].to_pylist()
    others = sorted(set(friends) - {person})
    country, other_country = choose_two("City", "PartOfCountryId")
    city, other_city = choose_two("Person", "LocationCityId")
    tag, other_tag = choose_two("Comment_hasTag_Tag", "TagId")
    return {
        "person": str(person),
        "other_person": str(random.choice(others)),
        "country": quote("Country", country),
        "other_country": quote("Country", other_country),
        "city": str(city),
        "other_city": str(other_city),
        "tag": quote("Tag", tag),
        "other_tag": quote("Tag", other_tag),
        "tag_class": quote("TagClass", choose_two("Tag", "TypeTagClassId")[0]),
        "company": quote("Company", choose_two("Person_workAt_Company", "CompanyId")[0]),
        "first_name": f"'First_{random.integers(0, 5)}'",
        "date": "TIMESTAMP '2010-03-01 00:00:00'",
        "end_date": "TIMESTAMP '2012-06-01 00:00:00'",
        "day": "DATE '2010-03-01'",
        "end_day": "DATE '2011-06-01'",
        "languages": "('ar', 'hu')",
        "length": "120",
        "month": str(random.integers(1, 13)),
        "year": "2008",
    }
