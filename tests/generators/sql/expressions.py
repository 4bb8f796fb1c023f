"""Literals, scalar functions, nested values, JSON and conditions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tests.generators.sql.choices import KINDS, Choices, Column, differ

LITERALS = {
    "int": ["0", "1", "2", "3", "-1"],
    "real": ["0.5::DOUBLE", "1.5::DOUBLE", "2::DOUBLE"],
    "decimal": ["1.50", "2.00", "0.25"],
    "text": ["'x'", "'xy'", "'y'", "''"],
    "bool": ["TRUE", "FALSE"],
    "date": ["DATE '2020-01-01'", "DATE '2020-01-02'"],
    "ts": ["TIMESTAMP '2020-01-01 00:00:05'", "TIMESTAMP '2020-01-01 00:00:30'"],
    "list": ["[1, 2]", "[1, NULL]", "[3]"],
    "struct": ["{'i': 1::BIGINT, 'n': 'x'}"],
    "map": ["MAP {'k': 1::BIGINT}"],
    "interval": ["INTERVAL '5 seconds'", "INTERVAL '1 day'"],
}
SPARK_LITERALS = LITERALS | {
    "int": ["0L", "1L", "2L", "3L", "-1L"],
    "real": ["0.5D", "1.5D", "2D"],
    "ts": ["TIMESTAMP_NTZ '2020-01-01 00:00:05'", "TIMESTAMP_NTZ '2020-01-01 00:00:30'"],
    "list": ["array(1L, 2L)", "array(1L, NULL)", "array(3L)"],
    "struct": ["named_struct('i', 1L, 'n', 'x')"],
    "map": ["map('k', 1L)"],
}

#: Expressions by the kind of their value; ``{kind}`` is an argument.
COMMON = {
    "int": """
        ({int} + {int})|({int} - {int})|({int} * 2)|abs({int})|-({int})|length({text})|year({date})
        month({date})|day({ts})|quarter({date})|greatest({int}, {int})|least({int}, {int}, 2)
        nullif({int}, {int})|sign({int})::BIGINT|({bool})::INT|length({text} || {text})|hour({ts})
        extract(second FROM {ts})::BIGINT|dayofyear({date})|ascii({text})
    """,
    "real": """
        ({real} * 2)|({real} + {real})|abs({real})|floor({real})::DOUBLE|-({real})|{int}::DOUBLE
    """,
    "decimal": "({decimal} + {decimal})|abs({decimal})|({decimal} * {int}::INT)|-({decimal})",
    "text": """
        ({text} || {text})|upper({text})|trim({text})|replace({text}, 'x', {text})|{int}::VARCHAR
        substring({text}, 1, 1)|left({text}, 1)|coalesce({text}, 'none')|repeat({text}, 2)
        lpad({text}, 3, '-')|reverse({text})|concat({text}, '/', {text})|right({text}, 1)
        translate({text}, 'xy', 'ab')|concat_ws('-', {text}, {text})|{date}::VARCHAR
    """,
    "bool": """
        ({int} > {int})|({text} LIKE 'x%')|starts_with({text}, 'x')|({text} IS NULL)
        contains({text}, 'y')
        ({date} < {date})|({int} IN (1, 2))|({int} IS DISTINCT FROM {int})|(NOT {bool})
        ({bool} AND {bool})
        ({bool} OR {bool})|({ts} >= {ts})|({real} <= {real})|({decimal} <> {decimal})
    """,
    "date": "{ts}::DATE|last_day({date})|greatest({date}, {date})",
    "ts": "date_trunc('minute', {ts})|({ts} + INTERVAL '5' SECOND)|({ts} - INTERVAL '1' DAY)",
}
DUCKDB = {
    "int": """
        ({int} % 2)|({int} // 2)|({int} & {int})|list_sum({list})::BIGINT|len({list})|{list}[1]
        {list}[{int}]|list_max({list})|{struct}.i|{map}['k']|cardinality({map})|strpos({text}, 'y')
        list_position({list}, {int})|date_diff('day', {date}, {date})|xor({int}, {int})
        bit_count({int}::BIGINT)
        list_reduce({list}, lambda y, z: coalesce(y, 0) + coalesce(z, 0), 0)|epoch({ts})::BIGINT
        json_array_length({json})|try_cast({text} AS BIGINT)|date_part('isodow', {date})
        len(list_filter({list}, lambda z: z > {int}))|json_extract_string({json}, '$.a')::BIGINT
        struct_extract({struct}, 'i')|date_diff('second', {ts}, {ts})|levenshtein({text}, 'xy')
    """,
    "real": "({int} / {int})|round({real}, 1)|({decimal})::DOUBLE|list_avg({list})|pow({int}, 2)",
    "decimal": "round({decimal}, 1)|{int}::DECIMAL(10, 2)",
    "text": """
        ({json}->>'a')|{struct}.n|array_to_string({list}, ',')|regexp_replace({text}, 'x', 'z', 'g')
        split_part({text}, 'x', 1)|strftime({ts}, '%H:%M:%S')|({json}->>'$.b[0]')|md5({text})
        map_keys({map})[1]|json_type({json})|regexp_extract({text}, '([a-y]+)', 1)|{ts}::VARCHAR
    """,
    "bool": """
        list_contains({list}, {int})|({list} = {list})|({list} < {list})|map_contains({map}, 'k')
        ({int}, {text}) = ({int}, {text})|({int}, {int}) < ({int}, {int})|({struct} = {struct})
        ({int}, {text}) IN (({int}, {text}), (1, 'x'))|({interval} > {interval})
        list_has_any({list}, {list})
        regexp_matches({text}, '^x')|({text} SIMILAR TO 'x.*')|({struct} IS NULL)|isnan({real})
    """,
    "date": """
        ({date} + 1)|make_date(2020, 1, greatest(1, least(20, {int})))
        date_trunc('month', {date})::DATE
    """,
    "ts": """
        time_bucket(INTERVAL 10 SECOND, {ts})|{date}::TIMESTAMP|date_bin:{ts}
        ({ts} + {interval})|({ts} + {int} * INTERVAL 1 SECOND)|date_trunc('hour', {ts})
        time_bucket(INTERVAL '7 seconds', {ts}, TIMESTAMP '2020-01-01 00:00:03')
        ({date} + {interval})
    """,
    "list": """
        [{int}, {int}]|list_append({list}, {int})|list_sort({list})|list_distinct({list}[:0])
        list_transform({list}, lambda z: z + {int})|list_concat({list}, {list})|{list}[1:1]
        {list}[2:]
        range({int})|list_filter({list}, lambda z: z > 1)|list_sort(list_distinct({list}))
        map_values({map})
        [z * 2 for z in {list} if z > 0]|list_reverse({list})|flatten([{list}, {list}])
    """,
    "struct": "{{'i': {int}, 'n': {text} }}|struct_pack(i := {int}, n := {text})",
    "map": "MAP {{'k': {int} }}|map(['k', 'l'], [{int}, {int}])",
    "interval": "({ts} - {ts})|({int} * INTERVAL 1 SECOND)|to_seconds({int})",
    "approx": """
        sqrt(abs({int}))|exp({int})|ln(abs({int}) + 1)|sin({real})|({decimal} / 3)|cbrt({int})
    """,
}
SPARK = {
    "int": """
        ({int} % 2)|pmod({int}, 2)|size({list})|datediff({date}, {date})|({int} div 2)
        instr({text}, 'y')|({int} & {int})
    """,
    "real": "({real} / 2)|round({real}, 1)|{decimal}::DOUBLE",
    "text": """
        regexp_replace({text}, 'x', 'z')|substring_index({text}, 'x', 1)
        date_format({ts}, 'HH:mm:ss')|md5({text})
    """,
    "bool": "array_contains({list}, 2L)|({int} <=> {int})|({text} RLIKE '^x')",
    "date": "date_add({date}, 1)|trunc({date}, 'month')",
    "ts": "date_trunc('hour', {ts})",
    "list": "array({int}, {int})|sort_array({list})|array_distinct({list})",
    "approx": "sqrt(abs({int}))|exp({int})|sin({real})",
}


def templates(*sources: dict[str, str]) -> dict[str, list[str]]:
    """Return the expressions of each kind."""
    kinds = sorted({kind for source in sources for kind in source})
    return {
        kind: [
            template.strip()
            for source in sources
            for template in re.split(r"(?<!\|)\|(?!\|)|\n", source.get(kind, ""))
            if template.strip()
        ]
        for kind in kinds
    }


#: The kinds of the columns in the expressions of `functions_of_duckdb.txt`.
ARGUMENTS = {"s": "text", "p": "text", "i": "int", "j": "int", "f": "real", "m": "decimal"}
ARGUMENTS |= {"d": "date", "ts": "ts", "ts2": "ts"}
FUNCTIONS = Path(__file__).parents[2] / "circuits" / "sql" / "functions_of_duckdb.txt"
#: Functions that fail for some arguments, or whose value depends on the width of an integer.
PARTIAL = ("chr", "factorial", "make_", "typeof", "<<", ">>", "9223372036854775800", "strptime")


def listed_functions() -> str:
    """Return the expressions of the list of functions, with arguments for its columns."""
    expressions = []
    for line in FUNCTIONS.read_text().splitlines():
        if "|" in line or "{" in line or any(word in line for word in PARTIAL):
            continue
        parts = line.split("'")  # every other part is a string
        parts[::2] = [
            re.sub(r"\b(ts2|ts|[spijfmd])\b", lambda m: f"{{{ARGUMENTS[m[1]]}}}", part)
            for part in parts[::2]
        ]
        expressions.append("'".join(parts))
    return "\n".join(expressions)


TEMPLATES = {
    "duckdb": templates(COMMON, DUCKDB, {"approx": listed_functions()}),
    "spark": templates(COMMON, SPARK),
}


class Expressions(Choices):
    """Writes expressions over the columns of a scope."""

    def literal(self, kind: str) -> str:
        literals = SPARK_LITERALS if self.dialect == "spark" else LITERALS
        return self.pick(literals[kind])

    def columns(self, scope: Sequence[Column], kind: str) -> list[str]:
        return [column.text for column in scope if column.kind == kind]

    def value(self, scope: Sequence[Column], kind: str, depth: int = 1) -> str:
        """Write an expression of a kind."""
        columns = self.columns(scope, kind)
        if kind == "json":
            return self.pick(columns) if columns else """'{"a": 1, "b": [2, 3]}'"""
        if columns and (depth <= 0 or self.chance(55)):
            return self.pick(columns)
        if self.outer and self.chance(15):
            outer = self.columns(self.outer, kind)
            if outer:
                self.count("correlated column")
                return self.pick(outer)
        if kind == "int" and self.chance(4):
            self.count("function in SQL")
            argument = self.value(scope, "int", 0)
            return differ(f"plus_one({argument})", f"(CAST({argument} AS BIGINT) + 1)")
        if kind in LITERALS and (depth <= 0 or self.chance(25)):
            return self.literal(kind)
        if self.chance(15) and kind in KINDS:
            self.count("CASE, coalesce")
            first, second = (self.value(scope, kind, depth - 1) for _ in range(2))
            if self.chance(50):
                return f"coalesce({first}, {second})"
            condition = self.comparison(scope)
            return f"CASE WHEN {condition} THEN {first} ELSE {second} END"
        if depth and self.chance(5):
            subquery = self.value_query(kind, scope)
            if subquery:
                return subquery
        return self.fill(self.pick(TEMPLATES[self.dialect].get(kind, ["NULL"])), scope, depth)

    def fill(self, template: str, scope: Sequence[Column], depth: int) -> str:
        """Replace each ``{kind}`` of a template by an expression."""
        self.count("scalar function")
        if self.dialect == "spark":
            template = template.replace("VARCHAR", "STRING").replace("starts_with", "startswith")
        if template.startswith("date_bin:"):
            time, origin = self.value(scope, "ts", depth - 1), "TIMESTAMP '2020-01-01 00:00:02'"
            name = differ("date_bin", "time_bucket")
            return f"{name}(INTERVAL '7 seconds', {time}, {origin})"
        return (
            re.sub(
                r"\{(\w+)\}",
                lambda match: self.value(scope, match[1], depth - 1),
                template.replace("{{", "\x01").replace("}}", "\x02"),
            )
            .replace("\x01", "{")
            .replace("\x02", "}")
        )

    def expression(self, scope: Sequence[Column], depth: int = 1) -> Column:
        """Write an expression of any kind; usually a column."""
        if self.chance(50):
            column = self.pick(scope)
            if column.kind != "json":
                return Column(column.text, column.kind)
        kind = self.pick(["int", "int", "text", *TEMPLATES[self.dialect]])
        return Column(self.value(scope, kind, depth), kind)

    def exact_expression(self, scope: Sequence[Column], depth: int = 1) -> Column:
        """Write an expression whose values can be compared."""
        while True:
            column = self.expression(scope, depth)
            if column.kind in KINDS and (self.dialect == "duckdb" or column.kind != "map"):
                return column

    def collation(self) -> str:
        """Write a collation that ignores case."""
        self.count("COLLATE")
        return f" COLLATE {'UTF8_LCASE' if self.dialect == 'spark' else 'NOCASE'}"

    def comparison(self, scope: Sequence[Column]) -> str:
        """Write a condition without subqueries."""
        unordered = {"map", "struct"} if self.dialect == "duckdb" else {"map", "struct", "list"}
        kinds = sorted({column.kind for column in scope} & set(KINDS) - unordered)
        kind = self.pick(kinds or ["int"])
        left = self.value(scope, kind, 1 if self.chance(20) else 0)
        if kind == "bool":
            left = f"({left})"
        choice = self.integer(0, 9)
        if choice == 0:
            return f"{left} IS {self.pick(['', 'NOT '])}NULL"
        if choice == 1:
            items = ", ".join(self.value(scope, kind, 0) for _ in range(self.pick([1, 2])))
            return f"{left} {self.pick(['', 'NOT '])}IN ({items}, {self.literal(kind)})"
        if choice == 2:
            return f"{left} BETWEEN {self.literal(kind)} AND {self.value(scope, kind, 0)}"
        if choice == 3:
            return self.value(scope, "bool", 1)
        right = self.value(scope, kind, 0) if self.chance(60) else self.literal(kind)
        right = self.literal(kind) if right == left else right
        if kind == "text" and self.chance(15):
            right = f"{right}{self.collation()}"
        if choice == 4:
            if self.dialect == "spark":
                return f"{left} <=> {right}"
            return f"{left} IS {self.pick(['', 'NOT '])}DISTINCT FROM {right}"
        return f"{left} {self.pick(['=', '<>', '<>', '<', '<=', '>', '>='])} {right}"

    def condition(self, scope: Sequence[Column], depth: int) -> str:
        """Write a condition of WHERE or ON, perhaps with subqueries."""
        parts = [self.comparison(scope) for _ in range(self.pick([0, 1, 1, 2]))]
        if not parts or (depth and self.chance(25)):
            parts.append(self.exists(scope, depth) if depth else self.comparison(scope))
        text = self.pick([" AND ", " OR "]).join(self.shuffled(parts))
        return f"NOT ({text})" if self.chance(10) else f"({text})"

    def temporal_condition(self, scope: Sequence[Column]) -> str:
        """Write a condition on the current time, or on nothing without a time in scope."""
        times = self.columns(scope, "ts")
        if not times:
            return "TRUE"
        self.count("temporal filter")
        now = differ("now()", "TIMESTAMP '@NOW@'")
        if self.dialect == "spark":
            now = differ("now()", "TIMESTAMP_NTZ '@NOW@'")
        column = self.pick(times)
        template = self.pick(
            [
                "{c} > {n} - INTERVAL '20 seconds'",
                "{c} <= {n}",
                "{c} BETWEEN {n} - INTERVAL '30 seconds' AND {n} - INTERVAL '5 seconds'",
                "{c} + INTERVAL '10 seconds' >= {n}",
                "{n} > {c}",
                "{c} >= date_trunc('minute', {n})",
                "date_trunc('minute', {c}) < {n}",
            ]
        )
        return template.format(c=column, n=now)
