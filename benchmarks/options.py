"""Options of command lines."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import typer


def check_names(given: Iterable[str], names: Collection[str], what: str) -> None:
    """Refuse a name that there is not.

    Raises:
        typer.BadParameter: It, and the names that there are.
    """
    for name in given:
        if name not in names:
            raise typer.BadParameter(f"no {what} {name!r}; choose from {', '.join(names)}")
