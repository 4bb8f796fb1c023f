"""Aggregate functions, grouping sets and HAVING."""

from __future__ import annotations

from collections.abc import Sequence

from tests.generators.sql.choices import Column, differ
from tests.generators.sql.windows import ORDERED, Windows

#: Aggregates by the kind of their result; arguments as in `expressions`, ``{order}`` is an order of
#: all columns in scope, ``{up}`` NULLS FIRST or nothing.
COMMON = {
    "int": """
        count(*)|count({any})|count(DISTINCT {any})|sum({int})|min({int})|max({int})
        sum(DISTINCT {int})
        count_if({bool})|bit_and({int})|bit_or({int})|bit_xor({int})|regr_count({int}, {real})
        max(length({text}))|sum(CASE WHEN {bool} THEN 1 ELSE 0 END)
    """,
    "real": "min({real})|max({real})|sum({real})|avg({int})|avg({real})|avg(DISTINCT {int})",
    "decimal": "min({decimal})|max({decimal})|sum({decimal})",
    "text": "min({text})|max({text})",
    "date": "min({date})|max({date})",
    "ts": "min({ts})|max({ts})",
    "bool": "bool_and({bool})|bool_or({bool})",
    "approx": """
        var_pop({int})|var_samp({real})|stddev_pop({int})|stddev_samp({real})
        covar_pop({int}, {real})
        covar_samp({int}, {int})|corr({int}, {real})|regr_slope({int}, {real})
        regr_intercept({real}, {int})
        regr_r2({int}, {int})|regr_sxx({int}, {real})|regr_sxy({int}, {real})
        regr_avgx({int}, {real})
        skewness({int})|avg({decimal})|regr_syy({real}, {int})|regr_avgy({int}, {int})
    """,
}
DUCKDB = {
    "int": """
        mode:int|first({int} ORDER BY {order})|last({int} ORDER BY {order})|max_by({int}, {key})
        quantile_disc({int}, 0.3)|percentile_disc(0.6) WITHIN GROUP (ORDER BY {int} DESC)
        any_value({int} ORDER BY {order})|arg_min({int}, {key})|quantile_disc(DISTINCT {int}, 0.75)
    """,
    "text": """
        mode:text|first({text} ORDER BY {order})|last({text} ORDER BY {order})|min_by({text}, {key})
        string_agg({text}, ',' ORDER BY {text})|string_agg(DISTINCT {text}, '-' ORDER BY {text})
        string_agg({text}, '' ORDER BY {order})|listagg({int}, ';' ORDER BY {int})
        quantile_disc({text}, 0.5)
    """,
    "date": "quantile_disc({date}, 0.5)|last({date} ORDER BY {order})",
    "ts": "percentile_disc(0.25) WITHIN GROUP (ORDER BY {ts})|first({ts} ORDER BY {order})",
    "list": """
        array_agg({int} ORDER BY {order})|list({int} ORDER BY {int})
        list(DISTINCT {int} ORDER BY {int})
        list_sort(list({int}))|min({list})|max({list})
    """,
    "struct": "max({struct})|first({struct} ORDER BY {order})",
    "approx": """
        median({int})|median({real})|quantile_cont({int}, 0.3)|quantile_cont(DISTINCT {int}, 0.25)
        percentile_cont(0.3) WITHIN GROUP (ORDER BY {int})|geomean(abs({int}) + 1)
        quantile_cont({decimal}, 0.4)
        kurtosis({int})|sem({int})|product({int})
        percentile_cont(0.5) WITHIN GROUP (ORDER BY {real} DESC)
    """,
}
SPARK = {
    "list": "sort_array(collect_list({int}))|sort_array(collect_set({int}))",
    "approx": "percentile({int}, 0.3)|kurtosis({int})|std({int})|median({int})",
}


def split(text: str) -> list[str]:
    return [part.strip() for line in text.split("\n") for part in line.split("|") if part.strip()]


