"""Rows and schemas of any kind: frames, RecordBatches, lists of dicts, DDL text, dicts of types."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circuits import (
    Circuit,
    InputOptions,
    Schema,
    SchemaError,
    UnknownInputError,
    compile_datalog,
    compile_sql,
)
from circuits.schema import arrow_schema
from circuits.types.ddl import schema_of_ddl
from dbsp_wcoj.errors import ArgumentTypeError

PEOPLE = pa.schema([("name", pa.string()), ("age", pa.int32()), ("pay", pa.decimal128(9, 2))])
ANN = {"name": "ann", "age": 30, "pay": Decimal("10.50")}
BOB = {"name": "bob", "age": None, "pay": Decimal("7.00")}
TABLE = pa.Table.from_pylist([ANN, BOB], schema=PEOPLE)


class ArrowFrame:
    """A frame of any package, such as polars: it has the method of the Arrow protocol only."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.table.__arrow_c_stream__(requested_schema)


class FailingFrame:
    """A frame whose query fails when its rows are asked for."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        raise self.error


def circuit(schema: Any = PEOPLE, **options: Any) -> Circuit:
    return compile_sql("SELECT * FROM p", {"p": schema}, **options)


def read_back(rows: Any, schema: Any = PEOPLE) -> list[dict[str, Any]]:
    """Return the rows of a view of all rows after a step with these rows."""
    table = circuit(schema).step({"p": rows})["view"]
    rows = [row for row in table.to_pylist() for _ in range(row.pop("weight"))]
    return sorted(rows, key=repr)


def frames() -> dict[str, Any]:
    """Return the same rows in all forms in which a step takes them."""
    struct = TABLE.to_struct_array()
    views = TABLE.cast(
        pa.schema([("name", pa.string_view()), ("age", pa.int64()), ("pay", pa.decimal256(20, 4))])
    )
    pandas = TABLE.to_pandas()
    return {
        "a table": TABLE,
        "a frame of another package": ArrowFrame(TABLE),
        "string views, as polars has them": ArrowFrame(views),
        "large strings": ArrowFrame(TABLE.cast(PEOPLE.set(0, pa.field("name", pa.large_string())))),
        "a reader": TABLE.to_reader(),
        "a RecordBatch": TABLE.to_batches()[0],
        "RecordBatches": TABLE.to_batches(max_chunksize=1),
        "a chunked array of structs": struct,
        "an array of structs": struct.combine_chunks(),
        "a slice of an array of structs": pa.concat_arrays([*struct.chunks, *struct.chunks]).slice(
            TABLE.num_rows
        ),
        "pandas": pandas.astype({"age": "Int64"}),
        "pandas with categories": pandas.astype({"age": "Int32", "name": "category"}),
        "pandas of Arrow": TABLE.to_pandas(types_mapper=pd.ArrowDtype),
        "pandas, sorted": pandas.astype({"age": "Int64"}).sort_values("name", ascending=False),
        "DuckDB": duckdb.from_arrow(TABLE),
        "dicts": [ANN, BOB],
        "a tuple of dicts": (ANN, {"pay": Decimal(7), "name": "bob"}),
    }


@pytest.mark.parametrize("kind", frames())
def test_rows_in_every_form_are_read_as_those_of_a_table(kind: str) -> None:
    assert read_back(frames()[kind]) == [ANN, BOB]


@pytest.mark.parametrize("kind", frames())
def test_every_frame_is_a_schema_of_its_columns(kind: str) -> None:
    frame = frames()[kind]
    if isinstance(frame, list | tuple):
        with pytest.raises(
            ArgumentTypeError, match=r"give a pa\.Schema, a dict of types, DDL text"
        ):
            circuit(frame)
        return
    new_circuit = circuit(frame)
    assert new_circuit.inputs["p"].columns == tuple(PEOPLE.names)
    assert new_circuit.step({"p": TABLE})["view"].num_rows == 2
    assert new_circuit.step({})["view"].num_rows == 0, "the rows of the schema are not read"


def test_a_reader_that_gives_the_schema_still_has_its_rows() -> None:
    reader = TABLE.to_reader()
    assert circuit(reader).step({"p": reader})["view"].num_rows == 2


def test_the_index_of_pandas_is_a_column_only_if_it_has_a_name() -> None:
    frame = TABLE.to_pandas().astype({"age": "Int64"})
    assert read_back(frame[frame["name"] == "bob"]) == [BOB]
    assert read_back(frame.set_index("name")) == [ANN, BOB]
    assert arrow_schema("p", frame[frame["name"] == "bob"]).names == PEOPLE.names
    with pytest.raises(SchemaError, match=r"surplus .* 'place'"):
        read_back(frame.rename_axis(index="place").set_axis(pd.Index(["x", "y"], name="place")))


def test_a_frame_that_changes_after_the_step_does_not_change_the_state() -> None:
    view_circuit = compile_sql("SELECT n FROM r", {"r": "n bigint"}, materialize=True)
    frame = pd.DataFrame({"n": np.arange(4)})
    step = view_circuit.prepare({"r": frame})
    frame["n"] = 7
    frame.iloc[:, 0].to_numpy(copy=False)[:] = 7
    step.commit()
    assert view_circuit.views["view"]["n"].to_pylist() == [0, 1, 2, 3]


def test_weights_come_with_frames_and_with_dicts() -> None:
    view_circuit = compile_sql("SELECT a FROM r", {"r": "a int"})
    frame = pd.DataFrame({"a": [1, 2], "weight": [2, -1]})
    rows = [{"a": 1, "weight": 2}, {"a": 2, "weight": -1}]
    expected = [{"a": 1, "weight": 2}, {"a": 2, "weight": -1}]
    for changes in (frame, rows):
        step = view_circuit.prepare({"r": changes})
        assert step.outputs["view"].to_pylist() == expected
        step.abandon()
    with pytest.raises(SchemaError, match="'weight' holds 1 NULL of 2 values"):
        view_circuit.step({"r": [{"a": 1}, {"a": 1, "weight": 1}]})


def test_an_empty_list_or_frame_changes_nothing() -> None:
    for rows in ([], (), pd.DataFrame({"name": [], "age": [], "pay": []}, dtype=object)):
        assert read_back(rows) == []
    counted = compile_sql("SELECT count(*) AS n FROM p", {"p": pa.schema([])})
    delta = counted.step({"p": [{}, {}]})["view"]
    assert delta.to_pylist()[-1] == {"n": 2, "weight": 1}


def test_inputs_with_rules_read_frames_and_dicts() -> None:
    for kind in (pd.DataFrame, list):
        upserts = circuit("nr int, city text", input_options={"p": InputOptions(keys=("nr",))})
        rows = [{"nr": 1, "city": "Oslo", "sequence": 2}, {"nr": 1, "city": "Rome", "sequence": 1}]
        assert upserts.step({"p": kind(rows)})["view"]["city"].to_pylist() == ["Oslo"]


def test_an_error_names_a_key_of_any_row_that_is_not_a_column() -> None:
    with pytest.raises(
        SchemaError,
        match=r"relation 'p': the table has surplus .* 'agee'; the relation needs name, age",
    ):
        read_back([ANN, BOB | {"agee": 3}])
    with pytest.raises(
        SchemaError, match="rows have 50000 keys that are not columns, more than 16"
    ):
        read_back([{f"key {n}": n} for n in range(50_000)])
    with pytest.raises(SchemaError, match="the key 3 of a row is of type int"):
        read_back([{3: 4}])
    with pytest.raises(SchemaError, match="'name' holds 1 NULL of 2 values and is declared not"):
        read_back([{"name": "x"}, {}], "name text not null")


NOON = datetime(2020, 1, 2, 12)


@pytest.mark.parametrize(
    ("type", "value", "refused"),
    [
        (pa.int64(), 1, 1.5),
        (pa.int64(), 1, 1.0),
        (pa.int64(), 1, True),
        (pa.int64(), 1, "1"),
        (pa.int8(), 127, 128),
        (pa.uint64(), 2**63, -1),
        (pa.uint64(), 2**63, 0.5),
        (pa.bool_(), True, 1),
        (pa.string(), "x", b"x"),
        (pa.string(), "x", 1),
        (pa.binary(), b"x", "x"),
        (pa.date32(), date(2020, 1, 2), NOON),
        (pa.timestamp("us"), NOON, NOON.replace(tzinfo=UTC)),
        (pa.timestamp("us", "UTC"), NOON.replace(tzinfo=UTC), NOON),
        (pa.timestamp("s"), NOON, NOON.replace(microsecond=1)),
        (pa.timestamp("us"), NOON, 5),
        (pa.timestamp("ns"), NOON, pd.Timestamp(5)),
        (pa.timestamp("us"), NOON, pd.NaT),
        (pa.time64("us"), time(1), time(1, tzinfo=UTC)),
        (pa.duration("us"), timedelta(1), 5),
        (pa.decimal128(9, 2), Decimal("1.25"), Decimal("1.255")),
        (pa.decimal128(9, 2), 3, 0.5),
        (pa.decimal128(38, 0), 2**70, 2**127),
        (pa.float32(), 0.5, 1e300),
        (pa.float16(), 0.5, 1e300),
        (pa.float32(), 0.5, 2**24 + 1),
        (pa.float64(), 0.1, 2**53 + 1),
        (pa.dictionary(pa.int8(), pa.string()), "x", 1),
        (pa.int64(), 1, [1]),
        (pa.int64(), 1, Ellipsis),
    ],
    ids=str,
)
def test_a_value_is_unchanged_or_refused(type: pa.DataType, value: Any, refused: Any) -> None:
    schema = pa.schema([("a", type)])
    assert read_back([{"a": value}, {"a": value}], schema) == [{"a": value}] * 2
    assert read_back([{"a": None}, {}], schema) == [{"a": None}] * 2
    for rows in (
        [{"a": refused}],
        [{"a": value}, {"a": refused}],
        [{"a": refused}, {}, {"a": value}],
    ):
        with pytest.raises(SchemaError, match=r"(column|key) 'a'"):
            read_back(rows, schema)


@given(
    st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "i": st.none() | st.integers(-(2**63) + 1, 2**63 - 1),
                "f": st.none() | st.floats(allow_nan=False),
                "s": st.none() | st.text(max_size=3),
                "d": st.none() | st.dates(),
                "t": st.none() | st.datetimes(),
                "m": st.none() | st.decimals(-100, 100, places=2),
            },
        ),
        max_size=5,
    )
)
@settings(max_examples=30, deadline=None)
def test_dicts_are_read_back_unchanged(rows: list[dict[str, Any]]) -> None:
    types = {"i": "long", "f": "double", "s": "text", "d": "date", "t": "timestamp_ntz"}
    schema = types | {"m": "decimal(9,2)"}
    assert weights_of(circuit(schema).step({"p": rows})["view"]) == weights_of(
        pa.Table.from_pylist(
            [{name: row.get(name) for name in schema} | {"weight": 1} for row in rows],
            schema=pa.schema([*arrow_schema("p", schema), ("weight", pa.int64())]),
        )
    )


def weights_of(table: pa.Table) -> dict[str, int]:
    """Return the weight of each row of a table; -0.0 is 0.0."""
    weights: dict[str, int] = {}
    for row in table.to_pylist():
        weight = row.pop("weight")
        key = repr(
            {
                name: value + 0.0 if isinstance(value, float) else value
                for name, value in row.items()
            }
        )
        weights[key] = weights.get(key, 0) + weight
    return weights


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (None, "rows must be a table, a frame, .* not NoneType"),
        ({"name": "ann"}, "not dict: make a list of the row, or a table"),
        ("ann", "not str: make one"),
        ([ANN, 3], "only dicts, or only RecordBatches, and one is of type int"),
        ([ANN, TABLE.to_batches()[0]], "and one is of type RecordBatch"),
        ([TABLE], "and one is of type Table"),
        (
            [pa.record_batch({"name": ["x"]}), pa.record_batch({"name": [1]})],
            "RecordBatches of a list have different columns",
        ),
        (TABLE.to_pandas()["name"], "(a Series cannot be read as Arrow data|not Series)"),
        (pa.array([1]), "a Int64Array cannot be read as Arrow data"),
        (pa.array([{"name": "x"}, None]), "cannot be read as Arrow data: 1 of 2 structs are NULL"),
        (pd.DataFrame({"name": ["x", 1]}), "a DataFrame cannot be read as Arrow data"),
        (pd.DataFrame([[1, 2]], columns=["name", "name"]), "cannot be read as Arrow data"),
        (FailingFrame(KeyError("gone")), "a FailingFrame cannot be read as Arrow data: 'gone'"),
        (ArrowFrame(pa.table({"name": ["x"]})), "no column 'age'"),
        (pd.DataFrame({"name": ["x"], "age": [0.5], "pay": [1]}), "'age': the type is double"),
        (ArrowFrame, "cannot be read as Arrow data"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_rows_that_cannot_be_read_are_refused_and_change_nothing(rows: Any, message: str) -> None:
    view_circuit = circuit(materialize=True)
    for call in (view_circuit.step, view_circuit.prepare, view_circuit.digests):
        with pytest.raises(SchemaError, match=f"relation 'p': .*{message}"):
            call({"p": rows})
    with pytest.raises(UnknownInputError, match="'q' is not an input; inputs are p"):
        view_circuit.step({"q": rows})
    assert view_circuit.step({"p": [ANN]})["view"].num_rows == 1


def test_a_memory_error_of_a_frame_is_raised_as_it_is() -> None:
    with pytest.raises(MemoryError):
        circuit().step({"p": FailingFrame(MemoryError())})


# Schemas ------------------------------------------------------------------------------------------

DECLARED = pa.schema(
    [pa.field("nr", pa.int64(), nullable=False), ("item", pa.string()), ("p", pa.decimal128(9, 2))]
)


@pytest.mark.parametrize(
    "schema",
    [
        DECLARED,
        "nr BIGINT NOT NULL, item STRING, p DECIMAL(9, 2)",
        "`nr` long not null, item: varchar(20) null, p numeric(9,2)",
        {"nr": "bigint not null", "item": "text", "p": "decimal(9,2)"},
        {"nr": "int64 NOT NULL", "item": pa.string(), "p": pa.decimal128(9, 2)},
        DECLARED.empty_table(),
        ArrowFrame(DECLARED.append(pa.field("weight", pa.int8())).empty_table()),
    ],
    ids=lambda schema: type(schema).__name__,
)
def test_a_schema_means_the_same_however_it_is_written(schema: Any) -> None:
    expected = circuit(DECLARED)
    actual = circuit(schema)
    assert actual.spec == expected.spec
    assert actual.fingerprints == expected.fingerprints
    assert type(actual.spec.schemas["p"]) is pa.Schema
    assert Circuit(pickle.loads(pickle.dumps(actual.spec))).inputs == expected.inputs
    rules = compile_datalog("v(x) :- p(x, y, z).", {"p": schema})
    assert rules.spec.schemas == {"p": DECLARED}
    assert Schema.of("p", schema) == Schema.of("p", DECLARED)


def test_the_words_of_ddl_are_types() -> None:
    text = "a int, b BIGINT not null, c decimal(9,2), `d e` string, f timestamp, g double precision"
    with pytest.raises(SchemaError, match="invalid column 'g double precision'"):
        schema_of_ddl(text)
    schema = schema_of_ddl(text.rpartition(",")[0])
    assert schema == pa.schema(
        [
            ("a", pa.int32()),
            pa.field("b", pa.int64(), nullable=False),
            ("c", pa.decimal128(9, 2)),
            ("d e", pa.string()),
            ("f", pa.timestamp("us", "UTC")),
        ]
    )


@pytest.mark.parametrize(
    ("text", "expected_message"),
    [
        ("", "has no columns"),
        ("a", "invalid column 'a'"),
        ("a map", "unknown type 'map'"),
        ("a array<int", "invalid column 'a array<int'"),
        ("a array<foo>", "unknown type 'foo'"),
        ("a map<int>", "map has 1 types"),
        ("a struct<int>", "write a field as NAME: TYPE"),
        ("a decimal(39, 1)", r"invalid type decimal\(39, 1\); the precision is 1 to 38"),
        ("a decimal(3, 4)", r"invalid type decimal\(3, 4\)"),
        ("a decimal(0)", r"invalid type decimal\(0, 0\)"),
        ("a int(11)", "the type int has no parameters"),
        ("a varchar(1, 2)", "the type varchar has no parameters"),
        ("a int, a int", "a column name occurs twice"),
        ("a int, weight int", "the column name 'weight' is reserved"),
        ("`\ud800` int", "cannot be read as an Arrow schema"),
    ],
)
def test_an_invalid_ddl_text_is_refused(text: str, expected_message: str) -> None:
    with pytest.raises(SchemaError, match=f"relation 'r': .*{expected_message}"):
        Schema.of("r", text)


@pytest.mark.parametrize(
    ("schema", "error", "expected_message"),
    [
        ({"a": "bigint bigint"}, SchemaError, "column 'a': invalid type 'bigint bigint'"),
        ({"a": "number"}, SchemaError, "unknown type 'number'; types: tinyint"),
        ({"a": int}, ArgumentTypeError, "type of column 'a' is <class 'int'>"),
        ({1: pa.int64()}, ArgumentTypeError, "the name of a column is 1"),
        (pa.int64(), SchemaError, "a DataType cannot be read as an Arrow schema"),
        (
            FailingFrame(RuntimeError("offline")),
            SchemaError,
            "a FailingFrame cannot be read .*: offline",
        ),
        (None, ArgumentTypeError, "the schema of 'p' is None, .* DDL text"),
        ([("a", pa.int64())], ArgumentTypeError, "give a pa.Schema, a dict of types"),
    ],
)
def test_an_invalid_schema_is_refused(
    schema: Any, error: type[Exception], expected_message: str
) -> None:
    with pytest.raises(error, match=expected_message):
        circuit(schema)


# Threads ------------------------------------------------------------------------------------------


def test_four_threads_step_and_query_with_frames() -> None:
    pairs = "FROM e x JOIN e y ON x.dst = y.src GROUP BY x.src, y.dst"
    text = f"SELECT x.src, y.dst, count(*) AS n {pairs}"
    rng = np.random.default_rng(7)
    deltas = [
        pd.DataFrame(rng.integers(0, 20, (200, 2)), columns=["src", "dst"]) for _ in range(12)
    ]
    kinds = [
        lambda frame: frame,
        lambda frame: ArrowFrame(pa.Table.from_pandas(frame)),
        lambda frame: frame.to_dict("records"),
        lambda frame: pa.Table.from_pandas(frame).to_batches(max_chunksize=50),
    ]
    with ThreadPoolExecutor(4) as user_pool:
        shared = compile_sql(text, {"e": deltas[0]}, materialize=True, threads=4, name="two")

        def work(number: int) -> int:
            shared.step({"e": kinds[number % 4](deltas[number])})
            count = shared.query("SELECT count(*) AS n FROM e")
            return int(count["n"][0].as_py())

        counts = list(user_pool.map(work, range(len(deltas)), timeout=300))
        assert max(counts) == 200 * len(deltas)
        assert all(count % 200 == 0 for count in counts), "a reader saw half of a step"
        once = compile_sql(text, {"e": "src bigint, dst bigint"}, materialize=True, name="two")
        once.step({"e": pd.concat(deltas)})
        assert weights_of(shared.views["two"]) == weights_of(once.views["two"])
