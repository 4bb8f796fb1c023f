"""Arguments of the command line: columns, sources, sinks, files of changes, queries."""

from __future__ import annotations

import json
import sqlite3
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from circuits import DatalogError, InputOptions, Lateness, Retention, SqlError, compile_sql
from streaming import EventsError, SqlTarget, TargetError, ViewDelta
from streaming.cli.arguments.changes_file import ChangesFile
from streaming.cli.arguments.sink import (
    JsonLines,
    SinkArgument,
    assign_sinks,
    build_outputs,
    check_locations,
)
from streaming.cli.arguments.source import (
    SourceArgument,
    parse_sources,
    read_plain_rows,
    read_rows,
)
from streaming.cli.arguments.views import compile_query
from streaming.targets.output_mode import OutputMode
from streaming.targets.parquet import ParquetTarget
from tests.support.tables import EDGE

VIEWS = "CREATE VIEW a AS SELECT src FROM e; CREATE VIEW b AS SELECT dst FROM e;"


def sinks_by_view(texts, circuit):
    return assign_sinks([SinkArgument.parse(text) for text in texts], circuit)


def test_a_source_declares_its_columns_as_text():
    source = SourceArgument.parse("e=in/e,schema=nr long not null, item string")
    assert source.schema() == pa.schema(
        [pa.field("nr", pa.int64(), nullable=False), ("item", pa.string())]
    )
    with pytest.raises(EventsError, match=r"--source e: .*invalid column 'item'"):
        SourceArgument.parse("e=in/e,schema=nr long, item").schema()


def test_a_source_has_a_path_and_options_or_options_only():
    source = SourceArgument.parse(
        "e=in/e,maxFilesPerTrigger=1,keys=a,b,retain=ts 7 days,strict=true"
    )
    assert (source.name, source.path) == ("e", Path("in/e"))
    assert source.options == {"maxFilesPerTrigger": "1"}
    assert source.input_options() == InputOptions(
        keys=["a", "b"], strict=True, retain=Retention("ts", "7 days")
    )
    kafka = SourceArgument.parse("e=format=kafka,kafka.bootstrap.servers=a:1,b:2,subscribe=t")
    assert (kafka.path, kafka.format) == (None, "kafka")
    assert kafka.options == {"kafka.bootstrap.servers": "a:1,b:2", "subscribe": "t"}
    assert kafka.input_options() is None and kafka.schema() is None


def test_a_source_declares_the_lateness_of_its_rows():
    options = SourceArgument.parse("e=in/e,lateness=ts 5 minutes").input_options()
    assert options == InputOptions(lateness=Lateness("ts", "5 minutes"))
    both = SourceArgument.parse("e=in/e,lateness=n 5,retain=n 7").input_options()
    assert both == InputOptions(lateness=Lateness("n", 5), retain=Retention("n", 7))
    with pytest.raises(EventsError, match="lateness='ts': write COLUMN LENGTH"):
        SourceArgument.parse("e=in/e,lateness=ts").input_options()


def test_a_source_declares_if_results_are_kept_when_rows_expire():
    for on_expiry in ("keep", "retract"):
        options = SourceArgument.parse(
            f"e=in/e,retain=ts 7 days,on_expiry={on_expiry}"
        ).input_options()
        assert options == InputOptions(retain=Retention("ts", "7 days", on_expiry=on_expiry))
        assert options.retain.has_explicit_on_expiry
    assert (
        not SourceArgument.parse("e=in/e,retain=ts 7 days")
        .input_options()
        .retain.has_explicit_on_expiry
    )
    with pytest.raises(EventsError, match=r"on_expiry='drop': write retract .* or keep"):
        SourceArgument.parse("e=in/e,retain=ts 7 days,on_expiry=drop").input_options()
    with pytest.raises(
        EventsError, match="applies only to rows that expire: add retain=COLUMN LENGTH"
    ):
        SourceArgument.parse("e=in/e,on_expiry=keep").input_options()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("e", "write NAME=PATH"),
        ("=x", "write NAME=PATH"),
        ("e=rowsPerSecond=1", "give a path, or format="),
        ("e=in,a=1,a=2", "a is given twice"),
    ],
)
def test_an_invalid_source_is_refused(text, message):
    with pytest.raises(EventsError, match=message):
        SourceArgument.parse(text)


