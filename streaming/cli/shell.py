"""The shell: reads SQL and commands, runs them on a `Database`, and prints their effects.

A statement ends with a semicolon and may have several lines. A line that begins with a dot, where a
statement could begin, is a command of the shell::

    .tables                 the tables and views, with their rows
    .schema [NAME]          the statements that made the tables and views; the columns of NAME
    .explain                the plan of all views
    .profile STATEMENT      run a statement, and show where its time goes
    .import TABLE FILE      insert the rows of a Parquet, CSV or JSON file
    .read FILE              run the statements and commands of a file
    .help, .quit

`Shell.feed` takes the input line by line, so a terminal, a file and a test use it in the same way.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter
from typing import Final

import pyarrow as pa
from rich.console import Console
from rich.text import Text

from circuits.schema import WEIGHT
from circuits.sql import ends_statement, split_statements
from dbsp_wcoj import DbspWcojError
from dbsp_wcoj.execution.profiler import Profiler
from streaming.cli.arguments.source import read_file
from streaming.cli.terminal.display import milliseconds, plain_table, plural
from streaming.database.database import Database
from streaming.database.statements import Outcome
from streaming.errors import EventsError
from streaming.ui.row_texts import is_number, rows_of

__all__ = ["COMMANDS", "Shell", "describe"]

#: The rows of a result, and the changed rows of a view, that are printed.
MAX_ROWS_SHOWN: Final = 40

COMMANDS: Final = {
    ".tables": "the tables and views, with their rows",
    ".schema": "[NAME]  the statements that made the tables and views; the columns of NAME",
    ".explain": "the plan of all views",
    ".profile": "STATEMENT  run a statement, and show where its time goes",
    ".import": "TABLE FILE  insert the rows of a Parquet, CSV or JSON file",
    ".read": "FILE  run the statements and commands of a file",
    ".help": "this list",
    ".quit": "end",
}


class Shell:
    """Runs statements and commands on a database.

    Args:
        database: The database.
        dialect: The dialect of its statements.
        output: Receives results.

    Attributes:
        database: As given.
        output: As given.
        is_ended: True after ``.quit``.
    """

    def __init__(self, database: Database, dialect: str, output: Console) -> None:
        self.database = database
        self.is_ended = False
        self._dialect = dialect
        self.output = output
        self._lines: list[str] = []  # of the statement that has begun
        self._commands: Mapping[str, Callable[[str], None]] = {
            ".tables": self._show_tables,
            ".schema": self._show_schema,
            ".explain": self._explain,
            ".profile": self._profile,
            ".import": self._import,
            ".read": self._read,
            ".help": self._help,
            ".quit": self._quit,
        }

    @property
    def is_in_statement(self) -> bool:
        """True if a statement has begun and has no semicolon yet."""
        return bool(self._lines)

    def names(self) -> list[str]:
        """Return the names of all tables, views and columns, for completion."""
        circuit = self.database.circuit
        relations = [*circuit.inputs, *circuit.plans]
        columns = {column for name in relations for column in circuit.schema(name).columns}
        return [*relations, *sorted(columns)]

    def feed(self, line: str) -> None:
        """Take one line; run the statement that it completes, or its command.

        Raises:
            DbspWcojError: The statement or command failed. What it would have changed is unchanged.
        """
        if not self._lines:
            word = line.strip()
            if not word or word.startswith("--"):
                return
            if word.startswith("."):
                self._run_command(word)
                return
        self._lines.append(line)
        text = "\n".join(self._lines)
        if ends_statement(text, self._dialect):
            self.reset()
            self._run(text)

    def finish(self) -> None:
        """Run the last statement if it has no semicolon; for the end of a file.

        Raises:
            DbspWcojError: As `feed`.
        """
        text = "\n".join(self._lines)
        self.reset()
        if text.strip():
            self._run(text)

    def reset(self) -> None:
        """Drop the statement that has begun."""
        self._lines = []

    def _run(self, text: str) -> None:
        for statement in split_statements(text, self._dialect):
            started = perf_counter()
            for outcome in self.database.execute(statement):
                self._show(outcome, perf_counter() - started)

    def _show(self, outcome: Outcome, seconds: float) -> None:
        if outcome.result is not None:
            table = outcome.result.to_arrow()
            ones = pa.repeat(pa.scalar(1, pa.int64()), table.num_rows)
            self._print_rows(table.append_column(WEIGHT, ones), "")
            self._note(f"{plural(table.num_rows, 'row')}, {milliseconds(seconds)} ms")
            return
        for view, changes in (outcome.changes or {}).items():
            if changes.num_rows:
                self._print_rows(changes, view)
        rows = "" if outcome.rows is None else f"{plural(outcome.rows, 'row')}, "
        self._note(f"{rows}{milliseconds(seconds)} ms")

    def _print_rows(self, table: pa.Table, view: str) -> None:
        """Print a table; of a view, its changes with their weights."""
        shown = plain_table(view or None)
        if view:
            shown.add_column("", justify="right")
        for field in table.schema:
            if field.name != WEIGHT:
                shown.add_column(
                    Text(field.name), justify="right" if is_number(field.type) else "left"
                )
        for weight, row in rows_of(table, MAX_ROWS_SHOWN):
            style = "" if not view else "good" if weight > 0 else "error"
            cells = [Text("NULL", "note") if cell is None else Text(cell) for cell in row]
            shown.add_row(*([Text(f"{weight:+d}", style)] if view else []), *cells)
        self.output.print(shown)
        if table.num_rows > MAX_ROWS_SHOWN:
            self._note(f"... and {plural(table.num_rows - MAX_ROWS_SHOWN, 'more row')}")

    def _run_command(self, text: str) -> None:
        word, _, rest = text.partition(" ")
        command = self._commands.get(word)
        if command is None:
            raise EventsError(f"{word} is not a command; commands are {', '.join(COMMANDS)}")
        command(rest.strip().removesuffix(";"))

    def _show_tables(self, rest: str) -> None:
        circuit, table = self.database.circuit, plain_table()
        for title in ("name", "", "rows", "columns"):
            table.add_column(title, justify="right" if title == "rows" else "left")
        for name in (*circuit.inputs, *circuit.plans):
            kind = "view" if name in circuit.plans else "table"
            is_kept = name in circuit.materialized
            rows = f"{len(self.database.view(name)):,}" if is_kept else "not kept"
            columns = ", ".join(f"{f.name} {f.type}" for f in circuit.schema(name).fields)
            table.add_row(Text(name, "name"), kind, rows, Text(columns))
        self.output.print(table)

    def _show_schema(self, rest: str) -> None:
        if not rest:
            source = self.database.circuit.spec.source
            self.output.print(Text("" if source is None else source.text.strip()))
            return
        schema = self.database.circuit.schema(rest)
        for field in schema.fields:
            null = "" if field.nullable else " NOT NULL"
            self.output.print(Text(f"{field.name} {field.type}{null}"))

    def _explain(self, rest: str) -> None:
        self.output.print(Text(self.database.circuit.explain()), soft_wrap=True)

    def _profile(self, rest: str) -> None:
        if not rest:
            raise EventsError(".profile needs a statement: .profile INSERT INTO t VALUES (1)")
        started = perf_counter()
        with Profiler(perf_counter) as profiler:
            self._run(rest)
        total = perf_counter() - started
        table = plain_table()
        for title in ("phase", "ms", "share", "calls", "rows"):
            table.add_column(title, justify="left" if title == "phase" else "right")
        phases = sorted(profiler.phases.items(), key=lambda item: -item[1].seconds)
        for name, phase in phases:
            table.add_row(
                name,
                milliseconds(phase.seconds),
                f"{100 * phase.seconds / total:.0f} %",
                f"{phase.calls:,}",
                f"{phase.rows:,}",
            )
        self.output.print(table)

    def _import(self, rest: str) -> None:
        words = shlex.split(rest)
        if len(words) != 2:
            raise EventsError(".import needs a table and a file: .import orders orders.parquet")
        relation, file = words
        started = perf_counter()
        table = read_file(Path(file))
        changes = self.database.insert(relation, table)
        self._show(Outcome(rest, changes=changes, rows=table.num_rows), perf_counter() - started)

    def _read(self, rest: str) -> None:
        try:
            text = Path(rest).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise EventsError(f".read {rest}: {error}; name a file of SQL in UTF-8") from None
        for line in text.splitlines():
            self.feed(line)
        self.finish()

    def _help(self, rest: str) -> None:
        self.output.print(Text("A statement of SQL ends with a semicolon. Commands:"))
        table = plain_table()
        table.show_header = False
        for name, text in COMMANDS.items():
            table.add_row(Text(name, "name"), Text(text))
        self.output.print(table)

    def _quit(self, rest: str) -> None:
        self.is_ended = True

    def _note(self, text: str) -> None:
        self.output.print(text, style="note", markup=False)


def describe(error: DbspWcojError) -> str:
    """Return an error as a text, with its notes."""
    return "\n".join([str(error), *getattr(error, "__notes__", ())])
