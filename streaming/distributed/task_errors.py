"""Errors: what a task tells the driver of an error, as JSON text.

A task does not raise an error that the engine raises on purpose, since Spark would try again. It
sends the name of the class and the arguments; the driver looks the name up among the errors of this
library and raises the same. Nothing of the text is run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from dbsp_wcoj.errors import DbspWcojError
from streaming.errors import StreamingError

__all__ = ["error_of", "text_of_error"]


def text_of_error(error: DbspWcojError) -> bytes:
    """The text of an error.

    >>> error_of(text_of_error(StreamingError("no room")))
    StreamingError('no room')
    """
    plain = [one if isinstance(one, str | int | float | None) else str(one) for one in error.args]
    notes = [str(note) for note in getattr(error, "__notes__", ())]
    body = {"error": _name(type(error)), "args": plain, "shown": str(error), "notes": notes}
    return json.dumps(body).encode()


def error_of(text: bytes) -> DbspWcojError:
    """The error of a text; a `StreamingError` with its message if the class is not known here."""
    body = json.loads(text)
    known = {_name(one): one for one in _classes(DbspWcojError)}
    shown = f"{body['error'].rpartition('.')[2]}: {body['shown']}"
    try:
        error = known[body["error"]](*body["args"])
    except (KeyError, TypeError):  # an error of another shape than its arguments
        error = StreamingError(shown)
    for note in body["notes"]:
        error.add_note(note)
    return error


def _name(error: type[DbspWcojError]) -> str:
    return f"{error.__module__}.{error.__qualname__}"


def _classes(root: type[DbspWcojError]) -> Iterator[type[DbspWcojError]]:
    yield root
    for one in root.__subclasses__():
        yield from _classes(one)
