"""Sources: decode the rows of a stream into changes of relations.

::

    change_feeds     decodes the change events of databases (change data capture)
    tagged_union     merges several streams into one
    envelope         splits a micro-batch into one table per relation, and invalid rows
    dead_letters     the invalid rows, with the reasons
"""
