"""The stamp of a kernel covers every module that its machine code depends on, and no other."""

import ast
import shutil
from pathlib import Path

import pytest

from dbsp_wcoj import kernels
from dbsp_wcoj.kernels import source_stamps

PACKAGE = Path(kernels.__file__).parent
MODULES = {
    ".".join(file.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): file
    for file in PACKAGE.rglob("*.py")
    if file.parent != PACKAGE or file.name != "__init__.py"
}


def imports_of(file: Path) -> set[str]:
    """Return the modules of the package that a file imports, by Python's own parser."""
    imported = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            assert not any(alias.name.startswith(kernels.__name__) for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0
            if f"{node.module}.".startswith(f"{kernels.__name__}."):
                names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
                imported |= {name.removeprefix(kernels.__name__).strip(".") for name in names}
    return imported & MODULES.keys()


def test_all_imports_are_found():
    for name, file in MODULES.items():
        assert source_stamps.imported_modules(name) == imports_of(file), name


@pytest.fixture
def stamps_after(tmp_path, monkeypatch):
    """A function that returns all stamps after a change of one module."""

    def stamps(changed: str | None = None) -> dict[str, str]:
        place = shutil.copytree(PACKAGE, tmp_path / str(changed))
        if changed is not None:
            file = place / MODULES[changed].relative_to(PACKAGE)
            file.write_text(f"{file.read_text()}# changed\n")
        with monkeypatch.context() as patch:
            patch.setattr(source_stamps, "files", lambda _: place)
            clear_caches()
            return {name: source_stamps.source_stamp(name) for name in MODULES}

    yield stamps
    clear_caches()


def clear_caches() -> None:
    for cached in ("source_stamp", "imported_modules", "_all_modules", "_source", "_find"):
        getattr(source_stamps, cached).cache_clear()


@pytest.mark.parametrize(
    ("changed", "dependent", "independent"),
    [
        ("memory", {"join.sums", "storage.merge", "values.intern"}, {"json.values"}),
        ("join.intersect", {"join.sums"}, {"join.calls", "storage.merge", "values.intern"}),
        ("json.scan", {"json.values"}, {"join.sums", "values.intern"}),
        ("compilation", {"join.sums", "json.scan"}, {"storage.run_layout"}),
    ],
)
def test_a_change_reaches_the_modules_that_depend_on_it(
    stamps_after, changed, dependent, independent
):
    before, after = stamps_after(), stamps_after(changed)
    different = {name for name in MODULES if before[name] != after[name]}
    assert {changed, *dependent} <= different
    assert not independent & different
