"""Incremental worst-case-optimal joins over Z-sets."""
