"""Execution on Spark executors: routing rows to cells, and the steps of cells."""
