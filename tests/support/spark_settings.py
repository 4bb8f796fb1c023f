"""Settings of the Spark sessions of tests, which run many different plans over few rows.

Local files are read and written without checksum files, as in the demo. The JVM collects garbage on
one thread, and compiles methods once, without profiles. Spark compiles plans as it does for users,
because a few of its casts differ without that.
"""

from __future__ import annotations

from typing import Final

from streaming.demo.command import SPARK_SETTINGS

__all__ = ["SMALL_JVM"]

_JAVA_OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SMALL_JVM: Final = {
    **SPARK_SETTINGS,
    "spark.driver.extraJavaOptions": _JAVA_OPTIONS,
    "spark.executor.extraJavaOptions": _JAVA_OPTIONS,
}
