"""Kernels of the generic join: prefix extension, intersection, sums over trailing variables."""
