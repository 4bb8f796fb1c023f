"""Joins divided into the cells of a HyperCube: cost and benefit. ``python -m benchmarks.scale``."""
