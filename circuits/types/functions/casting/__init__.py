"""Casts, explicit and implicit, with the parsers and formats of text that they need."""
