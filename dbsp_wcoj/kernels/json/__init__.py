"""JSON kernels: find the members of JSON objects in bulk, and convert the texts of values.

``scan`` validates JSON objects and records the position and kind of the members that it is told.
``values`` converts texts at such positions to numbers, times and bytes. Both accept a subset of all
valid inputs and mark every other object or value as refused; the caller treats it another way. So
they need no rare rules, and never return a wrong value.
"""
