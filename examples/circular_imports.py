"""Circular imports among installed Python packages, while packages are added and removed.

If modules import each other, directly or through a third module, the order in which they are
imported decides whether they work. The script adds the import statements of a package, which it
parses with ``ast`` and does not run, and removes them again. Two views maintain the circles of two
and of three modules.

::

    python examples/circular_imports.py                 # packages that the engine needs
    python examples/circular_imports.py rich pandas     # any installed packages

Only statements that run when a module is imported count, so imports in functions and imports for
types (``if TYPE_CHECKING:``) do not. An import of ``a.b.c`` counts as an import of that module, not
of ``a`` and ``a.b``, although Python imports these first.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

import pyarrow as pa

from circuits import compile_datalog

PACKAGES = ["lark", "sqlglot", "py4j", "numpy", "dbsp_wcoj", "circuits"]

RULES = """
    pair(a, b) :- imports(a, b), imports(b, a), a < b.
    trio(a, b, c) :- imports(a, b), imports(b, c), imports(c, a), a < b, a < c.
"""

Edges = set[tuple[str, str]]


def main(packages: list[str]) -> None:
    """Add the packages one after the other, and remove them in the same order."""
    columns = [pa.field(name, pa.string(), nullable=False) for name in ("importer", "imported")]
    circuit = compile_datalog(RULES, {"imports": pa.schema(columns)})
    present: dict[str, Edges] = {}
    circles: dict[str, set[tuple[str, ...]]] = {"pair": set(), "trio": set()}

    for package in [*packages, *packages[:-1]]:
        is_new = package not in present
        edges = imports_of(package) if is_new else present.pop(package)
        if is_new:
            present[package] = edges
        importer, imported = zip(*sorted(edges), strict=True) if edges else ((), ())
        weight = pa.array([1 if is_new else -1] * len(edges), pa.int64())
        table = pa.table(
            [pa.array(importer, pa.string()), pa.array(imported, pa.string()), weight],
            names=["importer", "imported", "weight"],
        )

        print(f"{'+' if is_new else '-'} {package}: {len(edges):,} imports")
        for name, delta in circuit.step({"imports": table}).items():
            added = [tuple(row.values()) for row in delta.to_pylist() if row.pop("weight") > 0]
            removed = [tuple(row.values()) for row in delta.to_pylist() if row.pop("weight") < 0]
            circles[name] = circles[name].union(added).difference(removed)
            if added:
                example = min(added, key=lambda circle: (sum(map(len, circle)), circle))
                print(
                    f"    {len(added):4,} new circles of {len(example)}, for example "
                    + " → ".join([*example, example[0]])
                )
            if removed:
                print(f"    {len(removed):4,} circles of {len(removed[0])} removed")
        check(set().union(*present.values()), circles)

    print(
        f"Left: {', '.join(present)} with {len(circles['pair'])} circles of two "
        f"and {len(circles['trio'])} of three."
    )


def imports_of(package: str) -> Edges:
    """Return the pairs (importer, imported) of modules for all modules of a package."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"{package} is not an installed package")
    root = Path(next(iter(spec.submodule_search_locations)))
    files = {}
    for file in sorted(root.rglob("*.py")):
        parts = [package, *file.relative_to(root).with_suffix("").parts]
        if not {"tests", "test"}.intersection(parts):
            files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    edges = set()
    for module, file in files.items():
        enclosing = module if file.name == "__init__.py" else module.rpartition(".")[0]
        for statement in top_level_imports(ast.parse(file.read_bytes()).body):
            edges.update((module, target) for target in modules_of(statement, enclosing, files))
    return {(importer, imported) for importer, imported in edges if importer != imported}


def top_level_imports(body: list[ast.stmt]) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield the import statements that run when a module with this body is imported."""
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from top_level_imports(node.orelse)
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for name in ("body", "orelse", "finalbody"):
                yield from top_level_imports(getattr(node, name, []))
            for handler in getattr(node, "handlers", []):
                yield from top_level_imports(handler.body)


def modules_of(
    statement: ast.Import | ast.ImportFrom, enclosing: str, known: Collection[str]
) -> Iterator[str]:
    """Yield the modules that a statement in the package ``enclosing`` imports."""
    if isinstance(statement, ast.Import):
        yield from (alias.name for alias in statement.names)
        return
    base = statement.module or ""
    if statement.level:
        parts = enclosing.split(".")
        base = ".".join([*parts[: len(parts) - statement.level + 1], *filter(None, [base])])
    for alias in statement.names:  # "from a import b": the module a.b if it exists, else a
        yield f"{base}.{alias.name}" if f"{base}.{alias.name}" in known else base


def check(edges: Edges, circles: dict[str, set[tuple[str, ...]]]) -> None:
    """Compare the views with a search from each module."""
    imports_of_module: dict[str, set[str]] = {}
    for a, b in edges:
        imports_of_module.setdefault(a, set()).add(b)
    pairs = {(a, b) for a, b in edges if a < b and a in imports_of_module.get(b, ())}
    trios = {
        (a, b, c)
        for a, b in edges
        for c in imports_of_module.get(b, ())
        if a < b and a < c and a in imports_of_module.get(c, ())
    }
    assert circles == {"pair": pairs, "trio": trios}, "the circles differ from a search"


if __name__ == "__main__":
    main(sys.argv[1:] or PACKAGES)
