"""Operators over time: hopping windows, sessions, as-of joins, temporal filters, window close."""
