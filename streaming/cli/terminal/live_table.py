"""A table that is redrawn in place on a terminal, while work goes on in other threads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Final, Self

from rich.console import Console, RenderableType
from rich.live import Live

__all__ = ["LiveTable"]

REFRESHES_PER_S: Final = 5


class LiveTable(ABC):
    """Redraws `frame` in place; a context manager around the work that it shows.

    Args:
        console: The terminal.
        is_live: True to redraw; otherwise the subclass prints lines.
    """

    def __init__(self, console: Console, *, is_live: bool) -> None:
        self.console = console
        self.is_live = is_live
        self._live: Live | None = None

    @abstractmethod
    def frame(self) -> RenderableType:
        """Return the current contents; called about ``REFRESHES_PER_S`` times a second."""

    def __enter__(self) -> Self:
        if self.is_live:
            self._live = Live(
                get_renderable=self.frame,
                console=self.console,
                refresh_per_second=REFRESHES_PER_S,
            )
            self._live.start(refresh=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()
