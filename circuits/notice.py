"""SqlNotice: the warning about a part of a text that has no effect.

It is not an error of the engine, so it is not in the tree of `circuits.errors`.
"""

from __future__ import annotations

__all__ = ["SqlNotice"]


class SqlNotice(UserWarning):
    """A part of a text in SQL has no effect, such as CHECK in CREATE TABLE."""
