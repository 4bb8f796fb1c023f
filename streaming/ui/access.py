"""Access control of the live page: the token, sessions, and failed attempts.

A page that is served to other machines requires a token. A visitor types the token into a form once
and gets a session: a random id in a cookie, of which the server keeps only a digest. The token is
never part of a URL or a cookie, so it does not appear in a browser history, a log or a referrer.
Scripts send it in the header ``Authorization: Bearer``.

Memory is bounded: sessions and recorded failures are limited in number and in age.
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
    "FailedAttempts",
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
SESSION_LIFETIME_S: Final = 12 * 3600.0
ATTEMPTS_WINDOW_S: Final = 60.0
MAX_ATTEMPTS: Final = 100
MAX_ATTEMPTS_PER_ADDRESS: Final = 10


@dataclass(frozen=True)
class Token:
    """A token, and the file or environment variable that it was read from.

    Attributes:
        value: The secret text that visitors have to type.
        origin: The file or the variable, for messages.
    """

    value: str
    origin: str

    def __repr__(self) -> str:
        """The origin only: the value must not appear in logs."""
        return f"Token(origin={self.origin!r})"


class FailedAttempts:
    """Failed attempts of the last minute, so that a token cannot be found by guessing.

    Args:
        clock: A monotonic clock, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: deque[tuple[float, str]] = deque(maxlen=MAX_ATTEMPTS)
        self._failures_of_address: Counter[str] = Counter()

    def fail(self, address: str) -> None:
        """Record a failed attempt from an address."""
        if len(self._failures) == MAX_ATTEMPTS:
            self._forget_oldest()
        self._failures.append((self._clock(), address))
        self._failures_of_address[address] += 1

    def is_blocked(self, address: str) -> bool:
        """Return whether an address, or all addresses together, failed too often."""
        oldest = self._clock() - ATTEMPTS_WINDOW_S
        while self._failures and self._failures[0][0] <= oldest:
            self._forget_oldest()
        return (
            len(self._failures) >= MAX_ATTEMPTS
            or self._failures_of_address[address] >= MAX_ATTEMPTS_PER_ADDRESS
        )

    def _forget_oldest(self) -> None:
        _, address = self._failures.popleft()
        self._failures_of_address[address] -= 1
        self._failures_of_address += Counter()  # addresses without failures are dropped


class Access:
    """The token of a page, and the sessions of the visitors who entered it.

    Not thread-safe: only the event loop of the page may use it.

    Args:
        token: The secret text that visitors have to type.
        clock: A monotonic clock, in seconds.
    """

    def __init__(self, token: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._digest = _digest(token)
        self._clock = clock
        self._attempts = FailedAttempts(clock)
        self._sessions: dict[bytes, float] = {}

    def is_blocked(self, address: str) -> bool:
        """Return whether too many attempts failed, so the caller must not check the token."""
        return self._attempts.is_blocked(address)

    def is_token(self, text: str, address: str) -> bool:
        """Return whether a text is the token; if not, record a failed attempt."""
        if hmac.compare_digest(_digest(text), self._digest):
            return True
        self._attempts.fail(address)
        return False

    def begin_session(self) -> str:
        """Start a session and return its id; if there are too many, end the oldest one."""
        session = secrets.token_urlsafe(32)
        while len(self._sessions) >= MAX_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        self._sessions[_digest(session)] = self._clock() + SESSION_LIFETIME_S
        return session

    def is_session(self, session: str) -> bool:
        """Return whether a session with this id was started and has not ended."""
        digest = _digest(session)
        end = self._sessions.get(digest)
        if end is not None and end <= self._clock():
            del self._sessions[digest]
            return False
        return end is not None


def check_token(token: str) -> None:
    """Refuse a token that is too short.

    Raises:
        PageError: The token has fewer than ``MIN_TOKEN_CHARACTERS`` characters.
    """
    if len(token) < MIN_TOKEN_CHARACTERS:
        raise PageError(
            f"the token has {len(token)} characters: give {MIN_TOKEN_CHARACTERS} or more, such as "
            f"{secrets.token_urlsafe(16)}"
        )


def find_token(
    path: Path | None, environment: MutableMapping[str, str] | None = None
) -> Token | None:
    """Find the token for a command: in a file if there is a path, else in the environment.

    The variable ``TOKEN_VARIABLE`` is removed from the environment in both cases, so that processes
    started later do not inherit the token.

    Args:
        path: The token file (see `read_token_file`); None to use the environment.
        environment: The environment variables; None for ``os.environ``.

    Returns:
        The token, or None if there is neither a file nor the variable.

    Raises:
        PageError: The file cannot be used (see `read_token_file`).
    """
    environment = os.environ if environment is None else environment
    token = environment.pop(TOKEN_VARIABLE, None)
    if path is not None:
        return Token(read_token_file(path), f"the file {path}")
    return None if token is None else Token(token, f"the variable {TOKEN_VARIABLE}")


def read_token_file(path: Path) -> str:
    """Read the token from a file; if there is none, create it with a random token and mode 0600.

    Raises:
        PageError: The file cannot be read or created, its mode gives other users access to it, or
            it does not contain a token.
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
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(f"{token}\n")
    except OSError as error:
        raise _unusable(path, error) from None
    return token


def _read_token(path: Path) -> str:
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise PageError(f"the token file {path} is not a regular file: name another file")
        if status.st_mode & 0o077:
            raise PageError(
                f"the token file {path} has mode {stat.S_IMODE(status.st_mode):04o}, so other "
                f"users can read or change it: run chmod 600 {path}, and choose another token if "
                "they may have read it"
            )
        content = file.read(MAX_TOKEN_BYTES + 1)
    try:
        token = content.decode().strip()
    except UnicodeDecodeError:
        token = ""
    if len(content) > MAX_TOKEN_BYTES or not token or not token.isprintable():
        raise PageError(
            f"the token file {path} does not contain a token, which is one line of text of at most "
            f"{MAX_TOKEN_BYTES} bytes: remove the file, and a random token is created"
        )
    return token


def _unusable(path: Path, error: OSError) -> PageError:
    return PageError(
        f"the token file {path} cannot be read or created: {error.strerror or error}; name another"
    )


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode(errors="surrogatepass")).digest()
