"""Query files and texts: how they are read, and their one-line errors."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from streaming.cli.app import app
from streaming.cli.arguments import query_text
from streaming.cli.arguments.query_text import QueryText, read_query
from streaming.errors import EventsError

SQL = "SELECT src FROM e"


def test_the_extension_of_a_file_decides_between_sql_and_datalog(tmp_path: Path) -> None:
    (tmp_path / "rings.SQL").write_bytes(b"\xef\xbb\xbf" + SQL.encode())
    (tmp_path / "two words.dl").write_text("q(x) :- e(x, y).")

    assert read_query(f"{tmp_path}/rings.SQL") == QueryText(SQL, True, "rings")
    result = read_query(f"{tmp_path}/two words.dl")
    assert (result.is_sql, result.name) == (False, "view")


@pytest.mark.parametrize("text", [SQL, "SELECT 1", "q(x):-e(x,y).", "with a AS (SELECT 1) FROM a"])
def test_a_text_is_a_query_itself(text: str) -> None:
    assert read_query(text).text == text


def test_an_invalid_query_file_gives_one_line_and_status_2(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.sql")
    files = {
        "latin.sql": (b"SELECT src\n-- \xe4", r"line 2: byte 0xe4 is not UTF-8 text"),
        "utf16.sql": (SQL.encode("utf-16"), "is not UTF-8 text"),
        "utf16le.sql": (SQL.encode("utf-16-le"), "contains zero bytes, like UTF-16 text"),
        "empty.sql": (b"", "is empty"),
        "blank.dl": (b" \n", "is empty"),
        "rules.txt": (b"q(x) :- e(x, x).", "must end in .sql or .dl"),
        "comment.sql": (b"-- nothing", "no "),
    }
    for name, (data, _) in files.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "folder.sql").mkdir()
    messages = {name: text for name, (_, text) in files.items()}
    messages |= {
        "none.sql": "No such file",
        "none": "no file has this name",
        "folder.sql": "is a folder: name a file .sql or .dl in it",
        "": "is a folder",
        "fifo.sql": "is not a regular file",
        "x" * 300 + ".sql": "File name too long",
    }
    for name, text in messages.items():
        arguments = ["explain", f"{tmp_path}/{name}", "--source=e=schema=src long"]
        result = CliRunner().invoke(app, arguments)
        assert (result.exit_code, result.stdout) == (2, ""), (name, result.stderr)
        assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1
        assert text in result.stderr


def test_a_file_of_100_MB_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "big.sql").open("wb") as file:
        file.truncate(100_000_000)
    limit = query_text.MAX_QUERY_BYTES
    with pytest.raises(EventsError, match=f"has 100,000,000 bytes, and a query may have {limit:,}"):
        read_query(f"{tmp_path}/big.sql")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the query is empty"),
        (" \n", "the query is empty"),
        ("a\0b", "not UTF-8"),
        ("SELECT '\udce4'", "not UTF-8"),
        ("rings", "'rings' is not a query, and no file has this name"),
        ("(" * (query_text.MAX_QUERY_BYTES + 1), "characters, more than"),
    ],
)
def test_an_invalid_query_text_is_refused(text: str, message: str) -> None:
    with pytest.raises(EventsError, match=message):
        read_query(text)
