"""Source stamps: what the machine code of a kernel depends on, as a hash.

numba compiles the functions that a kernel calls into the kernel, so its code depends on its own
file and on those that this file imports, directly or not. Only files of this package matter. A
kernel whose stamp has not changed need not be compiled again.
"""

import re
from functools import cache
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

__all__ = ["imported_modules", "source_stamp"]

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
    found, open_modules = {module}, [module]
    while open_modules:
        new = imported_modules(open_modules.pop()) - found
        found |= new
        open_modules += new
    digest = sha256()
    for name in sorted(found):
        source = _source(name)
        digest.update(f"{name} {len(source)} ".encode() + source)
    return digest.hexdigest()


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
