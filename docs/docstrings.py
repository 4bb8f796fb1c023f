"""Converts the docstrings of the packages to Markdown, for the reference.

Docstrings contain examples with prompts, and drawings and tables as text after ``::`` or between
rules. Markdown would join their lines, so each becomes a fenced block. Sentences of a section
``Raises`` that name no error become a section ``Errors``.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

__all__ = ["FencedBlocks", "markdown"]

RULE = re.compile(r"=+( +=+)+")
ERROR = re.compile(r"[A-Z]\w*(, [A-Z]\w*)*:")


class FencedBlocks(griffe.Extension):
    """Converts the docstrings of the packages to Markdown."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Convert the docstring of an object before it is parsed."""
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)


def markdown(text: str) -> str:
    """Convert a docstring to Markdown."""
    output: list[str] = []
    lines = text.splitlines()
    start = 0
    while start < len(lines):
        line = lines[start]
        indent = line[: len(line) - len(line.lstrip())]
        if line.lstrip().startswith(">>> "):
            end = _end(lines, start)
            output += _fence("pycon", lines[start:end], indent)
        elif RULE.fullmatch(line.strip()):
            end = _end(lines, start)
            output += _fence("text", lines[start:end], indent)
        elif line.rstrip().endswith("::"):
            end = start + 1
            while end < len(lines) and (
                not lines[end].strip() or lines[end].startswith(indent + "    ")
            ):
                end += 1
            lead = line.rstrip()[:-2]
            output += [f"{lead}:", ""] if lead.strip() else []
            body = [part[len(indent) + 4 :] for part in lines[start + 1 : end]]
            while body and not body[0].strip():
                body.pop(0)
            while body and not body[-1].strip():
                body.pop()
            output += [*_fence("text", body, indent, cut=0), ""]
        elif line.strip() == "Raises:":
            end = start + 1
            while end < len(lines) and lines[end].startswith(indent + "    "):
                end += 1
            output += _raises(lines[start + 1 : end], indent)
        else:
            end = start + 1
            output.append(line)
        start = end
    return "\n".join(output)


def _fence(language: str, lines: list[str], indent: str, cut: int | None = None) -> list[str]:
    width = len(indent) if cut is None else cut
    body = [indent + re.sub(r" *# doctest:.*", "", line[width:]) for line in lines]
    return [f"{indent}```{language}", *body, f"{indent}```"]


def _end(lines: list[str], begin: int) -> int:
    """Return the next empty line, or the end."""
    return next((i for i in range(begin, len(lines)) if not lines[i].strip()), len(lines))


def _raises(lines: list[str], indent: str) -> list[str]:
    """Split the section into items that name errors and items that do not."""
    items: list[list[str]] = []
    for line in lines:
        if line.startswith(indent + "     ") and items:
            items[-1].append(line)
        else:
            items.append([line])
    named = [item for item in items if ERROR.match(item[0].strip())]
    other = [item for item in items if item not in named]
    output = [f"{indent}Raises:", *(line for item in named for line in item)] if named else []
    if other:
        output += [""] * bool(named) + [
            f"{indent}Errors:",
            *(line for item in other for line in item),
        ]
    return output
