"""Generates pages from other files when mkdocs builds the site.

A page with the marker ``::: dbsp-wcoj`` gets a section for each command of the command line: its
description, its example and a table of its arguments and options, as ``--help`` prints them. A page
with the marker ``::: changelog`` gets CHANGELOG.md. So neither page can differ from its source.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

__all__ = ["commands", "on_page_markdown"]

CHANGELOG = Path(__file__).parent.parent / "CHANGELOG.md"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace the markers of a page; a hook of mkdocs."""
    for marker, text in {"::: dbsp-wcoj": commands, "::: changelog": CHANGELOG.read_text}.items():
        if marker in markdown:
            markdown = markdown.replace(marker, text())
    return markdown


def commands() -> str:
    """Return a section for each command."""
    import typer

    from streaming.cli.app import EXAMPLES, app
    from streaming.demo.command import app as demo

    group: Any = typer.main.get_command(app)
    all_commands = group.commands | {"demo": typer.main.get_command(demo)}
    return "\n".join(
        _section(name, command, EXAMPLES[name]) for name, command in all_commands.items()
    )


def _section(name: str, command: Any, example: str) -> str:
    description = re.sub(r"\s*\n\s+", "\n", (command.help or "").strip())
    lines = [f"## {name}", "", description, "", "```sh", example, "```", ""]
    rows = [
        _row(parameter) for parameter in command.params if not getattr(parameter, "hidden", False)
    ]
    if rows:
        lines += ["| | |", "| --- | --- |", *rows, ""]
    return "\n".join(lines)


def _row(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        usage = f"`{parameter.metavar or parameter.name.upper()}`"
    else:
        kind = parameter.metavar or ("N" if isinstance(parameter.default, int) else "TEXT")
        metavar = "" if getattr(parameter, "is_flag", False) else f" {kind}"
        usage = ", ".join(f"`{option}{metavar}`" for option in parameter.opts)
    description = (parameter.help or "").strip()
    default = parameter.default
    if parameter.required:
        description += " Required."
    elif default not in (None, False, "", ()) and not callable(default):
        description += f" `{default}` by default."
    return f"| {usage.replace('|', chr(92) + '|')} | {description.replace('|', chr(92) + '|')} |"
