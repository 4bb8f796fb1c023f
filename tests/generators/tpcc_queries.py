"""Random view queries over the TPC-C schema, by the shapes that people write.

Each shape is a method of `QueryWriter` that returns one query; `write_queries` takes them in turn,
with random tables, columns, predicates and expressions. Rows are unique where an order matters: a
LIMIT orders by all its columns. A query may be one that DuckDB refuses; callers leave it out.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Final

import pyarrow as pa

from tests.generators.tpcc import TABLES

__all__ = ["SHAPES", "write_queries"]

#: Joins between tables: the pairs of columns that are equal.
_LINKS: Final = {
    ("district", "warehouse"): (("d_w_id", "w_id"),),
    ("customer", "district"): (("c_d_id", "d_id"), ("c_w_id", "d_w_id")),
    ("history", "customer"): (("h_c_id", "c_id"),),
    ("oorder", "customer"): (("o_c_id", "c_id"),),
    ("new_order", "oorder"): (("no_o_id", "o_id"),),
    ("order_line", "oorder"): (("ol_o_id", "o_id"),),
    ("order_line", "item"): (("ol_i_id", "i_id"),),
    ("stock", "item"): (("s_i_id", "i_id"),),
    ("stock", "warehouse"): (("s_w_id", "w_id"),),
    ("order_line", "stock"): (("ol_i_id", "s_i_id"), ("ol_w_id", "s_w_id")),
    ("oorder", "district"): (("o_d_id", "d_id"), ("o_w_id", "d_w_id")),
}
_NUMBERS: Final = (pa.types.is_integer, pa.types.is_decimal, pa.types.is_floating)
_AGGREGATES: Final = ("sum", "min", "max", "count", "avg")


def write_queries(seed: int, count: int) -> Iterator[tuple[str, str]]:
    """Yield the name of a shape and a query of it."""
    names = list(SHAPES)
    for number in range(count):
        name = names[number % len(names)]
        yield name, SHAPES[name](QueryWriter(random.Random(f"{seed} {number}")))


def _is_number(type: pa.DataType) -> bool:
    return any(test(type) for test in _NUMBERS)


class QueryWriter:
    """Writes queries; ``source`` makes all random choices.

    A ``test`` selects columns by their type; the default, ``bool``, selects all columns.
    """

    def __init__(self, source: random.Random) -> None:
        self._random = source

    # Parts of queries.

    def pick(self, *choices: str) -> str:
        return self._random.choice(choices)

    def table(self) -> str:
        return self._random.choice(list(TABLES))

    def link(self) -> tuple[str, str, tuple[tuple[str, str], ...]]:
        (left, right), columns = self._random.choice(list(_LINKS.items()))
        return (left, right, columns)

    def columns(self, table: str, test: Callable[[pa.DataType], bool] = bool) -> list[str]:
        names = [name for name, type in TABLES[table].items() if test is bool or test(type)]
        return names or list(TABLES[table])[:1]

    def column(self, table: str, test: Callable[[pa.DataType], bool] = bool) -> str:
        return self._random.choice(self.columns(table, test))

    def number(self, table: str) -> str:
        return self.column(table, _is_number)

    def some_columns(self, table: str, most: int = 3) -> list[str]:
        names = self.columns(table)
        return self._random.sample(names, self._random.randint(1, min(most, len(names))))

    def integer(self) -> int:
        return self._random.randint(0, 6)

    def literal(self, table: str, column: str) -> str:
        type = TABLES[table][column]
        if pa.types.is_string(type):
            return self.pick("'BAR'", "'able'", "'Pri'", "'zzz'", "''")
        if pa.types.is_timestamp(type):
            return self.pick("TIMESTAMP '2007-05-01 00:00:00'", "DATE '2007-09-15'",
                             "'2007-07-01'::timestamp", "CAST('2007-10-01' AS DATE)")  # fmt: skip
        if pa.types.is_boolean(type):
            return self.pick("TRUE", "false")
        return self.pick(str(self.integer()), "1.5", "-2", "0.125")

    def pattern(self) -> str:
        return self.pick("'%A%'", "'B_R'", "'%!%%' ESCAPE '!'", "'a%'")

    def predicate(self, table: str, prefix: str = "", depth: int = 1) -> str:
        """Return a condition on the columns of a table."""
        if depth and self._random.random() < 0.4:
            left, right = (self.predicate(table, prefix, depth - 1) for _ in range(2))
            return f"({left} {self.pick('AND', 'OR')} {right})"
        if depth and self._random.random() < 0.12:
            return f"NOT ({self.predicate(table, prefix, depth - 1)})"
        column = self.column(table)
        type, name = TABLES[table][column], prefix + column
        value, other = (self.literal(table, column) for _ in range(2))
        choices = [
            f"{name} {self.pick('=', '<>', '!=', '<', '>=', '>', '<=')} {value}",
            f"{name} IS {self.pick('', 'NOT ')}NULL",
            f"{name} {self.pick('', 'NOT ')}IN ({value}, {other})",
            f"{name} IS {self.pick('', 'NOT ')}DISTINCT FROM {value}",
            f"{name} {self.pick('', 'NOT ')}BETWEEN {value} AND {other}",
            f"coalesce({name}, {value}) = {value}",
            f"CASE WHEN {name} = {value} THEN TRUE WHEN {name} IS NULL THEN FALSE "
            f"ELSE {name} > {other} END",
            f"{name} IN (VALUES ({value}), ({other}))",
            f"{name} = ANY (SELECT {column} FROM {table} WHERE {column} <> {value})",
        ]
        if pa.types.is_string(type):
            choices += [
                f"{name} {self.pick('', 'NOT ')}LIKE {self.pattern()}",
                f"{name} ILIKE 'ba%'",
                f"upper({name}) = 'ABLE'",
                f"length({name}) > {self.integer()}",
                f"substring({name} FROM 1 FOR 2) IN ('BA', 'ab')",
                f"{name} || 'x' = 'BARx'",
                f"starts_with({name}, 'o')",
                f"{name} SIMILAR TO '[A-Z]+'",
                f"trim({name}) <> ''",
            ]
        if pa.types.is_timestamp(type):
            choices += [
                f"extract({self.pick('year', 'month', 'day', 'dow')} FROM {name}) > 3",
                f"date_part('month', {name}) = 5",
                f"date_trunc('month', {name}) < TIMESTAMP '2007-08-01'",
                f"{name}::date >= DATE '2007-06-01'",
                f"{name} + INTERVAL '30 days' > TIMESTAMP '2007-06-01 00:00:00'",
                f"year({name}) = 2007",
                f"CAST({name} AS DATE) = DATE '2007-06-01'",
            ]
        if _is_number(type):
            choices += [
                f"{name} % 2 = 1" if pa.types.is_integer(type) else f"abs({name}) < 4",
                f"{name} + {self.integer()} > {value}",
                f"CAST({name} AS VARCHAR) LIKE '1%'",
                f"round({name} / 2, 1) < 2",
                f"{name}::double = {value}",
            ]
        return self._random.choice(choices)

    def expression(self, table: str, prefix: str = "") -> str:
        """Return a computed column."""
        column = self.column(table)
        type, name = TABLES[table][column], prefix + column
        value = self.literal(table, column)
        choices = [
            name,
            f"coalesce({name}, {value})",
            f"nullif({name}, {value})",
            f"CASE WHEN {self.predicate(table, prefix, 0)} THEN {name} END",
            f"CASE {name} WHEN {value} THEN 'first' ELSE 'other' END",
            f"CAST({name} AS VARCHAR)",
            f"({self.predicate(table, prefix, 0)})",
            f"{name} IS NULL",
        ]
        if pa.types.is_string(type):
            choices += [
                f"{name} || '-' || {value}", f"concat({name}, '/', 1)", f"upper({name})",
                f"substr({name}, 2, 3)", f"replace({name}, 'a', 'b')", f"left({name}, 2)",
                f"length({name})", f"position('A' IN {name})", f"lpad({name}, 4, '*')",
                f"concat_ws(',', {name}, 'x')", f"trim(BOTH 'a' FROM {name})",
                f"split_part({name}, '_', 1)", f"regexp_replace({name}, '[aeiou]', '')",
            ]  # fmt: skip
        if pa.types.is_timestamp(type):
            choices += [
                f"extract(year FROM {name})", f"date_trunc('day', {name})", f"{name}::date",
                f"month({name})", f"{name} - INTERVAL 1 DAY", f"date_diff('day', {name}, {value})",
                f"strftime({name}, '%Y-%m')", f"dayname({name})", f"last_day({name})",
            ]  # fmt: skip
        if _is_number(type):
            choices += [
                f"{name} + 1", f"{name} * 2 - {self.integer()}", f"-{name}", f"abs({name})",
                f"round({name}, 1)", f"{name} / 3", f"floor({name})", f"{name}::double",
                f"CAST({name} AS DECIMAL(10, 1))", f"greatest({name}, 1, 2)", f"sign({name})",
                f"CAST({name} AS BIGINT)",
            ]  # fmt: skip
        return self._random.choice(choices)

    def aggregate(self, table: str, prefix: str = "") -> str:
        name = self._random.choice(_AGGREGATES)
        column = prefix + self.number(table)
        distinct = "DISTINCT " if self._random.random() < 0.15 else ""
        filter_clause = ""
        if self._random.random() < 0.15:
            filter_clause = f" FILTER (WHERE {self.predicate(table, prefix, 0)})"
        text = f"{prefix}{self.column(table, pa.types.is_string)}::varchar"
        choices = [
            f"{name}({distinct}{column}){filter_clause}",
            f"count(*){filter_clause}",
            f"sum(CASE WHEN {self.predicate(table, prefix, 0)} THEN 1 ELSE 0 END)",
            f"coalesce(sum({column}), 0)",
            f"max({column}) - min({column})",
            f"string_agg({text}, ',' ORDER BY {text})",
            f"stddev_samp({column}::double)",
            f"median({column})",
            f"bool_or({self.predicate(table, prefix, 0)})",
            f"count_if({self.predicate(table, prefix, 0)})",
            f"min({prefix}{self.column(table)})",
        ]
        weights = [12, 5, 2, 2, 1, 1, 1, 1, 1, 1, 3]
        return self._random.choices(choices, weights)[0]

    def on(self, columns: tuple[tuple[str, str], ...], left: str, right: str) -> str:
        return " AND ".join(f"{left}.{a} = {right}.{b}" for a, b in columns)

    def where(self, table: str, prefix: str = "") -> str:
        return f" WHERE {self.predicate(table, prefix)}" if self._random.random() < 0.6 else ""

    # Shapes.

    def selection(self) -> str:
        table = self.table()
        items = ", ".join(f"{self.expression(table)} AS x{n}" for n in range(2))
        return f"SELECT {items} FROM {table} WHERE {self.predicate(table, depth=2)}"

    def distinct(self) -> str:
        table = self.table()
        return (
            f"SELECT DISTINCT {', '.join(self.some_columns(table))} FROM {table}{self.where(table)}"
        )

    def grouping(self) -> str:
        table = self.table()
        keys = self.some_columns(table, 2)
        having = f" HAVING {self.aggregate(table)} IS NOT NULL" if self.integer() < 2 else ""
        by = self.pick(", ".join(keys), "ALL", ", ".join(str(n + 1) for n in range(len(keys))))
        return (
            f"SELECT {', '.join(keys)}, {self.aggregate(table)} AS a1, {self.aggregate(table)} a2 "
            f"FROM {table}{self.where(table)} GROUP BY {by}{having}"
        )

    def aggregate_of_all(self) -> str:
        table = self.table()
        return (
            f"SELECT {self.aggregate(table)} AS a, {self.aggregate(table)} FROM {table}"
            f"{self.where(table)}"
        )

    def group_by_expression(self) -> str:
        table = self.table()
        return (
            f"SELECT {self.expression(table)} AS k, {self.aggregate(table)} AS n FROM {table} "
            f"GROUP BY {self.pick('k', '1')} HAVING {self.pick('count(*) > 1', 'n IS NOT NULL')} "
            f"ORDER BY {self.pick('k', '2 DESC', 'n', 'count(*)')}"
        )

    def grouping_sets(self) -> str:
        table = self.table()
        keys = self.some_columns(table, 3)
        names = ", ".join(keys)
        by = self.pick(f"ROLLUP ({names})", f"CUBE ({names})", f"GROUPING SETS (({names}), ())",
                       f"ROLLUP ({keys[0]}), {keys[-1]}")  # fmt: skip
        extra = f", grouping({keys[0]}) AS g" if self.integer() < 3 else ""
        return f"SELECT {names}{extra}, {self.aggregate(table)} AS a FROM {table} GROUP BY {by}"

    def join(self) -> str:
        left, right, columns = self.link()
        kind = self.pick("JOIN", "INNER JOIN", "LEFT JOIN", "LEFT OUTER JOIN", "RIGHT JOIN",
                         "FULL OUTER JOIN", "FULL JOIN")  # fmt: skip
        on = self.on(columns, "a", "b")
        if self.integer() < 3:
            on += f" AND {self.predicate(self.pick(left), 'a.', 0)}"
        if self.integer() < 2:
            on += f" AND {self.predicate(right, 'b.', 0)}"
        return (
            f"SELECT a.{self.column(left)}, {self.expression(right, 'b.')} AS y "
            f"FROM {left} AS a {kind} {right} b ON {on}{self.where(left, 'a.')}"
        )

    def join_by_inequality(self) -> str:
        left, right, _ = self.link()
        a, b = self.number(left), self.number(right)
        kind = self.pick("JOIN", "LEFT JOIN", "FULL JOIN", "RIGHT JOIN")
        return (
            f"SELECT a.{self.column(left)}, b.{self.column(right)} FROM {left} a {kind} {right} b "
            f"ON a.{a} {self.pick('<', '>=', '<>')} b.{b} AND b.{b} IS NOT NULL"
        )

    def join_three(self) -> str:
        left, middle, columns = self.link()
        others = [pair for pair in _LINKS if pair[0] == middle] or [("stock", "item")]
        pair = self._random.choice(others)
        if pair[0] != middle:
            left, middle, columns = "order_line", "stock", _LINKS["order_line", "stock"]
        kinds = [self.pick("JOIN", "LEFT JOIN", "FULL JOIN", "RIGHT JOIN") for _ in range(2)]
        return (
            f"SELECT a.{self.column(left)} p, b.{self.column(middle)} q, c.{self.column(pair[1])} r"
            f" FROM {left} a {kinds[0]} {middle} b ON {self.on(columns, 'a', 'b')} {kinds[1]} "
            f"{pair[1]} c ON {self.on(_LINKS[pair], 'b', 'c')}{self.where(middle, 'b.')}"
        )

    def join_by_comma(self) -> str:
        left, right, columns = self.link()
        by = self.column(left)
        return (
            f"SELECT {by}, {self.aggregate(right)} AS n FROM {left}, {right} WHERE "
            f"{' AND '.join(f'{a} = {b}' for a, b in columns)} AND {self.predicate(left)} "
            f"GROUP BY {by}"
        )

    def natural_join(self) -> str:
        left, right, columns = self.link()
        names = ", ".join(f"k{n}" for n in range(len(columns)))
        queries = [
            f"(SELECT {', '.join(f'{pair[side]} AS k{n}' for n, pair in enumerate(columns))}, "
            f"{self.column(table)} AS {alias} FROM {table}{self.where(table)})"
            for side, (table, alias) in enumerate([(left, "u"), (right, "v")])
        ]
        kind = self.pick("", "LEFT ", "FULL ", "RIGHT ", "INNER ")
        if self.integer() < 3:
            return f"SELECT * FROM {queries[0]} a NATURAL {kind}JOIN {queries[1]} b"
        items = self.pick("*", f"{names}, u, v", "a.u, b.*", f"{names}, count(*)")
        by = f" GROUP BY {names}" if "count" in items else ""
        return f"SELECT {items} FROM {queries[0]} a {kind}JOIN {queries[1]} b USING ({names}){by}"

    def cross_join(self) -> str:
        return (
            f"SELECT w_id, {self.column('district')} FROM warehouse CROSS JOIN district "
            f"WHERE {self.predicate('district')}"
        )

    def self_join(self) -> str:
        table = self.table()
        column = self.column(table)
        return (
            f"SELECT x.{self.column(table)}, y.{self.column(table)} FROM {table} x "
            f"{self.pick('JOIN', 'LEFT JOIN')} {table} y ON x.{column} = y.{column} "
            f"AND {self.predicate(table, 'y.', 0)}"
        )

    def semi_join(self) -> str:
        left, right, columns = self.link()
        return (
            f"SELECT {self.column(left)} FROM {left} {self.pick('SEMI', 'ANTI')} JOIN {right} ON "
            f"{' AND '.join(f'{a} = {b}' for a, b in columns)}"
        )

    def set_operation(self) -> str:
        left, right, columns = self.link()
        a, b = columns[0]
        operators = ("UNION", "UNION ALL", "EXCEPT", "INTERSECT", "EXCEPT ALL", "INTERSECT ALL")
        parts = [
            f"SELECT {a} FROM {left}{self.where(left)}",
            f"SELECT {b} FROM {right}{self.where(right)}",
            f"SELECT {a} FROM {left} WHERE {self.predicate(left)}",
        ]
        text = f"{parts[0]} {self.pick(*operators)} {parts[1]}"
        if self.integer() < 3:
            text = self.pick(f"({text}) {self.pick(*operators)} {parts[2]}",
                             f"{parts[2]} {self.pick(*operators)} ({text})",
                             f"{text} {self.pick(*operators)} {parts[2]}")  # fmt: skip
        if self.integer() < 2:
            text = f"{text} ORDER BY 1 LIMIT {self.integer() + 1}"
        if self.integer() < 2:
            text = f"SELECT {a}, count(*) FROM ({text}) AS t GROUP BY {a}"
        return text

    def union_by_name(self) -> str:
        return (
            f"SELECT c_id AS id, c_last AS name FROM customer{self.where('customer')} "
            f"UNION {self.pick('', 'ALL ')}BY NAME SELECT d_name AS name, d_id AS id FROM district"
        )

    def exists(self) -> str:
        left, right, columns = self.link()
        on = " AND ".join(f"a.{x} = b.{y}" for x, y in columns)
        condition = (
            f"{self.pick('', 'NOT ')}EXISTS (SELECT {self.pick('1', '*')} FROM {right} b WHERE "
            f"{on} AND {self.predicate(right, 'b.', 0)})"
        )
        if self.integer() < 3:
            condition = f"({condition} {self.pick('OR', 'AND')} {self.predicate(left, 'a.', 0)})"
        if self.integer() < 2:
            return f"SELECT a.{self.column(left)}, {condition} AS e FROM {left} a"
        return f"SELECT {self.column(left)} FROM {left} a WHERE {condition}"

    def in_subquery(self) -> str:
        left, right, ((x, y), *_) = self.link()
        inner = f"SELECT {y} FROM {right}{self.where(right)}"
        if self.integer() < 2:
            inner = f"SELECT {y} FROM {right} GROUP BY {y} HAVING {self.aggregate(right)} > 1"
        return (
            f"SELECT {self.column(left)}, {self.column(left)} FROM {left} "
            f"WHERE {x} {self.pick('', 'NOT ')}IN ({inner}) {self.pick('AND', 'OR')} "
            f"{self.predicate(left, depth=0)}"
        )

    def in_pairs(self) -> str:
        return (
            "SELECT o_id FROM oorder WHERE (o_d_id, o_w_id) "
            f"{self.pick('', 'NOT ')}IN (SELECT d_id, d_w_id FROM district{self.where('district')})"
        )

    def quantified(self) -> str:
        left, right, ((x, y), *_) = self.link()
        return (
            f"SELECT {self.column(left)} FROM {left} WHERE {x} {self.pick('=', '>', '<=', '<>')} "
            f"{self.pick('ANY', 'ALL', 'SOME')} (SELECT {y} FROM {right}{self.where(right)})"
        )

    def scalar_subquery(self) -> str:
        left, right, columns = self.link()
        on = " AND ".join(f"a.{x} = b.{y}" for x, y in columns)
        if self.integer() < 2:
            on = f"a.{columns[0][0]} {self.pick('<', '>=')} b.{columns[0][1]}"
        inner = f"(SELECT {self.aggregate(right, 'b.')} FROM {right} b WHERE {on})"
        if self.integer() < 2:
            inner = f"(SELECT {self.aggregate(right)} FROM {right})"
        return f"SELECT {self.column(left)}, {inner} AS s FROM {left} a{self.where(left, 'a.')}"

    def scalar_subquery_in_where(self) -> str:
        left, right, columns = self.link()
        on = " AND ".join(f"a.{x} = b.{y}" for x, y in columns)
        number = self.number(right)
        return (
            f"SELECT {self.column(left)} FROM {left} a WHERE a.{self.number(left)} "
            f"{self.pick('<', '>', '<=')} (SELECT {self.pick('avg', 'max', 'sum')}(b.{number}) "
            f"FROM {right} b WHERE {on})"
        )

    def subquery_in_having(self) -> str:
        table, other = self.table(), self.table()
        key, number = self.column(table), self.number(other)
        return (
            f"SELECT {key}, count(*) AS n FROM {table} GROUP BY {key} HAVING count(*) > "
            f"(SELECT {self.pick('avg', 'min')}({number}) FROM {other}) "
            f"{self.pick('OR', 'AND')} {key} IN (SELECT {key} FROM {table})"
        )

    def subquery_in_order(self) -> str:
        left, right, ((x, y), *_) = self.link()
        return (
            f"SELECT a.{x} FROM {left} a ORDER BY (SELECT count(*) FROM {right} b "
            f"WHERE b.{y} = a.{x}) {self.pick('', 'DESC')}, 1 LIMIT 5"
        )

    def nested_correlation(self) -> str:
        return (
            "SELECT c_id FROM customer c WHERE EXISTS (SELECT 1 FROM oorder o WHERE "
            f"o.o_c_id = c.c_id AND {self.pick('', 'NOT ')}EXISTS (SELECT 1 FROM order_line l "
            f"WHERE l.ol_o_id = o.o_id AND {self.pick('l.ol_d_id = c.c_d_id AND ', '')}"
            f"{self.predicate('order_line', 'l.', 0)}))"
        )

    def correlated_in_select_and_case(self) -> str:
        return (
            "SELECT o_id, CASE WHEN (SELECT count(*) FROM order_line WHERE ol_o_id = o_id) > "
            f"{self.integer()} THEN (SELECT max(ol_amount) FROM order_line WHERE ol_o_id = o_id "
            f"AND ol_number < o_ol_cnt) ELSE 0 END AS v FROM oorder{self.where('oorder')}"
        )

    def lateral(self) -> str:
        left, right, columns = self.link()
        on = " AND ".join(f"b.{y} = a.{x}" for x, y in columns)
        column = self.column(right)
        inner = self.pick(
            f"SELECT {self.aggregate(right, 'b.')} AS s FROM {right} b WHERE {on}",
            f"SELECT b.{column} AS s FROM {right} b WHERE {on} ORDER BY 1 LIMIT 2",
        )
        kind = self.pick(", LATERAL", "CROSS JOIN LATERAL", "LEFT JOIN LATERAL")
        on = " ON TRUE" if kind.startswith("LEFT") else ""
        return f"SELECT a.{self.column(left)}, s FROM {left} a {kind} ({inner}) t{on}"

    def top(self) -> str:
        table = self.table()
        names = self.some_columns(table)
        limit = self.pick("LIMIT 3", "LIMIT 4 OFFSET 2", "FETCH FIRST 3 ROWS ONLY", "OFFSET 3",
                          "OFFSET 1 ROWS FETCH NEXT 2 ROWS ONLY", "LIMIT 2 + 1")  # fmt: skip
        directions = [
            f"{n + 1} {self.pick('ASC', 'DESC', '')} {self.pick('NULLS FIRST', 'NULLS LAST', '')}"
            for n in range(len(names))
        ]
        by = self.pick(", ".join(directions), ", ".join(names), "ALL")
        distinct = self.pick("", "DISTINCT ")
        return (
            f"SELECT {distinct}{', '.join(names)} FROM {table}{self.where(table)} "
            f"ORDER BY {by} {limit}"
        )

    def top_of_groups(self) -> str:
        table = self.table()
        key = self.column(table)
        return (
            f"SELECT {key} AS k, {self.aggregate(table)} AS n FROM {table} GROUP BY {key} "
            f"ORDER BY n {self.pick('DESC', '')}, k LIMIT {self.integer() + 1}"
        )

    def limit_in_subquery(self) -> str:
        left, right, ((x, y), *_) = self.link()
        return (
            f"SELECT {x}, count(*) FROM {left} WHERE {x} IN (SELECT {y} FROM {right} ORDER BY {y} "
            f"LIMIT {self.integer() + 2}) GROUP BY {x}"
        )

    def distinct_on(self) -> str:
        key, number = self.pick("c_w_id", "c_d_id", "c_state"), self.pick("c_balance", "c_last")
        return (
            f"SELECT DISTINCT ON ({key}) {key}, c_id, {number} FROM customer "
            f"ORDER BY {key}, {number} {self.pick('', 'DESC')}, c_id"
        )

    def window(self) -> str:
        table = self.pick("customer", "oorder", "item")
        key, number = self.column(table), self.number(table)
        unique = next(iter(TABLES[table]))
        order = f"PARTITION BY {key} ORDER BY {number} {self.pick('', 'DESC')}, {unique}"
        function = self.pick(
            "row_number()", "rank()", "dense_rank()", f"lag({number})", f"lead({number}, 2, 0)",
            f"sum({number})", f"avg({number})", f"first_value({number})", "ntile(3)",
            f"last_value({number})", "percent_rank()", "count(*)", f"min({number})",
        )  # fmt: skip
        if function.startswith(("sum", "avg", "min", "count")):
            order += self.pick("", " ROWS BETWEEN 1 PRECEDING AND CURRENT ROW",
                               " ROWS UNBOUNDED PRECEDING")  # fmt: skip
        text = f"SELECT {unique}, {function} OVER ({order}) AS w FROM {table}{self.where(table)}"
        return self.pick(text, f"SELECT * FROM ({text}) WHERE w > 1", f"{text} QUALIFY w <= 2")

    def window_of_all(self) -> str:
        table = self.table()
        number, key = self.number(table), self.column(table)
        over = self.pick("()", f"(PARTITION BY {key})", "w")
        window_clause = f" WINDOW w AS (PARTITION BY {key})" if over == "w" else ""
        return (
            f"SELECT {self.column(table)}, {self.pick('sum', 'max', 'count', 'avg')}({number}) "
            f"OVER {over} AS x FROM {table}{window_clause}"
        )

    def window_of_groups(self) -> str:
        table = self.table()
        key = self.column(table)
        return (
            f"SELECT {key}, count(*) AS n, {self.pick('rank', 'dense_rank')}() OVER "
            f"(ORDER BY count(*) DESC) AS r, sum(count(*)) OVER () AS total FROM {table} "
            f"GROUP BY {key}"
        )

    def common_tables(self) -> str:
        left, right, ((x, y), *_) = self.link()
        return (
            f"WITH a AS (SELECT * FROM {left}{self.where(left)}), "
            f"b{self.pick('(k, n)', '')} AS {self.pick('', 'MATERIALIZED ', 'NOT MATERIALIZED ')}"
            f"(SELECT {y} AS k, count(*) AS n FROM {right} GROUP BY {y}) "
            f"SELECT a.{self.column(left)}, b.n FROM a {self.pick('JOIN', 'LEFT JOIN')} b "
            f"ON a.{x} = b.k WHERE {self.pick('b.n > 1', 'b.n IS NULL', 'TRUE')}"
        )

    def nested_common_tables(self) -> str:
        table = self.table()
        key = self.column(table)
        return (
            f"WITH outer_one AS (WITH inner_one AS (SELECT {key} AS k FROM {table}"
            f"{self.where(table)}) SELECT k, count(*) AS n FROM inner_one GROUP BY k), "
            f"other AS (SELECT max(n) AS most FROM outer_one) SELECT k FROM outer_one, other "
            f"WHERE n = most UNION ALL SELECT k FROM (WITH x AS (FROM outer_one) SELECT k FROM x)"
        )

    def derived_table(self) -> str:
        table = self.table()
        names = self.some_columns(table, 2)
        aliases = [f"c{n}" for n in range(len(names))]
        return (
            f"SELECT {aliases[0]}, count(*) FROM (SELECT {', '.join(names)} FROM {table}"
            f"{self.where(table)}) AS t({', '.join(aliases)}) GROUP BY {aliases[0]} "
            f"HAVING count(*) >= 1"
        )

    def table_aliases(self) -> str:
        names = ["w", "nm", "ct"]
        return (
            f"SELECT x.w, upper(nm) FROM warehouse AS x({', '.join(names)}) WHERE "
            f"x.ct {self.pick('=', '<>')} 'BAR' OR w_tax > 0.1"
        )

    def values(self) -> str:
        return self.pick(
            "SELECT w_name, v.label FROM warehouse JOIN (VALUES (1, 'one'), (2, 'two')) AS "
            "v(id, label) ON v.id = w_id",
            "VALUES (1, 'a'), (2, NULL)",
            "SELECT * FROM (VALUES (1), (2)) t(n) LEFT JOIN district ON d_id = n",
            "SELECT c_id FROM customer WHERE (c_d_id, c_w_id) IN (VALUES (1, 1), (2, 3))",
            "SELECT c_id FROM customer WHERE (c_d_id, c_w_id) IN ((1, 1), (2, 3))",
            "WITH v(n) AS (VALUES (1), (3)) SELECT n, count(o_id) FROM v LEFT JOIN oorder "
            "ON o_d_id = n GROUP BY n",
        )

    def star(self) -> str:
        table = self.table()
        a, b = (self.columns(table)[0], self.number(table))
        text = self.columns(table, pa.types.is_string)[0]
        return self.pick(
            f"SELECT * EXCLUDE ({a}) FROM {table}{self.where(table)}",
            f"SELECT * EXCLUDE {a} FROM {table}",
            f"SELECT * REPLACE ({b} + 1 AS {b}) FROM {table}",
            f"SELECT * EXCLUDE ({a}) REPLACE ({b} * 2 AS {b}) FROM {table}"
            if a != b
            else f"SELECT t.* FROM {table} AS t",
            f"SELECT t.*, {b} + 1 AS more FROM {table} t",
            f"SELECT COLUMNS('.*_id') FROM {table}",
            f"SELECT max(COLUMNS(*)) FROM {table}",
            f"SELECT COLUMNS(c -> c LIKE '%_id') FROM {table}",
            f"SELECT min(COLUMNS(* EXCLUDE ({a}))) FROM {table}",
            f"SELECT * RENAME ({a} AS renamed) FROM {table}",
            f"SELECT * LIKE '%_id' FROM {table}",
            f"SELECT COLUMNS('(.)_id') AS 'x\\1' FROM {table}",
            f"FROM {table}{self.where(table)}",
            f"FROM {table} SELECT {text}, {b}",
            f"TABLE {table}",
            f"SELECT count(COLUMNS(*)) FROM {table}",
        )

    def names(self) -> str:
        table = self.table()
        a, b = self.column(table), self.number(table)
        return self.pick(
            f'SELECT "{a}" AS "A b", {b.upper()} AS "{b}" FROM {table.upper()}',
            f'SELECT T.{a.upper()} FROM "{table}" AS t WHERE t."{b}" > 1',
            f'SELECT "x y".{a} AS "select" FROM {table} "x y"',
            f"SELECT {table}.{a}, {table.title()}.{b} FROM {table}",
            f"SELECT {a} AS {b}, {b} AS z FROM {table} ORDER BY z, {b}",
            f"SELECT {a} first_name, {b} total FROM {table}",
            f"SELECT main.{table}.{a} FROM main.{table}",
            f"SELECT {b} AS v, v + 1 AS w FROM {table} WHERE v > 0",
            f"SELECT k: {a}, n: {b} FROM {table}",
            f"SELECT {a}, {b} + 1, count(*) FROM {table} GROUP BY {a}, {b}",
        )

    def alias_in_clauses(self) -> str:
        table = self.table()
        expression, number = self.expression(table), self.number(table)
        return (
            f"SELECT {expression} AS k, sum({number}) AS total FROM {table} GROUP BY k "
            f"HAVING total > {self.integer()} ORDER BY {self.pick('total', 'k', '-total')} "
            f"{self.pick('', 'DESC')}"
        )

    def distinct_aggregate(self) -> str:
        table = self.table()
        key = self.column(table)
        return (
            f"SELECT {key}, count(DISTINCT {self.column(table)}) AS d, "
            f"sum(DISTINCT {self.number(table)}), count(DISTINCT ({self.column(table)}, {key})) "
            f"FROM {table} GROUP BY {key}"
        )

    def aggregate_expression(self) -> str:
        table = self.table()
        key, a, b = self.column(table), self.number(table), self.number(table)
        return (
            f"SELECT {key}, round(sum({a})::double / nullif(count({b}), 0), 2) AS r, "
            f"CASE WHEN sum({b}) > 3 THEN 'high' ELSE 'low' END, max({a}) + min({b}) "
            f"FROM {table} GROUP BY {key}"
        )

    def aggregate_of_join(self) -> str:
        left, right, columns = self.link()
        kind = self.pick("JOIN", "LEFT JOIN", "FULL JOIN")
        return (
            f"SELECT b.{self.column(right)} AS k, {self.aggregate(left, 'a.')} AS n, "
            f"{self.aggregate(right, 'b.')} AS m FROM {left} a {kind} {right} b ON "
            f"{self.on(columns, 'a', 'b')} GROUP BY k"
        )

    def view_of_unions(self) -> str:
        return (
            "SELECT kind, count(*) AS n, sum(amount) AS total FROM (SELECT 'payment' AS kind, "
            f"h_amount AS amount FROM history{self.where('history')} UNION ALL SELECT 'line', "
            f"ol_amount FROM order_line{self.where('order_line')}) AS t GROUP BY ROLLUP (kind)"
        )

    def casts(self) -> str:
        table = self.table()
        number, text = self.number(table), self.columns(table, pa.types.is_string)[0]
        return (
            f"SELECT CAST({number} AS {self.pick('VARCHAR', 'DOUBLE', 'DECIMAL(20, 3)', 'REAL')}), "
            f"TRY_CAST({text} AS {self.pick('INTEGER', 'DATE', 'DOUBLE')}), "
            f"{number}::{self.pick('BIGINT', 'SMALLINT', 'TEXT', 'NUMERIC(18, 4)', 'FLOAT')} "
            f"FROM {table}"
        )

    def conditions(self) -> str:
        table = self.table()
        a, b = self.column(table), self.number(table)
        return self.pick(
            f"SELECT if({b} > 1, 'x', 'y'), ifnull({b}, 0) FROM {table}",
            f"SELECT {b} > 1 AND {a} IS NOT NULL, {b} IN (1, NULL) FROM {table}",
            f"SELECT CASE WHEN {b} BETWEEN SYMMETRIC 3 AND 1 THEN 1 END FROM {table}",
            f"SELECT ({a} IS NULL) = ({b} IS NULL), {b} <=> 1 FROM {table}",
            f"SELECT {a} IS NOT DISTINCT FROM NULL, NOT ({b} > 1) IS TRUE FROM {table}",
            f"SELECT {b} IS UNKNOWN FROM (SELECT {b} > 2 AS {b} FROM {table})",
        )


_PARTS: Final = (
    "pick", "table", "link", "columns", "column", "number", "some_columns", "integer", "literal",
    "pattern", "predicate", "expression", "aggregate", "on", "where",
)  # fmt: skip
#: The shapes by name, in the order of the class: its methods that do not write a part only.
SHAPES: Final[dict[str, Callable[[QueryWriter], str]]] = {
    name: method
    for name, method in vars(QueryWriter).items()
    if not name.startswith("_") and name not in _PARTS
}
