"""The six delta formulas, and the choice among them, on stars, paths, cycles and cliques.

``python -m benchmarks.formulas`` (`benchmarks.formulas.__main__`).
"""
