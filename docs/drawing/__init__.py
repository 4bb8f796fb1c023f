"""The pictures of the documentation, drawn by what they show.

::

    python -m docs.drawing           # draw docs/pictures/*.svg anew
    python -m docs.drawing --check   # exit status 1 if one is not as it would be drawn

What a picture claims is computed when it is drawn: the terms are those of `dbsp_wcoj.formulas`, the
lists of the join those of its prefix extenders, the cells those of the HyperCube's shares.
"""
