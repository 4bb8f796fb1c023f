"""Window functions: `window` is the operator; the other files are its frames, orders and values."""
