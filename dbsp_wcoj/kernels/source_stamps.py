"""Source stamps: what the machine code of a kernel depends on, as a hash.

numba compiles the functions that a kernel calls into the kernel, so its code depends on its own
file and on those that this file imports, directly or not. Only files of this package matter. A
kernel whose stamp has not changed need not be compiled again.

If files are replaced while a process runs, as by an upgrade, the process goes on with the functions
that it has imported. Machine code of them must not get the stamp of the new files, and machine code
of the new files does not fit them (`have_sources_changed`).
"""

import re
import time
from functools import cache
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

__all__ = ["have_sources_changed", "imported_modules", "source_stamp"]

# When this process began to import the kernels.
_IMPORT_TIME_NS: Final = time.time_ns()

_ROOT: Final = __package__
_IMPORT: Final = re.compile(
    rf"^\s*from {re.escape(_ROOT)}(?:\.([\w.]+))? import (\([^)]*\)|.*)$", re.MULTILINE
)


@cache
def source_stamp(module: str) -> str:
    """Return a hash of the source of a module of this package and of all that it imports.

    Args:
        module: Its name below this package, as in ``join.sums``.
    """
    digest = sha256()
    for name in _all_modules(module):
        source = _source(name)
        digest.update(f"{name} {len(source)} ".encode() + source)
    return digest.hexdigest()


def have_sources_changed(module: str) -> bool:
    """Return whether a file that `source_stamp` covers may have changed since it was imported.

    That is so if the file or its metadata changed after this process began to import kernels. Files
    in a zip archive are not checked.
    """
    places = [_find(name) for name in _all_modules(module)]
    try:
        times = [place.stat().st_ctime_ns for place in places if isinstance(place, Path)]
    except FileNotFoundError:
        return True
    return max(times, default=0) > _IMPORT_TIME_NS


@cache
def _all_modules(module: str) -> tuple[str, ...]:
    """Return the names of a module and of all that it imports, directly or not, sorted."""
    found, open_modules = {module}, [module]
    while open_modules:
        new = imported_modules(open_modules.pop()) - found
        found |= new
        open_modules += new
    return tuple(sorted(found))


@cache
def imported_modules(module: str) -> frozenset[str]:
    """Return the modules of this package that a module imports itself, by their names below it."""
    imported = set()
    for package, names in _IMPORT.findall(_source(module).decode()):
        inner = [f"{package}.{name}".strip(".") for name in re.findall(r"\w+", names)]
        imported |= {name for name in (package, *inner) if name and _find(name) is not None}
    return frozenset(imported)


@cache
def _source(module: str) -> bytes:
    file = _find(module)
    return b"" if file is None else file.read_bytes()


@cache
def _find(module: str) -> Traversable | None:
    """Return the file of a module or package, which may be in a zip archive."""
    place = files(_ROOT).joinpath(*module.split("."))
    package = place / "__init__.py"
    if package.is_file():
        return package
    file = files(_ROOT).joinpath(*module.split(".")[:-1], f"{place.name}.py")
    return file if file.is_file() else None
