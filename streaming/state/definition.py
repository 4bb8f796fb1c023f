"""Definition: what the views are, in the file ``views.pickle`` beside their state.

A query does not need it, since it comes with its circuit; who works on the directory without the
query does (`streaming.rescaling`). It is Python's pickle of a `circuits.Definition`, which holds
plans, and is read as data: only names of the plans, of Arrow's types and of plain values are known
to the reader, so a file that was put there by somebody else cannot run what it likes. Its
fingerprints have to be those of the directory.
"""

from __future__ import annotations

import io
import pickle
from typing import Any, Final

from circuits.definition import Definition
from streaming.errors import StateError
from streaming.state.files import Files

__all__ = ["keep_definition", "kept_definition"]

NAME: Final = "views.pickle"
OURS: Final = ("circuits.", "dbsp_wcoj.")
OTHERS: Final = ("collections", "datetime", "decimal", "pyarrow.lib", "types", "zoneinfo")
BUILT_IN: Final = ("frozenset", "set", "slice", "complex", "bytearray", "range")


def keep_definition(files: Files, definition: Definition) -> None:
    """Write the file, if it is not there."""
    if files.size(NAME) is None:
        files.write(f"{NAME}.tmp", [pickle.dumps(definition)])
        files.sync(f"{NAME}.tmp")
        files.rename(f"{NAME}.tmp", NAME)


def kept_definition(files: Files) -> Definition:
    """What the file says.

    Raises:
        StateError: It is not there or cannot be read.
    """
    path = f"{files.location}/{NAME}"
    way_out = "start the query once with this version, which writes it anew if it is not there"
    try:
        if files.size(NAME) is None:
            raise StateError(f"{path} is missing: {way_out}")
        found = _Reader(io.BytesIO(files.read(NAME))).load()
        if not isinstance(found, Definition):
            raise pickle.UnpicklingError(f"a {type(found).__name__}")
        found.circuit()
    except (StateError, OSError):
        raise
    except Exception as error:  # pickle may raise anything
        raise StateError(
            f"{path} cannot be read ({type(error).__name__}: {error}): remove it and {way_out}"
        ) from error
    return found


class _Reader(pickle.Unpickler):
    """Knows what definitions are made of, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        known = module.startswith(OURS) or module in OTHERS
        if "." in name or not (known or (module == "builtins" and name in BUILT_IN)):
            raise pickle.UnpicklingError(f"{module}.{name} is no part of a definition")
        return super().find_class(module, name)
