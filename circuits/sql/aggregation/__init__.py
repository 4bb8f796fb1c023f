"""Aggregation: GROUP BY, aggregate functions and window functions."""
