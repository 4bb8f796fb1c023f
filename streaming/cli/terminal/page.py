"""Announce the live page of a command on the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from streaming.ui.access import Token
from streaming.ui.page import Page

__all__ = ["announce", "page_title"]


def announce(console: Console, page: Page, token: Token | None) -> None:
    """Print the address of a page and the place of its token, never the token itself."""
    console.print(Text.assemble("Live page: ", (page.address, "name")), soft_wrap=True)
    if token is not None:
        console.print(
            Text.assemble("Sign in there with the token in ", (token.origin, "name")),
            soft_wrap=True,
        )


def page_title(name: str, dialect: str | None) -> str:
    """Return the title of a page: the name of the views, and the dialect if they are in SQL.

    >>> page_title("rings", "spark"), page_title("rings", None)
    ('rings (SQL dialect spark)', 'rings')
    """
    return name if dialect is None else f"{name} (SQL dialect {dialect})"
