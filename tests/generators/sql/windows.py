"""Window functions and their frames."""

from __future__ import annotations

from collections.abc import Sequence

from tests.generators.sql.choices import KINDS, Column
from tests.generators.sql.expressions import Expressions

#: Kinds that may be in an ORDER BY in both engines with the same order.
ORDERED = ("int", "real", "decimal", "text", "bool", "date", "ts")


class Windows(Expressions):
    """Writes calls of window functions."""

    def orderable_columns(self, scope: Sequence[Column]) -> list[Column]:
        return [column for column in scope if column.kind in ORDERED]

    def order(self, columns: Sequence[Column]) -> str:
        return ", ".join(
            f"{column.text}{self.pick(['', '', ' DESC'])}{self.pick(['', '', ' NULLS FIRST'])}"
            for column in columns
        )

    def key(self, column: Column) -> str:
        """Write a key of groups or partitions; a text may be without regard to case."""
        is_collated = column.kind == "text" and self.dialect == "duckdb" and self.chance(25)
        return f"{column.text}{self.collation()}" if is_collated else column.text

    def window_call(self, scope: Sequence[Column]) -> tuple[str, str, str]:
        """Return a call, its window, and the kind of its result.

        Functions that depend on the order of equal rows have an order of all columns, the same one
        in the whole SELECT: two orders may number two equal rows differently. There are none over
        rows with a column that cannot be in an order, such as a list.
        """
        self.count("window function")
        is_total = all(column.kind in ORDERED for column in scope)
        scope = self.orderable_columns(scope) or [Column("1", "int")]
        column = self.pick(scope)
        partition = f"PARTITION BY {self.key(self.pick(scope))} " if self.chance(60) else ""
        if not self.row_order:
            self.row_order = f"{partition}ORDER BY {self.order(self.shuffled(scope))}"
        all_columns = self.row_order
        keys = [self.pick(scope) for _ in range(self.pick([0, 1, 1, 2]))]
        window = f"{partition}ORDER BY {self.order(keys)}" if keys else partition
        forms = ["rank", "aggregate", "aggregate"]
        form = self.pick([*forms, "number", "neighbour", "value"] if is_total else forms)
        if form == "rank":
            name = self.pick(["rank", "dense_rank", "percent_rank", "cume_dist"])
            window = window if keys else f"{partition}ORDER BY {self.pick(scope).text}"
            kind = "int" if name in ("rank", "dense_rank") else "real"
            return f"{name}()", window, kind
        if form == "number":
            return self.pick(["row_number()", "ntile(2)", "ntile(3)"]), all_columns, "int"
        if form == "neighbour":
            offset = self.pick(["", ", 2", f", 1, {self.literal(column.kind)}"])
            return f"{self.pick(['lag', 'lead'])}({column.text}{offset})", all_columns, column.kind
        if form == "value":
            name = self.pick(["first_value", "last_value", "nth_value"])
            argument = f"{column.text}, 2" if name == "nth_value" else column.text
            nulls = self.pick(["", "", " IGNORE NULLS"]) if self.dialect == "duckdb" else ""
            return (
                f"{name}({argument}{nulls})",
                f"{all_columns} {self.frame([], 'rows')}",
                column.kind,
            )
        frame = ""
        modes = ["range", "groups"] if self.dialect == "duckdb" else []
        modes += ["rows"] if is_total else []
        if keys and modes and self.chance(60):
            mode = self.pick(modes)
            frame = self.frame(keys, mode, scope)
            window = all_columns if mode == "rows" else window
        name = self.pick(["count", "sum", "avg", "min", "max"])
        if name in ("sum", "avg"):
            numbers = [c for c in scope if c.kind in ("int", "decimal", "real")]
            column = self.pick(numbers) if numbers else Column("1", "int")
        kind = {"count": "int", "avg": "approx"}.get(name, column.kind)
        filter_clause = ""
        if self.chance(20) and self.dialect == "duckdb":
            filter_clause = f" FILTER (WHERE {self.comparison(scope)})"
        distinct = ""
        if self.chance(15) and self.dialect == "duckdb":
            distinct = "DISTINCT "
        return f"{name}({distinct}{column.text}){filter_clause}", f"{window} {frame}", kind

    def frame(self, keys: Sequence[Column], mode: str, scope: Sequence[Column] = ()) -> str:
        """Write a frame over an order of these columns, perhaps with offsets that are columns."""
        numbers = [c.text for c in scope if c.kind == "int"]
        is_number = [key.kind for key in keys] == ["int"]
        is_possible = numbers and self.dialect == "duckdb" and (mode != "range" or is_number)
        if is_possible and self.chance(25):
            self.count("frame with computed offsets")
            low, high = (f"abs(coalesce({self.pick(numbers)}, 1))" for _ in range(2))
            low = self.pick([low, "1"])
            return f"{mode.upper()} BETWEEN {low} PRECEDING AND {high} FOLLOWING"
        offsets = ["UNBOUNDED PRECEDING", "CURRENT ROW", "UNBOUNDED FOLLOWING"]
        if mode != "range" or [key.kind for key in keys] == ["int"]:
            offsets[1:1] = ["2 PRECEDING", "1 PRECEDING"]
            offsets[4:4] = ["1 FOLLOWING", "2 FOLLOWING"]
        elif [key.kind for key in keys] == ["ts"]:
            offsets[1:1] = ["INTERVAL 10 SECOND PRECEDING"]
            offsets[3:3] = ["INTERVAL 5 SECOND FOLLOWING"]
        low, high = sorted(self.integer(0, len(offsets) - 1) for _ in range(2))
        low, high = min(low, len(offsets) - 2), max(high, 1)
        exclude = ""
        if self.dialect == "duckdb":
            exclude = self.pick(["", "", " EXCLUDE CURRENT ROW", " EXCLUDE GROUP", " EXCLUDE TIES"])
        return f"{mode.upper()} BETWEEN {offsets[low]} AND {offsets[high]}{exclude}"

    def select_with_windows(self, source: str, scope: Sequence[Column]) -> tuple[str, list[str]]:
        """Write a SELECT over a source with its WHERE: columns, window functions and QUALIFY."""
        if self.chance(50):
            scope = self.orderable_columns(scope) or [Column("1", "int")]
        self.row_order = ""
        columns = [self.expression(scope, 1) for _ in range(self.pick([1, 2]))]
        items = [f"{column.text} AS c{i}" for i, column in enumerate(columns)]
        kinds = [column.kind for column in columns]
        window_clause = ""
        for _ in range(self.pick([1, 1, 2])):
            call, window, kind = self.window_call(scope)
            if not window_clause and self.chance(20):
                window_clause = f" WINDOW w AS ({window})"
                items.append(f"{call} OVER w AS c{len(items)}")
            else:
                items.append(f"{call} OVER ({window}) AS c{len(items)}")
            kinds.append(kind)
        qualify = ""
        if self.chance(30) and self.dialect == "duckdb":
            call, window, kind = self.window_call(scope)
            if kind in KINDS:
                self.count("QUALIFY")
                operator = self.pick(["<=", ">", "="])
                qualify = f" QUALIFY {call} OVER ({window}) {operator} {self.literal(kind)}"
                if self.chance(40):
                    qualify = f"{qualify} {self.pick(['AND', 'OR'])} {self.comparison(scope)}"
        return f"SELECT {', '.join(items)} FROM {source}{window_clause}{qualify}", kinds
