"""Lists, structs and maps as texts, compared with DuckDB."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circuits import SqlError, compile_sql
from circuits.errors import EvaluationError

TEXTS = st.none() | st.text("aN \t'\"\\,:=[]{}()u", max_size=3) | st.sampled_from(["null", "NULL"])
NUMBERS = st.none() | st.sampled_from([0, -1, 7])
ITEM = pa.struct([("x", pa.int32()), ("a b", pa.string())])
SCHEMA = pa.schema(
    [
        ("l", pa.list_(pa.string())),
        ("n", pa.list_(pa.list_(pa.int32()))),
        ("i", ITEM),
        ("m", pa.map_(pa.string(), pa.float64())),
        ("s", pa.list_(ITEM)),
    ]
)
ITEMS = st.none() | st.fixed_dictionaries({"x": NUMBERS, "a b": TEXTS})
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "l": st.none() | st.lists(TEXTS, max_size=3),
            "n": st.none() | st.lists(st.none() | st.lists(NUMBERS, max_size=2), max_size=2),
            "i": ITEMS,
            "m": st.none()
            | st.lists(
                st.tuples(TEXTS.filter(bool), st.none() | st.sampled_from([0.5, 1e10, -2.0])),
                max_size=2,
                unique_by=lambda entry: entry[0],
            ),
            "s": st.none() | st.lists(ITEMS, max_size=2),
        }
    ),
    max_size=3,
)
QUERY = (
    "SELECT l::VARCHAR, n::VARCHAR, i::VARCHAR, m::VARCHAR, CAST(s AS VARCHAR),"
    " TRY_CAST(l AS TEXT), row(1, i)::VARCHAR, [DATE '2024-01-05']::VARCHAR,"
    " {'t': TIME '10:00:00'}::VARCHAR FROM t"
)
CIRCUIT = compile_sql(QUERY, {"t": SCHEMA})
DATABASE = duckdb.connect(config={"threads": 1})


def test_the_name_of_a_nested_type_is_that_of_duckdb():
    schema = pa.schema([*SCHEMA, ("f", pa.list_(pa.int16(), 2)), ("d", pa.list_(pa.decimal128(5)))])
    table = pa.Table.from_pylist([{}], schema=schema)
    DATABASE.register("u", table)
    names = ("l", "n", "m", "d", "CAST(f AS INT[2])", "['a']", "[m]")
    query = f"SELECT {', '.join(f'typeof({name})' for name in names)} FROM u"
    (row,) = compile_sql(query, {"u": schema}).step({"u": table})["view"].to_pylist()
    assert tuple(row.values())[:-1] == DATABASE.execute(query).fetchall()[0]


@pytest.mark.parametrize("value", ["[1, 2.5]", "[i]", "i", "1 + 1", "[[x]]"])
def test_the_type_of_a_computed_nested_value_is_refused(value):
    with pytest.raises(SqlError, match="typeof"):
        compile_sql(f"SELECT typeof({value}), i.x AS x FROM t", {"t": SCHEMA})


@settings(max_examples=100)
@given(ROWS)
def test_the_texts_of_nested_values_are_those_of_duckdb(rows):
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    step = CIRCUIT.prepare({"t": table})
    view = step.outputs["view"]
    step.abandon()
    actual = [tuple(row.values())[:-1] for row in view.to_pylist() for _ in range(row["weight"])]
    DATABASE.register("t", table)
    assert sorted(map(repr, actual)) == sorted(map(repr, DATABASE.execute(QUERY).fetchall()))


def test_a_text_that_is_not_known_is_refused():
    value = "[TIMESTAMP '2024-01-01' - TIMESTAMP '2023-01-01']"
    with pytest.raises(SqlError, match="list"):
        compile_sql(f"SELECT CAST({value} AS VARCHAR) AS x", {})


CASTS = [
    "'[1, NULL]'::INT[]",
    "' [ ] '::INT[]",
    "'[,1]'::VARCHAR[]",
    """'[a, "b c", ''d,e'', null, "null", NULL ]'::VARCHAR[]""",
    "'[[1],[2,3],null,[]]'::INT[][]",
    r"""'[a\,b, "a\"b", ''c\''d'']'::VARCHAR[]""",
    """'[a"b"c, "a" "b", {x, y}, (a,b), a:b, "" ]'::VARCHAR[]""",
    """'{a: 1, ''b'': "x y"}'::STRUCT(a INT, b VARCHAR)""",
    "'{a:b:c}'::STRUCT(a VARCHAR, b INT)",
    "'(1, a)'::STRUCT(a INT, b VARCHAR)",
    "'(1)'::STRUCT(a INT, b INT)",
    "'()'::STRUCT(a INT, b INT)",
    "'( 1 , )'::STRUCT(a INT, b INT)",
    """'{"a": {"b": 2}}'::STRUCT(a STRUCT(b INT))""",
    "'[{a: [1,2]}, null, {}]'::STRUCT(a INT[])[]",
    "'{a=1, b=NULL}'::MAP(VARCHAR, INT)",
    "'{1=[1,2], 2=[]}'::MAP(INT, INT[])",
    "'{}'::MAP(VARCHAR, INT)",
    "'[2020-01-01 10:00:00, null]'::TIMESTAMP[]",
    "'[1, 2]'::INT[2]",
    "TRY_CAST('[1,x]' AS INT[])",
    "TRY_CAST('[1' AS INT[])",
    *("'[:)]'::VARCHAR[]", "'[}]'::VARCHAR[]", "'[a), [b, c]]'::VARCHAR[]"),
    *("'[{a), b}]'::VARCHAR[]", "'[{a: ]}]'::STRUCT(a VARCHAR)[]", "'[[x)]]'::VARCHAR[][]"),
    *("'{a: :)}'::STRUCT(a VARCHAR)", "'(a], b)'::STRUCT(a VARCHAR, b VARCHAR)"),
    *("'{k=v], l=w}'::MAP(VARCHAR, VARCHAR)", "'{)=v}'::MAP(VARCHAR, VARCHAR)"),
    *("TRY_CAST('[1, 2, 3]' AS INT[2])", "TRY_CAST('NULL' AS INT[])"),
    *("TRY_CAST('{1=a, 01=b}' AS MAP(INT, VARCHAR))", "TRY_CAST('{x=a}' AS MAP(INT, VARCHAR))"),
    *("'{01=a, 2=b}'::MAP(INT, VARCHAR)", "'{[1]=a, [2]=b}'::MAP(INT[], VARCHAR)"),
    "(NULL::VARCHAR)::INT[]",
    "l::VARCHAR::VARCHAR[]",
    "n::VARCHAR::INT[][]",
]


