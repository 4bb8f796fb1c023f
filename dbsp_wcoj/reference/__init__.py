"""The readable twin of the kernels: prefix extenders, connectives, and the join over them.

It follows the papers line by line and is the oracle of the compiled join.
"""
