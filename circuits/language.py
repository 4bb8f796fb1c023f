"""Which of the two languages a text is in, where either may stand."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["is_datalog"]

# Quoted, or a comment, in either language.
ASIDE: Final = re.compile(r"""'[^']*'|"[^"]*"|(%|//|--)[^\n]*|/\*.*?\*/""", re.DOTALL)
IMPLIES: Final = re.compile(r"\)\s*:-")
FACTS: Final = re.compile(r"\s*(?!values\b)(?:[\w./-]+\s*\([^()]*\)\s*(?:\.\s*|$))+", re.IGNORECASE)


def is_datalog(text: str) -> bool:
    """Return whether a text is Datalog: a head before ``:-`` outside quotes and comments, or facts.

    All else is SQL, so that an error in a SELECT is told in terms of SQL.

    >>> is_datalog("p(x) :- q(x)."), is_datalog("p(1, 'a').")
    (True, True)
    >>> is_datalog("SELECT 'p(x) :- q(x).' AS rule"), is_datalog("SELEC src FROM tx")
    (False, False)
    """
    plain = ASIDE.sub(" ", text)
    return IMPLIES.search(plain) is not None or FACTS.fullmatch(plain) is not None
