"""Sink: applies a micro-batch as one transaction, from its rows to the targets.

::

    view_sink          ViewSink, the function for `foreachBatch`
    output             the target and output mode of each view
    execution_mode     embedded, or distributed over Spark's executors
    query_identity, checkpoint    the Spark query of a micro-batch, and its watermark
    metrics, metrics_recorder, progress, observer   what a sink reports
"""

from streaming.installation import check_streaming

check_streaming()
