"""Records: the files of a state directory that belong to no version, or outlive their version.

::

    dead_letter_files        the rejected rows
    metrics_file             a line for each micro-batch
    unpublished              the views that a replay left out
    early_state              the state of new views, before a version has them

Each has its rules of how long its files remain. The files of versions are outside this folder.
"""