def test_sources_need_different_names_and_there_is_at_least_one():
    with pytest.raises(EventsError, match="no --source"):
        parse_sources([])
    with pytest.raises(EventsError, match="relation 'e' has a source already"):
        parse_sources(["e=a", "e=b"])


def test_format_and_columns_are_read_from_the_files(tmp_path):
    pq.write_table(pa.table({"a": [1], "b": ["x"]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"a": [2], "b": ["y"]}), tmp_path / "2.parquet")
    (tmp_path / "_SUCCESS").write_text("")
    source = SourceArgument.parse(f"e={tmp_path}")
    assert source.format == "parquet"
    assert source.schema() == pa.schema([("a", pa.int64()), ("b", pa.string())])
    assert read_rows(source).to_pylist() == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]
    assert read_rows(SourceArgument.parse(f"e={tmp_path}/2*")).num_rows == 1


def test_declared_columns_do_not_hide_the_weights_of_a_file(tmp_path):
    pq.write_table(pa.table({"a": [1, 2], "z": [0, 0], "weight": [1, -1]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"a": [3]}), tmp_path / "2.parquet")
    source = SourceArgument.parse(f"e={tmp_path},schema=a long")
    weighted = [{"a": 1, "weight": 1}, {"a": 2, "weight": -1}, {"a": 3, "weight": 1}]
    assert read_rows(source).to_pylist() == weighted
    assert read_plain_rows(source).to_pylist() == [{"a": 1}, {"a": 3}]
    declared = replace(
        SourceArgument.parse(f"e={tmp_path}"), declared=pa.schema([("a", pa.int64())])
    )
    assert read_rows(declared).to_pylist() == weighted
    without = SourceArgument.parse(f"e={tmp_path}/2*,schema=a long")
    assert read_rows(without).to_pylist() == [{"a": 3}]
    with pytest.raises(EventsError, match="the files lack the column 'b'; columns: a, z, weight"):
        read_rows(SourceArgument.parse(f"e={tmp_path},schema=b long"))


@pytest.mark.parametrize("schema", ["", ",schema=a long, s string"])
def test_a_measurement_has_the_rows_that_remain(tmp_path, schema):
    rows = [(1, "x", 2), (1, "x", -1), (2, None, 1), (2, None, 1), (3, "y", -1), (4, "z", -1)]
    rows.append((4, "z", 1))
    names = ("a", "s", "weight")
    table = pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows])
    pq.write_table(table, tmp_path / "1.parquet")
    remaining = read_plain_rows(SourceArgument.parse(f"e={tmp_path}{schema}"))
    assert remaining.schema == table.schema.remove(2)
    assert [tuple(row.values()) for row in remaining.to_pylist()] == [(1, "x")] + [(2, None)] * 2


def test_rows_with_weights_that_cannot_be_added_up_are_an_error(tmp_path):
    pq.write_table(pa.table({"a": [[1]], "weight": [2]}), tmp_path / "1.parquet")
    with pytest.raises(EventsError, match="rows with weights cannot be added up"):
        read_plain_rows(SourceArgument.parse(f"e={tmp_path}/1.parquet"))
    pq.write_table(pa.table({"a": [1], "weight": [0.5]}), tmp_path / "2.parquet")
    with pytest.raises(EventsError, match="weight is a double, not an integer"):
        read_plain_rows(SourceArgument.parse(f"e={tmp_path}/2.parquet"))


