"""Queries: SELECT with its FROM, joins and subqueries, set operations, VALUES and recursion.

`query` reads a query of any kind. Each part of FROM has a file of its own.
"""
