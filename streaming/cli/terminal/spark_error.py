"""Shorten an error of Spark to one line.

An error of Java is a text of stack traces, each cause below its effect. The last error condition in
brackets is the most specific one, and the last cause may add a detail::

    [STREAM_FAILED] Query terminated with exception: ...
    Caused by: org.apache.spark...: [PATH_NOT_FOUND] Path does not exist: ...
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["has_message", "is_lost_connection", "is_spark_error", "spark_reason"]

_CONDITION: Final = re.compile(r"\[[A-Z][A-Z0-9_.]+\] [^\n]*")
_CAUSE: Final = re.compile(r"^Caused by: [\w.$]+: ([^\n]+)", re.MULTILINE)
_QUERY_FAILURE: Final = re.compile(r"\[STREAM_FAILED\][^\n]* terminated with exception: ([^\n]+)")
_SQL_STATE: Final = re.compile(r" *SQLSTATE: \w+")


def is_spark_error(error: BaseException) -> bool:
    """Return whether an error comes from Spark, or from Java below it."""
    return type(error).__module__.partition(".")[0] in ("pyspark", "py4j")


def is_lost_connection(error: BaseException) -> bool:
    """Return whether an error says that Spark's JVM does not answer any more.

    An exception of Java is an answer, unless its message cannot be read: it is in the JVM.

    >>> is_lost_connection(ConnectionRefusedError(111, "Connection refused"))
    True
    """
    kind = type(error)
    if kind.__name__ == "Py4JJavaError":
        return not has_message(error)
    return isinstance(error, ConnectionError) or kind.__module__.partition(".")[0] == "py4j"


def has_message(error: BaseException) -> bool:
    """Return False if the message of an error of Java is in a JVM that does not answer any more."""
    try:
        str(error)
    except Exception as failure:
        return not is_lost_connection(failure)
    return True


def spark_reason(error: object) -> str:
    r"""Return the reason in one line, with the last cause in parentheses if it says more.

    >>> spark_reason("o1.get :\n[A.B] It is bad. SQLSTATE: 1\n\tat x\nCaused by: a.E: no x\n\tat y")
    'Spark says: [A.B] It is bad. (no x)'
    >>> spark_reason("[STREAM_FAILED] Query terminated with exception: No disk SQLSTATE: XX")
    'Spark says: No disk'
    >>> spark_reason("port in use")
    'Spark says: port in use'
    """
    text = str(error).strip()
    conditions, causes = _CONDITION.findall(text), _CAUSE.findall(text)
    query_failure = _QUERY_FAILURE.search(text)
    if query_failure is not None:
        conditions = [
            condition for condition in conditions if not condition.startswith("[STREAM_FAILED]")
        ]
        conditions = conditions or [query_failure[1]]
    reasons = conditions or causes or [text.partition("\n")[0]]
    reason = reasons[-1]
    details = (
        f" ({causes[-1]})" if conditions and causes and conditions[-1] not in causes[-1] else ""
    )
    return f"Spark says: {_SQL_STATE.sub('', reason).strip()}{details}"
