"""Remove secrets, such as those of a connection string, from texts for people.

Errors of drivers and of the command line repeat their arguments. Every text that leaves the program
as an error or a log line is passed to `redact` once, just before it is written, so that no other
code has to consider secrets.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["redact"]

HIDDEN: Final = "***"
#: ``key=value`` and ``"key": value`` where the key names a secret; a value is a word or quoted.
_OPTION: Final = re.compile(
    r"""(?ix)
    ( [\w.-]* (?: passw | pwd | passphrase | secret | token | credential | api[._-]?key
                | (?:access|account|private|shared)[._-]?key ) [\w.-]*
      (?: ["']? \s* = | ["'] \s* : ) \s* )
    ( '(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" | [^\s,;&'"\#]+ )
    """
)
#: User and password of an address, up to the last @ of the word, as a password may hold one.
_ADDRESS: Final = re.compile(r"""(?<=://)[^\s'"]*@""")
#: The rest of a password in a quoted host name: if a password contains an @, a driver may split the
#: address at the first one, and name the text behind it as the host.
_HOST: Final = re.compile(r"""(?<=['"])[^\s'"/]*@(?=[\w.:-]+['"])""")


def redact(text: str, *secrets: str) -> str:
    """Replace passwords, tokens and keys in a text by ``***``.

    Args:
        text: Any text; O(its length).
        secrets: Texts to hide wherever they occur.

    >>> redact("host=db password='a b' dbname=x")
    'host=db password=*** dbname=x'
    >>> redact("postgresql://anna:p@ss/w@db:5432/x?sslpassword=q")
    'postgresql://***@db:5432/x?sslpassword=***'
    >>> redact("wrong: hunter2", "hunter2")
    'wrong: ***'
    """
    for secret in secrets:
        if secret:
            text = text.replace(secret, HIDDEN)
    text = _ADDRESS.sub(f"{HIDDEN}@", text)
    text = _HOST.sub(f"{HIDDEN}@", text)
    return _OPTION.sub(rf"\1{HIDDEN}", text)
