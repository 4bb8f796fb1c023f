"""Settings of the Spark sessions of tests, which run many different plans over few rows.

Their JVM collects garbage on one thread, and compiles methods once, without profiles. Spark itself
keeps its settings, also the compilation of plans: a few of its casts differ without it, and tests
compare with what users get.
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
