"""Command: a sub-command that is declared here and done elsewhere, and how its errors look.

Help has to come at once, and what does the work imports Spark, Arrow and numba, which takes
seconds. So the words of a command are declared in a module that imports nothing of it, and the
function of the same name, which does the work, is imported when it is called.

What a user can mend is one line on standard error and an exit status; a traceback is shown with
``--debug`` only:

===  =================================================================================
  0  done
  1  it began, and then failed or found a difference
  2  what was given cannot be used; nothing has happened
130  interrupted
===  =================================================================================
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any, Final

import typer

__all__ = [
    "FAILED",
    "INTERRUPTED",
    "REFUSED",
    "REMOVED_OPTIONS",
    "error_message",
    "implemented_in",
    "print_error",
    "report_errors",
]

#: Words that are no longer taken; the parser refuses them and says what to do.
REMOVED_OPTIONS: Final = ("ui_token",)

FAILED: Final = 1
REFUSED: Final = 2
INTERRUPTED: Final = 130
#: How packages are installed that not every installation has.
INSTALLS: Final = {
    "pyspark": "pyspark",
    "rich": "'dbsp-wcoj[cli]'",
    "deltalake": "'dbsp-wcoj[sinks]'",
    "psycopg": "'dbsp-wcoj[sinks]'",
    "starlette": "'dbsp-wcoj[ui]'",
    "uvicorn": "'dbsp-wcoj[ui]'",
}


def implemented_in(module: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Declare a command whose work is done by the function of its name in a module.

    That function takes the same words by name, all but ``debug`` and ``REMOVED_OPTIONS``.
    """

    def declared(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def imported(**words: Any) -> None:
            for word in REMOVED_OPTIONS:
                words.pop(word, None)
            if (context := words.pop("context", None)) is not None:
                words["explicit"] = _explicit_options(context)
            getattr(importlib.import_module(module), function.__name__)(**words)

        return report_errors(imported)

    return declared


def _explicit_options(context: typer.Context) -> set[str]:
    """The names of the options that are given on the command line."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return {
        name for name, source in sources.items() if source and not source.name.startswith("DEFAULT")
    }


def report_errors(function: Callable[..., None]) -> Callable[..., None]:
    """A command whose errors are one line; its word ``debug`` is taken care of here."""

    @functools.wraps(function)
    def command(*, debug: bool = False, **words: Any) -> None:
        try:
            function(**words)
        except typer.Exit:
            raise
        except KeyboardInterrupt:
            _say_interrupted(as_json=words.get("log_format") == "json")
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:  # who read the output has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(FAILED) from None
        except Exception as error:
            if debug:
                from streaming.redacted import redacted

                sys.stderr.write(redacted("".join(traceback.format_exception(error))))
            status, text = _describe(error)
            for problem in getattr(error, "problems", (text,)):
                print_error(problem, as_json=words.get("log_format") == "json", status=status)
            raise typer.Exit(status) from None

    return command


def _say_interrupted(*, as_json: bool) -> None:
    if as_json:
        print_error("interrupted", as_json=True, status=INTERRUPTED)
    else:
        sys.stderr.write("interrupted\n")


def _describe(error: Exception) -> tuple[int, str]:
    """The exit status of an error, and what is said of it."""
    import pyarrow as pa

    from dbsp_wcoj import DbspWcojError
    from streaming.cli.terminal.spark_error import is_spark_error, spark_reason
    from streaming.errors import FailedError

    text = error_message(error)
    if isinstance(error, FailedError):
        return FAILED, text
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] in INSTALLS:
        name = (error.name or "").partition(".")[0]
        return REFUSED, (
            f"this needs the package {name}, which is not installed: run pip install "
            f"{INSTALLS[name]}"
        )
    if isinstance(error, DbspWcojError | OSError | pa.ArrowException):
        return REFUSED, text
    if is_spark_error(error):
        return FAILED, spark_reason(error)
    kind = type(error).__name__
    return FAILED, (
        f"{kind}: {text or 'no more is known'}: a mistake of this program; please report it with "
        "what --debug shows"
    )


def error_message(error: Exception) -> str:
    """The message of an error in one line, with its notes.

    >>> print(error_message(FileNotFoundError(2, "No such file or directory", "in/e")))
    in/e: No such file or directory
    """
    lines = str(error).splitlines()
    if isinstance(error, OSError) and error.strerror and isinstance(error.filename, str):
        lines = [f"{error.filename}: {error.strerror}"]
    if lines and lines[-1].strip() == "^":  # it points into the line above, and there are no lines
        lines = lines[:-2] or lines
    notes = "; ".join(getattr(error, "__notes__", []))
    return " ".join(" ".join(lines).split()) + (f" ({notes})" if notes else "")


def print_error(text: str, *, as_json: bool = False, status: int = REFUSED) -> None:
    """Say on standard error what is wrong, in one line, or as a line of JSON."""
    from streaming.cli.terminal.display import console
    from streaming.redacted import redacted

    text = " ".join(redacted(text).split()).encode(errors="backslashreplace").decode()
    terminal = console(stderr=True)
    if as_json:
        from streaming.cli.terminal.logs import error_line

        terminal.file.write(f"{error_line(text, status)}\n")
        return
    terminal.print("[wrong]error:[/]", end=" ")
    terminal.print(text, markup=False, soft_wrap=True)
