"""Operators: one file for each kind of plan node, with its equation and an example stream.

An operator has two methods: ``evaluate`` is the non-incremental form Q, on whole Z-sets, and
``prepare`` the incremental form Q^Δ = D ∘ Q ∘ I (`circuits.runtime.operators.operator`).
"""
