"""The command line as Markdown, for the reference: made of the words that the commands are given.

A page has the marker ``::: dbsp-wcoj``; in its place comes a section for each sub-command, with its
sentence, its example and a table of its arguments and options. So the reference says what
``--help`` says, and neither can be behind the program.
"""

from __future__ import annotations

import re
from typing import Any

__all__ = ["commands", "on_page_markdown"]

MARKER = "::: dbsp-wcoj"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put the commands where a page has the marker; a hook of mkdocs."""
    return markdown.replace(MARKER, commands()) if MARKER in markdown else markdown


def commands() -> str:
    """A section for each sub-command."""
    import typer

    from streaming.cli.app import EXAMPLES, app
    from streaming.demo.command import app as demo

    group: Any = typer.main.get_command(app)
    found = group.commands | {"demo": typer.main.get_command(demo)}
    return "\n".join(_section(name, one, EXAMPLES[name]) for name, one in found.items())


def _section(name: str, command: Any, example: str) -> str:
    said = re.sub(r"\s*\n\s+", "\n", (command.help or "").strip())
    lines = [f"## {name}", "", said, "", "```sh", example, "```", ""]
    rows = [_row(one) for one in command.params if not getattr(one, "hidden", False)]
    if rows:
        lines += ["| | |", "| --- | --- |", *rows, ""]
    return "\n".join(lines)


def _row(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        words = f"`{parameter.metavar or parameter.name.upper()}`"
    else:
        kind = parameter.metavar or ("N" if isinstance(parameter.default, int) else "TEXT")
        metavar = "" if getattr(parameter, "is_flag", False) else f" {kind}"
        words = ", ".join(f"`{option}{metavar}`" for option in parameter.opts)
    said = (parameter.help or "").strip()
    default = parameter.default
    if parameter.required:
        said += " Needed."
    elif default not in (None, False, "", ()) and not callable(default):
        said += f" `{default}` when not given."
    return f"| {words.replace('|', chr(92) + '|')} | {said.replace('|', chr(92) + '|')} |"
