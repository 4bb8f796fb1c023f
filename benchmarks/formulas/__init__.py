"""Compares the six delta formulas, and the automatic choice, on stars, paths, cycles and cliques.

``python -m benchmarks.formulas`` (`benchmarks.formulas.__main__`).
"""
