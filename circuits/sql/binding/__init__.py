"""Binding: the names that a query can use, the clause that reads an expression, the plan so far.

Expressions, aggregation and queries are built on it; it knows none of them.
"""
