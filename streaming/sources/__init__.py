"""Sources: decode the rows of a stream into changes of relations.

A tagged union makes several streams one; `change_feeds` has the formats of change data capture.
"""