class Aggregates(Windows):
    """Writes calls of aggregate functions, and SELECTs with GROUP BY."""

    def aggregate(self, scope: Sequence[Column], *, exact: bool = False) -> Column:
        """Write a call of an aggregate function over the rows of a scope."""
        dialect_only = DUCKDB if self.dialect == "duckdb" else SPARK
        kind = self.pick(["int", "int", *COMMON, *dialect_only])
        while exact and kind not in ORDERED:
            kind = self.pick(COMMON)
        template = self.pick([*split(COMMON.get(kind, "")), *split(dialect_only.get(kind, ""))])
        name = template.partition("(")[0]
        self.count(f"aggregate {name}")
        filter_clause = ""
        if self.chance(20):
            self.count("FILTER")
            filter_clause = f" FILTER (WHERE {self.comparison(scope)})"
        outer, self.outer = self.outer, []  # arguments without own columns are refused
        try:
            return self.aggregate_of(template, scope, kind, filter_clause)
        finally:
            self.outer = outer

    def aggregate_of(
        self, template: str, scope: Sequence[Column], kind: str, filter_clause: str
    ) -> Column:
        """Fill in a template, while no columns of enclosing queries are in scope."""
        if template.startswith("mode:"):
            return self.mode(scope, kind, filter_clause)
        name = template.partition("(")[0]
        columns = self.shuffled(self.orderable_columns(scope))
        if "{key}" in template:  # the key determines the value, so ties are equal
            key = self.value(scope, kind, 0)
            template = template.replace(f"{{{kind}}}", key)
            template = template.replace(
                "{key}", f"{key} || 'z'" if kind == "text" else f"{key} * 2"
            )
        if "{order}" in template:
            if len(columns) < len(scope):  # rows that the order does not tell apart may differ
                return Column(f"count(*){filter_clause}", "int")
            template = template.replace("{order}", self.order(columns))
            first = template.partition("{")[2].partition("}")[0]
            value = self.value(columns, first, 0)
            template = template.replace(f"{{{first}}}", value)
        for argument in ("int", "text", "real", "decimal", "date", "ts"):
            if "ORDER BY {" + argument in template:
                named = self.columns(columns, argument)
                if not named:
                    return Column(f"count(*){filter_clause}", "int")
                template = template.replace(f"{{{argument}}}", self.pick(named))
        if "{any}" in template:
            template = template.replace("{any}", self.exact_expression(scope, 0).text)
        text = self.fill(template, scope, 1)
        if name in ("list_sort", "geomean"):  # no aggregates in DuckDB
            filter_clause = ""
        return Column(f"{text}{filter_clause}", kind)

    def mode(self, scope: Sequence[Column], kind: str, filter_clause: str) -> Column:
        """Write mode(x), which is here the least of the most frequent values."""
        value = self.value(scope, kind, 0)
        counts = f"histogram({value}){filter_clause}"
        most = f"list_max(map_values({counts}))"
        frequent = f"list_filter(map_entries({counts}), lambda e: e.value = {most})"
        least = f"list_min(list_transform({frequent}, lambda e: e.key))"
        return Column(differ(f"mode({value}){filter_clause}", least), kind)

    def select_with_groups(self, source: str, scope: Sequence[Column]) -> tuple[str, list[str]]:
        """Write a SELECT with GROUP BY over a source, which includes its WHERE."""
        keys = [self.exact_expression(scope) for _ in range(self.pick([0, 1, 1, 2, 2, 3]))]
        keys = [key for key in keys if any(column.text in key.text for column in scope)]
        keys = list({key.text: key for key in keys}.values())
        items, kinds = [key.text for key in keys], [key.kind for key in keys]
        for _ in range(self.pick([1, 1, 2, 3])):
            call = self.aggregate(scope)
            items.append(call.text)
            kinds.append(call.kind)
        if self.chance(10):
            call = self.aggregate(scope)
            if call.kind == "int":
                items.append(f"({call.text} + count(*))")
                kinds.append("int")
        group = ""
        if keys:
            texts = [key.text for key in keys]
            group = f" GROUP BY {', '.join(texts)}"
            if self.chance(35):
                self.count("grouping sets")
                group = f" GROUP BY {self.grouping_sets(texts)}"
                if self.chance(60) and not self.outer:  # DuckDB fails in a correlated query
                    items.append(f"grouping({self.pick(texts)})")
                    kinds.append("int")
                    self.count("grouping()")
            elif self.chance(20):
                group = " GROUP BY ALL"
            elif self.dialect == "duckdb" and self.columns(scope, "text") and self.chance(20):
                group = f"{group}, {self.pick(self.columns(scope, 'text'))}{self.collation()}"
        having = ""
        if self.chance(25):
            self.count("HAVING")
            having = f" HAVING {self.pick(['count(*) > 1', 'count(*) <> 2', 'min(1) = 1'])}"
            if self.chance(50):
                call = self.aggregate(scope, exact=True)
                operator = self.pick(["=", "<>", "<", ">="])
                literal = self.literal(call.kind)
                having = f"{having} {self.pick(['AND', 'OR'])} {call.text} {operator} {literal}"
        if self.chance(12) and keys and kinds[-1] in ORDERED:  # a window over the groups
            self.count("window over groups")
            items.append(f"rank() OVER (ORDER BY {items[-1]})")
            kinds.append("int")
        select_list = ", ".join(f"{item} AS c{i}" for i, item in enumerate(items))
        return f"SELECT {select_list} FROM {source}{group}{having}", kinds

    def grouping_sets(self, keys: list[str]) -> str:
        listed = ", ".join(keys)
        forms = [f"ROLLUP ({listed})", f"CUBE ({listed})", f"GROUPING SETS (({listed}), ())"]
        if len(keys) > 1:
            first, *others = keys
            forms += [
                f"GROUPING SETS (({listed}), ({first}), ({first}))",
                f"{first}, ROLLUP ({', '.join(others)})",
                f"GROUPING SETS (({first}), ({', '.join(others)}), ())",
            ]
        return self.pick(forms)
