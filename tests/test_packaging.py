from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile

import pytest

from tests.documents import DOCS, blocks_of
from tests.packaging import ROOT, contents

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    place = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(place)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,), (archive,) = place.glob("*.whl"), place.glob("*.tar.gz")
    return wheel, archive


def test_the_wheel_has_three_typed_packages_and_nothing_else(built):
    contents(built[0])
    assert built[0].stat().st_size < 2_000_000


def test_the_source_archive_has_what_the_tests_and_the_documentation_need(built):
    with tarfile.open(built[1]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    needed = ["tests/conftest.py", "docs/index.md", "docs/pictures/join.svg", "mkdocs.yml"]
    needed += ["examples/first_view.ipynb", "benchmarks/report.py", "Makefile", "constraints.txt"]
    assert set(needed) <= names
    assert not [name for name in names if name.startswith(("build/", ".venv/", "results/"))]


def test_the_base_install_has_no_packages_that_only_extras_need():
    base = {re.split(r"[<>=!\[]", name)[0] for name in PROJECT["dependencies"]}
    assert base == {
        "lark",
        "numba",
        "numpy",
        "pyarrow",
        "pyspark",
        "scipy",
        "sortedcontainers",
        "sqlglot",
    }


def test_what_is_imported_at_the_top_needs_the_base_install_only():
    """Packages of extras are imported where they are used."""
    extras = ["deltalake", "psycopg", "rich", "typer", "pandas", "matplotlib", "duckdb"]
    code = (
        "import sys, circuits, dbsp_wcoj, streaming, streaming.cli, streaming.demo\n"
        f"print([name for name in {extras} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.strip() == "[]", done


def stand_in(site):
    """An installed package of the name ``streaming`` that is another one."""
    (site / "streaming").mkdir(parents=True)
    (site / "streaming" / "__init__.py").write_text("class StreamingDataset: pass\n")
    return site


WHERE = "import streaming; print(streaming.__file__); from streaming import ViewSink"


def test_a_wheel_in_front_hides_another_package_named_streaming(built, tmp_path):
    """As ``--py-files`` and the first cell for Databricks put it; site-packages come after both."""
    site = stand_in(tmp_path / "site")
    (first_on_the_path,) = (
        block.text
        for block in blocks_of(DOCS / "how-to" / "cluster.md")
        if "def first_on_the_path" in block.text
    )
    code = f"""
import sys
sys.path.insert(0, {str(site)!r})
import streaming
assert not hasattr(streaming, "ViewSink")
{first_on_the_path}
first_on_the_path({str(built[0])!r})
{WHERE}
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "numba")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().startswith(str(built[0]))


@pytest.mark.spark
def test_executors_import_a_package_given_by_py_files_before_an_installed_one(spark, tmp_path):
    """``--py-files`` is ``addPyFile`` for the files of the command line."""
    name = "of_the_job_and_installed"
    installed = tmp_path / "installed"
    (installed / name).mkdir(parents=True)
    (installed / name / "__init__.py").write_text("WHERE = 'installed'\n")
    archive = tmp_path / "job.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr(f"{name}/__init__.py", "WHERE = 'given'\n")
    spark.sparkContext.addPyFile(str(archive))
    try:

        def where(batches):
            import importlib
            import sys

            sys.path.append(str(installed))  # where site-packages are: after what Spark puts there
            module = importlib.import_module(name)
            for batch in batches:
                yield batch.set_column(0, "where", [[module.WHERE] * batch.num_rows])

        found = spark.range(1).mapInArrow(where, "where string").collect()
        assert [row["where"] for row in found] == ["given"]
    finally:
        sys.path = [place for place in sys.path if place != str(archive)]
