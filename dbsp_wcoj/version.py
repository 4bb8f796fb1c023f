"""The version of the installed distribution, which contains all three packages."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Final

__all__ = ["__version__"]


def _installed_version() -> str:
    try:
        return version("dbsp-wcoj")
    except PackageNotFoundError:  # a source tree that is not installed
        return "0+unknown"


__version__: Final = _installed_version()
