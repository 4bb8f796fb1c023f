"""Pipelines: files of SQL over tables, whose views a refresh brings up to date.

::

    sql/*.sql ──► one circuit ◄── changes of the source tables since the last refresh
                      │
                      └──► changed rows ──► target tables

``sql_files``   one text of several files, and the file and line of an error in it
``tables``      the source tables: their columns, and what has changed since a position
``pipeline``    `streaming.pipeline.pipeline.Pipeline`: a refresh as one transaction
``recomputation`` and ``spark_views``: views that Spark computes as a whole

Apart from these views, a pipeline needs no running Spark. The command ``dbsp-wcoj pipeline`` runs
it.
"""
