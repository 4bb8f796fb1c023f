"""Source tables of a pipeline: what has changed since a position.

Each table tells its changed rows, and the position from which the next refresh continues. Reading
changes nothing in the table. `streaming.pipeline.tables.source_table` has the interface.
"""
