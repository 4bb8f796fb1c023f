"""SQL files: the statements of several files as one text, and the place of an error in its file."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Final

from circuits import SqlError
from circuits.sql import SqlSource, merge_flows
from streaming.errors import EventsError

__all__ = ["SqlFiles", "read_sql_files"]

SQL_SUFFIX: Final = ".sql"


@dataclass(frozen=True)
class SqlFiles:
    """The text of several files; the order of the files does not matter.

    Attributes:
        text: All statements.
        files: The files, in the order of the text.
        first_lines: The line of the text at which each file begins, from 1.
    """

    text: str
    files: tuple[Path, ...]
    first_lines: tuple[int, ...]

    def place(self, line: int) -> tuple[Path, int]:
        """Return the file, and the line in it, of a line of the text.

        >>> names = (Path("a.sql"), Path("b.sql"))
        >>> files = SqlFiles("SELECT 1\\n;\\nSELECT 2\\n;\\n", names, (1, 3))
        >>> print(*files.place(3))
        b.sql 1
        """
        number = bisect_right(self.first_lines, line) - 1
        return self.files[number], line - self.first_lines[number] + 1

    def texts(self) -> Iterator[tuple[Path, str]]:
        """Yield each file with its part of the text."""
        lines = self.text.split("\n")
        for file, (first, end) in zip(
            self.files, pairwise([*self.first_lines, len(lines)]), strict=True
        ):
            yield file, "".join(f"{line}\n" for line in lines[first - 1 : end - 1])

    def with_merged_flows(self, dialect: str) -> SqlFiles:
        """Return the files with temporary views in place of flows; see `circuits.sql.flows`.

        The files of `find_unreadable` stay as they are.
        """
        unreadable = dict(self.find_unreadable(dialect))
        merged = replace(self, text=merge_flows(self.text_without(unreadable), dialect))
        texts = [
            old if file in unreadable else new
            for (file, old), (_, new) in zip(self.texts(), merged.texts(), strict=True)
        ]
        return replace(self, text="".join(texts))

    def find_unreadable(self, dialect: str) -> Iterator[tuple[Path, str]]:
        """Yield each file that is not SQL because of its quotes or comments, with the error."""
        for file, text in self.texts():
            try:
                SqlSource(text, dialect).tokenize()
            except SqlError as error:
                message = str(error).partition("\n")[0]
                yield file, f"{message}; close each quote and comment"

    def text_without(self, files: Collection[Path]) -> str:
        """Return the text with empty lines instead of the lines of some files.

        >>> names = (Path("a.sql"), Path("b.sql"))
        >>> files = SqlFiles("SELECT 1\\n;\\nSELECT 2\\n;\\n", names, (1, 3))
        >>> files.text_without([Path("a.sql")])
        '\\n\\nSELECT 2\\n;\\n'
        """
        return "".join(
            "\n" * text.count("\n") if file in files else text for file, text in self.texts()
        )


def read_sql_files(paths: Sequence[Path]) -> SqlFiles:
    """Read files, and the files ``.sql`` of folders and their subfolders in the order of the names.

    Raises:
        EventsError: A file cannot be read, or there is none.
    """
    files = list(dict.fromkeys(_list_files(paths)))
    if not files:
        names = ", ".join(map(str, paths))
        raise EventsError(f"{names}: there is no file {SQL_SUFFIX}: write the views into one")
    parts: list[str] = []
    first_lines: list[int] = []
    line = 1
    for file in files:
        try:
            part = file.read_text(encoding="utf-8-sig")
        except OSError as error:
            raise EventsError(f"{file}: {error.strerror or error}") from None
        except UnicodeDecodeError:
            raise EventsError(f"{file} is not UTF-8 text: save the file as UTF-8") from None
        part = f"{part}\n;\n"  # on a line of its own, because a comment may be the last line
        parts.append(part)
        first_lines.append(line)
        line += part.count("\n")
    return SqlFiles("".join(parts), tuple(files), tuple(first_lines))


def _list_files(paths: Iterable[Path]) -> Iterable[Path]:
    for path in paths:
        if path.is_dir():
            yield from sorted(file for file in path.rglob(f"*{SQL_SUFFIX}") if file.is_file())
        else:
            yield path
