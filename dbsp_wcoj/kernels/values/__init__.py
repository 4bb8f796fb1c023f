"""Kernels of values: exact int64 arithmetic, wide sums, byte strings and their hash table."""
