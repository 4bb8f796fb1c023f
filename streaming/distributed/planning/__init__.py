"""Planning of distributed stages: shares, grids, heavy hitters, and load balance."""
