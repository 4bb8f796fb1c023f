"""Syntax: sqlglot's parser with our extensions, the text, and errors that point into it.

Nothing here resolves names or makes plans.
"""
