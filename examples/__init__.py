"""Examples: each file is a script that stands alone, prints what it sees and checks its answer."""