def test_a_row_without_a_weight_is_inserted_once(tmp_path):
    (tmp_path / "1.json").write_text('{"a": 1, "weight": -1}\n{"a": 2}\n')
    (tmp_path / "2.json").write_text('{"a": 3, "weight": null}\n')
    rows = [{"a": 1, "weight": -1}, {"a": 2, "weight": 1}, {"a": 3, "weight": 1}]
    for text in (f"e={tmp_path}", f"e={tmp_path},schema=a long"):
        assert read_rows(SourceArgument.parse(text)).to_pylist() == rows


@pytest.mark.parametrize(
    ("header", "options", "columns"),
    [
        ("a,b,weight", "", ["a", "b", "weight"]),
        ("weight,a,b", "", ["weight", "a", "b"]),
        ("a;weight;b", ",sep=;", ["a", "weight", "b"]),
        ("sequence,a,b", ",keys=a", ["sequence", "a", "b"]),
        ("sequence,a,b", "", ["a", "b"]),
        ("a,b,weight", ",feed=append", ["a", "b"]),
        ("a,b,weight", ",header=false", ["a", "b"]),
        ("a,b", "", ["a", "b"]),
    ],
)
def test_a_stream_of_csv_reads_the_weights_where_the_header_has_them(
    tmp_path, header, options, columns
):
    row = header.replace("sequence", "7").replace("weight", "-1").replace("a", "1")
    (tmp_path / "1.csv").write_text(f"{header}\n{row.replace('b', '2')}\n")
    source = SourceArgument.parse(f"e={tmp_path},schema=a long, b long{options}")
    assert source.stream_schema().names == columns
    assert set(source.stream_schema().types) == {pa.int64()}


def test_a_stream_of_files_reads_weights_also_of_files_that_come_later(tmp_path):
    source = SourceArgument.parse(f"e={tmp_path},format=json,schema=a long")
    assert source.stream_schema() == pa.schema([("a", pa.int64()), ("weight", pa.int64())])
    table = pa.table({"a": [1], "sequence": pa.array([1], pa.timestamp("us"))})
    pq.write_table(table.append_column("weight", pa.array([1], pa.int8())), tmp_path / "1.parquet")
    source = SourceArgument.parse(f"e={tmp_path},schema=a long,keys=a")
    assert source.stream_schema().names == ["a", "weight", "sequence"]
    assert source.stream_schema().types[1:] == [pa.int64(), pa.timestamp("us")]
    assert not source.lacks_order(source.stream_schema())
    other = SourceArgument.parse("e=format=text,path=in,schema=value string")
    assert other.stream_schema().names == ["value"]


def test_a_measurement_that_is_called_weight_and_not_declared_is_not_read(tmp_path):
    pq.write_table(pa.table({"a": [1], "weight": [0.5]}), tmp_path / "1.parquet")
    source = SourceArgument.parse(f"e={tmp_path},schema=a long")
    assert source.stream_schema().names == ["a"]
    assert read_rows(source).to_pylist() == [{"a": 1}]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("e={}/none", "file or folder not found"),
        ("e={}", "add their columns: schema="),
        ("e={},retain=7 days", "add their columns"),
    ],
)
def test_a_source_without_files_and_columns_is_refused(tmp_path, text, message):
    with pytest.raises(EventsError, match=message):
        SourceArgument.parse(text.format(tmp_path)).schema()


def test_a_sink_of_several_views_has_a_location_for_each(tmp_path):
    circuit = compile_sql(VIEWS, {"e": EDGE})
    outputs = build_outputs(sinks_by_view([f"parquet:{tmp_path}/out"], circuit))
    assert {output.mode for output in outputs} == {"delta"}
    targets = {output.view: output.target for output in outputs}
    assert targets["a"] is targets["b"]
    assert isinstance(targets["a"], ParquetTarget)
    for view in ("a", "b"):
        targets[view].write(ViewDelta(view, 0, pa.table({"x": [1], "weight": [1]})))
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"a", "b"}


