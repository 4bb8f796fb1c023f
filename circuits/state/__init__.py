"""State of a circuit: the registry of its names, snapshots, and import and export."""
