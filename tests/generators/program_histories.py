"""Programs for tests of program changes: sets of views over four inputs, with random changes.

A program is a choice of views from `VIEWS`, each in one of several versions, with random names,
columns of the inputs, options and materialized relations. The inputs keep all rows, so every
change can be applied. One input has lateness, and some of its rows are late.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random

import pyarrow as pa

from circuits import Circuit, InputOptions, Lateness, compile_sql
from tests.support.tables import bag_of

#: The inputs, each in several versions of its columns: wider types, further columns, another order.
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "e": (
        "src bigint, dst bigint, name string",
        "src bigint, dst bigint, name string, note string",
        "note string, dst bigint, src bigint, name string",
    ),
    "f": ("id int, t string", "id bigint, t string", "id bigint, t string, p double"),
    "g": ("k bigint, v bigint",),
    "t": ("at bigint not null, v bigint",),
}
LATENESS = 2  # of the input t

#: Views by name, each with several versions. A version may read the views in `BASE`.
BASE = (
    "CREATE VIEW base AS SELECT src, dst, name FROM e WHERE dst > 0",
    "CREATE VIEW base AS SELECT src, dst, name FROM e WHERE dst > 1",
    "CREATE VIEW base AS SELECT src, dst, upper(name) AS name FROM e WHERE dst > 0",
)
VIEWS: Mapping[str, tuple[str, ...]] = {
    "paths": (
        "SELECT x.src, y.dst FROM e x JOIN e y ON x.dst = y.src",
        "SELECT x.src, y.dst, y.name FROM e x JOIN e y ON x.dst = y.src",
        "SELECT x.src, y.dst FROM e x JOIN e y ON x.dst = y.src WHERE x.src < y.dst",
    ),
    "named": (
        "SELECT e.name, f.t FROM e JOIN f ON e.src = f.id",
        "SELECT e.name, f.t, e.dst FROM e LEFT JOIN f ON e.src = f.id",
        "SELECT e.name, f.t FROM e JOIN f ON e.src = f.id JOIN g ON g.k = f.id AND g.v = e.dst",
    ),
    "triangles": (
        "SELECT x.src AS a, count(*) AS n FROM e x JOIN e y ON x.dst = y.src "
        "JOIN e z ON z.src = y.dst AND z.dst = x.src GROUP BY x.src",
    ),
    "counts": (
        "SELECT src, count(*) AS n, sum(dst) AS s FROM e GROUP BY src",
        "SELECT src, count(*) AS n, min(name) AS s FROM e GROUP BY src",
        "SELECT src, count(DISTINCT dst) AS n, max(dst) AS s FROM base GROUP BY src",
        "SELECT count(*) AS n FROM base",
    ),
    "sets": (
        "SELECT DISTINCT src FROM base",
        "SELECT src FROM e EXCEPT SELECT id FROM f",
        "SELECT src FROM e UNION ALL SELECT k FROM g",
        "SELECT src FROM base WHERE src NOT IN (SELECT k FROM g)",
    ),
    "best": (
        "SELECT src, dst FROM e ORDER BY dst DESC, src LIMIT 2",
        "SELECT src, dst, row_number() OVER (PARTITION BY src ORDER BY dst, name) AS r FROM e",
        "SELECT src, dst FROM (SELECT *, row_number() OVER (PARTITION BY src ORDER BY dst) AS r "
        "FROM base) t WHERE r = 1",
    ),
    "reach": (
        "WITH RECURSIVE r(a, b) AS (SELECT src, dst FROM e UNION SELECT r.a, e.dst FROM r "
        "JOIN e ON r.b = e.src) SELECT a, b FROM r",
        "WITH RECURSIVE r(a, b) AS (SELECT k, v FROM g UNION SELECT r.a, e.dst FROM r "
        "JOIN e ON r.b = e.src) SELECT a, b FROM r",
    ),
    "ids": ("SELECT id, t FROM f WHERE id > 0", "SELECT id * 2 AS id, t FROM f"),
    "late": (
        "SELECT at // 2 AS w, count(*) AS n FROM t GROUP BY at // 2",
        "SELECT at // 2 AS w, count(*) AS n, max(v) AS m FROM t GROUP BY at // 2",
        "SELECT t.at, u.at AS other FROM t JOIN t u "
        "ON t.v = u.v AND u.at BETWEEN t.at AND t.at + 2",
        "SELECT DISTINCT at, v FROM t",
    ),
    "one": ("SELECT 1 AS x", "SELECT 2 AS x UNION ALL SELECT v FROM g"),
}


#: With each of them, cells keep all rows of an input.
INPUT_OPTIONS = {
    "e": InputOptions(keep="all"),
    "f": InputOptions(strict=True),
    "g": InputOptions(keep="all", strict=True),
    "t": InputOptions(keep="all", lateness=Lateness("at", LATENESS)),
}


@dataclass(frozen=True)
class Program:
    """The version of each part of a program; it can be compiled again and again.

    Attributes:
        columns: The version of each input.
        base: The version of the view that others read.
        views: The version of each view.
        materialized: The views that are kept whole, besides all inputs.
        formula: The delta formula.
        is_distributed: True if cells can run the program: nothing is materialized, and no view is
            recursive. The inputs keep all rows by their options.
        keeps_inputs: False if the inputs keep only the rows that views need.
    """

    columns: Mapping[str, int]
    base: int
    views: Mapping[str, int]
    materialized: frozenset[str]
    formula: str = "collapsed"
    is_distributed: bool = False
    keeps_inputs: bool = True

    @property
    def schemas(self) -> dict[str, str]:
        return {name: COLUMNS[name][version] for name, version in self.columns.items()}

    @property
    def text(self) -> str:
        return "; ".join([BASE[self.base], *map(self.statement, self.views)])

    def statement(self, view: str) -> str:
        return f"CREATE VIEW {view} AS {VIEWS[view][self.views[view]]}"

    def with_view(self, view: str, version: int, *, is_materialized: bool) -> Program:
        views = {**self.views, view: version}
        materialized = self.materialized | ({view} if is_materialized else set())
        return replace(self, views=views, materialized=materialized)

    def without_view(self, view: str) -> Program:
        views = {name: version for name, version in self.views.items() if name != view}
        return replace(self, views=views, materialized=self.materialized - {view})

    def compile(self) -> Circuit:
        if self.is_distributed:
            return compile_sql(
                self.text,
                self.schemas,
                outputs=list(self.views),
                input_options={name: INPUT_OPTIONS[name] for name in self.schemas},
                formula=self.formula,
            )
        return compile_sql(
            self.text,
            self.schemas,
            outputs=list(self.views),
            materialize=[*(self.schemas if self.keeps_inputs else ()), *self.materialized],
            input_options={"t": InputOptions(lateness=Lateness("at", LATENESS))},
            formula=self.formula,
        )


def first_program(random: Random, *, is_distributed: bool = False) -> Program:
    names = random.sample(view_names(is_distributed), random.randint(1, 4))
    return Program(
        dict.fromkeys(COLUMNS, 0),
        0,
        {name: random.randrange(len(VIEWS[name])) for name in names},
        frozenset(random.sample(names, random.randint(0, len(names)))),
        is_distributed=is_distributed,
    )


def view_names(is_distributed: bool) -> list[str]:
    return sorted(VIEWS.keys() - ({"reach"} if is_distributed else set()))


def changed_program(random: Random, program: Program) -> Program:
    """Return the program after one to three random changes."""
    columns, views = dict(program.columns), dict(program.views)
    base, materialized, formula = program.base, set(program.materialized), program.formula
    for _ in range(random.randint(1, 3)):
        match random.randrange(7):
            case 0 | 1:
                name = random.choice(view_names(program.is_distributed))
                views[name] = random.randrange(len(VIEWS[name]))
            case 2 if len(views) > 1:
                del views[random.choice(sorted(views))]
            case 3:
                base = random.randrange(len(BASE))
            case 4:  # only to later versions, because their types are wider
                name = random.choice(sorted(columns))
                columns[name] = random.randrange(columns[name], len(COLUMNS[name]))
            case 5:
                materialized ^= {random.choice(sorted(views))}
            case 6:
                formula = random.choice(["collapsed", "flipped", "recursive"])
    return replace(
        program,
        columns=columns,
        base=base,
        views=views,
        materialized=frozenset(materialized & views.keys()),
        formula=formula,
    )


def random_rows(random: Random, schemas: Mapping[str, str], present: dict) -> dict[str, pa.Table]:
    """Return the rows of a step: insertions, and deletions of rows that exist.

    Args:
        random: Draws the rows.
        schemas: The columns of each input, as DDL.
        present: The rows of each input so far, as dicts; they are changed.
    """
    tables = {}
    for name, text in schemas.items():
        columns = [column.split()[:2] for column in text.split(", ")]
        rows, weights = [], []
        latest = max((row["at"] for row in present["t"]), default=None)
        for _ in range(random.randint(0, 5)):
            row = {column: random_value(random, type) for column, type in columns}
            rows.append(row)
            weights.append(1)
            if name == "t":
                row["at"] = (latest or 0) + random.randint(-2 * LATENESS, 2)
                if latest is not None and row["at"] < latest - LATENESS:
                    continue  # it is late
            present[name].append(row)
        for _ in range(min(random.randint(0, 2), len(present[name]))):
            row = random.choice(present[name])
            if name == "t" and (latest is None or not latest - LATENESS <= row["at"] < latest):
                continue  # its deletion would be late, or its time would no longer be the latest
            present[name].remove(row)
            rows.append({column: row.get(column) for column, _ in columns})
            weights.append(-1)
        types = {
            "bigint": pa.int64(),
            "int": pa.int32(),
            "string": pa.string(),
            "double": pa.float64(),
        }
        schema = pa.schema([(column, types[type]) for column, type in columns])
        table = pa.Table.from_pylist(rows, schema)
        tables[name] = table.append_column("weight", pa.array(weights, pa.int64()))
    return tables


def random_value(random: Random, type: str) -> object:
    if random.random() < 0.1:
        return None
    if type == "string":
        return random.choice(["a", "b", "c", "dd"])
    return random.randint(0, 3) if type in ("bigint", "int") else random.choice([0.5, 1.0])


def fresh_views(program: Program, present: Mapping[str, list]) -> dict[str, Counter]:
    """Load all rows at once into a new circuit; return its views."""
    circuit = program.compile()
    tables = present_tables(circuit, present)
    return {name: bag_of(table) for name, table in circuit.step(tables).items()}


def present_tables(circuit: Circuit, present: Mapping[str, list]) -> dict[str, pa.Table]:
    """Return the rows of each input as a table."""
    tables = {}
    for name, rows in present.items():
        schema = circuit.inputs[name].arrow_columns
        rows = [{column: row.get(column) for column in schema.names} for row in rows]
        tables[name] = pa.Table.from_pylist(rows, schema)
    return tables
