"""Random choices, columns in scope, and texts that differ between the engine and its oracle."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

Item = TypeVar("Item")

#: Kinds of values that can be compared, grouped and ordered. The others are ``approx`` (a float
#: that the engines round differently, or a value of any type) and ``interval``.
KINDS = ("int", "real", "decimal", "text", "bool", "date", "ts", "list", "struct", "map")


class Column(NamedTuple):
    """A column in scope: its text, such as ``q1.a``, and the kind of its values."""

    text: str
    kind: str


class Query(NamedTuple):
    """A query with the columns c0, c1, ... of these kinds."""

    text: str
    kinds: tuple[str, ...]

    @property
    def is_exact(self) -> bool:
        """Return whether its rows can be compared for equality."""
        return all(kind in KINDS for kind in self.kinds)


@dataclass
class Choices:
    """Draws choices from a seed, and counts the constructs that are used.

    Attributes:
        rng: The source of all choices.
        dialect: ``duckdb`` or ``spark``.
        tables: The kinds of the columns of each table and view.
        aliases: The number of aliases that are used so far.
        used: How often each construct occurs.
        outer: The columns of enclosing queries that a subquery may name.
        row_order: The window of functions that number the rows of the SELECT, once there is one.
    """

    rng: random.Random
    tables: dict[str, dict[str, str]]
    dialect: str = "duckdb"
    aliases: int = 0
    used: Counter[str] = field(default_factory=Counter)
    outer: list[Column] = field(default_factory=list)
    row_order: str = ""

    def chance(self, percent: int) -> bool:
        return self.rng.randrange(100) < percent

    def pick(self, options: Iterable[Item]) -> Item:
        return self.rng.choice(list(options))

    def integer(self, low: int, high: int) -> int:
        return self.rng.randint(low, high)

    def shuffled(self, items: Sequence[Item]) -> list[Item]:
        return self.rng.sample(items, len(items))

    def count(self, construct: str) -> None:
        self.used[construct] += 1

    def alias(self) -> str:
        self.aliases += 1
        return f"q{self.aliases}"

    def query(self, depth: int) -> Query:
        """Write a query; implemented in `tests.generators.sql.queries`."""
        raise NotImplementedError

    def value_query(self, kind: str, scope: Sequence[Column]) -> str | None:
        """Write a scalar subquery of a kind; implemented in `tests.generators.sql.queries`."""
        raise NotImplementedError

    def exists(self, scope: Sequence[Column], depth: int) -> str:
        """Write a condition with a subquery; implemented in `tests.generators.sql.queries`."""
        raise NotImplementedError


def differ(engine: str, oracle: str) -> str:
    """Return a text that is one for the engine, and another for its oracle."""
    return f"⟦{engine}¦{oracle}⟧"


def choose(text: str, side: int) -> str:
    """Return the engine's text (side 0) or the oracle's (side 1)."""
    innermost = re.compile("⟦([^⟦⟧¦]*)¦([^⟦⟧¦]*)⟧")
    while "⟦" in text:
        text = innermost.sub(lambda match: match[side + 1], text)
    return text
