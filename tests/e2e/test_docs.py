from __future__ import annotations

import builtins
import os
import re
import shlex
import subprocess
import sys
import tomllib
from html.parser import HTMLParser

import pytest
import typer

from docs import functions
from docs.docstrings import markdown
from docs.drawing.pictures import PICTURES
from streaming.cli.app import app
from tests.support.documents import DOCS, PAGES, README, blocks_of, run

ROOT = DOCS.parent
PROJECT = (ROOT / "pyproject.toml").read_text()
IN_SITE = {page.relative_to(DOCS).as_posix(): page for page in PAGES}
PAGES_BY_NAME = IN_SITE | {"README.md": README}
LANGUAGES = {"python", "sh", "sql", "text", "toml"}
IN_SPARK = {name for name, page in PAGES_BY_NAME.items() if "start_session(" in page.read_text()}
# Spark plans each feed of JSON for seconds, and runs a job for each stage of cells.
SLOW = {"how-to/bad-rows.md", "how-to/feeds.md", "how-to/scale-out.md"}
MAX_PAGE_LINES = 400  # about ten screens


def marks(name):
    """Return the pytest marks of a page: whether its code needs Spark, or is slow."""
    return [pytest.mark.spark] * (name in IN_SPARK) + [pytest.mark.slow] * (name in SLOW)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=marks(name))
        for name in PAGES_BY_NAME
        if any(block.language == "python" for block in blocks_of(PAGES_BY_NAME[name]))
    ],
)
def test_the_code_of_a_page_does_what_the_page_says(name, tmp_path, monkeypatch, request):
    if name in IN_SPARK:
        request.getfixturevalue("spark")  # start_session returns the session of all tests
    monkeypatch.chdir(tmp_path)
    run(PAGES_BY_NAME[name])


@pytest.mark.parametrize("name", PAGES_BY_NAME)
def test_a_block_of_a_page_is_of_a_language_that_is_executed_or_shown(name):
    for block in blocks_of(PAGES_BY_NAME[name]):
        assert block.language in LANGUAGES, f"{name}:{block.line}"


def commands_of(name):
    """Yield the shell commands of a page, each after its place for messages."""
    for block in blocks_of(PAGES_BY_NAME[name]):
        if block.language == "sh":
            for line in block.text.replace("\\\n", "").splitlines():
                yield f"{name}:{block.line}: {line}", line


def test_commands_on_the_pages_exist():
    makefile = (ROOT / "Makefile").read_text()
    for where, line in (command for name in PAGES_BY_NAME for command in commands_of(name)):
        words = [word for word in shlex.split(line) if "=" not in word]
        if words[0] == "make":
            assert re.search(rf"^{words[1]}:", makefile, re.MULTILINE), where
        elif words[0].endswith("/python") and words[1] != "-m":
            assert (ROOT / words[1]).is_file(), where
        elif words[0].rpartition("/")[2].startswith("dbsp-wcoj"):
            assert f"\n{words[0].rpartition('/')[2]} = " in PROJECT, where


def test_the_arguments_of_dbsp_wcoj_on_the_pages_are_valid():
    group = typer.main.get_command(app)
    checked_commands = 0
    for where, line in (command for name in PAGES_BY_NAME for command in commands_of(name)):
        program, *words = shlex.split(line)
        if program.rpartition("/")[2] == "dbsp-wcoj":
            assert words[0] in group.commands, where
            group.commands[words[0]].make_context(where, words[1:])
            checked_commands += 1
    assert checked_commands > 5


def test_the_page_of_the_command_line_lists_every_command():
    page = PAGES_BY_NAME["how-to/command-line.md"].read_text()
    table = page.partition("| does |\n| --- | --- |\n")[2]
    listed = re.findall(r"^\| `([\w-]+)", table, re.MULTILINE)

    assert sorted(listed) == sorted({*typer.main.get_command(app).commands, "demo"})


@pytest.mark.slow
def test_the_commands_of_the_tutorial_print_what_the_page_shows(tmp_path):
    """Takes half a minute: two runs in Spark, each with --once, which the page does not use."""
    blocks = blocks_of(PAGES_BY_NAME["tutorial.md"])
    printed = [block.text for block in blocks if block.language == "text"]
    (file,) = (block for block in blocks if block.title)
    (tmp_path / file.title).write_text(file.text)
    shell = [block.text for block in blocks if block.language == "sh"]
    monday, run_command, tuesday = shell[1:4]
    command = run_command.strip().removeprefix("dbsp-wcoj").replace("--ui", "--once")

    def output_of_run():
        line = f"{sys.executable} -m streaming.cli {command}"
        completed = subprocess.run(line, shell=True, cwd=tmp_path, capture_output=True, text=True)
        assert completed.returncode == 0, completed.stderr
        return completed.stdout

    for write_files, output in zip((monday, tuesday), printed, strict=True):
        subprocess.run(write_files, shell=True, cwd=tmp_path, check=True)
        assert output_of_run() == output


@pytest.mark.parametrize("name", PAGES_BY_NAME)
def test_a_page_is_no_longer_than_ten_screens(name):
    assert len(PAGES_BY_NAME[name].read_text().splitlines()) <= MAX_PAGE_LINES


def test_the_readme_is_two_screens_long():
    assert 150 <= len(README.read_text().splitlines()) <= 200