def test_a_view_has_its_own_sink_and_output_mode(tmp_path):
    circuit = compile_sql(VIEWS, {"e": EDGE}, materialize=["a"])
    sinks = sinks_by_view([f"a=sqlite:{tmp_path}/shop.db#people,keys=src", "console"], circuit)
    outputs = {output.view: output for output in build_outputs(sinks, json=True)}
    targets = {view: output.target for view, output in outputs.items()}
    assert outputs["a"].output_mode == OutputMode("upsert", ["src"])
    assert outputs["b"].mode == "delta"
    assert isinstance(targets["a"], SqlTarget) and isinstance(targets["b"], JsonLines)
    table = pa.table({"src": [1], "weight": [1]})
    targets["a"].write(ViewDelta("a", 0, table, "upsert", ("src",)))
    with sqlite3.connect(tmp_path / "shop.db") as database:
        assert database.execute("SELECT * FROM people").fetchall() == [(1,)]
    database.close()


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["kafka:x"], "unknown sink 'kafka'"),
        (["parquet"], "name the location, parquet:LOCATION"),
        (["console:x"], "the console has no location"),
        (["c=console"], "unknown view 'c'; views: a, b"),
        (["a=console", "a=console"], "view 'a' has a sink already"),
        (["console", "parquet:x"], "2 sinks name no view, and only one may"),
        (["a=sqlite:x,mode=upsert"], "keys=COLUMN for one row per key"),
        (["duckdb:{view}.db"], r"tables of one file: name the table of each, duckdb:FILE#\{view\}"),
    ],
)
def test_invalid_sinks_are_refused(texts, message):
    with pytest.raises(TargetError, match=message):
        sinks_by_view(texts, compile_sql(VIEWS, {"e": EDGE}))


@pytest.mark.parametrize(
    ("text", "location", "table"),
    [
        ("postgres:host=h password='a#b'", "host=h password='a#b'", ""),
        (r"postgres:host=h password='a\'#b'#t", r"host=h password='a\'#b'", "t"),
        ("postgres:host=h#t", "host=h", "t"),
        ("postgres:#t", "", "t"),
        ("sqlite:a#b.db#t", "a#b.db", "t"),
    ],
)
def test_the_table_of_a_database_follows_the_last_hash(text, location, table):
    sink = SinkArgument.parse(text)
    assert (sink.location, sink.table) == (location, table)


@pytest.mark.parametrize(
    ("path", "is_read"),
    [
        ("out", False),
        ("out/a", True),
        ("out/*", True),
        ("out/a/*.parquet", True),
        ("out/*/*.parquet", True),
        ("o?t/b/[0-9]*", True),
        ("out/a/0.parquet", False),
        ("out/c/*.parquet", False),
        ("*", False),
        ("out/{view}", False),
    ],
)
def test_a_source_that_reads_the_files_of_a_sink_is_refused(path, is_read):
    sinks = sinks_by_view(["parquet:out/{view}"], compile_sql(VIEWS, {"e": EDGE}))
    message = "which a source reads: name another folder"
    with pytest.raises(TargetError, match=message) if is_read else nullcontext():
        check_locations(sinks, [Path(path)])


def test_an_error_for_a_missing_package_of_a_sink_names_its_extra(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    circuit = compile_sql(VIEWS, {"e": EDGE})
    for text, package in (("delta:x", "deltalake"), ("postgres:#t", "psycopg")):
        with pytest.raises(TargetError, match=rf"needs the package {package}.*wcoj\[sinks\]"):
            sinks_by_view([text], circuit)


def test_json_lines_have_one_line_for_each_changed_row(capsys):
    table = pa.table({"n": [1, 2], "weight": [1, -1]})
    JsonLines().write(ViewDelta("v", 3, table))
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        {"view": "v", "batch": 3, "weight": 1, "row": {"n": 1}},
        {"view": "v", "batch": 3, "weight": -1, "row": {"n": 2}},
    ]


