"""Page: the live page of a command, and what the terminal says of it."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from streaming.ui.access import Token
from streaming.ui.page import Page

__all__ = ["announce"]


def announce(console: Console, page: Page, token: Token | None) -> None:
    """Say where a page is, and where its token is; never the token itself."""
    console.print(Text.assemble("Live page: ", (page.address, "name")), soft_wrap=True)
    if token is not None:
        console.print(
            Text.assemble("Sign in there with the token in ", (token.origin, "name")),
            soft_wrap=True,
        )
