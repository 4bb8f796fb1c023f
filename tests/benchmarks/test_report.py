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
from benchmarks.result import Cell, Result, Row

ROWS: list[Row] = [
    {"graph": graph, "system": system, "edges": edges, "ms": edges * factor, "of": None, "end": end}
    for graph in ("small", "large")
    for edges in (1_000, 20_000)
    for system, factor, end in (("ours", 0.01, "done"), ("theirs", 0.5, "stopped"))
]
RESULTS = {"race": Result("race", "Ours is faster", {"Times": ROWS})}
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
    """A checkout with the markers of the pages, and one result file."""
    RESULTS["race"].write(tmp_path / "benchmarks" / "results" / "live.json")
    (tmp_path / "docs").mkdir()
    pages = ("README.md", "benchmarks/README.md", "docs/benchmarks.md", "docs/comparison.md")
    for page in pages:
        (tmp_path / page).write_text(f"above\n{report.BEGIN}\n{report.END}\nbelow\n")
    return tmp_path


def check_status(root: Path) -> int:
    """Return the exit status of a check, which is 1 if a page or a plot is stale."""
    with pytest.raises(typer.Exit) as stop:
        report.main(root, check=True)
    return stop.value.exit_code


def test_the_pages_and_plots_of_this_checkout_are_those_of_its_result_files() -> None:
    assert check_status(Path(report.__file__).parents[2]) == 0, "run `python -m benchmarks.report`"


def test_the_report_is_stale_until_it_is_rendered_and_again_when_a_figure_changes(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "CHARTS", (LINES,))
    monkeypatch.setattr(
        report, "PAGE_TABLES", (Selection("live", "Times", "By system", ("graph", "ms")),)
    )
    headline = Headline("a race", "live", "Times", {"ms": 10.0}, "the others")
    monkeypatch.setattr(report, "HEADLINES", (headline,))
    path = checkout / "benchmarks" / "results" / "live.json"

    before = check_status(checkout)
    report.main(checkout)
    after = check_status(checkout)
    fields = json.loads(path.read_text())
    fields["tables"]["Times"][0]["ms"] *= 2
    path.write_text(json.dumps(fields))

    assert (before, after, check_status(checkout)) == (1, 0, 1)
    assert "| small | 10 |" in (checkout / "docs" / "benchmarks.md").read_text()
    assert "| a race | the others |" in (checkout / "README.md").read_text()


def test_a_plot_is_stale_when_a_figure_changes_and_obsolete_without_its_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw(LINES, RESULTS, tmp_path)
    changed = {"race": Result("race", "", {"Times": [{**row, "ms": 1.0} for row in ROWS]})}
    monkeypatch.setattr(report, "CHARTS", (LINES,))

    assert is_drawn(LINES, RESULTS, tmp_path)
    assert not is_drawn(LINES, changed, tmp_path)
    assert report.obsolete_plots(RESULTS, tmp_path) == []
    assert sorted(path.name for path in report.obsolete_plots({}, tmp_path)) == sorted(
        file_names(LINES)
    )


@pytest.mark.parametrize("chart", [LINES, BARS], ids=["lines", "bars"])
def test_a_chart_drawn_twice_gives_the_same_bytes(chart: Chart, tmp_path: Path) -> None:
    draw(chart, RESULTS, tmp_path / "once")
    draw(chart, RESULTS, tmp_path / "twice")

    for name in file_names(chart):
        assert (tmp_path / "once" / name).read_bytes() == (tmp_path / "twice" / name).read_bytes()


def test_a_chart_has_a_panel_for_each_graph_and_marks_lower_bounds() -> None:
    panels = LINES.panels(RESULTS)
    bars = BARS.panels(RESULTS)[""]

    assert {graph: list(lines) for graph, lines in panels.items()} == {
        "small": ["ours", "theirs"],
        "large": ["ours", "theirs"],
    }
    assert [point.open for point in bars["theirs"]] == [True, True]
    assert [point.open for point in bars["ours"]] == [False, False]


@pytest.fixture(scope="module")
def results() -> dict[str, Result]:
    """The result files of this checkout."""
    return report.read_results(Path(report.__file__).parents[1] / "results")


def test_no_two_lines_or_bars_of_a_plot_look_the_same(results: dict[str, Result]) -> None:
    for chart in report.charts_with_data(results):
        labels = {label for lines in chart.panels(results).values() for label in lines}
        styles = styles_of(labels).values()

        lines = {(style.colour, style.marker, style.dash) for style in styles}
        bars = {(style.colour, style.hatch) for style in styles}

        assert len(lines) == len(labels), chart.name
        assert chart.kind == "lines" or len(bars) == len(labels), chart.name


