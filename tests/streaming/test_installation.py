"""Errors if another distribution has installed a package `streaming` or `circuits`."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import streaming
from streaming.installation import check_circuits, check_packages, check_streaming

ROOT = Path(streaming.__file__).parents[1]
OURS = ("dbsp_wcoj", "circuits", "streaming")


def distribution(folder: Path, name: str, package: str) -> None:
    """Create a distribution with one package of this name, as pip would install it."""
    info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "RECORD").write_text(f"{package}/__init__.py,,\n")
    (folder / package).mkdir(exist_ok=True)
    (folder / package / "__init__.py").write_text("class StreamingDataset: pass\n")


@pytest.fixture
def site(tmp_path):
    """Return a folder with a copy of the packages."""
    for package in OURS:
        ignored = shutil.ignore_patterns("__pycache__", "static", "assets")
        shutil.copytree(ROOT / package, tmp_path / package, ignore=ignored)
    return tmp_path


def run(code: str, *path: Path) -> str:
    """Run code with these folders on the path; return the last line of the error output."""
    text = f"import sys; sys.path[:0] = {[str(folder) for folder in path]!r}\n{code}"
    ended = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, check=False, cwd=path[-1]
    )
    return ended.stderr.strip().splitlines()[-1] if ended.stderr.strip() else ""


def test_the_packages_of_this_checkout_pass():
    check_circuits()
    check_streaming()
    check_packages()


def test_circuits_of_another_distribution_earlier_on_the_path_is_named(site, tmp_path):
    other = tmp_path / "other"
    distribution(other, "quantum-circuits", "circuits")
    error = run("import streaming", other, site)
    assert error.startswith("ImportError: the package 'circuits' is not that of dbsp-wcoj")
    assert str(other / "circuits") in error
    assert "distribution quantum-circuits; pip uninstall quantum-circuits" in error


def test_circuits_that_another_distribution_has_overwritten_is_named(site):
    distribution(site, "quantum-circuits", "circuits")
    error = run("from streaming import compile_sql", site)
    assert error.startswith("ImportError: the package 'circuits' is not that of dbsp-wcoj")
    assert "pip uninstall quantum-circuits" in error
    assert "pip install --force-reinstall --no-deps dbsp-wcoj" in error


@pytest.mark.parametrize("module", ["streaming.cli", "streaming.sink.view_sink"])
def test_streaming_that_another_distribution_has_overwritten_is_named(site, module):
    distribution(site, "training-data", "streaming")
    error = run(f"import {module}", site)
    assert error.startswith("ImportError: the package 'streaming' is not that of dbsp-wcoj")
    assert "distribution training-data; pip uninstall training-data" in error


def test_a_folder_that_no_distribution_owns_is_named_by_its_path(site, tmp_path):
    (tmp_path / "work" / "circuits").mkdir(parents=True)
    (tmp_path / "work" / "circuits" / "__init__.py").write_text("")
    error = run("import streaming", tmp_path / "work", site)
    assert str(tmp_path / "work" / "circuits" / "__init__.py") in error
    assert "no installed distribution; remove it from the path" in error
