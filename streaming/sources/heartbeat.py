"""Heartbeat: micro-batches without rows, so that time advances while no row arrives.

A view that compares with ``now()`` changes as time advances. Spark starts a micro-batch only if a
source has new data, so without new rows such a view stays as it was. A heartbeat is a source that
always has new data and emits no rows. Add it to the union of the streams::

    frame = heartbeat(merge({"orders": orders}))
    frame.writeStream.foreachBatch(sink).trigger(processingTime="10 seconds").start()

The trigger sets the interval: Spark starts a micro-batch every 10 seconds, with or without rows.
Without a trigger, there is a micro-batch every second.

Alternative considered: a thread that calls the sink. Spark numbers the micro-batches, and would
give the id of such a call to other rows.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from streaming.errors import FeedError

__all__ = ["heartbeat"]


def heartbeat(frame: DataFrame) -> DataFrame:
    """Return a streaming DataFrame with the same rows and a micro-batch at least at every trigger.

    Args:
        frame: A streaming DataFrame. A checkpoint of the query without the heartbeat cannot be
            used, because Spark records the offsets of each source.

    Raises:
        FeedError: The DataFrame is not streaming.
    """
    if not frame.isStreaming:
        raise FeedError("the frame is not streaming: give a DataFrame of spark.readStream")
    ticks = frame.sparkSession.readStream.format("rate").option("rowsPerSecond", 1).load()
    no_rows = ticks.where("value < 0").select()  # the values of the source are 0, 1, 2, ...
    return frame.unionByName(no_rows, allowMissingColumns=True)
