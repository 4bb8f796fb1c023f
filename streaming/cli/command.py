"""Run a declared sub-command, and report its errors.

Help must appear at once, but the work of a sub-command imports Spark, Arrow and numba, which takes
seconds. Therefore a module without such imports declares a sub-command as a function with its
arguments. A call imports another function of this name, which does the work.

An error that the user can fix is one line on standard error, and an exit status. Only ``--debug``
shows the traceback. The exit status tells what happened:

===  =================================================================================
  0  done
  1  the command started, and then failed or found a difference
  2  the arguments or their files cannot be used; nothing has been done
130  interrupted
===  =================================================================================
"""

from __future__ import annotations

import functools
import gc
import importlib
import os
import sys
import traceback
from collections.abc import Callable
from types import ModuleType
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

#: Removed options; the parser refuses them with a hint.
REMOVED_OPTIONS: Final = ("ui_token",)

FAILED: Final = 1
REFUSED: Final = 2
INTERRUPTED: Final = 130
#: How to install optional packages.
INSTALLS: Final = {
    "pyspark": "pyspark",
    "rich": "'dbsp-wcoj[cli]'",
    "yaml": "'dbsp-wcoj[cli]'",
    "deltalake": "'dbsp-wcoj[sinks]'",
    "psycopg": "'dbsp-wcoj[sinks]'",
    "starlette": "'dbsp-wcoj[ui]'",
    "uvicorn": "'dbsp-wcoj[ui]'",
}


def implemented_in(module: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Declare a sub-command; the function of the same name in ``module`` does its work.

    That function receives the arguments by name, without ``debug`` and ``REMOVED_OPTIONS``. If the
    declaration has a ``context``, the function receives ``explicit`` instead: the names of the
    options that the user wrote on the command line.
    """

    def declare(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def run(**arguments: Any) -> None:
            for name in REMOVED_OPTIONS:
                arguments.pop(name, None)
            if (context := arguments.pop("context", None)) is not None:
                arguments["explicit"] = _explicit_options(context)
            getattr(_import(module), function.__name__)(**arguments)

        return report_errors(run)

    return declare


def _import(module: str) -> ModuleType:
    """Import a module; if the package `circuits` is not imported yet, without garbage collection.

    Almost all that is imported stays until the process ends, so later collections skip it, too.
    """
    if "circuits" in sys.modules:  # a caller in Python, whose objects may be garbage later
        return importlib.import_module(module)
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        imported = importlib.import_module(module)
        gc.freeze()
        return imported
    finally:
        if was_enabled:
            gc.enable()


def _explicit_options(context: typer.Context) -> set[str]:
    """Return the names of the options that the user wrote on the command line."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return {
        name for name, source in sources.items() if source and not source.name.startswith("DEFAULT")
    }


def report_errors(function: Callable[..., None]) -> Callable[..., None]:
    """Wrap a command: report its errors in one line, and handle its option ``debug``."""

    @functools.wraps(function)
    def command(*, debug: bool = False, **arguments: Any) -> None:
        try:
            function(**arguments)
        except typer.Exit:
            raise
        except KeyboardInterrupt:
            _print_interrupted(as_json=arguments.get("log_format") == "json")
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:  # the reader of the output has closed it
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(FAILED) from None
        except Exception as error:
            if debug:
                from streaming.redaction import redact

                sys.stderr.write(redact("".join(traceback.format_exception(error))))
            status, text = _describe(error)
            for problem in getattr(error, "problems", (text,)):
                print_error(problem, as_json=arguments.get("log_format") == "json", status=status)
            raise typer.Exit(status) from None

    return command


def _print_interrupted(*, as_json: bool) -> None:
    if as_json:
        print_error("interrupted", as_json=True, status=INTERRUPTED)
    else:
        sys.stderr.write("interrupted\n")


def _describe(error: Exception) -> tuple[int, str]:
    """Return the exit status and the message of an error."""
    import pyarrow as pa

    from dbsp_wcoj import DbspWcojError
    from streaming.cli.terminal.spark_error import has_message, is_spark_error, spark_reason
    from streaming.errors import FailedError

    if not has_message(error):
        return FAILED, "Spark's JVM has ended, and the message of its last error with it"
    text = error_message(error)
    if isinstance(error, FailedError):
        return FAILED, text
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] in INSTALLS:
        package = (error.name or "").partition(".")[0]
        return REFUSED, (
            f"this needs the package {package}, which is not installed: run pip install "
            f"{INSTALLS[package]}"
        )
    if isinstance(error, DbspWcojError | OSError | pa.ArrowException):
        return REFUSED, text
    if is_spark_error(error):
        return FAILED, spark_reason(error)
    type_name = type(error).__name__
    return FAILED, (
        f"{type_name}: {text or 'no message'}: this is a bug of this program; please report it "
        "with the output of --debug"
    )


def error_message(error: Exception) -> str:
    """Return the message of an error in one line, with its notes.

    >>> print(error_message(FileNotFoundError(2, "No such file or directory", "in/e")))
    in/e: No such file or directory
    """
    lines = str(error).splitlines()
    if isinstance(error, OSError) and error.strerror and isinstance(error.filename, str):
        lines = [f"{error.filename}: {error.strerror}"]
    if lines and lines[-1].strip() == "^":  # a caret under the line above: drop both
        lines = lines[:-2] or lines
    notes = "; ".join(getattr(error, "__notes__", []))
    return " ".join(" ".join(lines).split()) + (f" ({notes})" if notes else "")


def print_error(text: str, *, as_json: bool = False, status: int = REFUSED) -> None:
    """Print an error to standard error, as one line of text or of JSON."""
    from streaming.cli.terminal.display import console
    from streaming.redaction import redact

    text = " ".join(redact(text).split()).encode(errors="backslashreplace").decode()
    terminal = console(stderr=True)
    if as_json:
        from streaming.cli.terminal.logs import error_line

        terminal.file.write(f"{error_line(text, status)}\n")
        return
    terminal.print("[error]error:[/]", end=" ")
    terminal.print(text, markup=False, soft_wrap=True)
