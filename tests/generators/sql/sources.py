"""FROM: joins, ASOF and interval joins, time windows, UNNEST, LATERAL, PIVOT and UNPIVOT."""

from __future__ import annotations

from collections.abc import Sequence

from tests.generators.sql.aggregates import Aggregates
from tests.generators.sql.choices import KINDS, Column, differ

EPOCH = "TIMESTAMP '1970-01-01'"


class Sources(Aggregates):
    """Writes the FROM clause."""

    def source(self, depth: int) -> tuple[str, list[Column]]:
        """Return the text after FROM, and the columns that it brings into scope."""
        text, scope = self.table(depth)
        for _ in range(self.pick([0, 0, 1, 1, 1, 2])):
            choice = self.integer(0, 99)
            if choice < 8 and self.dialect == "duckdb":
                text, added = self.unnest(text, scope)
            elif choice < 18 and depth and self.dialect == "duckdb":
                text, added = self.lateral_join(text, scope)
            elif choice < 26 and self.dialect == "duckdb":
                text, scope, added = self.asof_join(depth)
            else:
                other, added = self.table(depth)
                if depth and self.chance(15):
                    third, third_columns = self.table(depth)
                    kind = self.pick(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
                    condition = self.join_condition(added, third_columns, 0)
                    other = f"({other} {kind} {third} ON {condition})"
                    added = added + third_columns
                text = self.join(text, scope, other, added, depth)
            scope = scope + added
        return text, scope

    def join(
        self, text: str, scope: list[Column], other: str, added: list[Column], depth: int
    ) -> str:
        """Write the join of ``text`` (columns ``scope``) with the table ``other`` (``added``).

        A semijoin or antijoin changes both lists in place: it renames the columns of ``scope``
        and removes those of ``added``.
        """
        kind = self.pick(
            [",", "JOIN", "JOIN", "JOIN", "LEFT JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]
        )
        self.count(f"join {kind}")
        if kind == ",":
            return f"{text} CROSS JOIN {other}"
        if self.chance(8):
            self.count("semi and anti join")
            join = self.pick([" SEMI JOIN", " ANTI JOIN"])
            condition = self.join_condition(scope, added, 0)
            alias = self.alias()
            select_list = ", ".join(f"{c.text} AS d{i}" for i, c in enumerate(scope))
            inner = f"(SELECT {select_list} FROM {text}{join} {other} ON {condition}) AS {alias}"
            added[:] = []
            scope[:] = [Column(f"{alias}.d{i}", c.kind) for i, c in enumerate(scope)]
            return inner
        depth = depth if self.chance(20) else 0
        if self.dialect == "spark" and kind != "JOIN":
            depth = 0  # Spark takes NULL NOT IN (SELECT ...) as true in ON of an outer join
        return f"{text} {kind} {other} ON {self.join_condition(scope, added, depth)}"

    def table(self, depth: int) -> tuple[str, list[Column]]:
        """Return one operand of a join: a table, a view, or a query of some form."""
        alias = self.alias()
        choice = self.integer(0, 99)
        if depth and choice < 14:
            query = self.query(depth - 1)
            columns = [Column(f"{alias}.c{i}", kind) for i, kind in enumerate(query.kinds)]
            return f"({query.text}) AS {alias}", columns
        if depth and choice < 20 and self.dialect == "duckdb":
            return self.time_window(alias, depth)
        if choice < 26 and self.dialect == "duckdb":
            return self.pivot(alias)
        name = self.pick(self.tables)
        columns = self.tables[name].items()
        return f"{name} AS {alias}", [Column(f"{alias}.{c}", kind) for c, kind in columns]

    def join_condition(self, left: Sequence[Column], right: Sequence[Column], depth: int) -> str:
        """Write a condition of ON; if ``depth`` is not 0, it contains a subquery."""
        pairs = [(a, b) for a in left for b in right if a.kind == b.kind and a.kind in KINDS[:7]]
        parts = []
        for _ in range(self.pick([1, 1, 1, 1, 1, 2]) if pairs else 0):
            a, b = self.pick(pairs)
            parts.append(f"{a.text} = {b.text}")
        times = [(a, b) for a, b in pairs if a.kind == "ts"]
        if times and self.chance(25) and self.dialect == "duckdb":
            self.count("interval join")
            parts = parts[: self.integer(0, 1)]
            a, b = self.pick(times)
            bounds = self.pick(
                ["{0} AND {0} + INTERVAL '10' SECOND", "{0} - INTERVAL 5 SECOND AND {0}"]
            )
            parts.append(f"{b.text} BETWEEN {bounds.format(a.text)}")
        if not parts or self.chance(20):
            parts.append(self.comparison([*left, *right]))
        if depth:
            self.count("subquery in ON")
            parts.append(self.exists([*left, *right], 1))
        return " AND ".join(parts)

    def unnest(self, text: str, scope: Sequence[Column]) -> tuple[str, list[Column]]:
        """Join a source with the elements of a list."""
        self.count("UNNEST")
        alias = self.alias()
        items = self.value(scope, "list", 1)
        if self.chance(35):
            self.count("WITH ORDINALITY")
            added = [Column(f"{alias}.x", "int"), Column(f"{alias}.o", "int")]
            return f"{text} CROSS JOIN UNNEST({items}) WITH ORDINALITY AS {alias}(x, o)", added
        added = [Column(f"{alias}.x", "int")]
        if self.chance(30):
            return f"{text} LEFT JOIN UNNEST({items}) AS {alias}(x) ON TRUE", added
        return f"{text} CROSS JOIN UNNEST({items}) AS {alias}(x)", added

    def lateral_join(self, text: str, scope: list[Column]) -> tuple[str, list[Column]]:
        """Join a source with a query that names its columns."""
        self.count("LATERAL")
        alias = self.alias()
        before, self.outer = self.outer, [*self.outer, *scope]
        query = self.query(0)
        self.outer = before
        added = [Column(f"{alias}.c{i}", kind) for i, kind in enumerate(query.kinds)]
        join = self.pick(
            [" CROSS JOIN LATERAL ({}) AS {}", " LEFT JOIN LATERAL ({}) AS {} ON TRUE"]
        )
        return text + join.format(query.text, alias), added

    def asof_join(self, depth: int) -> tuple[str, list[Column], list[Column]]:
        """Join a table with the nearest rows of another; their times are unique for each key."""
        self.count("ASOF join")
        left, scope = self.table(0)
        while not self.columns(scope, "ts"):
            left, scope = self.table(0)
        inner, rows = self.table(0)
        while not self.columns(rows, "ts"):
            inner, rows = self.table(0)
        alias, time = self.alias(), self.pick(self.columns(rows, "ts"))
        keys = [key for key in rows if key.kind in ("int", "text")]
        key = self.pick(keys) if keys and self.chance(80) else None
        outer, self.outer = self.outer, []  # an aggregate of outer columns only is refused
        value = self.exact_expression(rows, 0)
        self.outer = outer
        selected = f"{time} AS t, max({value.text}) AS v"
        if value.kind == "map":  # max() does not take maps
            selected, value = f"{time} AS t, count(*) AS v", Column("", "int")
        group, on = f"GROUP BY {time}", ""
        added = [Column(f"{alias}.t", "ts"), Column(f"{alias}.v", value.kind)]
        if key is not None:
            selected, group = f"{key.text} AS k, {selected}", f"{group}, {key.text}"
            partners = self.columns(scope, key.kind) or [self.literal(key.kind)]
            on = f"{self.pick(partners)} = {alias}.k AND "
            added.append(Column(f"{alias}.k", key.kind))
        operator = self.pick([">=", ">=", ">", "<=", "<"])
        join = self.pick(["ASOF JOIN", "ASOF LEFT JOIN"])
        condition = f"{on}{self.pick(self.columns(scope, 'ts'))} {operator} {alias}.t"
        right = f"(SELECT {selected} FROM {inner} {group}) AS {alias}"
        return f"{left} {join} {right} ON {condition}", scope, added

    def time_window(self, alias: str, depth: int) -> tuple[str, list[Column]]:
        """Return a table or a query with the columns of a tumbling, hopping or session window.

        ``data`` is the operand of the engine's window call, ``rows`` the same in the oracle's FROM.
        """
        if self.chance(50):
            query = self.query(depth - 1)
            while "ts" not in query.kinds:
                query = self.query(depth - 1)
            rows, data = f"({query.text})", f"({query.text})"
            columns = [Column(f"c{i}", kind) for i, kind in enumerate(query.kinds)]
        else:
            name = self.pick(n for n, kinds in self.tables.items() if "ts" in kinds.values())
            rows, data = name, f"TABLE {name}"
            columns = [Column(c, kind) for c, kind in self.tables[name].items()]
        time = self.pick(self.columns(columns, "ts"))
        form = self.pick(["TUMBLE", "HOP", "SESSION"])
        self.count(form)
        second = "INTERVAL '{}' SECOND".format
        keys = [c.text for c in columns if c.kind in ("int", "text")]
        key = self.pick(keys) if keys and self.chance(70) else ""
        size = {"TUMBLE": second(10), "HOP": f"{second(4)}, {second(10)}", "SESSION": second(6)}[
            form
        ]
        if form == "SESSION" and key:
            data = f"{data} PARTITION BY {key}"
        engine = f"TABLE({form}({data}, DESCRIPTOR({time}), {size}))"
        oracle = self.window_oracle(form, rows, time, key)
        bounds = [Column("window_start", "ts"), Column("window_end", "ts")]
        columns = [Column(f"{alias}.{column.text}", column.kind) for column in [*columns, *bounds]]
        return f"{differ(engine, oracle)} AS {alias}", columns

    def window_oracle(self, form: str, rows: str, time: str, key: str) -> str:
        """Write a query of DuckDB with the rows of a time window."""
        if form == "TUMBLE":
            bucket = f"time_bucket(INTERVAL 10 SECOND, {time}, {EPOCH})"
            return (
                f"(SELECT *, {bucket} AS window_start, {bucket} + INTERVAL 10 SECOND AS window_end "
                f"FROM {rows} WHERE {time} IS NOT NULL)"
            )
        if form == "HOP":
            bucket = f"time_bucket(INTERVAL 4 SECOND, {time}, {EPOCH}) - hop * INTERVAL 4 SECOND"
            return (
                f"(SELECT * EXCLUDE (hop) FROM (SELECT *, {bucket} AS window_start, "
                f"{bucket} + INTERVAL 10 SECOND AS window_end FROM {rows}, range(3) AS hops(hop) "
                f"WHERE {time} IS NOT NULL) WHERE {time} < window_end)"
            )
        partition = f"PARTITION BY {key} " if key else ""
        session = f"PARTITION BY {key}, session" if key else "PARTITION BY session"
        return (
            f"(SELECT * EXCLUDE (before, session), min({time}) OVER ({session}) AS window_start, "
            f"max({time}) OVER ({session}) + INTERVAL 6 SECOND AS window_end FROM (SELECT *, "
            f"count(CASE WHEN before IS NULL OR {time} - before > INTERVAL 6 SECOND THEN 1 END) "
            f"OVER ({partition}ORDER BY {time}) AS session FROM "
            f"(SELECT *, lag({time}) OVER ({partition}ORDER BY {time}) AS before FROM {rows} "
            f"WHERE {time} IS NOT NULL)))"
        )

    def pivot(self, alias: str) -> tuple[str, list[Column]]:
        """Return a PIVOT or UNPIVOT of two or three columns of a table."""
        outer, self.outer = self.outer, []  # a correlated query cannot be pivoted
        try:
            return self.uncorrelated_pivot(alias)
        finally:
            self.outer = outer

    def uncorrelated_pivot(self, alias: str) -> tuple[str, list[Column]]:
        """Return a PIVOT or UNPIVOT, drawn while no columns of enclosing queries are in scope."""
        rows, scope = self.table(0)
        key = self.exact_expression(
            [c for c in scope if c.kind in KINDS[:7]] or [Column("1", "int")], 0
        )
        values = [self.value(scope, "int", 0) for _ in range(2)]
        if self.chance(50):
            self.count("PIVOT")
            name = self.value(scope, "text", 0)
            call, kind = self.pick([("sum(v)", "int"), ("count(*)", "int"), ("max(v)", "int")])
            inner = f"SELECT {key.text} AS k, {name} AS n, {values[0]} AS v FROM {rows}"
            text = f"SELECT * FROM ({inner}) PIVOT ({call} FOR n IN ('x', 'y') GROUP BY k)"
            return f"({text}) AS {alias}(k, x, y)", [
                Column(f"{alias}.k", key.kind),
                Column(f"{alias}.x", kind),
                Column(f"{alias}.y", kind),
            ]
        self.count("UNPIVOT")
        inner = f"SELECT {key.text} AS k, {values[0]} AS v, {values[1]} AS w FROM {rows}"
        nulls = self.pick(["", " INCLUDE NULLS"])
        text = f"SELECT * FROM ({inner}) UNPIVOT{nulls} (x FOR n IN (v, w))"
        return f"({text}) AS {alias}(k, n, x)", [
            Column(f"{alias}.k", key.kind),
            Column(f"{alias}.n", "text"),
            Column(f"{alias}.x", "int"),
        ]
