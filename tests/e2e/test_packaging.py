from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest
from packaging.requirements import Requirement

from tests.support.documents import DOCS, blocks_of
from tests.support.packaging import (
    PROJECT,
    ROOT,
    TRY_SPARK,
    TRY_WITHOUT_SPARK,
    check_contents,
    check_refusal,
    compile_wheel,
    link_environment,
    oldest_packages,
    try_compiled_wheel,
)


@pytest.fixture(scope="module")
def distributions(tmp_path_factory):
    """The wheel and the source archive of this checkout."""
    place = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(place)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,), (archive,) = place.glob("*.whl"), place.glob("*.tar.gz")
    return wheel, archive


def test_the_wheel_has_three_typed_packages_and_nothing_else(distributions):
    check_contents(distributions[0])


@pytest.mark.slow
def test_a_wheel_with_machine_code_compiles_nothing(distributions):
    try_compiled_wheel(compile_wheel(distributions[0]))


def test_the_source_archive_has_what_the_tests_and_the_documentation_need(distributions):
    with tarfile.open(distributions[1]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    needed = ["tests/conftest.py", "docs/index.md", "docs/pictures/join.svg", ".mkdocs.yml"]
    needed += [
        "examples/first_view.ipynb",
        "examples/views_on_spark.ipynb",
        "benchmarks/report/__main__.py",
        "Makefile",
        "constraints.txt",
    ]
    assert set(needed) <= names
    assert not [name for name in names if name.startswith(("build/", ".venv/", "results/"))]


def test_views_work_where_only_the_base_install_is_installed(distributions, tmp_path):
    python = link_environment(tmp_path / "venv", distributions[0])
    check_refusal(str(python.with_name("dbsp-wcoj")))
    completed = subprocess.run(
        [python, "-I", "-c", TRY_WITHOUT_SPARK], cwd=tmp_path, capture_output=True, text=True
    )
    assert completed.returncode == 0, completed.stderr
    assert "tried without Spark" in completed.stdout


def test_streams_work_where_only_the_extra_spark_is_installed(distributions, tmp_path):
    python = link_environment(tmp_path / "venv", distributions[0], "spark")
    completed = subprocess.run(
        [python, "-I", "-c", TRY_SPARK], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert completed.returncode == 0, completed.stderr
    assert "tried with Python" in completed.stdout


def test_the_source_archive_makes_the_same_wheel(distributions, tmp_path):
    with tarfile.open(distributions[1]) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (rebuilt,) = tmp_path.glob("*.whl")
    record = f"{source.name}.dist-info/RECORD"
    with zipfile.ZipFile(distributions[0]) as first, zipfile.ZipFile(rebuilt) as second:
        assert first.read(record) == second.read(record)


def test_pins_of_continuous_integration_are_within_the_bounds_of_the_package():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = dict(line.lower().split("==") for line in lines if "==" in line)
    for name in PROJECT["dependencies"]:
        need = Requirement(name)
        assert pins[need.name] in need.specifier, f"{name}, pinned {pins[need.name]}"


def test_the_oldest_packages_are_a_pin_for_each_dependency():
    pinned = {pin.partition("==")[0] for pin in oldest_packages()}
    assert pinned >= {Requirement(name).name for name in PROJECT["dependencies"]}


def test_the_base_install_has_no_packages_that_only_extras_need():
    base = {Requirement(name).name for name in PROJECT["dependencies"]}
    assert base == {
        "lark",
        "numba",
        "numpy",
        "pyarrow",
        "sortedcontainers",
        "sqlglot",
    }


def test_what_is_imported_at_the_top_needs_the_base_install_only():
    """Packages of extras are imported where they are used."""
    extras = ["deltalake", "psycopg", "rich", "typer", "matplotlib", "duckdb"]
    extras += ["prometheus_client", "opentelemetry"]
    code = (
        "import sys, circuits, dbsp_wcoj, streaming, streaming.cli, streaming.demo\n"
        f"print([name for name in {extras} if name in sys.modules])"
    )
    completed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT
    )
    assert completed.stdout.strip() == "[]", completed


HIDE_SPARK = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "typer", "rich"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden())
import pytest
sys.exit(pytest.main(sys.argv[1:]))
"""


def test_the_tests_of_the_core_and_of_circuits_run_without_spark():
    """All test modules are imported; two of them are run."""
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    for arguments in (
        ["--collect-only", "tests/dbsp_wcoj", "tests/circuits"],
        ["tests/dbsp_wcoj/test_formulas.py", "tests/circuits/test_schema.py"],
    ):
        completed = subprocess.run(
            [sys.executable, "-c", HIDE_SPARK, *options, *arguments],
            cwd=ROOT,
            capture_output=True,
            text=True,
        )
        assert completed.returncode == 0, completed.stdout[-3000:]


def install_other_streaming(site):
    """Install another package of the name ``streaming``."""
    (site / "streaming").mkdir(parents=True)
    (site / "streaming" / "__init__.py").write_text("class StreamingDataset: pass\n")
    return site


def import_location(place, folder):
    """Return the file of ``streaming`` if ``place`` is on the path before the other package."""
    site = install_other_streaming(folder / "site")
    code = f"""
import sys
sys.path.insert(0, {str(site)!r})
import streaming
assert not hasattr(streaming, "ViewSink")
{FIRST_ON_THE_PATH}
first_on_the_path({str(place)!r})
import streaming
from streaming import ViewSink
print(streaming.__file__)
"""
    completed = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env=os.environ | {"XDG_CACHE_HOME": str(folder / "cache")},
        capture_output=True,
        text=True,
    )
    assert completed.returncode == 0, completed.stderr
    return completed.stdout.strip()


(FIRST_ON_THE_PATH,) = (
    block.text
    for block in blocks_of(DOCS / "how-to" / "cluster.md")
    if "def first_on_the_path" in block.text
)


def test_a_folder_in_front_hides_another_package_named_streaming(distributions, tmp_path):
    """The first cells for Databricks put the folder there; site-packages come after it."""
    place = tmp_path / "own"
    with zipfile.ZipFile(distributions[0]) as wheel:
        wheel.extractall(place)
    assert import_location(place, tmp_path).startswith(str(place))


def test_a_wheel_is_imported_as_an_archive_that_ends_in_zip(distributions, tmp_path):
    """``--py-files`` does so; numba cannot cache kernels of an archive with another suffix."""
    archive = shutil.copy(distributions[0], tmp_path / "dbsp_wcoj-0.1.0.zip")
    assert import_location(archive, tmp_path).startswith(str(archive))


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

            import pyarrow as pa

            sys.path.append(str(installed))  # where site-packages are: after what Spark puts there
            module = importlib.import_module(name)
            for batch in batches:
                yield pa.RecordBatch.from_pydict({"where": [module.WHERE] * batch.num_rows})

        rows = spark.range(1).mapInArrow(where, "where string").collect()
        assert [row["where"] for row in rows] == ["given"]
    finally:
        sys.path = [place for place in sys.path if place != str(archive)]
