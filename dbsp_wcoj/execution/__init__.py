"""Execution: compiles the planned terms of a join to programs for the join kernel, and runs them.

A term is one product of a delta formula. It is planned (`dbsp_wcoj.planning`), compiled
(`program_compiler`), bound to the data that it reads (`physical_term`), grouped with the other
terms of a step (`bound_terms`), kept for later steps (`plan_cache`), run and profiled.
"""
