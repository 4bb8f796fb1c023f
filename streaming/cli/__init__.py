"""The command ``dbsp-wcoj``: one file for each sub-command.

::

    app       the sub-commands, put together
    profile   where the time of a step goes
"""

from __future__ import annotations

import sys
from typing import Final

__all__ = ["main"]

EXTRA: Final = ("rich", "typer")


def main() -> None:
    """Run the command line, or say how to install what it needs."""
    try:
        from streaming.cli.app import app
    except ModuleNotFoundError as error:
        if error.name not in EXTRA:
            raise
        sys.stderr.write(
            f"error: the command line needs the package {error.name}, which is not installed: "
            "run pip install 'dbsp-wcoj[cli]'\n"
        )
        sys.exit(2)
    app()
