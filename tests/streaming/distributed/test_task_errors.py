"""Errors that tasks of executors pass to the driver."""

from __future__ import annotations

import pytest

from circuits import SqlError
from dbsp_wcoj import LimitError, QuerySyntaxError
from dbsp_wcoj.errors import DbspWcojError
from streaming.distributed.task_errors import format_error, parse_error
from streaming.errors import StreamingError

LIMIT = LimitError("11 rows", "max_step_rows", 10, 11)
SYNTAX = QuerySyntaxError("expected ')'", line=3, column=7)


@pytest.mark.parametrize("error", [LIMIT, SYNTAX, SqlError("no table", line=2, column=5)])
def test_the_driver_raises_the_error_of_the_task_with_its_attributes_and_notes(error):
    error.add_note("of view v")
    parsed = parse_error(format_error(error))
    assert type(parsed) is type(error)
    assert (str(parsed), vars(parsed)) == (str(error), vars(error))


def test_an_error_of_an_unknown_class_is_a_streaming_error_that_names_it():
    class UnknownError(DbspWcojError):
        pass

    content = format_error(UnknownError("no room")).replace(b"UnknownError", b"NoSuchError")
    parsed = parse_error(content)
    assert type(parsed) is StreamingError
    assert str(parsed) == "NoSuchError: no room"
