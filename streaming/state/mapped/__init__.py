"""State larger than memory: maps of the files of a state directory, and the memory limit."""
