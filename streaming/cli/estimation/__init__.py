"""Estimation: the memory and the step time of views over more rows than there are yet.

::

    generated_rows   rows with a given number of distinct values in each column
    samples          rows of all inputs for a fraction of the planned rows
    measure          runs the views over a sample, and counts state and work
    growth           fits measurements at several sizes, and extrapolates them
    distinct_values  estimates the distinct values of columns in all rows
"""
