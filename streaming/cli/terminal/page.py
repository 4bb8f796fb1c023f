"""Announce the live page of a command on the terminal, and check its settings."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.text import Text

from streaming.cli.arguments.options import LOCAL_HOST, PAGE_PORT
from streaming.errors import EventsError
from streaming.ui.access import Token
from streaming.ui.page import Page

__all__ = ["announce", "check_no_page", "page_title"]


def announce(console: Console, page: Page, token: Token | None) -> None:
    """Print the address of a page and the place of its token, never the token itself."""
    console.print(Text.assemble("Live page: ", (page.address, "name")), soft_wrap=True)
    if token is not None:
        console.print(
            Text.assemble("Sign in there with the token in ", (token.origin, "name")),
            soft_wrap=True,
        )


def check_no_page(
    *, ui_host: str = LOCAL_HOST, ui_port: int = PAGE_PORT, ui_token_file: Path | None = None
) -> None:
    """Check that the command line of a command without a live page has no settings of it.

    Raises:
        EventsError: A setting is not the default.
    """
    given = {
        "--ui-host": ui_host != LOCAL_HOST,
        "--ui-port": ui_port != PAGE_PORT,
        "--ui-token-file": ui_token_file is not None,
    }
    for name, is_given in given.items():
        if is_given:
            raise EventsError(f"{name} applies only to the live page: add --ui, or remove {name}")


def page_title(name: str, dialect: str | None) -> str:
    """Return the title of a page: the name of the views, and the dialect if they are in SQL.

    >>> page_title("rings", "spark"), page_title("rings", None)
    ('rings (SQL dialect spark)', 'rings')
    """
    return name if dialect is None else f"{name} (SQL dialect {dialect})"
