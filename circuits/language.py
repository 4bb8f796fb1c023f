"""The language of a text that may be SQL or Datalog."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["is_datalog"]

# Quoted text and comments of either language.
QUOTED_OR_COMMENT: Final = re.compile(r"""'[^']*'|"[^"]*"|(%|//|--)[^\n]*|/\*.*?\*/""", re.DOTALL)
IMPLIES: Final = re.compile(r"\)\s*:-")
FACTS: Final = re.compile(r"\s*(?!values\b)(?:[\w./-]+\s*\([^()]*\)\s*(?:\.\s*|$))+", re.IGNORECASE)


def is_datalog(text: str) -> bool:
    """Return whether a text is Datalog: a head before ``:-`` outside quotes and comments, or facts.

    Any other text is SQL, so that an error in a SELECT is an SQL error.

    >>> is_datalog("p(x) :- q(x)."), is_datalog("p(1, 'a').")
    (True, True)
    >>> is_datalog("SELECT 'p(x) :- q(x).' AS rule"), is_datalog("SELEC src FROM tx")
    (False, False)
    """
    plain = QUOTED_OR_COMMENT.sub(" ", text)
    return IMPLIES.search(plain) is not None or FACTS.fullmatch(plain) is not None
