"""An archive of the classes of Spark, with which a JVM starts in less CPU time.

    python -m tests.support.class_archive PATH

The JVM maps the archive instead of reading and verifying the same classes again. The tests
start dozens of JVMs, so `make test` makes the archive, and `use_class_archive` lets the JVMs of
drivers use it. A JVM to which it does not fit, such as that of another Java, ignores it.
"""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Final

__all__ = ["ARCHIVE", "use_class_archive"]

#: Where `make test` puts the archive.
ARCHIVE: Final = Path(sys.prefix) / "spark-classes.jsa"
_OPTIONS: Final = "SPARK_SUBMIT_OPTS"  # Spark passes this variable to the JVM of a driver
_NO_MESSAGES: Final = "-Xlog:disable"  # of an archive that does not fit


def use_class_archive(archive: Path = ARCHIVE) -> None:
    """Let the drivers of this process and of its children use the archive, if there is one.

    It changes nothing if the variable `_OPTIONS` is set.
    """
    if archive.is_file():
        option = shlex.quote(f"-XX:SharedArchiveFile={archive}")
        os.environ.setdefault(_OPTIONS, f"{option} {_NO_MESSAGES}")


def make_class_archive(archive: Path) -> None:
    """Run a few queries in a JVM that writes the classes it has loaded to an archive at its end."""
    # Only here: a test that uses the archive need not import Spark.
    from streaming import start_session
    from tests.support.spark_settings import SMALL_JVM

    unfinished = archive.with_suffix(".unfinished")
    option = shlex.quote(f"-XX:ArchiveClassesAtExit={unfinished}")
    os.environ[_OPTIONS] = f"{option} {_NO_MESSAGES}"
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        session = start_session(
            "class archive", cores=2, memory="1g", log=place / "log", settings=SMALL_JVM
        )
        jvm = session.sparkContext._gateway.proc
        rows = session.range(20).selectExpr("id", "id % 3 AS k", "to_json(struct(id)) AS text")
        rows.write.parquet(str(place / "rows"))
        stored = session.read.parquet(str(place / "rows"))
        parsed = stored.selectExpr("k", "from_json(text, 'id BIGINT').id AS id")
        parsed.groupBy("k").count().join(stored, "k").orderBy("id").toArrow()
        stored.mapInArrow(lambda batches: batches, stored.schema).collect()
        stream = session.readStream.schema(stored.schema).parquet(str(place / "rows"))
        writer = stream.writeStream.option("checkpointLocation", str(place / "checkpoint"))
        writer = writer.trigger(availableNow=True)
        writer.foreachBatch(lambda frame, _: frame.toArrow()).start().awaitTermination()
        session.stop()
        jvm.stdin.close()  # it ends when its parent does
        try:
            jvm.wait(timeout=120)
            unfinished.replace(archive)
        except BaseException:
            jvm.kill()
            unfinished.unlink(missing_ok=True)
            raise


if __name__ == "__main__":
    make_class_archive(Path(sys.argv[1]).absolute())