def test_json_lines_show_dates_that_python_cannot_represent(capsys):
    dates = pa.array([3 * 10**6, None], pa.int32()).view(pa.date32())
    JsonLines().write(ViewDelta("v", 3, pa.table({"d": dates, "weight": [1, 1]})))
    rows = [json.loads(line)["row"] for line in capsys.readouterr().out.splitlines()]
    assert rows == [{"d": "10183-09-21"}, {"d": None}]


def test_json_lines_are_json_also_for_floats_that_json_lacks(capsys):
    nan, infinity = float("nan"), float("inf")
    table = pa.table({"x": [nan, 1.5], "l": [[-infinity, None], []], "weight": [1, 1]})
    JsonLines().write(ViewDelta("v", 3, table))
    lines = capsys.readouterr().out.splitlines()
    rows = [json.loads(line, parse_constant=int)["row"] for line in lines]
    assert rows == [{"x": "nan", "l": ["-inf", None]}, {"x": 1.5, "l": []}]


def changes_file(tmp_path, table, **options):
    return ChangesFile.of(table, tmp_path / "moves.parquet", **options)


def test_a_file_of_changes_is_one_relation_named_after_it(tmp_path):
    result = changes_file(tmp_path, pa.table({"src": [1, 2, 3], "op": ["c", "d", "+I"]}))
    steps = list(result.steps(2))
    assert list(result.relations) == ["moves"]
    assert [step["moves"].to_pydict() for step in steps] == [
        {"src": [1, 2], "weight": [1, -1]},
        {"src": [3], "weight": [1]},
    ]


def test_a_transaction_is_never_split(tmp_path):
    result = changes_file(tmp_path, pa.table({"a": range(7), "tx": [1, 1, 1, 2, 3, 3, 3]}), by="tx")
    assert [step["moves"].num_rows for step in result.steps(2)] == [3, 4]
    assert [step["moves"].num_rows for step in result.steps(4)] == [4, 3]


def test_each_relation_of_a_file_has_the_columns_in_which_it_has_values(tmp_path):
    table = pa.table(
        {
            "relation": ["r", "s", "r"],
            "a": [1, None, 2],
            "b": [None, "x", None],
            "weight": [1, 1, -1],
        }
    )
    result = changes_file(tmp_path, table)
    assert {name: schema.names for name, schema in result.relations.items()} == {
        "r": ["a"],
        "s": ["b"],
    }
    (step,) = result.steps(10)
    assert step["r"].to_pydict() == {"a": [1, 2], "weight": [1, -1]}
    assert step["s"].to_pydict() == {"b": ["x"], "weight": [1]}


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"a": []}, {}, "has no rows"),
        ({"a": [1], "op": ["moved"]}, {}, "row 0: op 'moved' must be one of"),
        ({"a": [1], "op": [1], "weight": [1]}, {}, "columns weight and op"),
        ({"a": [1]}, {"by": "tx"}, "unknown column 'tx' of --by; columns: a, weight"),
        ({"a": [1]}, {"columns": ["b"]}, "unknown column 'b'"),
        ({"a": [1], "relation": pa.array([None], pa.string())}, {}, "1 rows have NULL as relation"),
    ],
)
def test_an_invalid_file_of_changes_is_refused(tmp_path, columns, options, message):
    with pytest.raises(EventsError, match=message):
        changes_file(tmp_path, pa.table(columns), **options)


@pytest.mark.parametrize(
    "text", ["SELEC src FROM e", "src FROM e", "EXPLAIN SELECT 1", "VALUES (1)"]
)
def test_a_query_that_is_not_datalog_is_read_as_sql(text):
    try:
        compile_query(text, {"e": EDGE})
    except SqlError:
        return
    assert text.startswith("VALUES")


def test_rules_are_read_as_datalog():
    assert compile_query("p(x) :- e(x, y).", {"e": EDGE}).outputs == ("p",)
    with pytest.raises(DatalogError):
        compile_query("p(x) :- e(x, y), not q(", {"e": EDGE})