@pytest.mark.parametrize("cast", CASTS)
def test_a_text_that_is_cast_to_a_nested_type_is_read_as_in_duckdb(cast):
    rows = [{"l": ["a", None, "null", 'b"', "c'd", "", " e", "f,[", "\\"], "n": [[1], None]}]
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    DATABASE.register("u", table)
    query = f"SELECT {cast} AS x FROM u"
    (actual,) = compile_sql(query, {"u": SCHEMA}).step({"u": table})["view"].to_pylist()
    (expected,) = DATABASE.sql(query).to_arrow_table().to_pylist()
    assert actual["x"] == expected["x"]


@pytest.mark.parametrize(
    ("text", "type"),
    [
        ("{1,NULL}", "INT[]"),
        ("[1", "INT[]"),
        ("[1]]", "INT[]"),
        ("[1,]", "INT[]"),
        ("abc", "INT[]"),
        ("", "INT[]"),
        ("[''a'''']", "VARCHAR[]"),
        ("{a: 1, c: 2}", "STRUCT(a INT, b VARCHAR)"),
        ("{A: 1}", "STRUCT(a INT)"),
        ("(1,2,3)", "STRUCT(a INT, b INT)"),
        ("{a: 1}", "MAP(VARCHAR, INT)"),
        ("{a=1, a=2}", "MAP(VARCHAR, INT)"),
        ("{1=a, 01=b}", "MAP(INT, VARCHAR)"),
        ("{[1]=a, [01]=b}", "MAP(INT[], VARCHAR)"),
        ("[1, 2, 3]", "INT[2]"),
        ("[(a], b]", "VARCHAR[]"),
        ("{k=}}", "MAP(VARCHAR, VARCHAR)"),
        ("(a), b)", "STRUCT(a VARCHAR, b VARCHAR)"),
        ("NULL", "INT[]"),
        (" null ", "STRUCT(a INT)"),
    ],
)
def test_a_text_that_is_no_nested_value_is_an_error_as_in_duckdb(text, type):
    DATABASE.register("u", pa.Table.from_pylist([{}], schema=SCHEMA))
    with pytest.raises(duckdb.Error):
        DATABASE.execute(f"SELECT '{text}'::{type}").fetchall()
    with pytest.raises(SqlError, match=r"line 1, column 8: .* is not a"):
        compile_sql(f"SELECT '{text}'::{type} AS x FROM u", {"u": SCHEMA})


@pytest.mark.parametrize(
    ("text", "type", "message"),
    [
        ("[1, 2, 3]", "INT[2]", "it has 3 elements, not 2"),
        ("{c: 1}", "STRUCT(a INT, b INT)", "c: 1 is no field of the struct; its fields are a, b"),
    ],
)
def test_the_error_of_a_row_says_what_is_wrong(text, type, message):
    circuit = compile_sql(f"SELECT s::{type} AS x FROM t", {"t": pa.schema([("s", pa.string())])})
    with pytest.raises(EvaluationError, match=f"is not a (list|struct): {message}"):
        circuit.step({"t": [{"s": text}]})


def test_the_error_of_a_literal_names_the_type_as_in_sql():
    with pytest.raises(SqlError, match=r"'\[1, 2, 3\]' is not a valid INT\[2\]"):
        compile_sql("SELECT CAST('[1, 2, 3]' AS INTEGER[2]) AS x", {})
