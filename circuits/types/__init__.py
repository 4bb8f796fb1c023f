"""Types: how Arrow values become codes and back, casts, and the functions of expressions."""
