"""Operators: one file for each node of a circuit, opened by its equation and an example stream.

Each file holds the non-incremental form Q, on whole Z-sets, and the incremental form
Q^Δ = D ∘ Q ∘ I side by side (`circuits.runtime.operators.operator`).
"""
