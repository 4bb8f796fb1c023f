"""Sink: one micro-batch as a transaction, from its rows to the targets.

`ViewSink` is the function for `foreachBatch`; the other files are its parts: validation, dead
letters, output modes, metrics and progress.
"""

from streaming.installation import check_streaming

check_streaming()
