"""Commands whose packages are not installed say how to install them."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from streaming import demo, extras

DEPENDENCIES = {"lark", "numba", "numpy", "pyarrow", "sortedcontainers", "sqlglot"}
OWN_PACKAGES = {"dbsp_wcoj", "circuits", "streaming"}


def missing(name):
    def load():
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    return load


def test_a_missing_package_of_the_extra_is_one_line_and_exit_status_2(capsys):
    with pytest.raises(SystemExit) as ended:
        extras.run(missing("rich"), "cli", ("rich", "typer"))
    assert ended.value.code == 2
    assert capsys.readouterr().err == (
        "error: this command needs the package rich, which is not installed: "
        "run pip install 'dbsp-wcoj[cli]'\n"
    )


def test_any_other_missing_module_is_raised_unchanged():
    with pytest.raises(ModuleNotFoundError, match="numpy"):
        extras.run(missing("numpy"), "cli", ("rich", "typer"))


def test_an_installed_command_is_run():
    ran = []
    extras.run(lambda: lambda: ran.append("it"), "cli", ("rich",))
    assert ran == ["it"]


def test_an_interrupt_while_a_command_is_imported_is_one_line_and_status_130(capsys):
    def load():
        raise KeyboardInterrupt

    with pytest.raises(SystemExit) as ended:
        extras.run(load, "cli", ("rich",))
    assert ended.value.code == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_the_demo_lists_every_package_that_it_imports_beyond_the_dependencies():
    imported = set()
    for file in Path(demo.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                imported.add(node.module)
    packages = {name.partition(".")[0] for name in imported}

    assert packages - sys.stdlib_module_names - DEPENDENCIES - OWN_PACKAGES == set(demo.EXTRA)
