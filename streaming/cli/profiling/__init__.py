"""A profile of a query: the steps that are run, what is measured of them, and how it is shown.

::

    rows      the data, from files or generated, cut into a load and steps there and back
    measure   the steps with and without the profiler -> a profile
    tables    a profile as tables for a terminal, and as JSON

No Spark: a micro-batch through the sink is the same steps, with reading before them.
"""
