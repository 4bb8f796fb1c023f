"""Random SQL over three small tables, made so that DuckDB and the circuit must agree.

Divisions, casts of texts and the like that can fail are left to the functions' own tests; a LIMIT
stands only below an ORDER BY of all columns, where the answer is unique.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

SCHEMAS = {
    "t": pa.schema([("a", pa.int64()), ("b", pa.int64()), ("s", pa.string())]),
    "u": pa.schema([("a", pa.int32()), ("x", pa.float64()), ("s", pa.string())]),
    "v": pa.schema([("b", pa.int64()), ("d", pa.date32()), ("p", pa.decimal128(10, 2))]),
}
KINDS = {
    "t": {"a": "int", "b": "int", "s": "text"},
    "u": {"a": "int", "x": "real", "s": "text"},
    "v": {"b": "int", "d": "date", "p": "decimal"},
}
LITERALS = {
    "int": ["0", "1", "2", "3"],
    "text": ["'x'", "'xy'", "'y'", "''"],
    "real": ["0.5", "1.5", "2"],
    "date": ["DATE '2020-01-01'", "DATE '2020-01-02'"],
    "decimal": ["1.50", "2", "0.25"],
    "bool": ["TRUE", "FALSE"],
}


@dataclass(frozen=True)
class Named:
    """A column in scope."""

    text: str
    kind: str


class Writer:
    """Writes one query by drawing choices."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.aliases = 0

    def chance(self, percent: int) -> bool:
        return self.draw(st.integers(0, 99)) < percent

    def pick(self, options: Any) -> Any:
        return self.draw(st.sampled_from(list(options)))

    def query(self, depth: int = 2, *, outer: tuple[Named, ...] = ()) -> tuple[str, list[str]]:
        """A query and the kinds of its columns, named c0, c1, ..."""
        if depth and self.chance(15):
            return self.set_operation(depth)
        text, kinds = self.select(depth, outer)
        if not outer and self.chance(12):
            order = ", ".join(
                f"c{i}{self.pick(['', ' DESC'])}{self.pick(['', '', ' NULLS FIRST'])}"
                for i in self.draw(st.permutations(range(len(kinds))))
            )
            offset = self.pick(["", "", " OFFSET 1"])
            limit = self.pick([1, 2, 3])
            return f"SELECT * FROM ({text}) AS l ORDER BY {order} LIMIT {limit}{offset}", kinds
        return text, kinds

    def set_operation(self, depth: int) -> tuple[str, list[str]]:
        left, kinds = self.select(depth - 1, ())
        table = self.pick(["t", "u", "v"])
        items = []
        for index, kind in enumerate(kinds):
            columns = [c for c, k in KINDS[table].items() if k == kind]
            items.append(f"{self.pick(columns) if columns else self.literal(kind)} AS c{index}")
        word = self.pick(
            ["UNION", "UNION ALL", "EXCEPT", "EXCEPT ALL", "INTERSECT", "INTERSECT ALL"]
        )
        right = f"SELECT {', '.join(items)} FROM {table}"
        return f"{left} {word} {right}", kinds

    def select(self, depth: int, outer: tuple[Named, ...]) -> tuple[str, list[str]]:
        source, scope = self.source(depth)
        where = ""
        if self.chance(60):
            where = f" WHERE {self.condition(scope, depth, outer)}"
        if self.chance(35):
            return self.grouped(source, where, scope)
        distinct = "DISTINCT " if self.chance(15) else ""
        kinds, items = [], []
        for index in range(self.draw(st.integers(1, 3))):
            text, kind = self.expression(scope)
            kinds.append(kind)
            items.append(f"{text} AS c{index}")
        return f"SELECT {distinct}{', '.join(items)} FROM {source}{where}", kinds

    def grouped(self, source: str, where: str, scope: list[Named]) -> tuple[str, list[str]]:
        keys = [self.expression(scope) for _ in range(self.draw(st.integers(0, 2)))]
        items = [f"{text} AS c{i}" for i, (text, _) in enumerate(keys)]
        kinds = [kind for _, kind in keys]
        for _ in range(self.draw(st.integers(1, 2))):
            text, kind = self.aggregate(scope)
            items.append(f"{text} AS c{len(items)}")
            kinds.append(kind)
        group = f" GROUP BY {', '.join(text for text, _ in keys)}" if keys else ""
        having = ""
        if self.chance(25):
            having = f" HAVING {self.pick(['count(*) > 1', 'count(*) <> 2', 'min(1) = 1'])}"
        return f"SELECT {', '.join(items)} FROM {source}{where}{group}{having}", kinds

    def aggregate(self, scope: list[Named]) -> tuple[str, str]:
        if self.chance(30):
            return "count(*)", "int"
        column = self.pick(scope)
        distinct = "DISTINCT " if self.chance(25) else ""
        function = self.pick(["count", "min", "max", "sum", "avg"])
        if function in ("sum", "avg") and column.kind not in ("int", "real", "decimal"):
            function = "count"
        kind = {"count": "int", "avg": "real"}.get(function, column.kind)
        filtered = f" FILTER (WHERE {self.comparison(scope)})" if self.chance(15) else ""
        return f"{function}({distinct}{column.text}){filtered}", kind

    def source(self, depth: int) -> tuple[str, list[Named]]:
        text, scope = self.table(depth)
        for _ in range(self.pick([0, 0, 1, 1, 1, 2])):
            other, added = self.table(depth)
            kind = self.pick(
                [",", "JOIN", "JOIN", "JOIN", "LEFT JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]
            )
            if kind == ",":
                text = f"{text} CROSS JOIN {other}"
            else:
                text = f"{text} {kind} {other} ON {self.matching(scope, added, kind)}"
            scope = scope + added
        return text, scope

    def table(self, depth: int) -> tuple[str, list[Named]]:
        alias = f"q{self.aliases}"
        self.aliases += 1
        if depth and self.chance(12):
            text, kinds = self.query(depth - 1)
            names = [Named(f"{alias}.c{i}", kind) for i, kind in enumerate(kinds)]
            return f"({text}) AS {alias}", names
        name = self.pick(KINDS)
        return f"{name} AS {alias}", [Named(f"{alias}.{c}", k) for c, k in KINDS[name].items()]

    def matching(self, left: list[Named], right: list[Named], kind: str) -> str:
        pairs = [(a, b) for a in left for b in right if a.kind == b.kind]
        parts = []
        if pairs:
            for _ in range(self.pick([1, 1, 2])):
                a, b = self.pick(pairs)
                parts.append(f"{a.text} = {b.text}")
        if not parts or self.chance(20):
            parts.append(self.comparison(left + right))
        return " AND ".join(parts)

    def condition(self, scope: list[Named], depth: int, outer: tuple[Named, ...]) -> str:
        parts = [self.comparison([*scope, *outer] if self.chance(50) else scope)]
        if self.chance(40):
            parts.append(self.comparison(scope))
        text = self.pick([" AND ", " OR "]).join(parts)
        if self.chance(10):
            text = f"NOT ({text})"
        if outer:
            same = [(a, b) for a in scope for b in outer if a.kind == b.kind]
            if same and self.chance(80):
                a, b = self.pick(same)
                text = f"{a.text} = {b.text} AND ({text})"
        elif depth and self.chance(35):
            text = f"({text}) AND {self.subquery(scope, depth)}"
        return text

    def subquery(self, scope: list[Named], depth: int) -> str:
        negated = self.pick(["", "NOT "])
        if self.chance(50):
            inner, names = self.source(0)
            where = self.condition(names, 0, tuple(scope))
            return f"{negated}EXISTS (SELECT 1 FROM {inner} WHERE {where})"
        column = self.pick(scope)
        inner, names = self.source(0)
        found = [n for n in names if n.kind == column.kind]
        item = self.pick(found).text if found else self.literal(column.kind)
        where = f" WHERE {self.condition(names, 0, tuple(scope))}" if self.chance(50) else ""
        return f"{column.text} {negated}IN (SELECT {item} FROM {inner}{where})"

    def comparison(self, scope: list[Named]) -> str:
        column = self.pick(scope)
        choice = self.draw(st.integers(0, 9))
        if choice == 0:
            return f"{column.text} IS {self.pick(['', 'NOT '])}NULL"
        if choice == 1:
            return f"{column.text} IN ({self.literal(column.kind)}, {self.literal(column.kind)})"
        if choice == 2 and column.kind == "text":
            return f"{column.text} LIKE {self.pick(['%x', 'x%', '_', '%'])!r}"
        if choice == 3:
            low, high = self.literal(column.kind), self.literal(column.kind)
            return f"{column.text} BETWEEN {low} AND {high}"
        others = [c.text for c in scope if c.kind == column.kind]
        other = self.pick(others) if self.chance(50) else self.literal(column.kind)
        if choice == 4:
            return f"{column.text} IS {self.pick(['', 'NOT '])}DISTINCT FROM {other}"
        return f"{column.text} {self.pick(['=', '=', '<>', '<', '<=', '>', '>='])} {other}"

    def expression(self, scope: list[Named]) -> tuple[str, str]:
        column = self.pick(scope)
        text, kind = column.text, column.kind
        choice = self.draw(st.integers(0, 11))
        if choice == 0:
            return f"COALESCE({text}, {self.literal(kind)})", kind
        if choice == 1:
            return (
                f"CASE WHEN {self.comparison(scope)} THEN {text} ELSE {self.literal(kind)} END",
                kind,
            )
        if choice == 2 and kind == "int":
            return f"({text} + {self.literal('int')})", kind
        if choice == 3 and kind == "int":
            return f"({text} * 2 - 1)", kind
        if choice == 4 and kind == "text":
            return f"({text} || 'z')", kind
        if choice == 5 and kind == "text":
            return f"{self.pick(['upper', 'trim'])}({text})", kind
        if choice == 6 and kind == "text":
            return f"length({text})", "int"
        if choice == 7 and kind == "date":
            return f"day({text})", "int"
        return text, kind

    def literal(self, kind: str) -> str:
        return self.pick(LITERALS[kind])


@st.composite
def selects(draw: Any) -> str:
    """A SELECT over the tables of `SCHEMAS`."""
    return Writer(draw).query()[0]
