"""Read files in TOML: values of keys with their types, and all problems at once."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, ClassVar, Final, Self

from streaming.cli.arguments.checks import Checks
from streaming.errors import EventsError

__all__ = ["MAX_BYTES", "TomlTable", "read_toml"]

#: The maximum size of a file; a longer one is probably not in TOML.
MAX_BYTES: Final = 4 << 20
MAX_INT64: Final = 2**63 - 1


def read_toml(path: Path) -> dict[str, Any]:
    """Return the keys and values of a file in TOML.

    Raises:
        EventsError: The file cannot be read, is too long or is not TOML.
    """
    try:
        if not path.is_file() and path.exists():
            raise EventsError(f"{path} is not a regular file: name a file in TOML")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise EventsError(f"{path}: {error.strerror or error}") from None
    if len(data) > MAX_BYTES:
        raise EventsError(f"{path} has more than {MAX_BYTES:,} bytes: name a file in TOML")
    try:
        return tomllib.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise EventsError(f"{path} is not UTF-8 text: save the file as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise EventsError(f"{path} is not a TOML file: {error}") from None


class TomlTable:
    """A table of a file: reads the values of keys, and reports those that are not valid.

    Args:
        values: The keys and values.
        file: The file.
        name: The full name of the table; empty for the top level.
        checks: Receives the problems.
    """

    #: How a table and an array of tables are written, for messages.
    table_notation: ClassVar[str] = "a table, as [{key}]"
    tables_notation: ClassVar[str] = "an array of tables, as [[{key}]]"

    def __init__(self, values: Mapping[str, Any], file: Path, name: str, checks: Checks) -> None:
        self.checks = checks
        self._values, self._file, self._name = values, file, name
        self._keys: list[str] = []
        self._is_valid = True

    def __contains__(self, key: str) -> bool:
        return key in self._values

    @property
    def names(self) -> list[str]:
        """All keys of the table, in the order of the file."""
        return list(self._values)

    def label(self, key: str = "") -> str:
        """Return the file and the full name of a key, or of the table."""
        return f"{self._file}: {'.'.join(filter(None, (self._name, key)))}"

    def report(self, key: str, problem: str) -> None:
        """Report a problem of a key."""
        self._is_valid = False
        self.checks.problems.append(f"{self.label(key)}: {problem}")

    def report_unknown_keys(self) -> bool:
        """Report unknown keys; return whether the table has no problem."""
        for key in self._values:
            if key not in self._keys:
                similar = get_close_matches(key.lower(), self._keys, 1, 0.7)
                hint = f"; did you mean {similar[0]}?" if similar else ""
                self.report(key, f"unknown key; keys: {', '.join(self._keys)}{hint}")
        return self._is_valid

    def text(self, key: str) -> str | None:
        """Read a string."""
        text: str | None = self._read(key, lambda value: isinstance(value, str), 'text, as "..."')
        return text

    def choice(self, key: str, names: tuple[str, ...]) -> str | None:
        """Read a string that must be one of ``names``."""
        choices = f"one of {', '.join(json.dumps(name) for name in names)}"
        choice: str | None = self._read(key, lambda value: value in names, choices)
        return choice

    def texts(self, key: str) -> tuple[str, ...] | None:
        """Read a list of strings, or one string."""
        texts = self._read(key, _is_texts, 'names of columns, as ["a", "b"]')
        return None if texts is None else (texts,) if isinstance(texts, str) else tuple(texts)

    def path(self, key: str) -> str | None:
        """Read a path, relative to the folder of the file, or a URI."""
        text = self.text(key)
        return text if not text or "://" in text else str(self._file.parent / text)

    def functions(self, key: str) -> str | None:
        """Read the name of functions; a file is relative to the folder of the file."""
        text = self.text(key)
        is_file = text is not None and text.rpartition(":")[0].endswith(".py")
        return str(self._file.parent / text) if text is not None and is_file else text

    def file(self, key: str) -> Path | None:
        """Read the path of a local file or folder."""
        text = self.path(key)
        return None if text is None else Path(text)

    def flag(self, key: str) -> bool | None:
        """Read a boolean."""
        flag: bool | None = self._read(
            key, lambda value: isinstance(value, bool), "true or false, without quotes"
        )
        return flag

    def integer(self, key: str, *, minimum: int = 0, maximum: int = MAX_INT64) -> int | None:
        """Read an integer in a range."""
        has_maximum = maximum < MAX_INT64
        bounds = f"{minimum} to {maximum}" if has_maximum else f"{minimum} or more"
        integer: int | None = self._read(
            key,
            lambda value: _is_integer(value) and minimum <= value <= maximum,
            f"an integer, {bounds}",
        )
        return integer

    def number(self, key: str) -> float | None:
        """Read a number of seconds."""
        number = self._read(
            key,
            lambda value: (
                (_is_integer(value) or isinstance(value, float)) and 0 <= value < float("inf")
            ),
            "a number of seconds, 0 or more",
        )
        return None if number is None else float(number)

    def size(self, key: str) -> str | None:
        """Read a number of bytes: an integer, or text with a unit."""
        size = self._read(
            key,
            lambda value: isinstance(value, str) or (_is_integer(value) and value >= 0),
            'bytes, as 4000000 or "4G"',
        )
        return None if size is None else str(size)

    def table(self, key: str) -> Self:
        """Read a table; a missing table is returned as an empty one."""
        table = self._read_table(key)
        name = ".".join(filter(None, (self._name, key)))
        return type(self)(table or {}, self._file, name, self.checks)

    def tables(self, key: str) -> list[Self]:
        """Read an array of tables; a missing array is returned as an empty one."""
        tables = self._read(
            key,
            lambda value: (
                isinstance(value, list)
                and all(isinstance(table_values, dict) for table_values in value)
            ),
            self.tables_notation.format(key=key),
        )
        return [
            type(self)(table_values, self._file, f"{key}[{number}]", self.checks)
            for number, table_values in enumerate(tables or [], 1)
        ]

    def options(self, key: str) -> dict[str, str]:
        """Read a table of options for Spark; numbers and booleans become text.

        TOML reads ``a.b = 1`` as a table in a table; this method restores the option ``a.b``.
        """
        table = self._read_table(key)
        options = {}
        for name, value in _flatten(table or {}):
            if isinstance(value, str | int | float):
                options[name] = str(value).lower() if isinstance(value, bool) else str(value)
            else:
                self.report(f"{key}.{name}", "write text, a number, true or false")
        return options

    def _read_table(self, key: str) -> Any:
        notation = self.table_notation.format(key=key)
        return self._read(key, lambda value: isinstance(value, dict), notation)

    def _read(self, key: str, is_valid: Callable[[Any], bool], expected: str) -> Any:
        """Return the value of a key; None if the key is missing or its value is not valid."""
        self._keys.append(key)
        value = self._values.get(key)
        if value is None or is_valid(value):
            return value
        value_text = json.dumps(value, default=str, ensure_ascii=False)
        self._is_valid = False
        self.checks.problems.append(f"{self.label(key)} = {value_text}: write {expected}")
        return None


def _flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the keys and values of nested tables, with dots in the keys."""
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_texts(value: object) -> bool:
    if isinstance(value, list):
        return bool(value) and all(isinstance(text, str) and text for text in value)
    return isinstance(value, str) and bool(value)
