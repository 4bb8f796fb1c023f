"""Maintained WITH RECURSIVE: DuckDB's answer after every step, or an error with the reason."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from circuits import CircuitError, UnsupportedSqlError, compile_sql
from circuits.errors import IterationError, SqlError
from tests.support.tables import INT, Totals, bag_of, table_of

SCHEMAS = {
    "e": pa.schema([("src", INT), ("dst", INT)]),
    "part": pa.schema([("whole", INT), ("part", INT), ("many", INT)]),
    "start": pa.schema([("n", INT)]),
}
# A part has a higher number than its whole, so that UNION ALL ends.
UNIVERSE = {
    "e": [(a, b) for a in range(5) for b in range(5)] + [(None, 1), (2, None)],
    "part": [(a, b, a + b) for a in range(6) for b in range(a + 1, 6)],
    "start": [(0,), (3,), (None,)],
}
QUERIES = {
    "a closure": "WITH RECURSIVE tc(a, b) AS (SELECT src, dst FROM e UNION "
    "SELECT tc.a, e.dst FROM tc JOIN e ON tc.b = e.src) SELECT * FROM tc",
    "a closure of named columns": "WITH RECURSIVE tc AS (SELECT src, dst FROM e UNION "
    "SELECT e.src, tc.dst FROM e, tc WHERE e.dst = tc.src AND e.src <> tc.dst) "
    "SELECT src, count(*) AS many FROM tc GROUP BY src",
    "a series": "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 7) "
    "SELECT n FROM t",
    "several base queries": "WITH RECURSIVE r(n) AS ((SELECT n FROM start UNION SELECT 9) UNION "
    "SELECT x.b FROM r JOIN (SELECT src AS a, dst AS b FROM e UNION SELECT dst, src FROM e) x "
    "ON x.a = r.n) SELECT n FROM r",
    "a bill of materials": "WITH RECURSIVE b(whole, part, many) AS (SELECT * FROM part UNION ALL "
    "SELECT b.whole, p.part, b.many * p.many FROM b JOIN part p ON b.part = p.whole) "
    "SELECT whole, part, sum(many) AS many FROM b GROUP BY whole, part",
    "levels": "WITH RECURSIVE l(n, depth) AS (SELECT n, 0 FROM start UNION ALL "
    "SELECT p.part, depth + 1 FROM l JOIN part p ON p.whole = l.n) "
    "SELECT n, max(depth) AS deepest, count(*) AS ways FROM l GROUP BY n",
    "a bound on the depth": "WITH RECURSIVE l(n, depth) AS (SELECT n, 0 FROM start UNION "
    "SELECT e.dst, depth + 1 FROM l JOIN e ON e.src = l.n WHERE depth < 3) "
    "SELECT n, min(depth) AS nearest FROM l GROUP BY n",
    "a condition on another table": "WITH RECURSIVE r AS (SELECT n FROM start UNION "
    "SELECT e.dst FROM r JOIN e ON e.src = r.n WHERE NOT EXISTS "
    "(SELECT 1 FROM part p WHERE p.whole = r.n AND p.part = e.dst)) SELECT n FROM r",
    "the rows that are not reached": "WITH RECURSIVE r AS (SELECT n FROM start UNION "
    "SELECT dst FROM r JOIN e ON src = n) SELECT src FROM e WHERE src NOT IN "
    "(SELECT n FROM r WHERE n IS NOT NULL)",
    "a left join in the recursive query": "WITH RECURSIVE r(n, m) AS (SELECT n, 0 FROM start UNION "
    "SELECT e.dst, coalesce(p.many, -1) FROM r JOIN e ON e.src = r.n "
    "LEFT JOIN part p ON p.whole = e.dst AND p.part = 5) SELECT n, m FROM r",
    "a derived table": "WITH RECURSIVE r AS (SELECT n FROM start UNION "
    "SELECT x.dst FROM (SELECT DISTINCT e.dst FROM r, e WHERE e.src = r.n) x) SELECT n FROM r",
    "a join of two recursions": "WITH RECURSIVE up AS (SELECT n FROM start UNION "
    "SELECT e.dst FROM up JOIN e ON e.src = up.n), down AS (SELECT n FROM start UNION "
    "SELECT e.src FROM down JOIN e ON e.dst = down.n) "
    "SELECT up.n FROM up JOIN down ON up.n = down.n",
    "a recursion that reads a recursion": "WITH RECURSIVE a AS (SELECT n FROM start UNION "
    "SELECT e.dst FROM a JOIN e ON e.src = a.n), b AS (SELECT n, 0 AS far FROM a UNION ALL "
    "SELECT p.part, far + 1 FROM b JOIN part p ON p.whole = b.n) "
    "SELECT n, far, count(*) AS many FROM b GROUP BY n, far",
    "a step of a floating type": "WITH RECURSIVE r(n, half) AS (SELECT n, n * 5 FROM start UNION "
    "ALL SELECT n, half / 2 FROM r WHERE half > 1) SELECT n, half, count(*) AS many FROM r "
    "GROUP BY n, half",
    "a step of a wider decimal type": "WITH RECURSIVE r(n, x) AS (SELECT n, 1.5 FROM start UNION "
    "SELECT n, x + 1.25 FROM r WHERE x < 5) SELECT n, x FROM r",
    "the fewest edges": "WITH RECURSIVE r(n, depth) USING KEY (n, min(depth)) AS "
    "(SELECT n, 0 FROM start UNION SELECT e.dst, depth + 1 FROM r JOIN e ON e.src = r.n) "
    "SELECT n, depth FROM r",
    "the cheapest way of each pair": "WITH RECURSIVE r(a, b, cost) USING KEY (a, b, min(cost)) AS "
    "(SELECT n, n, 0 FROM start UNION ALL SELECT r.a, p.part, cost + nullif(p.many, 5) "
    "FROM r JOIN part p ON p.whole = r.b WHERE cost < 7) SELECT * FROM r",
    "the longest way": "WITH RECURSIVE r(n, cost) USING KEY (max(cost), n) AS "
    "(SELECT n, 0.0::double FROM start UNION SELECT DISTINCT p.part, 2 * cost + p.many "
    "FROM part p JOIN r ON p.whole = r.n WHERE 0 <= cost) SELECT max(cost) AS most FROM r",
    "RECURSIVE without a recursion": "WITH RECURSIVE q AS (SELECT n FROM start) SELECT n FROM q",
}
DATABASE = duckdb.connect(config={"threads": 1})
LAW = settings(
    max_examples=15, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def answer(text: str, present: Mapping[str, Iterable[tuple]]) -> Counter:
    """Return the rows that DuckDB answers."""
    for name, rows in present.items():
        DATABASE.register(name, table_of(SCHEMAS[name], sorted(rows, key=repr)))
    return Counter(DATABASE.execute(text).fetchall())


@LAW
@given(st.sampled_from(sorted(QUERIES)), st.randoms(use_true_random=False))
def test_a_recursive_query_has_duckdbs_rows_after_every_step(title, rng):
    text = QUERIES[title]
    present: dict[str, set[tuple]] = {name: set() for name in SCHEMAS}
    totals = Totals(compile_sql(text, SCHEMAS, materialize=True))
    for _ in range(3):
        tables = {}
        for name, universe in UNIVERSE.items():
            chosen = rng.sample(universe, rng.randint(0, min(6, len(universe))))
            weights = [-1 if row in present[name] else 1 for row in chosen]
            present[name].symmetric_difference_update(chosen)
            tables[name] = table_of(SCHEMAS[name], chosen, weights)
        totals.step(tables)
        expected = answer(text, present)
        assert totals.bags["view"] == expected, text
    assert bag_of(totals.circuit.query(text)) == expected


@pytest.mark.parametrize(
    "title", ["a closure", "a bill of materials", "levels", "a condition on another table"]
)
def test_repeated_rows_count_as_often_as_in_sql(title):
    rng = random.Random(11)
    totals = Totals(compile_sql(QUERIES[title], SCHEMAS))
    present: dict[str, Counter] = {name: Counter() for name in UNIVERSE}
    for _ in range(12):
        tables = {}
        for name, universe in UNIVERSE.items():
            change = Counter({row: rng.randint(-2, 2) for row in rng.sample(universe, 3)})
            change = {row: max(n, -present[name][row]) for row, n in change.items()}
            present[name].update(change)
            tables[name] = table_of(SCHEMAS[name], change, change.values())
        totals.step(tables)
        bags = {name: rows.elements() for name, rows in present.items()}
        assert totals.bags["view"] == answer(QUERIES[title], bags)


def test_parts_of_parts_are_counted_as_often_as_they_are_needed():
    circuit = compile_sql(QUERIES["a bill of materials"], SCHEMAS, materialize=True)
    parts = [
        (1, 2, 4),
        (1, 3, 1),
        (2, 4, 10),
        (3, 4, 2),
    ]  # a car has wheels and an engine; both have bolts
    circuit.step({"part": table_of(SCHEMAS["part"], parts)})
    needed = {row[:2]: row[2] for row in bag_of(circuit.views["view"])}
    assert needed[1, 4] == 4 * 10 + 1 * 2
    circuit.step({"part": table_of(SCHEMAS["part"], [(2, 4, 10), (2, 4, 8)], [-1, 1])})
    assert {row[:2]: row[2] for row in bag_of(circuit.views["view"])}[1, 4] == 4 * 8 + 1 * 2


def test_a_recursion_may_have_several_recursive_queries_unlike_in_duckdb():
    text = (
        "WITH RECURSIVE r(n) AS (SELECT n FROM start UNION SELECT e.dst FROM r JOIN e "
        "ON e.src = r.n UNION SELECT e.src FROM r JOIN e ON e.dst = r.n) SELECT n FROM r"
    )
    circuit = compile_sql(text, SCHEMAS)
    tables = {
        "start": table_of(SCHEMAS["start"], [(1,)]),
        "e": table_of(SCHEMAS["e"], [(2, 1), (2, 3), (4, 3), (5, 6)]),
    }
    assert bag_of(circuit.step(tables)["view"]) == {(n,): 1 for n in (1, 2, 3, 4)}


def test_a_column_has_the_type_of_the_base_query():
    text = (
        "WITH RECURSIVE r AS (SELECT CAST(n AS SMALLINT) AS n, 1 AS x FROM start UNION ALL "
        "SELECT n, x * 1.5e0 FROM r WHERE x < 4) SELECT n, x FROM r"
    )
    circuit = compile_sql(text, SCHEMAS)
    assert circuit.schema("view").fields[1].type == pa.int64()
    rows = bag_of(circuit.step({"start": table_of(SCHEMAS["start"], [(7,)])})["view"])
    assert sorted(x for _, x in rows) == [1, 2, 3, 4]
    with pytest.raises(SqlError, match=r"'x' of the recursive 'r' has the type int32 .* double"):
        compile_sql(text.replace("1.5e0", "1.5D"), SCHEMAS, dialect="spark")


def test_a_column_of_nulls_in_the_base_query_has_the_type_of_the_recursive_part():
    text = (
        "WITH RECURSIVE r(n, x) AS (SELECT n, NULL FROM start UNION ALL "
        "SELECT n + 1, coalesce(x, 0) + 0.5e0 FROM r WHERE n < 3) SELECT n, x FROM r"
    )
    circuit = compile_sql(text, SCHEMAS)
    rows = bag_of(circuit.step({"start": table_of(SCHEMAS["start"], [(1,)])})["view"])
    assert rows == {(1, None): 1, (2, 0.5): 1, (3, 1.0): 1}


def test_union_all_over_a_cycle_is_refused_by_the_bound_and_changes_nothing():
    text = (
        "CREATE VIEW paths AS WITH RECURSIVE p(a, b) AS (SELECT src, dst FROM e UNION ALL "
        "SELECT p.a, e.dst FROM p JOIN e ON p.b = e.src) SELECT a, b, count(*) AS n FROM p "
        "GROUP BY a, b"
    )
    circuit = compile_sql(text, SCHEMAS, max_iterations=40, materialize=True)
    circuit.step({"e": table_of(SCHEMAS["e"], [(1, 2), (2, 3)])})
    before = bag_of(circuit.views["paths"])
    message = r"view 'paths': the recursion of 'p' .* after 40 iterations"
    with pytest.raises(IterationError, match=message):
        circuit.step({"e": table_of(SCHEMAS["e"], [(3, 1)])})
    assert bag_of(circuit.views["paths"]) == before
    circuit.step({"e": table_of(SCHEMAS["e"], [(3, 4)])})
    assert bag_of(circuit.views["paths"])[1, 4, 1] == 1


REFUSED = {
    "WITH RECURSIVE r AS (SELECT n FROM start UNION SELECT count(*) FROM r) SELECT n FROM r": (
        "an aggregate over the recursive 'r'"
    ),
    "WITH RECURSIVE r AS (SELECT n FROM start UNION SELECT a.n FROM r a JOIN r b ON a.n = b.n + 1) "
    "SELECT n FROM r": "the recursive 'r' 2 times",
    "WITH RECURSIVE r AS (SELECT n FROM start UNION ALL SELECT DISTINCT dst FROM r JOIN e "
    "ON n = src) SELECT n FROM r": "DISTINCT, below UNION ALL, of the recursive 'r'",
    "WITH RECURSIVE r AS (SELECT n FROM start UNION SELECT src FROM e WHERE dst NOT IN "
    "(SELECT n FROM r)) SELECT n FROM r": "of the recursive 'r'",
    "WITH RECURSIVE r AS (SELECT n FROM start UNION SELECT src FROM e WHERE EXISTS "
    "(SELECT 1 FROM r WHERE r.n = e.dst)) SELECT n FROM r": "EXISTS or IN",
    "WITH RECURSIVE r AS (SELECT n FROM start UNION SELECT n FROM (SELECT n + 1 AS n FROM r "
    "EXCEPT SELECT dst FROM e) q) SELECT n FROM r": "EXCEPT or INTERSECT of the recursive 'r'",
    "WITH RECURSIVE r AS (SELECT n FROM start UNION SELECT r.n FROM e LEFT JOIN r ON n = src) "
    "SELECT n FROM r": "the optional side of an outer join",
    "WITH RECURSIVE r AS (SELECT n FROM start UNION SELECT n FROM (SELECT n + 1 AS n FROM r "
    "ORDER BY n LIMIT 1) q) SELECT n FROM r": "LIMIT or a bounded row_number() of the recursive",
    "WITH RECURSIVE r AS (SELECT n FROM start UNION SELECT g.dst FROM r JOIN e g ON n = src AND "
    "(SELECT e.dst FROM e WHERE e.src = r.n ORDER BY 1 LIMIT 1) > g.src) SELECT n FROM r": (
        "also in a subquery that names a column of it"
    ),
    "WITH RECURSIVE r AS (SELECT n FROM start UNION SELECT rank() OVER (ORDER BY n) FROM r) "
    "SELECT n FROM r": "a window function over the recursive 'r'",
    "WITH RECURSIVE r AS (SELECT n FROM start UNION SELECT e.dst FROM r ASOF JOIN e "
    "ON r.n = e.src AND r.n >= e.dst) SELECT n FROM r": "an ASOF join with the recursive 'r'",
    "WITH RECURSIVE r AS (SELECT n + 1 AS n FROM r) SELECT n FROM r": "without a UNION",
    "WITH RECURSIVE r AS (SELECT n FROM r UNION SELECT 1) SELECT n FROM r": "a base query",
    "WITH RECURSIVE r AS (SELECT 1 AS n UNION SELECT dst FROM e, (WITH RECURSIVE i AS (SELECT n "
    "FROM r UNION SELECT dst FROM i JOIN e ON n = src) SELECT n FROM i) q) SELECT n FROM r": (
        "another recursion over the recursive 'r'"
    ),
}


@pytest.mark.parametrize("text", REFUSED)
def test_a_recursive_query_that_is_not_linear_in_its_rows_is_refused(text):
    with pytest.raises(UnsupportedSqlError) as caught:
        compile_sql(text, SCHEMAS)
    assert REFUSED[text] in str(caught.value)


def test_a_type_that_widens_for_ever_is_refused():
    text = (
        "WITH RECURSIVE r AS (SELECT NULL AS x, 1 AS n UNION ALL "
        "SELECT coalesce(x, 1.5) + coalesce(x, 1.5), n + 1 FROM r WHERE n < 9) SELECT x FROM r"
    )
    with pytest.raises(SqlError, match="types of the columns of 'r' grow"):
        compile_sql(text, SCHEMAS)


def test_a_recursive_query_cannot_read_a_later_with_query():
    with pytest.raises(SqlError, match="unknown table 'later'"):
        compile_sql(
            "WITH RECURSIVE r AS (SELECT 1 AS n UNION SELECT later.n FROM r, later), "
            "later AS (SELECT 2 AS n) SELECT n FROM r",
            SCHEMAS,
        )


def test_many_random_changes_of_one_closure_stay_exact():
    rng = random.Random(7)
    text = QUERIES["a closure"]
    totals, present = Totals(compile_sql(text, SCHEMAS)), {"e": set()}
    for _ in range(60):
        chosen = rng.sample([(a, b) for a in range(9) for b in range(9)], 2)
        weights = [-1 if row in present["e"] else 1 for row in chosen]
        present["e"].symmetric_difference_update(chosen)
        totals.step({"e": table_of(SCHEMAS["e"], chosen, weights)})
    assert totals.bags["view"] == answer(text, present)


@pytest.mark.parametrize(
    ("keys", "step", "message"),
    [
        ("(n)", "SELECT dst, d + 1", "USING KEY without d is not supported"),
        ("(n, d)", "SELECT dst, d + 1", "USING KEY without min or max"),
        ("(min(n), min(d))", "SELECT dst, d + 1", "a second min or max in USING KEY"),
        ("(n, sum(d))", "SELECT dst, d + 1", "sum() in USING KEY is not supported"),
        ("(m, min(d))", "SELECT dst, d + 1", "unknown column 'm' in USING KEY; columns: n, d"),
        ("(n, min(d))", "SELECT dst, 9 - d", "column 'd' of the recursion 'r'"),
        ("(n, min(d))", "SELECT dst, greatest(d, src)", "column 'd' of the recursion 'r'"),
        ("(n, min(d))", "SELECT dst + d, d", "column 'n' of the recursion 'r'"),
        ("(n, max(d))", "SELECT dst, d + 1", "a larger value would delete derived rows"),
    ],
)
def test_a_recursion_with_keys_that_is_not_monotone_is_refused(keys, step, message):
    text = (
        f"WITH RECURSIVE r(n, d) USING KEY {keys} AS (SELECT n, 0 FROM start UNION "
        f"{step} FROM r JOIN e ON src = n WHERE d < 10) SELECT * FROM r"
    )
    with pytest.raises(SqlError, match=re.escape(message)):
        compile_sql(text, SCHEMAS)


def test_using_key_needs_a_recursion_and_numbers():
    with pytest.raises(SqlError, match="'r', which is not recursive; leave USING KEY out"):
        compile_sql("WITH r(n) USING KEY (n) AS (SELECT n FROM start) SELECT * FROM r", SCHEMAS)
    text = (
        "WITH RECURSIVE r(n, d) USING KEY (n, min(d)) AS (SELECT n, 'a' FROM start UNION "
        "SELECT dst, d FROM r JOIN e ON src = n) SELECT * FROM r"
    )
    with pytest.raises(UnsupportedSqlError, match="min of 'd', which has the type string"):
        compile_sql(text, SCHEMAS)


def _multiply(rows: Counter[tuple], function: Callable[[tuple], Iterable[tuple]]) -> Counter[tuple]:
    """Return the rows that a function makes of each row, as often as the row occurs."""
    result: Counter[tuple] = Counter()
    for row, count in rows.items():
        for new in function(row):
            result[new] += count
    return result


def _bags(edges: Counter[tuple]) -> dict[str, Counter[tuple]]:
    """Return the fixpoint of the queries below, which are applied to all rows until it holds."""
    bags: dict[str, Counter[tuple]] = {name: Counter() for name in ("paths", "ends", "twice")}
    for _ in range(20):
        paths = Counter(edges) + _multiply(
            bags["ends"],
            lambda row: [
                (row[0], b) for (a, b), n in edges.items() if a == row[1] for _ in range(n)
            ],
        )
        ends = _multiply(bags["paths"], lambda row: [row] if row[1] < 5 else [])
        reached = Counter(set(_multiply(bags["twice"], lambda row: [(row[0] + 1,)])))
        twice = _multiply(edges, lambda row: [(row[0],)]) + Counter(
            {row: 1 for row in reached if row[0] < 4}
        )
        new = {"paths": paths, "ends": ends, "twice": twice}
        if new == bags:
            return bags
        bags = new
    raise AssertionError("no fixpoint")


@settings(max_examples=10)
@given(
    st.lists(
        st.dictionaries(
            st.tuples(st.integers(0, 5), st.integers(1, 5)).filter(lambda edge: edge[0] < edge[1]),
            st.integers(1, 2),
            max_size=5,
        ),
        min_size=1,
        max_size=3,
    )
)
def test_queries_that_name_each_other_keep_duplicates_as_in_materialize(steps):
    """Each query is applied to all rows; only UNION and DISTINCT remove duplicates."""
    queries = """
        WITH MUTUALLY RECURSIVE
            paths (a BIGINT, b BIGINT) AS (
                SELECT a, b FROM e UNION ALL SELECT ends.a, e.b FROM ends, e WHERE ends.b = e.a
            ),
            ends (a BIGINT, b BIGINT) AS (
                SELECT c, b FROM (SELECT unnest(ARRAY[a]) AS c, b FROM paths) p WHERE b < 5
            ),
            twice (a BIGINT) AS (
                SELECT a FROM e UNION ALL (SELECT DISTINCT a + 1 FROM twice WHERE a < 3)
            )
    """
    views = ("paths", "ends", "twice")
    text = ";".join(f"CREATE VIEW v_{name} AS {queries} SELECT * FROM {name}" for name in views)
    circuit = compile_sql(text, {"e": "a BIGINT, b BIGINT"}, dialect="materialize")
    edges: Counter[tuple] = Counter()
    found: dict[str, Counter[tuple]] = {name: Counter() for name in views}
    for step in [*steps, {edge: -count for edge, count in steps[0].items()}]:
        edges.update(step)
        deltas = circuit.step(
            {"e": [{"a": a, "b": b, "weight": weight} for (a, b), weight in step.items()]}
        )
        for name in views:
            for row in deltas[f"v_{name}"].to_pylist():
                found[name][tuple(row.values())[:-1]] += row["weight"]
        assert {name: +rows for name, rows in found.items()} == _bags(+edges)


@pytest.mark.parametrize(
    ("condition", "matches"),
    [
        ("EXISTS (SELECT 1 FROM b WHERE b.k = t.n)", lambda n, b: any(k == n for k, _ in b)),
        ("t.n IN (SELECT k FROM b)", lambda n, b: any(k == n for k, _ in b)),
        ("EXISTS (SELECT 1 FROM b)", lambda n, b: bool(b)),
        (
            "EXISTS (SELECT 1 FROM b WHERE b.k + 1 = t.n AND b.v > 10 AND t.n > 1)",
            lambda n, b: n > 1 and any(k + 1 == n and v > 10 for k, v in b),
        ),
    ],
)
def test_a_row_with_several_matches_in_the_recursion_keeps_its_weight(condition, matches):
    circuit = compile_sql(
        f"""
        WITH MUTUALLY RECURSIVE
            a (x BIGINT) AS (SELECT n FROM t WHERE {condition}),
            b (k BIGINT, v BIGINT) AS (SELECT k, v FROM s UNION SELECT x, x + 10 FROM a)
        SELECT x FROM a
        """,
        {"t": "n BIGINT", "s": "k BIGINT, v BIGINT"},
        dialect="materialize",
    )
    chooser = random.Random(0)
    t: Counter[int] = Counter()
    s: Counter[tuple[int, int]] = Counter()
    total: Counter[int] = Counter()
    for _ in range(25):
        rows = {"t": [], "s": []}
        for _ in range(chooser.randint(1, 3)):
            n, k, v = chooser.randint(0, 3), chooser.randint(0, 3), chooser.choice([10, 11, 20])
            for name, bag, row in (("t", t, (n,)), ("s", s, (k, v))):
                weight = chooser.choice([1, 2, -bag[row]])
                bag[row] += weight
                names = ("n",) if name == "t" else ("k", "v")
                rows[name].append({**dict(zip(names, row, strict=True)), "weight": weight})
        for row in circuit.step(rows)["view"].to_pylist():
            total[row["x"]] += row["weight"]
        b = {row for row, weight in s.items() if weight}
        while True:
            a = {n: weight for (n,), weight in t.items() if weight and matches(n, b)}
            if b >= (derived := {(x, x + 10) for x in a}):
                break
            b |= derived
        assert {x: weight for x, weight in total.items() if weight} == a


@pytest.mark.parametrize(
    "query",
    [
        "SELECT n FROM (SELECT DISTINCT n FROM t WHERE EXISTS (SELECT 1 FROM b WHERE b.x < t.n))",
        """SELECT n FROM u WHERE n IN
            (SELECT n FROM t WHERE EXISTS (SELECT 1 FROM b WHERE b.x < t.n))""",
    ],
)
def test_a_comparison_with_recursive_rows_below_a_distinct_may_be_an_inequality(query):
    circuit = compile_sql(
        f"""
        WITH MUTUALLY RECURSIVE
            a (x BIGINT) AS ({query}),
            b (x BIGINT) AS (SELECT n FROM s UNION SELECT x - 2 FROM a)
        SELECT x FROM a
        """,
        dict.fromkeys("stu", "n BIGINT"),
        dialect="materialize",
    )
    chooser = random.Random(0)
    bags: dict[str, Counter[int]] = {name: Counter() for name in "stu"}
    total: Counter[int] = Counter()
    for _ in range(25):
        rows: dict[str, list[dict[str, int]]] = {}
        for name, bag in bags.items():
            n = chooser.randint(0, 4)
            weight = chooser.choice([1, 2, -bag[n]])
            bag[n] += weight
            rows[name] = [{"n": n, "weight": weight}]
        for row in circuit.step(rows)["view"].to_pylist():
            total[row["x"]] += row["weight"]
        s, t, u = ({n for n, weight in bag.items() if weight} for bag in bags.values())
        b = set(s)
        while True:
            found = {n for n in t if any(x < n for x in b)}
            a = {n: bags["u"][n] for n in found & u} if " u " in query else dict.fromkeys(found, 1)
            if b >= {x - 2 for x in a}:
                break
            b |= {x - 2 for x in a}
        assert {x: weight for x, weight in total.items() if weight} == a


def test_a_comparison_with_recursive_rows_that_keeps_duplicates_is_an_error():
    with pytest.raises(CircuitError, match="compare with =, or remove duplicates with UNION"):
        compile_sql(
            """
            WITH MUTUALLY RECURSIVE
                a (x BIGINT) AS (SELECT n FROM t WHERE EXISTS (SELECT 1 FROM b WHERE b.x < t.n)),
                b (x BIGINT) AS (SELECT n FROM t UNION SELECT x FROM a)
            SELECT x FROM a
            """,
            {"t": "n BIGINT"},
            dialect="materialize",
        )


@pytest.mark.parametrize("cost", ["c * 0.5", "0.5 * c", "c / 2", "c * CAST(0.5 AS DOUBLE)"])
@pytest.mark.parametrize("type", ["decimal(10,2)", "double"])
def test_a_minimum_may_pass_on_its_value_times_a_decimal_constant(cost, type):
    circuit = compile_sql(
        "WITH RECURSIVE d(x, c) USING KEY (x, min(c)) AS ("
        f"SELECT x, c FROM s UNION SELECT e.y, CAST({cost} AS {type}) FROM d JOIN e ON d.x = e.x"
        ") SELECT * FROM d",
        {"s": f"x bigint, c {type}", "e": "x bigint, y bigint"},
    )
    step = circuit.step(
        {"s": [{"x": 1, "c": 8}], "e": [{"x": 1, "y": 2}, {"x": 2, "y": 3}, {"x": 1, "y": 3}]}
    )
    assert bag_of(step["view"]) == {(1, 8): 1, (2, 4): 1, (3, 2): 1}
