"""Installation: check that `streaming` and `circuits` are the packages of this distribution.

The package index has other distributions with packages of these names. Such a package may be found
earlier on Python's path, or may have replaced ``__init__.py`` in the same folder. Python then
reports a missing name or module, which does not explain the cause. The checks here name the
distribution that owns the file and say how to remove it.

::

    function              checks                                      is called
    check_circuits()      the folder of `circuits`, without import    when `streaming` is imported
    check_streaming()     the marker (`__distribution__`)             when a subpackage is imported
    check_packages()      folder and marker of all packages           when an import has failed

If `streaming/__init__.py` itself belongs to another distribution, code of this package runs only
through its subpackages, such as the command line and the sink, which therefore check it.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path
from typing import Final

__all__ = ["DISTRIBUTION", "PACKAGES", "check_circuits", "check_packages", "check_streaming"]

DISTRIBUTION: Final = "dbsp-wcoj"
PACKAGES: Final = ("dbsp_wcoj", "circuits", "streaming")

_FOLDER: Final = Path(__file__).resolve().parent.parent


def check_circuits() -> None:
    """Check that `circuits` lies beside `streaming`, without importing it.

    Raises:
        ImportError: Another distribution is found under the name.
    """
    _check_folder("circuits", _origin_of("circuits"))


def check_streaming() -> None:
    """Check that `streaming`, which is imported, has the marker of this distribution.

    Raises:
        ImportError: Its ``__init__.py`` is that of another distribution.
    """
    _check_marker("streaming")


def check_packages() -> None:
    """Check all packages of this distribution by their folder and their marker.

    Raises:
        ImportError: Another distribution is found under one of the names.
    """
    for name in PACKAGES:
        _check_folder(name, _origin_of(name))
    for name in ("circuits", "streaming"):
        _check_marker(name)


def _origin_of(name: str) -> str:
    """Return the file of a package, or an empty text if there is none."""
    spec = find_spec(name)
    if spec is None:
        return ""
    return spec.origin or next(iter(spec.submodule_search_locations or ()), "")


def _check_folder(name: str, origin: str) -> None:
    if not origin or Path(origin).resolve().parent.parent != _FOLDER:
        raise _other_distribution_error(name, origin)


def _check_marker(name: str) -> None:
    if getattr(import_module(name), "__distribution__", None) != DISTRIBUTION:
        raise _other_distribution_error(name, _origin_of(name))


def _other_distribution_error(name: str, origin: str) -> ImportError:
    """Return the error for a package that belongs to another distribution."""
    owners = sorted({*packages_distributions().get(name, ())} - {DISTRIBUTION})
    owner = f"distribution {' or '.join(owners)}" if owners else "no installed distribution"
    fix = f"pip uninstall {' '.join(owners)}" if owners else "remove it from the path"
    return ImportError(
        f"the package {name!r} is not that of {DISTRIBUTION}: Python finds {origin or 'no file'}, "
        f"which belongs to {owner}; {fix}, then pip install --force-reinstall --no-deps "
        f"{DISTRIBUTION}, or use an environment of its own",
        name=name,
        path=origin or None,
    )
