"""Checks the options of the benchmarks' command lines."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import typer


def check_names(names: Iterable[str], allowed: Collection[str], what: str) -> None:
    """Check that all names are allowed.

    Raises:
        typer.BadParameter: A name is not; the message lists the allowed names.
    """
    for name in names:
        if name not in allowed:
            raise typer.BadParameter(f"unknown {what} {name!r}; choose from {', '.join(allowed)}")
