"""The common look of all sub-commands."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from dbsp_wcoj.kernels.compilation import LoggedCompilation, observe_compilation
from streaming.cli.terminal.display import show_compilation


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_context_announces_the_compilation_of_several_kernels_once(is_terminal):
    text = StringIO()
    with show_compilation(Console(file=text, force_terminal=is_terminal, width=100)):
        observer = observe_compilation(LoggedCompilation())
        observer.on_start("join.search")
        observer.on_finish("join.search")
        text.write("a result")
        observer.on_start("join.sum")  # it fails
    assert text.getvalue().count("Compiling the kernels") == 1
    assert ("join.sum" in text.getvalue()) == is_terminal
    assert text.getvalue().endswith("a result") != is_terminal


def test_a_context_without_a_compilation_shows_nothing():
    text = StringIO()
    with show_compilation(Console(file=text, force_terminal=True)):
        pass
    assert text.getvalue() == ""
