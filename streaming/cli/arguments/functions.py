"""Load the user-defined functions that ``--functions`` names.

``scoring:FUNCTIONS`` imports the module ``scoring``, and ``scoring.py:score`` executes a file. The
name is that of a dict ``{"score": udf(...)}``, or of one function that
`circuits.udf` made, which queries then call by this name.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import ModuleType

from circuits import UserFunction
from circuits.user_functions import check_functions
from dbsp_wcoj import DbspWcojError
from streaming.errors import EventsError

__all__ = ["load_functions"]


@cache
def load_functions(text: str | None) -> Mapping[str, UserFunction]:
    """Return the functions by lower-case name; an empty mapping if ``text`` is None.

    Raises:
        EventsError: The module or the name does not exist, or is no function.
    """
    if text is None:
        return {}
    module_name, colon, name = text.rpartition(":")
    if not colon or not module_name or not name.isidentifier():
        raise EventsError(
            f"--functions {text!r}: write MODULE:NAME or FILE.py:NAME, as in scoring.py:FUNCTIONS"
        )
    module = _load(module_name, text)
    try:
        value = getattr(module, name)
    except AttributeError:
        raise EventsError(f"--functions {text!r}: {module_name} has no {name}") from None
    if isinstance(value, UserFunction):
        value = {name: value}
    if not isinstance(value, Mapping):
        raise EventsError(
            f"--functions {text!r}: {name} is a {type(value).__name__}: make it a dict "
            '{"name": udf(function, returns=...)}, or one udf(...)'
        )
    try:
        return check_functions(value)
    except DbspWcojError as error:
        raise EventsError(f"--functions {text!r}: {error}") from error


def _load(name: str, text: str) -> ModuleType:
    """Import a module, or execute a file, from the current folder or the path of Python."""
    try:
        if not name.endswith(".py"):
            if "" not in sys.path:
                sys.path.insert(0, "")
            return importlib.import_module(name)
        spec = importlib.util.spec_from_file_location(Path(name).stem, name)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    except FileNotFoundError:
        raise EventsError(f"--functions {text!r}: no file {name}") from None
    except Exception as error:
        raise EventsError(
            f"--functions {text!r}: {name} cannot be imported ({type(error).__name__}: {error})"
        ) from error
