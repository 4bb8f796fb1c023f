"""The command ``bench``: edge lists, repetition, messages, exports and plots."""

from __future__ import annotations

import csv
import gzip
import json
import platform
from collections.abc import Iterator
from itertools import chain
from math import ceil
from pathlib import Path
from statistics import median

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from dbsp_wcoj import warm_up
from streaming import EventsError
from streaming.cli.app import app
from streaming.cli.arguments.declarations import TRIANGLES
from streaming.cli.arguments.edge_list import edge_list_schema, read_edge_list
from streaming.cli.arguments.source import SourceArgument, read_rows
from streaming.cli.benchmark.plot import draw
from streaming.cli.benchmark.repetition import (
    MIN_REPETITIONS,
    Measurement,
    RepetitionLimits,
    StopReason,
    median_interval,
    repeat,
)
from streaming.cli.commands import bench as bench_module
from tests.support.tables import edges

INT64 = st.integers(-(2**63), 2**63 - 1)
QUICK_OPTIONS = ("--steps", 2, "--max-repetitions", 1, "--formula", "auto")
GRAPH = "# Directed graph: small.txt\n# Nodes: 30 Edges: 60\n# FromNodeId\tToNodeId\n" + "".join(
    f"{n}\t{(n + d) % 30}\r\n" for n in range(30) for d in (1, 2)
)


