"""Random SQL over three small tables, on which DuckDB and the circuit must agree.

A text is one SELECT, or views that use each other and then a SELECT. Expressions that can fail,
such as divisions and casts of texts, have tests of their own. A LIMIT always follows an ORDER BY of
all columns, so that the answer is unique.
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
class Column:
    """A column in scope."""

    text: str
    kind: str


class Writer:
    """Writes one query by drawing choices."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.aliases = 0
        self.tables = dict(KINDS)

    def chance(self, percent: int) -> bool:
        return self.draw(st.integers(0, 99)) < percent

    def pick(self, options: Any) -> Any:
        return self.draw(st.sampled_from(list(options)))

    def script(self) -> str:
        """Write a query, perhaps after views that it can name."""
        statements = []
        if self.chance(20):
            for number in range(self.pick([1, 2])):
                text, kinds = self.query(1)
                self.tables[f"w{number}"] = {f"c{i}": kind for i, kind in enumerate(kinds)}
                statements.append(f"CREATE VIEW w{number} AS {text}")
        return "; ".join([*statements, self.query()[0]])

    def query(self, depth: int = 2, *, outer: tuple[Column, ...] = ()) -> tuple[str, list[str]]:
        """Write a query; return it and the kinds of its columns, named c0, c1, ..."""
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
        items, result_kinds = [], []
        for index, kind in enumerate(kinds):
            wider = {"int": ("int", "decimal"), "decimal": ("decimal", "int")}.get(kind, (kind,))
            columns = [(c, k) for c, k in KINDS[table].items() if k in wider]
            item, data_type = self.pick(columns) if columns else (self.literal(kind), kind)
            result_kinds.append("decimal" if "decimal" in (data_type, kind) else kind)
            items.append(f"{item} AS c{index}")
        operator = self.pick(
            ["UNION", "UNION ALL", "EXCEPT", "EXCEPT ALL", "INTERSECT", "INTERSECT ALL"]
        )
        right = f"SELECT {', '.join(items)} FROM {table}"
        if self.chance(15):
            values = [", ".join(map(self.literal, kinds)) for _ in range(self.pick([1, 2]))]
            return f"{left} {operator} (VALUES ({'), ('.join(values)}))", kinds
        return f"{left} {operator} {right}", result_kinds

    def select(self, depth: int, outer: tuple[Column, ...]) -> tuple[str, list[str]]:
        source, scope = self.source(depth)
        where = ""
        if self.chance(60):
            where = f" WHERE {self.condition(scope, depth, outer)}"
        if self.chance(35):
            return self.select_with_groups(source, where, scope)
        distinct = "DISTINCT " if self.chance(15) else ""
        kinds, items = [], []
        if not outer and self.chance(8):
            return self.select_top_rows(source, where, scope)
        if not outer and self.chance(20):
            return self.select_with_windows(source, where, scope)
        for index in range(self.draw(st.integers(1, 3))):
            text, kind = self.expression(scope)
            kinds.append(kind)
            items.append(f"{text} AS c{index}")
        return f"SELECT {distinct}{', '.join(items)} FROM {source}{where}", kinds

    def select_top_rows(
        self, source: str, where: str, scope: list[Column]
    ) -> tuple[str, list[str]]:
        """Write a query for the first rows of each group, ordered by all its columns."""
        columns = [self.pick(scope) for _ in range(self.pick([1, 2, 3]))]
        order = ", ".join(f"{c.text}{self.pick(['', ' DESC'])}" for c in columns)
        items = ", ".join(f"{c.text} AS c{i}" for i, c in enumerate(columns))
        keys = f"PARTITION BY {self.pick(columns).text} " if self.chance(60) else ""
        rank = f"row_number() OVER ({keys}ORDER BY {order}) {self.pick(['<= 2', '= 1', '< 3'])}"
        return f"SELECT {items} FROM {source}{where} QUALIFY {rank}", [c.kind for c in columns]

    def select_with_windows(
        self, source: str, where: str, scope: list[Column]
    ) -> tuple[str, list[str]]:
        """Write window functions and columns, perhaps with a named window or QUALIFY.

        All calls that depend on the order of equal rows have the same window. With two, SQL leaves
        open which of the equal rows has which pair of values.
        """
        all_columns = self.window(scope, self.draw(st.permutations(scope)))
        columns = [self.pick(scope) for _ in range(self.pick([1, 2]))]
        items = [f"{c.text} AS c{i}" for i, c in enumerate(columns)]
        kinds = [c.kind for c in columns]
        window_clause = ""
        for _ in range(self.pick([1, 1, 2])):
            call, window, kind = self.window_call(scope, all_columns)
            if not window_clause and self.chance(20):
                window_clause = f" WINDOW w AS ({window})"
                items.append(f"{call} OVER w AS c{len(items)}")
            else:
                items.append(f"{call} OVER ({window}) AS c{len(items)}")
            kinds.append(kind)
        qualify = ""
        if self.chance(25):
            call, window, kind = self.window_call(scope, all_columns)
            operator = self.pick(["<=", ">", "="])
            qualify = f" QUALIFY {call} OVER ({window}) {operator} {self.literal(kind)}"
            if self.chance(40):
                qualify = f"{qualify} {self.pick(['AND', 'OR'])} {self.comparison(scope)}"
        return f"SELECT {', '.join(items)} FROM {source}{where}{window_clause}{qualify}", kinds

    def window(self, scope: list[Column], keys: list[Column]) -> str:
        """Write ORDER BY the keys, perhaps after PARTITION BY a column."""
        order = ", ".join(
            f"{key.text}{self.pick(['', '', ' DESC'])}{self.pick(['', '', ' NULLS FIRST'])}"
            for key in keys
        )
        partition = f"PARTITION BY {self.pick(scope).text} " if self.chance(60) else ""
        return f"{partition}ORDER BY {order}" if order else partition

    def window_call(self, scope: list[Column], all_columns: str) -> tuple[str, str, str]:
        """Write a call; return it, its window, and the kind of its result.

        Functions that depend on the order of equal rows have the window ``all_columns``.
        """
        kind = self.pick(["rank", "number", "value", "aggregate", "aggregate", "aggregate"])
        column = self.pick(scope)
        keys = [self.pick(scope) for _ in range(self.pick([0, 1, 1, 2]))]
        window = self.window(scope, keys)
        if kind in ("number", "value"):
            keys, window = scope, all_columns
        if kind == "rank":
            call, result = self.pick(
                [
                    *[(f"{name}()", "int") for name in ("rank", "dense_rank")],
                    *[(f"{name}()", "real") for name in ("percent_rank", "cume_dist")],
                ]
            )
            return call, window, result
        if kind == "number":
            return self.pick(["row_number()", "ntile(2)", "ntile(3)"]), window, "int"
        frame = self.frame(keys, "rows") if keys and self.chance(60) else ""
        if kind == "value":
            nulls = self.pick(["", "", " IGNORE NULLS"])
            argument = f"{column.text}{nulls}"
            if self.chance(40):
                offset = self.pick(["", f", 2{nulls}", f", 1, {self.literal(column.kind)}{nulls}"])
                if offset:
                    argument = f"{column.text}{offset}"
                return f"{self.pick(['lag', 'lead'])}({argument})", window, column.kind
            name = self.pick(["first_value", "last_value", "nth_value"])
            if name == "nth_value":
                argument = f"{column.text}, 2{nulls}"
            return f"{name}({argument})", f"{window} {frame}", column.kind
        if keys and self.chance(60):
            frame = self.frame(keys, self.pick(["rows", "range", "groups"]))
            if frame.startswith("ROWS"):
                window = all_columns
        else:
            frame = ""
        call, result = self.aggregate(scope)
        while call.partition("(")[0] not in ("count", "sum", "avg", "min", "max"):
            call, result = self.aggregate(scope)
        if call.startswith("sum(CASE"):
            call = "count(*)"
            result = "int"
        return call, f"{window} {frame}", result

    def frame(self, keys: list[Column], mode: str) -> str:
        """Write a frame over an order of these columns."""
        offsets = ["UNBOUNDED PRECEDING", "CURRENT ROW", "UNBOUNDED FOLLOWING"]
        if mode != "range" or [key.kind for key in keys] == ["int"]:
            offsets[1:1] = ["2 PRECEDING", "1 PRECEDING"]
            offsets[4:4] = ["1 FOLLOWING", "2 FOLLOWING"]
        low, high = sorted(self.draw(st.integers(0, len(offsets) - 1)) for _ in range(2))
        low, high = min(low, len(offsets) - 2), max(high, 1)
        exclude = self.pick(["", "", " EXCLUDE CURRENT ROW", " EXCLUDE GROUP", " EXCLUDE TIES"])
        return f"{mode.upper()} BETWEEN {offsets[low]} AND {offsets[high]}{exclude}"

    def select_with_groups(
        self, source: str, where: str, scope: list[Column]
    ) -> tuple[str, list[str]]:
        keys = [self.expression(scope) for _ in range(self.draw(st.integers(0, 2)))]
        items = [f"{text} AS c{i}" for i, (text, _) in enumerate(keys)]
        kinds = [kind for _, kind in keys]
        arguments = self.one_table(scope) if self.chance(40) else scope
        for _ in range(self.draw(st.integers(1, 3))):
            text, kind = self.aggregate(arguments)
            items.append(f"{text} AS c{len(items)}")
            kinds.append(kind)
        group = f" GROUP BY {', '.join(text for text, _ in keys)}" if keys else ""
        having = ""
        if self.chance(25):
            having = f" HAVING {self.pick(['count(*) > 1', 'count(*) <> 2', 'min(1) = 1'])}"
            if self.chance(50):
                text, kind = self.aggregate(scope)
                operator = self.pick(["=", "<>", "<", ">="])
                literal = self.literal(kind)
                having = f"{having} {self.pick(['AND', 'OR'])} {text} {operator} {literal}"
        return f"SELECT {', '.join(items)} FROM {source}{where}{group}{having}", kinds

    def aggregate(self, scope: list[Column]) -> tuple[str, str]:
        if self.chance(30):
            return "count(*)", "int"
        column = self.pick(scope)
        if self.chance(15):
            condition = self.comparison(scope)
            if column.kind in ("int", "decimal"):
                return f"sum(CASE WHEN {condition} THEN {column.text} ELSE 0 END)", column.kind
            return f"CASE WHEN count(*) > 1 THEN max({column.text}) END", column.kind
        distinct = "DISTINCT " if self.chance(25) else ""
        function = self.pick(["count", "min", "max", "sum", "avg"])
        if function in ("sum", "avg") and column.kind not in ("int", "real", "decimal"):
            function = "count"
        kind = {"count": "int", "avg": "real"}.get(function, column.kind)
        filter_clause = f" FILTER (WHERE {self.comparison(scope)})" if self.chance(15) else ""
        return f"{function}({distinct}{column.text}){filter_clause}", kind

    def one_table(self, scope: list[Column]) -> list[Column]:
        """Draw one of the tables in scope; return its columns."""
        table = self.pick(sorted({column.text.partition(".")[0] for column in scope}))
        return [column for column in scope if column.text.partition(".")[0] == table]

    def source(self, depth: int) -> tuple[str, list[Column]]:
        text, scope = self.table(depth)
        for _ in range(self.pick([0, 0, 1, 1, 1, 2])):
            other, added = self.table(depth)
            if depth and self.chance(15):
                third, third_columns = self.table(depth)
                kind = self.pick(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
                other = f"({other} {kind} {third} ON {self.join_condition(added, third_columns)})"
                added = added + third_columns
            kind = self.pick(
                [",", "JOIN", "JOIN", "JOIN", "LEFT JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]
            )
            ours, theirs = (
                [column.text.partition(".")[2] for column in columns] for columns in (scope, added)
            )
            kinds = {(c.text.partition(".")[2], c.kind) for c in scope}
            shared = [
                name
                for name in theirs
                if ours.count(name) == theirs.count(name) == 1
                and any((name, c.kind) in kinds for c in added if c.text.partition(".")[2] == name)
            ]
            if kind == ",":
                text = f"{text} CROSS JOIN {other}"
            elif shared and " USING " not in text and self.chance(20):
                text = f"{text} {kind} {other} USING ({self.pick(shared)})"
            else:
                text = f"{text} {kind} {other} ON {self.join_condition(scope, added)}"
            scope = scope + added
        return text, scope

    def table(self, depth: int) -> tuple[str, list[Column]]:
        alias = f"q{self.aliases}"
        self.aliases += 1
        if depth and self.chance(12):
            text, kinds = self.query(depth - 1)
            names = [Column(f"{alias}.c{i}", kind) for i, kind in enumerate(kinds)]
            return f"({text}) AS {alias}", names
        name = self.pick(self.tables)
        columns = self.tables[name].items()
        return f"{name} AS {alias}", [Column(f"{alias}.{c}", kind) for c, kind in columns]

    def join_condition(self, left: list[Column], right: list[Column]) -> str:
        pairs = [(a, b) for a in left for b in right if a.kind == b.kind]
        parts = []
        if pairs:
            for _ in range(self.pick([1, 1, 2])):
                a, b = self.pick(pairs)
                parts.append(f"{a.text} = {b.text}")
        if not parts or self.chance(20):
            parts.append(self.comparison(left + right))
        return " AND ".join(parts)

    def condition(self, scope: list[Column], depth: int, outer: tuple[Column, ...]) -> str:
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

    def scalar_subquery(self, scope: list[Column]) -> tuple[str, str]:
        """Write an aggregate of another table, over the rows that share a value or over all."""
        inner, names = self.source(0)
        text, kind = self.aggregate(names)
        pairs = [(a, b) for a in names for b in scope if a.kind == b.kind]
        where = ""
        if pairs and self.chance(70):
            a, b = self.pick(pairs)
            where = f" WHERE {a.text} = {b.text}"
        if self.chance(30):
            where = f"{where or ' WHERE TRUE'} AND {self.comparison(names)}"
        return f"(SELECT {text} FROM {inner}{where})", kind

    def subquery(self, scope: list[Column], depth: int) -> str:
        negated = self.pick(["", "NOT "])
        if self.chance(25):
            text, kind = self.scalar_subquery(scope)
            others = [c.text for c in scope if c.kind == kind]
            other = self.pick(others) if others else self.literal(kind)
            return f"{other} {self.pick(['=', '<>', '<', '>='])} {text}"
        if self.chance(50):
            inner, names = self.source(0)
            where = self.condition(names, 0, tuple(scope))
            return f"{negated}EXISTS (SELECT 1 FROM {inner} WHERE {where})"
        column = self.pick(scope)
        inner, names = self.source(0)
        candidates = [n for n in names if n.kind == column.kind]
        item = self.pick(candidates).text if candidates else self.literal(column.kind)
        where = f" WHERE {self.condition(names, 0, tuple(scope))}" if self.chance(50) else ""
        return f"{column.text} {negated}IN (SELECT {item} FROM {inner}{where})"

    def comparison(self, scope: list[Column]) -> str:
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

    def expression(self, scope: list[Column]) -> tuple[str, str]:
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
    """Draw a SELECT over the tables of `SCHEMAS`, perhaps after the views that it names."""
    return Writer(draw).script()