def test_every_system_of_a_plot_has_its_own_style_in_all_plots(results: dict[str, Result]) -> None:
    systems = {
        label
        for chart in report.charts_with_data(results)
        if "system" in chart.lines
        for lines in chart.panels(results).values()
        for label in lines
    }

    assert systems <= set(SYSTEMS)
    styles = set(SYSTEMS.values())
    assert len({(style.colour, style.marker, style.dash) for style in styles}) == len(styles)


def test_labels_of_other_lines_differ_from_each_other_and_from_the_systems_of_the_plot() -> None:
    styles = styles_of([*("dbsp_wcoj", "kuzu", "duckdb"), *map(str, range(20))])

    assert len({(style.colour, style.hatch) for style in styles.values()}) == 23
    assert len({(style.colour, style.marker, style.dash) for style in styles.values()}) == 23
    assert all(style.hatch != LOWER_BOUND_HATCH for style in styles.values())
    with pytest.raises(ValueError, match="100 labels and 35 styles: show fewer lines"):
        styles_of(map(str, range(100)))


def test_two_names_of_one_system_in_a_plot_are_refused() -> None:
    with pytest.raises(ValueError, match="'duckdb' and 'DuckDB' have one style"):
        styles_of(["duckdb", "kuzu", "DuckDB"])


def test_no_panel_of_lines_has_a_single_point(results: dict[str, Result]) -> None:
    for chart in report.charts_with_data(results):
        for title, lines in chart.panels(results).items():
            points = {point.x for points in lines.values() for point in points}
            assert chart.kind == "bars" or len(points) > 1, (chart.name, title)


def test_a_panel_whose_lines_have_one_point_is_not_drawn() -> None:
    rows = [row for row in ROWS if row["graph"] == "large" or row["edges"] == 1_000]
    few = {"race": Result("race", "", {"Times": rows})}

    assert list(LINES.panels(few)) == ["large"]
    assert len(few["race"].tables["Times"]) == len(rows)


def test_charts_and_tables_without_data_show_nothing() -> None:
    other_tables = {
        shown.result: Result(shown.result, "", {"Other": ROWS}) for shown in (*CHARTS, *PAGE_TABLES)
    }

    for results in ({}, other_tables):
        assert report.charts_with_data(results) == []
        assert all(selection.rows(results) == [] for selection in PAGE_TABLES)
        assert all(headline.rows(results) == [] for headline in HEADLINES)
        assert report.page_tables(results) == report.readme_section(results) == ""


def test_the_comparison_has_the_rows_in_which_others_are_faster_and_their_commands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows: list[Row] = [{"system": name, "times": times} for name, times in (("a", 0.5), ("b", 2.0))]
    results = {"race": Result("race", "Claim", {"Times": [*rows, {"system": "c"}]})}
    slower = Selection("race", "Times", "Slower", ("system", "times"), below_one=("times",))
    monkeypatch.setattr(report, "COMPARISON_TABLES", ())
    monkeypatch.setattr(report, "OTHERS_FASTER", (slower, slower))

    text = report.comparison_tables(results)

    assert slower.rows(results) == [{"system": "a", "times": 0.5}]
    assert text.count("| a | 0.5 |") == 2
    assert text.count("<sub>race.json: ") == 1
    assert report.comparison_tables({}) == ""


def test_a_table_of_another_run_has_the_command_of_that_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine: dict[str, Cell] = {
        "command": "python -m benchmarks.race --part hills --json '…/race.json'",
        "commit": "b2",
        "processor": "Xeon",
        "run seconds": 0,
        "Times by": "python -m benchmarks.race --graph '…/hub.parquet', commit a1, 2026-11-21, A",
    }
    result = Result("race", "Claim", {"Times": [{"n": 1}], "Hills": [{"n": 2}]}, machine)
    tables = tuple(Selection("race", name, name, ("n",)) for name in ("Times", "Hills"))
    monkeypatch.setattr(report, "COMPARISON_TABLES", tables)
    monkeypatch.setattr(report, "OTHERS_FASTER", ())

    times, hills = report.comparison_tables({"race": result}).split("Hills:")

    assert (
        "`python -m benchmarks.race --graph hub.parquet`\n<sub>race.json: commit a1, 2026-11-21, "
        "A; last run of the file: commit b2, Xeon." in times
    )
    assert "`python -m benchmarks.race --part hills --json race.json`\n" in hills
    assert "ran 0 s" not in hills and "…" not in times + hills


