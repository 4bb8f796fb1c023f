"""Settings of Spark for ``dbsp-wcoj run``: ``--conf KEY=VALUE``, and ``[spark]`` of a job file."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Final

from streaming.cli.arguments.checks import Checks
from streaming.errors import EventsError

__all__ = ["check_setting", "read_settings"]

PREFIX: Final = "spark."
_LOCAL: Final = (
    "the command runs Spark in one process on this machine; for a cluster, write a job with "
    "ViewSink (docs/how-to/cluster.md)"
)
_ADDRESS: Final = "only this machine may connect to the Spark of the command"
#: Settings that the command needs as they are, with the reason.
FIXED_SETTINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        **dict.fromkeys(
            ("spark.master", "spark.remote", "spark.api.mode", "spark.submit.deployMode"), _LOCAL
        ),
        **dict.fromkeys(("spark.driver.host", "spark.driver.bindAddress"), _ADDRESS),
        "spark.driver.memory": "give --memory, or memory in [run] of the job file",
        "spark.sql.session.timeZone": "it is UTC, because views compute with times in UTC",
    }
)


def read_settings(
    texts: Collection[str], job_settings: Mapping[str, str], checks: Checks
) -> dict[str, str]:
    """Return the settings of the job file; each key of the command line is added, or replaces one.

    Args:
        texts: The values of ``--conf``.
        job_settings: The settings of the job file, which have been checked.
        checks: Receives the problems, without the values of settings, which may be secret.
    """
    settings: dict[str, str] = {}
    for text in texts:
        key, separator, value = text.partition("=")
        with checks.check():
            if not separator:
                # The text may have a secret, after a space or a colon.
                shown = re.split(r"[^\w.-]", key, maxsplit=1)[0]
                raise EventsError(
                    f"--conf {shown}: write KEY=VALUE, as in spark.jars.packages=GROUP:NAME:VERSION"
                )
            check_setting(key, label=f"--conf {key}")
            if key in settings:
                raise EventsError(f"--conf {key} is given twice: remove one of them")
            settings[key] = value
    return {**job_settings, **settings}


def check_setting(key: str, *, label: str) -> None:
    """Check that a run may have a setting.

    Raises:
        EventsError: It is not a setting of Spark, or the command needs it as it is.
    """
    if not key.startswith(PREFIX) or key == PREFIX:
        raise EventsError(
            f"{label}: Spark ignores a setting whose name does not begin with {PREFIX}: "
            f"write its full name, as in spark.jars.packages"
        )
    reason = FIXED_SETTINGS.get(key)
    if reason is not None:
        raise EventsError(f"{label} cannot be set: {reason}")
