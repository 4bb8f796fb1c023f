"""Examples: each file is an independent script that prints its results and checks them."""
