"""Executes the code on the pages of the documentation, as a reader would type it.

All blocks of a page share one namespace, in order. A block of Python with prompts is a doctest: its
outputs are compared, ``...`` stands for anything. One without prompts is executed. A block with a
title is a file of that name. Other blocks are shown only; the commands of ``sh`` are parsed, and
those of the tutorial run in a test of their own.
"""

from __future__ import annotations

import doctest
import linecache
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["DOCS", "PAGES", "README", "Block", "blocks_of", "run"]

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
README = DOCS.parent / "README.md"
FENCE = re.compile(
    r'^( *)```(\w*)(?: title="([^"]+)")?[^\n]*\n(.*?)^\1```$', re.DOTALL | re.MULTILINE
)
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its title, its text, and the line of the page it begins in."""

    language: str
    title: str | None
    text: str
    line: int


def blocks_of(page: Path) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    text = page.read_text()
    return [
        Block(
            match[2],
            match[3],
            re.sub(rf"^{match[1]}", "", match[4], flags=re.MULTILINE),
            text[: match.start()].count("\n") + 2,
        )
        for match in FENCE.finditer(text)
    ]


def run(page: Path) -> int:
    """Execute the Python blocks of a page in the current directory; return their number.

    Raises what a block raises.
    """
    names: dict[str, Any] = {"__name__": page.stem}
    parser, count = doctest.DocTestParser(), 0
    for block in blocks_of(page):
        if block.title is not None:
            Path(block.title).write_text(block.text)
        if block.language != "python":
            continue
        count += 1
        where = f"{page.relative_to(DOCS.parent)}:{block.line}"
        if ">>> " not in block.text:
            linecache.cache[where] = (len(block.text), None, block.text.splitlines(True), where)
            exec(compile(block.text, where, "exec"), names)
            continue
        test = parser.get_doctest(block.text, names, where, str(page), block.line - 1)
        report: list[str] = []
        runner = doctest.DocTestRunner(optionflags=OPTIONS, verbose=False)
        runner.run(test, out=report.append, clear_globs=False)
        names.update(test.globs)
        assert runner.failures == 0, "".join(report)
    return count
