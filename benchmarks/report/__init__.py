"""Tables and charts of the documentation, from ``results``. ``python -m benchmarks.report``."""
