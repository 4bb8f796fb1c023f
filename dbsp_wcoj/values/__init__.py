"""Values: dictionary encoding of byte strings and order-preserving bit casts to int64.

The join works on int64 codes only; typed columns are encoded in `circuits.types`.
"""
