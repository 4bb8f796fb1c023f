"""Aggregates: linear ones as weights, ordered ones as reads of a trace, and their two-part form."""