def run(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["bench", *map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture(scope="module", autouse=True)
def compiled_kernels() -> None:
    """Compile the kernels before the commands, which would report it on standard error."""
    warm_up()


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    path = tmp_path / "secret-folder" / "small.txt"
    path.parent.mkdir()
    path.write_text(GRAPH, newline="")
    return path


# Edge lists


@st.composite
def edge_rows(draw: st.DrawFn) -> list[list[int]]:
    columns = draw(st.integers(2, 3))
    row = st.lists(INT64, min_size=columns, max_size=columns)
    return draw(st.lists(row, min_size=1, max_size=5))


@given(
    rows=edge_rows(),
    blank=st.sampled_from(["\t", " ", "  ", " \t "]),
    end=st.sampled_from(["\n", "\r\n"]),
    comment=st.sampled_from(["", "# a comment 1 2", "  # 3 4"]),
    compressed=st.booleans(),
)
@settings(max_examples=30)
def test_the_format_between_the_integers_of_an_edge_list_does_not_matter(
    rows: list[list[int]],
    blank: str,
    end: str,
    comment: str,
    compressed: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    text = "".join(f"{comment}{end} {blank.join(map(str, row))}{blank}{end}" for row in rows)
    path = tmp_path_factory.mktemp("edges") / ("e.txt.gz" if compressed else "e.txt")
    path.write_bytes(gzip.compress(text.encode()) if compressed else text.encode())

    table = read_edge_list(path)

    assert [list(row.values()) for row in table.to_pylist()] == rows
    assert table.schema == edge_list_schema(path)
    assert table.column_names == ["src", "dst", "value"][: len(rows[0])]
    assert all(field.type == pa.int64() and not field.nullable for field in table.schema)


@pytest.mark.parametrize(
    ("text", "expected_message"),
    [
        ("", "has no edges"),
        ("# only\n\n# comments\n", "has no edges"),
        ("1\n", r"line 1: '1' is not an edge: write two or three integers"),
        ("1 2 3 4\n", r"line 1: '1 2 3 4' is not an edge"),
        ("# a\n1 2\n\n3 x\n", r"line 4: '3 x' is not an edge: write 2 integers of 64 bits"),
        ("1 2\n# a\n3 4 5\n", r"line 3: '3 4 5' is not an edge"),
        ("1 2 3\n4 5\n", r"line 2: '4 5' is not an edge: write 3 integers"),
        ("1 2\n3 9223372036854775808\n", r"line 2: '3 9223372036854775808' is not an edge"),
        ("1 2\n3 4.5\n", r"line 2: '3 4.5' is not an edge"),
        ("1 2\n3 \n", r"line 2: '3' is not an edge"),
        ("1 2\n3 NA\n", r"line 2: '3 NA' is not an edge"),
        ("1 2\n3 4 # a\n", r"line 2: '3 4 # a' is not an edge"),
    ],
)
def test_a_line_that_is_not_an_edge_is_named_with_its_number(
    text: str, expected_message: str, tmp_path: Path
) -> None:
    path = tmp_path / "e.txt"
    path.write_text(text)

    with pytest.raises(EventsError, match=expected_message):
        read_edge_list(path)


@pytest.mark.parametrize(
    "content",
    [b"1 2\n3 4\n", gzip.compress(b"1 2\n" * 999, mtime=0)[:-12]],
    ids=["not compressed", "truncated"],
)
def test_a_damaged_compressed_edge_list_cannot_be_read(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "e.txt.gz"
    path.write_bytes(content)

    with pytest.raises(EventsError, match=r"e\.txt\.gz cannot be read: "):
        read_edge_list(path)


def test_a_schema_names_the_columns_of_an_edge_list_by_position(graph: Path) -> None:
    table = read_rows(SourceArgument.parse(f"e={graph},schema=a long, b int"))

    assert table.schema == pa.schema([("a", pa.int64()), ("b", pa.int32())])
    assert table.num_rows == 60
    with pytest.raises(EventsError, match="schema= names 1 columns, but the edge list has 2: src"):
        read_rows(SourceArgument.parse(f"e={graph},schema=a long"))


@pytest.mark.parametrize("ending", ["edges", "snap", "any,format=snap"])
def test_edge_lists_are_recognized_by_extension_or_format_option(
    ending: str, tmp_path: Path
) -> None:
    (tmp_path / f"e.{ending.partition(',')[0]}").write_text("1 2\n")

    assert read_rows(SourceArgument.parse(f"e={tmp_path}/e.{ending}")).to_pylist() == [
        {"src": 1, "dst": 2}
    ]


@pytest.mark.parametrize("name", ["e.csv.gz", "e.json.gz"])
def test_compressed_csv_and_json_are_recognized_by_extension(name: str, tmp_path: Path) -> None:
    text = b"a,b\n1,2\n" if "csv" in name else b'{"a": 1, "b": 2}\n'
    (tmp_path / name).write_bytes(gzip.compress(text))

    assert read_rows(SourceArgument.parse(f"e={tmp_path / name}")).to_pylist() == [{"a": 1, "b": 2}]


def test_a_run_does_not_start_spark_for_an_edge_list(graph: Path) -> None:
    result = CliRunner().invoke(app, ["run", "SELECT src FROM e", "--check", f"--source=e={graph}"])

    assert result.exit_code == 2
    assert (
        "Spark cannot read edge lists; the commands replay, explain, profile and bench can"
        in result.stderr
    )


# Repetition


class ManualClock:
    """A clock that only the test advances."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def measure(*repetitions: list[float], **limits: float) -> Measurement:
    """Measure repetitions with these step times, each of which takes a second of the clock."""
    clock = ManualClock()
    remaining = iter(repetitions)

    def run_steps() -> list[float]:
        clock.now += 1.0
        return next(remaining)

    options = {"precision": 0.1, "max_repetitions": len(repetitions), "max_seconds": 1e9} | limits
    return repeat(run_steps, RepetitionLimits(**options), clock=clock)  # type: ignore[arg-type]


@given(st.lists(st.integers(1, 20), min_size=1, max_size=40).map(sorted))
@settings(max_examples=50)
def test_the_interval_contains_the_median_and_narrows_with_more_times(
    times: list[int],
) -> None:
    low, high = median_interval(times)
    low_of_nine, high_of_nine = median_interval(sorted(times * 9))

    assert times[0] <= low <= median(times) <= high <= times[-1]
    assert low <= low_of_nine and high_of_nine <= high


def test_steps_are_repeated_until_the_median_is_precise() -> None:
    wide, narrow = [1.0, 2.0], [1.5] * 50

    result = measure(wide, wide, wide, narrow, narrow)

    assert (len(result.repetitions), result.stop) == (4, StopReason.precise)
    assert result.precision == 0.0
    assert len(measure(*[narrow] * 5).repetitions) == MIN_REPETITIONS


def test_a_limit_of_repetitions_or_seconds_is_reported() -> None:
    wide = [1.0, 2.0]

    by_count = measure(*[wide] * 4)
    by_time = measure(*[wide] * 9, max_seconds=5)
    without_time = measure(*[wide] * 9, max_seconds=0)

    assert (len(by_count.repetitions), by_count.stop) == (4, StopReason.repetitions)
    assert (len(by_time.repetitions), by_time.stop) == (5, StopReason.seconds)
    assert (len(without_time.repetitions), without_time.stop) == (1, StopReason.seconds)


@given(st.lists(st.floats(1e-6, 10), min_size=1, max_size=30))
@settings(max_examples=50)
def test_at_most_a_quarter_of_the_times_is_outside_each_quartile(times: list[float]) -> None:
    result = Measurement((tuple(times),), StopReason.precise)
    lower, upper = result.quartiles

    assert lower <= result.median <= upper
    quarter = ceil((len(times) - 1) / 4)
    assert sum(time < lower for time in times) <= quarter
    assert sum(time > upper for time in times) <= quarter


# Messages of the command


def test_a_default_size_with_too_few_rows_is_skipped_and_reported() -> None:
    status, out, errors = run("--rows", 300, *QUICK_OPTIONS)

    assert (status, errors) == (0, "")
    assert "Steps of 10,000 rows are left out: 300 rows are too few for a step of 10,000" in out
    assert "Steps of 100 rows: 1 step instead of 2, for the steps take at most half" in out
    remarks = json.loads(run("--rows", 300, *QUICK_OPTIONS, "--json")[1])["remarks"]
    assert len(remarks) == 2 and all(remark in out for remark in remarks)


def test_a_requested_size_is_never_skipped() -> None:
    status, out, errors = run("--rows", 300, "--batch", 1, "--batch", 200)

    assert (status, out) == (2, "")
    assert "error: --batch 200: 300 rows are too few" in errors


def test_steps_that_cannot_be_divided_among_the_relations_are_reported(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n" + "1,2\n" * 400)
    (tmp_path / "b.csv").write_text("y,z\n" + "2,3\n" * 400)
    (tmp_path / "c.csv").write_text("z,w\n" + "3,4\n")
    query = "v(x, w) :- a(x, y), b(y, z), c(z, w)."
    sources = [f"--source={name}={tmp_path / name}.csv" for name in "abc"]

    status, out, errors = run(query, *sources, *QUICK_OPTIONS)

    assert (status, errors) == (0, "")
    assert "Steps of 1 row are left out: a step has rows of each relation in proportion" in out
    assert "Steps of 100 rows do not change c, whose share of a step is less than one row." in out
    status, out, errors = run(query, *sources, *QUICK_OPTIONS, "--batch", 1)
    assert (status, out) == (2, "")
    assert "error: --batch 1: a step has rows of each relation" in errors


def test_a_table_shows_spread_and_repetitions_and_names_imprecise_results() -> None:
    sizes = ("--batch", 1, "--steps", 2, "--formula", "auto", "--rows", 300)

    status, out, _ = run(*sizes, "--max-repetitions", 2)

    assert status == 0
    for column in ("median", "± %", "quartiles", "runs"):
        assert column in out
    assert (
        "is wider than ±10 % of the median, because --max-repetitions was reached: auto (1)." in out
    )
    out = run(*sizes, "--max-seconds", 0)[1]
    assert "because --max-seconds was used up: auto (1)." in out


def test_the_checksum_of_steps_finds_wrong_deltas_that_cancel_out() -> None:
    def steps(*rows: tuple[int, int]) -> list[dict[str, pa.Table]]:
        return [
            {"v": edges(*rows, weights=[1] * len(rows))},
            {"v": edges(*rows, weights=[-1] * len(rows))},
        ]

    correct, wrong = steps((1, 2), (3, 4)), steps((1, 2), (3, 5))

    checksum = bench_module._checksum_of_steps
    assert checksum(correct) == checksum(steps((3, 4), (1, 2)))
    assert checksum(correct) != checksum(wrong)
    assert checksum(correct) != checksum(correct[::-1])


# Exports


def exported_rows(path: Path) -> Iterator[dict[str, str]]:
    lines = path.read_text().splitlines()
    yield from csv.DictReader(line for line in lines if not line.startswith("#"))


def test_an_export_has_all_that_repeats_it_and_no_directory(graph: Path, tmp_path: Path) -> None:
    files = tmp_path / "times.json", tmp_path / "times.csv"
    query = tmp_path / "paths.dl"
    query.write_text("paths(a, c) :- e(a, b), e(b, c).")

    status, out, errors = run(
        *(query, "--source", f"e={graph}", "--seed", 7, "--batch", 3, "--formula", "flipped"),
        *("--steps", 4, "--max-repetitions", 2, "--json"),
        *("--export", files[0], "--export", files[1]),
    )

    assert (status, errors) == (0, "")
    exported = json.loads(files[0].read_text())
    assert exported["query"] == "paths(a, c) :- e(a, b), e(b, c)."
    assert exported["inputs"] == [{"name": "e", "files": ["small.txt"], "rows": 60}]
    assert (exported["seed"], exported["steps"], exported["max_repetitions"]) == (7, 4, 2)
    assert set(exported["versions"]) == {"python", "dbsp-wcoj", "numpy", "numba", "pyarrow"}
    assert set(exported["machine"]) == {"processor", "cores", "memory_bytes", "system"}
    (result,) = exported["results"]
    assert (result["formula"], result["rows_per_step"]) == ("flipped", 3)
    assert [len(times) for times in result["times_ms"]] == [8, 8]
    rows = list(exported_rows(files[1]))
    assert [float(row["milliseconds"]) for row in rows] == list(chain(*result["times_ms"]))
    assert [row["change"] for row in rows] == (["insert"] * 4 + ["delete"] * 4) * 2
    summary = json.loads(out)
    assert "times_ms" not in summary["results"][0]
    assert summary["results"][0]["repetitions"] == 2
    for text in (out, *(path.read_text() for path in files)):
        assert "secret-folder" not in text and str(tmp_path) not in text
        assert platform.node() not in text or len(platform.node()) < 4


def test_the_comments_of_a_csv_are_json_values(tmp_path: Path) -> None:
    path = tmp_path / "times.csv"
    assert run("--rows", 50, *QUICK_OPTIONS, "--batch", 1, "--export", path)[0] == 0

    comments = [line[2:] for line in path.read_text().splitlines() if line.startswith("# ")]
    result = {
        key: json.loads(value)
        for key, _, value in (comment.partition(": ") for comment in comments)
    }

    assert result["inputs"] == [{"name": "e", "generated": {"rows": 50, "skew": 0.5}}]
    assert result["query"] == TRIANGLES


@pytest.mark.parametrize(
    ("option", "expected_message"),
    [
        ("--export=times.xls", "--export times.xls: the name has to end in .json or .csv"),
        ("--export=none/times.csv", "folder none does not exist: create it"),
        ("--export=folder.json", "folder.json: is a folder; name a file"),
        ("--plot=times.jpg", "--plot times.jpg: the name has to end in .png or .svg"),
        ("--precision=0", "Invalid value for '--precision'"),
        ("--max-repetitions=0", "Invalid value for '--max-repetitions'"),
    ],
)
def test_an_invalid_option_is_refused_before_a_measurement(
    option: str, expected_message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.json").mkdir()
    monkeypatch.setattr(bench_module, "_compare", None)

    status, out, errors = run(option)

    assert (status, out) == (2, "")
    assert expected_message in errors and errors.count("\n") == 1


def test_an_error_for_missing_matplotlib_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streaming.cli.benchmark.plot.find_spec", lambda name: None)

    status, out, errors = run("--plot", tmp_path / "a.svg")

    assert (status, out) == (2, "")
    assert errors == (
        "error: --plot needs the package matplotlib, which is not installed: "
        "run pip install 'dbsp-wcoj[demo]'\n"
    )


def test_a_file_of_terms_is_compared_like_a_built_in_formula(tmp_path: Path, graph: Path) -> None:
    terms = tmp_path / "mine.txt"
    terms.write_text("# collapsed\nD3 += d1 N2 N3\nD3 += O1 d2 N3\nD3 += O1 O2 d3\n")
    arguments = (TRIANGLES, "--source", f"e={graph}", "--batch", 3, "--steps", 2)
    formulas = ("--formula", terms, "--formula", "collapsed", "--max-repetitions", 1)
    code, out, err = run(*arguments, *formulas, "--json")
    assert code == 0, err
    assert [result["formula"] for result in json.loads(out)["results"]] == ["mine.txt", "collapsed"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("D3 += d1 N2 N3", "the product O1 d2 O3 0 times"),
        ("D2 += d1 N2\nD2 += O1 d2", "is for joins of 2 atoms; the query has joins of 3 atoms"),
    ],
)
def test_a_file_of_terms_that_does_not_fit_the_query_is_refused(
    tmp_path: Path, graph: Path, text: str, message: str
) -> None:
    terms = tmp_path / "mine.txt"
    terms.write_text(text)
    code, _, err = run(TRIANGLES, "--source", f"e={graph}", "--batch", 3, "--formula", terms)
    assert code != 0 and message in " ".join(err.split())


def test_a_plot_has_a_panel_for_each_size_and_a_row_for_each_formula(tmp_path: Path) -> None:
    path = tmp_path / "times.svg"
    formulas = ("--formula", "auto", "--formula", "recursive")

    status, _, errors = run(
        *("--rows", 100, "--steps", 2, "--max-repetitions", 1, "--batch", 1, "--batch", 5),
        *(*formulas, "--plot", path),
    )

    assert status == 0 and errors.replace("\n", "") == f"Wrote {path}"
    text = path.read_text()
    assert text.count(">auto<") == text.count(">recursive<") == 2
    assert ">1 row in a step<" in text and ">5 rows in a step<" in text


@pytest.mark.parametrize("times", [[1.0], [1.0, 1.5], [0.001, 1000.0], [0.0, 0.0], [1.0] * 9999])
def test_any_times_can_be_drawn(times: list[float], tmp_path: Path) -> None:
    result = {
        "formula": "auto",
        "rows_per_step": 1,
        "median_ms": median(times),
        "lower_quartile_ms": min(times),
        "upper_quartile_ms": max(times),
        "times_ms": [times],
    }

    draw({"results": [result]}, tmp_path / "a.svg")

    assert (tmp_path / "a.svg").stat().st_size < 200_000
