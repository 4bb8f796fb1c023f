"""SELECT, subqueries, set operations, top-k, recursion, and programs of views."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.generators.sql.choices import Column, Query, choose, differ
from tests.generators.sql.sources import Sources
from tests.generators.sql.windows import ORDERED


@dataclass(frozen=True)
class Program:
    """Views and a query over them, for the engine and for its oracle.

    Attributes:
        views: The names and texts of the views, in the order in which the oracle needs them.
        text: The statements of the engine, in any order.
        query: The last query, as the oracle is asked.
    """

    views: tuple[tuple[str, str], ...]
    text: str
    query: str


class Writer(Sources):
    """Writes whole programs."""

    def program(self) -> Program:
        if self.dialect == "duckdb" and self.chance(3):
            return self.mutually_recursive_views()
        views: list[tuple[str, str]] = []
        if self.chance(25):
            for number in range(self.pick([1, 1, 2])):
                self.count("view")
                query = self.query(1)
                self.tables[f"w{number}"] = {f"c{i}": kind for i, kind in enumerate(query.kinds)}
                views.append((f"w{number}", query.text))
        recurs = self.dialect == "duckdb" and self.chance(10)
        query = self.recursive_query() if recurs else self.query(2)
        statements = [f"CREATE VIEW {name} AS {text}" for name, text in self.shuffled(views)]
        if any("plus_one(" in statement for statement in [*statements, query.text]):
            function = "CREATE FUNCTION plus_one(x BIGINT) RETURNS BIGINT RETURN x + 1"
            statements.append(function)
        text = "; ".join([*statements, query.text])
        oracle_views = tuple((name, choose(text, 1)) for name, text in views)
        return Program(oracle_views, choose(text, 0), choose(query.text, 1))

    def query(self, depth: int) -> Query:
        """Write a query, perhaps a set operation or the first rows of one."""
        if depth and self.chance(15):
            return self.set_operation(depth)
        query = self.select(depth)
        kinds = query.kinds
        if all(kind in ORDERED for kind in kinds) and self.chance(12):
            self.count("top-k")
            order = ", ".join(
                f"c{i}{self.pick(['', ' DESC'])}{self.pick(['', '', ' NULLS FIRST'])}"
                for i in self.shuffled(range(len(kinds)))
            )
            limit = f"{self.pick([1, 2, 3, '40%'])}{self.pick(['', '', ' OFFSET 1'])}"
            alias = self.alias()
            return Query(
                f"SELECT * FROM ({query.text}) AS {alias} ORDER BY {order} LIMIT {limit}", kinds
            )
        if depth and self.chance(8):
            self.count("CTE")
            name = f"e{self.aliases}"
            self.tables[name] = {f"c{i}": kind for i, kind in enumerate(kinds)}
            outer, self.outer = self.outer, []
            body = self.select(depth - 1)
            self.outer = outer
            del self.tables[name]
            return Query(f"WITH {name} AS ({query.text}) {body.text}", body.kinds)
        return query

    def select(self, depth: int) -> Query:
        source, scope = self.source(depth)
        if self.chance(45):
            condition = self.condition(scope, depth)
            if self.chance(15):
                condition = f"{condition} AND {self.temporal_condition(scope)}"
            source = f"{source} WHERE {condition}"
        choice = self.integer(0, 99)
        if choice < 35:
            text, kinds = self.select_with_groups(source, scope)
        elif choice < 47:
            text, kinds = self.select_with_windows(source, scope)
        elif choice < 52 and self.dialect == "duckdb" and not self.outer:
            return self.distinct_on(source, scope)
        elif choice < 57:
            text, kinds = self.group_by_window()
        else:
            columns = [self.expression(scope, 2) for _ in range(self.pick([1, 2, 2, 3]))]
            # In Spark, IN (SELECT ...) as a value is false in place of NULL.
            if depth and self.chance(12) and self.dialect == "duckdb":
                columns.append(Column(self.exists(scope, depth), "bool"))
                self.count("subquery as a value")
            distinct = ""
            if self.chance(15) and Query("", tuple(c.kind for c in columns)).is_exact:
                distinct = "DISTINCT "
            items = ", ".join(f"{column.text} AS c{i}" for i, column in enumerate(columns))
            return Query(f"SELECT {distinct}{items} FROM {source}", tuple(c.kind for c in columns))
        return Query(text, tuple(kinds))

    def distinct_on(self, source: str, scope: Sequence[Column]) -> Query:
        self.count("DISTINCT ON")
        columns = self.orderable_columns(scope)
        columns = [self.pick(columns or [Column("1", "int")]) for _ in range(self.pick([2, 3]))]
        items = ", ".join(f"{column.text} AS c{i}" for i, column in enumerate(columns))
        key = self.pick(columns).text
        order = self.order(self.shuffled(columns))
        return Query(
            f"SELECT DISTINCT ON ({key}) {items} FROM {source} ORDER BY {order}",
            tuple(column.kind for column in columns),
        )

    def group_by_window(self) -> tuple[str, list[str]]:
        """Group a table by a time window in GROUP BY."""
        name = self.pick(n for n, kinds in self.tables.items() if "ts" in kinds.values())
        alias = self.alias()
        scope = [Column(f"{alias}.{c}", kind) for c, kind in self.tables[name].items()]
        time = self.pick(self.columns(scope, "ts"))
        form = self.pick(["TUMBLE", "HOP", "SESSION"])
        self.count(f"GROUP BY {form}")
        keys = [c for c in scope if c.kind in ("int", "text")]
        key = self.pick(keys) if keys and self.chance(70) else None
        if self.dialect == "spark":
            return self.group_by_spark_window(f"{name} AS {alias}", scope, form, time, key)
        second = "INTERVAL '{}' SECOND".format
        size = {"TUMBLE": second(10), "HOP": f"{second(4)}, {second(10)}", "SESSION": second(6)}[
            form
        ]
        calls = [self.aggregate(scope) for _ in range(self.pick([1, 2]))]
        calls.append(Column(differ(f"{form}_START({time}, {size})", "window_start"), "ts"))
        if self.chance(50):
            calls.append(Column(differ(f"{form}_END({time}, {size})", "window_end"), "ts"))
        time_name, key_name = (text.partition(".")[2] for text in (time, key.text if key else ""))
        source = differ(name, self.window_oracle(form, name, time_name, key_name))
        group = differ(f"{form}({time}, {size})", "window_start, window_end")
        if key:
            calls.append(key)
            group = f"{group}, {key.text}"
        items = ", ".join(f"{call.text} AS c{i}" for i, call in enumerate(calls))
        having = " HAVING count(*) > 1" if self.chance(20) else ""
        text = f"SELECT {items} FROM {source} AS {alias} GROUP BY {group}{having}"
        return text, [call.kind for call in calls]

    def group_by_spark_window(
        self, source: str, scope: Sequence[Column], form: str, time: str, key: Column | None
    ) -> tuple[str, list[str]]:
        call, field = f"window({time}, '10 seconds')", "window"
        if form == "HOP":
            call = f"window({time}, '10 seconds', '4 seconds')"
        elif form == "SESSION":
            call, field = f"session_window({time}, '6 seconds')", "session_window"
        calls = [
            self.aggregate(scope),
            Column(f"{field}.start", "ts"),
            Column(f"{field}.end", "ts"),
        ]
        if key:
            calls.append(key)
        items = ", ".join(f"{call.text} AS c{i}" for i, call in enumerate(calls))
        group = f"{call}, {key.text}" if key else call
        return f"SELECT {items} FROM {source} GROUP BY {group}", [call.kind for call in calls]

    def set_operation(self, depth: int) -> Query:
        """Combine two queries whose columns have the same kinds."""
        left = self.select(depth - 1)
        if not left.is_exact or ("map" in left.kinds and self.dialect == "spark"):
            return left
        source, scope = self.source(depth - 1)
        items = ", ".join(
            f"{self.value(scope, kind, 1)} AS c{i}" for i, kind in enumerate(left.kinds)
        )
        where = f" WHERE {self.condition(scope, depth - 1)}" if self.chance(50) else ""
        word = self.pick(
            ["UNION", "UNION ALL", "EXCEPT", "EXCEPT ALL", "INTERSECT", "INTERSECT ALL"]
        )
        self.count(f"set operation {word}")
        return Query(f"({left.text}) {word} SELECT {items} FROM {source}{where}", left.kinds)

    def value_query(self, kind: str, scope: Sequence[Column]) -> str | None:
        """Write a scalar subquery: an aggregate, or the first of some rows."""
        if kind not in ORDERED:
            return None
        before, self.outer = self.outer, [*self.outer, *scope]
        source, inner = self.source(0)
        where = f" WHERE {self.correlated_condition(inner, scope)}"
        if self.chance(70):
            self.count("scalar subquery, aggregate")
            call = self.aggregate(inner, exact=True)
            for _ in range(9):
                if call.kind == kind:
                    break
                call = self.aggregate(inner, exact=True)
            text = f"(SELECT {call.text} FROM {source}{where})" if call.kind == kind else None
        else:
            self.count("scalar subquery, top-1")
            value = self.value(inner, kind, 0)
            text = f"(SELECT {value} FROM {source}{where} ORDER BY 1 LIMIT 1)"
            if "." not in value:
                text = None
        self.outer = before
        return text

    def correlated_condition(self, inner: Sequence[Column], scope: Sequence[Column]) -> str:
        """Write a condition that compares columns of a subquery with those of its outer query."""
        pairs = [(a, b) for a in inner for b in scope if a.kind == b.kind and a.kind in ORDERED]
        parts = []
        if pairs and self.chance(80):
            self.count("correlated subquery")
            a, b = self.pick(pairs)
            parts.append(f"{a.text} {self.pick(['=', '=', '=', '<', '>=', '<>'])} {b.text}")
        if not parts or self.chance(40):
            parts.append(self.comparison(inner))
        return " AND ".join(parts)

    def exists(self, scope: Sequence[Column], depth: int) -> str:
        """Write a condition with a subquery, perhaps with a further one inside."""
        before, self.outer = self.outer, [*self.outer, *scope]
        choice = self.pick(["exists", "exists", "in", "quantified", "row in", "scalar"])
        choice = "in" if choice == "quantified" and self.dialect == "spark" else choice
        negated = self.pick(["", "", "NOT "])
        if choice in ("in", "row in") and self.dialect == "spark":
            negated = ""  # Spark takes NULL NOT IN (SELECT ...) as true beside OR
        kind = self.pick(sorted({c.kind for c in scope} & set(ORDERED)) or ["int"])
        if choice == "scalar":
            self.outer = before
            text = self.value_query(kind, scope)
            other = self.value(scope, kind, 0)
            if text is None:
                return self.comparison(scope)
            return f"({other} {self.pick(['=', '<>', '<', '>='])} {text})"
        if choice == "row in":  # DuckDB has no correlated ones
            self.outer = []
        source, inner = self.source(0)
        where = f" WHERE {self.correlated_condition(inner, scope)}" if self.chance(75) else ""
        if choice == "row in":
            where = where and f" WHERE {self.comparison(inner)}"
        elif where and depth > 1 and self.chance(40):
            self.count("nested subquery")
            where = f"{where} AND {self.exists(inner, depth - 1)}"
        if self.chance(10):
            alias = self.alias()
            where = f"{where} {self.pick(['UNION ALL', 'EXCEPT'])} SELECT {{}} FROM t AS {alias}"
        other = {kind: self.literal(kind) for kind in ("int", "text", kind)}
        self.count(f"subquery {choice}")
        if choice == "exists":
            text = f"{negated}EXISTS (SELECT 1 FROM {source}{where.replace('{}', '1')})"
        elif choice == "in":
            left, item = self.value(scope, kind, 0), self.value(inner, kind, 0)
            where = where.replace("{}", other[kind])
            text = f"({left} {negated}IN (SELECT {item} FROM {source}{where}))"
        elif choice == "row in":
            left = f"({self.value(scope, 'int', 0)}, {self.value(scope, kind, 0)})"
            items = f"{self.value(inner, 'int', 0)}, {self.value(inner, kind, 0)}"
            where = where.replace("{}", f"{other['int']}, {other[kind]}")
            text = f"({left} {negated}IN (SELECT {items} FROM {source}{where}))"
        else:
            word = self.pick(["= ANY", "< ANY", "<> ALL", ">= ALL", "> ANY", "<= ALL"])
            left, item = self.value(scope, kind, 0), self.value(inner, kind, 0)
            where = where.replace("{}", other[kind])
            text = f"({negated}({left} {word} (SELECT {item} FROM {source}{where})))"
        self.outer = before
        return text

    def edges(self) -> str:
        """Write a query for the pairs of integers x and y in the rows of a query."""
        query = self.query(1)
        for _ in range(20):
            if query.kinds.count("int") >= 2:
                break
            query = self.query(1)
        else:
            query = Query("SELECT a AS c0, b AS c1 FROM t", ("int", "int"))
        first, second = [i for i, kind in enumerate(query.kinds) if kind == "int"][:2]
        return f"SELECT c{first} AS x, c{second} AS y FROM ({query.text}) AS e"

    def mutually_recursive_views(self) -> Program:
        """Write two views that name each other; DuckDB has one view with a column that says which.

        Only values below 9 are followed, so that the views are finite.
        """
        self.count("mutual recursion")
        edges = self.edges()
        query = self.pick(["SELECT n FROM even", "SELECT n FROM odd EXCEPT SELECT n FROM even"])
        step = "SELECT e.y AS n FROM {0} JOIN ({1}) AS e ON {0}.n = e.x WHERE e.y < 9"
        views = [
            f"CREATE RECURSIVE VIEW even AS SELECT 0 AS n UNION {step.format('odd', edges)}",
            f"CREATE RECURSIVE VIEW odd AS {step.format('even', edges)}",
        ]
        pairs = (
            "WITH RECURSIVE pairs(odd, n) AS (SELECT 0, 0 UNION SELECT 1 - odd, e.y FROM pairs "
            f"JOIN ({edges}) AS e ON pairs.n = e.x WHERE e.y < 9), "
            "even AS (SELECT n FROM pairs WHERE odd = 0), "
            "odd AS (SELECT n FROM pairs WHERE odd = 1) "
        )
        if "plus_one(" in edges:
            views.append("CREATE MACRO plus_one(x BIGINT) AS x + 1")
        text = "; ".join([*self.shuffled(views), query])
        return Program((), choose(text, 0), choose(pairs + query, 1))

    def recursive_query(self) -> Query:
        """Write a recursion over pairs of integers."""
        source = f"edges AS ({self.edges()})"
        self.count("WITH RECURSIVE")
        union = self.pick(["UNION", "UNION", "UNION ALL"])
        scope = [Column("r.y", "int"), Column("g.x", "int"), Column("g.y", "int")]
        where = f" AND {self.recursive_comparison(scope)}" if self.chance(40) else ""
        where += self.pick(
            ["", " AND g.y IN (SELECT a FROM t)", " AND EXISTS (SELECT 1 FROM u WHERE u.a = g.x)"]
        )
        if union == "UNION" and self.chance(60):
            step = f"SELECT r.x, g.y, 0 FROM r JOIN edges g ON r.y = g.x{where}"
        else:
            step = f"SELECT r.x, g.y, r.n + 1 FROM r JOIN edges g ON r.y = g.x AND r.n < 2{where}"
        text = f"WITH RECURSIVE {source}, r(x, y, n) AS (SELECT x, y, 0 FROM edges {union} {step}) "
        columns = [Column(f"r.{name}", "int") for name in ("x", "y", "n")]
        if self.chance(50):
            body, kinds = self.select_with_groups("r", columns)
            return Query(f"{text}{body}", tuple(kinds))
        return Query(f"{text}SELECT x AS c0, y AS c1, n AS c2 FROM r", ("int",) * 3)

    def recursive_comparison(self, scope: Sequence[Column]) -> str:
        """Write a comparison without LIMIT, which a query over a recursion may not correlate."""
        while "LIMIT" in (text := self.comparison(scope)):
            pass
        return text
