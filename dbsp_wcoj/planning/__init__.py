"""Planning: variable orders, statistics, the AGM bound, and which delta formula a step runs.

A plan is data. `dbsp_wcoj.execution` compiles it and binds it to storage.
"""
