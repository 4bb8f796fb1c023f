"""The pages and the plots show the result files, and a differing page is detected."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import typer

from benchmarks import result
from benchmarks.report import __main__ as report
from benchmarks.report.charts import CHARTS, Chart, Mark
from benchmarks.report.plots import LOWER_BOUND_HATCH, draw, file_names, is_drawn
from benchmarks.report.selections import HEADLINES, PAGE_TABLES, Headline, Selection
from benchmarks.report.styles import SYSTEMS, styles_of
from benchmarks.result import Result, Row

ROWS: list[Row] = [
    {"graph": graph, "system": system, "edges": edges, "ms": edges * factor, "of": None, "end": end}
    for graph in ("small", "large")
    for edges in (1_000, 20_000)
    for system, factor, end in (("ours", 0.01, "done"), ("theirs", 0.5, "stopped"))
]
FOUND = {"race": Result("race", "Ours is faster", {"Times": ROWS})}
LINES = Chart(
    "lines",
    "race",
    "Times",
    "Milliseconds by edges",
    ("edges", "edges"),
    {"ms": ""},
    "milliseconds",
    lines=("system",),
    panel=("graph",),
    log="xy",
    marks=(Mark(100.0, "target"),),
)
BARS = Chart(
    "bars",
    "race",
    "Times",
    "Milliseconds by graph",
    ("graph", ""),
    {"ms": ""},
    "milliseconds",
    lines=("system",),
    where={"edges": (1_000,)},
    kind="bars",
    stopped=("end", "stopped"),
)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The markers of the pages and one result file."""
    FOUND["race"].write(tmp_path / "benchmarks" / "results" / "live.json")
    (tmp_path / "docs").mkdir()
    for page in ("README.md", "benchmarks/README.md", "docs/benchmarks.md"):
        (tmp_path / page).write_text(f"above\n{report.BEGIN}\n{report.END}\nbelow\n")
    return tmp_path


def status(root: Path) -> int:
    with pytest.raises(typer.Exit) as stop:
        report.main(root, check=True)
    return stop.value.exit_code


def test_the_pages_and_plots_of_this_checkout_are_those_of_its_result_files() -> None:
    assert status(Path(report.__file__).parents[2]) == 0, "run `python -m benchmarks.report`"


def test_the_report_is_stale_until_it_is_made_and_again_when_a_figure_changes(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "CHARTS", (LINES,))
    monkeypatch.setattr(
        report, "PAGE_TABLES", (Selection("live", "Times", "By system", ("graph", "ms")),)
    )
    headline = Headline("a race", "live", "Times", {"ms": 10.0}, "the others")
    monkeypatch.setattr(report, "HEADLINES", (headline,))
    path = checkout / "benchmarks" / "results" / "live.json"

    before = status(checkout)
    report.main(checkout)
    made = status(checkout)
    fields = json.loads(path.read_text())
    fields["tables"]["Times"][0]["ms"] *= 2
    path.write_text(json.dumps(fields))

    assert (before, made, status(checkout)) == (1, 0, 1)
    assert "| small | 10 |" in (checkout / "docs" / "benchmarks.md").read_text()
    assert "| a race | the others |" in (checkout / "README.md").read_text()


def test_a_plot_is_stale_when_a_figure_changes_and_goes_when_its_table_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw(LINES, FOUND, tmp_path)
    other = {"race": Result("race", "", {"Times": [{**row, "ms": 1.0} for row in ROWS]})}
    monkeypatch.setattr(report, "CHARTS", (LINES,))

    assert is_drawn(LINES, FOUND, tmp_path)
    assert not is_drawn(LINES, other, tmp_path)
    assert report.obsolete_plots(FOUND, tmp_path) == []
    assert sorted(path.name for path in report.obsolete_plots({}, tmp_path)) == sorted(
        file_names(LINES)
    )


@pytest.mark.parametrize("chart", [LINES, BARS], ids=["lines", "bars"])
def test_a_chart_drawn_twice_gives_the_same_bytes(chart: Chart, tmp_path: Path) -> None:
    draw(chart, FOUND, tmp_path / "once")
    draw(chart, FOUND, tmp_path / "twice")

    for name in file_names(chart):
        assert (tmp_path / "once" / name).read_bytes() == (tmp_path / "twice" / name).read_bytes()


def test_a_chart_has_a_panel_for_each_graph_and_tells_lower_bounds() -> None:
    panels = LINES.panels(FOUND)
    bars = BARS.panels(FOUND)[""]

    assert {graph: list(lines) for graph, lines in panels.items()} == {
        "small": ["ours", "theirs"],
        "large": ["ours", "theirs"],
    }
    assert [point.open for point in bars["theirs"]] == [True, True]
    assert [point.open for point in bars["ours"]] == [False, False]


@pytest.fixture(scope="module")
def found() -> dict[str, Result]:
    """The result files of this checkout."""
    return report.read_results(Path(report.__file__).parents[1] / "results")


