"""The medallion benchmark: five tables of change events, 15 views, and Spark that recomputes them.

``events``      the generated change events
``sql``         the views: bronze, silver and gold
``lakehouse``   the Delta tables and the pipeline of one run
``recompute``   Spark computes all views again
``comparison``  the rows of two tables, compared
``policies``    each view by a step and by recomputation, for small and large changes
"""
