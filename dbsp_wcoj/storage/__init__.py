"""Storage of relations: runs, spines, traces and the column orders (arrangements) that joins read.

Nothing here depends on queries or plans. A run is an immutable sorted piece, a spine a logarithmic
number of runs, a trace one relation in every column order that something needs.
"""
