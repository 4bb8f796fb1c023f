"""A profile of a query: run its steps, measure them, and show where their time goes.

::

    rows      the data, from files or generated, cut into a load and steps that insert and delete
    measure   the steps with and without the profiler -> a profile
    tables    a profile as tables for a terminal, and as JSON

Profiling does not use Spark: a micro-batch of the sink runs the same steps, after reading its rows.
"""
