"""The benchmark of patterns in labelled graphs: `python -m benchmarks.patterns`."""
