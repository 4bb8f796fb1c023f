"""Spark error: what an error of Spark says, without the hundred lines of where it was.

An error that comes through Java is a text of stack traces, causes below what they caused. The last
condition in brackets says most, and the last cause may add what was wrong.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["is_of_spark", "reason_of"]

_CONDITION: Final = re.compile(r"\[[A-Z][A-Z0-9_.]+\] [^\n]*")
_CAUSE: Final = re.compile(r"^Caused by: [\w.$]+: ([^\n]+)", re.MULTILINE)
_QUERY: Final = re.compile(r"\[STREAM_FAILED\][^\n]* terminated with exception: ([^\n]+)")
_STATE: Final = re.compile(r" *SQLSTATE: \w+")


def is_of_spark(error: BaseException) -> bool:
    """Whether an error comes from Spark, or from Java below it."""
    return type(error).__module__.partition(".")[0] in ("pyspark", "py4j")


def reason_of(error: object) -> str:
    r"""One line.

    >>> reason_of("o1.get :\n[A.B] It is bad. SQLSTATE: 123\n\tat x\nCaused by: a.E: no x\n\tat y")
    'Spark says: [A.B] It is bad. (no x)'
    >>> reason_of("[STREAM_FAILED] Query [id = 1] terminated with exception: No disk SQLSTATE: XX")
    'Spark says: No disk'
    >>> reason_of("it does not go")
    'Spark says: it does not go'
    """
    text = str(error).strip()
    conditions, causes = _CONDITION.findall(text), _CAUSE.findall(text)
    query = _QUERY.search(text)
    if query is not None:
        conditions = [one for one in conditions if not one.startswith("[STREAM_FAILED]")]
        conditions = conditions or [query[1]]
    said = conditions[-1] if conditions else causes[-1] if causes else text.partition("\n")[0]
    more = f" ({causes[-1]})" if conditions and causes and conditions[-1] not in causes[-1] else ""
    return f"Spark says: {_STATE.sub('', said).strip()}{more}"
