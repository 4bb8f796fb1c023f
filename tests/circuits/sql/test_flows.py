"""CREATE FLOW: a streaming table has the rows of all its flows, and errors keep their positions."""

from __future__ import annotations

import re

import pytest

from circuits import SqlError, compile_sql
from circuits.sql import merge_flows, view_statements

SCHEMAS = {"x": "a INT, b STRING", "y": "a INT, c DOUBLE"}
TABLE = "CREATE STREAMING TABLE t;\n"


def run(text, **rows):
    circuit = compile_sql(merge_flows(text, "spark"), SCHEMAS, dialect="spark")
    assert set(circuit.outputs) == {
        view.name
        for view in view_statements(merge_flows(text, "spark"), "spark")
        if not view.is_temporary
    }
    step = circuit.step({name: list(values) for name, values in rows.items()})
    rows = [(row.pop("weight"), str(row)) for row in step["t"].to_pylist()]
    return sorted(row for weight, row in rows for _ in range(weight))


ROWS = {"x": [{"a": 1, "b": "u"}], "y": [{"a": 2, "c": 0.5}]}
BOTH = [str({"a": 1, "b": "u", "c": None}), str({"a": 2, "b": None, "c": 0.5})]


@pytest.mark.filterwarnings("ignore::circuits.SqlNotice")
@pytest.mark.parametrize(
    "text",
    [
        f"{TABLE}CREATE FLOW f AS INSERT INTO t BY NAME SELECT * FROM STREAM(x);"
        "CREATE FLOW g AS INSERT INTO t BY NAME SELECT c, a FROM STREAM y",
        "CREATE FLOW f COMMENT 'AS INSERT' AS INSERT INTO TABLE s.t\nBY NAME\nSELECT * FROM x;"
        "CREATE FLOW g AS INSERT INTO T BY NAME SELECT * FROM y; -- t\n"
        "CREATE OR REFRESH STREAMING TABLE IF NOT EXISTS t USING delta COMMENT 'a' -- end",
        "CREATE STREAMING TABLE t AS SELECT * FROM STREAM(x);"
        "CREATE FLOW t AS INSERT INTO t BY NAME SELECT * FROM STREAM(y)",
        f"{TABLE}CREATE FLOW `f f` AS INSERT INTO `t` BY NAME SELECT * FROM x;"
        "CREATE FLOW f AS INSERT INTO t BY NAME WITH w AS (SELECT * FROM y) SELECT * FROM w",
    ],
)
def test_a_streaming_table_has_the_rows_of_all_its_flows(text):
    assert run(text, **ROWS) == BOTH


def test_a_row_of_two_flows_is_there_twice():
    flow = "CREATE FLOW {} AS INSERT INTO t BY NAME SELECT a FROM x;"
    assert run(TABLE + flow.format("f") + flow.format("g"), **ROWS) == [str({"a": 1})] * 2


@pytest.mark.parametrize("header", ["AS", "COMMENT 'c' AS", "\nAS", "COMMENT\n'c'\n\n AS"])
@pytest.mark.parametrize("space", [" ", "\n", "\n\t  ", " -- note\n   "])
def test_every_character_of_a_query_keeps_its_position(header, space):
    text = f"SELECT 1 AS a; CREATE FLOW f {header} INSERT INTO t BY NAME{space}SELECT *\n FROM x;"
    merged = merge_flows(f"{text}\nSELECT 2 AS b;\n{TABLE}", "spark")
    start = text.index("SELECT *")
    assert merged.count("\n") == (text + TABLE).count("\n") + 2
    (line,) = (line for line in merged.split("\n") if "SELECT *" in line and "FROM t_" not in line)
    (old,) = (line for line in text.split("\n") if "SELECT *" in line)
    assert line.index("SELECT *") == old.index("SELECT *")
    before = merged[: merged.index("SELECT *\n FROM x")]
    assert before.count("\n") == text[:start].count("\n")


def test_an_error_in_a_flow_names_its_position():
    text = f"{TABLE}CREATE FLOW f AS INSERT INTO t BY NAME SELECT nope FROM STREAM(x)"
    with pytest.raises(SqlError, match=re.escape("line 2, column 47: unknown column 'nope'")):
        run(text)


@pytest.mark.parametrize(
    "flow",
    [
        "CREATE FLOW f AS INSERT INTO other BY NAME SELECT a FROM x",
        "CREATE FLOW f AS INSERT INTO t SELECT a FROM x",
        "CREATE FLOW f AS INSERT INTO t (a) SELECT a FROM x",
        "CREATE FLOW f AS INSERT OVERWRITE t BY NAME SELECT a FROM x",
        "CREATE FLOW f AS AUTO CDC INTO t FROM STREAM(x) KEYS (a) SEQUENCE BY a",
        "CREATE FLOW f AS INSERT INTO t BY NAME",
        "CREATE FLOW",
    ],
)
def test_other_flows_are_refused_with_their_position(flow):
    text = f"CREATE STREAMING TABLE t AS SELECT a FROM STREAM(x);\n{flow}"
    assert merge_flows(text, "spark") == text
    with pytest.raises(SqlError, match=r"line 2, column 1: CREATE FLOW is not supported; in a pi"):
        run(text)


def test_two_flows_of_a_table_have_different_names():
    flow = "CREATE FLOW f AS INSERT INTO t BY NAME SELECT a FROM x;"
    with pytest.raises(SqlError, match="'t__f' has the name of an existing relation or view"):
        run(TABLE + flow * 2)
