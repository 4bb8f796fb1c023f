"""Language: decide whether a text is SQL or Datalog."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["is_datalog"]

# Quoted text and comments of either language.
QUOTED_OR_COMMENT: Final = re.compile(r"""'[^']*'|"[^"]*"|(%|//|--)[^\n]*|/\*.*?\*/""", re.DOTALL)
IMPLIES: Final = re.compile(r"\)\s*:-")
# Facts such as ``e(1, 2).``; VALUES (1, 2) is SQL.
FACTS: Final = re.compile(r"\s*(?!values\b)(?:[\w./-]+\s*\([^()]*\)\s*(?:\.\s*|$))+", re.IGNORECASE)


def is_datalog(text: str) -> bool:
    """Return True if a text is Datalog: it has ``) :-`` outside quotes and comments, or only facts.

    Every other text is SQL, so a misspelled SELECT gives an SQL error.

    >>> is_datalog("p(x) :- q(x)."), is_datalog("p(1, 'a').")
    (True, True)
    >>> is_datalog("SELECT 'p(x) :- q(x).' AS rule"), is_datalog("SELEC src FROM tx")
    (False, False)
    """
    text_without_quotes = QUOTED_OR_COMMENT.sub(" ", text)
    return (
        IMPLIES.search(text_without_quotes) is not None
        or FACTS.fullmatch(text_without_quotes) is not None
    )
