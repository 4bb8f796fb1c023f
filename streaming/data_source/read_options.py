"""Read options: the options of the data source ``dbsp_wcoj``, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from streaming.errors import StateError

__all__ = ["ReadOptions"]

#: The value of ``startingVersion`` for the changes after the newest version.
LATEST: Final = "latest"
NAMES: Final = (
    "state",
    "view",
    "version",
    "readChangeFeed",
    "startingVersion",
    "endingVersion",
    "maxVersionsPerTrigger",
)
EXAMPLE: Final = ".option('state', 'state/').option('view', 'waiting')"


@dataclass(frozen=True)
class ReadOptions:
    """What to read; `streaming.data_source.view_data_source` describes the options.

    Attributes:
        state: The location of the state.
        view: The view.
        version: The version whose rows are read; None for the newest.
        reads_changes: True to read changes, not rows.
        starting_version: The first version whose changes are read; None if it is not given.
        starts_at_newest: True to read the changes after the newest version (``latest``).
        ending_version: The last version whose changes are read; None for the newest.
        max_versions: The maximum number of versions in a micro-batch; None for no limit.
    """

    state: str
    view: str
    version: int | None = None
    reads_changes: bool = False
    starting_version: int | None = None
    starts_at_newest: bool = False
    ending_version: int | None = None
    max_versions: int | None = None

    @staticmethod
    def of(options: Mapping[str, str]) -> ReadOptions:
        """Read the options of Spark; ``path``, the argument of ``load``, is another ``state``.

        Raises:
            StateError: An option is missing, unknown, has no valid value, or does not fit another.

        >>> ReadOptions.of({"path": "state/", "view": "waiting", "VERSION": "7"}).version
        7
        >>> ReadOptions.of({"state": "s", "view": "v", "version": "x"})
        Traceback (most recent call last):
        streaming.errors.StateError: option version='x': it must be a whole number from 0
        """
        names = {name.lower(): name for name in NAMES}
        values: dict[str, str] = {}
        for name, value in options.items():
            known = "state" if name.lower() == "path" else names.get(name.lower())
            if known is None:
                raise StateError(
                    f"unknown option {name!r} of format 'dbsp_wcoj'; there are {', '.join(NAMES)}"
                )
            if values.setdefault(known, value) != value:
                raise StateError(f"the options state={values[known]!r} and path={value!r} differ")
        for name in ("state", "view"):
            if not values.get(name):
                raise StateError(
                    f"format 'dbsp_wcoj' needs the option {name!r}: {EXAMPLE}. In SQL, write "
                    "CREATE TEMPORARY VIEW ... USING dbsp_wcoj OPTIONS (...): Spark does not hand "
                    "on the options of CREATE TABLE"
                )
        reads_changes = _parse_flag("readChangeFeed", values.get("readChangeFeed"))
        for name in ("startingVersion", "endingVersion", "maxVersionsPerTrigger"):
            if name in values and not reads_changes:
                raise StateError(f"option {name} is for changes: set readChangeFeed to true")
        if "version" in values and reads_changes:
            raise StateError(
                "option version is for rows: give startingVersion and endingVersion for changes"
            )
        starting = values.get("startingVersion")
        starts_at_newest = starting is not None and starting.lower() == LATEST
        return ReadOptions(
            values["state"],
            values["view"],
            version=_parse_count("version", values.get("version")),
            reads_changes=reads_changes,
            starting_version=(
                None if starts_at_newest else _parse_count("startingVersion", starting)
            ),
            starts_at_newest=starts_at_newest,
            ending_version=_parse_count("endingVersion", values.get("endingVersion")),
            max_versions=_parse_count(
                "maxVersionsPerTrigger", values.get("maxVersionsPerTrigger"), least=1
            ),
        )


def _parse_flag(name: str, text: str | None) -> bool:
    if text is None or text.lower() in ("true", "false"):
        return text is not None and text.lower() == "true"
    raise StateError(f"option {name}={text!r}: it must be true or false")


def _parse_count(name: str, text: str | None, *, least: int = 0) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 19 and int(text) >= least):
        raise StateError(f"option {name}={text!r}: it must be a whole number from {least}")
    return int(text)
