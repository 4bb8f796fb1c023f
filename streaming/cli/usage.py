"""Usage: a word that a command does not know is one line of error, too, and no box.

typer takes the classes that do its parsing; these differ from its own in the text of an error and
in nothing else. The exit status is 2: nothing has happened.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from streaming.cli.command import INTERRUPTED, REFUSED, say_error

__all__ = ["PlainCommand", "PlainGroup"]


class _Plain:
    """Parses as typer does, and has errors of one line."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        *_: Any,
        standalone_mode: bool = True,
        **words: Any,
    ) -> Any:
        """Parse and run; does not return if ``standalone_mode``."""
        main = super().main  # type: ignore[misc]
        parse = partial(main, args, prog_name, standalone_mode=False, **words)
        return _run(parse) if standalone_mode else parse()


class PlainGroup(_Plain, TyperGroup):
    """A command with sub-commands."""


class PlainCommand(_Plain, TyperCommand):
    """A command without sub-commands."""


def _run(main: Callable[[], Any]) -> None:
    try:
        status = main()
    except TyperException as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # its message is the help
            sys.stderr.write(f"{error.format_message()}\n".lstrip())
            sys.exit(REFUSED)
        context = getattr(error, "ctx", None)
        known = "" if context is None else f"; see {context.command_path} --help"
        say_error(error.format_message().rstrip(".") + known)
        sys.exit(REFUSED)
    except typer.Abort:
        sys.stderr.write("interrupted\n")
        sys.exit(INTERRUPTED)
    sys.exit(status if isinstance(status, int) else 0)
