"""Plans: nodes, columns, expressions and recursive equations, and in `rewrite` the rules over them.

Front ends build logical plans; rewrite rules turn them into the physical plan that runs. No rows
are processed here.
"""
