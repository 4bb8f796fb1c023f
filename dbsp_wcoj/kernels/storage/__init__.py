"""Kernels of storage: sort, consolidate, build, search and merge runs."""
