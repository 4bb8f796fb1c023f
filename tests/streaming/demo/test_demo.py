"""The demo: totals equal recounts, oracles and published figures; its display and its errors."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console
from typer.testing import CliRunner

from circuits import compile_sql
from streaming import StreamingError, demo
from streaming.demo import command
from streaming.demo.checks import Checks, choose_recounts
from streaming.demo.display import Display
from streaming.demo.events import college_messages, parse_window, read_events, replay_messages
from streaming.demo.oracle import read_oracle
from streaming.demo.plot import plot
from streaming.demo.run import History, run
from streaming.demo.triangles import LINK, VIEWS, CurrentViews, triangle_circuit
from tests.support.shared_data import SHARED, needs_data

WEEK = parse_window("7d")
DATA = SHARED / "data"


def history_of(stream, batches, **options):
    cuts = stream.cuts(batches)
    return History(stream, cuts, Checks(stream, choose_recounts(cuts, 20), **options))


def replay(spark, history, directory, **options):
    run(spark, history, circuit=triangle_circuit(**options), directory=directory)
    return history


@pytest.mark.spark
def test_counts_of_windowed_messages_equal_twenty_recounts_and_one_at_the_end(spark, tmp_path):
    stream = replay_messages(college_messages(), WEEK)
    history = replay(spark, history_of(stream, 25), tmp_path)
    assert history.checks.differences == []
    assert history.checks.recount_count == 21
    assert history.checks.compared == {"recount": 21 * 8}
    assert max(counts.triangles for counts in history.counts) > 2_000
    assert set(vars(history.counts[-1]).values()) == {0}


@pytest.mark.spark
def test_counts_of_messages_without_a_window_equal_the_published_figures(spark, tmp_path):
    stream = replay_messages(college_messages(), None)
    history = replay(spark, history_of(stream, 4, published=command.PUBLISHED), tmp_path)
    assert history.checks.differences == []
    assert history.checks.compared["published figure"] == 3
    assert history.counts[-1].triangles == 39_982


@needs_data
@pytest.mark.spark
@pytest.mark.parametrize(
    ("name", "columns"),
    [("git-imports-kafka", 3), ("git-imports-spring", 3), ("contact-high-school", 2)],
)
def test_change_streams_equal_their_oracles_after_every_micro_batch(spark, tmp_path, name, columns):
    stream = read_events(DATA / name / f"{name}-events.parquet")
    oracle = read_oracle(DATA / name / f"{name}-oracle.parquet", stream)
    history = replay(spark, history_of(stream, 30, oracle=oracle), tmp_path)
    assert history.checks.differences == []
    assert history.checks.compared["oracle"] == 30 * columns
    assert history.checks.recount_count == 21


def replay_without_spark(history, **options):
    """Replay the stream of a history; return the history."""
    circuit = triangle_circuit(**options)
    begin = 0
    for end in history.cuts:
        rows = slice(begin, end)
        columns = (history.stream.source, history.stream.target, history.stream.weight)
        arrays = dict(zip(("src", "dst", "weight"), (c[rows] for c in columns), strict=True))
        history.add(circuit.step({"link": pa.table(arrays)}))
        begin = end
    return history


@needs_data
@pytest.mark.parametrize("name", ["CollegeMsg/CollegeMsg-window", "as-snapshots/as-snapshots"])
def test_other_change_streams_equal_their_oracles_too(name):
    stream = read_events(DATA / f"{name}-events.parquet")
    oracle = read_oracle(DATA / f"{name}-oracle.parquet", stream)
    history = history_of(stream, 40, oracle=oracle)
    history.cuts = oracle.positions
    replay_without_spark(history)
    assert history.checks.differences == []
    assert history.checks.compared["oracle"] == len(oracle.positions) * len(oracle.expected)


@pytest.mark.slow
@needs_data
def test_circular_imports_equal_the_oracle_after_every_single_transaction():
    name = "git-imports-kafka"
    stream = read_events(DATA / name / f"{name}-events.parquet")
    oracle = read_oracle(DATA / name / f"{name}-oracle.parquet", stream)
    history = replay_without_spark(history_of(stream, len(stream), oracle=oracle))
    assert history.checks.differences == []
    assert history.checks.compared["oracle"] == 3 * 3_766


def small(tmp_path, **columns):
    path = tmp_path / "events.parquet"
    rows = {
        "src": [1, 2, 1, 3, 1],
        "dst": [2, 3, 3, 1, 2],
        "ts": [1, 1, 2, 3, 4],
        "op": [1, 1, 1, 1, -1],
    }
    pq.write_table(pa.table(rows | columns), path)
    return path


def test_a_wrong_total_is_found_and_counted(tmp_path):
    stream = read_events(small(tmp_path))
    wrong = {"undirected": 7}
    history = replay_without_spark(history_of(stream, 4, published=wrong))
    assert [str(difference) for difference in history.checks.differences] == [
        "after 5 changes undirected is 0, but 7 according to the published figure"
    ]


def test_a_wrong_count_of_one_node_is_found_and_named(tmp_path):
    stream = read_events(small(tmp_path))
    checks = Checks(stream, frozenset([3]))
    views = CurrentViews()
    end_of_first = VIEWS.index("SELECT ab.dst")
    start_of_last = VIEWS.index("SELECT bc.dst", end_of_first)
    wrong = VIEWS[:end_of_first] + VIEWS[start_of_last:]  # two of three corners
    circuit = compile_sql(wrong, {"link": LINK})
    views.add(circuit.step({"link": pa.table({"src": [1, 2, 1], "dst": [2, 3, 3]})}))
    checks.compare(3, views)
    assert [str(difference) for difference in checks.differences] == [
        "after 3 changes corners of 2 is 0, but 1 according to the recount"
    ]


@pytest.mark.spark
def test_a_stream_that_spark_stops_says_after_how_many_changes_and_why(spark, tmp_path):
    history = history_of(read_events(small(tmp_path)), 4)
    other = compile_sql("SELECT node FROM edge", {"edge": pa.schema([("node", pa.int64())])})
    with pytest.raises(StreamingError, match="after 0 changes: relation 'edge': column 'node'"):
        run(spark, history, circuit=other, directory=tmp_path / "run")


def test_the_plot_is_a_picture_of_the_whole_stream(tmp_path):
    history = replay_without_spark(history_of(read_events(small(tmp_path)), 4))
    plot(history, tmp_path / "plot.png", "a title")
    assert (tmp_path / "plot.png").read_bytes()[:4] == b"\x89PNG"


class RecordingConsole:
    """A console that is not a terminal; it records the printed lines."""

    is_terminal = False

    def __init__(self):
        self.lines = []

    def print(self, text, **_):
        self.lines.append(text)


def test_plain_lines_show_the_counts_and_the_leaders(tmp_path):
    history = history_of(read_events(small(tmp_path)), 4)
    console = RecordingConsole()
    with Display(console, history, {1: "ann", 2: "bob", 3: "cy"}) as display:
        circuit = triangle_circuit()
        history.add(circuit.step({"link": pa.table({"src": [1, 2, 1], "dst": [2, 3, 3]})}))
        display.update()
    assert "triangles 1 (weighted 1, undirected 1), 3-cycles 0; most: ann in 1" in console.lines[0]
    assert "ann (1), bob (1), cy (1)" in display.summary()


def test_in_a_terminal_a_table_shows_totals_peaks_leaders_and_comparisons(tmp_path):
    history = history_of(read_events(small(tmp_path)), 4)
    console = Console(file=io.StringIO(), force_terminal=True, width=80, height=40)
    with Display(console, history, {1: "ann", 2: "bob", 3: "cy"}) as display:
        replay_without_spark(history)
        display.update()
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", console.file.getvalue())
    assert "waiting for the first micro-batch" in shown
    last = shown[shown.rindex("live") :]
    assert re.search(r"directed triangles, distinct +│ +0 │ +1 │ 2 ", last)
    assert re.search(r"3-cycles, distinct +│ +0 │ +1 │ 3 ", last)
    assert "5 of 5 changes, micro-batch 4 of 4; " in last
    assert "0 differ" in last


def test_a_java_that_does_not_run_spark_is_an_error_that_shows_its_output(tmp_path):
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        "#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\nexit 1\n".replace(
            "exit 1", '[ "$1" = -version ] || { echo no memory >&2; exit 1; }'
        )
    )
    java.chmod(0o755)
    completed = subprocess.run(
        [sys.executable, "-m", "streaming.demo", "--plot", str(tmp_path / "plot.png")],
        env=os.environ | {"JAVA_HOME": str(tmp_path / "jdk")},
        capture_output=True,
        text=True,
    )
    assert completed.returncode == 2
    assert completed.stderr.startswith("error: Spark did not start with Java 17.0.1 (JAVA_HOME)")
    assert "no memory" in completed.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--events", "gone.parquet"], "no file 'gone.parquet'"),
        (["--oracle", "gone.parquet"], "--oracle goes with --events"),
        (["--window", "soon"], "'soon' is not a length of time"),
        (["--formula", "fastest"], "fastest"),
        (["--names", "gone.parquet"], "--names: 'gone.parquet'"),
        (["--plot", "nowhere/plot.png"], "no directory"),
        (["--work-dir", "."], "name a new directory"),
    ],
)
def test_wrong_arguments_end_with_one_line_and_status_two(arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(command.app, arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert words in result.stderr
    assert result.stderr.count("\n") == 1


def test_without_the_extra_the_command_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "typer", None)
    monkeypatch.delitem(sys.modules, "streaming.demo.command")
    with pytest.raises(SystemExit, match="2"):
        demo.main()
    assert "pip install 'dbsp-wcoj[demo]'" in capsys.readouterr().err


@pytest.mark.slow
def test_the_command_exits_with_one_when_the_oracle_differs(tmp_path):
    oracle = tmp_path / "oracle.parquet"
    pq.write_table(pa.table({"ts": [1, 2, 3, 4], "live_triangles": [0, 1, 5, 0]}), oracle)
    arguments = [
        "--events",
        str(small(tmp_path)),
        "--oracle",
        str(oracle),
        "--plot",
        str(tmp_path / "plot.png"),
    ]
    completed = subprocess.run(
        [sys.executable, "-m", "streaming.demo", *arguments], capture_output=True, text=True
    )
    assert completed.returncode == 1, completed.stderr
    assert (
        "DIFFERENT: after 4 changes undirected is 1, but 5 according to the oracle"
        in completed.stdout
    )
    assert completed.stderr == ""
