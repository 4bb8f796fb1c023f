"""Clock: the default source of the current time."""

from __future__ import annotations

from datetime import UTC, datetime

__all__ = ["utc_now"]


def utc_now() -> datetime:
    """Return the current time."""
    return datetime.now(UTC)
