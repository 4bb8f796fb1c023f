"""Draws the pictures of the documentation from the code that they show.

::

    python -m docs.drawing           # draw docs/pictures/*.svg
    python -m docs.drawing --check   # exit status 1 if one is out of date

A picture is computed when it is drawn: the terms come from `dbsp_wcoj.formulas`, the lists of the
join from its prefix extenders, the cells from the HyperCube's shares, the deltas from a circuit.
"""
