"""Run a module with only the packages that one extra of the project installs.

::

    python -m tests.support.only_extra docs mkdocs build --strict

runs ``python -m mkdocs build --strict``, and an import of a package that ``pip install '.[docs]'``
would not install fails, although the test environment has it. The requirements of the project come
from pyproject.toml, those of other distributions from their metadata.
"""

from __future__ import annotations

import runpy
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = "dbsp-wcoj"


class OnlyInstalled(MetaPathFinder):
    """Fails the import of packages of distributions that are not in ``names``."""

    def __init__(self, names: set[str]) -> None:
        self._hidden = {
            package
            for package, distributions in packages_distributions().items()
            if not names & {canonicalize_name(name) for name in distributions}
        }

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: object = None
    ) -> ModuleSpec | None:
        if name.partition(".")[0] in self._hidden:
            raise ModuleNotFoundError(f"the extra does not install {name!r}", name=name)
        return None


def distributions_of(extra: str) -> set[str]:
    """Return the canonical names of all distributions that the extra installs, with the project."""
    visited: set[tuple[str, str]] = set()
    waiting = [(PROJECT, ""), (PROJECT, extra)]
    while waiting:
        name, name_extra = key = waiting.pop()
        if key in visited:
            continue
        visited.add(key)
        for requirement in _requirements(name, name_extra):
            dependency = canonicalize_name(requirement.name)
            waiting += [(dependency, ""), *((dependency, name) for name in requirement.extras)]
    return {name for name, _ in visited}


def _requirements(name: str, extra: str) -> Iterator[Requirement]:
    if name == PROJECT:
        project: Mapping[str, object] = tomllib.loads((ROOT / "pyproject.toml").read_text())
        fields = project["project"]
        assert isinstance(fields, dict)
        texts = fields["optional-dependencies"][extra] if extra else fields["dependencies"]
    else:
        try:
            texts = requires(name) or []
        except PackageNotFoundError:  # for another platform or Python
            texts = []
    for requirement in map(Requirement, texts):
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            yield requirement


if __name__ == "__main__":
    sys.meta_path.insert(0, OnlyInstalled(distributions_of(sys.argv[1])))
    sys.argv = sys.argv[2:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
