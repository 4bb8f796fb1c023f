"""Rules for the structure of the code that no linter checks (`CONTRIBUTING.md`)."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("dbsp_wcoj", "circuits", "streaming")
MAX_MODULES_PER_FOLDER = 30

#: The interfaces of libraries whose members begin with an underscore: the parser that sqlglot's
#: dialects extend, numba's cache, and named tuples.
PRIVATE_INTERFACES = ("circuits/sql/syntax/", "dbsp_wcoj/kernels/compilation.py")
NAMED_TUPLE_MEMBERS = ("_replace", "_asdict", "_fields")
#: Members of libraries that have no public name; PySpark gives none to a session of the JVM.
LIBRARY_MEMBERS = ("os._exit", "query._jdf", "session._jsparkSession")

#: Packages that take long to import, or that an extra installs.
LATE_IMPORTS = (
    "lark",
    "psycopg",
    "deltalake",
    "duckdb",
    "matplotlib",
    "obstore",
    "polars",
    "pyiceberg",
)
#: Commands import what they need when they run, so that ``--help`` is quick.
QUICK_STARTS = ("streaming/cli/", "streaming/demo/")


@cache
def trees() -> dict[str, ast.Module]:
    files = (file for name in PACKAGES for file in (ROOT / name).rglob("*.py"))
    return {str(file.relative_to(ROOT)): ast.parse(file.read_text("utf-8")) for file in files}


def private_accesses(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the reads of ``other._name``, with their lines."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or node.attr in NAMED_TUPLE_MEMBERS:
            continue
        owner = ast.unparse(node.value)
        is_private = node.attr.startswith("_") and not node.attr.startswith("__")
        if is_private and owner not in ("self", "cls", "super()"):
            yield node.lineno, f"{owner}.{node.attr}"


def local_imports(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the modules that functions import, with their lines."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.Import):
                    yield from ((node.lineno, alias.name) for alias in node.names)
                elif isinstance(node, ast.ImportFrom):
                    yield node.lineno, node.module or ""


def test_private_accesses_and_local_imports_are_recognised():
    tree = ast.parse("def f(a):\n    import b.c\n    a._x + self._y + a.__class__ + a._replace()")
    assert list(private_accesses(tree)) == [(3, "a._x")]
    assert list(local_imports(tree)) == [(2, "b.c")]


def test_no_object_reads_a_private_member_of_another():
    accesses = [
        f"{file}:{line}: {access}"
        for file, tree in trees().items()
        if not file.startswith(PRIVATE_INTERFACES)
        for line, access in private_accesses(tree)
        if access not in LIBRARY_MEMBERS
    ]
    assert not accesses, "give these members public names:\n" + "\n".join(accesses)


def test_functions_import_only_what_is_slow_or_optional():
    imports = [
        f"{file}:{line}: {module}"
        for file, tree in trees().items()
        if not file.startswith(QUICK_STARTS)
        for line, module in local_imports(tree)
        if module.split(".")[0] not in LATE_IMPORTS
    ]
    assert not imports, "import these at the top of the file:\n" + "\n".join(imports)


def test_no_folder_has_too_many_modules():
    sizes = Counter(str(Path(file).parent) for file in trees())
    largest = {name: size for name, size in sizes.items() if size > MAX_MODULES_PER_FOLDER}
    assert not largest, "divide these folders by what their files are about"


@pytest.mark.parametrize("package", PACKAGES)
def test_each_folder_says_what_belongs_in_it(package):
    for folder in {Path(file).parent for file in trees() if file.startswith(f"{package}/")}:
        tree = trees()[str(folder / "__init__.py")]
        assert ast.get_docstring(tree), f"{folder}/__init__.py has no docstring"


def test_names_in_backquotes_exist():
    """A name such as `circuits.plan.node.PlanNode` in a docstring, comment or page leads to it."""
    name = re.compile(rf"`((?:{'|'.join(PACKAGES)}|tests|benchmarks)(?:\.\w+)+)`")
    folders = (*PACKAGES, "tests", "benchmarks", "examples", "docs")
    files = [file for folder in folders for file in (ROOT / folder).rglob("*.py")]
    files += [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")]
    wrong = [
        f"{file.relative_to(ROOT)}: {match[1]}"
        for file in files
        if file.name != "CHANGELOG.md"  # it lists former names
        for match in name.finditer(file.read_text("utf-8"))
        if not name_exists(match[1].split("."))
    ]
    assert not wrong


def name_exists(parts: list[str]) -> bool:
    """Return whether a module exists and its text contains the name after it, if there is one."""
    for length in range(len(parts), 0, -1):
        path = ROOT.joinpath(*parts[:length])
        module = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        if module.exists():
            members = parts[length:]
            return not members or bool(re.search(rf"\b{members[0]}\b", module.read_text("utf-8")))
    return False
