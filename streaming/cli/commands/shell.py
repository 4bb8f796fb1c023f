"""The sub-command ``shell``: tables and live views at a prompt, or by a script."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.lexers import PygmentsLexer
from pygments.lexers.sql import SqlLexer

from dbsp_wcoj import DbspWcojError
from streaming.cli.arguments.functions import load_functions
from streaming.cli.shell import COMMANDS, Shell, describe
from streaming.cli.terminal.display import console, show_compilation
from streaming.database.database import Database
from streaming.errors import FailedError, StateError
from streaming.state.open_files import open_files
from streaming.state.program_change import newest_version

__all__ = ["shell"]

#: The words that the prompt completes, besides names.
KEYWORDS: Final = (
    "AND",
    "AS",
    "ASC",
    "BETWEEN",
    "BY",
    "CASE",
    "CREATE",
    "DELETE",
    "DESC",
    "DISTINCT",
    "DROP",
    "ELSE",
    "END",
    "EXISTS",
    "FROM",
    "GROUP",
    "HAVING",
    "IN",
    "INSERT",
    "INTO",
    "IS",
    "JOIN",
    "KEY",
    "LEFT",
    "LIMIT",
    "NOT",
    "NULL",
    "ON",
    "OR",
    "ORDER",
    "OUTER",
    "PARTITION",
    "PRIMARY",
    "REPLACE",
    "SELECT",
    "SET",
    "TABLE",
    "THEN",
    "UNION",
    "UPDATE",
    "USING",
    "VALUES",
    "VIEW",
    "WHEN",
    "WHERE",
    "WITH",
)
HISTORY_FILE: Final = "dbsp-wcoj/shell-history"


def shell(*, views: Path | None, state: str | None, dialect: str, functions: str | None) -> None:
    """Create tables and views, change rows, and see what changes."""
    output = console()
    with show_compilation(console(stderr=True)):
        database = _open(views, state, dialect, functions)
        with database:
            source = database.circuit.spec.source
            session = Shell(database, dialect if source is None else source.dialect, output)
            if sys.stdin.isatty():
                _prompt(session)
            else:
                _run_script(session)


def _open(views: Path | None, state: str | None, dialect: str, functions: str | None) -> Database:
    """Open the database of a directory, of a file of views, or an empty one."""
    loaded = load_functions(functions)
    if views is None and state is not None:
        try:
            is_new = newest_version(open_files(state)) is None
        except OSError as error:
            raise StateError(
                f"state directory {state} cannot be read: {error}; check the permissions"
            ) from error
        if not is_new:
            return Database(path=state, functions=loaded)
    return Database("" if views is None else views, path=state, dialect=dialect, functions=loaded)


def _run_script(session: Shell) -> None:
    """Run standard input; stop at the first error.

    Raises:
        FailedError: A statement or command failed; those before it have taken effect.
    """
    number = 0
    try:
        for line in sys.stdin:
            number += 1
            session.feed(line.rstrip("\n"))
            if session.is_ended:
                return
        session.finish()
    except DbspWcojError as error:
        raise FailedError(f"line {number} of the script: {describe(error)}") from error


def _prompt(session: Shell) -> None:
    """Read lines from the terminal until its end; print errors and go on."""
    output, errors = console(), console(stderr=True)
    output.print(f"{session.database!r}; .help lists the commands", style="note", markup=False)
    prompt: PromptSession[str] = PromptSession(history=_history(), lexer=PygmentsLexer(SqlLexer))
    while not session.is_ended:
        words = [*session.names(), *KEYWORDS, *COMMANDS]
        completer = WordCompleter(words, ignore_case=True, WORD=True)
        try:
            line = prompt.prompt(
                "...> " if session.is_in_statement else "sql> ", completer=completer
            )
            session.feed(line)
        except DbspWcojError as error:
            errors.print(f"error: {describe(error)}", style="error", markup=False, soft_wrap=True)
        except KeyboardInterrupt:
            session.reset()
        except EOFError:
            return


def _history() -> History:
    """Return the history of earlier sessions; of this one only if it cannot be kept."""
    folder = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    file = Path(folder).expanduser() / HISTORY_FILE
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(mode=0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(file))
