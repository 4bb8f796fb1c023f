"""Access: who may read the page; the token, sessions, and failed attempts.

A page that is open to other machines has a token. A visitor types it into a form once and gets a
session: a random id in a cookie, of which the server keeps a digest. The token is in no address and
no cookie, so it is in no history, log or referrer. Scripts send it as ``Authorization: Bearer``.

Everything here is bounded: sessions by number and age, and so is what is remembered of failures.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
import time
from collections import Counter, deque
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from streaming.errors import PageError

__all__ = [
    "MIN_TOKEN_CHARACTERS",
    "TOKEN_VARIABLE",
    "Access",
    "Attempts",
    "Token",
    "check_token",
    "find_token",
    "read_token_file",
]

#: The environment variable that the command line reads a token from.
TOKEN_VARIABLE: Final = "DBSP_WCOJ_UI_TOKEN"
MIN_TOKEN_CHARACTERS: Final = 8
MAX_TOKEN_BYTES: Final = 1024
MAX_SESSIONS: Final = 64
SESSION_SECONDS: Final = 12 * 3600.0
ATTEMPTS_SECONDS: Final = 60.0
MAX_ATTEMPTS: Final = 100
MAX_ATTEMPTS_PER_ADDRESS: Final = 10


@dataclass(frozen=True)
class Token:
    """A token, and where the user finds it.

    Attributes:
        value: What visitors have to know.
        origin: For messages: the file or the variable.
    """

    value: str
    origin: str

    def __repr__(self) -> str:
        """Without the value, which has to stay out of logs."""
        return f"Token(origin={self.origin!r})"


class Attempts:
    """Failed attempts of the last minute, so that a token cannot be found by trying.

    Args:
        clock: Seconds, never going back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: deque[tuple[float, str]] = deque(maxlen=MAX_ATTEMPTS)
        self._of_address: Counter[str] = Counter()

    def fail(self, address: str) -> None:
        """Remember a failure."""
        if len(self._failures) == MAX_ATTEMPTS:
            self._forget()
        self._failures.append((self._clock(), address))
        self._of_address[address] += 1

    def is_blocked(self, address: str) -> bool:
        """Whether an address, or all together, failed too often in the last minute."""
        oldest = self._clock() - ATTEMPTS_SECONDS
        while self._failures and self._failures[0][0] <= oldest:
            self._forget()
        return (
            len(self._failures) >= MAX_ATTEMPTS
            or self._of_address[address] >= MAX_ATTEMPTS_PER_ADDRESS
        )

    def _forget(self) -> None:
        _, address = self._failures.popleft()
        self._of_address[address] -= 1
        self._of_address += Counter()  # addresses without failures are dropped


class Access:
    """The token of a page and the sessions of those who knew it.

    Not thread-safe: it belongs to the event loop of the page.

    Args:
        token: What a visitor has to know.
        clock: Seconds, never going back.
    """

    def __init__(self, token: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._digest = _digest(token)
        self._clock = clock
        self._attempts = Attempts(clock)
        self._sessions: dict[bytes, float] = {}

    def is_blocked(self, address: str) -> bool:
        """Whether the token is not even looked at, after too many failed attempts."""
        return self._attempts.is_blocked(address)

    def is_token(self, given: str, address: str) -> bool:
        """Whether a visitor knows the token; if not, it counts as a failed attempt."""
        if hmac.compare_digest(_digest(given), self._digest):
            return True
        self._attempts.fail(address)
        return False

    def begin_session(self) -> str:
        """The id of a new session; of too many the oldest ends."""
        session = secrets.token_urlsafe(32)
        while len(self._sessions) >= MAX_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        self._sessions[_digest(session)] = self._clock() + SESSION_SECONDS
        return session

    def is_session(self, session: str) -> bool:
        """Whether a session was begun and has not ended."""
        digest = _digest(session)
        end = self._sessions.get(digest)
        if end is not None and end <= self._clock():
            del self._sessions[digest]
            return False
        return end is not None


def check_token(token: str) -> None:
    """Refuse a token that is too short.

    Raises:
        PageError: It has fewer than ``MIN_TOKEN_CHARACTERS`` characters.
    """
    if len(token) < MIN_TOKEN_CHARACTERS:
        raise PageError(
            f"the token has {len(token)} characters: give {MIN_TOKEN_CHARACTERS} or more, such as "
            f"{secrets.token_urlsafe(16)}"
        )


def find_token(
    path: Path | None, environment: MutableMapping[str, str] | None = None
) -> Token | None:
    """The token of a command: from a file if one is named, else from the environment.

    The variable is removed from the environment, so that processes started later do not get it.

    Args:
        path: As for `read_token_file`.
        environment: ``os.environ`` unless given.

    Raises:
        PageError: As for `read_token_file`.
    """
    environment = os.environ if environment is None else environment
    given = environment.pop(TOKEN_VARIABLE, None)
    if path is not None:
        return Token(read_token_file(path), f"the file {path}")
    return None if given is None else Token(given, f"the variable {TOKEN_VARIABLE}")


def read_token_file(path: Path) -> str:
    """The token in a file; a file that does not exist is made, with a random token, mode 0600.

    Raises:
        PageError: It cannot be read or made, others may read it, or it holds no token.
    """
    try:
        return _read_token(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise _unusable(path, error) from None
    token = secrets.token_urlsafe(24)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with open(made, "w", encoding="ascii") as file:
            file.write(f"{token}\n")
    except OSError as error:
        raise _unusable(path, error) from None
    return token


def _read_token(path: Path) -> str:
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise PageError(f"the token file {path} is no file: name a file")
        if status.st_mode & 0o077:
            raise PageError(
                f"the token file {path} has mode {stat.S_IMODE(status.st_mode):04o}, so others may "
                f"read or change it: run chmod 600 {path}, and choose another token if they have"
            )
        content = file.read(MAX_TOKEN_BYTES + 1)
    try:
        token = content.decode().strip()
    except UnicodeDecodeError:
        token = ""
    if len(content) > MAX_TOKEN_BYTES or not token or not token.isprintable():
        raise PageError(
            f"the token file {path} holds no token: it should be one line of text of at most "
            f"{MAX_TOKEN_BYTES} bytes; remove the file, and one with a random token is made"
        )
    return token


def _unusable(path: Path, error: OSError) -> PageError:
    return PageError(
        f"the token file {path} cannot be read or made: {error.strerror or error}; name another"
    )


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode(errors="surrogatepass")).digest()
