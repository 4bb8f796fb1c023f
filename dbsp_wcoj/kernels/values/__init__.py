"""Kernels of values: exact int64 arithmetic, exact wide sums, byte strings and their hash table."""
