"""Regressions of circuits: a small text for each bug."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circuits import (
    CircuitError,
    SchemaError,
    SnapshotError,
    SqlError,
    compile_sql,
    incrementalize,
)
from circuits.plan.expressions import Column, Literal
from circuits.plan.nodes import Field, Map, OuterJoin, Values
from circuits.types.codecs.codec import Codecs
from circuits.types.functions import call
from tests.generators.plans import decode
from tests.oracles.naive_plan import evaluate_plan

EDGE = {"e": pa.schema([("src", pa.int64()), ("dst", pa.int64())])}
EDGES = pa.table({"src": [1, 2, 3], "dst": [2, 3, 1]})


def rows(table: pa.Table) -> list[dict[str, object]]:
    return sorted(table.to_pylist(), key=repr)


def test_a_query_with_an_alias_may_be_the_first_in_a_bracketed_join():
    text = (
        "SELECT x.src, y.dst FROM e x JOIN "
        "((SELECT src, dst FROM e) AS z LEFT JOIN e y ON z.dst = y.src) ON x.src = z.src"
    )
    delta = compile_sql(text, EDGE).step({"e": EDGES})["view"]
    assert rows(delta) == [
        {"src": 1, "dst": 3, "weight": 1},
        {"src": 2, "dst": 1, "weight": 1},
        {"src": 3, "dst": 2, "weight": 1},
    ]


@pytest.mark.parametrize("word", ["LEFT", "FULL"])
def test_the_work_of_a_chain_of_outer_joins_follows_its_nodes_and_not_its_paths(word):
    joins = (f"{word} JOIN e e{i} ON e{i - 1}.dst = e{i}.src" for i in range(1, 13))
    circuit = compile_sql(f"SELECT e0.src, e12.dst FROM e e0 {' '.join(joins)}", EDGE)
    assert len(rows(circuit.step({"e": EDGES})["view"])) == 3
    circuit.snapshot()


def test_with_queries_that_read_the_one_before_twice_compile_once_each():
    definitions = (
        f"v{i} AS (SELECT DISTINCT a.src, b.dst FROM v{i - 1} a JOIN v{i - 1} b ON a.dst = b.src)"
        for i in range(1, 21)
    )
    text = f"WITH v0 AS (SELECT src, dst FROM e), {', '.join(definitions)} SELECT src, dst FROM v20"
    circuit = compile_sql(text, EDGE)
    # 2**20 edges on from 1, in a ring of three.
    expected = [{"src": i, "dst": (i - 1 + 2**20) % 3 + 1, "weight": 1} for i in (1, 2, 3)]
    assert rows(circuit.step({"e": EDGES})["view"]) == expected
    circuit.snapshot()


@pytest.mark.parametrize("n", [3, 4, 5, 12])
def test_antijoins_on_keys_of_several_tables_do_not_double_the_joins(n):
    conditions = "".join(
        f" AND NOT EXISTS (SELECT 1 FROM e c{i} WHERE c{i}.src = a.src + {i} AND c{i}.dst = b.dst)"
        for i in range(n)
    )
    text = f"SELECT a.src, b.dst, count(*) AS n FROM e a, e b WHERE a.dst < b.src{conditions}"
    circuit = compile_sql(f"{text} GROUP BY ALL", EDGE)
    assert circuit.explain().count("─ #") < 300  # operators
    pairs = {(s, d) for s in range(0, 24, 3) for d in range(0, 24, 5)}
    half = {pair for pair in pairs if sum(pair) % 2}
    total: Counter[tuple[int, int]] = Counter()
    for added, weight in ((pairs, 1), (half, -1)):
        src, dst = zip(*sorted(added), strict=True)
        delta = circuit.step(
            {"e": pa.table({"src": src, "dst": dst, "weight": [weight] * len(src)})}
        )
        for row in delta["view"].to_pylist():
            total[row["src"], row["dst"]] += row["n"] * row["weight"]
    present = pairs - half
    expected = Counter(
        (s, d)
        for s, t in present
        for u, d in present
        if t < u and not any((s + i, d) in present for i in range(n))
    )
    assert {key: count for key, count in total.items() if count} == expected


def test_a_one_shot_query_reads_relations_of_any_name():
    circuit = compile_sql("SELECT src FROM answer", {"answer": EDGE["e"]}, materialize=True)
    circuit.step({"answer": EDGES})
    assert circuit.query("SELECT count(*) AS n FROM answer").to_pylist() == [{"n": 3, "weight": 1}]
    assert circuit.query("SELECT count(*) AS n FROM Answer").to_pylist() == [{"n": 3, "weight": 1}]


@pytest.mark.parametrize("table", [[(1, 2)], {"src": [1], "dst": [2]}, None])
def test_an_error_names_the_type_of_a_value_that_is_no_table(table):
    circuit = compile_sql("SELECT src FROM e", EDGE)
    with pytest.raises(SchemaError, match=r"pa\.table") as caught:
        circuit.step({"e": table})
    assert type(table).__name__ in str(caught.value)


def test_an_error_names_the_type_of_a_value_that_is_no_snapshot():
    circuit = compile_sql("SELECT src FROM e", EDGE)
    with pytest.raises(SnapshotError, match="bytes"):
        circuit.restore(b"...")


def test_an_unknown_dialect_is_named():
    with pytest.raises(SqlError, match=r"unknown dialect 'duckbd'.*duckdb"):
        compile_sql("SELECT src FROM e", EDGE, dialect="duckbd")


@pytest.mark.parametrize("n", [100, 300, 1000, 3000])
@pytest.mark.parametrize(
    "text",
    [
        lambda n: f"SELECT {' + '.join(['src'] * n)} AS x FROM e",
        lambda n: f"SELECT src FROM e WHERE {' AND '.join(f'src <> {i}' for i in range(n))}",
        lambda n: f"SELECT src FROM e WHERE {' OR '.join(f'src = {i}' for i in range(n))}",
        lambda n: " UNION ALL ".join(f"SELECT src + {i} AS x FROM e" for i in range(n)),
    ],
)
def test_a_text_is_compiled_or_nested_too_deeply(text, n):
    """A circuit that compiles also steps, has a snapshot and is explained, whatever its depth."""
    try:
        circuit = compile_sql(text(n), EDGE)
    except CircuitError as error:
        assert "nested too deeply" in str(error)
        return
    circuit.step({"e": EDGES})
    circuit.snapshot()
    circuit.explain()
    circuit.explain("mermaid")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT src FROM", "syntax error near 'FROM': Expected table name"),
        ("SELECT src FROM e WHERE", "syntax error near 'WHERE': something is missing"),
        ("SELECT abs() AS x FROM e", "something is missing"),
        ("SELECT CAST(src || 'x' AS INT) AS x FROM e", "'1x' cannot be parsed as int32"),
        ("SELECT src FROM e WHERE count(*) > 1", "use HAVING"),
    ],
)
def test_messages_have_the_words_of_sql_and_not_those_of_the_parser(text, message):
    with pytest.raises(CircuitError) as caught:
        compile_sql(text, EDGE).step({"e": EDGES})
    assert message in str(caught.value)
    for internal in ("sqlglot", "Token", "decimal256"):
        assert internal not in str(caught.value)


WORDS = [
    b"",
    b"\0",
    b"a",
    b"\xff",
    b"\0" * 7 + b"\1",
    b"\0" * 8,
    b"\xff" * 7 + b"\xfe",
    b"\xff" * 8,
]
TEXTS = st.lists(st.sampled_from(WORDS), max_size=4).map(b"".join)


@settings(max_examples=60)
@given(st.lists(TEXTS, unique=True), st.booleans())
def test_sort_columns_of_texts_never_contradict_their_order(texts, descending):
    codec = Codecs().codec(pa.binary())
    codes = codec.encode(pa.array(texts, pa.binary()))
    keys = list(
        zip(*(k.tolist() for k in codec.sort_keys(codes, descending=descending)[0]), strict=True)
    )
    for key, text in zip(keys, texts, strict=True):
        for other_key, other_text in zip(keys, texts, strict=True):
            if key < other_key:
                assert (text > other_text) if descending else (text < other_text)


def test_texts_that_differ_only_after_eight_bytes_have_sort_columns_that_differ():
    """If they were equal, a step of a top-k or a min would read all of them, whatever its delta."""
    codec = Codecs().codec(pa.string())
    codes = codec.encode(pa.array([f"Customer#{i:09}" for i in range(1000)]))
    keys, _ = codec.sort_keys(codes)
    assert len(np.unique(np.stack(keys), axis=1).T) == 1000


@pytest.mark.parametrize(
    "query",
    [
        "SELECT u.a FROM u, t WHERE t.s = '12' AND u.a = CAST(t.s AS INT)",
        "SELECT u.a FROM u JOIN t ON u.a = CAST(t.s AS INT) WHERE t.s ~ '^[0-9]+$'",
        "SELECT u.a FROM u JOIN t ON u.a <= CAST(t.s AS INT) AND t.s = '12' AND u.a > 3",
        "SELECT u.a FROM u WHERE EXISTS (SELECT 1 FROM t WHERE s = '12' AND CAST(s AS INT) = u.a)",
    ],
)
def test_the_key_of_a_join_is_computed_for_the_rows_that_a_condition_keeps(query):
    """It was computed first, to remove NULL keys, so a text that is no number failed the step."""
    circuit = compile_sql(query, {"t": "s STRING", "u": "a INT"})
    texts = [{"s": "12"}, {"s": "x"}, {"s": None}]
    view = circuit.step({"t": texts, "u": [{"a": 12}, {"a": 3}]})["view"]
    assert view.to_pylist() == [{"a": 12, "weight": 1}]
    removed = circuit.step({"t": [{"s": "12", "weight": -1}, {"s": "x", "weight": -1}]})["view"]
    assert removed.to_pylist() == [{"a": 12, "weight": -1}]


@pytest.mark.parametrize("kind", ["left", "full"])
def test_an_outer_join_may_compare_with_a_constant_column(kind):
    """The condition reads no column of one side; the join of that side once had no atom."""
    pairs = (Field("v", pa.int64()), Field("w", pa.int64()))
    left, right = Values(pairs, ((1, 2), (None, 3))), Values(pairs, ((4, 5),))
    for value in (None, 1, 4):
        with_constant = Map(right, (Literal(value, pa.int64()),), ("m",))
        differs = call("not", call("eq", Column(0, pa.int64()), Column(2, pa.int64())))
        plan = OuterJoin(left, with_constant, differs, kind)
        graph = incrementalize({"view": plan}, {})
        step = graph.prepare({})
        assert decode(step.deltas[graph.views["view"]]) == evaluate_plan(plan, {})