def test_the_page_install_lists_every_extra():
    extras = tomllib.loads(PROJECT)["project"]["optional-dependencies"]
    first_cells = re.findall(r"^\|([^|]*)\|", PAGES_BY_NAME["install.md"].read_text(), re.MULTILINE)
    listed = re.findall(r"`(\w+)`", " ".join(first_cells))

    assert sorted(listed) == sorted(extras)


def test_every_page_is_in_the_navigation():
    settings = (ROOT / ".mkdocs.yml").read_text()
    pages = re.findall(r"^ +- [^:]+: (\S+\.md)$", settings, re.MULTILINE)

    assert sorted(pages) == sorted(IN_SITE)


def test_the_pages_of_functions_are_those_of_the_function_table():
    for name, text in functions.pages().items():
        page = DOCS / "reference" / name

        assert page.read_text() == text, "run `python -m docs.functions`"


def test_a_function_without_an_example_is_an_error(monkeypatch):
    monkeypatch.setattr(functions, "FUNCTIONS", {**functions.FUNCTIONS, "new": "a new function"})

    with pytest.raises(ValueError, match=r"missing: \['new'\]"):
        functions.pages()


def test_no_page_names_an_external_address():
    for name, page in PAGES_BY_NAME.items():
        assert not re.search(r"https?:|www\.", page.read_text()), name


def test_links_between_pages_lead_to_headings_that_exist():
    for name, page in PAGES_BY_NAME.items():
        links = re.findall(r"\]\(([\w./-]*(?:\.md)?)(?:#([\w-]+))?\)", page.read_text())
        for place, anchor in links:
            target = page.parent / place if place else page
            assert target.is_file(), f"{name}: {place}"
            if anchor:
                headings = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
                assert anchor in {re.sub(r"\W+", "-", h.lower()).strip("-") for h in headings}, name


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_as_it_would_be_drawn_now(name):
    assert (DOCS / "pictures" / f"{name}.svg").read_text() == PICTURES[name]()


class LoadedAddresses(HTMLParser):
    """Collects the addresses that a page loads when it is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        if tag in ("script", "img", "iframe", "source") and values.get("src"):
            self.addresses.append(values["src"])
        if tag == "link" and values.get("rel") not in ("canonical", "next", "prev"):
            self.addresses.append(values["href"])


def test_the_extra_docs_builds_the_pages_without_a_warning_or_a_load_from_outside(tmp_path):
    site = tmp_path / "site"
    command = [sys.executable, "-m", "tests.support.only_extra", "docs"]
    command += ["mkdocs", "build", "--config-file", ".mkdocs.yml"]
    command += ["--strict", "--quiet", "-d", str(site)]
    completed = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1", "DISABLE_MKDOCS_2_WARNING": "true"},
        capture_output=True,
        text=True,
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
    pages = sorted(site.rglob("*.html"))
    assert {page.relative_to(site).with_suffix(".md").as_posix() for page in pages} >= set(IN_SITE)
    for page in pages:
        parser = LoadedAddresses()
        parser.feed(page.read_text())
        outside = [address for address in parser.addresses if re.match(r"(\w+:)?//", address)]
        assert not outside, f"{page.name}: {outside}"
    for style in site.rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*['\"]?(https?:)?//", style.read_text()), style
    reference = (site / "reference" / "streaming.html").read_text()
    assert 'id="streaming.ViewSink"' in reference


def test_examples_and_drawings_in_a_docstring_become_blocks_and_sections_stay():
    text = "Law::\n\n    a = b\n\nRaises:\n    OneError: It is.\n    As `step`.\n\n>>> 1 + 1\n2"
    assert markdown(text).split("\n") == [
        *("Law:", "", "```text", "a = b", "```", ""),
        *("Raises:", "    OneError: It is.", "", "Errors:", "    As `step`.", ""),
        *("```pycon", ">>> 1 + 1", "2", "```"),
    ]


def test_every_public_name_is_in_the_reference():
    import circuits
    import dbsp_wcoj
    import streaming

    text = "".join(page.read_text() for page in (DOCS / "reference").glob("*.md"))
    documented = set(re.findall(r"^::: [\w.]+\.(\w+)$", text, re.MULTILINE))
    public = {name for module in (circuits, dbsp_wcoj, streaming) for name in module.__all__}
    missing = {name for name in public - documented if not name.endswith("Error")}
    assert missing <= INTERNAL, sorted(missing - INTERNAL)


def test_the_page_of_errors_lists_every_class():
    import circuits.errors
    import dbsp_wcoj.errors
    import streaming.errors

    page = PAGES_BY_NAME["reference/error-classes.md"].read_text()
    modules = (circuits.errors, dbsp_wcoj.errors, streaming.errors)
    names = {name for module in modules for name in module.__all__}
    assert names - set(re.findall(r"`(\w+)`", page)) == set()
    for name in re.findall(r"`(\w+Error)`", page):
        assert name in names or hasattr(builtins, name), name


# Exported for the packages above, and described where they are used.
INTERNAL = {
    "__version__",
    "CircuitOptions",
    "CircuitStep",
    "CircuitSpec",
    "ChangeFeed",
    "PreparedStep",
    "RejectedRows",
    "Relations",
    "RelationsStep",
    "Schema",
    "State",
    "StateStep",
    "Stats",
    "Trace",
    "Views",
    "find_feed",
    "find_java",
    "incrementalize",
}
