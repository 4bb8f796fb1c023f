"""Errors: pass an error of a task to the driver as JSON.

If a task raised an error of this library, Spark would retry the task, with the same result. Instead
the task sends the name of the error's class, its arguments and attributes. The driver looks up the
name among the errors of this library and raises the same error. No part of the JSON is executed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from dbsp_wcoj.errors import DbspWcojError
from streaming.errors import StreamingError

__all__ = ["format_error", "parse_error"]

_Scalar = str | int | float | None


def format_error(error: DbspWcojError) -> bytes:
    """Convert an error to JSON.

    >>> parse_error(format_error(StreamingError("no room")))
    StreamingError('no room')
    """
    arguments = [
        argument if isinstance(argument, _Scalar) else str(argument) for argument in error.args
    ]
    attributes = {name: value for name, value in vars(error).items() if isinstance(value, _Scalar)}
    notes = [str(note) for note in getattr(error, "__notes__", ())]
    body = {
        "error": _name(type(error)),
        "args": arguments,
        "attributes": attributes,
        "shown": str(error),
        "notes": notes,
    }
    return json.dumps(body).encode()


def parse_error(content: bytes) -> DbspWcojError:
    """Convert JSON to its error; to a `StreamingError` if the class is unknown."""
    body = json.loads(content)
    class_of_name = {_name(error_class): error_class for error_class in _classes(DbspWcojError)}
    message = f"{body['error'].rpartition('.')[2]}: {body['shown']}"
    try:
        error = class_of_name[body["error"]](*body["args"])
    except (KeyError, TypeError):  # unknown class, or a constructor with other parameters
        error = StreamingError(message)
    vars(error).update({n: v for n, v in body["attributes"].items() if n in vars(error)})
    for note in body["notes"]:
        error.add_note(note)
    return error


def _name(error: type[DbspWcojError]) -> str:
    return f"{error.__module__}.{error.__qualname__}"


def _classes(root: type[DbspWcojError]) -> Iterator[type[DbspWcojError]]:
    yield root
    for subclass in root.__subclasses__():
        yield from _classes(subclass)
