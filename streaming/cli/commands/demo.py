"""The sub-command ``demo``: ``dbsp-wcoj-demo``, which needs the packages of the extra ``demo``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import typer

from streaming import extras
from streaming.demo import EXTRA

__all__ = ["PASS_THROUGH", "demo"]

#: The demo parses all arguments itself, including ``--help``.
PASS_THROUGH: Final = {
    "allow_extra_args": True,
    "ignore_unknown_options": True,
    "help_option_names": [],
}


def demo(context: typer.Context) -> None:
    """Replay a stream of messages and keep count of its triangles, checked against recounts."""

    def load() -> Callable[[], object]:
        from streaming.demo.command import app

        return lambda: app(args=context.args, prog_name="dbsp-wcoj demo")

    extras.run(load, "demo", EXTRA)
