"""Checks the options of the command lines of benchmarks."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import typer


def check_names(names: Iterable[str], allowed: Collection[str], option: str) -> None:
    """Check that all names of an option are allowed.

    Raises:
        typer.BadParameter: A name is not allowed; the message lists the allowed names.
    """
    for name in names:
        if name not in allowed:
            raise typer.BadParameter(f"unknown {option} {name!r}; choose from {', '.join(allowed)}")
