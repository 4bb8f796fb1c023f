"""Operators: one file for each node of a circuit, opened by its equation and an example stream.

Each has its meaning Q on whole Z-sets and its incremental form Q^Δ = D ∘ Q ∘ I side by side
(`circuits.runtime.operators.operator`).
"""
