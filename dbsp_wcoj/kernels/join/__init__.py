"""Kernels of the generic join: prefix enumeration, intersection, sums over trailing variables."""
