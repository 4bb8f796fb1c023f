"""Codecs: encode typed Arrow columns as int64 codes, once at the edge, and decode them."""
