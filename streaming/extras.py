"""Run a command line that needs the packages of an extra, or report how to install them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final

__all__ = ["run"]

EXIT_PACKAGE_MISSING: Final = 2
EXIT_INTERRUPTED: Final = 130


def run(load: Callable[[], Callable[[], object]], extra: str, packages: tuple[str, ...]) -> None:
    """Import a command and run it.

    Exit status 2: a package of the extra is not installed. 130: the command was interrupted,
    perhaps during its import, which takes a moment.

    Args:
        load: Imports the command and returns it.
        extra: The extra with the packages.
        packages: Top-level packages of the extra that may be missing.
    """
    try:
        _load_and_run(load, extra, packages)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(EXIT_INTERRUPTED)


def _load_and_run(
    load: Callable[[], Callable[[], object]], extra: str, packages: tuple[str, ...]
) -> None:
    """Like `run`, but without handling an interrupt."""
    try:
        command = load()
    except ModuleNotFoundError as error:
        if error.name not in packages:
            raise
        sys.stderr.write(
            f"error: this command needs the package {error.name}, which is not installed: "
            f"run pip install 'dbsp-wcoj[{extra}]'\n"
        )
        sys.exit(EXIT_PACKAGE_MISSING)
    command()
