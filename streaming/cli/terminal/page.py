"""Announce the live page of a command on the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from streaming.ui.access import Token
from streaming.ui.page import Page

__all__ = ["announce"]


def announce(console: Console, page: Page, token: Token | None) -> None:
    """Print the address of a page and the place of its token, never the token itself."""
    console.print(Text.assemble("Live page: ", (page.address, "name")), soft_wrap=True)
    if token is not None:
        console.print(
            Text.assemble("Sign in there with the token in ", (token.origin, "name")),
            soft_wrap=True,
        )
