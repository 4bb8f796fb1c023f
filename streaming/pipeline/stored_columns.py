"""Stored columns: those of recomputed views, in a file of the state directory.

Spark finds the columns of a query, and it takes seconds to start. The file is a cache: without it,
Spark finds them again.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterable
from typing import Final

import pyarrow as pa

from streaming.errors import StateDamagedError
from streaming.pipeline.recomputation import RecomputedView
from streaming.state.checksums import decode_checked, encode_checked
from streaming.state.files import Files, read_small_file, replace_atomically

__all__ = ["read_columns", "write_columns"]

COLUMNS_FILE: Final = "recomputed_columns.json"

log = logging.getLogger(__name__)


def read_columns(files: Files) -> dict[str, pa.Schema]:
    """Return the columns of recomputed views by their keys; empty if the file is not readable."""
    try:
        body = decode_checked(read_small_file(files, COLUMNS_FILE), COLUMNS_FILE)
        return {
            key: pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
            for key, text in body["columns"].items()
        }
    except (OSError, StateDamagedError, KeyError, TypeError, ValueError, AttributeError):
        return {}


def write_columns(files: Files, views: Iterable[RecomputedView]) -> None:
    """Write the columns of recomputed views; an error of the file system is logged."""
    columns = {
        view.key: base64.b64encode(view.schema.serialize().to_pybytes()).decode() for view in views
    }
    try:
        replace_atomically(files, COLUMNS_FILE, encode_checked({"columns": columns}))
    except OSError as error:
        log.warning("%s/%s was not written: %s", files.location, COLUMNS_FILE, error)