def test_no_two_lines_or_bars_of_a_plot_look_the_same(found: dict[str, Result]) -> None:
    for chart in report.charts_with_data(found):
        labels = {label for lines in chart.panels(found).values() for label in lines}
        styles = styles_of(labels).values()

        lines = {(style.colour, style.marker, style.dash) for style in styles}
        bars = {(style.colour, style.hatch) for style in styles}

        assert len(lines) == len(labels), chart.name
        assert chart.kind == "lines" or len(bars) == len(labels), chart.name


def test_every_system_of_a_plot_has_its_own_style_in_all_plots(found: dict[str, Result]) -> None:
    systems = {
        label
        for chart in report.charts_with_data(found)
        if "system" in chart.lines
        for lines in chart.panels(found).values()
        for label in lines
    }

    assert systems <= set(SYSTEMS)
    styles = set(SYSTEMS.values())
    assert len({(style.colour, style.marker, style.dash) for style in styles}) == len(styles)


def test_labels_that_are_no_system_differ_from_each_other_and_from_the_systems_of_the_plot() -> (
    None
):
    styles = styles_of([*("dbsp_wcoj", "kuzu", "duckdb"), *map(str, range(20))])

    assert len({(one.colour, one.hatch) for one in styles.values()}) == 23
    assert len({(one.colour, one.marker, one.dash) for one in styles.values()}) == 23
    assert all(one.hatch != LOWER_BOUND_HATCH for one in styles.values())
    with pytest.raises(ValueError, match="100 labels and 35 styles: show fewer lines"):
        styles_of(map(str, range(100)))


def test_no_panel_of_lines_has_a_single_point(found: dict[str, Result]) -> None:
    for chart in report.charts_with_data(found):
        for title, lines in chart.panels(found).items():
            points = {point.x for points in lines.values() for point in points}
            assert chart.kind == "bars" or len(points) > 1, (chart.name, title)


def test_a_panel_whose_lines_have_one_point_is_left_to_the_table() -> None:
    rows = [row for row in ROWS if row["graph"] == "large" or row["edges"] == 1_000]
    few = {"race": Result("race", "", {"Times": rows})}

    assert list(LINES.panels(few)) == ["large"]
    assert len(few["race"].tables["Times"]) == len(rows)


def test_charts_and_faces_of_what_is_not_there_show_nothing() -> None:
    none: dict[str, Result] = {}
    other = {one.result: Result(one.result, "", {"Other": ROWS}) for one in (*CHARTS, *PAGE_TABLES)}

    for found in (none, other):
        assert report.charts_with_data(found) == []
        assert all(one.rows(found) == [] for one in PAGE_TABLES)
        assert all(one.rows(found) == [] for one in HEADLINES)
        assert report.page_tables(found) == report.readme_section(found) == ""


def test_each_headline_of_the_readme_is_one_row(found: dict[str, Result]) -> None:
    assert [len(one.rows(found)) for one in HEADLINES] == [1] * len(HEADLINES)
    assert report.readme_section(found).count("<picture>") == 1


def test_a_table_drops_empty_columns_and_keeps_bars_out_of_cells() -> None:
    rows: list[Row] = [{"query": "a | b", "edges": 12345, "ratio": None}]

    assert report._table(rows) == "| query | edges |\n| --- | --: |\n| a \\| b | 12,345 |\n"


def test_long_tables_are_folded() -> None:
    found = {"race": Result("race", "Claim", {"Times": ROWS * 2})}

    assert "<details><summary><b>Times</b>, 16 rows</summary>" in report.all_tables(found)
    assert "<details>" not in report.all_tables(FOUND)


def test_the_report_says_which_markers_are_missing() -> None:
    with pytest.raises(report.MarkerError, match="needs the lines '<!-- benchmarks: begin"):
        report.with_tables("no markers", "tables")


def test_a_result_that_was_written_is_read_with_its_origin(tmp_path: Path) -> None:
    FOUND["race"].write(tmp_path / "race.json")

    read = Result.read(tmp_path / "race.json")

    assert read.tables == FOUND["race"].tables
    assert {"date", "command", "processor", "cores", "memory GB", "numpy"} <= set(read.machine)
    assert str(tmp_path.anchor) + "tmp" not in str(read.machine["command"])


def test_the_commit_is_marked_when_a_source_differs_but_not_for_what_is_rendered(
    tmp_path: Path,
) -> None:
    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", "-C", str(tmp_path), *identity, *arguments], check=True)

    assert result.commit(tmp_path) is None
    (tmp_path / "benchmarks" / "results").mkdir(parents=True)
    (tmp_path / "docs").mkdir()
    rendered_files = ("README.md", "benchmarks/results/live.json", "docs/benchmarks.md")
    for name in ("source.py", *rendered_files):
        (tmp_path / name).write_text("first")
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "first")
    clean = result.commit(tmp_path)
    for name in rendered_files:
        (tmp_path / name).write_text("second")
    rendered = result.commit(tmp_path)
    (tmp_path / "source.py").write_text("second")

    assert clean is not None
    assert clean == rendered
    assert result.commit(tmp_path) == f"{clean} + changes"
