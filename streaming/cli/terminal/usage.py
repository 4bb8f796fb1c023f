"""Report mistakes in the arguments of a command as one line, like all other errors.

typer accepts classes that do its parsing. These classes differ from typer's own only in the text of
an error. The exit status is 2: nothing has been done.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from streaming.cli.command import INTERRUPTED, REFUSED, print_error

__all__ = ["PlainCommand", "PlainGroup"]

#: Options of earlier versions, by command: how to replace them.
RENAMED: Final = {
    ("bench", "--input"): "it is --source NAME=FILE",
    ("profile", "--input"): "it is --source NAME=FILE",
    ("replay", "--input"): "it is --source NAME=FILE",
    ("run", "--input"): "it is --source NAME=PATH",
    ("explain", "--input"): "it is --source NAME=PATH",
    ("replay", "--relation"): "name the relation in --source NAME=FILE",
}


class _Plain:
    """Parses like typer, and reports errors in one line."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        *_: Any,
        standalone_mode: bool = True,
        **arguments: Any,
    ) -> Any:
        """Parse and run; exits the process if ``standalone_mode``."""
        main = super().main  # type: ignore[misc]
        run_command = partial(main, args, prog_name, standalone_mode=False, **arguments)
        return _run_and_exit(run_command) if standalone_mode else run_command()


class PlainGroup(_Plain, TyperGroup):
    """A command with sub-commands."""


class PlainCommand(_Plain, TyperCommand):
    """A command without sub-commands."""


def _message(error: TyperException) -> str:
    """Describe the error; an option of an earlier version is shown with its replacement."""
    text = error.format_message().rstrip(".")
    context: Any = getattr(error, "ctx", None)
    command = "" if context is None else context.info_name
    option = getattr(error, "option_name", None)
    hint = RENAMED.get((command, option)) if option is not None else None
    if hint is not None:
        text = f"No such option: {option}"  # the message without typer's suggestions
    elif command == "replay" and _is_about_changes_file(text):
        hint = "the file of changes is --source NAME=FILE, and QUERY the only argument"
    return f"{text}: {hint}" if hint else text


def _is_about_changes_file(text: str) -> bool:
    return "unexpected extra argument" in text or text == "Missing option '--source'"


def _run_and_exit(run_command: Callable[[], Any]) -> None:
    """Run a command and exit; report mistakes in its arguments in one line."""
    try:
        status = run_command()
    except TyperException as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # its message is the help
            sys.stderr.write(f"{error.format_message()}\n".lstrip())
            sys.exit(REFUSED)
        context = getattr(error, "ctx", None)
        hint = "" if context is None else f"; see {context.command_path} --help"
        print_error(_message(error) + hint)
        sys.exit(REFUSED)
    except typer.Abort:
        sys.stderr.write("interrupted\n")
        sys.exit(INTERRUPTED)
    sys.exit(status if isinstance(status, int) else 0)
