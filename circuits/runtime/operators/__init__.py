"""Operators: one file for each kind of plan node, with its equation and an example stream.

An operator has two methods: ``evaluate`` is the non-incremental form Q, on whole Z-sets, and
``prepare`` the incremental form Q^Δ = D ∘ Q ∘ I (`circuits.runtime.operators.operator`).

Families of operators have folders: `aggregates`, `windows`, `time`. `registry` maps each class of
plan nodes to its operator.
"""
