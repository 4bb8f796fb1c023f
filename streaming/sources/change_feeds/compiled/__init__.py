"""Compiled decoding: the change events of a micro-batch, in Arrow and kernels.

::

    feed_reader   reads a micro-batch with a feed: the rows of each relation, and dead letters
    scanner       finds the members of events
    debezium, maxwell, canal   find the inserted and deleted rows of an event
    images        converts images to rows of a relation
    cells         converts the values of one column

A decoder accepts the events whose meaning is plain and refuses every other one, such as a malformed
event or a date in a rare form. The refused events of a micro-batch are decoded by Spark's
expressions, which define the meaning of all events (`streaming.sources.change_feeds`). So both give
equal rows, and only refused events pay for Spark.
"""
