"""Commands whose packages are not installed say how to install them."""

from __future__ import annotations

import pytest

from streaming import extras


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


def test_any_other_missing_module_is_an_error_as_it_is():
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
