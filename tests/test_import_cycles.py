"""The imports between the files of the three packages have no cycles.

Every import counts: those within functions and below ``TYPE_CHECKING``, too.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("dbsp_wcoj", "circuits", "streaming")


def module_name(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def import_graph() -> dict[str, set[str]]:
    """Return the modules that each module imports.

    ``from package import module`` imports the module; the package counts only if another name is
    imported from it.
    """
    files = {module_name(file): file for name in PACKAGES for file in (ROOT / name).rglob("*.py")}
    graph: dict[str, set[str]] = {}
    for module, file in files.items():
        imports: set[str] = set()
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imports.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0 and node.module is not None, f"relative import in {file}"
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    imports.add(inner if inner in files else node.module)
        graph[module] = (imports & files.keys()) - {module}
    return graph


def reachable(graph: Mapping[str, set[str]], start: str) -> set[str]:
    reached: set[str] = set()
    pending = [start]
    while pending:
        for module in graph[pending.pop()] - reached:
            reached.add(module)
            pending.append(module)
    return reached


def cycles(graph: Mapping[str, set[str]]) -> set[frozenset[str]]:
    """Return the strongly connected components of more than one module."""
    reached = {module: reachable(graph, module) for module in graph}
    return {
        frozenset(other for other in reached[module] if module in reached[other])
        for module in graph
        if module in reached[module]
    }


def test_cycles_are_found_and_chains_are_not():
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set(), "e": {"a"}}
    assert cycles(graph) == {frozenset({"b", "c"})}


def test_no_file_imports_itself_through_others():
    graph = import_graph()
    assert len(graph) > 300
    cycles_of_files = cycles(graph)
    assert not cycles_of_files, "\n".join(
        f"{module} imports {', '.join(sorted(graph[module] & cycle))}"
        for cycle in cycles_of_files
        for module in sorted(cycle)
    )
