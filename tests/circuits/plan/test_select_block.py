"""The part of a select block that has the keys of a match: its state is not a Cartesian product."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circuits import compile_sql

INT = pa.int64()
COLUMNS = {"s": ("i", "t"), "i": ("id", "c"), "t": ("id", "r"), "p": ("c", "r")}
SCHEMAS = {name: pa.schema([(c, INT) for c in columns]) for name, columns in COLUMNS.items()}
FROM = "FROM s JOIN i ON i.id = s.i JOIN t ON t.id = s.t"
EQUAL = "p.c = i.c AND p.r = t.r"
LESS = "p.c < i.c AND p.r < t.r"
Row = tuple[int, int]
Bag = Counter[Row]


def equal(left: Row, right: Row) -> bool:
    return left == right


def less(left: Row, right: Row) -> bool:
    return left[0] < right[0] and left[1] < right[1]


def left_join(keys: Bag, rows: Bag, matches: Callable[[Row, Row], bool]) -> Counter:
    result: Counter = Counter()
    for key, count in keys.items():
        matching = {row: n for row, n in rows.items() if matches(row, key)} or {(None, None): 1}
        for row, n in matching.items():
            result[(*key, *row)] += count * n
    return result


def semijoin(keys: Bag, rows: Bag, matches: Callable[[Row, Row], bool]) -> Counter:
    return Counter({k: n for k, n in keys.items() if any(matches(row, k) for row in rows)})


def antijoin(keys: Bag, rows: Bag, matches: Callable[[Row, Row], bool]) -> Counter:
    return keys - semijoin(keys, rows, matches)


QUERIES = [
    (f"SELECT i.c, t.r, p.c AS d, p.r AS q {FROM} LEFT JOIN p ON {EQUAL}", left_join, equal),
    (f"SELECT i.c, t.r, p.c AS d, p.r AS q {FROM} LEFT JOIN p ON {LESS}", left_join, less),
    (f"SELECT i.c, t.r {FROM} WHERE EXISTS (SELECT 1 FROM p WHERE {LESS})", semijoin, less),
    (f"SELECT i.c, t.r {FROM} WHERE NOT EXISTS (SELECT 1 FROM p WHERE {LESS})", antijoin, less),
]


@pytest.mark.parametrize("query", [query for query, _, _ in QUERIES])
def test_keys_of_two_relations_are_not_a_cartesian_product(query):
    circuit = compile_sql(query, SCHEMAS)
    count = 20
    rows = {
        name: [{**dict.fromkeys(columns, n), "weight": 1} for n in range(count)]
        for name, columns in COLUMNS.items()
        if name != "p"
    }
    circuit.step(rows)
    assert max(size.rows for size in circuit.state_sizes()) == count


def test_keys_of_unrelated_relations_need_no_third_relation():
    query = """SELECT s.i, i.c FROM s CROSS JOIN i JOIN t ON t.id = s.t
        LEFT JOIN p ON p.c = i.c AND p.r = s.i"""
    circuit = compile_sql(query, SCHEMAS)
    output = circuit.step(
        {
            "s": [{"i": n, "t": 0, "weight": 1} for n in range(3)],
            "i": [{"id": n, "c": n, "weight": 1} for n in range(3)],
            "t": [{"id": 0, "r": 0, "weight": 1}],
        }
    )
    assert sum(output["view"]["weight"].to_pylist()) == 9


CHANGES = st.lists(
    st.tuples(
        st.sampled_from(sorted(COLUMNS)),
        st.integers(0, 2),
        st.integers(0, 2),
        st.sampled_from((1, -1)),
    ),
    max_size=8,
)


@pytest.mark.parametrize(("query", "join", "matches"), QUERIES)
@settings(max_examples=40)
@given(steps=st.lists(CHANGES, min_size=1, max_size=4))
def test_the_rows_are_those_of_nested_loops(query, join, matches, steps):
    circuit = compile_sql(query, SCHEMAS)
    rows: dict[str, Bag] = {name: Counter() for name in COLUMNS}
    total: Counter = Counter()
    for changes in steps:
        tables: dict[str, list[dict[str, int]]] = {name: [] for name in COLUMNS}
        for name, first, second, weight in changes:
            row = first, second
            if weight < 0 and not rows[name][row]:
                continue
            rows[name][row] += weight
            tables[name].append({**dict(zip(COLUMNS[name], row, strict=True)), "weight": weight})
        for row in circuit.step(tables)["view"].to_pylist():
            weight = row.pop("weight")
            total[tuple(row.values())] += weight
        keys: Bag = Counter()
        for (i, t), n in rows["s"].items():
            for (i_id, c), m in rows["i"].items():
                for (t_id, r), k in rows["t"].items():
                    if (i, t) == (i_id, t_id):
                        keys[c, r] += n * m * k
        expected = join(+keys, +rows["p"], matches)
        assert {row: n for row, n in total.items() if n} == dict(+expected)