def test_a_page_says_which_tables_another_processor_has_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine: dict[str, Cell] = {
        "date": "2026-11-23",
        "processor": "Xeon",
        "Times by": "python -m benchmarks.race, commit a1, 2026-11-21 10:00 UTC, EPYC",
        "Hills by": "python -m benchmarks.race, commit a2, 2026-11-22 10:00 UTC, Xeon",
        "Falls by": "python -m benchmarks.race, commit a3, 2026-11-22 10:00 UTC",
    }
    names = ("Times", "Hills", "Falls", "Turns")
    result = Result("race", "Claim", {name: [{"n": 1}] for name in names}, machine)
    selections = [Selection("race", name, name, ("n",)) for name in names]
    monkeypatch.setitem(report.SECTIONS, "race", "A race")
    monkeypatch.setattr(report, "PAGE_TABLES", selections)
    page = report.page_tables({"race": result})
    assert "Times (measured on EPYC; 2026-11-21):\n" in page
    assert all(f"\n{name}:\n" in page for name in names[1:])
    assert page.endswith("<sub>Measured on Xeon; 2026-11-23.</sub>\n")

    monkeypatch.setattr(report, "PAGE_TABLES", selections[:1])
    assert "<sub>" not in report.page_tables({"race": result})


def test_each_headline_of_the_readme_is_one_row(results: dict[str, Result]) -> None:
    assert [len(headline.rows(results)) for headline in HEADLINES] == [1] * len(HEADLINES)
    assert report.readme_section(results).count("<picture>") == 1


def test_the_page_on_sizing_has_the_measured_steps_beyond_memory(
    results: dict[str, Result],
) -> None:
    in_memory, limited = results["beyond_memory"].tables["State larger than memory"]
    page = (Path(report.__file__).parents[2] / "docs" / "how-to" / "sizing.md").read_text("utf-8")
    for text in (
        f"a limit of {limited['limit MB']:,.0f} MB",
        f"takes {limited['median step ms']:.0f} ms, {limited['times']:.1f} times as long",
        f"{limited['median step CPU ms']:.0f} ms of processor time, {limited['CPU times']:.1f}",
        f"has up to {limited['peak resident MB']:,.0f} MB more",
        f"{limited['process MB']:,.0f} MB in all",
        f"without a limit it has {in_memory['process MB']:,.0f} MB",
        f"opens the state in {limited['restart s']:.1f} s",
        f"waits {limited['with a first step s']:.0f} s",
    ):
        assert text in page, text


def test_the_page_on_pipelines_has_the_measured_range_of_the_policies(
    results: dict[str, Result],
) -> None:
    rows = results["policies"].tables["A step against recomputation, by the size of the change"]
    factors = [float(str(row["times faster"])) for row in rows]
    page = (Path(report.__file__).parents[2] / "docs" / "how-to" / "pipeline.md").read_text("utf-8")
    assert f"We measured {len(rows)} cases" in page
    assert f"was {min(factors):.1f} to {max(factors):,.0f} times faster" in page


def test_a_table_drops_empty_columns_and_escapes_vertical_bars() -> None:
    rows: list[Row] = [{"query": "a | b", "edges": 12345, "ratio": None}]

    assert report._table(rows) == "| query | edges |\n| --- | --: |\n| a \\| b | 12,345 |\n"


def test_long_tables_are_folded() -> None:
    long = {"race": Result("race", "Claim", {"Times": ROWS * 2})}

    assert "<details><summary><b>Times</b>, 16 rows</summary>" in report.all_tables(long)
    assert "<details>" not in report.all_tables(RESULTS)


def test_the_report_says_which_markers_are_missing() -> None:
    with pytest.raises(report.MarkerError, match="needs the lines '<!-- benchmarks: begin"):
        report.with_tables("no markers", "tables")


def test_a_written_result_is_read_with_its_tables_and_its_machine(tmp_path: Path) -> None:
    RESULTS["race"].write(tmp_path / "race.json")

    read = Result.read(tmp_path / "race.json")

    assert read.tables == RESULTS["race"].tables
    assert {"date", "command", "processor", "cores", "memory GB", "numpy"} <= set(read.machine)
    assert str(tmp_path.anchor) + "tmp" not in str(read.machine["command"])


def test_the_commit_is_marked_if_a_source_file_differs_but_not_for_rendered_files(
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
